"""Streams into the graph: known by their checkpoint's query id, every batch once."""

from __future__ import annotations

import json
import shutil

import pytest
from pyspark.errors import StreamingQueryException
from twins import ndjson, node

from omnigraph import Graph, pipeline
from omnigraph.errors import InputError, StorageUnavailableError
from omnigraph.pipeline import streams
from omnigraph.storage.commit import prepared

pytestmark = pytest.mark.spark


class Feed:
    """A graph, a folder into which files are put, and a stream from one to the other."""

    def __init__(self, spark, folder):
        self.spark = spark
        self.uri = str(folder / "graph")
        self.incoming, self.checkpoint = folder / "incoming", folder / "check[point] {1}"
        self.incoming.mkdir()
        Graph.init(self.uri, "node P { k: String @key }", durability="process").close()

    def put(self, name, *keys):
        hidden = self.incoming / f".{name}"
        hidden.write_text(ndjson([node("P", k=key) for key in keys]))
        hidden.rename(self.incoming / f"{name}.jsonl")

    def start(self, **options):
        return pipeline.stream(
            self.spark,
            self.uri,
            self.incoming,
            mode="append",
            checkpoint=self.checkpoint,
            trigger={"availableNow": True},
            files_per_batch=1,
            **options,
        )

    def run(self, **options):
        query = self.start(**options)
        query.awaitTermination()
        return str(query.id)

    def forget(self, batch):
        """As if Spark had died between the graph's commit and its own."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def keys(self):
        with Graph.open(self.uri) as graph:
            return sorted(json.loads(line)["data"]["k"] for line in graph.export())

    def batches(self):
        with Graph.open(self.uri) as graph:
            commits = [commit.properties for commit in reversed(graph.commits())]
        return [(one["stream"], one["stream_batch"]) for one in commits if "stream" in one]


@pytest.fixture
def feed(spark, tmp_path):
    return Feed(spark, tmp_path)


def test_a_stream_is_known_by_the_id_in_its_checkpoint(feed):
    feed.put("1", "a")
    first = feed.run(name="for people")
    feed.put("2", "b")
    assert feed.run() == first
    feed.forget(1)
    assert feed.run() == first
    assert feed.batches() == [(first, "0"), (first, "1")]
    # The same path, another query: its batch 0 is no batch that the branch has seen.
    shutil.rmtree(feed.checkpoint)
    for file in feed.incoming.iterdir():
        file.unlink()
    feed.put("3", "c", "d")
    second = feed.run(name="for people")
    assert second != first
    assert feed.batches() == [(first, "0"), (first, "1"), (second, "0")]
    assert feed.keys() == ["a", "b", "c", "d"]


def test_a_batch_is_known_however_many_commits_have_followed_it(feed, monkeypatch):
    monkeypatch.setattr(prepared, "IDEMPOTENCY_COMMITS_MAX", 2)
    feed.put("1", "a")
    feed.run()
    feed.forget(0)
    with Graph.open(feed.uri) as graph:
        for number in range(4):
            line = ndjson([node("P", k=f"other{number}")])
            graph.load(line, mode="append")
    feed.run()
    assert [batch for _, batch in feed.batches()] == ["0"]


def test_the_checkpoint_is_read_the_same_with_and_without_a_jvm(feed, monkeypatch):
    feed.put("1", "a")
    query_id = feed.run()
    checkpoint = streams.Checkpoint(spark=feed.spark, address=str(feed.checkpoint))
    direct = checkpoint.query_id(), checkpoint.offsets(0)
    assert direct[0] == query_id
    with pytest.raises(StorageUnavailableError, match="offsets/7"):
        checkpoint.offsets(7)
    monkeypatch.setattr(streams, "is_classic", lambda spark: False)
    assert (checkpoint.query_id(), checkpoint.offsets(0)) == direct
    with pytest.raises(StorageUnavailableError, match="offsets/7"):
        checkpoint.offsets(7)


def test_a_checkpoint_that_went_back_is_refused_where_it_parts_from_the_branch(feed, tmp_path):
    feed.put("1", "a")
    feed.run()
    shutil.copytree(feed.checkpoint, tmp_path / "copy")
    feed.put("2", "b")
    feed.run()
    shutil.rmtree(feed.checkpoint)
    shutil.copytree(tmp_path / "copy", feed.checkpoint)
    (feed.incoming / "2.jsonl").unlink()
    feed.put("3", "c")  # Spark plans another batch 1 than the one that the branch has
    query = feed.start()
    with pytest.raises(StreamingQueryException, match="belongs to another request"):
        query.awaitTermination()
    assert feed.keys() == ["a", "b"]


def former_commit_batch(plan, batch, frame):
    """What the first release did: the stream's name is its checkpoint's path; there is no key."""
    order = plan.order.of_batch(
        None, None, {"stream": plan.name or plan.checkpoint, "stream_batch": str(batch.number)}
    )
    stage = streams.partial(streams.take_in_lines, frame, keep_all=False, mode=order.mode)
    streams.load_on(frame.sparkSession, order, world=streams.World(), stage_input=stage)


@pytest.mark.parametrize("name", [None, "feed"])
def test_a_stream_of_the_first_release_goes_on(feed, monkeypatch, name):
    monkeypatch.setattr(streams, "commit_batch", former_commit_batch)
    feed.put("1", "a")
    feed.put("2", "b")
    feed.run(name=name)
    monkeypatch.undo()
    feed.forget(1)
    feed.put("3", "c")
    query_id = feed.run(name=name)
    assert feed.keys() == ["a", "b", "c"]
    former = name or str(feed.checkpoint)
    assert feed.batches() == [(former, "0"), (former, "1"), (query_id, "2")]
    # And a new checkpoint at the old place is no longer taken for it.
    shutil.rmtree(feed.checkpoint)
    for file in feed.incoming.iterdir():
        file.unlink()
    feed.put("4", "d")
    feed.run(name=name)
    assert feed.keys() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("rows", [5, None])
def test_a_stream_of_a_type_needs_a_streaming_frame(spark, rows):
    rows = spark.range(3) if rows is None else rows
    with pytest.raises(InputError, match="needs a streaming DataFrame"):
        pipeline.stream(spark, "g", {"Person": rows}, mode="append", checkpoint="c")
