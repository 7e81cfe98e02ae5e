"""Parts of the server that need no process: paths, ranges, tags, names, admission, stored files."""

from __future__ import annotations

import pytest

from omnigraph.errors import InputError, InvalidNameError
from omnigraph.server.app import Table
from omnigraph.server.calls import Answer, compressed
from omnigraph.server.handlers.blobs import Range, is_known, matches, wanted_range
from omnigraph.server.routes import ROUTES
from omnigraph.server.settings import GraphSpec, graph_specs, split_address
from omnigraph.server.stored import StoredQueries, read_registry
from omnigraph.server.work import Admission
from omnigraph.wire.failures import RefusedError


@pytest.mark.parametrize(
    ("method", "path", "operation", "values"),
    [
        ("GET", b"/healthz", "health", {}),
        ("GET", b"/graphs/a/snapshot", "getSnapshot", {"graph_id": "a"}),
        (
            "DELETE",
            b"/graphs/a/branches/x%2Fy%20z",
            "deleteBranch",
            {"graph_id": "a", "branch": "x/y z"},
        ),
        (
            "DELETE",
            b"/graphs/a/branches/merge",
            "deleteBranch",
            {"graph_id": "a", "branch": "merge"},
        ),
        ("GET", b"/graphs/{}/snapshot", "getSnapshot", {"graph_id": "{}"}),
        ("GET", b"/graphs/GET/snapshot", "getSnapshot", {"graph_id": "GET"}),
        ("GET", b"/graphs/a/GET", None, 404),
        ("GET", b"/graphs/a/commits/%ff", None, 400),
        ("GET", b"/", None, 404),
        ("OPTIONS", b"/graphs/a/query", None, 405),
    ],
)
def test_a_path_finds_its_route(method, path, operation, values):
    table = Table(ROUTES)
    if operation is None:
        with pytest.raises(RefusedError) as refused:
            table.find(method, path)
        assert refused.value.failure.status == values
    else:
        route, found = table.find(method, path)
        assert (route.operation, found) == (operation, values)


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        ("bytes=1-4", 11, Range(1, 5)),
        ("bytes=6-", 11, Range(6, 11)),
        ("bytes=-5", 11, Range(6, 11)),
        ("bytes=-50", 11, Range(0, 11)),
        ("bytes=0-500", 11, Range(0, 11)),
        ("bytes=5-4", 11, None),
        ("bytes=0-1,3-4", 11, None),
        ("bytes=-", 11, None),
        ("bytes=a-b", 11, None),
        ("lines=1-2", 11, None),
        ("bytes=11-", 11, 416),
        ("bytes=99-100", 11, 416),
        ("bytes=-0", 11, 416),
        ("bytes=0-", 0, 416),
        ("bytes=-1", 0, 416),
    ],
)
def test_a_range_is_read_as_http_says(header, size, expected):
    if expected == 416:
        with pytest.raises(RefusedError) as refused:
            wanted_range([header], size)
        assert refused.value.failure.status == 416
        assert ("content-range", f"bytes */{size}") in refused.value.failure.headers
    else:
        assert wanted_range([header], size) == expected


def test_two_ranges_headers_are_none():
    assert wanted_range(["bytes=0-1", "bytes=2-3"], 11) is None


@pytest.mark.parametrize(
    ("header", "strong", "weak"),
    [
        ('"t"', True, True),
        ('W/"t"', False, True),
        ('"a", "t"', True, True),
        ("*", True, True),
        ('"a"', False, False),
        ("t", False, False),
        ('"a", t', False, False),
        ("", False, False),
    ],
)
def test_tags_are_compared_strongly_and_weakly(header, strong, weak):
    assert matches(header, '"t"') is strong
    assert is_known(header, '"t"') is weak


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True),
        ("br, GZIP", True),
        ("gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.0", False),
        ("x-gzip", False),
        ("", False),
    ],
)
def test_only_those_who_accept_it_get_gzip(accepted, packed):
    answer = compressed(Answer(body=b"x" * 10_000), accepted)
    assert (len(answer.body) < 10_000) is packed


@pytest.mark.parametrize(
    ("text", "graph_id", "uri"),
    [
        ("data/people.omni", "people", "data/people.omni"),
        ("s3://bucket/a/people.omni", "people", "s3://bucket/a/people.omni"),
        ("p-1=/x/my_graph.omni", "p-1", "/x/my_graph.omni"),
    ],
)
def test_a_graph_is_called_like_its_folder_or_as_it_is_told(text, graph_id, uri):
    assert GraphSpec.of(text) == GraphSpec(graph_id=graph_id, uri=uri)


@pytest.mark.parametrize("text", ["my_graph.omni", "graphs", "x" * 65, ""])
def test_what_cannot_be_a_name_is_refused(text):
    with pytest.raises(InvalidNameError):
        GraphSpec.of(text)


@pytest.mark.parametrize("words", [[], ["a.omni", "x/a.omni"], ["a.omni", "b=./a.omni"]])
def test_no_graph_twice_and_not_none(words):
    with pytest.raises(InputError):
        graph_specs(words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
        (":8080", ("127.0.0.1", 8080)),
        ("localhost", None),
        ("h:99999", None),
    ],
)
def test_an_address_is_host_and_port(text, expected):
    if expected is None:
        with pytest.raises(InputError):
            split_address(text)
    else:
        assert split_address(text) == expected


def test_an_actor_gets_back_what_its_writes_held():
    door = Admission(writes_max=2, bytes_max=100)
    with door.write("a", 60):
        with door.write("a", 40), pytest.raises(RefusedError, match="count cap 2"):
            door.write("a", 0).__enter__()
        with pytest.raises(RefusedError, match="bytes cap 100"):
            door.write("a", 41).__enter__()
        with door.write("b", 100):
            assert door.writes == 2
    assert door.writes == 0


READ = "query {}() {{ match {{ $p: Person }} return {{ $p.name }} }}"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.gq": READ.format("x"), "b.gq": READ.format("x")}, "is in"),
        ({"a.gq": "query ("}, "a.gq"),
        ({"q.yaml": "x: {file: a.gq}", "a.gq": READ.format("y")}, "has no query 'x'"),
        ({"q.yaml": "x: {file: none.gq}"}, "cannot read"),
        ({"q.yaml": "- 1"}, "no catalog of queries: Expected `object`"),
        ({"q.yaml": "x: {file: a.gq, exposed: no}", "a.gq": READ.format("x")}, "unknown field"),
        ({"q.yaml": "x: {file: a.gq, tool_name: a b}", "a.gq": READ.format("x")}, "tool name"),
        (
            {
                "q.yaml": "x: {file: a.gq, tool_name: t}\ny: {file: a.gq, tool_name: t}",
                "a.gq": READ.format("x") + READ.format("y"),
            },
            "one tool name",
        ),
    ],
)
def test_files_of_stored_queries_that_do_not_hold_together_are_refused(tmp_path, files, words):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    place = tmp_path / "q.yaml"
    with pytest.raises(InputError, match=words):
        read_registry(str(place if place.exists() else tmp_path))


def test_a_catalog_names_hides_and_renames(tmp_path):
    (tmp_path / "a.gq").write_text(READ.format("x") + READ.format("y") + READ.format("z"))
    (tmp_path / "q.yaml").write_text(
        "queries:\n  x: {file: a.gq, tool_name: find}\n  y: {file: a.gq, expose: false}\n"
    )
    found = read_registry(str(tmp_path / "q.yaml"))
    assert sorted(found.queries) == ["x", "y"]
    assert [(one.name, one.tool) for one in found.exposed] == [("x", "find")]


def test_the_files_of_a_catalog_are_watched_wherever_they_are(tmp_path):
    catalog, file = tmp_path / "q.yaml", tmp_path / "below" / "a.gq"
    catalog.write_text("queries: { a: { file: below/a.gq } }")
    file.parent.mkdir()
    file.write_text("query a() { match { $p: Person } return { $p.name } }")
    stored = StoredQueries(str(catalog), read_registry(str(catalog)))
    seen = [stored.watched]
    file.write_text("query a() { match { $p: Person } return { $p.age, $p.name } }")
    seen.append(stored.watched)
    file.unlink()
    seen.append(stored.watched)
    catalog.write_text("queries: 2026-13-45")  # no such day: YAML's library has no error for it
    seen.append(stored.watched)
    assert len(set(map(tuple, seen))) == len(seen)
    with pytest.raises(InputError, match="is not valid YAML"):
        read_registry(str(catalog))
