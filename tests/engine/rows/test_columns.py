"""Columns: many values at once get the verdict of each, and lie as the table wants them."""

import datetime as dt

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.rows.columns import BLOB_CELL, batch_schema, column, column_type, from_fitted
from omnigraph.model.schema import EdgeType, NodeType, Property, PropertyType, Scalar
from omnigraph.model.values import Misfit, fit
from omnigraph.storage.lance.columns import arrow_schema, seal


def kind(scalar, **more):
    return PropertyType(scalar=scalar, **more)


def test_permissive_scalars_become_null_while_lists_are_judged():
    ages, problems = column([1, "old", None], kind(Scalar.I32), strict=False)
    assert (ages.to_pylist(), problems) == ([1, None, None], [])
    _, problems = column([["a", 7]], kind(Scalar.STRING, is_list=True), strict=False)
    assert [problem.row for problem in problems] == [0]


MIXED = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=5),
    st.dates().map(str),
    st.datetimes(min_value=dt.datetime(1, 1, 2)).map(lambda m: m.isoformat() + "Z"),
    st.datetimes().map(lambda m: m.isoformat()),
    st.sampled_from(["0000-01-01", "NaN", "12", "base64:AQ==", "file:///x"]),
    st.lists(st.one_of(st.integers(-5, 5), st.floats(width=32)), max_size=3),
    st.lists(st.text(max_size=2), max_size=2),
)
SAME_KIND = st.one_of(
    st.lists(st.integers(-(2**40), 2**40)),
    st.lists(st.floats()),
    st.lists(st.dates().map(str)),
    st.lists(st.datetimes().map(lambda m: m.isoformat(timespec="milliseconds") + "+02:00")),
    st.lists(st.lists(st.floats(allow_nan=False, width=32), min_size=2, max_size=2)),
    st.lists(st.lists(st.text(max_size=2))),
    st.lists(st.text()),
    st.lists(st.booleans()),
)
KINDS = [kind(scalar) for scalar in Scalar if scalar is not Scalar.VECTOR] + [
    kind(Scalar.VECTOR, dimension=2),
    kind(Scalar.STRING, is_list=True),
    kind(Scalar.I32, is_list=True),
    kind(Scalar.DATE, is_list=True),
]


@settings(max_examples=150, deadline=None)
@given(values=st.one_of(st.lists(MIXED), SAME_KIND), which=st.sampled_from(KINDS))
def test_a_column_gives_the_verdict_of_each_cell(values, which):
    array, problems = column(values, which, strict=True)
    fitted = [fit(value, which) for value in values]
    assert [p.row for p in problems] == [
        row for row, cell in enumerate(fitted) if isinstance(cell, Misfit)
    ]
    alone = from_fitted([None if isinstance(c, Misfit) else c for c in fitted], which)
    # NaN is not equal to itself, hence the texts.
    assert str(array.to_pylist()) == str(alone.to_pylist())
    assert array.type == column_type(which)


def test_columns_of_the_write_path_are_those_of_the_table():
    properties = [(f"p{n}", which) for n, which in enumerate(KINDS)]
    node = NodeType(name="T", properties=tuple(Property(name=n, type=t) for n, t in properties))
    edge = EdgeType(
        name="E",
        properties=tuple(Property(name=n, type=t) for n, t in properties),
        from_type="T",
        to_type="T",
    )
    for entity in (node, edge):
        ours, stored = batch_schema(entity), arrow_schema(entity)
        assert ours.names == stored.names
        for field in ours:
            if field.type != BLOB_CELL:
                assert field.type == stored.field(field.name).type
        assert seal(ours.empty_table(), stored).schema == stored
