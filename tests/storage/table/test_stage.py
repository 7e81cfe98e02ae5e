"""What executors may do: files that nobody sees until a driver lands their receipts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from table_bench import PLACE, SMALL, Bench, people

from omnigraph.errors import ExpectedVersionMismatchError, NotFoundError
from omnigraph.storage.table import stage, upkeep


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def bench(request):
    return Bench(request.getfixturevalue(f"{request.param}_root"))


def write(bench, *ids, **options):
    return stage.write_fragments(
        bench.folder, bench.root.storage_options, people(*ids), SMALL, **options
    )


def test_receipts_are_plain_text_that_a_driver_can_land(bench):
    bench.append("a")
    receipts = [*write(bench, "b", "c"), *write(bench, "d")]
    assert bench.ids() == ["a"]
    assert sum(stage.row_count(one) for one in receipts) == 3
    assert all(json.loads(one) for one in receipts)
    bench.land(bench.now().stage_append(receipts))
    assert bench.ids() == ["a", "b", "c", "d"]
    assert len(set(bench.now().read(columns=["_rowid"])["_rowid"].to_pylist())) == 4


def test_fragments_may_replace_all_rows(bench):
    bench.append("a")
    bench.land(bench.now().stage_overwrite(write(bench, "b")))
    assert bench.ids() == ["b"]
    bench.land(bench.now().stage_overwrite([]))
    assert bench.ids() == []


def test_no_rows_make_no_receipts_and_no_write(bench):
    assert write(bench) == []
    assert bench.now().stage_append([]) is None


def test_batches_stream_into_fragments_of_bounded_size(bench):
    batches = people(*(f"p{n}" for n in range(10))).to_batches(max_chunksize=2)
    receipts = stage.write_fragments(
        bench.folder, bench.root.storage_options, iter(batches), SMALL, fragment_rows=4
    )
    assert [stage.row_count(one) for one in receipts] == [4, 4, 2]


def test_staged_columns_can_be_read_before_they_land(bench):
    (receipt,) = write(bench, "b", "a")
    options = bench.root.storage_options
    found = stage.read_columns(bench.folder, options, receipt, ["id", "age"])
    assert found.to_pydict() == {"id": ["b", "a"], "age": [1, 1]}


def test_staged_files_can_be_taken_back(bench):
    receipts = write(bench, "a")
    options = bench.root.storage_options
    assert stage.delete_files(bench.folder, options, receipts) == 1
    assert stage.delete_files(bench.folder, options, receipts) == 0
    with pytest.raises(NotFoundError):
        stage.read_columns(bench.folder, options, receipts[0], ["id"])


def test_fragments_can_be_written_on_a_fork(bench):
    bench.append("a")
    bench.tables.fork(PLACE, source_branch=None, version=bench.version, branch_id="01FORK")
    bench.branch = "01FORK"
    bench.land(bench.now().stage_append(write(bench, "b")))
    assert bench.ids() == ["a", "b"]


def test_receipts_land_only_on_the_version_they_were_staged_on(bench):
    bench.append("a")
    staged = bench.now().stage_append(write(bench, "b"))
    bench.append("c")
    with pytest.raises(ExpectedVersionMismatchError):
        bench.tables.apply(staged)
    # The files are still there, and may be staged again on the version that won.
    again = bench.now().stage_append(write(bench, "b"))
    bench.land(again)
    assert bench.ids() == ["a", "b", "c"]


def test_compaction_tasks_run_anywhere(bench):
    bench.append("a")
    bench.append("b")
    table = bench.now()
    plan = table.plan_upkeep([])
    results = [
        upkeep.run_at(bench.folder, bench.root.storage_options, table.version, task)
        for task in plan.tasks
    ]
    bench.land(table.stage_upkeep(table.finish_upkeep(plan, results)).write)
    assert len(bench.now().fragment_ids) == 1
    assert bench.ids() == ["a", "b"]


def test_a_result_does_not_repeat_what_its_sources_said_about_their_rows(bench):
    bench.append("a")
    bench.append("b")
    table = bench.now()
    (result,) = [table.run_upkeep_task(task) for task in table.plan_upkeep([]).tasks]
    told = json.loads(result)
    assert [one["id"] for one in told["original_fragments"]] == list(table.fragment_ids)
    assert {one["row_id_meta"] for one in told["original_fragments"]} == {None}
    (made,) = told["new_fragments"]
    assert made["row_id_meta"] is not None
    assert made["last_updated_at_version_meta"] is not None


def test_writing_to_a_missing_table_leaves_nothing(local_root):
    with pytest.raises(NotFoundError):
        stage.write_fragments(f"{local_root.uri}/nodes/none", {}, people("a"), SMALL)
    assert not Path(local_root.uri).exists()
