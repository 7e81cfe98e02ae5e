"""The questions of `examples/questions`: a query and plain Python give the same answer."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import re
import statistics
from collections import Counter, defaultdict, deque
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.compiler.query import format_source, lint_source, parse_file
from omnigraph.compiler.schema import compile_schema
from omnigraph.demo.packages import records

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "questions"
PACKAGES_GQ = (FOLDER / "packages.gq").read_text("utf-8")
RELEASES_GQ = (FOLDER / "releases.gq").read_text("utf-8")


def texts(source):
    """The text of each question, by the name of its query."""
    parts = re.split(r"(?m)^(?=// \d+\. )", source)[1:]
    return {re.search(r"query (\w+)", part).group(1): part for part in parts}


QUESTIONS = texts(PACKAGES_GQ) | texts(RELEASES_GQ)


def example(name):
    """A script of the folder as a module."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INSTALLED = example("packages").installed()
PACKAGES = {one.name: one for one in INSTALLED.packages}
FACTS = example("releases").facts()
RELEASES = FACTS["releases"]
USERS = Counter(name for one in PACKAGES.values() for name in one.needs)
FANS = Counter(name for one in PACKAGES.values() for name in one.likes)
MOST = min(USERS, key=lambda name: (-USERS[name], name))
NEEDY = max(PACKAGES.values(), key=lambda one: (len(one.needs), one.name)).name


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("questions")
    packages = Graph.init(
        str(folder / "p.omni"), (FOLDER / "packages.pg").read_text(), durability="process"
    )
    packages.load("\n".join(records(INSTALLED)), mode="append")
    releases = Graph.init(
        str(folder / "r.omni"), (FOLDER / "releases.pg").read_text(), durability="process"
    )
    releases.load("\n".join(map(json.dumps, example("releases").records())), mode="append")
    return {"packages": packages, "releases": releases}


# --- packages, in plain Python -------------------------------------------------------------------


def reached(start):
    """What is needed in the end, and how many steps away."""
    steps, pending = {}, deque([(start, 0)])
    while pending:
        name, depth = pending.popleft()
        for other in PACKAGES[name].needs:
            if other not in steps:
                steps[other] = depth + 1
                pending.append((other, depth + 1))
    return steps


FARTHEST = max(reached(NEEDY).items(), key=lambda item: (item[1], item[0]))[0]


def total(names):
    sizes = [PACKAGES[name].size_kib for name in names if PACKAGES[name].size_kib is not None]
    return sum(sizes) if sizes else None


def sections():
    found = defaultdict(list)
    for one in PACKAGES.values():
        if one.section:
            found[one.section].append(one.name)
    return found


def largest_of_sections(few):
    rows = []
    for section, names in sorted(sections().items()):
        known = [name for name in names if PACKAGES[name].size_kib is not None]
        if len(names) <= few or not known:
            continue
        top = max(PACKAGES[name].size_kib for name in known)
        rows += [
            (section, len(names), name) for name in sorted(known) if PACKAGES[name].size_kib == top
        ]
    return rows


def broken_without(name):
    direct = {one.name for one in PACKAGES.values() if name in one.needs}
    found = direct | {one.name for one in PACKAGES.values() if direct & set(one.needs)}
    return found - {name}


def size_class(one):
    if one.size_kib is None:
        return "unknown"
    return "small" if one.size_kib < 100 else "middling" if one.size_kib < 10000 else "large"


def at_share(values, share):
    """Linear interpolation between the two nearest; None of nothing."""
    if not values:
        return None
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)


def families():
    found = Counter(name.split("-")[0] for name in PACKAGES)
    return sorted(((f, n) for f, n in found.items() if n > 2), key=lambda each: (-each[1], each[0]))


def around(name):
    one = PACKAGES[name]
    found = {
        "DependsOn": len(one.needs),
        "Recommends": len(one.likes),
        "InSection": bool(one.section),
    }
    return [(edge, int(count)) for edge, count in sorted(found.items()) if count]


SIZES = [one.size_kib for one in PACKAGES.values() if one.size_kib is not None]
UNWANTED = [name for name in PACKAGES if not USERS[name] and not FANS[name]]
VERSIONS = [one.version or "" for one in PACKAGES.values()]
# query: parameters and rows
OF_PACKAGES = {
    "needs_of": ({"name": NEEDY}, [(name,) for name in sorted(PACKAGES[NEEDY].needs)]),
    "needed_in_the_end": (
        {"name": NEEDY}, [(len(reached(NEEDY)), total(reached(NEEDY)))]),
    "most_needed": ({}, sorted(USERS.items(), key=lambda each: (-each[1], each[0]))[:10]),
    "wanted_by_nobody": ({}, [(len(UNWANTED), total(UNWANTED))]),
    "sections_by_size": ({}, sorted(
        ((section, len(names), total(names)) for section, names in sections().items()),
        key=lambda row: (-(row[2] if row[2] is not None else -1), row[0]))),
    "largest_of_sections": ({"few": 3}, largest_of_sections(3)),
    "way_between": ({"from": NEEDY, "to": FARTHEST}, [(reached(NEEDY)[FARTHEST],)]),
    "broken_without": ({"name": MOST}, [(len(broken_without(MOST)),)]),
    "need_each_other": ({}, sorted(
        (a, b) for a in PACKAGES for b in PACKAGES[a].needs
        if a < b and a in PACKAGES[b].needs)),
    "said_twice": ({}, [(sum(
        c in one.needs for one in PACKAGES.values() for b in one.needs
        for c in PACKAGES[b].needs),)]),
    "liked_not_needed": ({}, sorted(
        ((name, n) for name, n in FANS.items() if not USERS[name]),
        key=lambda each: (-each[1], each[0]))[:5]),
    "libraries": ({}, [(sum(name.lower().startswith("lib") for name in PACKAGES),)]),
    "families": ({}, families()[:10]),
    "sizes": ({}, sorted(Counter(map(size_class, PACKAGES.values())).items())),
    "versions": ({}, [(sum(bool(re.fullmatch("[0-9]+:.*", v)) for v in VERSIONS),
                       sum("deb12" in v for v in VERSIONS))]),
    "usual_size": ({}, [(at_share(SIZES, 0.5), pytest.approx(at_share(SIZES, 0.9)))]),
    "around": ({"name": NEEDY}, around(NEEDY)),
    "for_one_only": ({}, [
        (name, [one.name for one in PACKAGES.values() if name in one.needs])
        for name in sorted(USERS) if USERS[name] == 1][:20]),
    "self_contained": ({}, [(sum(not one.needs for one in PACKAGES.values()),)]),
    "needs_and_likes": ({"name": NEEDY}, sorted(
        [(name, "needs") for name in PACKAGES[NEEDY].needs]
        + [(name, "likes") for name in PACKAGES[NEEDY].likes])),
}  # fmt: skip


# --- releases, in plain Python -------------------------------------------------------------------

BY_TAG = {each["tag"]: each for each in RELEASES}
PROJECTS = sorted({each["project"] for each in RELEASES})
JOINED = {each["name"]: each["joined"] for each in FACTS["people"]}
LANGUAGE = {each["name"]: each["language"] for each in FACTS["projects"]}
MOMENT = dt.datetime(2022, 6, 1, 12, tzinfo=dt.UTC)


def of(project):
    return [each for each in RELEASES if each["project"] == project]


def day(tag):
    return BY_TAG[tag]["at"].date()


def gaps(releases):
    return [(day(each["tag"]) - day(each["before"])).days for each in releases if each["before"]]


def chain(tag):
    before = []
    while tag := BY_TAG[tag]["before"]:
        before.append(tag)
    return before


def on_several():
    found = defaultdict(set)
    for each in RELEASES:
        found[each["by"]].add(each["project"])
    rows = [(who, len(projects)) for who, projects in found.items() if len(projects) > 1]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def first_year():
    rows = []
    for who, joined in sorted(JOINED.items()):
        made = [each for each in RELEASES if each["by"] == who]
        if joined is None or not made:
            continue
        since = dt.date.fromisoformat(joined)
        early = sum((each["at"].date() - since).days < 365 for each in made)
        rows.append((who, pytest.approx(round(100 * early / len(made), 1), abs=0.051)))
    return rows


def by_language():
    rows = {}
    for each in RELEASES:
        count, unknown = rows.get(LANGUAGE[each["project"]], (0, 0))
        missing = each["downloads"] is None
        rows[LANGUAGE[each["project"]]] = (count + (each["downloads"] or 0), unknown + missing)
    return sorted((language, *sums) for language, sums in rows.items())


LAST = RELEASES[-1]["tag"]
LONGEST = min(
    zip([each["tag"] for each in RELEASES if each["before"]], gaps(RELEASES), strict=True),
    key=lambda row: (-row[1], row[0]),
)
OF_RELEASES = {
    "latest": ({}, [(p, max(each["at"] for each in of(p))) for p in PROJECTS]),
    "recent": ({"moment": MOMENT}, sorted(
        (each["tag"],) for each in RELEASES
        if MOMENT - dt.timedelta(days=90) < each["at"] <= MOMENT)),
    "by_month": ({}, sorted(Counter(
        each["at"].date().replace(day=1) for each in RELEASES).items())),
    "by_hour": ({}, sorted(
        Counter(each["at"].hour for each in RELEASES).items(),
        key=lambda row: (-row[1], row[0]))[:5]),
    "pace": ({}, [(p, pytest.approx(statistics.mean(gaps(of(p))))) for p in PROJECTS]),
    "silence": ({}, [LONGEST]),
    "founders": ({}, [(p, min(of(p), key=lambda each: each["at"])["by"]) for p in PROJECTS]),
    "on_several": ({}, on_several()),
    "month_ends": ({}, sorted(
        (each["tag"],) for each in RELEASES
        if (each["at"].date() + dt.timedelta(days=1)).day == 1)),
    "downloads": ({}, by_language()),
    "chain": ({"tag": LAST}, [(len(chain(LAST)), min(map(day, chain(LAST))))]),
    "first_year": ({}, first_year()),
}  # fmt: skip


ASKED = [("packages", name, *case) for name, case in OF_PACKAGES.items()]
ASKED += [("releases", name, *case) for name, case in OF_RELEASES.items()]


@pytest.mark.parametrize(
    ("graph", "name", "params", "rows"),
    [pytest.param(*case, id=case[1]) for case in ASKED],
)
def test_the_answer_is_what_python_computes(graphs, graph, name, params, rows):
    found = graphs[graph].query(QUESTIONS[name], name, params=params)
    assert [tuple(row.values()) for row in found.to_pylist()] == rows


def test_every_question_is_asked_and_there_are_thirty_of_them():
    assert sorted(QUESTIONS) == sorted([name for _, name, *_ in ASKED] + ["count_downloads"])
    assert len(QUESTIONS) >= 30
    numbers = re.findall(r"(?m)^// (\d+)\. ", PACKAGES_GQ + RELEASES_GQ)
    assert numbers == [str(number) for number in range(1, len(QUESTIONS) + 1)]


def test_a_question_that_changes_the_graph_does_so_once_per_release(graphs):
    graph, text = graphs["releases"], QUESTIONS["count_downloads"]
    graph.create_branch("counted")
    result = graph.mutate(text, params={"project": "axle"}, branch="counted")
    assert result.affected_nodes == len(of("axle"))
    found = graph.query(QUESTIONS["downloads"], branch="counted")
    rows = {row["language"]: row["downloads"] for row in found}
    before = {language: count for language, count, _ in by_language()}
    assert rows["rust"] == before["rust"] + len(of("axle"))


@pytest.mark.parametrize(
    ("schema", "source"), [("packages", PACKAGES_GQ), ("releases", RELEASES_GQ)]
)
def test_the_questions_are_free_of_remarks_and_survive_layout(schema, source):
    catalog = compile_schema((FOLDER / f"{schema}.pg").read_text("utf-8"))
    for name, text in texts(source).items():
        report = lint_source(text, catalog)
        assert [place for place in report.places() if place[2] != "L206"] == [], name
        assert parse_file(format_source(text)) == parse_file(text)


def test_the_schema_of_the_questions_is_that_of_the_demo():
    demo = FOLDER.parents[1] / "src" / "omnigraph" / "demo" / "packages.pg"
    assert (FOLDER / "packages.pg").read_text() == demo.read_text()
