"""Who may do what: the actions that a policy knows, what they are done to, and how it decides."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

Action = Literal[
    "read",
    "export",
    "change",
    "schema_apply",
    "branch_create",
    "branch_delete",
    "branch_merge",
    "admin",
    "invoke_query",
    "graph_list",
]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
# What a rule may bound by the branch that is worked on, and by the branch that is aimed at.
BRANCH_ACTIONS: Final = frozenset({"read", "export", "change"})
TARGET_ACTIONS: Final = frozenset(
    {"schema_apply", "branch_create", "branch_delete", "branch_merge"}
)
SERVER_ACTIONS: Final = frozenset({"graph_list"})


class Access(msgspec.Struct, frozen=True, order=True):
    """One thing that somebody wants to do; a scope that it does not have is None."""

    action: Action
    branch: str | None = None
    target_branch: str | None = None

    @property
    def words(self) -> str:
        """The action and its scope, for people."""
        on = f" on branch '{self.branch}'" if self.branch is not None else ""
        to = f" targeting branch '{self.target_branch}'" if self.target_branch is not None else ""
        return f"action '{self.action}'{on}{to}"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy says to one access of one actor."""

    allowed: bool
    message: str
    matched_rule_id: str | None = None
