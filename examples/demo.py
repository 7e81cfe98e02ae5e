"""The first five minutes: make a graph, ask it, change it on a branch, merge, look back.

Run it with `make demo`. It works in a temporary folder and leaves nothing behind.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.cli.output import TableStyle, table_lines

PEOPLE = Path(__file__).parent / "people"


def title(text: str) -> None:
    print(f"\n== {text}")


def show(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    for line in table_lines(columns, rows, style=TableStyle()):
        print(f"   {line}")


def ask(graph: Graph, queries: str, name: str, **target: Any) -> None:
    """Run one query of the file and print its rows."""
    result = graph.query(queries, name, **target)
    show(result.columns, result.to_json_rows())


def tour(folder: Path, say: Callable[[str], None] = title) -> None:
    """The whole story, in a folder of its own."""
    schema = (PEOPLE / "people.pg").read_text(encoding="utf-8")
    queries = (PEOPLE / "people.gq").read_text(encoding="utf-8")
    with Graph.init(str(folder / "people.omni"), schema, actor="demo") as graph:
        say("one load, one commit")
        loaded = graph.load(PEOPLE / "people.jsonl", mode="overwrite", actor="demo")
        print(f"   {dict(loaded.nodes)} {dict(loaded.edges)}")
        assert loaded.commit is not None, "a first load changes something"
        before = loaded.commit.graph_commit_id

        say("who is within three steps of Ada")
        ask(graph, queries, "circle_of", params={"name": "Ada"})
        say("who works where")
        ask(graph, queries, "staff")
        say("whose bio mentions a machine")
        ask(graph, queries, "about", params={"words": "machine"})

        say("a change on a branch of its own")
        graph.create_branch("review", actor="demo")
        hired = {"name": "Alan", "company": "Analytical Engines", "role": "logician"}
        graph.mutate(queries, "hire", params=hired, branch="review", actor="demo")
        print("   on main, without a job:")
        ask(graph, queries, "between_jobs")
        print("   on review:")
        ask(graph, queries, "between_jobs", branch="review")

        say("merged")
        print(f"   {graph.merge('review', into='main', actor='demo').outcome}")
        ask(graph, queries, "staff")

        say("as it was before")
        ask(graph, queries, "staff", snapshot=before)

        say("the history")
        commits = [commit.to_json() for commit in graph.commits()]
        show(("graph_commit_id", "graph_branch", "actor_id"), commits)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="omnigraph-demo-") as folder:
        tour(Path(folder))


if __name__ == "__main__":
    main()
