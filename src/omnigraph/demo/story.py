"""The story of the demo, a chapter a function, told to a `Journal`: to the terminal while it
happens, and as a page with pictures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from omnigraph import Graph, OpenMode, pipeline
from omnigraph.demo.packages import DataSet, records
from omnigraph.errors import UnavailableError
from omnigraph.model.pictures.commits import draw_commits, in_order
from omnigraph.model.pictures.network import WIDTH, draw_graph, small_graph
from omnigraph.model.pictures.svg import COLOURS, escaped, label, svg
from omnigraph.model.ports import World
from omnigraph.model.steps import Step
from omnigraph.model.structs import html_facts, html_page, html_table, html_text
from omnigraph.model.tables import TableStyle, table_lines

ACTOR = "demo"
BRANCH = "review/successor"


class Journal:
    """Chapters in the order told, each with its time and its part of the page."""

    def __init__(self, say: Callable[[str], None], *, width: int | None) -> None:
        self._say = say
        room = None if width is None else width - 3  # what is told is indented by three
        self._style = TableStyle(column_width_max=60, total_width=room)
        self._parts: list[str] = []
        self.times: list[tuple[str, float]] = []

    @contextmanager
    def chapter(self, title: str) -> Iterator[None]:
        """Everything told inside belongs to the chapter, and its time is taken."""
        self._say(f"\n== {title}")
        self._parts.append(f"<h2>{html_text(title)}</h2>")
        started = time.monotonic()
        yield
        seconds = time.monotonic() - started
        self.times.append((title, seconds))
        self._say(f"   ({seconds:.1f} s)")

    def tell(self, text: str) -> None:
        self._say(f"   {text}")
        self._parts.append(f"<p>{html_text(text)}</p>")

    def show(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """A table, on the terminal and on the page."""
        for line in table_lines(columns, rows, style=self._style):
            self._say(f"   {line}")
        cells = [[row[name] for name in columns] for row in rows]
        self._parts.append(f"<section>{html_table(columns, cells)}</section>")

    def page_only(self, markup: str) -> None:
        """Something that a terminal cannot show."""
        self._parts.append(f"<section>{markup}</section>")

    def source(self, text: str) -> None:
        """The text of a query, for the page."""
        self._parts.append(f"<details><summary>query</summary><pre>{escape(text)}</pre></details>")

    def page(self, title: str, facts: Mapping[str, Any]) -> str:
        """The whole story as one document."""
        bars = draw_bars(self.times, unit="s")
        return html_page(
            title, [html_facts(facts), *self._parts, "<h2>where the time went</h2>", bars]
        )


# --- the chapters --------------------------------------------------------------------------------


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """What every chapter needs: the graph's place, its queries, and the journal."""

    uri: str
    queries: str
    journal: Journal
    data: DataSet

    def ask(self, graph: Graph, name: str, **target: Any) -> list[dict[str, Any]]:
        """Run one of the queries, show its rows and take its time."""
        started = time.monotonic()
        result = graph.query(self.queries, name, **target)
        rows = result.to_json_rows()
        took_ms = (time.monotonic() - started) * 1000
        self.journal.show(result.columns, rows)
        self.journal.tell(f"{result.row_count} rows in {took_ms:.0f} ms")
        self.journal.source(_query_text(self.queries, name))
        return rows


def resource(name: str) -> str:
    """The text of a file that comes with the demo."""
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def tell_story(
    folder: Path,
    journal: Journal,
    find_data: Callable[[], DataSet],
    *,
    show_progress: bool,
) -> dict[str, Any]:
    """All chapters in order, in an empty folder; the facts that head the report."""
    stage = _load(folder, journal, find_data, show_progress=show_progress)
    with Graph.open(stage.uri) as graph:
        loaded = graph.commits(limit=1)[0].graph_commit_id
        hero = _ask(stage, graph)
        labels = _review(stage, graph, hero) | {loaded: "load"}
        _look_back(stage, graph, loaded)
    _crash(stage, hero)
    with Graph.open(stage.uri) as graph:
        _optimize(stage, graph, labels)
        _history(stage, graph, labels)
        snapshot = graph.snapshot()
    return {
        "data": stage.data.title,
        "from": stage.data.origin,
        "packages": len(stage.data.packages),
        "dependencies": stage.data.dependencies,
        "graph": stage.uri,
        "commit": snapshot.graph_commit_id,
        "entities": sum(one.entity_count for one in snapshot.datasets),
    }


def _load(
    folder: Path, journal: Journal, find_data: Callable[[], DataSet], *, show_progress: bool
) -> Stage:
    uri, lines = str(folder / "packages.omni"), folder / "packages.jsonl"
    with journal.chapter("a graph of this machine"):
        data = find_data()
        with lines.open("w", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in records(data))
        journal.tell(f"{data.title}: {data.origin}")
        journal.tell(f"{len(data.packages):,} packages, {data.dependencies:,} dependencies")
    with journal.chapter("Spark starts"):
        spark = pipeline.session(config={"omnigraph.jvm.profile": "quick"})
        journal.tell(f"Spark {spark.version}, here on this machine; a cluster does the same")
    with journal.chapter("one load, one commit"):
        Graph.init(uri, resource("packages.pg"), actor=ACTOR).close()
        report = pipeline.load(
            spark, uri, [str(lines)], mode="overwrite", actor=ACTOR, progress=show_progress
        )
        counts = {**report.nodes, **report.edges}
        journal.show(
            ("type", "entities"), [{"type": k, "entities": n} for k, n in sorted(counts.items())]
        )
        journal.tell(
            f"{report.records:,} records in {report.seconds:.1f} s, "
            f"{report.records_per_second:,.0f} a second, in one commit"
        )
        journal.page_only(draw_bars([(one.name, one.seconds) for one in report.steps], unit="s"))
    return Stage(uri=uri, queries=resource("packages.gq"), journal=journal, data=data)


def _ask(stage: Stage, graph: Graph) -> str:
    """Four questions of the five; the last is about the past."""
    journal = stage.journal
    with journal.chapter("all that comes with one package"):
        [busiest] = stage.ask(graph, "busiest") or [{"name": stage.data.packages[0].name}]
        hero = str(busiest["name"])
        stage.ask(graph, "closure", params={"name": hero})
    with journal.chapter("who needs each other"):
        stage.ask(graph, "cycles")
    with journal.chapter(f"full text and traversal: “{stage.data.search_words}”"):
        stage.ask(graph, "about", params={"words": stage.data.search_words})
    with journal.chapter("what is relied on most"):
        stage.ask(graph, "sections")
    _picture(stage, graph)
    return hero


def _picture(stage: Stage, graph: Graph) -> None:
    """The packages that most others need, and who of them needs whom."""
    with stage.journal.chapter("the core, drawn"):
        core = graph.query(stage.queries, "core").to_pylist()
        names = [str(row["name"]) for row in core]
        rows = graph.query(stage.queries, "among", params={"names": names}).to_pylist()
        edges = [(str(row["a.name"]), str(row["b.name"])) for row in rows]
        groups = {str(row["name"]): str(row["section"] or "") for row in core}
        picture = small_graph(edges, groups)  # those that nobody here needs would only float about
        stage.journal.tell(
            f"the {len(names)} packages that most others need, and {len(edges)} needs among them"
        )
        if picture.is_small:
            stage.journal.page_only(draw_graph(picture))


def _review(stage: Stage, graph: Graph, hero: str) -> dict[str, str]:
    """A change on a branch while main goes on; labels for the commits made here."""
    journal, successor = stage.journal, f"{hero}-next"
    with journal.chapter("a branch, a change, a preview, a merge"):
        graph.create_branch(BRANCH, actor="ada")
        summary = f"the successor of {hero}"
        made = graph.mutate(
            stage.queries,
            "add",
            params={"name": successor, "summary": summary, "needs": hero},
            branch=BRANCH,
            actor="ada",
        )
        meanwhile = graph.mutate(
            stage.queries,
            "describe",
            params={"name": hero, "summary": f"soon replaced by {successor}"},
            actor="bob",
        )
        journal.tell(f"ada adds {successor} on {BRANCH}; bob changes {hero} on main meanwhile")
        preview = graph.merge_preview(BRANCH)
        journal.tell("what a merge would do:")
        journal.show(
            ("type", "inserted", "updated", "deleted"),
            [{"type": key, **counts.to_json()} for key, counts in preview.changes.items()],
        )
        journal.tell(f"conflicts: {len(preview.conflicts)}")
        merged = graph.merge(BRANCH, actor="ada")
        journal.tell(f"merged {BRANCH} into main: {merged.outcome}")
        labels = {"ada adds": made.commit, "bob edits": meanwhile.commit, "merge": merged.commit}
        return {commit.graph_commit_id: label for label, commit in labels.items() if commit}


def _look_back(stage: Stage, graph: Graph, loaded: str) -> None:
    journal = stage.journal
    with journal.chapter("time travel"):
        then = graph.query(stage.queries, "size", snapshot=loaded).to_pylist()[0]["packages"]
        now = graph.query(stage.queries, "size").to_pylist()[0]["packages"]
        journal.tell(f"right after the load there were {then:,} packages, now there are {now:,}")
        changes = graph.diff(loaded, "main")
        journal.show(
            ("op", "kind", "type", "id"),
            [
                {"op": one.op, "kind": one.kind, "type": one.type_name, "id": one.id}
                for one in changes.changes
            ],
        )


def _crash(stage: Stage, hero: str) -> None:
    """Two writers die: one before its tables changed, one after; never is there half a write."""
    journal = stage.journal
    with journal.chapter("two writers are killed in the middle"):
        rows = [
            killed_writer(
                stage.uri, step, queries=stage.queries, name=f"killed-{number}", needs=hero
            )
            for number, step in enumerate((Step.SIDECAR_WRITTEN, Step.TABLES_APPLIED), start=1)
        ]
        journal.show(list(rows[0]), rows)
        journal.tell("each write is there as a whole or not at all, and nobody had to help")


def _optimize(stage: Stage, graph: Graph, labels: dict[str, str]) -> None:
    journal = stage.journal
    with journal.chapter("optimize"):
        before = {one.type_key: one for one in graph.health().datasets}
        report = graph.optimize()
        after = {one.type_key: one for one in graph.health().datasets}
        journal.show(
            ("type", "fragments before", "after", "indexes"),
            [
                {
                    "type": key,
                    "fragments before": before[key].fragments,
                    "after": one.fragments,
                    "indexes": ", ".join(f"{i.kind} {i.property}" for i in one.indexes),
                }
                for key, one in after.items()
                if key in before
            ],
        )
        if report.commit is not None:
            labels[report.commit.graph_commit_id] = "optimize"
    with journal.chapter("the same search again, with nothing in memory"):
        stage.ask(graph, "about", params={"words": stage.data.search_words})


def _history(stage: Stage, graph: Graph, labels: Mapping[str, str]) -> None:
    journal = stage.journal
    with journal.chapter("the history"):
        commits = {
            one.graph_commit_id: one for branch in graph.branches() for one in graph.commits(branch)
        }
        ordered = sorted(commits.values(), key=lambda one: -one.created_us)
        named = {one.graph_commit_id: one.actor_id or "genesis" for one in ordered} | dict(labels)
        journal.show(
            ("commit", "branch", "actor", "what"),
            [
                {
                    "commit": one.graph_commit_id,
                    "branch": one.graph_branch,
                    "actor": one.actor_id,
                    "what": labels.get(one.graph_commit_id, ""),
                }
                for one in ordered
            ],
        )
        heads = {commit_id: [what] for commit_id, what in named.items()}
        journal.page_only(draw_commits(in_order(ordered), heads))
        journal.page_only(graph.snapshot()._repr_html_())


def _query_text(queries: str, name: str) -> str:
    """One query out of the file: from its name to the next one."""
    start = queries.index(f"query {name}(")
    end = queries.find("\nquery ", start)
    return queries[start : None if end < 0 else end].strip()


def summary_json(facts: Mapping[str, Any], journal: Journal, report: Path) -> str:
    """What `--json` prints."""
    times = [{"name": name, "seconds": round(seconds, 3)} for name, seconds in journal.times]
    return json.dumps({**facts, "report": str(report), "chapters": times}, indent=2)


# --- pictures, as SVG text ------------------------------------------------------------------------


def draw_bars(values: Sequence[tuple[str, float]], *, unit: str) -> str:
    """One bar a value, each with its name and number."""
    longest = max([value for _, value in values], default=0.0) or 1.0
    parts = []
    for row, (name, value) in enumerate(values):
        y = 8 + 24 * row
        width = max(value / longest * 360, 1)
        parts.append(
            f'<text x="274" y="{y + 13}" text-anchor="end">{label(name, limit=44)}</text>'
            f'<rect x="282" y="{y}" width="{width:.1f}" height="17" fill="{COLOURS[0]}"/>'
            f'<text x="{288 + width:.1f}" y="{y + 13}">{value:,.2f} {escaped(unit)}</text>'
        )
    return svg(WIDTH, 16 + 24 * len(values), parts, title="times")


# --- two writers are killed -----------------------------------------------------------------------


def killed_writer(uri: str, step: Step, *, queries: str, name: str, needs: str) -> dict[str, Any]:
    """Let another process write, kill it at the step, and settle what it left behind; what was
    seen of it."""
    with _stopped_writer(uri, step, name=name, needs=needs) as writer:
        with Graph.open(uri, mode=OpenMode.READ_ONLY) as reader:
            seen_meanwhile = _is_there(reader, queries, name)
        writer.kill()
        writer.wait()
    with Graph.open(uri, mode=OpenMode.READ_ONLY) as reader:
        left_behind = len(reader.pending_recoveries())
    with Graph.open(uri) as graph:  # opening for writing settles it
        settled = [one.recovery_kind for one in graph.recoveries()][-1:]
        return {
            "killed at": step.value,
            "readers saw it": seen_meanwhile,
            "unfinished writes left": left_behind,
            "the next writer": settled[0] if settled and left_behind else "had nothing to do",
            "it is there now": _is_there(graph, queries, name),
        }


@contextmanager
def _stopped_writer(
    uri: str, step: Step, *, name: str, needs: str
) -> Iterator[subprocess.Popen[str]]:
    """A process that has written up to the step and waits there."""
    words = [sys.executable, "-m", __name__, uri, step.value, name, needs]
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as writer:
        try:
            assert writer.stdout is not None, "it has a pipe"
            line = writer.stdout.readline().strip()
            if line != f"at {step}":
                writer.kill()
                assert writer.stderr is not None, "it has a pipe"
                said = writer.stderr.read().strip().splitlines()[-1:]
                raise UnavailableError(f"the writer to be killed ended by itself: {said}")
            yield writer
        finally:
            writer.kill()


def _is_there(graph: Graph, queries: str, name: str) -> str:
    return "yes" if graph.query(queries, "one", params={"name": name}).row_count else "no"


class StopAt:
    """Stops the writer at one step, as if the machine had frozen there."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def reach(self, step: Step) -> None:
        if step is self._step:
            sys.stdout.write(f"at {step}\n")
            sys.stdout.flush()
            sys.stdin.read()  # ends when the parent is gone
            os._exit(1)


def main(uri: str, step: str, name: str, needs: str) -> None:
    """The writer that gets killed: add one package to the graph, up to the step."""
    with Graph.open(uri, world=World(steps=StopAt(Step(step)))) as graph:
        params = {"name": name, "summary": "written by a process that was killed", "needs": needs}
        graph.mutate(resource("packages.gq"), "add", params=params, actor="victim")


if __name__ == "__main__":
    main(*sys.argv[1:])
