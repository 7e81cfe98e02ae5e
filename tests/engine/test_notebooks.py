"""What a notebook shows of a graph, and a result as a networkx graph."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor

import polars as pl
import pytest

from omnigraph import Graph, OpenMode
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.results.rows import ends_of

SCHEMA = """
node Stop { name: String @key  zone: I32? }
edge Line: Stop -> Stop { minutes: I32? }
"""
NASTY = "<b>&\"'</b>"
DATA = """
{"type":"Stop","data":{"name":"Zoo","zone":1}}
{"type":"Stop","data":{"name":"Port","zone":2}}
{"type":"Stop","data":{"name":"<b>&\\"'</b>"}}
{"edge":"Line","from":"Zoo","to":"Port","data":{"minutes":4}}
{"edge":"Line","from":"Port","to":"<b>&\\"'</b>","data":{"minutes":9}}
"""
LINES = """query lines() {
    match { $a: Stop  $a $l:line $b }
    return { $a.name, $b.name, $l.minutes, $b.zone }
    order { $a.name }
}"""
STOPS = "query stops() { match { $a: Stop } return { $a.name, $a.zone } }"
ENDS = "query ends() { match { $a: Stop  $a $l:line $b } return { $l.dst, $l.src, $l.minutes } }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("notebook") / "tram.omni")
    with Graph.init(uri, SCHEMA) as graph:
        graph.load(DATA, mode="append")
        yield graph


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["a.name", "b.name"], ("a.name", "b.name")),
        (["n", "a.name", "b.age", "b.name"], ("a.name", "b.name")),
        (["src", "dst"], ("src", "dst")),
        (["to", "weight", "from"], ("from", "to")),
        (["w.dst", "w.src"], ("w.src", "w.dst")),
        (["a.name", "b.name", "source", "target"], ("source", "target")),
        (["v.src", "w.dst"], None),
        (["a.name", "a.age"], None),
        (["a.name", "b.age"], None),
        (["a", "b"], None),
        ([], None),
    ],
)
def test_the_ends_of_an_edge_are_read_off_the_column_names(columns, expected):
    found = ends_of(columns)
    assert found == expected


def test_a_result_of_edges_shows_a_table_and_a_drawing(graph):
    shown = graph.query(LINES)._repr_html_()
    assert "2 rows at commit" in shown
    assert shown.count("<circle") == 3
    assert NASTY not in shown
    assert "&lt;b&gt;" in shown
    assert "http" not in shown.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_a_result_that_is_no_graph_shows_a_table_only(graph):
    shown = graph.query(STOPS)._repr_html_()
    assert "<svg" not in shown
    assert shown.count("<tr>") == 4


def test_a_long_result_shows_its_first_rows_and_says_so(tmp_path):
    lines = [f'{{"type":"Stop","data":{{"name":"s{n:05}"}}}}' for n in range(5000)]
    with Graph.init(str(tmp_path / "long.omni"), SCHEMA) as graph:
        graph.load(lines, mode="append")
        shown = graph.query(STOPS)._repr_html_()
    assert "5,000 rows" in shown
    assert "… and 4,950 more" in shown


def test_a_snapshot_a_difference_and_a_preview_show_themselves(graph):
    graph.create_branch("later")
    rename = 'query q() { update Stop set { zone: 7 } where name = "Zoo" }'
    graph.mutate(rename, branch="later")
    snapshot = graph.snapshot()._repr_html_()
    assert "Stop" in snapshot
    assert graph.snapshot().graph_commit_id in snapshot
    change = graph.diff("main", "later")._repr_html_()
    assert "1 update" in change
    assert "{&quot;zone&quot;: 1}" in change
    assert "{&quot;zone&quot;: 7}" in change
    preview = graph.merge_preview("later")._repr_html_()
    assert "merge of later into main: fast_forward" in preview
    assert "node:Stop" in preview
    graph.mutate('query q() { update Stop set { zone: 8 } where name = "Zoo" }')
    conflict = graph.merge_preview("later")._repr_html_()
    assert "divergent_update" in conflict
    graph.delete_branch("later", force=True)


def test_a_result_becomes_a_networkx_graph_with_its_attributes(graph):
    pytest.importorskip("networkx")
    network = graph.query(LINES).to_networkx()
    assert sorted(network.nodes) == sorted(["Zoo", "Port", NASTY])
    assert network.nodes["Port"] == {"zone": 2}
    assert network.get_edge_data("Zoo", "Port")[0] == {"minutes": 4}
    by_ends = graph.query(ENDS).to_networkx()
    assert by_ends.get_edge_data("Port", NASTY)[0] == {"minutes": 9}
    turned = graph.query(LINES).to_networkx(source="b.name", target="a.name")
    assert turned.has_edge("Port", "Zoo")


@pytest.mark.parametrize(
    ("query", "ends", "words"),
    [
        (STOPS, {}, "do not say which two"),
        (LINES, {"source": "a.name"}, "go together"),
        (LINES, {"source": "a.name", "target": "nowhere"}, "there is no column 'nowhere'"),
    ],
)
def test_ends_that_cannot_be_are_refused(graph, query, ends, words):
    with pytest.raises(InputError, match=words):
        graph.query(query).to_networkx(**ends)


def test_without_networkx_the_error_says_what_to_install(graph, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(InputError) as found:
        graph.query(LINES).to_networkx()
    assert "omnigraph[networkx]" in found.value.hint


def test_a_graph_its_commits_its_health_and_its_plans_show_themselves(graph):
    assert "<svg" in graph._repr_html_()
    assert "Stop" in graph._repr_html_()
    assert "<svg" in graph.commits()._repr_html_()
    assert "healthy" in graph.health()._repr_html_()
    plan = graph.plan_schema(f"{SCHEMA} node More {{ name: String @key }}")
    assert "1 steps, supported" in plan._repr_html_()
    explained = graph.explain(LINES)
    assert "<svg" in explained._repr_html_()
    assert explained.to_svg() == explained.to_svg()


def test_a_new_graph_is_healthy(tmp_path):
    with Graph.init(tmp_path / "new.omni", SCHEMA) as graph:
        assert graph.health().healthy
        graph.load(DATA, mode="append")
        assert graph.health().advice == ()


# --- other processes and asyncio ------------------------------------------------------------------


def count_stops(graph: Graph) -> int:
    return graph.query(STOPS).row_count


def test_a_pickled_graph_is_opened_anew_where_it_arrives(graph):
    again = pickle.loads(pickle.dumps(graph))
    assert again is not graph
    assert again.uri == graph.uri
    assert count_stops(again) == 3
    again.close()
    with pytest.raises(InputError, match="closed"):
        pickle.dumps(again)


def test_how_a_graph_was_opened_travels_with_it(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process", maintenance=None):
        pass
    with Graph.open(tmp_path / "g.omni", OpenMode.READ_ONLY, cache_bytes=2**30) as graph:
        again = pickle.loads(pickle.dumps(graph))
        assert again.__reduce__() == graph.__reduce__()
        with pytest.raises(OmnigraphError):
            again.load(DATA, mode="append")


def test_processes_of_a_pool_are_handed_the_graph(graph):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(Graph.query, graph, STOPS).result().row_count == 3


def test_questions_and_changes_run_side_by_side_under_asyncio(tmp_path):
    async def work(graph: Graph) -> list[int]:
        writes = [
            asyncio.to_thread(graph.load, {"Stop": [{"name": f"s{n}"}]}, mode="append")
            for n in range(4)
        ]
        reads = [asyncio.to_thread(graph.query, STOPS) for _ in range(4)]
        await asyncio.gather(*writes, *reads)
        return [(await asyncio.to_thread(graph.query, STOPS)).row_count]

    with Graph.init(tmp_path / "a.omni", SCHEMA, durability="process") as graph:
        assert asyncio.run(work(graph)) == [4]


def test_polars_reads_the_memory_of_a_result(graph):
    table = graph.query(STOPS).to_arrow()
    frame = pl.from_arrow(table)
    for name in ("a.zone",):
        ours = table.column(name).chunk(0).buffers()[1].address
        theirs = frame[name].to_arrow().buffers()[1].address
        assert ours == theirs
    assert graph.query(STOPS).to_polars().shape == (3, 2)


def test_what_a_write_did_is_shown_in_words(tmp_path):
    with Graph.init(tmp_path / "g.omni", "node Town { name: String @key }") as graph:
        loaded = graph.load({"Town": [{"name": "Ulm"}]}, mode="append")
        head = loaded.commit.graph_commit_id
        assert str(loaded) == f"append into main: Town 1; {head}"
        assert head in loaded._repr_html_()
        text = 'query add() { insert Town { name: "<Bonn>" } as $t returning { $t.name } }'
        done = graph.mutate(text)
        assert str(done) == f"add on main: 1 nodes, 0 edges; {done.commit.graph_commit_id}"
        assert "&lt;Bonn&gt;" in done._repr_html_()
