"""What `read.py` measures of ours alone: reads after a one-row commit, on main and on a branch,
reads before and after `optimize`, and several readers of one handle. Each verb works on a copy of
the graph."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from typing import Any

from read_engines import Omnigraph, makes_beside, milliseconds
from read_questions import BY_NAME, DIMENSION, TABLES, Question

AFTER_COMMIT = ("point lookup", "2 hops", "group by age: count, avg", "text top 10")
COMMITS = 9
WARMING = 12  # answers, after which what is asked again and again is kept
READERS = 4
READ_SECONDS = 3.0
SHORT = BY_NAME["point lookup"]
LONG = Question(  # seconds at five million people, in threads and in this one
    "group by a computed text",
    TABLES,
    "nothing",
    "match { $p: Person } return { lower($p.bio) as bio, count(*) as many } "
    "order { many desc } limit 5",
)
WHOLE = BY_NAME["top 10 by degree"]  # needs the whole topology


def asked(engine: Omnigraph, name: str, value: Any) -> float:
    return milliseconds(partial(engine.ask, BY_NAME[name], value))


def median_of(work: Callable[[Any], float], values: list[Any]) -> float:
    for value in islice(cycle(values), WARMING):
        work(value)
    while makes_beside():
        time.sleep(0.05)
    return round(statistics.median(work(value) for value in values), 3)


def commit(engine: Omnigraph, values: dict[str, list[Any]]) -> dict[str, Any]:
    """Each question before, and as the first read after a commit of one person and one edge."""
    engine.ask(WHOLE, None)  # so that the topology is there, and nothing is built beside
    figures = {"after a commit": after_commits(engine, values, "new")}
    engine.graph.create_branch("side")
    engine.branch = "side"
    return figures | {"after a commit on a branch": after_commits(engine, values, "side")}


def after_commits(
    engine: Omnigraph, values: dict[str, list[Any]], prefix: str
) -> dict[str, dict[str, float]]:
    figures: dict[str, Any] = {}
    made = 0
    for name in AFTER_COMMIT:
        parameters = values[BY_NAME[name].about]
        before = median_of(partial(asked, engine, name), parameters[: COMMITS * 2])
        after, wrote = [], []
        for value in parameters[:COMMITS]:
            made += 1
            newest = f"{prefix}-{made}"
            wrote.append(milliseconds(partial(write, engine, newest, values["person"][0])))
            after.append(asked(engine, name, value))
        seen = engine.ask(BY_NAME["2 hops"], f"{prefix}-{made}")
        assert seen == engine.ask(BY_NAME["1 hop"], values["person"][0]), "it sees the commit"
        after_ms = round(statistics.median(after), 3)
        figures[name] = {
            "before": before,
            "after": after_ms,
            "more": round(after_ms - before, 3),
            "commit": round(statistics.median(wrote), 3),
        }
    return figures


def write(engine: Omnigraph, name: str, friend: str) -> None:
    person = {"name": name, "age": 1, "city": "c000", "email": None, "score": None}
    person |= {"bio": "w0001 w0002", "vec": [1.0] * DIMENSION}
    edge = {"edge": "Knows", "from": name, "to": friend, "data": {"since": 2000}}
    lines = [{"type": "Person", "data": person}, edge]
    text = "\n".join(json.dumps(line) for line in lines)
    engine.graph.load(text, mode="append", branch=engine.branch)


def lookup(engine: Omnigraph, values: dict[str, list[Any]]) -> dict[str, Any]:
    """Reads before and after `optimize`, on this handle (the first one too) and on a new one."""
    engine.ask(WHOLE, None)
    figures: dict[str, Any] = {}
    for name in ("2 hops", SHORT.name):
        values_of = values[BY_NAME[name].about]
        figures[name] = {"before": median_of(partial(asked, engine, name), values_of)}
    took = milliseconds(engine.graph.optimize)
    for name, figure in figures.items():
        values_of = values[BY_NAME[name].about]
        figure["first after"] = round(asked(engine, name, values_of[0]), 3)
        figure["after"] = median_of(partial(asked, engine, name), values_of)
    engine.graph.close()
    engine.open()
    for name, figure in figures.items():
        work = partial(asked, engine, name)
        figure["reopened after"] = median_of(work, values[BY_NAME[name].about])
    return {"optimize": {**figures, "took": round(took, 1)}}


def readers(engine: Omnigraph, values: dict[str, list[Any]]) -> dict[str, Any]:
    """Answers a second by one and by four threads of one handle; a short read beside a long one."""
    figures: dict[str, Any] = {}
    engine.ask(WHOLE, None)
    for name in (SHORT.name, "2 hops", "filter, count", "group by age: count, avg"):
        parameters = values[BY_NAME[name].about]
        median_of(partial(asked, engine, name), parameters)
        rates = [answers_a_second(engine, name, parameters, count) for count in (1, READERS)]
        figures[name] = {"one": rates[0], "four": rates[1], "ratio": round(rates[1] / rates[0], 2)}
    alone = [asked(engine, SHORT.name, value) for value in values["person"]]
    engine.ask(LONG, None)
    done = threading.Event()
    beside: list[float] = []

    def short() -> None:
        while not done.is_set():
            beside.append(asked(engine, SHORT.name, values["person"][0]))
            time.sleep(0.002)

    shorts = [threading.Thread(target=short) for _ in range(READERS - 1)]
    for reader in shorts:
        reader.start()
    took = [milliseconds(lambda: engine.ask(LONG, None)) for _ in range(3)]
    done.set()
    for reader in shorts:
        reader.join()
    figures["three that look up beside a long one"] = {
        "long": round(statistics.median(took), 1),
        "alone": round(statistics.median(alone), 3),
        "beside": round(statistics.median(beside), 3),
        "of a hundred the slowest": round(sorted(beside)[len(beside) * 99 // 100], 3),
        "worst": round(max(beside), 1),
    }
    return {"readers": figures}


def answers_a_second(engine: Omnigraph, name: str, parameters: list[Any], count: int) -> float:
    until = time.perf_counter() + READ_SECONDS
    made = [0] * count

    def read(which: int) -> None:
        while time.perf_counter() < until:
            engine.ask(BY_NAME[name], parameters[made[which] % len(parameters)])
            made[which] += 1

    threads = [threading.Thread(target=read, args=(which,)) for which in range(count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return round(sum(made) / (time.perf_counter() - began), 1)


VERBS = {"commit": commit, "lookup": lookup, "readers": readers}
