"""What the checks found, in the words and the order of the in-process evaluator, with places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from omnigraph.engine.write.constraints import (
    Endpoint,
    dangling,
    degree_broken,
    repeated,
    repeated_id,
    rules_of,
)
from omnigraph.engine.write.violations import Findings, Violation
from omnigraph.errors import (
    ConstraintViolationError,
    EmbeddingError,
    KeyConflictError,
    OmnigraphError,
    RecordError,
)
from omnigraph.model.limits import OFFENDERS_SHOWN_MAX, VIOLATIONS_LISTED_MAX
from omnigraph.model.schema import Catalog, EdgeType, NodeType
from omnigraph.pipeline.checks import CheckAnswers, CheckPlan
from omnigraph.pipeline.idtasks import Offence, OffenceKind
from omnigraph.pipeline.parts import Part
from omnigraph.pipeline.shape import Problem
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

    def of(self, task: int, number: int) -> str:
        """The place of a record by the task that read it and its number there."""
        answer = self._by_number[task]
        if answer.word == "line":
            return f"{answer.address}:{self._lines_before[task] + number + 1}"
        return f"{answer.address} row {answer.first + number + 1}"

    def of_row(self, part: Part, ordinal: int) -> str:
        """The place of a staged row."""
        return self.of(part.number, int(part.record_numbers()[ordinal]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """One bad record as reports show it."""

    place: str
    kind: str
    message: str
    hint: str | None = None
    raw: str | None = None

    def to_json(self) -> dict[str, str]:
        facts = {"place": self.place, "kind": self.kind, "message": self.message}
        return facts | ({"hint": self.hint} if self.hint else {})


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
        for problem in sorted(answer.problems, key=lambda one: one.number)
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


def refuse_bad_input(answers: Sequence[StageAnswer], places: Places) -> None:
    """Raise for what reading and shaping found: unreadable records first, then bad values."""
    by_kind: dict[str, int] = {}
    for answer in answers:
        for kind, count in answer.by_kind.items():
            by_kind[kind] = by_kind.get(kind, 0) + count
    if not by_kind:
        return
    found = [
        (answer, problem)
        for answer in answers
        for problem in sorted(answer.problems, key=lambda one: one.number)
    ]
    unreadable = [(a, p) for a, p in found if p.violation is None]
    total = sum(by_kind.values())
    offenders = offenders_of(answers, places)[:OFFENDERS_SHOWN_MAX]
    if unreadable:
        answer, problem = unreadable[0]
        place = places.of(answer.number, problem.number)
        error: OmnigraphError = RecordError(
            f"{place}: {problem.text}{_more(total)}",
            hint=problem.hint,
            place=place,
            line=int(place.rpartition(":")[2]) if answer.word == "line" else None,
            total=total,
        )
    else:
        violations = [_placed(problem, places, answer.number) for answer, problem in found]
        error = ConstraintViolationError(
            violations[0].message + _more(total),
            violations=violations[:VIOLATIONS_LISTED_MAX],
            total=total,
        )
    raise with_summary(error, by_kind, offenders)


def with_summary(
    error: OmnigraphError, by_kind: Mapping[str, int], offenders: Sequence[Offender]
) -> OmnigraphError:
    """The error with the counts by kind and the first offenders among its facts."""
    facts = {
        "by_kind": dict(sorted(by_kind.items())),
        "offenders": [offender.to_json() for offender in offenders],
    }
    error.facts |= facts
    for name, value in facts.items():
        setattr(error, name, value)
    return error


def _more(total: int) -> str:
    return f" (and {total - 1} more)" if total > 1 else ""


def _placed(problem: Problem, places: Places, task: int) -> Violation:
    violation = problem.violation
    assert violation is not None, "only values violate rules"
    return Violation(
        kind=violation.kind,
        entity_kind=violation.entity_kind,
        type_name=violation.type_name,
        property=violation.property,
        value=violation.value,
        ids=violation.ids,
        text=violation.text,
        place=places.of(task, problem.number),
    )


# --- across rows ------------------------------------------------------------------------------


class Reader:
    """Turns answers of the checks into violations. The parts give ids and places."""

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

    def raise_if_bad(self) -> None:
        """Doubles first, then ids that exist, then everything else together."""
        doubles = Findings()
        self.add_doubles(doubles)
        _raise(doubles)
        self._raise_conflict()
        found = Findings()
        self.add_unique(found)
        self.add_ends(found)
        self.add_degrees(found)
        _raise(found)

    def add_doubles(self, found: Findings) -> None:
        for entity in self._by_key():
            offences, total = self._offences("duplicate", entity.table_key)
            once: dict[str, Offence] = {}
            for offence in offences:
                once.setdefault(offence.value, offence)
            described = [
                repeated_id(
                    entity,
                    offence.value,
                    [
                        self._place(entity.table_key, *(offence.first or offence.order)),
                        self._place(entity.table_key, *offence.order),
                    ],
                )
                for offence in list(once.values())[: found.room]
            ]
            found.add(described, total=total)

    def _by_key(self) -> list[NodeType | EdgeType]:
        """The types in the order in which the in-process load goes through them."""
        return sorted(self._catalog.types(), key=lambda entity: entity.table_key)

    def _raise_conflict(self) -> None:
        for entity in self._by_key():
            offences, total = self._offences("conflict", entity.table_key)
            if total:
                first = offences[0]
                error = KeyConflictError(
                    entity_kind=entity.kind,
                    type_name=entity.name,
                    entity_id=first.value,
                    place=self._place(entity.table_key, *first.order),
                )
                shown = [
                    Offender(
                        place=self._place(entity.table_key, *one.order) or "input",
                        kind="conflict",
                        message=f"{entity.kind} {entity.name} '{one.value}' already exists",
                    )
                    for one in offences[:OFFENDERS_SHOWN_MAX]
                ]
                raise with_summary(error, {"conflict": total}, shown)

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
        return sorted(listed, key=lambda one: one.order), total

    def _place(self, table_key: str, part: int, ordinal: int) -> str | None:
        if part < 0:
            return None
        return self._places.of_row(self._parts[table_key, part], ordinal)


def _raise(found: Findings) -> None:
    try:
        found.raise_if_any()
    except ConstraintViolationError as error:
        by_kind: dict[str, int] = {}
        for violation in found.listed:
            by_kind[violation.kind] = by_kind.get(violation.kind, 0) + 1
        shown = [
            Offender(place=one.place or "stored", kind=one.kind, message=one.text)
            for one in found.listed[:OFFENDERS_SHOWN_MAX]
        ]
        raise with_summary(error, by_kind, shown) from None
