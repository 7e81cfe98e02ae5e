"""Builds graphs of the formats v1 to v3 as their writers would have, with lance and files alone.

The story is always the same: main has a genesis commit, one by ann, then a branch `feature` (and
one under it, `feature/deep`) with a commit of its own, then a commit by bob on main.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pyarrow as pa

from omnigraph.compiler.schema import compile_schema

SOURCE = "node Person {\n  name: String @key\n}\n\nedge Knows: Person -> Person\n"
OTHER_SOURCE = SOURCE + "\nnode City {\n  name: String @key\n}\n"
SAME_TABLES_SOURCE = (
    "node Person {\n  name: String @key\n  age: I32?\n}\n\nedge Knows: Person -> Person\n"
)
PERSON, KNOWS = "nodes/5e3b6a7a4a4f4a49", "edges/0a0b0c0d0e0f0a0b"
BORN = datetime(2025, 1, 2, 3, 4, 5, 678901)

_PRIMARY_KEY = {b"lance-schema:unenforced-primary-key": b"true"}
_COMMITS = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("manifest_branch", pa.string()),
        pa.field("manifest_version", pa.uint64(), nullable=False),
        pa.field("parent_commit_id", pa.string()),
        pa.field("merged_parent_commit_id", pa.string()),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)
_ACTORS = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("actor_id", pa.string(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)
_NODES = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("name", pa.string())])
_EDGES = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("id", "src", "dst")])


def manifest_schema(stamp):
    """The manifest's columns; before v2 `object_id` is no key, and without a stamp it is v1."""
    metadata = _PRIMARY_KEY if stamp >= 2 else None
    return pa.schema(
        [
            pa.field("object_id", pa.string(), nullable=False, metadata=metadata),
            pa.field("object_type", pa.string(), nullable=False),
            pa.field("location", pa.string()),
            pa.field("metadata", pa.string()),
            pa.field("base_objects", pa.list_(pa.string())),
            pa.field("table_key", pa.string(), nullable=False),
            pa.field("table_version", pa.uint64()),
            pa.field("table_branch", pa.string()),
            pa.field("row_count", pa.uint64()),
        ],
        metadata={"omnigraph:internal_schema_version": str(stamp)} if stamp >= 2 else None,
    )


class OldGraph:
    """A graph of an old format at a local path, and what its writers did."""

    def __init__(self, uri, stamp):
        self.uri = Path(uri)
        self.stamp = stamp
        self.commits = []

    # --- the story ---------------------------------------------------------------------------

    def told(self, *, lineage=True):
        """The whole story; without lineage as before there were commit tables."""
        self._create(lineage=lineage)
        people = self._append(PERSON, _NODES, [{"id": "alice", "name": "alice"}])
        self.publish("node:Person", people, 1, actor="ann", lineage=lineage)
        if self.stamp <= 2:
            for name in ("__run__1", "__run__2"):
                self._dataset("__manifest").create_branch(name)
        self.branch("feature")
        self.branch("feature/deep", parent="feature")
        forked = self._dataset(PERSON).create_branch("feature")
        rows = pa.Table.from_pylist([{"id": "bob", "name": "bob"}], schema=_NODES)
        version = lance.write_dataset(rows, forked, mode="append").version
        self.publish("node:Person", version, 2, branch="feature", actor="fay", lineage=lineage)
        people = self._append(PERSON, _NODES, [{"id": "carl", "name": "carl"}])
        self.publish("node:Person", people, 2, actor="bob", lineage=lineage)
        return self

    def _create(self, *, lineage):
        catalog = compile_schema(SOURCE)
        self.write_schema(SOURCE)
        for location, schema in ((PERSON, _NODES), (KNOWS, _EDGES)):
            lance.write_dataset(
                schema.empty_table(), self._at(location), enable_stable_row_ids=True
            )
        rows = []
        for key, location in (("edge:Knows", KNOWS), ("node:Person", PERSON)):
            rows.append(row(key, "table", key, location=location))
            rows.append(version_row(key, 1, None, 0))
        assert {entity.table_key for entity in catalog.types()} == {"edge:Knows", "node:Person"}
        schema = manifest_schema(self.stamp)
        lance.write_dataset(
            pa.Table.from_pylist(rows, schema=schema),
            self._at("__manifest"),
            enable_stable_row_ids=True,
        )
        if lineage:
            for name, columns in (("_graph_commits", _COMMITS), ("_graph_commit_actors", _ACTORS)):
                lance.write_dataset(
                    columns.empty_table(), self._at(f"{name}.lance"), enable_stable_row_ids=True
                )
            self._commit(None, 1, actor=None)

    def publish(self, table_key, version, rows, *, branch=None, actor=None, lineage=True):
        """As format v3 did: the manifest first, the commit after it."""
        manifest = self._dataset("__manifest", branch)
        new = pa.Table.from_pylist(
            [version_row(table_key, version, branch, rows)], schema=manifest_schema(self.stamp)
        )
        (
            manifest.merge_insert("object_id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(new)
        )
        if lineage:
            self._commit(branch, manifest.version, actor=actor)

    def register(self, table_key, location):
        """A table that a schema change added, without a commit."""
        lance.write_dataset(_NODES.empty_table(), self._at(location), enable_stable_row_ids=True)
        rows = [row(table_key, "table", table_key, location=location)]
        rows.append(version_row(table_key, 1, None, 0))
        manifest = self._dataset("__manifest")
        new = pa.Table.from_pylist(rows, schema=manifest_schema(self.stamp))
        lance.write_dataset(new, manifest, mode="append")

    def branch(self, name, *, parent=None):
        self._dataset("__manifest", parent).create_branch(name)
        if self._at_exists("_graph_commits.lance"):
            self._dataset("_graph_commits.lance", parent).create_branch(name)

    def _commit(self, branch, manifest_version, *, actor):
        table = self._dataset("_graph_commits.lance", branch)
        known = table.to_table().to_pylist()
        parent = max(known, key=lambda each: each["manifest_version"], default=None)
        commit_id = f"01JGK7Z{len(self.commits):019d}"
        moment = BORN + timedelta(minutes=len(self.commits))
        entry = {
            "graph_commit_id": commit_id,
            "manifest_branch": branch,
            "manifest_version": manifest_version,
            "parent_commit_id": parent["graph_commit_id"] if parent else None,
            "merged_parent_commit_id": None,
            "created_at": moment,
        }
        lance.write_dataset(pa.Table.from_pylist([entry], schema=_COMMITS), table, mode="append")
        if actor is not None:
            who = {"graph_commit_id": commit_id, "actor_id": actor, "created_at": moment}
            actors = self._dataset("_graph_commit_actors.lance")
            lance.write_dataset(pa.Table.from_pylist([who], schema=_ACTORS), actors, mode="append")
        self.commits.append({**entry, "actor_id": actor})

    # --- files -------------------------------------------------------------------------------

    def write_schema(self, source, suffix=""):
        catalog = compile_schema(source)
        self.uri.mkdir(parents=True, exist_ok=True)
        (self.uri / f"_schema.pg{suffix}").write_text(source)
        (self.uri / f"_schema.ir.json{suffix}").write_text(
            json.dumps(json.loads(catalog.ir), indent=2)
        )
        state = {
            "format_version": 1,
            "schema_ir_hash": catalog.hash,
            "schema_identity_version": 1,
        }
        (self.uri / f"__schema_state.json{suffix}").write_text(json.dumps(state))
        return catalog

    def append_people(self, *names):
        """Rows in the table of people, not yet published."""
        rows = [{"id": name, "name": name} for name in names]
        return self._append(PERSON, _NODES, rows)

    def _append(self, location, schema, rows):
        table = pa.Table.from_pylist(rows, schema=schema)
        return lance.write_dataset(table, self._at(location), mode="append").version

    def _at(self, location):
        return str(self.uri / location)

    def _at_exists(self, location):
        return (self.uri / location).exists()

    def _dataset(self, location, branch=None):
        uri = self._at(location)
        return lance.dataset(uri if branch is None else f"{uri}/tree/{branch}")


def row(object_id, kind, table_key, **rest):
    return {"object_id": object_id, "object_type": kind, "table_key": table_key, **rest}


def version_row(table_key, version, branch, rows):
    facts = {"manifest_path": f"_versions/{version}.manifest", "naming_scheme": "V2"}
    return row(
        f"{table_key}${version:020d}",
        "table_version",
        table_key,
        metadata=json.dumps(facts),
        table_version=version,
        table_branch=branch,
        row_count=rows,
    )


def microseconds(moment):
    return int(moment.replace(tzinfo=UTC).timestamp()) * 1_000_000 + moment.microsecond
