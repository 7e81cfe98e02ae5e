"""Tests of a policy: a YAML file of cases, each what an actor wants and what must be said to it."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from omnigraph.model.access import ACTIONS, Access, Action, Decision
from omnigraph.model.ports import PolicyGate
from omnigraph.model.yaml_text import read_yaml
from omnigraph.policy.document import (
    form,
    mapping,
    read_file,
    require_version,
    wrong,
)


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    actor: str
    action: str
    branch: str | None = None
    target_branch: str | None = None
    expect: Literal["allow", "deny"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a case."""

    case: Case
    decision: Decision

    @property
    def passed(self) -> bool:
        return self.decision.allowed == (self.case.expect == "allow")


def read_cases(path: str | os.PathLike[str]) -> tuple[Case, ...]:
    """The cases in a file, or an error that names the file and the case."""
    name = os.fspath(path)
    body = read_yaml(read_file(path, what="file of policy tests"), path=name)
    body = mapping(body, path=name, known=("version", "cases"))
    require_version(body, path=name)
    seen: dict[str, Case] = {}
    for number, item in enumerate(
        form(body.get("cases") or [], list[object], path=name, at="cases"), start=1
    ):
        named = item.get("id") if isinstance(item, dict) else None
        at = f"case '{named}'" if isinstance(named, str) and named.strip() else f"case {number}"
        case = form(item, Case, path=name, at=at)
        for field in ("id", "actor"):
            if not getattr(case, field).strip():
                raise wrong(name, at, f"its {field} is blank")
        if case.id in seen:
            raise wrong(name, at, "another case has the same id")
        seen[case.id] = case
        access_of(case.action, None, None, path=name, at=at)
    return tuple(seen.values())


def run_cases(gate: PolicyGate, cases: tuple[Case, ...]) -> list[Outcome]:
    return [
        Outcome(
            case=case,
            decision=gate.decide(
                case.actor, access_of(case.action, case.branch, case.target_branch)
            ),
        )
        for case in cases
    ]


def access_of(
    action: str,
    branch: str | None,
    target_branch: str | None,
    *,
    path: str = "the request",
    at: str = "action",
) -> Access:
    """What is asked for, if there is such an action."""
    if action not in ACTIONS:
        raise wrong(path, at, f"unknown action '{action}'; there are {', '.join(ACTIONS)}")
    known: Action = action
    return Access(known, branch, target_branch)
