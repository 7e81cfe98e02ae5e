"""Aggregates over floats whose groups are cut into batches: the answers are those of the engine."""

from __future__ import annotations

import math
import random

import pytest
from both_engines import both

from omnigraph import Graph

pytestmark = pytest.mark.spark

SCHEMA = """
node Item {
  name: String @key
  kind: String?
  marks: [F64]?
  near: F64?
  x: F64?
  y: F32?
  n: I64?
  u: U64?
}
edge Part: Item -> Item { weight: F64? }
"""
AWKWARD = [0.0, -0.0, 5e-324, 0.1, -0.1, 1 / 3, 2.0**53, 1e16, 1e300, -1e300, 1e308, -1e308]
SPECIAL = ["inf", "-inf", "nan"]
KEYS = ("", "$i.kind, ", "$i.near, ", "$i.marks, ", "$i, ", "$i.kind, $i.near, ")
SHOWN = """sum($i.x) as a, avg($i.x) as b, sum($i.y) as c, avg($i.n) as d,
sum(distinct $i.x) as e, avg(distinct $i.n) as f, count(distinct $i.x) as g,
median($i.x) as h, percentile($i.x, 0.3) as i, percentile($i.n, 1) as j,
percentile($i.u, 0) as k, median($i.y) as l,
stddev($i.x) as m, stddev($i.n) as n, stddev($i.u) as o, count(*) as p"""


def value(rng, kinds):
    return rng.choice([None, rng.uniform(-10, 10), float(rng.randrange(3)), rng.choice(kinds)])


def items(rng, *, special):
    kinds = [*AWKWARD, *(map(float, SPECIAL) if special else ())]
    for number in range(120):
        x = value(rng, kinds)
        y = None if x is None or (math.isfinite(x) and abs(x) > 1e30) else x
        yield {
            "type": "Item",
            "data": {
                "name": f"i{number}",
                "kind": rng.choice([None, "a", "b", "c"]),
                "marks": rng.choice([None, [], [0.0], [-0.0], [1.0, 2.0]]),
                "near": rng.choice([None, 0.0, -0.0, 1.5]),
                "x": x,
                "y": y,
                "n": rng.choice([None, 1, -5, 2**53 + 1, -(2**53) - 1]),
                "u": rng.choice([None, 0, 3, 2**64 - 1]),
            },
        }


@pytest.fixture(scope="module", params=["finite", "special"])
def graph(request, tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("sums") / "graph.omni")
    rng = random.Random(5)
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        everything = [*items(rng, special=request.param == "special")]
        graph.load(everything[::2], mode="append")
        graph.load(everything[1::2], mode="append")
        yield graph


@pytest.fixture(scope="module")
def small_batches(spark):
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "3")
    yield
    spark.conf.set(setting, before)


@pytest.mark.parametrize("key", KEYS)
def test_groups_of_awkward_numbers(spark, graph, small_batches, key):
    body = f"match {{ $i: Item }} return {{ {key}{SHOWN} }}"
    here, there = both(spark, graph, f"query q() {{ {body} }}")
    assert there == here


@pytest.mark.parametrize("key", ["", "$i.kind, "])
def test_groups_of_no_rows(spark, graph, key):
    body = f'match {{ $i: Item {{ name: "none" }} }} return {{ {key}{SHOWN} }}'
    here, there = both(spark, graph, f"query q() {{ {body} }}")
    assert there == here


@pytest.mark.parametrize("share", [-0.1, 1.5, None])
@pytest.mark.parametrize("key", ["", "$i.kind, "])
def test_a_share_that_is_none_is_refused_whatever_the_rows(spark, graph, key, share):
    text = f"""query q($share: F64?) {{ match {{ $i: Item {{ name: "none" }} }}
    return {{ {key}percentile($i.x, $share) as p }} }}"""
    here, there = both(spark, graph, text, params={"share": share})
    assert there == here
