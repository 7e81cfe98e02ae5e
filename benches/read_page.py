"""Results of `read.py` as the tables of a page, which they replace.

    python benches/read_page.py RESULT.json [RESULT.json …] [--page docs/reference/performance.md]

Every graph of the results is taken; of two with the same name the later one. A variant is a table:
ours and DuckDB at each size, ours over DuckDB, and ours at the last size over ours at the one
before. What is beyond what we promise is bold. What only ours is asked follows, sizes side by side.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Any

OURS, PEER = "omnigraph", "duckdb"
BEGIN, END = "<!-- results: written by benches/read_page.py -->", "<!-- end of results -->"
RATIO_MAX, GROWTH_MAX = 1.5, 6.0
BUDGETED = "omnigraph, 1 GB"
FACTS = {"resident_mb": "memory after walks and tables, MB", "searching_mb": "after searches, MB"}
COLD = ("cold with a cache file", "cold without")


def tables(results: list[dict[str, Any]]) -> str:
    """What was measured where, and a table for each variant."""
    graphs = {graph["graph"]: graph for result in results for graph in result["graphs"]}
    about = results[-1]["about"]
    peer = next(
        (g["engines"][PEER]["version"] for g in graphs.values() if PEER in g["engines"]), ""
    )
    said = (
        f"Milliseconds, warm, by the clock; in brackets the time of all processors.\n"
        f"Taken {about['taken_at'][:10]}: OmniGraph {about['omnigraph']}, DuckDB {peer}, "
        f"Python {about['python']}, {about['processors']} processors.\n"
        f"Bold: more than {RATIO_MAX} times DuckDB, or grown more than {GROWTH_MAX:.0f} times."
    )
    variants = dict.fromkeys(graph["variant"] for graph in graphs.values())
    parts = [_table(v, [g for g in graphs.values() if g["variant"] == v]) for v in variants]
    return "\n\n".join([said, *parts, *_ours([g for g in graphs.values() if g.get("ours")])])


def _ours(graphs: list[dict[str, Any]]) -> list[str]:
    """What only ours is asked, a table for each question; sizes are side by side."""
    if not graphs:
        return []
    asked = {graph["graph"]: graph["ours"] for graph in graphs}
    first = [
        [words.removeprefix("cold "), *(one[words] for one in asked.values())] for words in COLD
    ]
    memory = [
        [f"{words}, with all / with 1 GB", *(_budgets(graph, fact) for graph in graphs)]
        for fact, words in FACTS.items()
        if any(BUDGETED in graph["engines"] for graph in graphs)
    ]
    found = [_listed("New process to its first two hops, ms", asked, first)]
    found += [_listed("Memory", asked, memory)] if memory else []
    for words in ("after a commit", "after a commit on a branch"):
        rows = [
            [name, *(_shown(one[words][name], ("before", "more")) for one in asked.values())]
            for name in next(iter(asked.values()))[words]
        ]
        found.append(
            _listed(f"First read {words} of one row and one edge: ms before, more", asked, rows)
        )
    rows = [
        [
            name,
            *(
                _shown(one["optimize"][name], ("before", "after", "reopened after"))
                for one in asked.values()
            ),
        ]
        for name in ("point lookup", "2 hops")
    ]
    found.append(
        _listed("Around `optimize`, ms: before, after, in a handle opened after", asked, rows)
    )
    readers = [name for name in next(iter(asked.values()))["readers"] if "beside" not in name]
    rows = [
        [name, *(_shown(one["readers"][name], ("one", "four", "ratio")) for one in asked.values())]
        for name in readers
    ]
    found.append(_listed("Answers a second: one reader, four, ratio", asked, rows))
    return found


def _budgets(graph: dict[str, Any], fact: str) -> str:
    return " / ".join(_number(graph["engines"].get(one, {}).get(fact)) for one in (OURS, BUDGETED))


def _shown(figures: dict[str, float], names: tuple[str, ...]) -> str:
    return ", ".join(_number(figures[name]) for name in names)


def _listed(title: str, sizes: Collection[str], rows: list[list[Any]]) -> str:
    variants = {size.partition(" ")[2] for size in sizes}
    names = [size if len(variants) > 1 else size.partition(" ")[0] for size in sizes]
    lines = [f"| {' | '.join([title, *names])} |", f"|---|{'--:|' * len(names)}"]
    for name, *cells in rows:
        shown = [cell if isinstance(cell, str) else _number(cell) for cell in cells]
        lines.append(f"| {' | '.join([name, *shown])} |")
    return "\n".join(lines)


def _table(variant: str, graphs: list[dict[str, Any]]) -> str:
    graphs = sorted(graphs, key=lambda graph: graph["nodes"])
    sizes = [graph["graph"].removesuffix(f" {variant}") for graph in graphs]
    head = ["", *(word for size in sizes for word in (size, "DuckDB", "ratio"))]
    head += ["growth"] if len(graphs) > 1 else []
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 1)}"]
    names = dict.fromkeys(name for graph in graphs for name in graph["engines"][OURS]["rows"])
    for name in names:
        rows = [_row(graph, name) for graph in graphs]
        cells = [cell for ours, theirs in rows for cell in _cells(ours, theirs)]
        took = [ours["warm"] if ours else None for ours, _ in rows]
        grown = [b / a if a and b else None for a, b in pairwise(took)]
        cells += [_bold(grown[-1], GROWTH_MAX)] if grown else []
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for fact, words in FACTS.items():
        cells = []
        for graph in graphs:
            for engine in (OURS, PEER):
                cells.append(_number(graph["engines"].get(engine, {}).get(fact)))
            cells.append("")
        cells += [""] if len(graphs) > 1 else []
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join([f"### {variant.capitalize()} data", "", *lines])


def _row(graph: dict[str, Any], name: str) -> tuple[dict[str, float], dict[str, float]]:
    ours, theirs = (graph["engines"].get(each, {"rows": {}})["rows"] for each in (OURS, PEER))
    return ours.get(name, {}), theirs.get(name, {})


def _cells(ours: dict[str, float], theirs: dict[str, float]) -> list[str]:
    shown = [f"{_number(row.get('warm'))} ({_number(row.get('cpu'))})" if row else "-"
             for row in (ours, theirs)]  # fmt: skip
    ratio = ours["warm"] / theirs["warm"] if ours and theirs else None
    return [*shown, _bold(ratio, RATIO_MAX)]


def _bold(value: float | None, most: float) -> str:
    text = "-" if value is None else f"{value:.2f}" if value < 1 else f"{value:.1f}"
    return f"**{text}**" if value is not None and value > most else text


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def replaced(page: str, results: str) -> str:
    """The page with other results between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{results}\n\n{END}{after}"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Write results into the page about performance.")
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--page", type=Path, default=Path("docs/reference/performance.md"))
    chosen = parser.parse_args(words)
    made = tables([json.loads(path.read_text()) for path in chosen.results])
    chosen.page.write_text(replaced(chosen.page.read_text(), made))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
