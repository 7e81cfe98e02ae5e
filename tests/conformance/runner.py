"""Runs the steps of `exec.jsonl` and `merge.jsonl` against the public Python API.

`World` is one graph in a temporary folder; it runs a case's steps one by one and checks what each
expects.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compare import environment, has_members, plain, same, same_bag
from omnigraph import Graph
from omnigraph.errors import OmnigraphError

# --- the world of one case -------------------------------------------------------------------


class World:
    """One graph in a temporary folder, and the commits a case has put a label on."""

    def __init__(self, folder: Path, schema: str) -> None:
        self.folder = folder
        self.schema = schema
        self.graph = Graph.init(str(folder / "graph.omni"), schema)
        self.labels: dict[str, str] = {"genesis": self.head("main").graph_commit_id}
        self.before_merge: Any = None

    def close(self) -> None:
        self.graph.close()

    def head(self, branch: str) -> Any:
        return self.graph.commits(branch, limit=1)[0]

    def resolve(self, value: Any) -> Any:
        """A label, with or without its `@`, as the commit id it was put on."""
        if isinstance(value, str):
            name = value.removeprefix("@")
            if name in self.labels:
                return self.labels[name]
            assert not value.startswith("@"), f"the case uses {value} before marking it"
        return value

    def load_base(self, lines: list[str]) -> None:
        if lines:
            self.graph.load("\n".join(lines), mode="overwrite", strict=False)

    def run(self, step: Mapping[str, Any]) -> None:
        """Run one step of a case and check what it expects."""
        verb = next((verb for verb in VERBS if verb in step), None)
        assert verb is not None, f"no runner for the step {sorted(step)}"
        with environment(step.get("env", {})), self.expected_error(step):
            getattr(self, f"do_{verb}")(step[verb], step)

    @contextmanager
    def expected_error(self, step: Mapping[str, Any]) -> Iterator[None]:
        """Turn the error a step announces into a pass, and its absence into a failure."""
        if not any(key in step for key in ("expect_error", "expect_error_kind")):
            yield
            return
        try:
            yield
        except OmnigraphError as error:
            self.check_error(error, step)
        else:
            pytest.fail(f"expected an error {step.get('expect_error')}, and the step succeeded")

    def check_error(self, error: OmnigraphError, step: Mapping[str, Any]) -> None:
        for text in step.get("expect_error", ()):
            assert text in str(error), f"{text!r} is not in {error!s}"
        kind = step.get("expect_error_kind")
        if kind is not None:
            assert error.code == kind.replace("_", "-"), f"{error.code}: {error}"
        for name, expected in step.get("expect_error_detail", {}).items():
            if name == "type_key":
                found = f"{error.facts['entity_kind']}:{error.facts['type_name']}"
            else:
                found = getattr(error, name, None)
            assert found == self.resolve(expected), f"{name} of {error!r}"

    # --- reading the graph through its public API ---

    def exported(self, type_key: str, branch: str = "main") -> list[dict[str, Any]]:
        kind, _, name = type_key.partition(":")
        records = [json.loads(line) for line in self.graph.export(branch=branch, types=[name])]
        field = "type" if kind == "node" else "edge"
        return [record for record in records if record.get(field) == name]

    def entity_count(self, type_key: str, branch: str) -> int:
        datasets = self.graph.snapshot(branch).datasets
        return next(d.entity_count for d in datasets if d.type_key == type_key)

    # --- the verbs ---

    def do_load(self, load: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        result = self.graph.load(
            "\n".join(load["data"]),
            mode=load["mode"],
            branch=load.get("branch", "main"),
            from_branch=load.get("from"),
            strict=False,
        )
        self.check_load(result, step)

    def do_load_strict(self, load: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        result = self.graph.load(
            load["text"], mode=load["mode"], branch=load.get("branch", "main"), strict=True
        )
        self.check_load(result, step)

    def check_load(self, result: Any, step: Mapping[str, Any]) -> None:
        expected = step.get("expect", {})
        if "nodes_loaded" in expected:
            assert dict(result.nodes) == expected["nodes_loaded"]
        if "edges_loaded" in expected:
            assert dict(result.edges) == expected["edges_loaded"]

    def do_query(self, query: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        at = query.get("at")
        result = self.graph.query(
            query["source"],
            query.get("name"),
            params=query.get("params"),
            branch=query.get("branch", "main"),
            snapshot=None if at is None else self.resolve(at),
        )
        rows = plain(result.to_pylist())
        assert result.row_count == len(rows)
        check_rows(rows, list(result.columns), step)

    def do_mutate(self, mutation: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        condition = step.get("if_graph_commit", mutation.get("if_graph_commit"))
        branch = mutation.get("branch", "main")
        result = self.graph.mutate(
            mutation["source"],
            mutation.get("name"),
            params=mutation.get("params"),
            branch=branch,
            actor=mutation.get("as"),
            if_commit=None if condition is None else self.resolve(condition),
        )
        for name, expected in step.get("expect", {}).items():
            if name == "commit_published":
                assert (result.commit is not None) is expected
            elif name.endswith("_min"):
                assert getattr(result, name.removesuffix("_min")) >= expected
            else:
                assert getattr(result, name) == expected, name
        if result.commit is not None:
            assert self.head(branch).graph_commit_id == result.commit.graph_commit_id

    def do_branch(self, branch: Mapping[str, Any], _: Mapping[str, Any]) -> None:
        if "create" in branch:
            self.graph.create_branch(branch["create"], from_branch=branch.get("from", "main"))
        else:
            # The cases are older than the look for unmerged work.
            self.graph.delete_branch(branch["delete"], force=True)

    def do_merge(self, merge: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        result = self.graph.merge(merge["source"], into=merge.get("target", "main"))
        if "outcome" in step:
            assert result.outcome == step["outcome"]

    def do_schema_apply(self, apply: Any, step: Mapping[str, Any]) -> None:
        text = apply if isinstance(apply, str) else apply["schema"]
        loss = isinstance(apply, dict) and bool(apply.get("allow_data_loss"))
        result = self.graph.apply_schema(text, allow_data_loss=loss)
        for name, expected in step.get("expect", {}).items():
            assert getattr(result, name) == expected, name

    def do_mark(self, label: str, _: Mapping[str, Any]) -> None:
        self.labels[label] = self.head("main").graph_commit_id

    def do_head_unchanged_since(self, label: str, _: Mapping[str, Any]) -> None:
        assert self.head("main").graph_commit_id == self.resolve(label)

    def do_commits_since(self, label: str, step: Mapping[str, Any]) -> None:
        ids = [commit.graph_commit_id for commit in self.graph.commits("main")]
        assert ids.index(self.resolve(label)) == step["expect"]

    def do_commit_parent(self, parent: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        commit = self.graph.commit(self.resolve(parent["commit"]))
        assert commit.parent_commit_id == self.resolve(parent.get("parent", step.get("expect")))

    def do_head_commit(self, branch: str, step: Mapping[str, Any]) -> None:
        head = self.head(branch)
        for name, expected in step.get("expect", {}).items():
            assert getattr(head, name) == self.resolve(expected), name
        if "expect_same_as" in step:
            assert head.graph_commit_id == self.resolve(step["expect_same_as"])

    def do_graph_manifest_version_delta(self, delta: int, _: Mapping[str, Any]) -> None:
        after = self.graph.snapshot(self.before_merge.graph_branch).graph_manifest_version
        assert after - self.before_merge.graph_manifest_version == delta

    def do_dataset_versions_unchanged(self, unchanged: bool, _: Mapping[str, Any]) -> None:
        after = dataset_versions(self.graph.snapshot(self.before_merge.graph_branch))
        assert (after == dataset_versions(self.before_merge)) is unchanged

    def do_count(self, count: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        branch = count.get("branch", "main")
        assert self.entity_count(count["type_key"], branch) == step["expect"]
        # The manifest's number and the rows themselves must agree.
        assert len(self.exported(count["type_key"], branch)) == step["expect"]

    def do_total_entities(self, branch: str, step: Mapping[str, Any]) -> None:
        datasets = self.graph.snapshot(branch).datasets
        assert sum(dataset.entity_count for dataset in datasets) == step["expect"]

    def ids(self, selector: Mapping[str, Any]) -> list[str]:
        records = self.exported(selector["type_key"], selector.get("branch", "main"))
        return [record["data"]["id"] for record in records]

    def do_ids(self, selector: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        assert sorted(self.ids(selector)) == sorted(step["expect"])

    def do_ids_contain(self, selector: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        assert set(step["expect"]) <= set(self.ids(selector))

    def do_edges(self, edges: Any, step: Mapping[str, Any]) -> None:
        selector = {"type_key": edges} if isinstance(edges, str) else edges
        records = self.exported(selector["type_key"], selector.get("branch", "main"))
        pairs = [[record["from"], record["to"]] for record in records]
        assert sorted(pairs) == sorted(step["expect"])

    def do_entity(self, entity: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        records = self.exported(entity["type_key"], entity.get("branch", "main"))
        found = [record for record in records if record["data"]["id"] == entity["id"]]
        if step.get("expect") is None:
            assert not found
            return
        assert len(found) == 1, f"{entity['id']} is stored {len(found)} times"
        data = found[0]["data"]
        for name, expected in step["expect"].items():
            assert same(data.get(name), expected), f"{name} is {data.get(name)!r}"

    def do_export_line(self, line: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        key = f"node:{line['type']}" if "type" in line else f"edge:{line['edge']}"
        records = self.exported(key, line.get("branch", "main"))
        assert any(has_members(record["data"], step["expect"]) for record in records), records

    def do_blob(self, blob: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        reader = self.graph.read_blob(
            blob["entity"],
            blob["type"],
            blob["id"],
            blob["property"],
            branch=blob.get("branch", "main"),
        )
        content = reader.read_range(0, reader.size)
        assert base64.b64encode(content).decode("ascii") == step["expect_base64"]

    def do_branches(self, _: bool, step: Mapping[str, Any]) -> None:
        assert set(self.graph.branches()) == set(step["expect_set"])

    def do_changes(self, changes: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        page = self.graph.commit_changes(
            self.resolve(changes["commit"]), ops=changes.get("op"), limit=changes.get("limit")
        )
        check_changes(page.changes, step)

    def do_export_reload(self, branch: str, _: Mapping[str, Any]) -> None:
        text = "\n".join(self.graph.export(branch=branch))
        schema = self.graph.schema_source(branch)
        self.graph.close()
        self.graph = Graph.init(str(self.folder / "reloaded.omni"), schema)
        self.graph.load(text, mode="overwrite")


VERBS = tuple(name.removeprefix("do_") for name in vars(World) if name.startswith("do_"))


def dataset_versions(snapshot: Any) -> dict[str, tuple[str, int]]:
    return {
        dataset.type_key: (dataset.dataset_path, dataset.published_dataset_version)
        for dataset in snapshot.datasets
    }


def check_rows(rows: list[dict[str, Any]], columns: list[str], step: Mapping[str, Any]) -> None:
    """What a query step expects of its rows."""
    if "expect_row_count" in step:
        assert len(rows) == step["expect_row_count"], rows
    if "expect_rows" in step:
        expected = step["expect_rows"]
        compare = same if step.get("ordered") else same_bag
        assert compare(rows, expected), f"found {rows}, expected {expected}"
    if "expect_column" in step:
        column = step["expect_column"]
        values = [row[column["name"]] for row in rows]
        compare = same if column.get("ordered") else same_bag
        assert compare(values, column["values"]), f"found {values}, expected {column['values']}"
    if "expect_column_contains" in step:
        column = step["expect_column_contains"]
        assert set(column["values"]) <= {row[column["name"]] for row in rows}, rows
    if "expect_column_excludes" in step:
        column = step["expect_column_excludes"]
        assert not set(column["values"]) & {row[column["name"]] for row in rows}, rows
    if "expect_pairs" in step:
        names = [columns[index] for index in step["expect_pairs"]["columns"]]
        pairs = [[row[name] for name in names] for row in rows]
        assert same_bag(pairs, step["expect_pairs"]["values"]), pairs


def image(value: Any) -> dict[str, Any] | None:
    """A before or after image as JSON: its properties and, for an edge, its endpoints."""
    if value is None:
        return None
    found: dict[str, Any] = {"properties": plain(dict(value.properties))}
    if value.endpoints is not None:
        ends = value.endpoints
        pair = ends if isinstance(ends, Mapping) else {"from": ends.src, "to": ends.dst}
        found["endpoints"] = dict(pair)
    return found


def check_changes(changes: Any, step: Mapping[str, Any]) -> None:
    """What a changes step expects: counts, kinds in order, operations, exact images."""
    if "expect_count" in step:
        assert len(changes) == step["expect_count"]
    if "expect_all_op" in step:
        assert {change.op for change in changes} == {step["expect_all_op"]}
    if "expect_kinds_order" in step:
        kinds = [change.kind for change in changes]
        assert list(dict.fromkeys(kinds)) == step["expect_kinds_order"]
        assert kinds == sorted(kinds, key=step["expect_kinds_order"].index)
    if "expect_edge_from" in step:
        edges = [
            image(change.before or change.after) for change in changes if change.kind == "edge"
        ]
        assert any(edge and edge["endpoints"]["from"] == step["expect_edge_from"] for edge in edges)
    if "expect_changes" in step:
        found = [
            {
                "kind": change.kind,
                "type": change.type_name,
                "id": change.id,
                "op": change.op,
                **{side: image(getattr(change, side)) for side in ("before", "after")},
            }
            for change in changes
        ]
        assert len(found) == len(step["expect_changes"]), found
        for one, expected in zip(found, step["expect_changes"], strict=True):
            assert has_members(one, expected), f"found {one}, expected {expected}"
