"""`omnigraph embed`: vectors for files and graphs, with the mock embedder."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from omnigraph.cli.main import entry
from omnigraph.engine.embed import MockEmbedder

SPEC = {"dimension": 4, "types": {"Doc": {"target": "vec", "fields": ["title", "pages"]}}}
RECORDS = [
    {"type": "Doc", "data": {"title": "one", "pages": 3}},
    {"type": "Doc", "data": {"title": "two", "vec": [1.0, 0.0, 0.0, 0.0]}},
    {"type": "Tag", "data": {"name": "x"}},
    {"edge": "Tagged", "from": "one", "to": "x"},
]


@pytest.fixture
def embed(tmp_path, monkeypatch, capsys):
    """Run `omnigraph embed` on the records; the answer, the records written, and stderr."""
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    source, output, spec = (tmp_path / name for name in ("in.jsonl", "out.jsonl", "spec.json"))
    source.write_text("\n".join(json.dumps(one) for one in RECORDS) + "\n")
    spec.write_text(json.dumps(SPEC))

    def run(*words, code=0):
        files = ["--input", str(source), "--output", str(output), "--spec", str(spec)]
        assert entry(["embed", *files, "--json", *words]) == code
        out, err = capsys.readouterr()
        if code:
            return None, None, err
        written = [json.loads(line) for line in output.read_text().splitlines()]
        return json.loads(out), written, err

    run.folder = tmp_path
    return run


def mock(text):
    return list(MockEmbedder().embed(text, dimension=4))


def test_missing_vectors_are_filled_and_the_rest_is_left_alone(embed):
    answer, written, _ = embed()
    assert written[0]["data"]["vec"] == pytest.approx(mock("type: Doc\ntitle: one\npages: 3"))
    assert written[1:] == RECORDS[1:]
    counts = {name: value for name, value in answer.items() if name not in ("input", "output")}
    assert counts == {
        "records": 4,
        "selected_records": 2,
        "embedded_records": 1,
        "cleaned_records": 0,
        "mode": "fill_missing",
        "dimension": 4,
        "model": "mock",
    }


@pytest.mark.parametrize(
    ("words", "mode", "embedded", "cleaned"),
    [
        (["--reembed-all"], "reembed_all", 2, 0),
        (["--clean"], "clean", 0, 1),
        (["--type", "Doc"], "reembed_selected", 2, 0),
        (["--select", "Doc:title=two"], "reembed_selected", 1, 0),
        (["--select", "Doc:pages=3"], "reembed_selected", 1, 0),
        (["--clean", "--select", "Doc:title=one"], "clean", 0, 0),
    ],
)
def test_records_can_be_chosen_and_vectors_renewed_or_removed(
    embed, words, mode, embedded, cleaned
):
    answer, _, _ = embed(*words)
    found = (answer["mode"], answer["embedded_records"], answer["cleaned_records"])
    assert found == (mode, embedded, cleaned)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--select", "Doc"], 1, "not of the form Type:field=value"),
        (["--type", "Nope"], 1, "the spec has no type 'Nope'"),
        (["--clean", "--reembed-all"], 2, "cannot be used with"),
    ],
)
def test_bad_requests_leave_no_output(embed, words, code, text):
    _, _, err = embed(*words, code=code)
    assert text in err
    assert sorted(path.name for path in embed.folder.iterdir()) == ["in.jsonl", "spec.json"]


def test_a_bad_line_is_named_and_leaves_no_output(embed):
    with (embed.folder / "in.jsonl").open("a") as out:
        out.write("{oops\n")
    _, _, err = embed(code=1)
    assert "in.jsonl:5: not a JSON value" in err
    assert not (embed.folder / "out.jsonl").exists()


def test_a_seed_manifest_names_everything_relative_to_itself(embed, capsys):
    seed = embed.folder / "seed.yaml"
    seed.write_text(
        "sources: { raw_seed: in.jsonl }\n"
        "artifacts: { embedded_seed: embedded.jsonl }\n"
        f"embeddings: {json.dumps(SPEC)}\n"
    )
    assert entry(["embed", "--seed", str(seed)]) == 0
    assert capsys.readouterr().out == "embedded 1 records (selected 2, cleaned 0)\n"
    assert len((embed.folder / "embedded.jsonl").read_text().splitlines()) == 4


def test_a_graph_gets_the_vectors_that_it_lacks(embed, capsys):
    uri, data = str(embed.folder / "g"), embed.folder / "in.jsonl"
    schema = 'node Doc { title: String @key pages: I32? vec: Vector(4)? @embed("title") }'
    with Graph.init(uri, schema, durability="process") as graph:
        graph.load([{"type": "Doc", "data": {"title": "one"}}], mode="append")
    assert entry(["embed", uri, "--type", "Doc", "-m", "vectors"]) == 0
    assert capsys.readouterr().out == "Doc.vec: 1 of 1 vectors made\n"
    data.write_text(json.dumps({"type": "Doc", "data": {"title": "two"}}))
    assert entry(["load", uri, "--data", str(data), "--mode", "append", "--embed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["vectors"] == 1
    add = "query add($t: String) { insert Doc { title: $t } }"
    assert entry(["mutate", uri, "-e", add, "-p", "t=three", "--embed"]) == 0
    (embed.folder / "more.gq").write_text(add)
    words = ["--file", str(embed.folder / "more.gq"), "--transaction", "-p", "t=four", "--embed"]
    assert entry(["mutate", uri, *words]) == 0
    with Graph.open(uri) as graph:
        found = graph.query("query q() { match { $d: Doc } return { $d.title as t, $d.vec as v } }")
        assert {row["t"]: row["v"] for row in found} == {
            name: pytest.approx(mock(name), abs=1e-6) for name in ("one", "two", "three", "four")
        }


def test_a_graph_and_a_file_are_two_things(embed):
    _, _, err = embed("--uri", "somewhere", code=2)
    assert "cannot be used with 'a graph'" in err
