"""Derived files: what was written is read, and what is not as it was written counts as missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from omnigraph.model.ports import World
from omnigraph.storage.derived import (
    PAGE_BYTES,
    DamagedError,
    DerivedFiles,
    DerivedName,
    Span,
)
from omnigraph.storage.objects.root import Root, open_store

TABLE = "nodes/00ff"
NAME = DerivedName(data="abc", column=3, kind="words1")


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request):
    return request.getfixturevalue("local_root" if request.param == "local" else "s3_root")


@pytest.fixture
def files(place):
    root = Root.parse(place.uri, place.environ)
    return DerivedFiles(root, World(), open_store(root, World()))


def numbers(count, start=0):
    return np.arange(start, start + count, dtype=np.int64)


def put(files, **sections):
    files.put(TABLE, NAME, {name: [body.tobytes()] for name, body in sections.items()}, {"n": 7})


def opened(files):
    return files.open(TABLE, NAME, files.stored(TABLE)[NAME])


def test_what_is_written_is_read(files):
    big, small = numbers(100_000), numbers(3, start=9)
    put(files, big=big, none=numbers(0), small=small)
    file = opened(files)
    assert file.facts(dict) == {"n": 7}
    assert (file.size("big"), file.size("none")) == (800_000, 0)
    assert np.array_equal(np.frombuffer(file.read("big"), np.int64), big)
    assert bytes(file.read("none")) == b""
    asked = [Span("big", 8, 24), Span("small", 16, 24), Span("big", 799_992, 800_000)]
    found = [np.frombuffer(some, np.int64).tolist() for some in file.read_all(asked)]
    assert found == [[1, 2], [11], [99_999]]


def test_only_the_pages_asked_for_are_fetched(s3_root):
    root = Root.parse(s3_root.uri, s3_root.environ)
    files = DerivedFiles(root, World(), open_store(root, World()))
    put(files, big=numbers(1_000_000))
    file = opened(files)
    before = files.readings.bytes
    file.read_all([Span("big", 80, 88), Span("big", 7_000_000, 7_000_008)])
    assert files.readings.bytes - before == 2 * PAGE_BYTES


@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 0.99, 1.0])
def test_a_flipped_bit_is_damage(files, place, part):
    if place.uri.startswith("s3://"):
        pytest.skip("the bytes are flipped on the disk")
    put(files, big=numbers(20_000))
    path = Path(place.uri, "_derived", TABLE, str(NAME))
    body = bytearray(path.read_bytes())
    body[int(part * (len(body) - 1))] ^= 4
    path.write_bytes(bytes(body))
    file = opened(files)
    if file is not None:
        with pytest.raises(DamagedError):
            file.read("big")
    assert not files.is_sound(TABLE, NAME, len(body))


@pytest.mark.parametrize("kept", [0, 5, 1000, 150_000])
def test_a_file_cut_short_counts_as_missing(files, place, kept):
    if place.uri.startswith("s3://"):
        pytest.skip("the file is cut on the disk")
    put(files, big=numbers(20_000))
    path = Path(place.uri, "_derived", TABLE, str(NAME))
    path.write_bytes(path.read_bytes()[:kept])
    assert opened(files) is None


def test_a_file_that_is_not_there_is_none(files):
    assert files.stored(TABLE) == {}
    assert files.open(TABLE, NAME, 100) is None or not files.is_sound(TABLE, NAME, 100)


def test_other_names_are_left_alone(files):
    put(files, some=numbers(1))
    for name in ("abc", "abc.x.words1", "abc.3.words1.bak", "a b.3.words1"):
        files._objects.put(f"_derived/{TABLE}/{name}", b"")
    assert list(files.stored(TABLE)) == [NAME]


def test_files_go_with_their_data_files(files):
    other = DerivedName(data="on-branch", column=3, kind="words1")
    put(files, some=numbers(1))
    files.put(TABLE, other, {}, None)
    files._objects.put(f"{TABLE}/tree/b1/data/on-branch.lance", b"")
    assert files.collect(TABLE, preview=True) > 0
    assert set(files.stored(TABLE)) == {NAME, other}
    files.collect(TABLE, preview=False)
    assert set(files.stored(TABLE)) == {other}
    files.drop(TABLE)
    assert files.stored(TABLE) == {}
