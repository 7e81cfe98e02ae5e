"""The policy file: its form, and everything that can be wrong with it, by file and rule."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.access import (
    ACTIONS,
    BRANCH_ACTIONS,
    SERVER_ACTIONS,
    TARGET_ACTIONS,
    Action,
)
from omnigraph.model.yaml_text import read_yaml

Scope = Literal["any", "protected", "unprotected"]
Kind = Literal["graph", "server"]
VERSION: Final = 1
_Form = TypeVar("_Form")


class Actors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: str


class Allow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may do what, and on which branches."""

    actors: Actors
    actions: tuple[str, ...]
    branch_scope: Scope | None = None
    target_branch_scope: Scope | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    allow: Allow


class PolicyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A policy file that holds together; `kind` says whether it is about a graph or the server."""

    path: str
    kind: Kind
    groups: Mapping[str, tuple[str, ...]]
    protected_branches: frozenset[str]
    rules: tuple[Rule, ...]

    @property
    def actors(self) -> frozenset[str]:
        return frozenset(actor for members in self.groups.values() for actor in members)


def read_policy(path: str | os.PathLike[str], *, kind: Kind = "graph") -> PolicyDocument:
    """The policy in a file, or an error that names the file and the rule."""
    return parse_policy(read_file(path, what="policy file"), path=os.fspath(path), kind=kind)


def read_file(path: str | os.PathLike[str], *, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as cause:
        raise NotFoundError(
            f"there is no {what} '{path}'", kind="file", name=os.fspath(path)
        ) from cause
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(f"cannot read {what} '{path}': {cause}") from cause


def parse_policy(text: str, *, path: str, kind: Kind = "graph") -> PolicyDocument:
    """The policy that the text says; `path` is what errors call it."""
    body = mapping(
        read_yaml(text, path=path),
        path=path,
        known=("version", "groups", "protected_branches", "rules"),
    )
    require_version(body, path=path)
    groups = dict(_groups(body.get("groups"), path=path))
    protected = form(
        body.get("protected_branches") or [], tuple[str, ...], path=path, at="protected_branches"
    )
    for name in protected:
        if not name.strip():
            raise wrong(path, "protected_branches", "a branch has a blank name")
    return PolicyDocument(
        path=path,
        kind=kind,
        groups=groups,
        protected_branches=frozenset(name.strip() for name in protected),
        rules=tuple(_rules(body.get("rules"), groups, path=path, kind=kind)),
    )


# --- parts ------------------------------------------------------------------------------------


def _groups(value: Any, *, path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    found = form(value or {}, dict[str, tuple[str, ...]], path=path, at="groups")
    for name, members in found.items():
        if not name.strip():
            raise wrong(path, "groups", "a group has a blank name")
        if not members:
            raise wrong(path, f"group '{name}'", "it has no actors")
        if any(not actor.strip() for actor in members):
            raise wrong(path, f"group '{name}'", "an actor has a blank id")
        yield name, members


def _rules(
    value: Any, groups: Mapping[str, tuple[str, ...]], *, path: str, kind: Kind
) -> Iterator[Rule]:
    seen: set[str] = set()
    for number, item in enumerate(form(value or [], list[Any], path=path, at="rules"), start=1):
        named = item.get("id") if isinstance(item, dict) else None
        at = f"rule '{named}'" if isinstance(named, str) and named.strip() else f"rule {number}"
        rule = form(item, Rule, path=path, at=at)
        if not rule.id.strip():
            raise wrong(path, at, "its id is blank")
        if rule.id in seen:
            raise wrong(path, at, "another rule has the same id")
        seen.add(rule.id)
        problem = _problem(rule.allow, groups, kind)
        if problem is not None:
            raise wrong(path, at, problem)
        yield rule


def _problem(allow: Allow, groups: Mapping[str, tuple[str, ...]], kind: Kind) -> str | None:
    """What is wrong with a rule by itself and in its file, if anything."""
    group, actions = allow.actors.group, allow.actions
    if not group.strip():
        return "its group is blank"
    if group not in groups:
        return f"there is no group '{group}'"
    if not actions:
        return "it has no actions"
    for action in actions:
        if action not in ACTIONS:
            return f"unknown action '{action}'; there are {', '.join(ACTIONS)}"
    of_server = [action for action in actions if action in SERVER_ACTIONS]
    of_graph = [action for action in actions if action not in SERVER_ACTIONS]
    if of_server and of_graph:
        return f"'{of_server[0]}' is about the server and '{of_graph[0]}' about a graph: make two"
    if kind == "graph" and of_server:
        return f"'{of_server[0]}' is about the server: move the rule to the server's policy file"
    if kind == "server" and of_graph:
        return f"'{of_graph[0]}' is about a graph: move the rule to the graph's policy file"
    if allow.branch_scope is not None and allow.target_branch_scope is not None:
        return "it has branch_scope and target_branch_scope; a rule has one scope at the most"
    for name, scope, bounded in (
        ("branch_scope", allow.branch_scope, BRANCH_ACTIONS),
        ("target_branch_scope", allow.target_branch_scope, TARGET_ACTIONS),
    ):
        strange = [action for action in actions if scope is not None and action not in bounded]
        if strange:
            return f"'{strange[0]}' takes no {name}; it goes with {', '.join(sorted(bounded))}"
    return None


def mapping(value: Any, *, path: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(path, "the file", "it must be a mapping")
    for key in value:
        if key not in known:
            raise wrong(path, "the file", f"unknown field '{key}'; there are {', '.join(known)}")
    return value


def require_version(body: Mapping[str, Any], *, path: str) -> None:
    version = body.get("version")
    if version != VERSION or isinstance(version, bool):
        raise wrong(path, "version", f"it must be {VERSION}, got {version!r}")


def form(value: Any, kind: type[_Form], *, path: str, at: str) -> _Form:
    """The value as what it must be, or an error that says where it is not."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as cause:
        raise wrong(path, at, str(cause)) from cause


def wrong(path: str, at: str, what: str) -> InputError:
    return InputError(f"'{path}': {at}: {what}", path=path, at=at)


def actions_of(rule: Rule) -> tuple[Action, ...]:
    """The actions of a checked rule, each once."""
    return tuple(action for action in ACTIONS if action in rule.allow.actions)
