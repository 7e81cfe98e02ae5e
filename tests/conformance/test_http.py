"""Every case of `http.jsonl`, against real servers on loopback ports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from casebook import SHARED, cases, read_cases
from serving import Reply, Served, serving

from omnigraph import Graph

# What the tests share is made once, by one worker.
pytestmark = pytest.mark.xdist_group("http-cases")

CASES = cases("http.jsonl")
FIXTURES = {"test": "test", "blob": "blob_http"}
TOKEN = "a-token-of-this-test"


def kind_of(case: Mapping[str, Any]) -> str:
    """Cases that need one kind of server share one."""
    if any("authorization" in step.get("headers", {}) for step in case["steps"]):
        return "tokens"
    return str(case["graph"])


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[dict[str, Served]]:
    """A server for each kind of case, with a graph for each case."""
    root = tmp_path_factory.mktemp("http")
    kinds: dict[str, list[dict[str, Any]]] = {}
    for case in read_cases("http.jsonl"):
        kinds.setdefault(kind_of(case), []).append(case)
    with ExitStack() as stack:
        started = {}
        for number, (kind, found) in enumerate(kinds.items()):
            folder = root / str(number)
            folder.mkdir()
            options = queries_of(found, folder)
            env = {"OMNIGRAPH_SERVER_BEARER_TOKEN": TOKEN} if kind == "tokens" else {}
            uris = [made(case, folder) for case in found]
            started[kind] = stack.enter_context(serving(uris, *options, folder=folder, env=env))
        yield started


def queries_of(found: list[dict[str, Any]], folder: Path) -> list[str]:
    stored = {name: text for one in found for name, text in one.get("stored_queries", {}).items()}
    if not stored:
        return []
    (folder / "queries").mkdir()
    for name, text in stored.items():
        (folder / "queries" / f"{name}.gq").write_text(text)
    return ["--queries", str(folder / "queries")]


def graph_id(case: Mapping[str, Any]) -> str:
    return re.sub(r"[^a-z0-9]", "-", case["name"])


def made(case: Mapping[str, Any], folder: Path) -> Path:
    fixture = SHARED / "fixtures" / FIXTURES[case["graph"]]
    path = folder / f"{graph_id(case)}.omni"
    with Graph.init(path, fixture.with_suffix(".pg").read_text(), durability="process") as graph:
        data = fixture.with_suffix(".jsonl").read_text()
        graph.load(data, mode="overwrite", strict=False)
    return path


class Story:
    """The steps of one case, and what earlier ones saved."""

    def __init__(self, served: Served, name: str) -> None:
        self.served, self.root = served, f"/graphs/{name}"
        self.saved: dict[str, Any] = {}

    def fill_in(self, value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(
                r"@(\w+)",
                lambda m: str(self.saved[m[1]]) if m[1] in self.saved else m[0],
                value,
            )
        if isinstance(value, list):
            return [self.fill_in(item) for item in value]
        if isinstance(value, dict):
            return {key: self.fill_in(item) for key, item in value.items()}
        return value

    def run(self, step: Mapping[str, Any]) -> None:
        path = self.fill_in(step["path"])
        path = path[1:] if path.startswith("//") else self.root + path
        headers = {k: v for k, v in self.fill_in(step.get("headers", {})).items() if v is not None}
        reply = self.served.ask(step["method"], path, headers=headers, **self.body(step))
        self.check(step, reply)
        for name, where in step.get("save", {}).items():
            self.saved[name] = found_at(reply, where)

    def body(self, step: Mapping[str, Any]) -> dict[str, Any]:
        if "json" in step:
            return {"json_body": self.fill_in(step["json"])}
        if "body_text" in step:
            return {"body": self.fill_in(step["body_text"]).encode()}
        if "generate" in step:
            plan = step["generate"]
            if "raw_repeat" in plan:
                return {"body": plan["raw_repeat"].encode() * plan["bytes"]}
            return {
                "json_body": {**plan["base"], plan["json_field"]: plan["repeat"] * plan["bytes"]}
            }
        return {}

    def check(self, step: Mapping[str, Any], reply: Reply) -> None:
        assert reply.status == step["expect_status"], reply
        if "expect_json" in step:
            assert fits(reply.json, self.fill_in(step["expect_json"])), reply
        for text in step.get("expect_error_contains", ()):
            assert text in reply.json["error"], reply
        for name, value in self.fill_in(step.get("expect_headers", {})).items():
            found = reply.headers[name]
            if value == "<quoted>":
                assert re.fullmatch(r'"[^"]+"', found), reply
            elif value == "<string>":
                assert found, reply
            else:
                assert found == value, reply
        for name in step.get("expect_headers_absent", ()):
            assert name not in reply.headers, reply
        if "expect_body" in step:
            assert reply.body.decode() == step["expect_body"]
        if step.get("expect_body_empty"):
            assert reply.body == b""
        for name, count in step.get("expect_length", {}).items():
            label, _, more = count.removeprefix("@").partition("+")
            assert len(reply.json[name]) == self.saved[label] + int(more or 0), reply


def found_at(reply: Reply, where: str) -> Any:
    if where.startswith("header:"):
        return reply.headers[where.removeprefix("header:")]
    value = reply.json
    for part in where.split("."):
        value = len(value) if part == "length" else value[part]
    return value


def fits(found: Any, expected: Any) -> bool:
    """Objects by the listed keys, lists as subsets, the rest by value."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            key in found and fits(found[key], value) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(found, list) and all(
            any(fits(one, item) for one in found) for item in expected
        )
    return bool(found == expected)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES)
def test_http(case, servers):
    story = Story(servers[kind_of(case)], graph_id(case))
    for step in case["steps"]:
        story.run(step)
