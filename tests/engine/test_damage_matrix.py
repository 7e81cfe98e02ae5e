"""Every kind of file of a graph, damaged in every way: the right answer, or an error that names it.

Never an older state without a word, never a foreign exception, never an exit code or an error that
says "try again". What no reader can notice yet are bits that flip inside the pages of a data file,
because Lance keeps no checksums: for those the answer is not compared (until commits carry hashes),
only the kind of the error.

The everyday test takes one file of each kind. The slow one takes more of each and flips more bits:
`OMNIGRAPH_DAMAGE_FILES` and `OMNIGRAPH_DAMAGE_BITS` say how many.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph, OpenMode
from omnigraph.cli.main import entry
from omnigraph.errors import CorruptGraphError, NotFoundError, OmnigraphError, RecoveryRequiredError
from omnigraph.model.ports import World
from omnigraph.model.steps import Step

SCHEMA = """
node Person { name: String @key  age: I64?  bio: String? @index }
node City { name: String @key }
edge Knows: Person -> Person { since: I64? }
"""
WRITE = "query w($name: String) { insert Person { name: $name } }"
ROWS = "query q() { match { $p: Person } return { $p.name as n, $p.age as a } order { n } }"
ENDS = "query q() { match { $p: Person $p knows $o } return { $p.name as n, $o.name as o } }"
FOUND = 'query q() { match { $p: Person { bio: "about p7" } } return { $p.name as n } }'
BRANCHES = ("main", "dev")
FILES = int(os.environ.get("OMNIGRAPH_DAMAGE_FILES", "4"))
BITS = int(os.environ.get("OMNIGRAPH_DAMAGE_BITS", "4"))


class Died(BaseException):
    """The process is gone."""


class DieAt:
    def __init__(self, step: Step) -> None:
        self._step, self._dead = step, False

    def reach(self, step: Step) -> None:
        self._dead = self._dead or step is self._step
        if self._dead:  # what is dead does not clear up
            raise Died


def lines(low: int, high: int) -> str:
    people = [
        f'{{"type":"Person","data":{{"name":"p{n}","age":{n},"bio":"about p{n}"}}}}'
        for n in range(low, high)
    ]
    edges = [
        f'{{"edge":"Knows","from":"p{n}","to":"p{low}","data":{{"since":{n}}}}}'
        for n in range(low, high)
    ]
    return "\n".join([*people, *edges, f'{{"type":"City","data":{{"name":"c{low}"}}}}'])


def died(uri: str, step: Step, name: str) -> None:
    world = World(steps=DieAt(step), durability="process")
    graph = Graph.open(uri, world=world, maintenance=None)
    with pytest.raises(Died):
        graph.mutate(WRITE, params={"name": name}, branch="side")


def build(uri: str) -> None:
    """A graph that has a file of every kind, on main and on a branch."""
    with Graph.init(uri, SCHEMA, durability="process", maintenance=None) as graph:
        graph.load(lines(0, 12), mode="append")
        graph.optimize()
        graph.load(lines(20, 24), mode="append")
        graph.mutate('query d() { delete Person where name = "p3" }')
        graph.create_branch("dev")
        graph.create_branch("side")
        graph.load(lines(30, 34), mode="append", branch="dev")
        graph.mutate('query d() { delete Person where name = "p31" }', branch="dev")
    died(uri, Step.TABLES_APPLIED, "rolled forward")  # for a row of the record of recoveries
    Graph.open(uri, durability="process").close()
    died(uri, Step.SIDECAR_WRITTEN, "rolled back")


Question = Callable[[Graph, str], Any]
QUESTIONS: dict[str, Question] = {
    "rows": lambda graph, branch: graph.query(ROWS, branch=branch).to_pylist(),
    "ends": lambda graph, branch: sorted(map(str, graph.query(ENDS, branch=branch).to_pylist())),
    "found": lambda graph, branch: graph.query(FOUND, branch=branch).to_pylist(),
    "export": lambda graph, branch: list(graph.export(branch=branch)),
    "commits": lambda graph, branch: [one.graph_commit_id for one in graph.commits(branch)],
    "branches": lambda graph, _: graph.branches(),
}


def answered(uri: str, question: str, branch: str) -> Any:
    with Graph.open(uri, mode=OpenMode.READ_ONLY) as graph:
        return QUESTIONS[question](graph, branch)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The graph, what it answers, and a copy from which it is put back (branches hold absolute
    paths, so the damage is done in place)."""
    folder = tmp_path_factory.mktemp("damage")
    uri = str(folder / "g.omni")
    build(uri)
    truth = {
        (question, branch): answered(uri, question, branch)
        for question in QUESTIONS
        for branch in BRANCHES
    }
    shutil.copytree(uri, folder / "whole")
    yield uri, truth, folder / "whole"
    shutil.rmtree(folder, ignore_errors=True)


def put_back(uri: str, whole: Path) -> None:
    shutil.rmtree(uri)
    shutil.copytree(whole, uri)


# --- files -----------------------------------------------------------------------------------

TABLES = ("nodes", "edges")
KINDS: dict[str, str] = {
    "manifest version": "__manifest/_versions/*.manifest",
    "manifest data": "__manifest/data/*.lance",
    "manifest transaction": "__manifest/_transactions/*.txn",
    "branch of the manifest: version": "__manifest/tree/*/_versions/*.manifest",
    "branch of the manifest: data": "__manifest/tree/*/data/*.lance",
    "branch of the manifest: transaction": "__manifest/tree/*/_transactions/*.txn",
    "branch of the manifest: Lance's reference": "__manifest/_refs/branches/*.json",
    "version hint": "__manifest/_versions/*.json",
    "table version": "nodes/*/_versions/*.manifest",
    "table data": "nodes/*/data/*.lance",
    "table transaction": "nodes/*/_transactions/*.txn",
    "edge table version": "edges/*/_versions/*.manifest",
    "edge table data": "edges/*/data/*.lance",
    "deletion file": "nodes/*/_deletions/*",
    "index file": "nodes/*/_indices/*/*",
    "branch of a table: version": "nodes/*/tree/*/_versions/*.manifest",
    "branch of a table: data": "nodes/*/tree/*/data/*.lance",
    "branch of a table: deletion file": "nodes/*/tree/*/_deletions/*",
    "branch of a table: Lance's reference": "nodes/*/_refs/branches/*.json",
    "reference": "_refs/branches/dev.json",
    "sidecar": "__recovery/*.json",
    "record of recoveries: version": "_graph_commit_recoveries.lance/_versions/*.manifest",
    "record of recoveries: data": "_graph_commit_recoveries.lance/data/*.lance",
    "lock": "__locks/*",
}
UNCHECKED = (".lance", ".arrow", ".bin", ".idx")  # a flipped bit inside cannot be noticed


def files(uri: str, pattern: str) -> list[Path]:
    """The files of a kind, those of the newest state first."""
    found = [path for path in Path(uri).glob(pattern) if path.is_file()]
    named_by_age = pattern.endswith(".manifest")  # the newest version sorts first
    return sorted(found, key=lambda path: path.name) if named_by_age else sorted(found)[::-1]


def cut(body: bytes) -> bytes:
    return body[:-1]


def halved(body: bytes) -> bytes:
    return body[: len(body) // 2]


def emptied(_: bytes) -> bytes:
    return b""


def bit(position: float, number: int = 2) -> Callable[[bytes], bytes]:
    def flip(body: bytes) -> bytes:
        at = min(int(len(body) * position), len(body) - 1)
        return body[:at] + bytes([body[at] ^ (1 << number)]) + body[at + 1 :]

    flip.__name__ = f"bit {number} at {position:.3f}"
    return flip


def deleted(_: bytes) -> None:
    return None


EVERYDAY = (halved, emptied, bit(0.999), bit(0.4), deleted)


def harm(path: Path, damage: Callable[[bytes], bytes | None]) -> bytes | None:
    body = damage(path.read_bytes())
    if body is None:
        path.unlink()
    else:
        path.write_bytes(body)
    return body


# --- judging ---------------------------------------------------------------------------------


def names_it(error: CorruptGraphError, path: str) -> bool:
    """Whether the error points at the file, or at the folder of the table that it belongs to.

    A bit in a name that a file holds makes another name: then what it leads to is missing, and the
    error says so and where it was led from.
    """
    part = str(error.facts["part"])
    told = part == path or path.startswith(f"{part}/") or "/".join(part.split("/")[:2]) in path
    return told or path in str(error) or "/".join(path.split("/")[:2]) in part


def led_astray(error: CorruptGraphError, uri: str, path: str) -> bool:
    """Whether a bit in a row of the manifest, which nobody can notice, made another number of a
    table's version: then the error names that version's file, which never was."""
    part = str(error.facts["part"])
    version = part.split("/")[0] in TABLES and part.endswith(".manifest")
    return version and path.startswith("__manifest/") and not Path(uri, part).exists()


def judged(case: str, uri: str, truth: dict, path: str, *, exact: bool) -> Iterator[str]:
    """What is wrong about the answers of a damaged graph."""
    for (question, branch), right in truth.items():
        told = f"{case}: {question} of {branch}"
        try:
            answer = answered(uri, question, branch)
        except CorruptGraphError as error:
            astray = not exact and led_astray(error, uri, path)
            if not astray and not names_it(error, path):
                yield f"{told}: does not name it: {error}"
        except NotFoundError as error:
            # A branch is its reference: without one it does not exist, and that is said.
            if not path.startswith("_refs/") or error.facts["kind"] not in ("branch", "ref"):
                yield f"{told}: {error!r}"
        except OmnigraphError as error:
            yield f"{told}: {type(error).__name__}: {error}"
        except BaseException as error:  # noqa: BLE001 - a panic is one
            yield f"{told}: foreign {type(error).__name__}: {error}"
        else:
            lost = question == "branches" and path.startswith("_refs/")
            if exact and not lost and answer != right:
                yield f"{told}: another answer without a word"


def judged_write(case: str, uri: str, truth: dict, path: str, *, exact: bool) -> Iterator[str]:
    """What is wrong about the next write to a damaged graph, and with what is left after it."""
    harmed = Path(uri, path)
    before = harmed.read_bytes() if harmed.exists() else None
    try:
        with Graph.open(uri, durability="process", maintenance=None) as graph:
            graph.mutate(WRITE, params={"name": "new"})
            names = {row["n"] for row in graph.query(ROWS).to_pylist()}
        right = {row["n"] for row in truth["rows", "main"]} | {"new"}
        if exact and names != right:
            yield f"{case}: a write went on from another state"
    except (CorruptGraphError, RecoveryRequiredError) as error:
        if error.retryable:
            yield f"{case}: a write says try again: {error}"
    except BaseException as error:  # noqa: BLE001 - likewise
        yield f"{case}: a write raised {type(error).__name__}: {error}"
    evidence = path.endswith((".manifest", ".lance", ".arrow")) and before is not None
    if evidence and (not harmed.exists() or harmed.read_bytes() != before):
        yield f"{case}: the damaged file is gone or changed"


def judged_commands(case: str, uri: str) -> Iterator[str]:
    for words in (["export", uri], ["branch", "list", "--uri", uri], ["health", "--uri", uri]):
        code = entry(words)
        if code not in (0, 1):
            yield f"{case}: `{words[0]}` exits with {code}"


@pytest.mark.parametrize("kind", KINDS)
def test_one_file_of_each_kind(world, kind, capsys):
    uri, truth, whole = world
    path = files(uri, KINDS[kind])[0]
    wrong: list[str] = []
    for damage in EVERYDAY:
        if not path.read_bytes() and damage is not deleted:
            continue  # a lock is empty
        harm(path, damage)
        inside = damage.__name__.startswith("bit") and path.suffix in UNCHECKED
        case, place = f"{kind}, {damage.__name__}", os.path.relpath(path, uri)
        try:
            wrong += judged(case, uri, truth, place, exact=not inside)
            if damage in (halved, deleted):
                wrong += judged_commands(case, uri)
                wrong += judged_write(case, uri, truth, place, exact=not inside)
        finally:
            put_back(uri, whole)
    assert not wrong, "\n".join(wrong)
    assert "Traceback" not in capsys.readouterr().err


def test_the_graph_has_a_file_of_every_kind(world):
    uri = world[0]
    assert [kind for kind, pattern in KINDS.items() if not files(uri, pattern)] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_more_files_in_every_way(world, kind):
    uri, truth, whole = world
    chance = random.Random(kind)
    wrong: list[str] = []
    for path in files(uri, KINDS[kind])[:FILES]:
        bits = [bit(chance.random(), chance.randrange(8)) for _ in range(BITS)]
        for damage in (cut, halved, emptied, *bits, deleted):
            if not path.read_bytes() and damage is not deleted:
                continue
            harm(path, damage)
            inside = damage in bits and path.suffix in UNCHECKED
            place = os.path.relpath(path, uri)
            case = f"{place}, {damage.__name__}"
            try:
                wrong += judged(case, uri, truth, place, exact=not inside)
                wrong += judged_write(case, uri, truth, place, exact=not inside)
            finally:
                put_back(uri, whole)
    assert not wrong, "\n".join(wrong)
