"""A table of ids says what a dict says, whatever the hashes do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.read.memory import arrays, ids
from omnigraph.engine.read.memory.arrays import Column
from omnigraph.engine.read.memory.ids import IdTable, hash_of, hashes

TEXT = st.one_of(
    st.text(max_size=40),
    st.text("ab", max_size=20),
    st.builds(lambda text, times: text * times, st.text("aé", min_size=1), st.integers(1, 200)),
)
KINDS = st.sampled_from([pa.string(), pa.large_string()])


@pytest.fixture(params=["good hashes", "two hashes", "one mark"])
def poor(request, monkeypatch):
    """The same with hashes that collide everywhere."""
    monkeypatch.setattr(arrays, "CHUNK_ROWS", 16)
    monkeypatch.setattr(ids, "CHUNK_ROWS", 16)
    monkeypatch.setattr(ids, "ADDED_IDS_MAX", 3)
    monkeypatch.setattr(ids, "ONE_BY_ONE_MAX", 2)
    spoil = {
        "good hashes": lambda codes: codes,
        "two hashes": lambda codes: codes & 1,
        "one mark": lambda codes: codes >> 33 << 33,
    }[request.param]
    monkeypatch.setattr(ids, "hash_of", lambda text: spoil(hash_of(text)))
    monkeypatch.setattr(ids, "hashes", lambda texts: spoil(hashes(texts)))


@given(st.lists(TEXT), KINDS, st.integers(0, 3))
def test_one_by_one_or_all_together_the_hash_is_the_same(texts, kind, skipped):
    column = pa.array(texts, kind).slice(skipped)
    assert hashes(column).tolist() == [hash_of(text) for text in column.to_pylist()]


@given(st.lists(TEXT, max_size=6))
def test_no_byte_outside_the_buffer_is_read(texts):
    said = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, said)], dtype=np.int32)
    # As another library may hand it over: what comes behind the last text is somebody else's.
    data = pa.py_buffer(b"".join(said) + b"\xff" * 16).slice(0, int(offsets[-1]))
    column = pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), data)
    assert hashes(column).tolist() == [hash_of(text) for text in texts]


@pytest.mark.usefixtures("poor")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_table_says_what_a_dict_says(seed, kind):
    chance = np.random.default_rng(seed)
    made = [f"{'long ' * 60 if number % 7 == 0 else 'n'}{number}" for number in range(90)]
    made += ["", "é", "\0"]
    names = [made[number] for number in chance.permutation(len(made))]
    cut = int(chance.integers(0, 60))
    column = Column.of(pa.array(names[:cut], kind))
    table = IdTable.of(column)
    versions = [(table, cut)]
    while cut < len(names):
        end = min(len(names), cut + int(chance.integers(1, 9)))
        at = np.arange(cut, end)
        column = column.patched(at, pa.array(names[cut:end], kind), end)
        table, cut = table.extended(column), end
        versions.append((table, cut))
    asked = [*names, "nobody", "n", None, "\0\0", "é" * 9]
    for one, length in versions:
        expected = [names.index(name) if name in names[:length] else -1 for name in asked]
        assert one.find(pa.array(asked, kind)).tolist() == expected
        assert one.find(pa.array(asked[:2], kind)).tolist() == expected[:2]
        assert [one.get(name) for name in asked if name is not None] == [
            at for at, name in zip(expected, asked, strict=True) if name is not None
        ]


def test_what_no_column_can_hold_is_found_nowhere():
    table = IdTable.of(Column.of(pa.array(["a", "b"])))
    assert table.get("\ud800") == -1


def test_an_empty_column_knows_no_id():
    table = IdTable.of(Column.of(pa.array([], pa.string())))
    assert table.get("") == -1
    assert table.find(pa.array(["", None] * 50)).tolist() == [-1] * 100
