"""Draw docs/internals/architecture.svg: the floors of the code and five journeys through them."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "docs/internals/architecture.svg"
WIDTH, HEIGHT = 1000, 1000
FONT = 'font-family="DejaVu Sans, Helvetica, Arial, sans-serif"'

# name, words, colour, x, y, width, height
FLOORS = (
    ("cli · demo", "words in, one engine call, words out", "#eef3f7", 20, 20, 760, 84),
    ("pipeline", "only what says pyspark", "#fdf1e3", 20, 116, 760, 84),
    ("engine", "a plan meets tables", "#eaf5ec", 20, 212, 760, 222),
    ("compiler", "pure text", "#f3eefa", 20, 446, 270, 132),
    ("storage", "the only folder that says lance", "#e6f0fa", 302, 446, 478, 220),
    (
        "model · errors",
        "structs, values, limits, ports; one tree of errors",
        "#f4f4f0",
        20,
        678,
        760,
        62,
    ),
)
# name, words, x, y, width, height
BOXES = {
    "cli": ("main, call, query, load, …", 300, 38, 220, 48),
    "demo": ("story, pictures", 550, 38, 200, 48),
    "session": ("own JVM start", 190, 134, 110, 48),
    "runner": ("tasks on Spark", 310, 134, 120, 48),
    "streams, export": ("jobs, report", 440, 134, 150, 48),
    "data source": ("DataFrames in, out", 600, 134, 160, 48),
    "graph.py": ("Graph: every call of the API", 300, 226, 190, 40),
    "load": ("inputs, shape, stage", 40, 284, 140, 52),
    "check": ("ids, unique, ends, degrees", 196, 284, 140, 52),
    "write": ("mutate, pending", 352, 284, 120, 52),
    "read": ("match, memory, search", 488, 284, 130, 52),
    "merge · history": ("base, diff, feed, blame", 634, 284, 128, 52),
    "rows": ("values to columns, keys", 40, 362, 140, 52),
    "expr": ("one evaluator", 196, 362, 140, 52),
    "evolve": ("schema apply", 352, 362, 120, 52),
    "maintain": ("optimize, cleanup, repair", 488, 362, 130, 52),
    "embed": ("texts to vectors", 634, 362, 128, 52),
    "text": ("one kit", 34, 500, 70, 56),
    "schema": (".pg", 112, 500, 80, 56),
    "query": (".gq", 200, 500, 80, 56),
    "store.py": ("an open graph", 640, 462, 124, 36),
    "commit": ("writer, sidecar, recovery", 316, 512, 140, 56),
    "manifest": ("publisher, refs, history", 472, 512, 140, 56),
    "table": ("read, stage, index, upkeep", 628, 512, 138, 56),
    "objects": ("local, s3, lease", 316, 592, 140, 54),
    "lance": ("line: open, head, commit, fork, drop, fsync, damage", 472, 592, 294, 54),
}
OUTSIDE = (
    ("Spark", "spreads tasks", 134),
    ("Arrow", "columns and kernels", 300),
    ("Lance", "datasets with versions", 602),
    ("disk or S3", "conditional puts", 690),
)
# name, colour, the files it passes (a house test looks for them), the boxes that are marked
JOURNEYS = (
    (
        "a mutation",
        "#c0392b",
        (
            "cli/query engine/graph engine/write/mutate engine/check storage/commit/writer"
            " storage/manifest/publisher"
        ),
        "cli graph.py write check commit manifest",
    ),
    (
        "a query",
        "#2471a3",
        (
            "cli/query engine/graph compiler/query/compile engine/read/run engine/read/match"
            " storage/table/read"
        ),
        "cli graph.py query read table",
    ),
    (
        "a load",
        "#b9620f",
        (
            "cli/load engine/load/run engine/load/stage engine/check storage/commit/writer"
            " storage/manifest/publisher"
        ),
        "cli runner load check commit manifest",
    ),
    (
        "recovery",
        "#6c3483",
        (
            "engine/core storage/store storage/commit/recovery storage/commit/judge"
            " storage/manifest/publisher storage/commit/audit"
        ),
        "graph.py store.py commit manifest",
    ),
    (
        "a merge",
        "#1e8449",
        (
            "cli/branch engine/merge/run engine/merge/combine engine/history/difference"
            " engine/check storage/commit/writer"
        ),
        "cli merge check commit",
    ),
)


def text(
    x: float, y: float, words: str, *, size: float, colour: str = "#1d2b36", more: str = ""
) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{more}>{words}</text>'


def rect(x: float, y: float, width: float, height: float, look: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" {look}/>'


def centred(x: float, y: float, words: str, *, size: float, colour: str = "#1d2b36") -> str:
    return text(x, y, words, size=size, colour=colour, more=' text-anchor="middle"')


def badge(x: float, y: float, number: int, colour: str) -> list[str]:
    circle = f'<circle cx="{x}" cy="{y}" r="8" fill="{colour}"/>'
    return [
        circle,
        centred(x, y + 4, f"<tspan font-weight='bold'>{number}</tspan>", size=11, colour="#fff"),
    ]


def floors() -> list[str]:
    drawn = []
    for name, words, colour, x, y, width, height in FLOORS:
        drawn.append(rect(x, y, width, height, f'rx="8" fill="{colour}" stroke="#5b6770"'))
        drawn.append(text(x + 12, y + 22, name, size=16, more=' font-weight="bold"'))
        drawn.append(text(x + 12, y + 39, words, size=11, colour="#44525c"))
    return drawn


def boxes() -> list[str]:
    drawn = []
    for name, (words, x, y, width, height) in BOXES.items():
        drawn.append(rect(x, y, width, height, 'rx="5" fill="#fff" stroke="#8a97a0"'))
        drawn.append(centred(x + width / 2, y + height / 2 - 1, name, size=12.5))
        drawn.append(centred(x + width / 2, y + height / 2 + 12, words, size=9.5, colour="#5b6770"))
    for name, words, y in OUTSIDE:
        dashed = 'rx="20" fill="#fafafa" stroke="#8a97a0" stroke-dasharray="4 3"'
        drawn.append(rect(830, y, 150, 46, dashed))
        drawn.append(centred(905, y + 20, name, size=12.5))
        drawn.append(centred(905, y + 35, words, size=9.5, colour="#5b6770"))
    return drawn


def journeys() -> list[str]:
    drawn: list[str] = []
    marked: Counter[str] = Counter()
    for number, (name, colour, files, passed) in enumerate(JOURNEYS, start=1):
        for box in passed.split():
            key = "merge · history" if box == "merge" else box
            _, x, y, width, _ = BOXES[key]
            drawn += badge(x + width - 4 - 17 * marked[key], y, number, colour)
            marked[key] += 1
        y = 770 + 46 * (number - 1)
        drawn += badge(32, y + 14, number, colour)
        drawn.append(text(48, y + 18, name, size=13))
        drawn += strip(y, colour, files.split())
    return drawn


def strip(y: int, colour: str, files: list[str]) -> list[str]:
    drawn = []
    for index, file in enumerate(files):
        x, width = 140 + 140 * index, 128
        short = "/".join(file.split("/")[-2:])
        edge = f'rx="5" fill="#fff" stroke="{colour}" stroke-width="1.6"'
        drawn.append(rect(x, y, width, 28, edge))
        drawn.append(centred(x + width / 2, y + 18, short, size=11))
        if index + 1 < len(files):
            arrow = f"M {x + width} {y + 14} h 10 m -4 -4 l 4 4 l -4 4"
            drawn.append(f'<path d="{arrow}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    return drawn


def picture() -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        "<title>The floors of OmniGraph and five journeys through them</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *floors(),
        *boxes(),
        *journeys(),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    sys.stdout.write(f"drew {PICTURE.name}\n")
