"""Throws generated and damaged query texts at the compiler: no crash, no hang, round trip holds.

Run `python benches/fuzz_queries.py [inputs] [first seed]` (100,000 and 0 if not given); prints
JSON and exits 1 at the first input that is not answered with a plan or with one of our errors.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "compiler"))

from query_texts import CATALOG, EXAMPLES, TreeMaker, damaged

from omnigraph.compiler.query import compile_query, format_source, lint_source, parse_file
from omnigraph.compiler.query.printer import laid_out
from omnigraph.errors import InputError

TEXTS = [body for _, body in EXAMPLES]


def run(inputs: int, first_seed: int = 0) -> dict[str, object]:
    """Counts per outcome and the slowest input, in milliseconds."""
    outcomes: Counter[str] = Counter()
    slowest_ms = 0.0
    for seed in range(first_seed, first_seed + inputs):
        source = _text(seed)
        started = time.perf_counter()
        try:
            _answer(source, outcomes)
        except Exception:
            print(f"seed {seed} broke the compiler:\n{source}", file=sys.stderr)
            raise
        slowest_ms = max(slowest_ms, (time.perf_counter() - started) * 1000)
    return {"inputs": inputs, "slowest_ms": round(slowest_ms, 1), "outcomes": dict(outcomes)}


def _text(seed: int) -> str:
    random = Random(seed)
    if seed % 2:
        return damaged(random, TEXTS)
    file = TreeMaker(random).file()
    source = laid_out(file)
    assert parse_file(source) == file, f"seed {seed}: printing and parsing changed the tree"
    return source


def _answer(source: str, outcomes: Counter[str]) -> None:
    report = lint_source(source, CATALOG)
    outcomes.update(finding.code for finding in report.findings if finding.code == "Q000")
    for result in report.results:
        outcomes[result.code or result.status] += 1
        with suppress(InputError):
            compile_query(source, CATALOG, result.name)
    with suppress(InputError):
        printed = format_source(source)
        assert parse_file(printed) == parse_file(source), "formatting changed the tree"
        assert format_source(printed) == printed, "formatting twice changes the text again"


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    print(json.dumps(run(*(given or [100_000])), indent=2))
