"""Where the staged rows of a load came from, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import msgspec

from omnigraph.engine.arrow import Column, Ints
from omnigraph.engine.check.checks import CheckPlan
from omnigraph.engine.check.findings import Place, PlaceWord
from omnigraph.engine.rows.parts import Part, ordinal_of, part_of


class Origin(Protocol):
    """What the numbers of one task's records mean: lines of a file counted up from the tasks
    before it, or rows from `first` on."""

    @property
    def number(self) -> int: ...

    @property
    def address(self) -> str: ...

    @property
    def word(self) -> PlaceWord: ...

    @property
    def first(self) -> int: ...

    @property
    def lines(self) -> int | None: ...


class Places(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Where records came from, in words: file and line, or file and row."""

    answers: Sequence[Origin]

    @cached_property
    def _by_number(self) -> Mapping[int, Origin]:
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
        origin = self._by_number[task]
        before = self._lines_before[task] if origin.word == "line" else origin.first
        return Place(
            word=origin.word, number=before + number + 1, source=origin.address, at=(task, number)
        )


class PartNames:
    """The staged rows of a load by their numbers (the port `RowNames`)."""

    def __init__(self, plan: CheckPlan, places: Places) -> None:
        self._plan, self._places = plan, places
        self._numbers: dict[tuple[str, int], Ints] = {}
        self._ids: dict[tuple[str, int], Column] = {}

    def place(self, table_key: str, row: int) -> Place:
        part, ordinal = self._row(table_key, row)
        key = (table_key, part.number)
        if key not in self._numbers:
            self._numbers[key] = part.record_numbers()
        return self._places.of(part.number, int(self._numbers[key][ordinal]))

    def entity_id(self, table_key: str, row: int) -> str:
        part, ordinal = self._row(table_key, row)
        key = (table_key, part.number)
        if key not in self._ids:
            self._ids[key] = part.columns(self._plan.access, ["id"])["id"]
        return str(self._ids[key][ordinal].as_py())

    def _row(self, table_key: str, row: int) -> tuple[Part, int]:
        return self._plan.staged.part(table_key, part_of(row)), ordinal_of(row)
