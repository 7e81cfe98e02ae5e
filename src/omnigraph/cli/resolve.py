"""The conflicts of a merge for people: as a table, in a file to be filled in, and one by one.

A file of resolutions is what a preview prints under `--json`, with a `resolve` for each conflict:
"ours", "theirs", or values by property (`{"age": 40}`, `{"age": {"take": "ours"}}`). Conflicts
without one are left as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.call import Call, read_text, write_text
from omnigraph.cli.output import table_style
from omnigraph.errors import InputError, MergeConflictsError
from omnigraph.model.tables import TableStyle, cell, table_lines

if TYPE_CHECKING:
    from omnigraph.engine.merge.settle import Decision
    from omnigraph.results.merging import MergeConflict, MergePreview

Resolutions = dict[tuple[str, str], "Decision"]
_COLUMNS = ("conflict", "entity", "property", "base", "ours", "theirs")
_ITEM = "an item needs 'entity_kind', 'type_name', 'entity_id' and 'resolve'"


# --- a table ---------------------------------------------------------------------------------


def conflict_lines(conflicts: Iterable[MergeConflict], style: TableStyle) -> list[str]:
    """Every property in question with the values of all sides; broken rules in words below."""
    rows: list[dict[str, str]] = []
    words: list[str] = []
    for one in conflicts:
        if not one.can_be_resolved:
            words.append(f"{one.kind}: {one.message}")
            continue
        deleted = {f"{one.deleted_by}": "(deleted)"} if one.deleted_by else {}
        values = [
            dict(zip(_COLUMNS[2:], (each.property, *map(_shown, each[1:])), strict=True)) | deleted
            for each in one.properties
        ] or [deleted]
        values[0] = values[0] | {"conflict": one.kind, "entity": _entity(one)}
        rows += [dict.fromkeys(_COLUMNS, "") | each for each in values]
    lines = list(table_lines(_COLUMNS, rows, style=style)) if rows else []
    return lines + words


def _entity(one: MergeConflict) -> str:
    return f"{one.entity_kind} {one.type_name} {one.entity_id}"


def _shown(value: Any) -> str:
    return "null" if value is None else cell(value) or '""'


# --- a file ----------------------------------------------------------------------------------


def template(preview: MergePreview, decided: Mapping[tuple[str, str], Decision]) -> dict[str, Any]:
    """What a person fills in: the preview's conflicts, each with what is decided so far."""
    items = [
        one.to_json() | {"resolve": decided.get((one.type_key, str(one.entity_id)))}
        for one in preview.conflicts
        if one.can_be_resolved
    ]
    return {"source": preview.source, "target": preview.target, "conflicts": items}


def write_template(path: str, facts: Mapping[str, Any]) -> None:
    """Write the file as YAML if it is called so, else as JSON."""
    if path.endswith((".yaml", ".yml")):
        import yaml

        text = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)
    else:
        text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    write_text(path, text, what="conflicts")


def read_resolutions(path: str) -> Resolutions:
    """The decisions in a file, JSON or YAML; `InputError` says which item is wrong."""
    from omnigraph.model.yaml_text import read_yaml

    try:
        # JSON is YAML too, up to tabs; what is broken as both is told as YAML tells it.
        text = read_text(path, what="resolutions")
        is_json = text.lstrip().startswith(("{", "["))
        facts = json.loads(text) if is_json else read_yaml(text, path=path)
    except json.JSONDecodeError as cause:
        place = f"line {cause.lineno}, column {cause.colno}"
        raise InputError(f"'{path}' is not valid JSON: {cause.msg} ({place})") from cause
    items = facts.get("conflicts") if isinstance(facts, dict) else facts
    if not isinstance(items, list):
        raise InputError(
            f"'{path}' holds no list of conflicts",
            hint="`omnigraph branch merge BRANCH --write-conflicts FILE` writes one to fill in",
        )
    found: Resolutions = {}
    for number, item in enumerate(items, start=1):
        key, decision = _item(item, where=f"'{path}', item {number}")
        if key in found:
            raise InputError(f"'{path}', item {number}: the entity '{key[1]}' is there twice")
        if decision is not None:
            found[key] = decision
    return found


def _item(item: Any, *, where: str) -> tuple[tuple[str, str], Any]:
    if not isinstance(item, dict):
        raise InputError(f"{where}: {_ITEM}")
    kind, name, entity_id = (item.get(part) for part in ("entity_kind", "type_name", "entity_id"))
    if kind not in ("node", "edge") or not isinstance(name, str) or entity_id is None:
        raise InputError(f"{where}: {_ITEM}")
    if "resolve" not in item:
        raise InputError(f"{where}: {_ITEM}; 'resolve: null' leaves the conflict as it is")
    # YAML takes an id of digits for a number.
    return (f"{kind}:{name}", str(entity_id)), item["resolve"]


# --- one by one ------------------------------------------------------------------------------


def ask(call: Call, conflicts: Iterable[MergeConflict]) -> Resolutions:
    """Ask about each conflict at the terminal; those that are skipped have no decision."""
    found: Resolutions = {}
    listed = [one for one in conflicts if one.can_be_resolved]
    for number, one in enumerate(listed, start=1):
        click.echo(f"\n{number} of {len(listed)}: {one.message}")
        for line in conflict_lines([one], table_style(call.config)):
            click.echo(f"  {line}")
        decision = _asked_whole(one) if one.deleted_by else _asked_by_property(one)
        if decision is not None:
            found[one.type_key, str(one.entity_id)] = decision
    return found


def require_terminal() -> None:
    """Refuse to ask where nobody can answer."""
    if not sys.stdin.isatty():
        raise InputError(
            "--interactive needs a terminal",
            hint="write the conflicts to a file with --write-conflicts, and merge with --resolve",
        )


def _asked_whole(one: MergeConflict) -> Decision | None:
    answer = _answer(f"{_entity(one)}: [o]urs, [t]heirs, [s]kip, [q]uit", "otsq")
    return {"o": "ours", "t": "theirs"}.get(answer)  # type: ignore[return-value]


def _asked_by_property(one: MergeConflict) -> Decision | None:
    """Values by property; nothing if a property was skipped, because then it stays a conflict."""
    decision: dict[str, Any] = {}
    for each in one.properties:
        answer = _answer(f"{each.property}: [o]urs, [t]heirs, [e]dit, [s]kip, [q]uit", "otesq")
        if answer == "s":
            return None
        if answer == "e":
            decision[each.property] = _edited(each.property)
        else:
            decision[each.property] = {"take": "ours" if answer == "o" else "theirs"}
    return decision


def _answer(question: str, letters: str) -> str:
    while True:
        answer: str = click.prompt(question, default="", show_default=False).strip().lower()[:1]
        if answer == "q":
            raise click.Abort
        if answer and answer in letters:
            return answer
        click.echo(f"  one of: {', '.join(letters)}")


def _edited(name: str) -> Any:
    """A value as it is typed: JSON, or else text."""
    typed = click.prompt(f"{name} (JSON, or text)", default="", show_default=False)
    try:
        return json.loads(typed)
    except json.JSONDecodeError:
        return typed


def add_way_out(error: MergeConflictsError) -> None:
    """Say what can be done about the conflicts on the command line."""
    if error.hint is None and any(one.can_be_resolved for one in error.conflicts):
        error.advise(
            "settle them with --interactive, or fill in a file (--write-conflicts FILE) "
            "and merge with --resolve FILE"
        )
