"""What a write reads: counted, so that a slow path cannot creep in."""

import pytest
from write_world import WriteWorld, edge, person

from omnigraph.compiler.query import compile_query
from omnigraph.engine.core import OpenMode, open_core
from omnigraph.engine.read.run import Reader
from omnigraph.engine.write.mutate import prepare_mutation
from omnigraph.storage.commit.writer import WriteContext

PAIR = 'query q() { insert Person { name: "new" } insert Knows { from: "p0", to: "new" } }'
UPDATE = 'query q() { update Person set { age: 3 } where name = "p3" }'
FREE = 'query q() { insert Note { text: "x" } }'
COMMITS = 30


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A graph with many small commits behind it."""
    uri = tmp_path_factory.mktemp("costs") / "g"
    world = WriteWorld(uri)
    for n in range(COMMITS):
        world.load(person(f"p{n}", email=f"p{n}@x"), edge("Knows", f"p{n}", "p0"))
    world.graph.close()
    return open_core(str(uri), mode=OpenMode.READ_WRITE)


def reads(core, source):
    """Scans and rows read while the mutation is prepared, once everything is warm."""
    for _ in range(2):
        snapshot = core.head()
        context = WriteContext(core.writer, snapshot.branch, snapshot)
        before = core.store.tables.meter.total
        catalog = core.catalog(snapshot)
        prepared, _ = prepare_mutation(
            compile_query(source, catalog, None),
            params={},
            catalog=catalog,
            context=context,
            world=core.world,
            reader=Reader(core.store.tables),
        )
        after = core.store.tables.meter.total
    return prepared, after.scans - before.scans, after.rows - before.rows


def test_inserting_a_pair_reads_the_one_row_that_it_points_to(core):
    prepared, scans, rows = reads(core, PAIR)
    assert (scans, rows) == (1, 1)
    # Who inserts an edge relies on both ends, and on the uniqueness of the pair.
    assert prepared.relied_on == {"node:Person", "edge:Knows"}
    assert not prepared.strict


def test_an_insert_that_nothing_constrains_reads_nothing(core):
    prepared, scans, _ = reads(core, FREE)
    assert scans == 0
    assert prepared.relied_on == set()


def test_an_update_reads_its_row_and_is_strict(core):
    prepared, scans, rows = reads(core, UPDATE)
    assert (scans, rows) == (1, 1)
    assert prepared.strict
    assert prepared.relied_on == {"node:Person"}
    assert [staged.operation for staged in prepared.staged] == ["upsert"]


def test_preparing_moves_no_table(core):
    before = core.head()
    reads(core, PAIR)
    assert core.head() == before
    for entry in before.datasets:
        assert core.store.tables.head_version(entry.location, entry.branch) == entry.version
