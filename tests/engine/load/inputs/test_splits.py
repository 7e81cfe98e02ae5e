"""Byte ranges of line files: every line once, whatever the cut; broken files say so."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.load.inputs.sources import BrokenInputError, plan_splits, read_chunks
from omnigraph.engine.rows.parts import packed, unpacked
from omnigraph.errors import NotFoundError
from omnigraph.storage.objects.files import FileAccess, InputFile


def lines_of(path, split_bytes):
    access = FileAccess()
    found = []
    for split in plan_splits(access.found(str(path)), split_bytes=split_bytes):
        for chunk in read_chunks(split, access):
            assert chunk.text == b"".join(line + b"\n" for line in chunk.lines)
            found += chunk.lines
    return found


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=12),
    split_bytes=st.integers(1, 40),
    ends=st.booleans(),
)
def test_every_line_belongs_to_exactly_one_split(tmp_path_factory, lines, split_bytes, ends):
    path = tmp_path_factory.mktemp("lines") / "f.jsonl"
    content = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    path.write_bytes(content)
    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert lines_of(path, split_bytes) == expected


def test_gzip_files_are_one_split_also_with_several_members(tmp_path):
    path = tmp_path / "f.jsonl.gz"
    path.write_bytes(gzip.compress(b"a\nb\n") + gzip.compress(b"c\nd"))
    assert len(plan_splits(FileAccess().found(str(path)), split_bytes=1)) == 1
    assert lines_of(path, 1) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("damage", ["cut", "garbled"])
def test_a_broken_gzip_file_says_so(tmp_path, damage):
    path = tmp_path / "f.jsonl.gz"
    whole = gzip.compress(b"".join(b"%d\n" % i for i in range(20_000)))
    half = len(whole) // 2
    path.write_bytes(whole[:half] if damage == "cut" else whole[:half] + b"\0" * 50 + whole[half:])
    with pytest.raises(BrokenInputError, match="gzip"):
        lines_of(path, 1 << 20)


def test_empty_files_have_no_splits():
    assert plan_splits([InputFile(address="x", size=0)]) == []


def test_folders_are_searched_and_hidden_files_left_out(tmp_path):
    for name in ("b.jsonl", "sub/a.jsonl", ".hidden", "_SUCCESS", "_tmp/x.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    names = [file.address for file in FileAccess().found(str(tmp_path))]
    assert names == [str(tmp_path / "b.jsonl"), str(tmp_path / "sub" / "a.jsonl")]
    assert [f.address for f in FileAccess().found(f"{tmp_path}/*.jsonl")] == names[:1]
    with pytest.raises(NotFoundError):
        FileAccess().found(str(tmp_path / "missing*"))


@pytest.mark.parametrize("numbers", [[], [0], [5, 6, 7, 100, 70_000_000_000], list(range(1000))])
def test_record_numbers_survive_packing(numbers):
    array = np.array(numbers, dtype=np.int64)
    if len(numbers) == 5:  # a distance beyond 32 bits cannot occur inside one split
        array = array[:4]
    assert unpacked(packed(array)).tolist() == array.tolist()
