"""Bad records put aside: which rows have to go so that the rest is clean, and a file that says why.

Each line of the quarantine is one record: where it was, what kind of badness, the reason, and the
record itself, as it was written or as it was understood.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import numpy as np
import orjson

from omnigraph.model.limits import OFFENDERS_SHOWN_MAX
from omnigraph.model.schema import EdgeType
from omnigraph.pipeline.arrow import Ints
from omnigraph.pipeline.checks import CheckAnswers, CheckPlan
from omnigraph.pipeline.files import FileAccess
from omnigraph.pipeline.findings import Offender, Places, offenders_of
from omnigraph.pipeline.parts import GraphAccess, Part
from omnigraph.pipeline.stage import StageAnswer

Rows = dict[str, dict[int, set[int]]]


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

    def take_rows(
        self,
        plan: CheckPlan,
        answers: CheckAnswers,
        dropped: Mapping[str, Mapping[int, Ints]],
        places: Places,
    ) -> None:
        """Staged rows that the checks refuse."""
        if not dropped:
            return
        reasons = _reasons(answers)
        parts = {
            (part.table_key, part.number): part
            for some in plan.staged.parts.values()
            for part in some
        }
        fresh: list[Offender] = []
        for key, by_part in dropped.items():
            for number, ordinals in by_part.items():
                fresh += _offenders(plan, parts[key, number], ordinals, reasons, places)
        for offender in fresh:
            self.by_kind[offender.kind] = self.by_kind.get(offender.kind, 0) + 1
        self._write(fresh)

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


def bad_rows(answers: CheckAnswers) -> dict[str, dict[int, Ints]]:
    """Staged rows that must go: table → part → ordinals.

    Of rows that collide the first one stays; an edge without its nodes goes; of too many edges the
    last ones go, of too few all. What cannot be helped by leaving out staged rows stays, to fail.
    """
    rows: Rows = {}

    def drop(key: str, part: int, ordinal: int) -> None:
        if part >= 0:
            rows.setdefault(key, {}).setdefault(part, set()).add(ordinal)

    for _, answer in answers.ids:
        for offences in answer.offences:
            for offence in offences.listed:
                if offences.kind == "degree":
                    for part, ordinal in offence.surplus:
                        drop(offences.table_key, part, ordinal)
                elif offences.kind != "kept":
                    drop(offences.table_key, *offence.order)
    for key, _, unique in answers.unique:
        for clash in (*unique.staged, *unique.stored):
            drop(key, *clash.order)
    return {
        key: {
            part: np.array(sorted(ordinals), dtype=np.int64)
            for part, ordinals in sorted(by_part.items())
        }
        for key, by_part in sorted(rows.items())
    }


Reasons = dict[tuple[str, int, int], tuple[str, str]]


def _reasons(answers: CheckAnswers) -> Reasons:
    """Why each staged row has to go: the first reason found for it."""
    reasons: Reasons = {}

    def because(key: str, part: int, ordinal: int, kind: str, text: str) -> None:
        reasons.setdefault((key, part, ordinal), (kind, text))

    for _, answer in answers.ids:
        for offences in answer.offences:
            key, name = offences.table_key, offences.table_key.partition(":")[2]
            for one in offences.listed:
                match offences.kind:
                    case "duplicate":
                        because(
                            key, *one.order, "unique", f"{name}: id '{one.value}' appears twice"
                        )
                    case "conflict":
                        because(key, *one.order, "conflict", f"{name} '{one.value}' already exists")
                    case "dangling":
                        text = f"edge {name}: {offences.column} '{one.value}' not found"
                        because(key, *one.order, "endpoint", text)
                    case "degree":
                        text = (
                            f"@card violation on edge {name}: source '{one.value}' "
                            f"has {one.count} edges"
                        )
                        for row in one.surplus:
                            because(key, *row, "cardinality", text)
                    case "kept":
                        continue
    for key, rule, unique in answers.unique:
        for clash in (*unique.staged, *unique.stored):
            text = (
                f"@unique violation on {key.partition(':')[2]}.{rule.label}: value "
                f"'{clash.value}' held by '{clash.holder_id}' and '{clash.row_id}'"
            )
            because(key, *clash.order, "unique", text)
    return reasons


def _offenders(
    plan: CheckPlan, part: Part, ordinals: Ints, reasons: Reasons, places: Places
) -> list[Offender]:
    entity = plan.catalog.type_of(part.table_key)
    names = ["id", *(["src", "dst"] if isinstance(entity, EdgeType) else [])]
    names += [
        prop.name for prop in entity.properties if prop.type.scalar.value not in ("Blob", "Vector")
    ]
    rows = part.columns(plan.access, names).take(ordinals.tolist())
    found: list[Offender] = []
    for ordinal, row in zip(ordinals.tolist(), rows.to_pylist(), strict=True):
        kind, text = reasons[part.table_key, part.number, ordinal]
        found.append(
            Offender(
                place=places.of_row(part, ordinal),
                kind=kind,
                message=text,
                raw=orjson.dumps(row, default=str).decode(),
            )
        )
    return found
