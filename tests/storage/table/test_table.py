"""Tables: what is staged is invisible, what is applied is strict, what is read is one version."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest
from table_bench import PLACE, Bench, delete_where

from omnigraph.errors import (
    AlreadyExistsError,
    CorruptGraphError,
    ExpectedVersionMismatchError,
    NotFoundError,
)
from omnigraph.model.ports import World
from omnigraph.storage.lance import digests
from omnigraph.storage.lance.columns import PRIMARY_KEY
from omnigraph.storage.objects.root import Root
from omnigraph.storage.table.read import Order
from omnigraph.storage.table.table import Tables

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("age", pa.int64()),
        pa.field("bio", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("at", pa.timestamp("ms", tz="UTC")),
        pa.field("spot", pa.list_(pa.float32(), 2)),
        lance.blob_field("photo"),
    ]
)


def rows(*ids, age=1):
    return pa.table(
        [
            pa.array(list(ids), pa.string()),
            pa.array([age] * len(ids), pa.int64()),
            pa.array([f"the story of {one}" for one in ids], pa.string()),
            pa.array([[one, "all"] for one in ids], pa.list_(pa.string())),
            pa.array([1_700_000_000_000] * len(ids), pa.timestamp("ms", tz="UTC")),
            pa.array([[float(len(one)), 1.0] for one in ids], pa.list_(pa.float32(), 2)),
            lance.blob_array([one.encode() for one in ids]),
        ],
        schema=SCHEMA,
    )


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def bench(request):
    return Bench(request.getfixturevalue(f"{request.param}_root"), world=World(), schema=SCHEMA)


@pytest.fixture
def local(local_root):
    return Bench(local_root, schema=SCHEMA)


# --- create ---


def test_create_makes_an_empty_table_with_the_house_settings(bench):
    table = bench.now()
    assert table.count() == 0
    assert table.schema.field("id").metadata == PRIMARY_KEY
    dataset = lance.dataset(
        bench.tables.uri(PLACE, None),
        storage_options=bench.tables.root.storage_options or None,
    )
    assert dataset.has_stable_row_ids
    assert dataset.data_storage_version == "2.2"


def test_create_over_a_table_changes_nothing(bench):
    bench.land(bench.now().stage_append(rows("a")))
    with pytest.raises(AlreadyExistsError):
        bench.tables.create(PLACE, SCHEMA)
    assert bench.ids() == ["a"]


@pytest.mark.parametrize("round_", range(5))
def test_racing_creates_have_one_winner(local_root, round_):
    tables = Tables(Root.parse(local_root.uri, {}), World(durability="process"))
    outcomes, gate = [], threading.Barrier(6)

    def run():
        gate.wait()
        try:
            outcomes.append(tables.create(PLACE, SCHEMA))
        except AlreadyExistsError:
            outcomes.append(None)

    in_threads(run, 6)
    assert [one for one in outcomes if one is not None] == [1]
    assert tables.head_version(PLACE, None) == 1


# --- staging and applying ---

WRITES = {
    "append": lambda table: table.stage_append(rows("new")),
    "upsert": lambda table: table.stage_change(rows("a", "new", age=9)),
    "overwrite": lambda table: table.stage_overwrite(rows("only")),
    "overwrite with nothing": lambda table: table.stage_overwrite(rows()),
    "delete by id": lambda table: table.stage_delete_ids(["a"]),
    "delete by condition": lambda table: delete_where(table, "id >= 'b'"),
    "delete all": lambda table: delete_where(table, "true"),
}
AFTER = {
    "append": ["a", "b", "c", "new"],
    "upsert": ["a", "b", "c", "new"],
    "overwrite": ["only"],
    "overwrite with nothing": [],
    "delete by id": ["b", "c"],
    "delete by condition": ["a"],
    "delete all": [],
}


@pytest.mark.parametrize("kind", WRITES)
def test_a_staged_write_is_invisible_until_it_is_applied(bench, kind):
    bench.land(bench.now().stage_append(rows("a", "b", "c")))
    write = WRITES[kind](bench.now())
    assert bench.tables.head_version(PLACE, None) == bench.version
    assert bench.ids() == ["a", "b", "c"]
    update = bench.land(write.for_commit("01COMMIT"))
    assert update.version == write.pinned_version + 1 == write.version_after
    assert bench.ids() == AFTER[kind]
    (made,) = bench.tables.transactions(
        PLACE, None, after=write.pinned_version, upto=update.version
    )
    assert made.uuid == write.transaction_uuid
    assert made.properties["omnigraph.commit"] == "01COMMIT"
    # On local disk the digests of its files travel with it, and nothing else.
    assert made.properties.keys() <= {"omnigraph.commit", digests.PROPERTY}


@pytest.mark.parametrize("second", WRITES)
@pytest.mark.parametrize("first", WRITES)
def test_of_two_writes_on_one_version_only_one_lands(local, first, second):
    local.land(local.now().stage_append(rows("a", "b")))
    local.land(local.now().stage_append(rows("c")))  # a second fragment
    table = local.now()
    writes = [WRITES[first](table), WRITES[second](table)]
    local.land(writes[0])
    with pytest.raises(ExpectedVersionMismatchError) as raised:
        local.tables.apply(writes[1])
    assert (raised.value.table_key, raised.value.expected) == ("node:Person", table.version)
    assert raised.value.actual == table.version + 1
    assert local.ids() == AFTER[first]
    assert local.tables.head_version(PLACE, None) == local.version


@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_of_two_first_writes_on_an_empty_table_only_one_lands(local, kind):
    table = local.now()
    writes = [WRITES[kind](table), WRITES[kind](table)]
    local.land(writes[0])
    with pytest.raises(ExpectedVersionMismatchError):
        local.tables.apply(writes[1])


@pytest.mark.parametrize("kind", ["append", "upsert", "delete by id", "overwrite"])
def test_racing_applies_have_one_winner(local, kind):
    local.land(local.now().stage_append(rows("a", "b", "c")))
    for _ in range(5):
        if "a" not in local.ids():
            local.land(local.now().stage_append(rows("a")))
        writes = [WRITES[kind](local.now()) for _ in range(6)]
        outcomes, gate = [], threading.Barrier(6)

        def run(writes=writes, outcomes=outcomes, gate=gate):
            write = writes.pop()
            gate.wait()
            try:
                outcomes.append(local.tables.apply(write).version)
            except ExpectedVersionMismatchError:
                outcomes.append(None)

        in_threads(run, 6)
        assert [one for one in outcomes if one] == [local.version + 1]
        local.version += 1


def test_writes_that_change_nothing_are_none(local):
    local.land(local.now().stage_append(rows("a")))
    table = local.now()
    assert table.stage_append(rows()) is None
    assert table.stage_change(rows()) is None
    assert table.stage_delete_ids([]) is None
    assert table.stage_delete_ids(["nobody"]) is None


def test_an_upsert_keeps_row_ids_and_all_kinds_of_columns(bench):
    bench.land(bench.now().stage_append(rows("a", "b", "c")))
    before = row_ids(bench.now())
    write = bench.now().stage_change(rows("d", "b", age=7))
    assert write.row_count_after == 4
    bench.land(write)
    after = row_ids(bench.now())
    assert {one: after[one] for one in before} == before
    assert after["d"] not in before.values()
    changed = bench.now().read(where="id = 'b'", blobs="bytes").to_pylist()
    assert changed == rows_as_bytes("b", age=7)


def test_an_upsert_may_use_a_lookup_made_before(local):
    local.land(local.now().stage_append(rows("a", "b")))
    table = local.now()
    local.land(table.stage_change(rows("b", "c", age=5), existing=table.locate(["b", "c"])))
    assert local.ids() == ["a", "b", "c"]
    assert local.now().count("age = 5") == 2


def test_row_ids_are_never_reused(local):
    local.land(local.now().stage_append(rows("a", "b")))
    seen = set(row_ids(local.now()).values())
    local.land(delete_where(local.now(), "true"))
    local.land(local.now().stage_append(rows("a")))
    local.land(local.now().stage_overwrite(rows("a")))
    assert seen.isdisjoint(row_ids(local.now()).values())


def test_columns_and_their_marks_survive_every_kind_of_write(local):
    for kind in WRITES:
        if local.now().count() == 0:
            local.land(local.now().stage_append(rows("a", "b", "c")))
        local.land(WRITES[kind](local.now()))
        assert local.now().schema == local.now(1).schema
        assert local.now().schema.field("id").metadata == PRIMARY_KEY


# --- reading ---


def test_a_handle_keeps_its_version(bench):
    bench.land(bench.now().stage_append(rows("a")))
    old = bench.now()
    bench.land(bench.now().stage_append(rows("b")))
    assert old.read(columns=["id"])["id"].to_pylist() == ["a"]
    assert bench.now(old.version).count() == 1


def test_scans_push_down_what_they_are_asked(local):
    local.land(local.now().stage_append(rows("a", "b", "c", age=1)))
    local.land(local.now().stage_append(rows("d", "e", age=2)))
    table = local.now()
    assert table.count("age = 2") == 2
    got = table.read(columns=["id"], where="age = 1", limit=1, offset=1)
    assert got.to_pydict() == {"id": ["b"]}
    backwards = table.read(columns=["id"], order_by=[Order(column="id", descending=True)])
    assert backwards["id"].to_pylist() == ["e", "d", "c", "b", "a"]
    part = table.read(columns=["id"], fragments=table.fragment_ids[1:])
    assert part["id"].to_pylist() == ["d", "e"]
    batches = list(table.scan(columns=["id"], batch_rows=2))
    assert sum(batch.num_rows for batch in batches) == 5
    assert max(batch.num_rows for batch in batches) <= 2


def test_a_column_scan_reads_less_than_a_full_scan(local):
    big = rows(*(f"p{n}" for n in range(2000)))
    local.land(local.now().stage_append(big))
    meter = local.tables.meter
    start = meter.total
    local.now().read(columns=["age"])
    narrow = meter.total.bytes - start.bytes
    local.now().read()
    wide = meter.total.bytes - start.bytes - narrow
    assert 0 < narrow < wide / 2
    assert meter.total.scans == start.scans + 2


def test_take_answers_in_the_order_asked_and_drops_what_is_gone(local):
    local.land(local.now().stage_append(rows("a", "b", "c")))
    ids = row_ids(local.now())
    local.land(local.now().stage_delete_ids(["b"]))
    got = local.now().take([ids["c"], ids["b"], ids["a"], 10**9], ["id"])
    assert got["id"].to_pylist() == ["c", "a"]


def test_locate_finds_many_ids_as_well_as_few(local):
    names = [f"p{n}" for n in range(12_000)]
    local.land(local.now().stage_append(rows(*names)))
    assert local.now().locate(["p5", "nobody"])["id"].to_pylist() == ["p5"]
    assert local.now().locate([*names, "nobody"]).num_rows == 12_000


def test_a_missing_table_is_not_found_and_a_version_above_the_newest_is_damage(bench):
    with pytest.raises(CorruptGraphError) as caught:
        bench.now(99)  # cleanup takes old versions only, so somebody lost it
    assert caught.value.part.startswith(f"{PLACE}/_versions/")
    with pytest.raises(NotFoundError):
        bench.tables.head_version("nodes/nothing", None)
    assert bench.tables.exists(PLACE)
    assert not bench.tables.exists("nodes/nothing")


def test_readers_in_many_threads_see_one_version(local):
    local.land(local.now().stage_append(rows(*(f"p{n}" for n in range(500)))))
    table, seen = local.now(), []
    in_threads(lambda: seen.extend(table.read(columns=["id"]).num_rows for _ in range(10)), 8)
    assert seen == [500] * 80


# --- restore ---


def test_restore_brings_the_old_rows_back_as_a_new_version(bench):
    bench.land(bench.now().stage_append(rows("a")))
    pin = bench.version
    bench.land(bench.now().stage_overwrite(rows("b", "c")))
    bench.version = bench.tables.restore(PLACE, None, pin, commit_id="01BACK")
    assert bench.version == pin + 2
    assert bench.ids() == ["a"]
    bench.land(bench.now().stage_append(rows("d")))
    assert bench.ids() == ["a", "d"]


def row_ids(table):
    found = table.read(columns=["id"], with_row_id=True)
    return dict(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))


def rows_as_bytes(*ids, age):
    listed = rows(*ids, age=age).drop(["photo"]).to_pylist()
    return [{**row, "photo": row["id"].encode()} for row in listed]


def in_threads(act, count):
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(act) for _ in range(count)]:
            done.result()
