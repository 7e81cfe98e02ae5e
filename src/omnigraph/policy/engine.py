"""How a policy decides: its rules as Cedar policies, one for each rule and action, and a memo.

Cedar does the deciding; what is here turns a file into Cedar's JSON form, has it validated
strictly, and remembers answers. A decision depends on nothing but the file, the actor, the action
and the two branch names, so that a remembered one is as good as a new one.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Final

import cedarpy
import orjson

from omnigraph.errors import InputError
from omnigraph.model.access import ACTIONS, SERVER_ACTIONS, Access, Action, Decision
from omnigraph.model.limits import POLICY_MEMO_MAX
from omnigraph.policy.document import (
    Allow,
    Kind,
    PolicyDocument,
    Rule,
    actions_of,
    read_policy,
    wrong,
)

_CONTEXT: Final = {
    "has_branch": "Bool",
    "branch": "String",
    "branch_is_protected": "Bool",
    "has_target_branch": "Bool",
    "target_branch": "String",
    "target_branch_is_protected": "Bool",
}


class Policy:
    """One checked policy for one graph (or for the server): a `PolicyGate`. Safe between threads.

    `InputError` if Cedar's strict validation finds anything.
    """

    def __init__(self, document: PolicyDocument, *, graph_id: str = "graph") -> None:
        self.document = document
        self._graph_id = graph_id
        self._resource = (
            f"Omnigraph::Server::{_quoted('root')}"
            if document.kind == "server"
            else f"Omnigraph::Graph::{_quoted(graph_id)}"
        )
        kind, name = ("Server", "root") if document.kind == "server" else ("Graph", graph_id)
        rules = {
            f"{rule.id}:{action}": _permit(rule, action, kind, name)
            for rule in document.rules
            for action in actions_of(rule)
        }
        schema = cedarpy.Schema.from_str(_schema())
        _validate(rules, schema, document)
        self._schema = schema
        self._policies = cedarpy.PolicySet.from_json_str(_policy_set(rules))
        self._entities = cedarpy.Entities.from_json_str(_entities(document, kind, name), schema)
        self._actors = document.actors
        self._memo: dict[tuple[str, Access], Decision] = {}

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, graph_id: str = "graph", kind: Kind = "graph"
    ) -> Policy:
        """The policy in a file."""
        return cls(read_policy(path, kind=kind), graph_id=graph_id)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Policy, graph_id=self._graph_id), (self.document,)

    def decide(self, actor: str | None, access: Access) -> Decision:
        """Whether the actor may do it, and by which rule: the first of those that match by id."""
        if actor is None:
            return Decision(
                allowed=False,
                message=f"policy denied action '{access.action}': nobody is said to act",
            )
        key = (actor, access)
        known = self._memo.get(key)
        if known is None:
            known = self._decided(actor, access)
            if len(self._memo) >= POLICY_MEMO_MAX:
                self._memo.clear()  # names that nobody asks for again fill it, if anything does
            self._memo[key] = known
        return known

    def may_ever(self, actor: str, action: Action) -> bool:
        """Whether there is a branch on which the actor may do it."""
        groups = self.document.groups
        return any(
            action in rule.allow.actions and actor in groups[rule.allow.actors.group]
            for rule in self.document.rules
        )

    def _decided(self, actor: str, access: Access) -> Decision:
        if actor not in self._actors:
            message = f"policy denied action '{access.action}' for unknown actor '{actor}'"
            return Decision(allowed=False, message=message)
        protected = self.document.protected_branches
        answer = cedarpy.is_authorized(
            {
                "principal": f"Omnigraph::Actor::{_quoted(actor)}",
                "action": f"Omnigraph::Action::{_quoted(access.action)}",
                "resource": self._resource,
                "context": {
                    "has_branch": access.branch is not None,
                    "branch": access.branch or "",
                    "branch_is_protected": access.branch in protected,
                    "has_target_branch": access.target_branch is not None,
                    "target_branch": access.target_branch or "",
                    "target_branch_is_protected": access.target_branch in protected,
                },
            },
            self._policies,
            self._entities,
            self._schema,
        )
        if answer.diagnostics.errors:
            # What cannot be evaluated allows nothing; the file was validated, so this is ours.
            message = f"policy: {'; '.join(answer.diagnostics.errors)}"
            return Decision(allowed=False, message=message)
        if not answer.allowed:
            message = f"policy denied {access.words} for actor '{actor}'"
            return Decision(allowed=False, message=message)
        return Decision(
            allowed=True,
            message=f"policy allowed action '{access.action}' for actor '{actor}'",
            matched_rule_id=min(one.rpartition(":")[0] for one in answer.diagnostics.reasons),
        )


# --- Cedar's forms ----------------------------------------------------------------------------


def _schema() -> str:
    context = ", ".join(f"{name}: {kind}" for name, kind in _CONTEXT.items())
    actions = "\n".join(
        f"  action {action} appliesTo {{principal: Actor, "
        f"resource: {'Server' if action in SERVER_ACTIONS else 'Graph'}, context: Request}};"
        for action in ACTIONS
    )
    return (
        "namespace Omnigraph {\n"
        "  entity Group;\n  entity Actor in [Group];\n  entity Graph;\n  entity Server;\n"
        f"  type Request = {{{context}}};\n{actions}\n}}\n"
    )


def _permit(rule: Rule, action: str, kind: str, name: str) -> dict[str, Any]:
    return {
        "effect": "permit",
        "principal": {"op": "in", "entity": _entity("Group", rule.allow.actors.group)},
        "action": {"op": "==", "entity": _entity("Action", action)},
        "resource": {"op": "==", "entity": _entity(kind, name)},
        "conditions": [{"kind": "when", "body": body} for body in _conditions(rule.allow)],
    }


def _conditions(allow: Allow) -> list[dict[str, Any]]:
    found = []
    for name, scope in (
        ("branch", allow.branch_scope),
        ("target_branch", allow.target_branch_scope),
    ):
        if scope in (None, "any"):
            continue
        is_protected: dict[str, Any] = _of_context(f"{name}_is_protected")
        wanted = is_protected if scope == "protected" else {"!": {"arg": is_protected}}
        found.append({"&&": {"left": _of_context(f"has_{name}"), "right": wanted}})
    return found


def _of_context(attribute: str) -> dict[str, Any]:
    return {".": {"left": {"Var": "context"}, "attr": attribute}}


def _entity(kind: str, name: str) -> dict[str, str]:
    return {"type": f"Omnigraph::{kind}", "id": name}


def _entities(document: PolicyDocument, kind: str, name: str) -> str:
    actors = [
        {
            "uid": _entity("Actor", actor),
            "attrs": {},
            "parents": [
                _entity("Group", group)
                for group, members in document.groups.items()
                if actor in members
            ],
        }
        for actor in sorted(document.actors)
    ]
    others = [("Group", group) for group in document.groups]
    others.append((kind, name))
    plain = [{"uid": _entity(*one), "attrs": {}, "parents": []} for one in others]
    return orjson.dumps(actors + plain).decode()


def _policy_set(rules: dict[str, dict[str, Any]]) -> str:
    body = {"templates": {}, "staticPolicies": rules, "templateLinks": []}
    return orjson.dumps(body).decode()


def _validate(
    rules: dict[str, dict[str, Any]], schema: cedarpy.Schema, document: PolicyDocument
) -> None:
    """Have Cedar check every rule; its text form has names of its own, so one rule at a time."""
    for name, rule in rules.items():
        try:
            text = cedarpy.policies_from_json_str(_policy_set({name: rule}))
            found = cedarpy.validate_policies(text, schema)
        except ValueError as cause:
            raise wrong(document.path, f"rule '{name}'", str(cause)) from cause
        if not found.validation_passed:
            problems = "; ".join(str(one.error) for one in found.errors)
            raise InputError(f"'{document.path}': rule '{name}': {problems}", path=document.path)


def _quoted(text: str) -> str:
    """The text between quotes in the one spelling that Cedar takes for a name."""
    written = [
        _ESCAPES.get(letter) or (letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}")
        for letter in text
    ]
    return '"' + "".join(written) + '"'


_ESCAPES: Final = {
    '"': '\\"',
    "'": "\\'",
    "\\": "\\\\",
    "\0": "\\0",
    "\t": "\\t",
    "\r": "\\r",
    "\n": "\\n",
}
