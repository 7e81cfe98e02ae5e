"""What becomes of the entities that both sides of a merge changed: as a strategy says, or as
somebody has decided about each of them.

A decision is "ours", "theirs", or values by property. A property that is not named in it is merged
if only one side changed it; if both did, the strategy decides, and without one it stays a conflict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.compiler.text import closest
from omnigraph.engine.arrow import Mask, flat
from omnigraph.engine.check.findings import Findings, Violation
from omnigraph.engine.check.rules import Entity, misfit, missing
from omnigraph.engine.history.changes import blob_image
from omnigraph.engine.history.difference import (
    Places,
    Side,
    TableDifference,
    blob_names,
    unequal_columns,
    whole_rows,
)
from omnigraph.engine.merge.conflicts import entity_words
from omnigraph.engine.rows.blobs import BlobBases
from omnigraph.engine.rows.columns import CellProblem, batch_schema, from_fitted
from omnigraph.errors import InputError
from omnigraph.model.schema import Catalog, EdgeType, NodeType, PropertyType, Scalar
from omnigraph.model.values import Misfit, fit, json_value
from omnigraph.results.merging import PropertyConflict, Strategy

Take = Literal["ours", "theirs"]
Decision = Take | Mapping[str, Any]
_TAKES: Final[tuple[Take, ...]] = get_args(Take)
_STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)
_ENDS: Final = {"src": "from", "dst": "to"}  # what users call these columns
_COLUMNS: Final = {word: name for name, word in _ENDS.items()}
_END: Final = PropertyType(scalar=Scalar.STRING)
_NAMES: Final = "names are those of the merged schema; a preview of the merge shows them"


# --- what somebody has decided -----------------------------------------------------------------


class Resolutions(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions about a merge's conflicts, by type key and entity id."""

    by_type: Mapping[str, Mapping[str, Decision]] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, given: Any) -> Resolutions:
        """The decisions as a caller gives them; `InputError` says which of them is none."""
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            raise _odd("resolutions", "must be a mapping", got=given)
        by_type: dict[str, dict[str, Decision]] = {}
        for key, decision in given.items():
            named = isinstance(key, tuple) and len(key) == 2
            if not named or not all(isinstance(part, str) for part in key):
                raise _odd("a resolution", "is for a pair of texts, (type key, id)", got=key)
            told = isinstance(decision, str) and decision in _TAKES
            if not told and not isinstance(decision, Mapping):
                what = f"the resolution of {entity_words(*key)}"
                raise _odd(what, "must be 'ours', 'theirs' or values by property", got=decision)
            by_type.setdefault(key[0], {})[key[1]] = decision
        return cls(by_type=by_type)

    @property
    def facts(self) -> dict[str, Any]:
        """What tells a request with these decisions from others; nothing if there are none."""
        return {"resolutions": self.by_type} if self.by_type else {}

    def require_known(self, catalog: Catalog) -> None:
        """Raise `InputError` for a type or a property that the schema does not have."""
        types = {entity.table_key: entity for entity in catalog.types()}
        for key, decisions in self.by_type.items():
            if key not in types:
                raise InputError(
                    f"a resolution names '{key}', and there is no such type",
                    hint=_meant(key, types) or _NAMES,
                    argument="resolutions",
                )
            for entity_id, decision in decisions.items():
                if isinstance(decision, Mapping):
                    _require_settable(types[key], entity_id, decision)

    def require_admitted(self, catalog: Catalog, bases: BlobBases) -> None:
        """Raise `ExternalBlobError` for the address of a blob that may not be taken."""
        for key, decisions in self.by_type.items():
            for decision in decisions.values():
                if isinstance(decision, Mapping):
                    bases.admit_given(catalog.type_of(key), decision)

    def require_used(self, clashing: Mapping[str, Collection[str]]) -> None:
        """Raise `InputError` for a decision about an entity that is in no conflict: it would have
        no effect, and its author thinks that it has one."""
        for key, decisions in self.by_type.items():
            known = clashing.get(key, ())
            for entity_id in decisions:
                if entity_id not in known:
                    raise InputError(
                        f"a resolution names {entity_words(key, entity_id)}, which is in no "
                        "conflict that a resolution can settle",
                        hint=_meant(entity_id, known) or "a preview lists the conflicts",
                        argument="resolutions",
                        type_key=key,
                        entity_id=entity_id,
                    )


class Settling(msgspec.Struct, frozen=True, kw_only=True):
    """How a merge settles what both sides changed. A resolution counts more than the strategy."""

    strategy: Strategy = "fail"
    resolutions: Resolutions = msgspec.field(default_factory=Resolutions)

    @classmethod
    def of(cls, strategy: Any, resolutions: Any) -> Settling:
        """What a caller asks for; `InputError` if it makes no sense."""
        if strategy not in _STRATEGIES:
            raise InputError(
                f"unknown merge strategy '{strategy}'",
                hint=f"use one of {', '.join(_STRATEGIES)}",
                argument="strategy",
            )
        return cls(strategy=strategy, resolutions=Resolutions.of(resolutions))


def _odd(what: str, problem: str, *, got: Any) -> InputError:
    return InputError(f"{what} {problem}, got {got!r}", argument="resolutions")


def _meant(name: str, known: Collection[str]) -> str | None:
    near = closest(name, known)
    return f"did you mean '{near}'?" if near else None


def _require_settable(entity: Entity, entity_id: str, values: Mapping[str, Any]) -> None:
    names = [name for name in entity.by_name if name not in _key(entity)]
    names += _COLUMNS if isinstance(entity, EdgeType) else ()
    for name in values:
        if name in names:
            continue
        what = "is its key" if name in _key(entity) or name == "id" else "it does not have"
        raise InputError(
            f"the resolution of {entity_words(entity.table_key, entity_id)} sets '{name}', "
            f"which {what}",
            hint=_meant(str(name), names) or _NAMES,
            argument="resolutions",
            property=name,
        )


def _key(entity: Entity) -> tuple[str, ...]:
    return entity.key if isinstance(entity, NodeType) else ()


def _taken(value: Any) -> Take | None:
    """The side whose value a property is to have, for `{"take": "ours"}`. No property holds a
    mapping of that form."""
    if isinstance(value, Mapping) and set(value) == {"take"} and value["take"] in _TAKES:
        side: Take = value["take"]
        return side
    return None


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a property is to be: as a side has it, or a value."""

    side: Take | None = None
    value: Any = None


# --- entities that both sides wrote ------------------------------------------------------------


class Clash(msgspec.Struct, frozen=True, kw_only=True):
    """Entities that both sides have and that are not the same on both, with what each side did.

    Where no row of the base counts (both made the entity, or the bases are at odds) each side
    counts as having changed everything.
    """

    entity: Entity
    ids: Sequence[str]
    ours: Side
    theirs: Side
    base: Side
    at_ours: Places
    at_theirs: Places
    at_base: Places  # -1: none
    by_them: Mapping[str, Mask]  # which of the entities they changed, by column
    unlike: Mapping[str, Mask]  # which are not the same on both sides
    open: Mapping[str, Mask]  # which both changed, and not to the same

    @classmethod
    def of(
        cls,
        ours: TableDifference,
        theirs: TableDifference,
        ids: Sequence[str],
        places: tuple[Places, Places, Places],
    ) -> Clash:
        """`places` are those of the entities in our rows, in theirs and in the base's."""
        entity, (at_ours, at_theirs, at_base) = theirs.entity, places
        based = at_base >= 0

        def changed(side: Side, places: Places) -> dict[str, Mask]:
            found = unequal_columns(entity, theirs.before, at_base[based], side, places[based])
            return {name: _spread(mask, based) for name, mask in found}

        by_us, by_them = changed(ours.after, at_ours), changed(theirs.after, at_theirs)
        unlike = dict(unequal_columns(entity, ours.after, at_ours, theirs.after, at_theirs))
        return cls(
            entity=entity,
            ids=ids,
            ours=ours.after,
            theirs=theirs.after,
            base=theirs.before,
            at_ours=at_ours,
            at_theirs=at_theirs,
            at_base=at_base,
            by_them=by_them,
            unlike=unlike,
            open={name: unlike[name] & by_us[name] & by_them[name] for name in unlike},
        )

    def settled(
        self, decisions: Mapping[str, Decision], strategy: Strategy
    ) -> tuple[set[str], pa.Table, Mapping[str, Mask]]:
        """The entities that can be put together from both sides, their rows, and what is open.

        Those are the entities with values by property among the decisions and, if the strategy is
        "property", all that have no decision.
        """
        values = self._fitted(decisions, strategy)
        asked = np.zeros(len(self.ids), dtype=bool)
        asked[list(values)] = True
        left = {name: mask.copy() for name, mask in self.open.items()}
        for row, given in values.items():
            for name in given:
                left[name][row] = False
        if strategy in _TAKES:
            left = {name: mask & ~asked for name, mask in left.items()}
        free = asked & ~_any(left, len(self.ids))
        rows = self._put_together(np.flatnonzero(free), values, strategy)
        return {self.ids[row] for row in np.flatnonzero(free).tolist()}, rows, left

    def _fitted(
        self, decisions: Mapping[str, Decision], strategy: Strategy
    ) -> dict[int, dict[str, _Given]]:
        """What is given for each entity, by column, each value read as a load reads it."""
        found = Findings()
        fitted: dict[int, dict[str, _Given]] = {}
        for row, one in enumerate(self.ids):
            decision = decisions.get(one, {} if strategy == "property" else None)
            if isinstance(decision, Mapping):
                given = {word: self._given(word, value) for word, value in decision.items()}
                # An item of a request has no line; the entity that it decides about is its place.
                whose = f"the resolution of {entity_words(self.entity.table_key, one)}"
                found.add(
                    [
                        replace(problem, ids=(one,), text=f"{whose}: {problem.text}")
                        for problem in given.values()
                        if isinstance(problem, Violation)
                    ]
                )
                fitted[row] = {
                    _COLUMNS.get(word, word): value
                    for word, value in given.items()
                    if isinstance(value, _Given)
                }
        found.raise_if_any()
        return fitted

    def _given(self, word: str, value: Any) -> _Given | Violation:
        side = _taken(value)
        if side is not None:
            return _Given(side=side)
        kind = self._kind(word)
        fitted = fit(value, kind)
        if isinstance(fitted, Misfit):
            problem = CellProblem(row=0, message=fitted.message, value=value)
            return misfit(self.entity, word, problem, None)
        if fitted is None and not kind.nullable:
            return missing(self.entity, word, None, absent=False)
        return _Given(value=fitted)

    def _kind(self, word: str) -> PropertyType:
        prop = self.entity.by_name.get(word)
        return _END if prop is None else prop.type

    def _put_together(
        self, rows: Places, values: Mapping[int, Mapping[str, _Given]], strategy: Strategy
    ) -> pa.Table:
        kept = whole_rows(self.ours, self.entity, self.at_ours[rows])
        brought = whole_rows(self.theirs, self.entity, self.at_theirs[rows])
        columns = []
        for field in batch_schema(self.entity):
            name = field.name
            if name == "id":
                columns.append(kept[name])
                continue
            theirs = self.by_them[name][rows].copy()
            if strategy == "ours":
                theirs &= ~self.open[name][rows]
            said = {at: values[row].get(name) for at, row in enumerate(rows.tolist())}
            given = {at: one for at, one in said.items() if one is not None}
            for at, one in given.items():
                theirs[at] = one.side == "theirs"
            column = pc.if_else(pa.array(theirs), flat(brought[name]), flat(kept[name]))
            set_to = {at: one.value for at, one in given.items() if one.side is None}
            columns.append(self._with_values(name, column, set_to) if set_to else column)
        return pa.Table.from_arrays(columns, schema=batch_schema(self.entity))

    def _with_values(self, name: str, column: Any, values: Mapping[int, Any]) -> Any:
        """The column with these values in place of what it has."""
        places = np.arange(len(column))
        places[list(values)] = np.arange(len(column), len(column) + len(values))
        more = from_fitted(list(values.values()), self._kind(_ENDS.get(name, name)))
        return pa.concat_arrays([flat(column), more.cast(column.type)]).take(pa.array(places))

    # --- in words ----------------------------------------------------------------------------

    def told(
        self, ids: Collection[str], left: Mapping[str, Mask]
    ) -> dict[str, list[PropertyConflict]]:
        """What is open of each of the entities, with the values of all three sides. If each side
        changed other properties, all that are not the same are told."""
        asked = np.array([one in ids for one in self.ids], dtype=bool)
        nothing = ~_any(left, len(self.ids))
        found: dict[str, list[PropertyConflict]] = {one: [] for one in ids}
        for name in self._names():
            rows = np.flatnonzero(asked & (left[name] | (nothing & self.unlike[name])))
            sides = (
                _values(self.base, self.entity, name, self.at_base[rows]),
                _values(self.ours, self.entity, name, self.at_ours[rows]),
                _values(self.theirs, self.entity, name, self.at_theirs[rows]),
            )
            for row, base, our, their in zip(rows.tolist(), *sides, strict=True):
                word = _ENDS.get(name, name)
                found[self.ids[row]].append(PropertyConflict(word, base, our, their))
        return found

    def _names(self) -> Iterator[str]:
        return (name for name in batch_schema(self.entity).names if name != "id")


def told_of_deleted(
    found: TableDifference, ids: Sequence[str], at: Places, at_base: Places, *, by: Take
) -> dict[str, list[PropertyConflict]]:
    """What one side changed of entities that the other, `by`, deleted. The deleted side has no
    values."""
    told: dict[str, list[PropertyConflict]] = {one: [] for one in ids}
    based = np.flatnonzero(at_base >= 0)
    masks = unequal_columns(found.entity, found.before, at_base[based], found.after, at[based])
    for name, mask in masks:
        rows = based[mask]
        before = _values(found.before, found.entity, name, at_base[rows])
        after = _values(found.after, found.entity, name, at[rows])
        for row, old, new in zip(rows.tolist(), before, after, strict=True):
            ours, theirs = (None, new) if by == "ours" else (new, None)
            told[ids[row]].append(PropertyConflict(_ENDS.get(name, name), old, ours, theirs))
    return told


def _values(side: Side, entity: Entity, name: str, places: Places) -> list[Any]:
    """Values as JSON shows them; None where there is no row."""
    there = np.flatnonzero(places >= 0)
    values: list[Any] = [None] * len(places)
    if name in blob_names(entity):
        read = [blob_image(blob) for blob in side.blobs(name, places[there])]
    else:
        read = flat(side.rows[name].take(pa.array(places[there], pa.int64()))).to_pylist()
    for at, value in zip(there.tolist(), read, strict=True):
        values[at] = json_value(value)
    return values


def _spread(mask: Mask, based: Mask) -> Mask:
    """The mask of some rows as one of all; the others count as changed."""
    whole = np.ones(len(based), dtype=bool)
    whole[based] = mask
    return whole


def _any(masks: Mapping[str, Mask], rows: int) -> Mask:
    found = np.zeros(rows, dtype=bool)
    for mask in masks.values():
        found |= mask
    return found
