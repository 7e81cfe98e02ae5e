"""Bad records put aside: which rows have to go so that the rest is clean, and a file that says why.

Each line of the quarantine is one record: where it was, what kind of badness, the reason, and the
record itself, as it was written or as it was understood.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import orjson

from omnigraph.engine.arrow import Ints
from omnigraph.engine.check.bucket import Offence, OffenceKind, Section
from omnigraph.engine.check.checks import ALL_KINDS, CheckAnswers, CheckPlan
from omnigraph.engine.check.describe import sections
from omnigraph.engine.check.findings import Offender, Place
from omnigraph.engine.check.places import Places
from omnigraph.engine.load.stage import StageAnswer, offenders_of
from omnigraph.engine.rows.parts import GraphAccess, Part, ordinal_of, part_of
from omnigraph.model.limits import OFFENDERS_SHOWN_MAX
from omnigraph.model.schema import Catalog, EdgeType
from omnigraph.storage.objects.files import FileAccess

_ID: Final = "id"  # the label of claims to an id; no rule is called that


class Quarantine:
    """Collects bad records and writes them, in bounded pieces, to the folder it was given."""

    def __init__(self, address: str, access: GraphAccess) -> None:
        self.address = address.rstrip("/")
        self.by_kind: dict[str, int] = {}
        self.offenders: list[Offender] = []
        self._files = FileAccess(environ=access.environ)
        self._run = uuid.uuid4().hex[:12]
        self._written = 0

    @property
    def total(self) -> int:
        return sum(self.by_kind.values())

    def take_problems(self, answers: Sequence[StageAnswer], places: Places) -> None:
        """Records that could not be read or whose values are wrong. A record counts once."""
        seen: set[str] = set()
        fresh = []
        for offender in offenders_of(answers, places):
            if offender.place not in seen:
                self.by_kind[offender.kind] = self.by_kind.get(offender.kind, 0) + 1
            seen.add(offender.place)
            fresh.append(offender)
        self._write(fresh)

    def take_rows(self, plan: CheckPlan, reasons: Reasons, places: Places) -> None:
        """Staged rows that the checks refuse."""
        parts = {
            (part.table_key, part.number): part
            for some in plan.staged.parts.values()
            for part in some
        }
        fresh: list[tuple[Place, Offender]] = []
        for key, by_row in reasons.items():
            for number in sorted({part for part, _ in by_row}):
                told = {at: why for (part, at), why in sorted(by_row.items()) if part == number}
                fresh += _offenders(plan, parts[key, number], told, places)
        offenders = [one for _, one in sorted(fresh, key=lambda pair: pair[0].at)]
        for offender in offenders:
            self.by_kind[offender.kind] = self.by_kind.get(offender.kind, 0) + 1
        self._write(offenders)

    def _write(self, offenders: Sequence[Offender]) -> None:
        if not offenders:
            return
        self.offenders += offenders[: max(0, OFFENDERS_SHOWN_MAX - len(self.offenders))]
        lines = [
            orjson.dumps(
                {
                    "place": one.place,
                    "kind": one.kind,
                    "reason": one.message,
                    "record": one.raw,
                }
            )
            for one in offenders
        ]
        self._files.write(self._file(self._written), b"\n".join(lines) + b"\n")
        self._written += 1

    def _file(self, number: int) -> str:
        return f"{self.address}/quarantine-{self._run}-{number:03d}.jsonl"

    def withdraw(self) -> None:
        """Delete what was written: another submission of the same load has put it aside too."""
        for number in range(self._written):
            self._files.remove(self._file(number))
        self._written = 0


Row = tuple[int, int]  # part and ordinal, which order rows as the input does
Reason = tuple[str, str]  # kind and text
Reasons = dict[str, dict[Row, Reason]]  # by table


def ordinals_of(reasons: Reasons) -> dict[str, dict[int, Ints]]:
    """The rows that have reasons: table → part → ordinals."""
    rows: dict[str, dict[int, list[int]]] = {}
    for key, by_row in sorted(reasons.items()):
        for part, ordinal in sorted(by_row):
            rows.setdefault(key, {}).setdefault(part, []).append(ordinal)
    return {
        key: {part: np.array(some, dtype=np.int64) for part, some in by_part.items()}
        for key, by_part in rows.items()
    }


def bad_rows(catalog: Catalog, answers: CheckAnswers) -> Reasons:
    """The next staged rows that must go, and why; none if the rest is clean or cannot be helped.

    Rows are put aside step by step, and everything is checked again after each step, so that no
    record goes because of another one that goes itself: first nodes that collide, then edges
    without their nodes, then edges that collide, then edges that are too many (the last ones) or
    too few (all of them).
    """
    told = _Told(catalog, answers)
    nodes = _colliding(told, [node.table_key for node in catalog.nodes.values()])
    if nodes:
        return nodes
    edges = [edge.table_key for edge in catalog.edges.values()]
    return _without_ends(told) or _colliding(told, edges) or _miscounted(told)


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
        reasons.setdefault(section.table_key, {}).setdefault(_row(one.row), ("endpoint", text))
    return reasons


def _miscounted(told: _Told) -> Reasons:
    reasons: Reasons = {}
    for section, one in told.offences("degree"):
        name = section.table_key.partition(":")[2]
        text = f"@card violation on edge {name}: source '{one.value}' has {one.count} edges"
        for row in one.surplus:
            reasons.setdefault(section.table_key, {})[_row(row)] = ("cardinality", text)
    return reasons


def _row(number: int) -> Row:
    return part_of(number), ordinal_of(number)


class _Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A row's claim to be the only one with an id or with the values of a rule. Rows that claim
    the same thing name the same first row; `taken` is the reason if a stored row has it."""

    label: str
    first: Row
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


def _refused(type_name: str, claims: Mapping[Row, Sequence[_Claim]]) -> dict[Row, Reason]:
    """Taken in the order of the input, a row stays unless something that it claims is taken by a
    stored row or by one that stays."""
    holders: dict[tuple[str, Row], str] = {}
    refused: dict[Row, Reason] = {}
    for row, wanted in sorted(claims.items()):
        reason = next((one.taken for one in wanted if one.taken), None)
        for one in wanted if reason is None else ():
            holder = holders.get((one.label, one.first))
            if holder is not None:
                reason = ("unique", _collision(type_name, one, holder))
                break
        if reason is not None:
            refused[row] = reason
            continue
        for one in wanted:
            holders[one.label, one.first] = one.row_id
    return refused


def _collision(type_name: str, claim: _Claim, holder: str) -> str:
    if claim.label == _ID:
        return f"{type_name}: id '{claim.value}' appears twice"
    return _unique_text(type_name, claim.label, claim.value, holder, claim.row_id)


def _unique_text(type_name: str, label: str, value: str, holder: str, row_id: str) -> str:
    return (
        f"@unique violation on {type_name}.{label}: value '{value}' held by '{holder}' "
        f"and '{row_id}'"
    )


def _claims(told: _Told, key: str) -> dict[Row, list[_Claim]]:
    """Every claim of the table's rows that is not theirs alone, by row; ids come first."""
    claims: dict[Row, list[_Claim]] = {}
    name = key.partition(":")[2]

    def claim(row: Row, label: str, first: Row, value: str, row_id: str) -> None:
        one = _Claim(label=label, first=first, value=value, row_id=row_id)
        if one not in claims.setdefault(row, []):
            claims[row].append(one)

    def lose(row: Row, reason: Reason) -> None:
        taken = _Claim(label="", first=row, value="", row_id="", taken=reason)
        claims.setdefault(row, []).append(taken)

    for _, one in told.offences("existing", key):
        lose(_row(one.row), ("conflict", f"{name} '{one.value}' already exists"))
    for _, one in told.offences("repeated", key):
        for row in (_row(one.rival), _row(one.row)):
            claim(row, _ID, _row(one.rival), one.value, one.value)
    for section, one in told.offences("held", key):
        text = _unique_text(name, section.label, one.value, one.rival_id, one.row_id)
        lose(_row(one.row), ("unique", text))
    for section, one in told.offences("unique", key):
        first = _row(one.rival)
        claim(first, section.label, first, one.value, one.rival_id)
        claim(_row(one.row), section.label, first, one.value, one.row_id)
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
