"""The graphs of a server: opened in the background, put aside when they cannot be, tried again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

import msgspec

from omnigraph.engine.graph import Graph
from omnigraph.errors import OmnigraphError
from omnigraph.model.limits import (
    SERVER_OPEN_WAIT_MS_MAX,
    SERVER_OPENING_MAX,
    SERVER_RETRY_MS_MAX,
    SERVER_RETRY_MS_MIN,
)
from omnigraph.server.settings import GraphSpec, is_graph_id
from omnigraph.server.stored import StoredQueries
from omnigraph.server.work import RETRY_LATER, Pool
from omnigraph.wire.failures import RefusedError

logger = logging.getLogger(__name__)


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """One open graph and its stored queries."""

    spec: GraphSpec
    graph: Graph
    queries: StoredQueries

    @property
    def graph_id(self) -> str:
        return self.spec.graph_id


Open = Callable[[GraphSpec], Served]


class Graphs:
    """All graphs that were asked for, by id. Everything here runs in the event loop's thread."""

    def __init__(self, specs: tuple[GraphSpec, ...], open_graph: Open, pool: Pool) -> None:
        self._specs = {spec.graph_id: spec for spec in specs}
        self._open = open_graph
        self._pool = pool
        self._served: dict[str, Served] = {}
        self._problems: dict[str, str] = {}
        self._retries: set[asyncio.Task[None]] = set()
        self._settled = {graph_id: asyncio.Event() for graph_id in self._specs}

    # --- asking ---

    async def found(self, graph_id: str) -> Served:
        """The graph of that id; one that is being opened is waited for."""
        served = self._served.get(graph_id)
        if served is not None:
            return served
        if not is_graph_id(graph_id):
            raise RefusedError(400, "a graph id is 1 to 64 letters, digits and hyphens")
        settled = self._settled.get(graph_id)
        if settled is not None and not settled.is_set():
            try:
                async with asyncio.timeout(SERVER_OPEN_WAIT_MS_MAX / 1000):
                    await settled.wait()
            except TimeoutError as cause:
                raise RefusedError(
                    503, f"graph '{graph_id}' is still being opened", headers=RETRY_LATER
                ) from cause
        served = self._served.get(graph_id)
        if served is None:
            raise RefusedError(404, f"graph '{graph_id}' not found")
        return served

    def __iter__(self) -> Iterator[Served]:
        return iter([self._served[graph_id] for graph_id in sorted(self._served)])

    @property
    def problems(self) -> dict[str, str]:
        """Why each graph that was put aside could not be opened."""
        return dict(sorted(self._problems.items()))

    @property
    def quarantined(self) -> list[str]:
        return sorted(self._problems)

    @property
    def is_settled(self) -> bool:
        """Whether every graph was opened or put aside."""
        return all(settled.is_set() for settled in self._settled.values())

    # --- opening ---

    async def open_all(self) -> None:
        """Open every graph, a few at a time; those that fail are tried again later."""
        room = asyncio.Semaphore(SERVER_OPENING_MAX)

        async def one(spec: GraphSpec) -> None:
            async with room:
                if not await self._tried(spec):
                    task = asyncio.create_task(self._retried(spec))
                    self._retries.add(task)
                    task.add_done_callback(self._retries.discard)

        await asyncio.gather(*map(one, self._specs.values()))

    async def _tried(self, spec: GraphSpec) -> bool:
        try:
            served = await self._pool.run_always(lambda: self._open(spec))
        except OmnigraphError as problem:
            self._problems[spec.graph_id] = problem.message
        except Exception as problem:
            logger.exception("graph failed to open", extra={"graph": spec.graph_id})
            self._problems[spec.graph_id] = f"{type(problem).__name__}"
        else:
            self._served[spec.graph_id] = served
            self._problems.pop(spec.graph_id, None)
            logger.info("graph opened", extra={"graph": spec.graph_id, "uri": spec.uri})
        self._settled[spec.graph_id].set()
        problem_text = self._problems.get(spec.graph_id)
        if problem_text is not None:
            facts = {"graph": spec.graph_id, "problem": problem_text}
            logger.warning("graph put aside", extra=facts)
        return problem_text is None

    async def _retried(self, spec: GraphSpec) -> None:
        wait_ms = SERVER_RETRY_MS_MIN
        while True:
            await asyncio.sleep(wait_ms / 1000)
            if await self._tried(spec):
                return
            wait_ms = min(2 * wait_ms, SERVER_RETRY_MS_MAX)

    def close(self) -> None:
        for task in self._retries:
            task.cancel()
        for served in self._served.values():
            served.graph.close()
