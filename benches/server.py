"""The server under load, on loopback: CPU per request beside the engine's own, requests a second,
and what happens under writers, kills and slow readers.

    python benches/server.py FOLDER cpu|wrk|writers|kills|export|cold|healthz|masked [--seconds S] …

Needs the extra `server`; `wrk` needs the program of that name. Counts are bounded; nothing but
loopback is used.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "server"))

from serving import Served, serving

from omnigraph import Graph

SCHEMA = """
node Person { name: String @key  age: I32 }
node Tally { name: String @key  count: I64 }
edge Knows: Person -> Person
"""
TWO_HOP = """query two($name: String) {
  match { $p: Person { name: $name }  $p knows $m  $m knows $f } return { $f.name, $f.age }
}"""
LOOKUP = "query one($name: String) { match { $p: Person { name: $name } } return { $p.age } }"
INSERT = "query add($n: String) { insert Person { name: $n, age: 1 } }"
BUMP = "query bump($n: I64) { update Tally set { count: $n } where name = 't' }".replace("'", '"')
COUNT = "query total() { match { $t: Tally } return { $t.count } }"
TICKS = os.sysconf("SC_CLK_TCK")
INSERTED, BUMPED = "/graphs/inserted", "/graphs/bumped"


def graph_at(folder: Path, *, people: int = 10_000, edges: int = 50_000) -> Path:
    """The graph of the reads: made once."""
    path = folder / f"people-{people}.omni"
    if path.exists():
        return path
    chance = random.Random(7)
    lines = [
        json.dumps({"type": "Person", "data": {"name": f"p{n}", "age": n % 90}})
        for n in range(people)
    ]
    lines += [
        json.dumps({"edge": "Knows", "from": f"p{a}", "to": f"p{b}", "data": {}})
        for a, b in ((chance.randrange(people), chance.randrange(people)) for _ in range(edges))
    ]
    lines.append(json.dumps({"type": "Tally", "data": {"name": "t", "count": 0}}))
    with Graph.init(path, SCHEMA) as graph:
        graph.load("\n".join(lines), mode="append")
    return path


def cpu_seconds(pid: int) -> float:
    """Of the process and all its threads, so far."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / TICKS


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_cpu(folder: Path, options: argparse.Namespace) -> None:
    """Server CPU per 2-hop request, and the engine's for the same queries."""
    path, rounds = graph_at(folder, people=options.people, edges=5 * options.people), options.count
    names = [f"p{n % options.people}" for n in range(rounds)]
    with Graph.open(path) as graph:
        graph.query(TWO_HOP, params={"name": "p1"}).to_json_rows()
        start = time.process_time()
        for name in names:
            graph.query(TWO_HOP, params={"name": name}).to_json_rows()
        engine = (time.process_time() - start) / rounds
    with serving([path], folder=folder) as served:
        graph_id = f"/graphs/{path.stem}"
        for source, label in ((TWO_HOP, "2-hop"), (LOOKUP, "lookup")):
            for name in names[:50]:
                served.post(f"{graph_id}/query", {"query": source, "params": {"name": name}})
            start = cpu_seconds(served.process.pid)
            for name in names:
                found = served.post(
                    f"{graph_id}/query", {"query": source, "params": {"name": name}}
                )
                assert found.status == 200, found
            spent = (cpu_seconds(served.process.pid) - start) / rounds
            print(f"{label}: server {spent * 1000:.3f} ms, engine 2-hop {engine * 1000:.3f} ms")
        start = cpu_seconds(served.process.pid)
        for _ in names:
            served.get("/healthz")
        spent = (cpu_seconds(served.process.pid) - start) / rounds
        print(f"healthz: server {spent * 1000:.3f} ms")


def wrk_script(folder: Path, graph_id: str, people: int) -> Path:
    script = folder / "two_hop.lua"
    body = json.dumps({"query": TWO_HOP, "params": {"name": "NAME"}}).replace("\\", "\\\\")
    script.write_text(
        f"""local body = '{body}'
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
request = function()
  local text = body:gsub("NAME", "p" .. math.random(0, {people - 1}))
  return wrk.format(nil, "/graphs/{graph_id}/query", nil, text)
end
"""
    )
    return script


def measure_wrk(folder: Path, options: argparse.Namespace) -> None:
    """Requests a second by wrk: the 2-hop at 2 and 16 connections, and /healthz."""
    path = graph_at(folder, people=options.people, edges=5 * options.people)
    script = wrk_script(folder, path.stem, options.people)
    with serving([path], "--workers", str(options.workers), folder=folder) as served:
        for connections in (2, 16):
            print(f"2-hop, {options.workers} workers, {connections} connections")
            run_wrk(served, connections, options.seconds, "-s", str(script))
        print("healthz")
        run_wrk(served, 16, options.seconds, path="/healthz")


def run_wrk(served: Served, connections: int, seconds: float, *more: str, path: str = "/") -> None:
    pids = [served.process.pid, *children(served.process.pid)]
    start = sum(map(cpu_seconds, pids))
    found = subprocess.run(
        [
            *("wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--latency"),
            *more,
            served.url + path,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    for line in found.stdout.splitlines():
        if any(word in line for word in ("50%", "99%", "Requests/sec", "Non-2xx", "Socket")):
            print("   ", line.strip())
        if "requests in" in line:
            spent = (sum(map(cpu_seconds, pids)) - start) / int(line.split()[0])
            print(f"    server CPU {spent * 1000:.3f} ms a request")


# --- writers --------------------------------------------------------------------------------------


class Writer(threading.Thread):
    """Inserts people, or bumps the tally of another graph on the condition that nobody else has,
    until told."""

    def __init__(self, served: Served, number: int, until: float) -> None:
        super().__init__()
        self.served, self.number, self.until = served, number, until
        self.root = INSERTED if number % 2 else BUMPED
        self.receipts: list[str] = []
        self.bumps = 0
        self.statuses: Counter[int | str] = Counter()

    def run(self) -> None:
        count = 0
        while time.monotonic() < self.until:
            count += 1
            try:
                if self.number % 2:
                    self.insert(count)
                else:
                    self.bump()
            except Exception as problem:  # noqa: BLE001 - a killed worker hangs up
                self.statuses[type(problem).__name__] += 1
                time.sleep(0.05)

    def insert(self, count: int) -> None:
        name = f"w{self.number}-{count}-{self.until}"
        body = {"query": INSERT, "params": {"n": name}}
        found = self.served.post(f"{self.root}/mutate", body)
        self.statuses[found.status] += 1
        if found.status == 200:
            self.receipts.append(found.json["commit"]["graph_commit_id"])
        elif found.status in (429, 503):
            time.sleep(0.1)

    def bump(self) -> None:
        seen = self.served.post(f"{self.root}/query", {"query": COUNT})
        if seen.status != 200:
            self.statuses[seen.status] += 1
            return
        found = self.served.post(
            f"{self.root}/mutate/if-graph-commit",
            {"query": BUMP, "params": {"n": seen.json["rows"][0]["t.count"] + 1}},
            headers={"omnigraph-if-graph-commit": seen.json["graph_commit_id"]},
        )
        self.statuses[found.status] += 1
        if found.status == 200:
            self.bumps += 1
            self.receipts.append(found.json["commit"]["graph_commit_id"])
        elif found.status in (412, 429, 503):
            time.sleep(0.02)


def judged(served: Served, root: str, writers: list[Writer]) -> None:
    """Every receipt is in the history once."""
    history = [one["graph_commit_id"] for one in served.get(f"{root}/commits").json["commits"]]
    counts = Counter(history)
    mine = [writer for writer in writers if writer.root == root]
    receipts = [one for writer in mine for one in writer.receipts]
    statuses = sum((writer.statuses for writer in mine), Counter())
    print(f"{root}: {len(receipts)} receipts, {len(history)} commits, statuses {dict(statuses)}")
    missing = [one for one in receipts if counts[one] != 1]
    assert not missing, f"receipts that are not in the history once: {missing[:5]}"
    assert len(set(receipts)) == len(receipts), "one commit was told twice"
    assert statuses[500] == 0, "a writer met a 500"


def no_bump_lost(served: Served, writers: list[Writer]) -> None:
    """The tally is what conditional writers were told that they made it."""
    bumps = sum(writer.bumps for writer in writers)
    now = served.post(f"{BUMPED}/query", {"query": COUNT}).json["rows"][0]["t.count"]
    broken = any(isinstance(name, str) for writer in writers for name in writer.statuses)
    print(f"tally {now}, acknowledged bumps {bumps}")
    assert bumps > 0, "nobody won a race"
    # Where a worker was killed, a bump may have landed that nobody was told of.
    assert now >= bumps if broken else now == bumps, "an acknowledged update was lost"


def write_load(folder: Path, options: argparse.Namespace, *, kills: int) -> None:
    paths = [folder / "inserted.omni", folder / "bumped.omni"]
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        with Graph.init(path, SCHEMA) as graph:
            graph.load('{"type":"Tally","data":{"name":"t","count":0}}', mode="append")
    workers = max(options.workers, 2 if kills else 1)
    env = {"OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "64"}
    with serving(paths, "--workers", str(workers), folder=folder, env=env) as served:
        until = time.monotonic() + options.seconds
        writers = [Writer(served, n, until) for n in range(options.writers)]
        for writer in writers:
            writer.start()
        back = [killed_one(served) for _ in range(kills)]
        for writer in writers:
            writer.until = min(writer.until, time.monotonic() + 2) if kills else writer.until
        for writer in writers:
            writer.join()
        for root in (INSERTED, BUMPED):
            judged(served, root, writers)
        no_bump_lost(served, writers)
        if back:
            started, ready = (sorted(each) for each in zip(*back, strict=True))
            print(f"{kills} kills; seconds until another was started: max {started[-1]:.2f};")
            print(f"until it was ready: median {ready[len(ready) // 2]:.2f}, max {ready[-1]:.2f}")
    for path in paths:
        with Graph.open(path) as graph:
            found = graph.verify()
            assert found.ok, found.problems


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(one) for one in text.split()]


def killed_one(served: Served) -> tuple[float, float]:
    """Kill a worker with -9: seconds until another was started, and until it was ready."""
    time.sleep(random.uniform(0.3, 1.2))
    before = children(served.process.pid)
    ready = times_ready(served)
    os.kill(random.choice(before), signal.SIGKILL)
    start = time.monotonic()
    started = waited_for(lambda: set(children(served.process.pid)) - set(before), start)
    return started, waited_for(lambda: times_ready(served) > ready, start)


def times_ready(served: Served) -> int:
    return served.log.read_text().count('"message":"ready"')


def waited_for(look: Callable[[], object], start: float) -> float:
    while not look():
        assert time.monotonic() - start < 30, "the worker did not come back"
        time.sleep(0.01)
    return time.monotonic() - start


# --- others ---------------------------------------------------------------------------------------


def export_memory(folder: Path, options: argparse.Namespace) -> None:
    """Growth of the server while a big export is read, also by a slow reader."""
    path = graph_at(folder, people=options.people, edges=10)
    with serving([path], folder=folder) as served:
        pid, most = served.process.pid, 0.0
        served.post(f"/graphs/{path.stem}/export", {"type_names": ["Tally"]})
        base = rss_mb(pid)
        pool = served.pool
        found = pool.request(
            "POST",
            f"{served.url}/graphs/{path.stem}/export",
            body=b"{}",
            headers={"content-type": "application/json"},
            preload_content=False,
        )
        size = 0
        while chunk := found.read(1 << 16):
            size += len(chunk)
            most = max(most, rss_mb(pid) - base)
        print(f"{size / 1e6:.0f} MB exported, server grew by {most:.1f} MB (from {base:.0f} MB)")
        slow = pool.request(
            "POST",
            f"{served.url}/graphs/{path.stem}/export",
            body=b"{}",
            headers={"content-type": "application/json"},
            preload_content=False,
        )
        took = []
        for _ in range(20):
            slow.read(4096)
            start = time.monotonic()
            served.post(f"/graphs/{path.stem}/query", {"query": COUNT})
            took.append(time.monotonic() - start)
            time.sleep(4096 / 65_536)
        print(f"beside a reader of 64 KB/s a query takes {statistics.median(took) * 1000:.1f} ms")
        slow.close()
        start = time.monotonic()
        while "omnigraph_export_streams 0.0" not in served.get("/metrics").body.decode():
            assert time.monotonic() - start < 10, "the slot was not given back"
            time.sleep(0.02)
        print(f"slot free {time.monotonic() - start:.2f} s after the reader went away")


def cold_start(folder: Path) -> None:
    """Twenty graphs: seconds until the socket is there, and until all are open."""
    paths = []
    for number in range(20):
        path = folder / f"cold-{number}.omni"
        if not path.exists():
            Graph.init(path, SCHEMA).close()
        paths.append(path)
    start = time.monotonic()
    with serving(paths, folder=folder, ready=False) as served:
        bound = time.monotonic() - start
        while served.get("/readyz").status != 200:
            time.sleep(0.02)
        print(f"socket after {bound:.2f} s, ready after {time.monotonic() - start:.2f} s")


def healthz_beside(folder: Path, options: argparse.Namespace) -> None:
    """p99 of /healthz while queries run that each take about five seconds: all pairs of people."""
    path = graph_at(folder, people=options.people, edges=5 * options.people)
    slow = "match { $a: Person  $b: Person  $a.age < $b.age } return { count(*) as n }"
    with serving([path], folder=folder) as served:
        until = time.monotonic() + options.seconds
        lasted: list[float] = []

        def keep_busy() -> None:
            while time.monotonic() < until:
                start = time.monotonic()
                served.post(f"/graphs/{path.stem}/query", {"query": slow})
                lasted.append(time.monotonic() - start)

        busy = threading.Thread(target=keep_busy)
        busy.start()
        took = []
        while time.monotonic() < until:
            start = time.monotonic()
            served.get("/healthz")
            took.append(time.monotonic() - start)
            time.sleep(0.005)
        busy.join()
        took.sort()
        p99 = took[int(len(took) * 0.99)] * 1000
        print(f"{len(took)} asked, p50 {took[len(took) // 2] * 1000:.1f} ms, p99 {p99:.1f} ms")
        print(f"{len(lasted)} slow queries beside it, the longest {max(lasted):.1f} s")


POLICY = """
version: 1
groups: { readers: [ann], callers: [bob] }
rules:
  - id: read
    allow: { actors: { group: readers }, actions: [read] }
  - id: call
    allow: { actors: { group: callers }, actions: [read, invoke_query] }
"""


def masked(folder: Path, options: argparse.Namespace) -> None:
    """How long a stored query that is not there takes, and one that the actor may not call."""
    path = graph_at(folder, people=options.people, edges=5 * options.people)
    (folder / "stored.gq").write_text(LOOKUP)
    (folder / "policy.yaml").write_text(POLICY)
    env = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ann": "token-ann", "bob": "token-bob"}'}
    given = ("--queries", str(folder / "stored.gq"), "--policy", str(folder / "policy.yaml"))
    cases = {
        "denied": ("token-ann", "one"),
        "denied and unknown": ("token-ann", "none"),
        "unknown": ("token-bob", "none"),
    }
    took: dict[str, list[float]] = {name: [] for name in cases}
    with serving([path], *given, folder=folder, env=env) as served:
        for _ in range(options.count):
            for name, (token, query) in cases.items():
                start = time.perf_counter()
                found = served.post(
                    f"/graphs/{path.stem}/queries/{query}",
                    headers={"authorization": f"Bearer {token}"},
                )
                took[name].append(time.perf_counter() - start)
                assert found.status == 404, found
    for name, times in took.items():
        times.sort()
        low, half = times[len(times) // 10], times[len(times) // 2]
        print(f"{name}: p10 {low * 1e6:.0f} µs, p50 {half * 1e6:.0f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("what")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--writers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    match options.what:
        case "cpu":
            measure_cpu(options.folder, options)
        case "wrk":
            measure_wrk(options.folder, options)
        case "writers":
            write_load(options.folder, options, kills=0)
        case "kills":
            write_load(options.folder, options, kills=options.kills)
        case "export":
            export_memory(options.folder, options)
        case "cold":
            cold_start(options.folder)
        case "healthz":
            healthz_beside(options.folder, options)
        case "masked":
            masked(options.folder, options)
        case other:
            parser.error(f"what is {other}?")


if __name__ == "__main__":
    main()
