"""What a load wrote and did not land goes away with it; what landed never does."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyarrow import parquet
from test_twins import BASE, SCHEMA
from twins import Twins, bulk_load, content, edge, ndjson, node

from omnigraph import Graph, Source
from omnigraph.engine.load import stage
from omnigraph.engine.load.order import checked_order
from omnigraph.engine.load.run import run_load
from omnigraph.engine.load.stage import Written
from omnigraph.engine.runner import Inline
from omnigraph.errors import InputError, StorageUnavailableError
from omnigraph.model.ports import World
from omnigraph.pipeline.datasource import OmnigraphSource


def files(uri):
    """Data files of tables, and whatever lies in the staging folder."""
    return sorted(
        str(path.relative_to(uri))
        for path in uri.rglob("*")
        if path.is_file()
        and (path.match("*/data/*.lance") or "__staging" in path.parts)
        and "__manifest" not in path.parts
    )


@pytest.fixture
def twins(tmp_path):
    twins = Twins(tmp_path, SCHEMA)
    twins.load(BASE, "overwrite")
    return twins


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(("processors", "most"), [(1, 40_000), (4, 10_000)])
def test_long_rows_of_tasks_side_by_side_share_one_memory(tmp_path, monkeypatch, processors, most):
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    monkeypatch.setattr(stage, "STAGE_FLUSH_BYTES", 40_000)
    monkeypatch.setattr("omnigraph.engine.load.inputs.tables.SPLIT_CHUNK_BYTES", 4_000)
    sizes, real = [], stage.write_fragments

    def written(folder, options, rows, schema):
        sizes.append(rows.nbytes)
        return real(folder, options, rows, schema)

    monkeypatch.setattr(stage, "write_fragments", written)
    sources = []
    for number in range(4):
        texts = pa.table({"text": [f"{number} {i} ".ljust(1_000, "x") for i in range(100)]})
        parquet.write_table(texts, path := tmp_path / f"{number}.parquet", use_dictionary=False)
        sources.append(Source.parquet(str(path), columns={"text": "text"}))
    uri = str(tmp_path / "graph")
    Graph.init(uri, "node Note { text: String }", durability="process").close()
    facts = {"uri": uri, "sources": {"Note": sources}, "mode": "append", "idempotency_key": None}
    world = World(durability="process")
    report = run_load(Inline(held_bytes=1), checked_order(**facts), listener=None, world=world)
    assert report.nodes == {"Note": 400}
    assert most / 2 < max(sizes) < most * 3 / 2


def test_a_task_that_refuses_its_input_takes_the_others_with_it(tmp_path, twins):
    before = files(tmp_path / "bulk")
    good = write_lines(tmp_path / "1.json", [{"name": f"p{i}"} for i in range(50)])
    bad = write_lines(tmp_path / "2.json", [{"name": "x", "unknown": 1}])
    with pytest.raises(InputError, match="unknown column 'unknown'"):
        bulk_load(twins.bulk_uri, {"Person": Source.json([good, bad])}, mode="append")
    assert files(tmp_path / "bulk") == before


@pytest.mark.parametrize("processors", [1, 4])
def test_a_task_that_dies_half_way_leaves_nothing(tmp_path, twins, monkeypatch, processors):
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    monkeypatch.setattr("omnigraph.engine.load.stage.STAGE_FLUSH_BYTES", 1)
    before = files(tmp_path / "bulk")
    writes = []

    def failing(*args):
        writes.append(1)
        if len(writes) == 3:
            raise StorageUnavailableError("the store went away")
        return real(*args)

    real = stage.write_fragments
    monkeypatch.setattr(stage, "write_fragments", failing)
    path = twins.write(ndjson([*(node("Note", text=str(i)) for i in range(9))]))
    monkeypatch.setattr(
        "omnigraph.engine.load.inputs.sources.plan_splits.__kwdefaults__", {"split_bytes": 99}
    )
    with pytest.raises(StorageUnavailableError):
        bulk_load(twins.bulk_uri, str(path), mode="append")
    assert len(writes) == 3 or processors > 1  # others may be under way
    assert files(tmp_path / "bulk") == before


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize("step", ["stage", "check", "rewrite", "merge"])
def test_a_step_that_fails_as_a_whole_leaves_nothing(tmp_path, twins, monkeypatch, mode, step):
    """As when Spark gives a job up: the tasks have run, and no answer comes home."""
    before = files(tmp_path / "bulk")
    failed = []

    def lossy(runner, tasks, function, *, stage):
        answers = real(runner, tasks, function, stage=stage)
        if stage == step and tasks:
            failed.append(step)
            raise StorageUnavailableError("the cluster went away")
        return answers

    real = Inline.run
    monkeypatch.setattr(Inline, "run", lossy)
    lines = [
        node("Person", name="a", age=7),
        node("Person", name="new"),
        node("Note", id="n1", text="1"),
        node("Note", id="n1", text="2"),
        node("Company", name="X"),
        node("Company", name="Y"),
        edge("Knows", "new", "new"),
    ]
    path = twins.write(ndjson(lines))
    try:
        bulk_load(twins.bulk_uri, str(path), mode=mode)
    except Exception:  # noqa: BLE001  (whatever it was, nothing may be left)
        assert files(tmp_path / "bulk") == before
    else:
        assert not failed


def test_attempts_that_ran_twice_are_removed_when_the_load_has_landed(tmp_path, twins, monkeypatch):
    """As with a speculative task: both attempts write, one answer counts."""

    def twice(runner, tasks, function, *, stage):
        if stage in ("stage", "rewrite", "merge"):
            real(runner, tasks, function, stage=stage)
        return real(runner, tasks, function, stage=stage)

    real = Inline.run
    monkeypatch.setattr(Inline, "run", twice)
    lines = [
        node("Person", name="a", age=7),
        node("Person", name="a", age=8),
        node("Person", name="new"),
        edge("Knows", "new", "new"),
    ]
    before = files(tmp_path / "bulk")
    twins.load(lines, "merge")
    mine, theirs = twins.contents()
    assert theirs == mine
    added = set(files(tmp_path / "bulk")) - set(before)
    assert len(added) == 2  # one file of persons, one of edges
    with Graph.open(twins.bulk_uri) as graph:
        graph.optimize()
        assert content(graph) == mine


def test_a_data_source_writer_that_is_aborted_leaves_nothing(tmp_path, twins):
    before = files(tmp_path / "bulk")
    source = OmnigraphSource({"path": twins.bulk_uri, "type": "Company"})
    writer = source.writer(source.schema(), overwrite=False)
    table = OmnigraphSource({"path": twins.bulk_uri, "type": "Company"})
    reader = table.reader(table.schema())
    rows = [batch for piece in reader.partitions() for batch in reader.read(piece)]
    writer.write(iter(rows))
    assert files(tmp_path / "bulk") != before
    writer.abort([])
    assert files(tmp_path / "bulk") == before


def test_a_file_that_is_used_is_never_swept(tmp_path, twins):
    source = OmnigraphSource({"path": twins.bulk_uri, "type": "Company"})
    writer = source.writer(source.schema(), overwrite=False)
    reader = source.reader(source.schema())
    rows = [batch for piece in reader.partitions() for batch in reader.read(piece)]
    (part,) = writer.write(iter(rows)).answer.parts
    written = Written(folder=writer._job.graph.folder(part.entry), receipts=part.receipts)
    staged = [name for name in files(tmp_path / "bulk") if name.endswith(".lance")]
    notes = writer._job.notes
    assert notes.sweep([written], named=(), used=[written]) == 0
    assert [name for name in files(tmp_path / "bulk") if name.endswith(".lance")] == staged
    assert notes.sweep([], named=part.notes, used=()) == 0  # it was not asked for
    assert notes.sweep([], named=(), used=()) == 1
