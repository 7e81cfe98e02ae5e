"""Which right every call on a graph needs, and the gate that asks a policy for it.

`RIGHTS` is the one place where a call names its action and scope. A graph without a policy asks
nobody. With one, every call is decided before it begins, reads too; nobody in particular may do
nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from omnigraph.engine.arguments import TEXT, TEXT_OR_NONE, require
from omnigraph.engine.core import Core
from omnigraph.engine.refs import At
from omnigraph.errors import (
    InputError,
    OmnigraphError,
    PackageMissingError,
    PolicyDeniedError,
)
from omnigraph.model.access import Access, Action
from omnigraph.model.graph import Snapshot
from omnigraph.model.ports import PolicyGate

logger = logging.getLogger(__name__)

PolicySource = PolicyGate | str | os.PathLike[str]
# What an action is done to: the graph as a whole, a branch that is worked on, a branch that is
# aimed at, or from one branch to another.
Scope = Literal["graph", "branch", "target", "transition"]


class Right(msgspec.Struct, frozen=True):
    """What a call needs to be allowed."""

    action: Action
    scope: Scope


_READ_GRAPH: Final = Right("read", "graph")
_READ: Final = Right("read", "branch")
_EXPORT: Final = Right("export", "branch")
_CHANGE: Final = Right("change", "branch")
_ADMIN: Final = Right("admin", "graph")

RIGHTS: Final[Mapping[str, Right]] = {
    # reading
    "query": _READ,
    "algorithms": _READ,
    "explain": _READ,
    "describe": _READ,
    "lint": _READ,
    "read_blob": _READ,
    "snapshot": _READ,
    "health": _READ,
    "commits": _READ,
    "commit_changes": _READ,
    "changes": _READ,
    "diff": _READ,
    "entity": _READ,
    "entity_history": _READ,
    "merge_preview": _READ,
    "plan_schema": _READ,
    "schema_source": _READ_GRAPH,
    "branches": _READ_GRAPH,
    "require_branch": _READ_GRAPH,
    "unreadable_branches": _READ_GRAPH,
    "deleted_branches": _READ_GRAPH,
    "tags": _READ_GRAPH,
    "unreadable_tags": _READ_GRAPH,
    "commit": _READ_GRAPH,
    "retention": _READ_GRAPH,
    "figures": _READ_GRAPH,
    "export": _EXPORT,
    "changes_baseline": _EXPORT,
    # writing; a load that makes its branch needs the right of `create_branch` too
    "mutate": _CHANGE,
    "load": _CHANGE,
    "transaction": _CHANGE,
    "embed": _CHANGE,
    "revert": _CHANGE,
    "apply_schema": Right("schema_apply", "target"),
    "create_branch": Right("branch_create", "transition"),
    "restore_branch": Right("branch_create", "target"),
    "create_tag": Right("branch_create", "transition"),
    "delete_branch": Right("branch_delete", "target"),
    "delete_tag": Right("branch_delete", "target"),
    "merge": Right("branch_merge", "transition"),
    # upkeep
    "ensure_indices": _ADMIN,
    "optimize": _ADMIN,
    "set_retention": _ADMIN,
    "cleanup": _ADMIN,
    "repair": _ADMIN,
    "verify": _ADMIN,
    "backup": _ADMIN,
    "recoveries": _ADMIN,
    "recovery_log_problems": _ADMIN,
    "clear_recovery_log": _ADMIN,
    "pending_recoveries": _ADMIN,
    "resolve_recovery": _ADMIN,
}
# Calls that tell and change nothing of what is stored.
FREE: Final = frozenset({"acting_as", "close", "connect", "init", "open", "refresh", "uri"})


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts through a handle on a graph, and the policy that says what they may do."""

    actor: str | None = None
    policy: PolicyGate | None = None

    @classmethod
    def of(cls, policy: PolicySource | None, actor: str | None) -> Gate:
        """The gate of a policy, or of the file that holds it; None: everything is allowed."""
        require(TEXT_OR_NONE, actor=actor)
        if policy is None or isinstance(policy, PolicyGate):
            return cls(actor=actor, policy=policy)
        if not isinstance(policy, str | os.PathLike):
            raise InputError(f"policy must be a file or a policy, got {type(policy).__name__}")
        try:
            from omnigraph.policy.engine import Policy  # noqa: PLC0415 - an optional package
        except ModuleNotFoundError as cause:
            raise PackageMissingError(use="a policy", package="cedarpy", extra="server") from cause
        return cls(actor=actor, policy=Policy.load(policy))

    def acting(self, actor: str | None) -> str | None:
        """Who makes a change: the one that the call names, else the one the handle is for."""
        require(TEXT_OR_NONE, actor=actor)
        if actor is None or self.actor is None or self.policy is None:
            return self.actor if actor is None else actor
        if actor != self.actor:
            raise PolicyDeniedError(
                f"this graph is open for actor '{self.actor}', not for '{actor}'",
                action="act_as",
                actor=actor,
            )
        return actor

    def require(
        self,
        call: str,
        *,
        branch: str | None = None,
        target: str | None = None,
        actor: str | None = None,
    ) -> None:
        """Raise `PolicyDeniedError` unless the policy allows the call."""
        if self.policy is None:
            return
        right = RIGHTS[call]
        assert (branch is not None, target is not None) == _GIVEN[right.scope], (
            f"{call} names another scope than its right"
        )
        access = Access(right.action, branch, target)
        acting = self.acting(actor)
        decision = self.policy.decide(acting, access)
        logger.debug(
            "policy decision",
            extra={
                "actor": acting,
                "action": access.action,
                "branch": branch,
                "target_branch": target,
                "allowed": decision.allowed,
                "rule": decision.matched_rule_id,
            },
        )
        if not decision.allowed:
            raise PolicyDeniedError(
                decision.message,
                action=access.action,
                actor=acting,
                branch=branch,
                target_branch=target,
            )

    def state(self, core: Core, call: str, branch: str, at: At | None) -> Snapshot:
        """The state that a call reads, if the policy allows it. The branch that counts is the one
        that the state is of, whatever name it was asked for by."""
        if self.policy is None:
            return core.snapshot(branch, at)
        try:
            found = core.snapshot(branch, at)
        except OmnigraphError:
            self.require(call, branch=str(branch))  # says nothing about what is not there
            raise
        self.require(call, branch=found.graph_branch)
        return found

    def require_load(
        self, core: Core, *, branch: str, from_branch: str | None, actor: str | None
    ) -> None:
        """Raise `PolicyDeniedError` unless a load into the branch is allowed, and to make the
        branch if it is to be made."""
        if self.policy is None:
            return
        require(TEXT, branch=branch)
        self.require("load", branch=branch, actor=actor)
        if from_branch is not None and core.store.refs.find(branch) is None:
            self.require("create_branch", branch=from_branch, target=branch, actor=actor)


_GIVEN: Final[Mapping[Scope, tuple[bool, bool]]] = {
    "graph": (False, False),
    "branch": (True, False),
    "target": (False, True),
    "transition": (True, True),
}
OPEN: Final = Gate()
