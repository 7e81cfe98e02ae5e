"""Maintenance on the command line: what it says, and what it leaves alone."""

from __future__ import annotations

import json

import lance
import pytest

from omnigraph import Graph
from omnigraph.cli.main import entry
from omnigraph.cli.maintain import duration, size_words
from omnigraph.errors import InputError

SCHEMA = "node Person { name: String @key }\n"
COMMITS = 5


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch):
    """A graph with a few small commits, and a way to run commands on it."""
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA) as graph:
        for number in range(COMMITS):
            line = json.dumps({"type": "Person", "data": {"name": f"p{number}"}})
            graph.load(line, mode="append")

    def run(*words, code=0, human=False):
        capsys.readouterr()
        assert entry([*words, uri, *([] if human else ["--json", "--quiet"])]) == code
        out, err = capsys.readouterr()
        return (out.splitlines(), err) if human else json.loads(out)

    run.uri = uri
    return run


def test_optimize_folds_fragments_once(desk):
    [person] = [one for one in desk("optimize")["datasets"] if one["type_key"] == "node:Person"]
    assert person["committed"] is True
    assert person["fragments_added"] <= 1
    lines, err = desk("optimize", human=True)
    assert "  node type 'Person': no-op" in lines
    assert "omnigraph optimize →" in err


def test_cleanup_only_says_what_would_go_until_it_is_confirmed(desk):
    before = desk("health")["datasets"][0]["versions"]
    preview = desk("cleanup", "--keep", "3")
    assert preview["preview"] is True
    assert desk("health")["datasets"][0]["versions"] == before
    lines, err = desk("cleanup", "--keep", "3", human=True)
    assert lines[0].startswith("would remove ")
    assert "pass --confirm to do it" in err
    done = desk("cleanup", "--keep", "3", "--confirm")
    assert done["preview"] is False
    assert done["keep_versions"] == 3
    assert desk("health")["datasets"][0]["versions"] < before


def test_below_the_recovery_floor_there_is_a_warning(desk):
    _, err = desk("cleanup", "--keep", "1", "--confirm", human=True)
    assert "below the recovery floor of 3" in err


def test_repair_of_a_sound_graph_changes_nothing(desk):
    report = desk("repair", "--confirm")
    assert report["graph_manifest_version"] is None
    assert {one["action"] for one in report["datasets"]} == {"no_op"}


def test_repair_puts_back_what_somebody_else_wrote(desk):
    before = desk("export", human=True)[0]
    with Graph.open(desk.uri) as graph:
        (key, entry), *_ = sorted(graph.snapshot().entries.items())
        lance.dataset(f"{desk.uri}/{entry.dataset_path}").delete("true")
    lines, _ = desk("repair", human=True)
    assert "preview mode" in lines[0]
    assert any("suspicious, preview (Delete)" in line for line in lines)
    report = desk("repair", "--restore", "--confirm")
    assert report["restore"] is True
    (found,) = [one for one in report["datasets"] if one["type_key"] == key]
    assert found["action"] == "restored"
    assert desk("export", human=True)[0] == before


def test_health_gives_advice_and_praise(desk, monkeypatch):
    # What this little graph wants is not worth a word otherwise.
    monkeypatch.setattr("omnigraph.engine.maintain.health._WORTH_ROWS_MIN", 0)
    monkeypatch.setattr("omnigraph.engine.maintain.health._WORTH_BYTES_MIN", 0)
    lines, _ = desk("health", human=True)
    assert any(line.startswith("advice: `omnigraph optimize`") for line in lines)
    desk("optimize")
    desk("cleanup", "--keep", "1", "--confirm")
    lines, _ = desk("health", human=True)
    assert lines[-1] == "healthy"


@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_a_strange_concurrency_is_refused(desk, monkeypatch, capsys, text):
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", text)
    assert entry(["optimize", desk.uri]) == 1
    assert "OMNIGRAPH_MAINTENANCE_CONCURRENCY" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("12h", 43_200), ("7d", 604_800), ("1w", 604_800)],
)
def test_ages_are_written_with_their_unit(text, seconds):
    assert duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "1.5h", "-3d", "7 days", "9" * 30 + "w"])
def test_other_ages_are_refused(text):
    with pytest.raises(InputError):
        duration(text)


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 * 2**30, "5.0 GiB")],
)
def test_sizes_are_said_in_the_unit_that_fits(count, words):
    assert size_words(count) == words


def on_store(desk, capsys, *words, code=0):
    capsys.readouterr()
    assert entry([*words, "--store", desk.uri, "--json", "--quiet"]) == code
    out, err = capsys.readouterr()
    return json.loads(out) if code == 0 else err


def test_retention_is_set_shown_and_gone_by(desk, capsys):
    assert desk("retention", "show") == {"branches": {}, "automatic": False}
    assert "keep everything" in desk("retention", "show", human=True)[0][0]
    words = ("retention", "set", "*", "--keep", "3", "--automatic")
    on_store(desk, capsys, *words)
    stored = on_store(desk, capsys, "retention", "set", "release/*", "--older-than", "2w")
    assert stored == {
        "branches": {
            "*": {"keep_versions": 3, "older_than_secs": None},
            "release/*": {"keep_versions": None, "older_than_secs": 14 * 86_400},
        },
        "automatic": True,
    }
    lines, err = desk("cleanup", human=True)
    assert lines[0].startswith("would remove ")
    assert "go by the retention of the graph" in err
    assert desk("cleanup", "--confirm")["retention"] == stored["branches"]
    assert desk("health")["manifest_versions"] == 3
    assert "applied by upkeep, now and then" in desk("retention", "show", human=True)[0]
    on_store(desk, capsys, "retention", "remove", "*")
    left = on_store(desk, capsys, "retention", "remove", "release/*")
    assert left == desk("retention", "show") == {"branches": {}, "automatic": False}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("retention", "set", "x"), "have no bound"),
        (("retention", "set", "x", "--older-than", "soon"), "is not an age"),
        (("retention", "remove", "x"), "no retention is set for 'x'"),
    ],
)
def test_a_retention_that_makes_no_sense_is_refused(desk, capsys, words, told):
    assert told in on_store(desk, capsys, *words, code=1)
    assert desk("retention", "show")["branches"] == {}
