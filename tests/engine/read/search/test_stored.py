"""Words that are stored say the same as words that were just made, and as a loop over the texts."""

from __future__ import annotations

import json
import math
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.engine.read.search import stored
from omnigraph.engine.read.search.postings import Postings
from omnigraph.engine.read.search.stored import StoredPostings
from omnigraph.engine.read.search.text import Part, asked, bm25, close_word, matches, phrase
from omnigraph.engine.text.analysis import PLAIN, Analysis
from omnigraph.engine.text.words import COMMON, stem
from omnigraph.model.ports import World
from omnigraph.storage.derived import PAGE_BYTES, DamagedError, DerivedFile, encoded

# --- one file ----------------------------------------------------------------------------------


class Held:
    """A file in memory, read as from an object store."""

    gap_bytes_max = 0

    def __init__(self, body):
        self.body, self.size, self.read = body, len(body), 0

    def pieces(self, ranges):
        self.read += sum(stop - start for start, stop in ranges)
        return [(start, memoryview(self.body)[start:stop]) for start, stop in ranges]


def filed(texts, analysis=PLAIN):
    sections, facts = stored.made(pa.array(texts, pa.string()), analysis)
    return Held(b"".join(encoded(sections, facts)))


def opened(held):
    return DerivedFile(held, lambda: None)


ANALYSES = [PLAIN, Analysis("german"), Analysis(None, "cjk"), Analysis("english", "ngram")]
TEXT = st.none() | st.text('ab é京都ß*"+', max_size=8) | st.sampled_from(["running runs the run"])
QUERIES = ["a", "ab ba", '"a b"', "a*", "+a -b", "-a", "京", "京都", '"b 京*"', "runs", "the", ""]


@settings(max_examples=40)
@given(
    st.lists(TEXT, min_size=1, max_size=12),
    st.sets(st.integers(0, 11)),
    st.permutations(range(12)),
    st.sampled_from(ANALYSES),
)
def test_a_file_answers_like_postings_in_memory(texts, gone, order, analysis):
    positions = np.array(order[: len(texts)], np.int32)
    alive = np.array([at not in gone for at in range(len(texts))])
    told = positions.copy()
    told[~alive] = -1
    file = StoredPostings(opened(filed(texts, analysis)), told)
    from_file = [Part.of(file, alive)]
    living = pa.array([one for one, there in zip(texts, alive, strict=True) if there], pa.string())
    made = [Part.of(Postings.build(living, positions[alive].astype(np.int64), analysis))]
    assert (from_file[0].count, from_file[0].weight) == (made[0].count, made[0].weight)
    for query in QUERIES:
        for find in (
            asked(query, analysis),
            phrase(query, analysis),
            close_word(query, 1, analysis),
        ):
            told_by = [matches(parts, find, 12, all_told=False) for parts in (from_file, made)]
            assert told_by[0].found.tolist() == told_by[1].found.tolist()
            assert told_by[0].told.tolist() == told_by[1].told.tolist()
        hits = [bm25(parts, query, 12, analysis) for parts in (from_file, made)]
        assert hits[0].positions.tolist() == hits[1].positions.tolist()
        assert hits[0].scores.tolist() == hits[1].scores.tolist()


def test_words_that_no_block_begins_with_are_found_in_files_of_many_blocks():
    names = [f"w{number:05d}" for number in range(2000)]
    file = StoredPostings(opened(filed([" ".join(names), *names])), np.arange(2001, dtype=np.int32))
    assert file.names().to_pylist() == names
    for number in (0, 1, 255, 256, 257, 1999):
        found = matches([Part.of(file)], asked(f"+{names[number]}", PLAIN), 2001, all_told=True)
        assert np.flatnonzero(found.found).tolist() == [0, number + 1]
    begin = matches([Part.of(file)], asked("w0001*", PLAIN), 2001, all_told=True)
    assert np.count_nonzero(begin.found) == 11


def test_a_question_reads_what_holds_its_words_and_nothing_else():
    few = ["needle in some hay"] * 5
    read = []
    for others in (2_000, 40_000):
        held = filed([*few, *(f"hay {number % 977} straw" for number in range(others))])
        file = StoredPostings(opened(held), np.arange(others + 5, dtype=np.int32))
        before = held.read
        assert len(bm25([Part.of(file)], "needle", others + 5, PLAIN).positions) == 5
        read.append(held.read - before)
    assert max(read) <= 8 * PAGE_BYTES


def test_a_file_of_another_number_of_rows_is_damaged():
    with pytest.raises(DamagedError):
        StoredPostings(opened(filed(["a"])), np.arange(2, dtype=np.int32))


# --- a graph -----------------------------------------------------------------------------------

SCHEMA = """
node Doc { k: String @key  t: String? @index  v: Vector(2)? }
"""
ASKED = """
query bm25($q: String) {
  match { $d: Doc } return { $d.k, bm25($d.t, $q) as s } order { bm25($d.t, $q) desc } limit 40 }
query search($q: String) { match { $d: Doc  search($d.t, $q) } return { $d.k } }
query phrase($q: String) { match { $d: Doc  match_text($d.t, $q) } return { $d.k } }
query fuzzy($q: String) { match { $d: Doc  fuzzy($d.t, $q, 1) } return { $d.k } }
query rrf($q: String) {
  match { $d: Doc } return { $d.k }
  order { rrf(nearest($d.v, [1.0, 0.5]), bm25($d.t, $q)) desc } limit 5 }
query gone($k: String) { delete Doc where k = $k }
"""
ENGLISH = frozenset(COMMON.split())


def words(text):
    plain = unicodedata.normalize("NFKD", text)
    kept = "".join(
        " " if unicodedata.category(one)[0] not in "LN" else one.lower()
        for one in plain
        if unicodedata.category(one)[0] != "M"
    )
    return kept.split()


def independent_bm25(texts, query):
    """BM25 by the book, text by text; k1 1.2, b 0.75."""
    ranked = {
        key: [stem(word) for word in words(text) if word not in ENGLISH]
        for key, text in texts.items()
        if text is not None
    }
    mean = sum(map(len, ranked.values())) / len(ranked) if any(ranked.values()) else 1.0
    scores = {}
    for term in dict.fromkeys(stem(word) for word in words(query) if word not in ENGLISH):
        holding = {key: some.count(term) for key, some in ranked.items() if term in some}
        rarity = math.log(1 + (len(ranked) - len(holding) + 0.5) / (len(holding) + 0.5))
        for key, often in holding.items():
            length = 1.2 * (1 - 0.75 + 0.75 * len(ranked[key]) / mean)
            scores[key] = scores.get(key, 0.0) + rarity * often * 2.2 / (often + length)
    return scores


def edits(a, b):
    before = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        now = [i]
        for j, other in enumerate(b, 1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (one != other)))
        before = now
    return before[-1]


def expected(texts, query):
    """What every question should find, by a loop over the texts."""
    said = words(query)
    wanted = [word for word in said if word not in ENGLISH] or said
    has = {key: words(text) for key, text in texts.items() if text is not None}
    rows = {key: f" {' '.join(some)} " for key, some in has.items()}
    return {
        "bm25": independent_bm25(texts, query),
        "search": {key for key, some in has.items() if set(some) & set(wanted)},
        "phrase": {key for key, row in rows.items() if said and f" {' '.join(said)} " in row},
        "fuzzy": {
            key for key, some in has.items() if any(edits(a, b) <= 1 for a in said for b in some)
        },
    }


def answers(graph, query, branch="main", snapshot=None):
    where = {"snapshot": snapshot} if snapshot else {"branch": branch}

    def rows(name):
        return graph.query(ASKED, name, params={"q": query}, **where).to_pylist()

    scored = {row["d.k"]: row["s"] for row in rows("bm25") if row["s"] is not None}
    found = {name: {row["d.k"] for row in rows(name)} for name in ("search", "phrase", "fuzzy")}
    return {"bm25": scored, **found, "rrf": [row["d.k"] for row in rows("rrf")]}


def agree(told, texts, query):
    wanted = expected(texts, query)
    assert {k: told[k] for k in ("search", "phrase", "fuzzy")} == {
        k: wanted[k] for k in ("search", "phrase", "fuzzy")
    }
    assert told["bm25"].keys() == wanted["bm25"].keys()
    for key, score in wanted["bm25"].items():
        assert told["bm25"][key] == pytest.approx(score, rel=1e-12)


def load(graph, texts, **options):
    lines = [
        json.dumps({"type": "Doc", "data": {"k": k, "t": t, "v": [len(k), len(t or "") + 1]}})
        for k, t in texts.items()
    ]
    graph.load("\n".join(lines), mode="merge", **options)


SAID = ["red green", "the Réd fox runs", None, "green, green grass", "blue", "running foxes run"]
ASKING = ["red", "green fox", "running", "the", "grass green", "nothing"]


@pytest.mark.parametrize(("seed", "bytes_max"), [(0, 1 << 20), (1, 1 << 20), (2, 90), (3, 60)])
def test_answers_do_not_depend_on_what_is_stored(tmp_path, seed, bytes_max):
    draw = np.random.default_rng(seed)
    uri = str(tmp_path / "g.omni")
    world = World(durability="process", derived_rows_min=1, derived_bytes_max=bytes_max)
    texts = {f"d{n:02d}": SAID[draw.integers(len(SAID))] for n in range(20)}
    with Graph.init(uri, SCHEMA, world=world) as graph:
        load(graph, texts)
        old, commit = dict(texts), graph.commits()[0].graph_commit_id
        change = {f"d{draw.integers(30):02d}": SAID[draw.integers(len(SAID))] for _ in range(6)}
        load(graph, change)
        texts |= change
        graph.create_branch("side")
        for key in list(texts)[:3]:
            graph.mutate(ASKED, "gone", params={"k": key})
            del texts[key]
        side = dict(old | change) | {"d90": "green red", "d01": "blue fox"}
        load(graph, {"d90": "green red", "d01": "blue fox"}, branch="side")
        if seed % 2:
            graph.optimize()
        assert list(Path(uri, "_derived").rglob("*.words1")) or bytes_max < 1 << 20
    full = told_by_all(uri, (texts, side, old), commit)
    with Graph.open(uri, cache_bytes=0) as small:  # nothing is kept
        assert answers(small, "green fox") == full["green fox"][0]
    files = sorted(Path(uri, "_derived").rglob("*.words1*"))
    assert any(file.suffix != ".words1" for file in files) == (bytes_max < 1 << 20)
    for file in files[::2]:
        file.unlink()
    assert told_by_all(uri, (texts, side, old), commit) == full
    shutil.rmtree(Path(uri, "_derived"))
    assert told_by_all(uri, (texts, side, old), commit) == full


def told_by_all(uri, states, commit):
    """The answers of a fresh process: now, on a branch and at an old commit; each agrees with a
    loop over the texts."""
    found = {}
    with Graph.open(uri) as graph:
        for query in ASKING:
            found[query] = [
                answers(graph, query),
                answers(graph, query, branch="side"),
                answers(graph, query, snapshot=commit),
            ]
            for told, texts in zip(found[query], states, strict=True):
                agree(told, texts, query)
    return found


def test_a_damaged_file_counts_as_missing_and_is_mended(tmp_path):
    uri = str(tmp_path / "g.omni")
    texts = {f"d{n:02d}": SAID[n % len(SAID)] for n in range(20)}
    with Graph.init(uri, SCHEMA, world=World(durability="process", derived_rows_min=1)) as graph:
        load(graph, texts)
    (file,) = Path(uri, "_derived").rglob("*.words1")
    whole = file.read_bytes()
    for at in range(0, len(whole), len(whole) // 9):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with Graph.open(uri) as graph:
            for query in ("red", "green fox"):
                agree(answers(graph, query), texts, query)
    with Graph.open(uri, world=World(durability="process", derived_rows_min=1)) as graph:
        graph.optimize()
    assert file.read_bytes() == whole


def test_files_go_when_cleanup_takes_their_data(tmp_path):
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA, world=World(durability="process", derived_rows_min=1)) as graph:
        load(graph, {"a": "one"})
        graph.load('{"type":"Doc","data":{"k":"b","t":"two"}}', mode="overwrite")
        assert len(list(Path(uri, "_derived").rglob("*.words1"))) == 2
        graph.cleanup(keep_versions=1)
        assert len(list(Path(uri, "_derived").rglob("*.words1"))) == 1
        agree(answers(graph, "two"), {"b": "two"}, "two")


@pytest.mark.s3
def test_of_an_object_store_only_what_holds_the_words_is_read(s3_root):
    world = World(durability="process", derived_rows_min=1)
    spent = []
    for count in (2_000, 12_000):
        uri = f"{s3_root.uri}-{count}"
        rows = {"k": [f"d{n}" for n in range(count)]}
        rows["t"] = ["needle" if n % (count // 4) == 0 else f"hay {n % 701}" for n in range(count)]
        with Graph.init(uri, "node Doc { k: String @key  t: String? @index }", world=world) as made:
            made.load({"Doc": pa.table(rows)}, mode="append")
        with Graph.open(uri) as graph:
            tables, texts = graph._core.store.tables, ASKED.partition("query phrase")[0]
            before = tables.derived.readings.bytes
            found = graph.query(texts, "bm25", params={"q": "needle"}).to_pylist()
            spent.append(tables.derived.readings.bytes - before)
        assert len([row for row in found if row["s"]]) == 4
    assert max(spent) <= 12 * PAGE_BYTES  # of 36,000 and of 200,000
