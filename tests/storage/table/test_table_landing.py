"""A store that fails in the middle of a commit: landed, not landed, or said to be unknown."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from table_bench import PLACE, Bench, compacted, people

from omnigraph.errors import (
    CorruptGraphError,
    ExpectedVersionMismatchError,
    NotFoundError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from omnigraph.model.ports import World
from omnigraph.storage.lance.files import version_file
from omnigraph.storage.objects.root import Root
from omnigraph.storage.table.table import Tables
from s3_server import UNREACHABLE


class Once:
    """Fails the first request of a kind and no other."""

    def __init__(self, method, part, outcome):
        self.method, self.part, self.outcome, self.left = method, part, outcome, 1

    def __call__(self, request):
        if self.left and request.method == self.method and self.part in request.path:
            self.left -= 1
            return self.outcome
        return None


class Always(Once):
    def __call__(self, request):
        self.left = 1
        return super().__call__(request)


@pytest.fixture
def stored(s3_root):
    bench = Bench(s3_root)
    bench.append("a")
    return bench


@pytest.mark.s3
@pytest.mark.parametrize("outcome", ["lost", "refused"])
@pytest.mark.parametrize("part", ["_versions", "_transactions"])
def test_one_failed_request_does_not_fail_or_double_a_commit(stored, s3_server, part, outcome):
    write = stored.now().stage_append(people("b"))
    fault = Once("PUT", part, outcome)
    with s3_server.failing(fault):
        stored.land(write)
    assert fault.left == 0
    assert stored.ids() == ["a", "b"]
    assert stored.tables.head_version(PLACE, None) == write.version_after
    (made,) = stored.tables.transactions(
        PLACE, None, after=write.pinned_version, upto=write.version_after
    )
    assert made.uuid == write.transaction_uuid


@pytest.mark.s3
def test_a_commit_whose_answers_are_all_lost_is_found_to_have_landed(stored, s3_server):
    write = stored.now().stage_append(people("b"))
    with s3_server.failing(Always("PUT", "_versions", "lost")):
        stored.land(write)
    assert stored.ids() == ["a", "b"]


@pytest.mark.s3
def test_a_commit_that_the_store_refuses_is_not_called_a_conflict(stored, s3_server):
    write = stored.now().stage_append(people("b")).for_commit("01COMMIT")
    with (
        s3_server.failing(Always("PUT", "_versions", "refused")),
        pytest.raises(OutcomeUnknownError) as raised,
    ):
        stored.tables.apply(write)
    assert raised.value.graph_commit_id == "01COMMIT"
    assert stored.ids() == ["a"]
    stored.land(write)  # it can still be landed, because it has not been
    assert stored.ids() == ["a", "b"]


@pytest.mark.s3
def test_a_lost_answer_is_not_mistaken_for_somebody_elses_commit(stored, s3_server):
    mine, other = stored.now().stage_append(people("b")), stored.now().stage_append(people("c"))
    stored.land(other)
    with (
        s3_server.failing(Once("PUT", "_versions", "lost")),
        pytest.raises(ExpectedVersionMismatchError),
    ):
        stored.tables.apply(mine)
    assert stored.ids() == ["a", "c"]


@pytest.mark.s3
def test_rows_that_cannot_be_written_are_a_typed_error(stored, s3_server):
    with (
        s3_server.failing(Always("PUT", "/data/", "refused")),
        pytest.raises(StorageUnavailableError) as raised,
    ):
        stored.now().stage_append(people("b"))
    assert PLACE in raised.value.uri
    assert stored.ids() == ["a"]


def test_tables_of_an_unreachable_bucket_fail_within_seconds():
    tables = Tables(Root.parse("s3://nowhere/graph", UNREACHABLE), World())
    started = time.monotonic()
    with pytest.raises(StorageUnavailableError) as raised:
        tables.create(PLACE, people().schema)
    assert raised.value.uri.startswith("s3://nowhere/graph")
    assert time.monotonic() - started < 30


@pytest.mark.s3
def test_a_missing_bucket_is_not_taken_for_an_empty_one(s3_root):
    tables = Tables(Root.parse("s3://no-such-bucket/graph", s3_root.environ), World())
    with pytest.raises(StorageUnavailableError):
        tables.exists(PLACE)


def test_a_table_whose_files_are_gone_is_a_typed_error(local_root):
    bench = Bench(local_root)
    bench.append("a")
    (file,) = (Path(bench.folder) / "data").iterdir()
    file.unlink()
    for read in (lambda table: table.read(), lambda table: list(table.scan())):
        with pytest.raises(CorruptGraphError) as raised:
            read(bench.now())
        assert raised.value.part == f"{PLACE}/data/{file.name}"
        assert not raised.value.retryable


def test_a_version_that_cleanup_took_is_not_damage(local_root):
    bench = Bench(local_root)
    bench.append("a")
    old = bench.now()
    bench.land(bench.now().stage_overwrite(people("b")))
    bench.tables.collect(PLACE, None, range(bench.version))
    with pytest.raises(NotFoundError):
        old.read()
    with pytest.raises(NotFoundError):
        Tables(bench.root, World()).open(old.entry)


def test_a_table_whose_versions_are_garbage_is_a_typed_error(local_root):
    bench = Bench(local_root)
    bench.append("a")
    for version in (Path(bench.folder) / "_versions").iterdir():
        version.write_bytes(b"garbage")
    with pytest.raises(CorruptGraphError) as raised:
        Tables(bench.root, World()).open(bench.entry())
    assert raised.value.part == f"{PLACE}/_versions/{version_file(bench.version)}"


def version_path(bench, version):
    return Path(bench.folder) / "_versions" / version_file(version)


TORN = {"empty": lambda body: b"", "half": lambda body: body[: len(body) // 2]}


def torn_above(local_root, torn):
    """A table whose version after the pin is torn."""
    bench = Bench(local_root)
    bench.append("a")
    bench.append("b")
    pin = bench.version
    bench.append("lost")
    path = version_path(bench, bench.version)
    path.write_bytes(TORN[torn](path.read_bytes()))
    bench.tables, bench.version = Tables(bench.root, World()), pin
    return bench, path


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_version_without_its_sidecar_is_damage_and_stays(local_root, torn):
    bench, path = torn_above(local_root, torn)
    body = path.read_bytes()
    assert bench.ids() == ["a", "b"]  # the published version is whole
    with pytest.raises(CorruptGraphError) as raised:
        bench.tables.is_head(PLACE, None, bench.version)
    assert raised.value.part == f"{PLACE}/_versions/{path.name}"
    with pytest.raises(CorruptGraphError):
        bench.land(bench.now().stage_append(people("c")))
    assert path.read_bytes() == body


@pytest.mark.parametrize("torn", TORN)
def test_a_published_version_that_is_torn_is_never_cleared(local_root, torn):
    bench, path = torn_above(local_root, torn)
    bench.tables.clear_torn(PLACE, None, above=bench.version + 1)
    assert path.exists()


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("kind", ["append", "upsert", "overwrite", "compaction", "restore"])
def test_recovery_clears_what_a_power_cut_tore_and_writes_go_on(local_root, kind, torn):
    bench, _ = torn_above(local_root, torn)
    pin = bench.version
    assert bench.tables.whole_head_version(PLACE, None) == pin
    bench.tables.clear_torn(PLACE, None, above=pin)
    assert bench.tables.head_version(PLACE, None) == pin
    assert bench.ids() == ["a", "b"]
    table = bench.now()
    match kind:
        case "append":
            bench.land(table.stage_append(people("c")))
        case "upsert":
            bench.land(table.stage_change(people("a", "c", age=2)))
        case "overwrite":
            bench.land(table.stage_overwrite(people("a", "b", "c")))
        case "compaction":
            bench.land(compacted(table))
            bench.append("c")
        case _:
            bench.version = bench.tables.restore(PLACE, None, pin, commit_id="01BACK")
            bench.append("c")
    assert bench.ids() == ["a", "b", "c"]
    assert bench.tables.head_version(PLACE, None) == bench.version


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_transaction_is_told_as_unreadable(local_root, torn):
    bench = Bench(local_root)
    bench.append("a")
    (path,) = (Path(bench.folder) / "_transactions").glob(f"{bench.version - 1}-*.txn")
    path.write_bytes(TORN[torn](path.read_bytes()))
    tables = Tables(bench.root, World())
    (made,) = tables.transactions(PLACE, None, after=bench.version - 1, upto=bench.version)
    assert made.operation in ("Unreadable", "Overwrite")  # Lance may keep a copy in the version
    assert tables.open(bench.entry()).count() == 1


@pytest.mark.s3
def test_requests_of_a_commit_do_not_grow_with_the_history(s3_root, request_counter):
    bench = Bench(s3_root)

    def cost():
        with request_counter.counted() as seen:
            bench.append(f"p{bench.version}")
        return seen.by_verb()

    for _ in range(5):
        bench.append(f"p{bench.version}")
    early = cost()
    for _ in range(30):
        bench.append(f"p{bench.version}")
    assert cost() == early
    assert sum(early.values()) <= 5  # rows, a look for others, transaction, version, hint


@pytest.mark.s3
def test_a_known_version_is_opened_without_asking_the_store(s3_root, request_counter):
    bench = Bench(s3_root)
    bench.append("a")
    with request_counter.counted() as seen:
        assert bench.now().count() == 1
    assert seen.count == 0
