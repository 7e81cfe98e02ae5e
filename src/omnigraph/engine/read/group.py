"""Groups: rows with equal keys, and what each group counts, sums or picks.

A group is a number. For a key that is a property it is made from the codes of the column, for an
entity's id it is the entity's position; so no key is looked at before a group is shown. Rows are
taken a piece at a time, and what the pieces give is put together at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, as_mask, int64_array, pa, picked
from omnigraph.engine.expr.evaluate import Constants, Rows, ranks
from omnigraph.engine.expr.order import equal_codes, numbered_rows, one_of_equals, row_keys
from omnigraph.engine.read.aggregate import (
    EXTREMES,
    Codes,
    Given,
    State,
    extreme,
    finished,
    merged,
    state_of,
)
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.match.relation import MatchedRows, Relation
from omnigraph.engine.read.match.scan import bounds_of, in_parallel, pieces
from omnigraph.engine.read.memory.arrays import (
    NO_POSITIONS,
    Column,
    Positions,
    distinct_positions,
)
from omnigraph.engine.read.memory.codes import Coded
from omnigraph.engine.read.whole import WHOLE, of_all
from omnigraph.storage.lance.columns import value_type

T = TypeVar("T")
R = TypeVar("R")

DENSE_ROOM: Final = 1024  # with few rows, an array may have so many places that nobody uses
PIECED_SLOTS_MAX: Final = 1 << 14  # of more groups, a partial result a piece costs too much
ENTITIES_SHARE: Final = 8  # from this part of all entities on, a key is evaluated once for each

KeyValues = Callable[[Positions | None], Array]  # of these groups, or of all


class Groups(Rows):
    """Groups as the rows that an expression looks at: it sees keys and aggregates only."""

    def __init__(
        self,
        constants: Constants,
        keys: Sequence[KeyValues],
        aggregates: Sequence[Array],
        *,
        count: int,
        numbers: Positions | None = None,
    ) -> None:
        self.constants = constants
        self.count = count
        self._keys = keys
        self._aggregates = aggregates
        self._numbers = numbers  # None: all groups, in their order
        self._known: dict[int, Array] = {}

    def computed(self, expr: ir.KeyRef | ir.AggregateRef) -> Array:
        if isinstance(expr, ir.AggregateRef):
            values = self._aggregates[expr.index]
            return values if self._numbers is None else picked(values, self._numbers)
        return self.key(expr.index)

    def key(self, place: int) -> Array:
        """The values of one key, by group."""
        if place not in self._known:
            self._known[place] = one_of_equals(self._keys[place](self._numbers))
        return self._known[place]

    def at(self, numbers: Positions) -> Groups:
        some = numbers if self._numbers is None else self._numbers[numbers]
        return Groups(
            self.constants, self._keys, self._aggregates, count=len(numbers), numbers=some
        )


def grouped(
    run: Run, grouping: ir.Grouping, relation: Relation, weights: Positions | None = None
) -> Groups:
    """The groups of the rows, with their keys and aggregates.

    With weights every row counts that often; all aggregates are then plain counts.
    """
    if weights is not None:
        numbered, _ = _prepared(run, grouping, relation)
        counts = int64_array(numbered.picked(numbered.weighed(run, weights)))
        aggregates = [counts] * len(grouping.aggregates)
        return Groups(run.constants, numbered.keys, aggregates, count=numbered.count)
    numbered, states = _states(run, grouping, relation)
    aggregates = [*map(finished, grouping.aggregates, states)]
    return Groups(run.constants, numbered.keys, aggregates, count=numbered.count)


def arguments(grouping: ir.Grouping) -> list[ir.Expr]:
    """What the aggregates look at; to count entities, no column is needed."""
    return [
        call.arg
        for call in grouping.aggregates
        if call.arg is not None and (call.distinct or not isinstance(call.arg, ir.IdRef))
    ]


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of some of the rows: their keys, and the states of their aggregates."""

    count: int
    keys: Sequence[Array]
    states: Sequence[State]


def partly_grouped(run: Run, grouping: ir.Grouping, relation: Relation) -> Partial:
    """The groups of these rows, to be put together with those of others."""
    numbered, states = _states(run, grouping, relation)
    keys = [values(None) for values in numbered.keys]
    return Partial(count=numbered.count, keys=keys, states=states)


def put_together(grouping: ir.Grouping, parts: Sequence[Partial]) -> Partial:
    """The groups of all the rows."""
    codes, first = numbered_rows([part.keys for part in parts], [part.count for part in parts])
    keys = [
        picked(pa.concat_arrays(column), first)
        for column in zip(*(part.keys for part in parts), strict=True)
    ]
    ends = np.cumsum([part.count for part in parts]).tolist()
    at = [codes[end - part.count : end] for end, part in zip(ends, parts, strict=True)]
    states = [
        merged(call.fn, [part.states[place] for part in parts], at, len(first))
        for place, call in enumerate(grouping.aggregates)
    ]
    return Partial(count=len(first), keys=keys, states=states)


def _prepared(
    run: Run, grouping: ir.Grouping, relation: Relation
) -> tuple[_Numbered, list[MatchedRows]]:
    rows = pieces(run, relation, [*grouping.keys, *arguments(grouping)])
    return _numbered(run, grouping.keys, relation, rows), rows


def _states(run: Run, grouping: ir.Grouping, relation: Relation) -> tuple[_Numbered, list[State]]:
    numbered, rows = _prepared(run, grouping, relation)
    if numbered.alone or (numbered.slots > PIECED_SLOTS_MAX and len(rows) > 1):
        numbered, rows = numbered.in_one(), [MatchedRows(run, relation)]
    made = _Aggregation(run, relation, rows, numbered)
    return numbered, [made.state(call) for call in grouping.aggregates]


# --- the number of each row's group ------------------------------------------------------------


class _Key(msgspec.Struct, frozen=True):
    """Codes of the rows of each piece, below `count` and equal where the key is; -1 is one too.

    `shows` are the keys of the query that a code tells, each with its values by code. `sizes` says
    how many of all rows have each code, last -1, where that is known without a look at them.
    """

    codes: Callable[[], Sequence[Codes]]
    count: int
    shows: Mapping[ir.Expr, Callable[[Positions], Array]]
    sizes: Positions | None = None


class _Numbered(msgspec.Struct, frozen=True, kw_only=True):
    """The number of each row's group, by piece. Numbers below `slots` that no row has are no
    groups: those that are one are `used` (None: all)."""

    made: Callable[[], Sequence[Codes | None]]  # made when somebody needs it
    slots: int
    sizes: Positions  # rows, by number
    used: Positions | None = None
    keys: Sequence[KeyValues] = ()
    # Every row is a group by itself: its number is the row's, and codes are made when needed.
    alone: bool = False

    @property
    def count(self) -> int:
        return self.slots if self.used is None else len(self.used)

    @property
    def codes(self) -> Sequence[Codes | None]:
        """By piece; None: all rows are of group 0."""
        return self.made()

    def picked(self, by_slot: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """By group, what is given by number."""
        return by_slot if self.used is None else by_slot[self.used]

    def in_one(self) -> _Numbered:
        """The same, with all rows as one piece."""
        codes = np.arange(self.slots, dtype=np.int64) if self.alone else _joined(self.codes)
        return replace(self, made=lambda: [codes])

    def weighed(self, run: Run, weights: Positions) -> Positions:
        """The sum of the weights of each number's rows; exact, for they are whole and few."""
        if self.alone:
            return weights
        codes = self.codes
        known = [part for part in codes if part is not None]
        if len(known) < len(codes):
            return np.asarray([weights.sum()], dtype=np.int64)
        if self.slots > PIECED_SLOTS_MAX:
            known = [np.concatenate([NO_POSITIONS, *known])]
        ends = np.cumsum([len(codes) for codes in known], dtype=np.int64).tolist()

        def summed(piece: tuple[int, Codes]) -> Positions:
            end, codes = piece
            here = weights[end - len(codes) : end]
            return np.bincount(codes, weights=here, minlength=self.slots).astype(np.int64)

        sums = in_parallel(run, summed, [*zip(ends, known, strict=True)], len(weights))
        total: Positions = np.sum([np.zeros(self.slots, dtype=np.int64), *sums], axis=0)
        return total


def _joined(codes: Sequence[Codes | None]) -> Codes | None:
    known = [part for part in codes if part is not None]
    if len(known) < len(codes):
        return None
    return known[0] if len(known) == 1 else np.concatenate([np.empty(0, np.int8), *known])


def _numbered(
    run: Run, keys: Sequence[ir.Expr], relation: Relation, rows: Sequence[MatchedRows]
) -> _Numbered:
    if not keys:
        sizes = np.asarray([relation.count], dtype=np.int64)
        return _Numbered(made=lambda: [None] * len(rows), slots=1, sizes=sizes)
    found: list[_Key] = []
    left = list(dict.fromkeys(keys))
    for lead in keys:
        if run.names_entity(lead):
            # What an entity's id does not tell apart, its properties do not either.
            told = [key for key in left if ir.variables_of(key) == {lead.var}]
            if len(told) == len(left) and relation.selected(lead.var) is not None:
                return _row_by_row(run, keys, relation)
            told = [key for key in told if not ranks(key)]
            if told:
                found.append(_entities(run, lead.var, told, rows))
                left = [key for key in left if key not in told]
    coded = {key: _known_codes(run, key, relation) for key in left}
    if any(_tells_rows_apart(run, key, relation, coded[key]) for key in left):
        return _row_by_row(run, keys, relation)
    found += [_key(run, key, relation, rows, coded[key]) for key in left]
    numbered, codes_of = _combined(run, found, rows)
    places = {key: at for at, part in enumerate(found) for key in part.shows}

    def values(key: ir.Expr, groups: Positions | None) -> Array:
        place = places[key]
        some = np.arange(numbered.count, dtype=np.int64) if groups is None else groups
        return found[place].shows[key](codes_of(place, some))

    return replace(numbered, keys=[partial(values, key) for key in keys])


def _known_codes(run: Run, key: ir.Expr, relation: Relation) -> Coded | None:
    """The codes of the key's column, if it has some that pay for these rows."""
    if not isinstance(key, ir.PropertyRef):
        return None
    frame = run.rows_of(key.var)
    return frame.codes_for(run.stored(key.var, key.prop), relation.count)


def _tells_rows_apart(run: Run, key: ir.Expr, relation: Relation, coded: Coded | None) -> bool:
    """Whether the key is a property that no two entities share, and no entity is in two rows."""
    if coded is None or not isinstance(key, ir.PropertyRef) or not relation.selected(key.var):
        return False
    # As many values as entities, and each of them is one that there is.
    everyone = run.frame_of(key.var).living().count
    return coded.count == everyone and int(coded.first.min(initial=0)) >= 0


def _row_by_row(run: Run, keys: Sequence[ir.Expr], relation: Relation) -> _Numbered:
    """Every row is a group of its own: what its keys tell of is in no other row."""

    def values(key: ir.Expr, groups: Positions | None) -> Array:
        if groups is not None and ranks(key):
            return Column.of(values(key, None)).take(groups)
        some = relation if groups is None else relation.take(groups)
        return MatchedRows(run, some).values(key)

    return _Numbered(
        made=tuple,
        slots=relation.count,
        sizes=np.broadcast_to(np.int64(1), relation.count),
        keys=[partial(values, key) for key in keys],
        alone=True,
    )


def _entities(run: Run, var: str, keys: Sequence[ir.Expr], rows: Sequence[MatchedRows]) -> _Key:
    """A key by its entity, whose position is the code."""

    def values(key: ir.Expr, positions: Positions) -> Array:
        return MatchedRows(run, Relation.of(var, positions)).values(key)

    shows = {key: partial(values, key) for key in keys}
    return _Key(lambda: [piece.relation[var] for piece in rows], run.rows_of(var).length, shows)


def _key(
    run: Run,
    key: ir.Expr,
    relation: Relation,
    rows: Sequence[MatchedRows],
    coded: Coded | None,
) -> _Key:
    if coded is not None:
        assert isinstance(key, ir.PropertyRef), "only a property has codes"
        return _coded(run, coded, key, relation, rows)
    variables = ir.variables_of(key)
    if len(variables) == 1 and not variables & run.rows.keys():
        (var,) = variables
        length = run.rows_of(var).length
        if relation.selected(var) is None and relation.count * ENTITIES_SHARE > length:
            entities, back = distinct_positions(relation[var], length)
            values = MatchedRows(run, Relation.of(var, entities)).values(key)
            codes = equal_codes(values)
            return _by_value(key, values, codes, codes[back], rows)
    parts = in_parallel(run, lambda piece: piece.values(key), rows, relation.count)
    values = pa.concat_arrays(parts) if parts else MatchedRows(run, relation).values(key)
    codes = equal_codes(values)
    return _by_value(key, values, codes, codes, rows)


def _coded(
    run: Run, coded: Coded, key: ir.PropertyRef, relation: Relation, rows: Sequence[MatchedRows]
) -> _Key:
    """A property by the codes of its column."""

    def codes_of(piece: MatchedRows) -> Codes:
        chosen = piece.relation.selected(key.var)
        if chosen is not None:
            return np.asarray(chosen.values(coded.codes))
        codes = coded.codes.take(piece.relation[key.var])
        return np.asarray(codes.fill_null(-1) if codes.null_count else codes)

    def values(codes: Positions) -> Array:
        first = np.append(coded.first, -1)[codes]
        return MatchedRows(run, Relation.of(key.var, first)).values(key)

    everyone = run.frame_of(key.var).living().count
    whole = relation.selected(key.var) is not None and relation.count == everyone
    return _Key(
        lambda: in_parallel(run, codes_of, rows, relation.count),
        coded.count,
        {key: values},
        coded.sizes if whole else None,
    )


def _by_value(
    key: ir.Expr, values: Array, codes: Codes, by_row: Codes, rows: Sequence[MatchedRows]
) -> _Key:
    """A key by its values: `codes` are theirs, `by_row` those of the rows."""
    count = int(codes.max(initial=-1)) + 1
    first = np.full(count + 1, -1, dtype=np.int64)  # the last cell stands for -1
    # Written backwards, so that the first of equal values stays.
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1, dtype=np.int64)
    first[-1] = -1
    parts = _cut(by_row, rows)
    return _Key(lambda: parts, count, {key: lambda some: Column.of(values).take(first[some])})


def _combined(
    run: Run, keys: Sequence[_Key], rows: Sequence[MatchedRows]
) -> tuple[_Numbered, Callable[[int, Positions], Positions]]:
    """One number for the codes of all keys, and the codes of one of the keys for given groups."""
    count = sum(piece.count for piece in rows)
    slots = math.prod(key.count + 1 for key in keys)  # the last code of each stands for -1
    if slots > 4 * count + DENSE_ROOM:
        return _sparse(keys, rows)

    def numbers(codes: tuple[Codes, ...]) -> Codes:
        number: Codes | None = None
        for part, key in zip(codes, keys, strict=True):
            if len(part) and int(part.min()) < 0:
                part = np.where(part < 0, key.count, part.astype(np.int64))
            number = part if number is None else number.astype(np.int64) * (key.count + 1) + part
        assert number is not None, "there are keys"
        return number

    pieced = slots <= PIECED_SLOTS_MAX

    def numbered(codes: tuple[Codes, ...]) -> tuple[Codes, Positions]:
        made = numbers(codes)
        return made, np.bincount(made, minlength=slots) if pieced else NO_POSITIONS

    def parts() -> list[tuple[Codes, ...]]:
        return [*zip(*(key.codes() for key in keys), strict=True)]

    known = keys[0].sizes if len(keys) == 1 else None
    if known is not None:
        sizes, made = known, cache(lambda: in_parallel(run, numbers, parts(), count))
    else:
        found = in_parallel(run, numbered, parts(), count)
        codes = [some for some, _ in found]
        made = cache(lambda: codes)
        if pieced:
            sizes = np.sum([np.zeros(slots, dtype=np.int64), *(part for _, part in found)], axis=0)
        else:
            sizes = np.bincount(np.concatenate([np.empty(0, np.int8), *codes]), minlength=slots)
    used = np.flatnonzero(sizes)

    def codes_of(place: int, groups: Positions) -> Positions:
        width = keys[place].count + 1
        codes = used[groups] // math.prod(key.count + 1 for key in keys[place + 1 :]) % width
        return np.where(codes == width - 1, -1, codes)

    return _Numbered(made=made, slots=slots, sizes=sizes, used=used), codes_of


def _sparse(
    keys: Sequence[_Key], rows: Sequence[MatchedRows]
) -> tuple[_Numbered, Callable[[int, Positions], Positions]]:
    """The same where most combinations of codes do not occur."""
    whole = [np.asarray(_joined(key.codes()), dtype=np.int64) for key in keys]
    together = row_keys([codes + 1 for codes in whole])
    _, first, numbers = np.unique(together, return_index=True, return_inverse=True)
    parts = _cut(numbers, rows)
    numbered = _Numbered(
        made=lambda: parts,
        slots=len(first),
        sizes=np.bincount(numbers, minlength=len(first)),
    )
    return numbered, lambda place, groups: whole[place][first[groups]]


def _cut(codes: Codes, rows: Sequence[MatchedRows]) -> list[Codes]:
    """Codes of all rows as those of each piece."""
    ends = np.cumsum([piece.count for piece in rows], dtype=np.int64).tolist()
    return [codes[end - piece.count : end] for end, piece in zip(ends, rows, strict=True)]


# --- aggregates --------------------------------------------------------------------------------


class _Aggregation:
    """Aggregates of numbered rows; what an argument is, is found once for all that use it."""

    def __init__(
        self, run: Run, relation: Relation, rows: Sequence[MatchedRows], numbered: _Numbered
    ) -> None:
        self._run = run
        self._relation = relation
        self._rows = rows
        self._numbered = numbered
        self._given: dict[tuple[ir.Expr, bool], Sequence[Given]] = {}
        self._sizes: dict[tuple[ir.Expr, bool], Positions] = {}

    def state(self, call: ir.AggregateCall) -> State:
        """What the aggregate knows of each group."""
        used = self._numbered.picked
        if call.arg is None:
            return State(sizes=used(self._numbered.sizes))
        if call.fn in EXTREMES and not self._numbered.keys:
            known = bounds_of(self._run, call.arg, self._relation)
            if known is not None:
                return extreme(call.fn, known, value_type(call.arg.type), self._relation.count)
        sizes = self._counts(call.arg, distinct=call.distinct)
        if call.fn is ir.AggregateFn.COUNT:
            return State(sizes=used(sizes))
        if call.fn in WHOLE:
            share = None if call.share is None else self._run.constants.value(call.share)
            given = self._argument(call.arg, distinct=False)
            made = of_all(call, given, len(sizes), share)
            state = State(sizes=sizes, chosen=made)
        else:
            given = self._argument(call.arg, distinct=call.distinct)
            state = state_of(call.fn, given, sizes, self._run.budget.check_time)
        if self._numbered.used is None:
            return state
        chosen = None if state.chosen is None else picked(state.chosen, self._numbered.used)
        return replace(state.mapped(used), chosen=chosen)

    # --- what there is ---

    def _argument(self, arg: ir.Expr, *, distinct: bool) -> Sequence[Given]:
        known = self._given.get((arg, distinct))
        if known is None:
            known = self._different(arg) if distinct else self._values(arg)
            self._given[arg, distinct] = known
        return known

    def _values(self, arg: ir.Expr) -> list[Given]:
        def given(numbered: tuple[MatchedRows, Codes | None]) -> Given:
            piece, codes = numbered
            values = piece.values(arg)
            if not values.null_count:
                return Given(codes, values)
            there = as_mask(values.is_valid())
            return Given(None if codes is None else codes[there], values.drop_null())

        return self._over(given, [*zip(self._rows, self._numbered.codes, strict=True)])

    def _different(self, arg: ir.Expr) -> list[Given]:
        """Every value once in each group."""
        key, pairs = self._pairs(arg)
        groups = self._numbered.codes
        one = bool(groups) and groups[0] is None
        codes = None if one else pairs // max(1, key.count)
        return [Given(codes, key.shows[arg](pairs % max(1, key.count)))]

    def _pairs(self, arg: ir.Expr) -> tuple[_Key, Positions]:
        """The values as codes, and every different group * codes + code."""
        key = self._coded(arg)
        met = self._met(key)
        return key, self._sorted_pairs(key) if met is None else np.flatnonzero(met)

    def _coded(self, arg: ir.Expr) -> _Key:
        if self._run.names_entity(arg):
            return _entities(self._run, arg.var, [arg], self._rows)
        coded = _known_codes(self._run, arg, self._relation)
        return _key(self._run, arg, self._relation, self._rows, coded)

    def _paired(self, key: _Key, work: Callable[[Positions], R]) -> list[R]:
        """What the work gives for the pairs of each piece, as numbers."""

        def pairs(numbered: tuple[Codes, Codes | None]) -> R:
            codes, groups = numbered
            together = codes.astype(np.int64)
            if groups is not None:
                together += groups.astype(np.int64) * key.count
            there = codes >= 0
            return work(together if there.all() else together[there])

        return self._over(pairs, [*zip(key.codes(), self._numbered.codes, strict=True)])

    def _met(self, key: _Key) -> npt.NDArray[np.bool_] | None:
        """Which pairs there are; None if most of them are not."""
        room = self._numbered.slots * key.count
        if room > 4 * self._relation.count + DENSE_ROOM:
            return None
        met = np.zeros(room, dtype=np.bool_)

        def mark(pairs: Positions) -> None:
            met[pairs] = True  # by several threads, which all write the same

        self._paired(key, mark)
        return met

    def _sorted_pairs(self, key: _Key) -> Positions:
        return np.unique(np.concatenate([NO_POSITIONS, *self._paired(key, lambda pairs: pairs)]))

    def _counts(self, arg: ir.Expr, *, distinct: bool) -> Positions:
        """How many values there are, by number."""
        known = self._sizes.get((arg, distinct))
        if known is None:
            known = self._sizes[arg, distinct] = self._counted(arg, distinct=distinct)
        return known

    def _counted(self, arg: ir.Expr, *, distinct: bool) -> Positions:
        slots, sizes = self._numbered.slots, self._numbered.sizes
        if distinct:
            key = self._coded(arg)
            met = self._met(key)
            if met is None:
                return np.bincount(self._sorted_pairs(key) // max(1, key.count), minlength=slots)
            return np.asarray(np.count_nonzero(met.reshape(slots, key.count), axis=1))
        if isinstance(arg, ir.IdRef):
            if self._relation.selected(arg.var) is not None:
                return sizes
            there = [piece.relation[arg.var] >= 0 for piece in self._rows]
            if all(some.all() for some in there):
                return sizes
            parts = [
                (None if codes is None else codes[some], int(np.count_nonzero(some)))
                for codes, some in zip(self._numbered.codes, there, strict=True)
            ]
        else:
            given = self._argument(arg, distinct=False)
            if sum(len(part.values) for part in given) == self._relation.count:
                return sizes
            parts = [(part.codes, len(part.values)) for part in given]
        total = np.zeros(slots, dtype=np.int64)
        for codes, count in parts:
            total += count if codes is None else np.bincount(codes, minlength=slots)
        return total

    def _over(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return in_parallel(self._run, work, items, self._relation.count)
