"""Every rule across rows: a plain checker that looks at all pairs says the same as buckets do."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.compiler.schema.compile import compile_schema
from omnigraph.engine.check.bucket import NewRows, Offences, Terms
from omnigraph.engine.check.decide import decide
from omnigraph.engine.check.keyfiles import bucket_numbers, cut, hashes_of
from omnigraph.engine.rows.columns import batch_schema

SCHEMA = """
node P {
  k: String @key  f: F64? @unique  a: String?  b: F32?
  @unique(a, b)
}
edge E: P -> P @card(1..2) { u: I32? @unique }
"""
FLOATS = [None, 0.0, -0.0, math.nan, -math.nan, math.inf, 1.5]
TEXTS = [None, "", "a", "a\x1f", "\x00", "ä" * 9, "x" * 300, "x" * 299 + "y"]
COUNTS = (1, 2, 7, 64)
KINDS = ("ids", "unique", "ends", "degrees")
CATALOG = compile_schema(SCHEMA)


class CutBucket:
    """One of several buckets of tables in memory; every table is cut by every key."""

    asks = False

    def __init__(self, new: Any, stored: Any, number: int, count: int, cuts: Any) -> None:
        self._new, self._stored, self._number, self._count = new, stored, number, count
        self._cuts = cuts

    def _cut(self, rows: pa.Table, by: Any, *name: str) -> pa.Table:
        if (*name, *by) not in self._cuts:
            self._cuts[*name, *by] = cut(rows, list(by), self._count)
        return self._cuts[*name, *by][self._number]

    def new_rows(self, key: str, by: Any, also: Any) -> Any:
        rows = self._new[key]
        numbered = rows.append_column("_row", pa.array(np.arange(rows.num_rows)))
        chosen = self._cut(numbered, by, "new", key)
        half = chosen.num_rows // 2
        for piece in (chosen.slice(0, half), chosen.slice(half)):
            names = list(dict.fromkeys((*by, *also)))
            yield NewRows(piece.select(names), np.asarray(piece["_row"]))

    def stored_rows(self, key: str, by: Any, also: Any, asked: Any) -> pa.Table:
        shadowed = set(self._new[key]["id"].to_pylist())
        rows = self._stored[key]
        stays = [one not in shadowed for one in rows["id"].to_pylist()]
        return self._cut(rows.filter(pa.array(stays, pa.bool_())), by, "staying", key)

    def stored_ids(self, key: str, asked: Any, *, located: bool) -> pa.Table:
        return self._cut(self._stored[key], ["id"], "stored", key)

    def left_sources(self, key: str) -> Any:
        shadowed = set(self._new[key]["id"].to_pylist())
        rows = self._stored[key]
        gone = rows.filter(
            pa.array([one in shadowed for one in rows["id"].to_pylist()], pa.bool_())
        )
        return self._cut(gone, ["src"], "gone", key)["src"].combine_chunks()

    def refused_ids(self, key: str) -> Any:
        return pa.array([], pa.string())

    deleted_ids = refused_ids


def found_in(new: Any, stored: Any, mode: str, count: int) -> Any:
    """What all buckets find together, in order."""
    out = Offences(None)
    terms = {
        key: Terms(
            entity=CATALOG.type_of(key),
            last_counts=mode == "merge",
            strictly_new=mode == "append",
        )
        for key in new
    }
    gone: dict[str, list[int]] = {key: [] for key in new}
    cuts: dict[Any, Any] = {}
    for number in range(count):
        part = Offences(None)
        known = decide(CutBucket(new, stored, number, count, cuts), terms, CATALOG, KINDS, part)
        out.merge(part)
        for key, one in known.items():
            gone[key] += [*one.losers.tolist(), *one.refused.tolist()]
    told = {
        tuple(section): [
            (one.row, one.value, one.rival, one.rival_id, one.row_id, one.count)
            for one in out.listed(section)
        ]
        for section in sorted(out.sections())
    }
    totals = {tuple(section): out.total(section) for section in out.sections()}
    return told, totals, {key: sorted(rows) for key, rows in gone.items()}


def plain(new: Any, stored: Any, mode: str) -> Any:
    """The same by comparing everything with everything."""
    told: dict[Any, list[Any]] = {}
    totals: Counter[Any] = Counter()
    gone: dict[str, set[int]] = {key: set() for key in new}
    mine = {key: rows.to_pylist() for key, rows in new.items()}
    theirs = {key: rows.to_pylist() for key, rows in stored.items()}

    def tell(section: Any, *facts: Any, more: int = 1) -> None:
        told.setdefault(section, []).append(facts)
        totals[section] += more

    for key, rows in mine.items():
        ids = [row["id"] for row in rows]
        known = {row["id"] for row in theirs[key]}
        for at, one in enumerate(ids):
            if mode == "merge":
                if one in ids[at + 1 :]:
                    gone[key].add(at)
                continue
            first = ids.index(one)
            if first < at:
                again = ids.index(one, first + 1) == at
                tell(("repeated", key, "id"), at, one, first, "", one, 0, more=int(again))
                gone[key].add(at)
            if one in known:
                tell(("existing", key, "id"), at, one, -1, "", one, 0)
                gone[key].add(at)
        staying = [row for row in theirs[key] if row["id"] not in ids]
        for columns, label in UNIQUE[key]:
            values = [same(row, columns) for row in rows]
            for at, value in enumerate(values):
                if value is None:
                    continue
                first = values.index(value)
                shown = ", ".join(str(rows[at][name]) for name in columns)
                if first < at:
                    again = values.index(value, first + 1) == at
                    facts = (at, shown, first, ids[first], ids[at], 0)
                    tell(("unique", key, label), *facts, more=int(again))
                holder = next((row for row in staying if same(row, columns) == value), None)
                if holder is not None:
                    tell(("held", key, label), at, shown, -1, holder["id"], ids[at], 0)
    nodes = {row["id"] for rows in (mine["node:P"], theirs["node:P"]) for row in rows}
    edges = mine["edge:E"]
    for column in ("src", "dst"):
        for at, row in enumerate(edges):
            if row[column] not in nodes:
                tell(("dangling", "edge:E", column), at, row[column], -1, "", "", 0)
    ids = {row["id"] for row in edges}
    after = [*edges, *(row for row in theirs["edge:E"] if row["id"] not in ids)]
    counts = Counter(row["src"] for row in after)
    touched = [row["src"] for row in edges]
    left = sorted({row["src"] for row in theirs["edge:E"] if row["id"] in ids} - set(touched))
    broken = []
    for source in dict.fromkeys([*touched, *left]):
        if not 1 <= counts[source] <= 2:
            its = [at for at, one in enumerate(touched) if one == source]
            over = counts[source] - 2
            # Told at the first new edge that is one too many.
            at = its[len(its) - over if 0 < over < len(its) else 0] if its else -1
            broken.append((at < 0, at, source))
    for _, at, source in sorted(broken, key=lambda one: one[:2]):
        tell(("degree", "edge:E", "src"), at, source, -1, "", "", counts[source])
    return told, dict(totals), {key: sorted(rows) for key, rows in gone.items()}


UNIQUE: dict[str, Any] = {
    "node:P": [(("f",), "f"), (("a", "b"), "(a, b)")],
    "edge:E": [(("u",), "u")],
}


def same(row: Any, columns: Any) -> Any:
    """What equals what in a group: NaN equals NaN, and -0.0 equals 0.0."""
    if any(row[name] is None for name in columns):
        return None

    def plain_value(value: Any) -> Any:
        if isinstance(value, float):
            return "nan" if math.isnan(value) else value + 0.0
        return value

    return tuple(plain_value(row[name]) for name in columns)


def table_of(key: str, rows: list[Any]) -> pa.Table:
    schema = batch_schema(CATALOG.type_of(key))
    fields = [field.with_nullable(True) for field in schema]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


IDS = st.sampled_from(["a", "b", "c", "d", "ä" * 20, ""])
NODES = st.lists(
    st.fixed_dictionaries(
        {
            "id": IDS,
            "k": st.just("k"),
            "f": st.sampled_from(FLOATS),
            "a": st.sampled_from(TEXTS),
            "b": st.sampled_from(FLOATS),
        }
    ),
    max_size=8,
)
EDGES = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(["1", "2", "3", "4", "5"]),
            "src": IDS,
            "dst": IDS,
            "u": st.sampled_from([None, 0, 1, -1, 2**31 - 1]),
        }
    ),
    max_size=8,
)


def distinct(rows: list[Any]) -> list[Any]:
    """Stored rows have every id once."""
    return list({row["id"]: row for row in rows}.values())


@settings(max_examples=40, deadline=None)
@given(NODES, NODES, EDGES, EDGES, st.sampled_from(["append", "merge"]))
def test_any_number_of_buckets_says_what_a_plain_checker_says(nodes, held, edges, kept, mode):
    new = {"node:P": table_of("node:P", nodes), "edge:E": table_of("edge:E", edges)}
    stored = {
        "node:P": table_of("node:P", distinct(held)),
        "edge:E": table_of("edge:E", distinct(kept)),
    }
    wanted = plain(new, stored, mode)
    for count in COUNTS:
        assert found_in(new, stored, mode, count) == wanted, count


@pytest.mark.parametrize("count", COUNTS)
def test_a_cut_keeps_all_rows_and_their_order(count):
    rows = pa.table({"k": [f"key{i % 50}" for i in range(500)], "row": np.arange(500)})
    pieces = cut(rows, ["k"], count)
    assert len(pieces) == count
    assert sorted(row for piece in pieces for row in piece["row"].to_pylist()) == list(range(500))
    for piece in pieces:
        assert piece["row"].to_pylist() == sorted(piece["row"].to_pylist())
    homes = {key: at for at, piece in enumerate(pieces) for key in piece["k"].to_pylist()}
    assert all(
        key not in piece["k"].to_pylist()
        for key, at in homes.items()
        for number, piece in enumerate(pieces)
        if number != at
    )


@pytest.mark.parametrize("count", COUNTS)
def test_a_row_with_a_null_in_its_key_is_in_no_bucket(count):
    rows = pa.table({"a": ["x", None, "y"], "b": [1, 2, None]})
    assert sum(piece.num_rows for piece in cut(rows, ["a", "b"], count)) == 1


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0.0, -0.0]),
        pa.array([math.nan, -math.nan], pa.float32()),
        pa.array(["x" * 1000, "x" * 1000]),
        pa.array([True, True]),
    ],
)
def test_equal_values_have_equal_hashes(values):
    first, second = hashes_of(values)
    assert first == second


def test_a_hash_does_not_depend_on_where_an_array_begins():
    texts = pa.array(["", "ab", "c" * 8, "d" * 9, "e" * 17, "f" * 300, "g" * 5000])
    whole = hashes_of(texts)
    for at in range(len(texts)):
        assert hashes_of(texts.slice(at)).tolist() == whole[at:].tolist()
        assert hashes_of(pa.array([texts[at].as_py()])).tolist() == [whole[at]]


@pytest.mark.parametrize("kind", ["p{:07d}", "person-{:016d}", "{:026d}"])
def test_buckets_are_about_equally_full(kind):
    keys = pa.array([kind.format(number) for number in range(20_000)])
    filled = np.bincount(bucket_numbers([keys], 16), minlength=16)
    assert filled.min() > 0.8 * filled.mean()
    assert filled.max() < 1.2 * filled.mean()
