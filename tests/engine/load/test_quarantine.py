"""Bad records put aside: the rest lands, the reasons are told, nothing bad slips through."""

from __future__ import annotations

import json

import pytest
from test_twins import BASE, SCHEMA
from twins import Twins, bulk_load, content, cut_into, edge, ndjson, node

from omnigraph import Graph
from omnigraph.errors import ConstraintViolationError, InputError

BAD = [
    "{broken",
    node("Person", name="old", age=500),
    node("Person", name="d", email="a@x"),
    node("Person", name="e", email="q@x"),
    node("Person", name="f", email="q@x"),
    node("Person", name="a"),
    node("Person", name="e", age=3),
    edge("Knows", "d", "a"),
    edge("Knows", "e", "b"),
    edge("Knows", "e", "nobody"),
    edge("WorksAt", "c", "X"),
    edge("WorksAt", "c", "Y"),
    edge("WorksAt", "a", "Y"),
]


def quarantined(folder):
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_the_rest_lands_and_every_reason_is_written(tmp_path):
    twins = Twins(tmp_path, SCHEMA)
    twins.load(BASE, "overwrite")
    path = twins.write(ndjson(BAD))
    report = bulk_load(
        twins.bulk_uri,
        str(path),
        mode="append",
        on_error="quarantine",
        quarantine=str(tmp_path / "bad"),
    )
    put_aside = quarantined(tmp_path / "bad")
    places = {int(one["place"].rpartition(":")[2]): one["kind"] for one in put_aside}
    assert places == {
        1: "record",
        2: "range",
        3: "unique",
        5: "unique",
        6: "conflict",
        7: "unique",
        8: "endpoint",  # its source went with line 3
        10: "endpoint",
        12: "cardinality",
        13: "cardinality",
    }
    assert report.rejected_total == len(BAD) - 3
    assert report.commit.properties["message"] == "10 records quarantined"
    assert put_aside[0]["record"] == "{broken"
    with Graph.open(twins.bulk_uri) as graph:
        new = set(content(graph)) - set(content(twins.local))
    assert len(new) == 3


# schema, records, the names that stay
RIVALS = {
    "a rival that goes as a repeated id": (
        "node M { k: String @key  p: String? @unique }",
        [node("M", k="a", p="1"), node("M", k="a", p="2"), node("M", k="b", p="2")],
        ["a", "b"],
    ),
    "the first of an id goes for another reason": (
        "node M { k: String @key  p: String? @unique }",
        [node("M", k="z", p="1"), node("M", k="a", p="1"), node("M", k="a", p="2")],
        ["a", "z"],
    ),
    "a rival in one rule that goes by another": (
        "node M { k: String @key  p: String? @unique  q: String? @unique }",
        [
            node("M", k="a", p="1"),
            node("M", k="b", p="1", q="1"),
            node("M", k="c", q="1"),
            node("M", k="d", q="1"),
        ],
        ["a", "c"],
    ),
    "a chain of rivals": (
        "node M { k: String @key  p: String? @unique  q: String? @unique }",
        [node("M", k=f"k{i:02}", p=f"p{(i + 1) // 2}", q=f"q{i // 2}") for i in range(40)],
        [f"k{i:02}" for i in range(0, 40, 2)],
    ),
    "an edge whose rival has no end": (
        "node N { k: String @key }\nedge R: N -> N { tag: String? @unique }",
        [
            node("N", k="a"),
            edge("R", "a", "zz", id="gone", tag="t"),
            edge("R", "a", "a", id="stays", tag="t"),
        ],
        ["a", "stays"],
    ),
    "an edge too many that has no end": (
        "node N { k: String @key }\nedge R: N -> N @card(0..1)",
        [
            node("N", k="a"),
            edge("R", "a", "zz", id="gone"),
            edge("R", "a", "a", id="stays"),
        ],
        ["a", "stays"],
    ),
    "a bad value": (
        "node M { k: String @key  p: String? @unique  n: I32?  @range(n, 0..9) }",
        [node("M", k="a", p="1", n=99), node("M", k="b", p="1"), node("M", k="a", p="2")],
        ["a", "b"],
    ),
}


@pytest.mark.parametrize("buckets", [1, 5])
@pytest.mark.parametrize("case", RIVALS)
def test_no_record_goes_because_of_one_that_goes_itself(tmp_path, monkeypatch, case, buckets):
    cut_into(monkeypatch, buckets)
    schema, lines, stay = RIVALS[case]
    twins = Twins(tmp_path, schema)
    report = bulk_load(
        twins.bulk_uri, str(twins.write(ndjson(lines))), mode="append", on_error="quarantine"
    )
    with Graph.open(twins.bulk_uri) as graph:
        ids = sorted(json.loads(line)["data"]["id"] for line in graph.export())
    assert ids == stay
    assert report.rejected_total == len(lines) - len(stay)
    put_aside = [
        int(one["place"].rpartition(":")[2]) for one in quarantined(tmp_path / "bulk.quarantine")
    ]
    assert len(set(put_aside)) == len(put_aside) == report.rejected_total


@pytest.mark.parametrize("buckets", [1, 64])
def test_of_several_reasons_the_first_rule_is_told(tmp_path, monkeypatch, buckets):
    cut_into(monkeypatch, buckets)
    twins = Twins(tmp_path, "node N { k: String @key }\nedge R: N -> N")
    for start, end in (("a", "b"), ("b", "a")):  # the bucket of one is judged before the other's
        lines = [*(node("N", k=f"n{n}") for n in range(64)), edge("R", start, end)]
        path = str(twins.write(ndjson(lines)))
        report = bulk_load(twins.bulk_uri, path, mode="overwrite", on_error="quarantine")
        (offender,) = report.offenders
        assert offender.message == f"edge R: src '{start}' not found"


def test_a_clean_load_writes_no_quarantine(tmp_path):
    twins = Twins(tmp_path, SCHEMA)
    path = twins.write(ndjson(BASE))
    report = bulk_load(
        twins.bulk_uri,
        str(path),
        mode="append",
        on_error="quarantine",
        quarantine=str(tmp_path / "bad"),
    )
    assert (report.rejected_total, report.quarantine) == (0, None)
    assert not (tmp_path / "bad").exists()


def test_without_a_folder_bad_records_lie_beside_the_graph(tmp_path):
    twins = Twins(tmp_path, SCHEMA)
    path = twins.write(ndjson([*BASE, "{broken"]))
    report = bulk_load(twins.bulk_uri, str(path), mode="append", on_error="quarantine")
    assert report.quarantine == f"{twins.bulk_uri}.quarantine"
    assert len(quarantined(tmp_path / "bulk.quarantine")) == 1


def test_what_leaving_out_cannot_heal_still_fails(tmp_path):
    twins = Twins(tmp_path, SCHEMA)
    twins.load(BASE, "overwrite")
    path = twins.write(ndjson([node("Person", name="c")]))
    with pytest.raises(ConstraintViolationError, match="not found in Person"):
        bulk_load(
            twins.bulk_uri,
            str(path),
            mode="overwrite",
            on_error="quarantine",
            quarantine=str(tmp_path / "bad"),
        )


@pytest.mark.parametrize("options", [{"quarantine": "x"}, {"on_error": "skip"}])
def test_half_an_instruction_is_refused(tmp_path, options):
    twins = Twins(tmp_path, SCHEMA)
    with pytest.raises(InputError):
        bulk_load(twins.bulk_uri, "x", mode="append", **options)
