"""Compare two results of `run.py` by their ratios, which travel between machines.

    python benches/compare.py BEFORE.json AFTER.json [--tolerance 1.25]

Prints one line a case; leaves with status 1 if a ratio grew beyond the tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One case in both results; None where only one of them has it."""

    case: str
    before: float | None
    after: float | None

    def grew_beyond(self, tolerance: float) -> bool:
        """Whether ours now takes more than before, compared with raw."""
        return (
            self.before is not None
            and self.after is not None
            and self.after > self.before * tolerance
        )


def ratios(result: dict) -> dict[str, float]:
    """The ratio of every case, by scenario and name."""
    return {
        f"{scenario}: {measure['name']}": measure["ratio"]
        for scenario, measures in result["scenarios"].items()
        for measure in measures
    }


def changes(before: dict, after: dict) -> list[Change]:
    """Every case of either result, in the order of the first."""
    old, new = ratios(before), ratios(after)
    cases = list(dict.fromkeys([*old, *new]))
    return [Change(case=case, before=old.get(case), after=new.get(case)) for case in cases]


def line(change: Change, tolerance: float) -> str:
    """One case for people."""
    if change.before is None or change.after is None:
        return f"{change.case}: only {'after' if change.before is None else 'before'}"
    verdict = "worse" if change.grew_beyond(tolerance) else "ok"
    return f"{change.case}: {change.before:.2f} -> {change.after:.2f} {verdict}"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare two benchmark results.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--tolerance", type=float, default=1.25, help="allowed growth (1.25)")
    chosen = parser.parse_args(words)
    found = changes(*(json.loads(path.read_text()) for path in (chosen.before, chosen.after)))
    print("\n".join(line(change, chosen.tolerance) for change in found))
    return int(any(change.grew_beyond(chosen.tolerance) for change in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
