"""Damages real schemas and queries until something breaks, and grows bad inputs until they hang.

    python benches/fuzz_compiler.py                      100,000 texts a language, then the growth
    python benches/fuzz_compiler.py --inputs 5000 --seed 3

Whatever the text, the compiler may only answer or raise one of our errors. Exits with 1, and prints
the text and the seed that found it, otherwise; or when a text that is four times as long takes more
than twelve times as long.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from omnigraph.compiler.query import lint_source
from omnigraph.compiler.query.parse import parse_file
from omnigraph.compiler.schema import compile_schema, format_schema, print_schema
from omnigraph.errors import OmnigraphError

WORD = re.compile(r"@?\w+")
PAGES = Path(__file__).resolve().parents[1] / "docs" / "reference"
DAMAGE = '{}()[]<>$"\\/*,.:=!-+@? \n_eE09aZé\x00\u2028\ud800'
TIMES_SLOWER_MAX = 12  # for four times the text; 4 is linear, 16 quadratic
GROWTH_BYTES = 60_000

# A piece that is repeated, between a beginning and an end.
SCHEMA_GROWTH = {
    "blanks": ("", " \t\n", ""),
    "comment that never ends": ("/*", "* /", ""),
    "comments": ("", "/* */ // x\n", ""),
    "string that never ends": ('node N @d("', "\\\\a", ""),
    "enum values": ("node N { a: enum(x", ",v{n}", ") }"),
    "the same enum value": ("node N { a: enum(x", ",v", ") }"),
    "annotations": ("node N ", "@a ", "{}"),
    "named arguments": ("node N @a(1", ",k{n}=1", ") {}"),
    "columns": ("node N { @unique(a", ",b{n}", ") }"),
    "interfaces": ("node N implements I", ",I{n}", " {}"),
    "ats": ("node N { a: String ", "@", "}"),
    "digits": ("node N { v: Vector(", "9", ") }"),
    "braces": ("", "{", ""),
    "wrong types": ("", "node N{n} {{ a: Strin }} ", ""),
    "unknown ends": ("", "edge E{n}: Nodd{n} -> Nodd{n} ", "node Node {}"),
}
QUERY_GROWTH = {
    "parentheses": ("query q() { match { $p: Person  filter ", "(", ""),
    "conditions": ("query q() { match { $p: Person $p.age > 1 ", "and 1 < 2 ", "} return { $p } }"),
    "projections": ("query q() { match { $p: Person } return { $p.name", ", $p.name", " } }"),
    "string that never ends": ('query q() { match { $p: Person { name: "', "\\\\a", ""),
    "comment that never ends": ("/*", "* /", ""),
    "queries": ("", "query q{n}() {{ match {{ $p: Person }} return {{ $p.name }} }} ", ""),
}


def blocks(page: str, language: str) -> list[str]:
    """The examples of a reference page."""
    text = (PAGES / page).read_text("utf-8")
    parts = text.split(f"```{language}")[1:]
    return [part.partition("\n")[2].partition("```")[0] for part in parts]


def damaged(chance: Random, texts: list[str]) -> str:
    """One of the texts with a few places changed: characters, or words by words of any text."""
    text = chance.choice(texts)
    for _ in range(chance.randint(1, 3)):
        if chance.random() < 0.5:
            words = list(WORD.finditer(text)) or [None]
            word = chance.choice(words)
            start, end = word.span() if word else (0, 0)
            middle = chance.choice(WORD.findall(chance.choice(texts)) or [""])
        else:
            start = chance.randint(0, len(text))
            end = min(len(text), start + chance.choice((0, 0, 1, 8)))
            middle = chance.choice(("", chance.choice(DAMAGE), text[start:end] * 2))
        text = text[:start] + middle + text[end:]
    return text


def try_schema(text: str) -> str:
    """Compile, print and lay out a schema; what is printed must mean the same."""
    try:
        catalog = compile_schema(text)
    except OmnigraphError:
        return "refused"
    assert compile_schema(print_schema(catalog)).hash == catalog.hash, "printing lost meaning"
    assert compile_schema(format_schema(text)).hash == catalog.hash, "layout lost meaning"
    return "compiled"


def try_query(text: str) -> str:
    """Parse and lint a query file; linting never raises."""
    lint_source(text, CATALOG)
    try:
        parse_file(text)
    except OmnigraphError:
        return "refused"
    return "parsed"


CATALOG = compile_schema(blocks("query-language.md", "pg")[0])


def fuzz(
    name: str, texts: list[str], attempt: Callable[[str], str], args: argparse.Namespace
) -> bool:
    """Whether every damaged text was answered in kind."""
    chance = Random(args.seed)
    outcomes: Counter[str] = Counter()
    slowest, begun = (0.0, 0), time.perf_counter()
    for number in range(args.inputs):
        text = damaged(chance, texts)
        start = time.perf_counter()
        try:
            outcomes[attempt(text)] += 1
        except Exception as error:  # noqa: BLE001 - finding these is what the bench is for
            print(f"{name}: input {number} of seed {args.seed}: {error!r}\n{text!r}")
            return False
        slowest = max(slowest, (time.perf_counter() - start, len(text)))
    took = time.perf_counter() - begun
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(
        f"{name}: {args.inputs} inputs, {counts}; {took:.1f} s, "
        f"slowest {slowest[0] * 1000:.1f} ms for {slowest[1]} characters"
    )
    return True


def grown(form: tuple[str, str, str], size: int) -> str:
    head, piece, tail = form
    count = max(1, size // len(piece))
    if "{n}" not in piece:
        return head + piece * count + tail
    return head + "".join(piece.format(n=number) for number in range(count)) + tail


def seconds(attempt: Callable[[str], str], text: str) -> float:
    """The best of three, with a different last character each time, so that no cache answers."""
    best = float("inf")
    for blanks in range(3):
        start = time.perf_counter()
        attempt(text + " " * blanks)
        best = min(best, time.perf_counter() - start)
    return best


def grow(name: str, forms: dict[str, tuple[str, str, str]], attempt: Callable[[str], str]) -> bool:
    """Whether time grows about as fast as the text."""
    fine = True
    for label, form in forms.items():
        small = seconds(attempt, grown(form, GROWTH_BYTES))
        large = seconds(attempt, grown(form, GROWTH_BYTES * 4))
        ratio = large / max(small, 0.001)
        fine = fine and ratio <= TIMES_SLOWER_MAX
        print(f"{name}, {label}: {small * 1000:.1f} ms, four times the text {large * 1000:.1f} ms")
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    schemas = [*blocks("schema-language.md", "pg"), *blocks("query-language.md", "pg")]
    schemas = [text for text in schemas if try_schema(text) == "compiled"]
    queries = [text for text in blocks("query-language.md", "gq") if try_query(text) == "parsed"]
    fine = [
        fuzz("schemas", schemas, try_schema, args),
        fuzz("queries", queries, try_query, args),
        grow("schemas", SCHEMA_GROWTH, try_schema),
        grow("queries", QUERY_GROWTH, try_query),
    ]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
