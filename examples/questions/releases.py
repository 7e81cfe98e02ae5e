"""Makes the example graph with times: projects, people and releases, the same in every run.

python examples/questions/releases.py > releases.jsonl
omnigraph init --schema examples/questions/releases.pg releases.omni
omnigraph load --data releases.jsonl --mode append releases.omni
omnigraph query --query examples/questions/releases.gq latest --store releases.omni
"""

from __future__ import annotations

import datetime as dt
import json
import random
from typing import Any

PROJECTS = {"axle": "rust", "birch": "python", "cedar": "python", "delta": "c", "ember": "rust"}
PEOPLE = ["Ada", "Ben", "Cho", "Dia", "Eli", "Fay"]


def facts() -> dict[str, list[dict[str, Any]]]:
    """Projects, people and releases as plain values; `before` is the tag of the release before."""
    chance = random.Random(7)
    people = [
        {"name": name, "joined": None if name == "Fay" else str(dt.date(2020, 1 + number, 15))}
        for number, name in enumerate(PEOPLE)
    ]
    releases: list[dict[str, Any]] = []
    for project in PROJECTS:
        at = dt.datetime(2020, chance.randint(1, 12), chance.randint(1, 28), 9, tzinfo=dt.UTC)
        before = None
        for number in range(1, chance.randint(12, 25)):
            tag = f"{project}-{number}.0"
            releases.append(
                {
                    "tag": tag,
                    "project": project,
                    "at": at,
                    "downloads": None if chance.random() < 0.2 else chance.randint(0, 9000),
                    "by": chance.choice(PEOPLE[:3] if project < "c" else PEOPLE),
                    "before": before,
                }
            )
            before = tag
            at += dt.timedelta(days=chance.randint(5, 160), minutes=chance.randint(0, 1439))
    projects = [{"name": name, "language": language} for name, language in PROJECTS.items()]
    return {"projects": projects, "people": people, "releases": releases}


def records() -> list[dict[str, Any]]:
    """The facts as the lines that a load takes."""
    known = facts()
    lines: list[dict[str, Any]] = [{"type": "Project", "data": each} for each in known["projects"]]
    lines += [{"type": "Person", "data": each} for each in known["people"]]
    for each in known["releases"]:
        data = {
            "tag": each["tag"],
            "at": each["at"].isoformat().replace("+00:00", "Z"),
            "day": str(each["at"].date()),
            "downloads": each["downloads"],
        }
        lines.append({"type": "Release", "data": data})
    for each in known["releases"]:
        lines.append({"edge": "Has", "from": each["project"], "to": each["tag"]})
        lines.append({"edge": "MadeBy", "from": each["tag"], "to": each["by"]})
        if each["before"] is not None:
            lines.append({"edge": "Follows", "from": each["tag"], "to": each["before"]})
    return lines


if __name__ == "__main__":
    for line in records():
        print(json.dumps(line))
