"""What staging and the checks found, with places, in the words of the in-process evaluator.

The order and the number of what is told are decided in `engine.write.violations`, for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from omnigraph.engine.write.constraints import (
    Endpoint,
    dangling,
    degree_broken,
    existing,
    repeated,
    repeated_id,
    rules_of,
)
from omnigraph.engine.write.violations import Findings, Offender, Place, Unreadable, Violation
from omnigraph.errors import EmbeddingError
from omnigraph.model.schema import Catalog, EdgeType, NodeType
from omnigraph.pipeline.checks import CheckAnswers, CheckPlan
from omnigraph.pipeline.idtasks import Offence, OffenceKind
from omnigraph.pipeline.parts import Part
from omnigraph.pipeline.stage import StageAnswer


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where records came from, in words: file and line, or file and row."""

    answers: tuple[StageAnswer, ...]

    @cached_property
    def _by_number(self) -> Mapping[int, StageAnswer]:
        return {answer.number: answer for answer in self.answers}

    @cached_property
    def _lines_before(self) -> Mapping[int, int]:
        """How many lines of the same file lie before each split."""
        before: dict[int, int] = {}
        seen: dict[str, int] = {}
        for answer in sorted(self.answers, key=lambda one: one.number):
            before[answer.number] = seen.get(answer.address, 0)
            seen[answer.address] = before[answer.number] + (answer.lines or 0)
        return before

    def of(self, task: int, number: int) -> Place:
        """The place of a record by the task that read it and its number there."""
        answer = self._by_number[task]
        line = self.line(task, number)
        if line is not None:
            return Place(f"{answer.address}:{line}", (task, number))
        return Place(f"{answer.address} row {answer.first + number + 1}", (task, number))

    def line(self, task: int, number: int) -> int | None:
        """Which line of its file the record was; None if it was none of a file of lines."""
        if self._by_number[task].word != "line":
            return None
        return self._lines_before[task] + number + 1

    def of_row(self, part: Part, ordinal: int) -> Place:
        """The place of a staged row."""
        return self.of(part.number, int(part.record_numbers()[ordinal]))


def offenders_of(answers: Sequence[StageAnswer], places: Places) -> list[Offender]:
    """The problems of reading and shaping, in the order of the input."""
    return [
        Offender(
            place=places.of(answer.number, problem.number),
            kind=problem.kind,
            message=problem.text,
            hint=problem.hint,
            raw=problem.raw,
        )
        for answer in answers
        for problem in answer.problems
    ]


def refuse_failed_embedding(answers: Sequence[StageAnswer], places: Places) -> None:
    """Raise if a vector could not be made: that is the load's failure and no record's."""
    failed = [(answer, one) for answer in answers for one in answer.problems if one.error]
    if not failed:
        return
    answer, problem = failed[0]
    assert problem.error is not None, "chosen by it"
    if not isinstance(problem.error, EmbeddingError):
        raise problem.error
    type_name = (problem.table_key or "").partition(":")[2]
    place = places.of(answer.number, problem.number)
    raise EmbeddingError(
        f"{place}: no vector for '{type_name}.{problem.property}': {problem.text}",
        hint=problem.hint,
        **{
            **problem.error.facts,
            "type_name": type_name,
            "property_name": problem.property,
            "place": place,
        },
    ) from problem.error


def staging_findings(answers: Sequence[StageAnswer], places: Places) -> Findings:
    """What reading and shaping found: records that cannot be read, and values that are wrong."""
    found = Findings()
    for answer in answers:
        uncounted = dict(answer.by_kind)
        for problem in answer.problems:
            place = places.of(answer.number, problem.number)
            uncounted[problem.kind] -= 1
            if problem.violation is not None:
                found.add([replace(problem.violation, place=place)])
                continue
            line = places.line(answer.number, problem.number)
            kind: Literal["file", "record"] = "file" if problem.kind == "file" else "record"
            unreadable = Unreadable(
                text=problem.text,
                place=place,
                hint=problem.hint,
                kind=kind,
                facts={} if line is None else {"line": line},
            )
            found.refuse([unreadable])
        for kind_, more in uncounted.items():
            if more:
                found.count(kind_, more)
    return found


# --- across rows ------------------------------------------------------------------------------


class Reader:
    """Turns answers of the checks into violations. The parts give ids and places.

    Each rule describes as many as may be told at all, in the order of the input.
    """

    def __init__(self, plan: CheckPlan, answers: CheckAnswers, places: Places) -> None:
        self._plan, self._answers, self._places = plan, answers, places
        self._parts = {
            (part.table_key, part.number): part
            for parts in plan.staged.parts.values()
            for part in parts
        }

    @property
    def _catalog(self) -> Catalog:
        return self._plan.catalog

    def add_identity(self, found: Findings) -> None:
        """Ids that occur twice, and ids that exist already."""
        for entity in self._by_key():
            offences, total = self._offences("duplicate", entity.table_key)
            described = [
                repeated_id(
                    entity,
                    one.value,
                    [
                        self._place(entity.table_key, *(one.first or one.order)),
                        self._place(entity.table_key, *one.order),
                    ],
                )
                for one in offences[: found.room]
            ]
            found.add(described, total=total)
        for entity in self._by_key():
            offences, total = self._offences("conflict", entity.table_key)
            described = [
                existing(entity, one.value, self._place(entity.table_key, *one.order))
                for one in offences[: found.room]
            ]
            found.add(described, total=total)

    def add_rows(self, found: Findings) -> None:
        """What is wrong across rows whose ids are sound."""
        self.add_unique(found)
        self.add_ends(found)
        self.add_degrees(found)

    def _by_key(self) -> list[NodeType | EdgeType]:
        """The types in the order in which the in-process load goes through them."""
        return sorted(self._catalog.types(), key=lambda entity: entity.table_key)

    def add_unique(self, found: Findings) -> None:
        for entity in self._catalog.types():
            for rule in rules_of(entity).unique:
                answers = [
                    answer
                    for key, one, answer in self._answers.unique
                    if key == entity.table_key and one == rule
                ]
                among = sorted((c for a in answers for c in a.staged), key=lambda c: c.order)
                stored = sorted((c for a in answers for c in a.stored), key=lambda c: c.order)
                for clashes, total in (
                    (among, sum(answer.staged_total for answer in answers)),
                    (stored, len(stored)),
                ):
                    described = [
                        repeated(
                            entity,
                            rule.columns,
                            clash.value,
                            (clash.holder_id, clash.row_id),
                            self._place(entity.table_key, *clash.order),
                        )
                        for clash in clashes[: found.room]
                    ]
                    found.add(described, total=total)

    def add_ends(self, found: Findings) -> None:
        for entity in self._catalog.types():
            if isinstance(entity, EdgeType):
                for rule in rules_of(entity).endpoints:
                    offences, total = self._offences("dangling", entity.table_key, rule.column)
                    found.add(self._dangling(entity, rule, offences[: found.room]), total=total)
            elif self._plan.staged.replaces(entity.table_key):
                self._add_kept(entity, found)

    def _dangling(
        self, edge: EdgeType, rule: Endpoint, offences: Sequence[Offence]
    ) -> Iterator[Violation]:
        for offence in offences:
            part = self._parts[edge.table_key, offence.part]
            ids = part.columns(self._plan.access, ["id"])["id"]
            yield dangling(
                edge,
                rule,
                offence.value,
                str(ids[offence.ordinal].as_py()),
                self._places.of_row(part, offence.ordinal),
            )

    def _add_kept(self, node: NodeType, found: Findings) -> None:
        for edge in self._catalog.edges_touching(node.name):
            for rule in rules_of(edge).endpoints:
                if rule.node_type != node.name:
                    continue
                offences, total = self._offences("kept", edge.table_key, rule.column)
                found.add(
                    [
                        dangling(edge, rule, offence.value, offence.row_id, None)
                        for offence in offences[: found.room]
                    ],
                    total=total,
                )

    def add_degrees(self, found: Findings) -> None:
        for entity in self._catalog.types():
            rule = rules_of(entity).out_degree
            if rule is None or not isinstance(entity, EdgeType):
                continue
            offences, total = self._offences("degree", entity.table_key)
            described = [
                degree_broken(
                    entity,
                    rule,
                    offence.value,
                    offence.count,
                    self._place(entity.table_key, *offence.order),
                )
                for offence in offences[: found.room]
            ]
            found.add([one for one in described if one is not None], total=total)

    def _offences(
        self, kind: OffenceKind, table_key: str, column: str | None = None
    ) -> tuple[list[Offence], int]:
        """Offences of one kind in the order of the input, and how many there are."""
        listed: list[Offence] = []
        total = 0
        for _, answer in self._answers.ids:
            for offences in answer.offences:
                if (offences.kind, offences.table_key) == (kind, table_key) and (
                    column is None or offences.column == column
                ):
                    listed += offences.listed
                    total += offences.total
        if kind == "kept":
            return sorted(listed, key=lambda one: one.row_id), total
        return sorted(listed, key=lambda one: (one.part < 0, one.order, one.value)), total

    def _place(self, table_key: str, part: int, ordinal: int) -> Place | None:
        if part < 0:
            return None
        return self._places.of_row(self._parts[table_key, part], ordinal)
