"""Version files read without Lance say what Lance says, and are rewritten to the byte."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import pytest

from histories import some_history
from omnigraph.storage.lance import versions
from omnigraph.storage.lance.versions import NotAVersionError


@pytest.fixture(scope="module", params=range(3))
def files(request, tmp_path_factory):
    uri = tmp_path_factory.mktemp("versions") / "g"
    some_history(str(uri), request.param)
    return sorted(uri.rglob("*.manifest"))


def test_rows_files_and_bases_are_those_that_lance_tells(files):
    for path in files:
        facts = versions.read(path.read_bytes())
        line = str(path.parent.parent)
        dataset = lance.dataset(line, version=facts.version)
        assert facts.rows == dataset.count_rows()
        assert facts.bases == {n: base.path for n, base in dataset.base_paths().items()}
        assert os.path.exists(f"{line}/_transactions/{facts.transaction}")
        told = {
            (row["base_uri"], row["path"])
            for row in dataset.tracked_files().read_all().to_pylist()
            if row["version"] == facts.version
            and row["type"] not in ("manifest", "transaction file")
        }
        found = {
            (line if part.base is None else facts.bases[part.base], part.path)
            for part in facts.parts
        }
        # Lance leaves out the indexes of a line that a branch was made from.
        inherited = {one for one in found - told if one[1].startswith("_indices/")}
        assert found - inherited == told
        assert all(folder != line for folder, _ in inherited)
        for part in facts.parts:
            folder = line if part.base is None else facts.bases[part.base]
            assert part.size in (None, os.path.getsize(f"{folder}/{part.path}"))


def test_a_version_with_the_same_places_is_the_same_bytes(files):
    for path in files:
        body = path.read_bytes()
        assert versions.moved(body, lambda place: place) == body


def test_other_places_are_all_that_changes_and_lance_reads_them(files, tmp_path):
    for path in files:
        body = path.read_bytes()
        before = versions.read(body)
        away = versions.moved(body, lambda place: f"/elsewhere{place}" * 2)
        assert versions.moved(away, lambda place: place[len(place) // 2 :][10:]) == body
        after = versions.read(away)
        assert list(after.bases.values()) == [f"/elsewhere{p}" * 2 for p in before.bases.values()]
        assert (after.parts, after.rows) == (before.parts, before.rows)
        copy = tmp_path / "line" / "_versions" / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(away)
        found = lance.dataset(str(tmp_path / "line"), version=before.version).base_paths()
        assert {n: base.path for n, base in found.items()} == dict(after.bases)
        Path(copy).unlink()


def test_what_is_no_version_file_is_said_so(files):
    body = files[0].read_bytes()
    for wrong in (b"", b"LANC", body[:-1], body[1:], body[: len(body) // 2], b"\xff" * len(body)):
        with pytest.raises(NotAVersionError):
            versions.read(wrong)
