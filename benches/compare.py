"""Two results of `run.py` or of `read.py` side by side.

    python benches/compare.py BEFORE.json AFTER.json [--tolerance 1.25]

Prints a line a case: ours before, ours after, the second over the first, and what ours is of the
others (raw operations or the best peer) in each. What ours is of the others travels between
machines and noisy minutes, so that decides where both results have it, and milliseconds where not.
Leaves with status 1 if a case grew beyond the tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOBODY = -1.0  # `read.py` writes this where no peer answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One case of one result; `of_others` is None where there is nothing to compare with. What was
    seen only once is shown and not judged."""

    ours: float
    of_others: float | None = None
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One case in both results; None where only one of them has it."""

    case: str
    before: Figure | None
    after: Figure | None

    def grew_beyond(self, tolerance: float) -> bool:
        """Whether ours now takes more than before, compared with others where there are any."""
        if self.before is None or self.after is None or self.after.once:
            return False
        if self.before.of_others is not None and self.after.of_others is not None:
            return self.after.of_others > self.before.of_others * tolerance
        return self.after.ours > self.before.ours * tolerance


def figures(result: dict[str, Any]) -> dict[str, Figure]:
    """Every case of a result, by where it was taken and its name."""
    if "graphs" in result:
        return dict(figure for graph in result["graphs"] for figure in read_figures(graph))
    return {
        f"{scenario}: {measure['name']}": Figure(
            ours=measure["ours_ms"], of_others=measure["ratio"]
        )
        for scenario, measures in result["scenarios"].items()
        for measure in measures
    }


def read_figures(graph: dict[str, Any]) -> Iterator[tuple[str, Figure]]:
    """The questions put to ours, and what was measured of ours alone."""
    engine = graph["engines"]["omnigraph"]
    for name, row in engine["rows"].items():
        best = graph["ratios"][name]["best"]
        of_others = None if best == NOBODY else best
        yield f"{graph['graph']}: {name}", Figure(ours=row["warm"], of_others=of_others)
        yield f"{graph['graph']}: {name}, first", Figure(ours=row["first"], once=True)
    alone = {"cold": engine["cold"], "resident MB": engine["resident_mb"]}
    alone |= {name: ms for name, ms in graph["ours"].items() if name.startswith("cold")}
    for name, ms in graph["ours"].get("after a commit", {}).items():
        alone[f"{name}, after a commit"] = ms["after"]
    for name, ms in graph["ours"].get("lookup and optimize", {}).items():
        if name != "optimize":
            alone[f"point lookup, {name} optimize"] = ms
    for name, ms in alone.items():
        yield f"{graph['graph']}: {name}", Figure(ours=ms)


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Every case of either result, in the order of the first."""
    old, new = figures(before), figures(after)
    cases = list(dict.fromkeys([*old, *new]))
    return [Change(case=case, before=old.get(case), after=new.get(case)) for case in cases]


def line(change: Change, tolerance: float, width: int) -> str:
    """One case for people."""
    before, after = change.before, change.after
    if before is None or after is None:
        return f"{change.case:{width}}  only {'after' if before is None else 'before'}"
    times = f"x{after.ours / before.ours:.2f}" if before.ours else "-"
    of_others = " -> ".join(
        "-" if each.of_others is None else f"{each.of_others:.2f}" for each in (before, after)
    )
    verdict = "worse" if change.grew_beyond(tolerance) else "" if after.once else "ok"
    return (
        f"{change.case:{width}}{before.ours:11,.3f} -> {after.ours:11,.3f}{times:>9}"
        f"{of_others:>18}  {verdict}"
    )


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare two benchmark results.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--tolerance", type=float, default=1.25, help="allowed growth (1.25)")
    chosen = parser.parse_args(words)
    found = changes(*(json.loads(path.read_text()) for path in (chosen.before, chosen.after)))
    width = max(len(change.case) for change in found)
    print(f"{'':{width}}{'before':>11}    {'after':>11}{'':9}{'of others':>18}")
    print("\n".join(line(change, chosen.tolerance, width) for change in found))
    return int(any(change.grew_beyond(chosen.tolerance) for change in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
