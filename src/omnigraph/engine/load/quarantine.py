"""Bad records put aside: which rows have to go so that the rest is clean, and a file that says why.

Each line of the quarantine is one record: where it was, what kind of badness, the reason, and the
record itself, as it was written or as it was understood.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import orjson

from omnigraph.engine.arrow import Ints
from omnigraph.engine.check.bucket import Offence, OffenceKind, Section
from omnigraph.engine.check.checks import ALL_KINDS, CheckAnswers, CheckPlan, by_part
from omnigraph.engine.check.findings import Offender, Place
from omnigraph.engine.check.validate import sections
from omnigraph.engine.load.inputs.objects import text_of
from omnigraph.engine.load.stage import Places, StageAnswer, offenders_of
from omnigraph.engine.rows.parts import GraphAccess, Part
from omnigraph.model.limits import OFFENDERS_SHOWN_MAX
from omnigraph.model.schema import Catalog, EdgeType
from omnigraph.storage.objects.files import FileAccess

_ID: Final = "id"  # the label of claims to an id; no rule is called that

Reason = tuple[str, str]  # kind and text
Reasons = dict[str, dict[int, Reason]]  # by table and by the number of a row


class Quarantine:
    """Collects bad records and writes them, in bounded pieces, to the folder it was given."""

    def __init__(self, address: str, access: GraphAccess) -> None:
        self.address = address.rstrip("/")
        self.by_kind: Counter[str] = Counter()
        self.offenders: list[Offender] = []
        self._files = FileAccess(environ=access.environ)
        self._run = uuid.uuid4().hex[:12]
        self._written: list[str] = []

    @property
    def total(self) -> int:
        return self.by_kind.total()

    def take_problems(self, answers: Sequence[StageAnswer], places: Places) -> None:
        """Records that could not be read or whose values are wrong. A record counts once."""
        found = offenders_of(answers, places)
        kinds: dict[str, str] = {}
        for one in found:
            kinds.setdefault(one.place, one.kind)
        self._write(found, kinds=kinds.values())

    def take_rows(self, plan: CheckPlan, reasons: Reasons, places: Places) -> None:
        """Staged rows that the checks refuse."""
        found: list[tuple[Place, Offender]] = []
        for key, by_row in reasons.items():
            parts = {part.number: part for part in plan.of(key)}
            for number, ordinals in by_part(np.array(sorted(by_row), dtype=np.int64)).items():
                first = parts[number].first_row
                told = {int(at): by_row[first + int(at)] for at in ordinals}
                found += _offenders(plan, parts[number], told, places)
        offenders = [one for _, one in sorted(found, key=lambda pair: pair[0].at)]
        self._write(offenders, kinds=[one.kind for one in offenders])

    def _write(self, offenders: Sequence[Offender], *, kinds: Iterable[str]) -> None:
        if not offenders:
            return
        self.by_kind.update(kinds)
        self.offenders += offenders[: max(0, OFFENDERS_SHOWN_MAX - len(self.offenders))]
        lines = [
            {"place": one.place, "kind": one.kind, "reason": one.message, "record": one.raw}
            for one in offenders
        ]
        file = f"{self.address}/quarantine-{self._run}-{len(self._written):03d}.jsonl"
        self._files.write(file, "".join(f"{text_of(line)}\n" for line in lines).encode())
        self._written.append(file)

    def withdraw(self) -> None:
        """Delete what was written: another submission of the same load has put it aside too."""
        while self._written:
            self._files.remove(self._written.pop())


def ordinals_of(reasons: Reasons) -> dict[str, dict[int, Ints]]:
    """The rows that have reasons: table → part → ordinals."""
    return {
        key: by_part(np.array(sorted(by_row), dtype=np.int64))
        for key, by_row in sorted(reasons.items())
    }


def bad_rows(catalog: Catalog, answers: CheckAnswers) -> Reasons:
    """The next staged rows that must go, and why; none if the rest is clean or cannot be helped.

    Rows are put aside step by step, and everything is checked again after each step, so that no
    record goes because of another one that goes itself: first nodes that collide, then edges
    without their nodes, then edges that collide, then edges that are too many (the last ones) or
    too few (all of them).
    """
    told = _Told(catalog, answers)
    return (
        _colliding(told, [node.table_key for node in catalog.nodes.values()])
        or _without_ends(told)
        or _colliding(told, [edge.table_key for edge in catalog.edges.values()])
        or _miscounted(told)
    )


class _Told(NamedTuple):
    """What the checks found, in the order of the rules: how many buckets there were, and which of
    them answered first, must not decide which of two reasons is given."""

    catalog: Catalog
    answers: CheckAnswers

    def offences(
        self, kind: OffenceKind, key: str | None = None
    ) -> Iterator[tuple[Section, Offence]]:
        for section in sections(self.catalog, ALL_KINDS):
            if section.kind == kind and key in (None, section.table_key):
                yield from ((section, one) for one in self.answers.offences.listed(section))


def _without_ends(told: _Told) -> Reasons:
    reasons: Reasons = {}
    for section, one in told.offences("dangling"):
        name = section.table_key.partition(":")[2]
        text = f"edge {name}: {section.label} '{one.value}' not found"
        reasons.setdefault(section.table_key, {}).setdefault(one.row, ("endpoint", text))
    return reasons


def _miscounted(told: _Told) -> Reasons:
    reasons: Reasons = {}
    for section, one in told.offences("degree"):
        name = section.table_key.partition(":")[2]
        text = f"@card violation on edge {name}: source '{one.value}' has {one.count} edges"
        for row in one.surplus:
            reasons.setdefault(section.table_key, {})[row] = ("cardinality", text)
    return reasons


class _Claim(NamedTuple):
    """A row's claim to be the only one with an id or with the values of a rule. Rows that claim
    the same thing name the same first row; `taken` is the reason if a stored row has it."""

    label: str
    first: int
    value: str
    row_id: str
    taken: Reason | None = None


def _colliding(told: _Told, keys: Sequence[str]) -> Reasons:
    reasons: Reasons = {}
    for key in keys:
        refused = _refused(key.partition(":")[2], _claims(told, key))
        if refused:
            reasons[key] = refused
    return reasons


def _refused(type_name: str, claims: Mapping[int, Sequence[_Claim]]) -> dict[int, Reason]:
    """Taken in the order of the input, a row stays unless something that it claims is taken by a
    stored row or by one that stays."""
    holders: dict[tuple[str, int], str] = {}
    refused: dict[int, Reason] = {}
    for row, wanted in sorted(claims.items()):
        reason = next((one.taken for one in wanted if one.taken), None)
        for one in wanted if reason is None else ():
            holder = holders.get((one.label, one.first))
            if holder is not None:
                text = _unique_text(type_name, one.label, one.value, holder, one.row_id)
                if one.label == _ID:
                    text = f"{type_name}: id '{one.value}' appears twice"
                reason = ("unique", text)
                break
        if reason is not None:
            refused[row] = reason
            continue
        for one in wanted:
            holders[one.label, one.first] = one.row_id
    return refused


def _unique_text(type_name: str, label: str, value: str, holder: str, row_id: str) -> str:
    return (
        f"@unique violation on {type_name}.{label}: value '{value}' held by '{holder}' "
        f"and '{row_id}'"
    )


def _claims(told: _Told, key: str) -> dict[int, list[_Claim]]:
    """Every claim of the table's rows that is not theirs alone, by row; ids come first."""
    claims: dict[int, list[_Claim]] = {}
    name = key.partition(":")[2]

    def claim(row: int, label: str, first: int, value: str, row_id: str) -> None:
        one = _Claim(label=label, first=first, value=value, row_id=row_id)
        if one not in claims.setdefault(row, []):
            claims[row].append(one)

    def lose(row: int, reason: Reason) -> None:
        taken = _Claim(label="", first=row, value="", row_id="", taken=reason)
        claims.setdefault(row, []).append(taken)

    for _, one in told.offences("existing", key):
        lose(one.row, ("conflict", f"{name} '{one.value}' already exists"))
    for _, one in told.offences("repeated", key):
        for row in (one.rival, one.row):
            claim(row, _ID, one.rival, one.value, one.value)
    for section, one in told.offences("held", key):
        text = _unique_text(name, section.label, one.value, one.rival_id, one.row_id)
        lose(one.row, ("unique", text))
    for section, one in told.offences("unique", key):
        claim(one.rival, section.label, one.rival, one.value, one.rival_id)
        claim(one.row, section.label, one.rival, one.value, one.row_id)
    return claims


def _offenders(
    plan: CheckPlan, part: Part, reasons: Mapping[int, Reason], places: Places
) -> list[tuple[Place, Offender]]:
    entity = plan.catalog.type_of(part.table_key)
    names = ["id", *(["src", "dst"] if isinstance(entity, EdgeType) else [])]
    names += [
        prop.name for prop in entity.properties if prop.type.scalar.value not in ("Blob", "Vector")
    ]
    rows = part.columns(plan.access, names).take(list(reasons))
    numbers = part.record_numbers()
    found: list[tuple[Place, Offender]] = []
    for (ordinal, (kind, text)), row in zip(reasons.items(), rows.to_pylist(), strict=True):
        place = places.of(part.number, int(numbers[ordinal]))
        raw = orjson.dumps(row, default=str).decode()
        found.append((place, Offender(place=str(place), kind=kind, message=text, raw=raw)))
    return found
