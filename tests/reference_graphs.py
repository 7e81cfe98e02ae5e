"""The graphs that the reference system wrote (`tests/fixtures`), unpacked where they can be opened,
and what it recorded about them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from omnigraph import Graph

FIXTURES = Path(__file__).parent / "fixtures"
BIRTHPLACE = Path("/srv/og")
MAINS = ("legacy-main", "legacy08-main")
BRANCHED = ("legacy-branches", "legacy08-branches")
EVERY = (*MAINS, *BRANCHED)
STAMPS = {"legacy-main": 3, "legacy-branches": 3, "legacy08-main": 4, "legacy08-branches": 4}


class Reference:
    """One unpacked graph and what its writer said about it."""

    def __init__(self, folder, name):
        self.folder = Path(folder) / name
        self.name = name
        self.uri = str(self.folder / "graph.omni")
        self.root = self.folder / "graph.omni"

    @property
    def branches(self):
        return json.loads((self.folder / "branches.json").read_text())["branches"]

    @property
    def schema(self):
        return (self.root / "_schema.pg").read_text()

    def commits(self, branch):
        """Newest first, as ours are listed."""
        text = (self.folder / f"commits.{branch.replace('/', '_')}.json").read_text()
        return json.loads(text)["commits"][::-1]

    def records(self, branch):
        text = (self.folder / f"export.{branch.replace('/', '_')}.jsonl").read_text()
        return normal(text.splitlines())


def archive(name):
    release = "reference-0.8.0" if "08" in name else "reference-0.7.0"
    return FIXTURES / release / f"{name}.tar.gz"


@contextlib.contextmanager
def unpacked(name, tmp_path):
    """The graph at a place where it can be opened; skips the test if there is none."""
    if name in MAINS:
        yield _extracted(name, tmp_path)
        return
    # One at a time on this machine, whoever runs the tests: the place is fixed.
    with (Path(tempfile.gettempdir()) / "omnigraph-reference-graphs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = [at for at in (BIRTHPLACE, BIRTHPLACE.parent) if not at.exists()]
        place = BIRTHPLACE / name
        if place.exists() and not (place / "made-by-tests").exists():
            pytest.skip(f"something else lies at {place}, where this graph must be unpacked")
        shutil.rmtree(place, ignore_errors=True)
        try:
            place.mkdir(parents=True)
        except OSError as cause:
            pytest.skip(f"this graph works only at {place}, which cannot be made: {cause}")
        try:
            (place / "made-by-tests").touch()
            yield _extracted(name, BIRTHPLACE)
        finally:
            shutil.rmtree(place, ignore_errors=True)
            for at in made:
                with contextlib.suppress(OSError):
                    at.rmdir()


def _extracted(name, folder):
    with tarfile.open(archive(name)) as packed:
        packed.extractall(folder, filter="data")
    return Reference(folder, name)


# --- what a graph says -----------------------------------------------------------------------


def tree(root, *, ignore=()):
    """Every file below the root with the hash of its bytes."""
    found = {}
    for at, _, names in os.walk(root):
        for name in names:
            path = os.path.join(at, name)
            key = os.path.relpath(path, root)
            if not key.startswith(ignore or "\0"):
                found[key] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return found


def normal(lines):
    """Export lines as records by what they are about, with dates and times as numbers."""
    records = {}
    for line in lines:
        record = json.loads(line)
        data = {key: _number(value) for key, value in record["data"].items() if value is not None}
        key = (record.get("type") or record["edge"], data["id"])
        assert key not in records, key
        records[key] = {**record, "data": data}
    return records


def _number(value):
    if not isinstance(value, str) or len(value) < 10 or value[4:5] + value[7:8] != "--":
        return value
    if len(value) == 10:
        return (date.fromisoformat(value) - date(1970, 1, 1)).days
    moment = datetime.fromisoformat(value).replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def told(commit):
    """A commit of ours in the words of the reference."""
    return {
        "graph_commit_id": commit.graph_commit_id,
        "manifest_branch": None if commit.graph_branch == "main" else commit.graph_branch,
        "manifest_version": commit.graph_manifest_version,
        "parent_commit_id": commit.parent_commit_id,
        "merged_parent_commit_id": commit.merged_parent_commit_id,
        "actor_id": commit.actor_id,
        "created_at": commit.created_us,
    }


def check_recorded(graph: Graph, reference: Reference, *, schema: str):
    """Every branch, commit and record is what the reference recorded."""
    assert sorted(graph.branches()) == sorted(reference.branches)
    assert graph.schema_source() == schema
    for branch in reference.branches:
        assert [told(each) for each in graph.commits(branch)] == reference.commits(branch), branch
        assert normal(graph.export(branch=branch)) == reference.records(branch), branch
        head = reference.commits(branch)[0]["graph_commit_id"]
        assert normal(graph.export(snapshot=head)) == reference.records(branch), branch


def past(graph: Graph, reference: Reference):
    """The whole graph at every commit."""
    ids = {
        each["graph_commit_id"] for name in reference.branches for each in reference.commits(name)
    }
    return {commit_id: normal(graph.export(snapshot=commit_id)) for commit_id in sorted(ids)}
