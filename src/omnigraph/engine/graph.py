"""`Graph`: the names that users call, each one call into the module that does the work."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from omnigraph.compiler.query import (
    CompiledQuery,
    LintReport,
    bind_params,
    compile_query,
    lint_source,
)
from omnigraph.engine import access
from omnigraph.engine.arguments import (
    FLAG,
    MAPPING_OR_NONE,
    PATH,
    TEXT,
    TEXT_OR_NONE,
    TEXTS_OR_NONE,
    instance,
    or_none,
    require,
)
from omnigraph.engine.core import Core, OpenMode, compiled_as, init_core, open_core, world_of
from omnigraph.engine.maintain.optimize import (
    DEFAULT_POLICY,
    AutoMaintenance,
    MaintenancePolicy,
)
from omnigraph.engine.read.context import ReadLimits, Run
from omnigraph.engine.read.run import Reader
from omnigraph.engine.refs import At
from omnigraph.engine.upkeep import Upkeep
from omnigraph.model.graph import MAIN
from omnigraph.model.machine import Later
from omnigraph.model.plan import SchemaPlan
from omnigraph.model.structs import html_block, html_table
from omnigraph.results.rows import Explanation, QueryResult
from omnigraph.results.writing import LoadResult, MutationResult, SchemaApplyResult
from omnigraph.storage.commit.outcome import tell_last_commit

if TYPE_CHECKING:
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.engine import evolve as evolving
    from omnigraph.engine.algorithms import run as algorithmic
    from omnigraph.engine.load import order as orders
    from omnigraph.engine.load import report as reporting
    from omnigraph.engine.load import run as loading
    from omnigraph.engine.read import export as exporting
    from omnigraph.engine.write import filling
    from omnigraph.engine.write import mutate as mutating
    from omnigraph.engine.write import transaction as transacting
    from omnigraph.model.pictures import schema as picturing
else:
    algorithmic = Later("omnigraph.engine.algorithms.run")
    evolving = Later("omnigraph.engine.evolve")
    orders = Later("omnigraph.engine.load.order")
    reporting = Later("omnigraph.engine.load.report")
    loading = Later("omnigraph.engine.load.run")
    exporting = Later("omnigraph.engine.read.export")
    filling = Later("omnigraph.engine.write.filling")
    mutating = Later("omnigraph.engine.write.mutate")
    transacting = Later("omnigraph.engine.write.transaction")
    picturing = Later("omnigraph.model.pictures.schema")

logger = logging.getLogger(__name__)

_LIMITS_OR_NONE = or_none(instance(ReadLimits))


class Graph(Upkeep):
    """One open graph. Safe to share between threads; several processes may open the same one.

    Use it in a `with` block, or call `close()`. A pickled graph is its address and how it was
    opened, so that it can be handed to the processes of a pool, each of which opens it anew. All
    calls are synchronous: in a program with asyncio, put them into `asyncio.to_thread`.

    Examples:
        >>> with Graph.open(graph.uri) as again:
        ...     again.query(NAMES).column("p.name")
        ['Ada', 'Bob', 'Cem']
    """

    def __init__(
        self,
        core: Core,
        *,
        maintenance: MaintenancePolicy | None = DEFAULT_POLICY,
        gate: access.Gate = access.OPEN,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Use `Graph.init` or `Graph.open`."""
        super().__init__(core, gate)
        self._options = dict(options or {})  # how another process opens the same
        self._auto = AutoMaintenance(core, maintenance, tidy=self._tidy)
        self._reader = Reader(
            core.store.tables, cache_bytes=core.world.cache_bytes, embedder=core.world.embedder
        )
        self._in_transaction: set[int] = set()  # threads with a transaction that is open
        self._stores_topologies = maintenance is not None and maintenance.topologies

    # --- opening and closing -----------------------------------------------------------------

    @classmethod
    def init(
        cls, uri: str | os.PathLike[str], schema_text: str, actor: str | None = None, **options: Any
    ) -> Graph:
        """Make an empty graph with this schema; `AlreadyExistsError` if one is there.

        `uri` is a folder or the address of an object store (`s3://bucket/people.omni`),
        `schema_text` a text of the schema language, or what `omnigraph.schema` makes of Python
        classes. `SchemaError` says where the text is wrong. The options are those of `open`.

        Examples:
            >>> with Graph.init(folder / "towns.omni", "node Town { name: String @key }") as towns:
            ...     towns.load({"Town": [{"name": "Ulm"}]}, mode="append").total_entities
            1
        """
        require(PATH, uri=uri)
        gate = access.Gate.of(options.pop("policy", None), actor)
        given, upkeep = dict(options), _maintenance(options)
        core = init_core(os.fspath(uri), schema_text, actor_id=actor, world=world_of(options))
        return cls(core, maintenance=upkeep, gate=gate, options=given)

    @classmethod
    def open(
        cls, uri: str | os.PathLike[str], mode: OpenMode | str = "read-write", **options: Any
    ) -> Graph:
        """Open the graph there; `NotFoundError` if there is none.

        Writes of this handle look after their tables by themselves; `maintenance=None` turns that
        off. `durability="process"` writes faster, but what was written last may be lost if the
        power fails (not if the process dies). `cache_bytes` bounds
        what reading keeps in memory (default: a quarter of the machine's, at least 1 GiB).
        `actor` acts through this handle, and does only what a `policy` (or its file) allows.
        `embedder` makes the vectors of `@embed` properties that are written without one, and of
        texts in `nearest`: a callable (texts in, vectors out), an `EmbedConfig`, or True for the
        provider that the environment names.
        With the mode "read-only" nothing is written, and every call that would is refused.

        Examples:
            >>> Graph.open(graph.uri, "read-only").branches()
            ['main']
        """
        require(PATH, uri=uri)
        gate = access.Gate.of(options.pop("policy", None), options.pop("actor", None))
        given, upkeep = dict(options), _maintenance(options)
        core = open_core(os.fspath(uri), mode=mode, world=world_of(options))
        return cls(core, maintenance=upkeep, gate=gate, options=given)

    @staticmethod
    def connect(
        url: str, *, token: str | None = None, graph: str | None = None, timeout: float = 60.0
    ) -> RemoteGraph:
        """A graph of a server: `http://host/graphs/alpha`, or the server's address and `graph`."""
        from omnigraph.client.graph import RemoteGraph  # noqa: PLC0415 - it stands above

        return RemoteGraph.connect(url, token=token, graph=graph, timeout=timeout)

    def acting_as(self, actor: str | None, *, policy: access.PolicySource | None = None) -> Graph:
        """The same open graph for another actor, by another policy (default: the one that this
        handle goes by). It ends with the graph that it was made from.

        Examples:
            >>> graph.acting_as("ann").mutate(ADD, params={"name": "Eve"}).actor_id
            'ann'
        """
        self._alive()
        view = copy(self)  # it ends with this one
        gate = access.Gate.of(self._gate.policy if policy is None else policy, actor)
        view.__dict__.update(_gate=gate, _is_borrowed=True)
        return view

    def close(self) -> None:
        """Let go of caches and background work; a closed graph refuses every call."""
        if self._is_borrowed:
            return
        self._ended.set()
        self._auto.close()
        self._reader.close()
        self._core.close()
        self._presence.close()

    def refresh(self) -> None:
        """See what other processes have committed, and settle what dead ones left unfinished."""
        core = self._alive()
        core.recover()
        core.head()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            tell_last_commit(error, self._core.writer.last_commit_id)
        self.close()

    def __repr__(self) -> str:
        return f"Graph({self.uri!r})"

    def _repr_html_(self) -> str:
        """For notebooks: how much there is of each type, and the schema as a picture."""
        core, snapshot = self._state("snapshot", MAIN, None)
        rows = [(one.entity_kind, one.type_name, one.entity_count) for one in snapshot.datasets]
        return html_block(
            f"{self.uri}: {len(self.branches()):,} branches, main at {snapshot.graph_commit_id}",
            picturing.draw_schema(core.catalog(snapshot)),
            html_table(("kind", "type", "entities"), rows),
        )

    def __copy__(self) -> Self:
        view = object.__new__(type(self))  # the same open graph; a pickled one is opened anew
        view.__dict__.update(self.__dict__)
        return view

    def __reduce__(self) -> tuple[Any, ...]:
        gate = {"policy": self._gate.policy, "actor": self._gate.actor}
        told = {name: value for name, value in gate.items() if value is not None}
        return _reopened, (self.uri, self._alive().mode, {**self._options, **told})

    # --- reading -----------------------------------------------------------------------------

    def query(
        self,
        source: str,
        name: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        snapshot: At | None = None,
        limits: ReadLimits | None = None,
        explain: bool = False,
    ) -> QueryResult:
        """Run one read query on one snapshot: the branch head, or the graph as it was.

        `source` is query text, or a bare `match { } return { }`; `name` says which query of it,
        where it has several. `params` are its parameters by name. `snapshot` takes a commit id or
        the beginning of one, a branch, a tag, `"main~2"`, a datetime or ISO text. `limits` bounds
        memory and time; with `explain` the result's `explanation` says what was done. `ParseError`
        and `TypeCheckError` say where the text is wrong, `ParameterError` which parameter is.

        Examples:
            >>> source = "query q($n: String) { match { $p: Person {name: $n} } return { $p.age } }"
            >>> graph.query(source, params={"n": "Ada"}).scalar()
            36
            >>> graph.query('match { $p: Person {name: "Ada"} } return { $p.age }').scalar()
            36
        """
        if limits is not None or explain is not False:  # a point read has no time for what is not
            require(_LIMITS_OR_NONE, limits=limits)
            require(FLAG, explain=explain)
        core, target = self._state("query", branch, snapshot)
        catalog = core.catalog(target)
        compiled = compiled_as("read", source, name, catalog)
        if type(params) is not dict:
            require(MAPPING_OR_NONE, params=params)
        with core.store.meanwhile(target.branch):
            return self._reader.run(
                compiled,
                params=bind_params(compiled.params, params or {}),
                catalog=catalog,
                snapshot=target,
                now_ms=core.world.clock.now_us() // 1000,
                limits=limits,
                explain=explain,
            )

    @property
    def algorithms(self) -> algorithmic.Algorithms:
        """Whole-graph algorithms, as Arrow tables by id.

        Examples:
            >>> graph.algorithms.pagerank("Knows").num_rows
            3
        """
        return algorithmic.Algorithms(self._reading)

    @contextmanager
    def _reading(self, branch: str, snapshot: At | None) -> Iterator[Run]:
        core, target = self._state("algorithms", branch, snapshot)
        with (
            core.store.meanwhile(target.branch),
            self._reader.reading(target, core.catalog(target)) as run,
        ):
            yield run

    def explain(
        self,
        source: str,
        name: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> Explanation:
        """Run a read query and tell how: strategies, expected and actual rows, times, reads.

        `str()` of it is a tree; a notebook draws it.

        Examples:
            >>> graph.explain(NAMES).root.name
            'query'
        """
        result = self.query(
            source, name, params=params, branch=branch, snapshot=snapshot, explain=True
        )
        assert result.explanation is not None, "it was asked for"
        return result.explanation

    def describe(
        self,
        source: str,
        name: str | None = None,
        *,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> CompiledQuery:
        """A query checked and not run: its name, kind, parameters, columns and what it touches."""
        require(TEXT, source=source)
        require(TEXT_OR_NONE, name=name)
        core, target = self._state("describe", branch, snapshot)
        return compile_query(source, core.catalog(target), name)

    def schema_source(self, branch: str = MAIN) -> str:
        """The schema of a branch, as it was written.

        Examples:
            >>> "node Person" in graph.schema_source()
            True
        """
        return self._allowed("schema_source").snapshot(branch).schema.source

    def lint(self, source: str, branch: str = MAIN) -> LintReport:
        """Check a query file against the schema; bad source becomes findings, never an error.

        Examples:
            >>> graph.lint("query q() { match { $p: Persn } return { $p.name } }").errors
            1
        """
        require(TEXT, source=source)
        core, target = self._state("lint", branch, None)
        return lint_source(source, core.catalog(target))

    def export(
        self, *, branch: str = MAIN, snapshot: At | None = None, types: Sequence[str] | None = None
    ) -> Iterator[str]:
        """The graph as NDJSON lines that `load` takes back, nodes first; `types` narrows it.

        Examples:
            >>> next(graph.export(types=["Person"]))
            '{"type":"Person","data":{"id":"Ada","name":"Ada","age":36,"photo":"base64:cG5n"}}'
        """
        require(TEXTS_OR_NONE, types=types)
        core, target = self._state("export", branch, snapshot)
        return exporting.export_lines(core.store, core.catalog(target), target, types)

    def read_blob(
        self,
        kind: str,
        type_name: str,
        id: str,  # noqa: A002 - the name is fixed by the API
        property: str,  # noqa: A002 - likewise
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> exporting.BlobReader:
        """The bytes of one Blob property, to be read like a file.

        `kind` is "node" or "edge". `NotFoundError` if there is no such entity or no value.

        Examples:
            >>> graph.read_blob("node", "Person", "Ada", "photo").read()
            b'png'
        """
        core, target = self._state("read_blob", branch, snapshot)
        return exporting.read_blob(
            core.store.tables, core.catalog(target), target, kind, type_name, id, property
        )

    # --- writing -----------------------------------------------------------------------------

    def mutate(
        self,
        source: str,
        name: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> MutationResult:
        """Run one mutation query as one commit, or not at all.

        `source`, `name` and `params` are those of `query`. `if_commit` refuses the change unless
        this commit is still the branch's head (`ConflictError`). With an `idempotency_key` it runs
        once, however often it is submitted. What breaks a rule of the schema is a
        `ConstraintViolationError` and changes nothing.

        Examples:
            >>> graph.mutate(ADD, params={"name": "Eve"}, message="Eve joins").affected_nodes
            1
        """
        core = self._allowed("mutate", branch=branch, actor=actor)
        order = mutating.MutationOrder(
            source=source,
            name=name,
            params=params,
            branch=branch,
            actor_id=self._gate.acting(actor),
            message=message,
            if_commit=if_commit,
            idempotency_key=idempotency_key,
        )
        return mutating.mutate(core, self._reader, order, then=self._auto.notice)

    def transaction(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        if_commit: str | None = None,
    ) -> transacting.Transaction:
        """Several mutations, loads and reads as one commit: use it in a `with` block.

        Reads inside see what is pending; an exception leaves nothing. Afterwards `commit` is the
        commit, None if nothing changed.

        Examples:
            >>> with graph.transaction(message="two at once") as tx:
            ...     _ = tx.mutate(ADD, params={"name": "Eve"})
            ...     _ = tx.mutate(ADD, params={"name": "Fay"})
            ...     tx.query(NAMES).row_count
            5
            >>> tx.commit.message
            'two at once'
        """
        core = self._allowed("transaction", branch=branch, actor=actor)
        order = transacting.TransactionOrder(
            branch=branch,
            actor_id=self._gate.acting(actor),
            message=message,
            if_commit=if_commit,
            gate=self._gate,
        )
        return transacting.Transaction(
            core, self._reader, order, self._in_transaction, then=self._auto.notice
        )

    def load(
        self,
        data: orders.LoadData,
        *,
        mode: str,
        type: str | None = None,  # noqa: A002 - the signature is fixed by the API
        branch: str = MAIN,
        from_branch: str | None = None,
        actor: str | None = None,
        strict: bool = True,
        message: str | None = None,
        idempotency_key: str | None = None,
        on_error: orders.OnError = "fail",
        quarantine: str | os.PathLike[str] | None = None,
        progress: reporting.Listener | None = None,
    ) -> LoadResult:
        """Load data as one commit, or change nothing.

        `data` is graph NDJSON (a str is the text itself, a path names a file or folder), records
        as dictionaries, or a mapping from types to their rows: dictionaries, a data frame, an Arrow
        table, a path, a `Source`. `type` says of which type all rows are. `mode` is "append",
        "merge" or "overwrite". A load with an `idempotency_key` lands once, however often it is
        submitted. `on_error="quarantine"` puts bad records into the folder `quarantine` (default:
        `<graph>.quarantine`) and loads the rest. `progress` is told how far it is.

        "append" refuses a key that is there, "merge" replaces its entity, "overwrite" all of the
        types that the data names. `RecordError` and `ConstraintViolationError` name the place.

        Examples:
            >>> rows = {"Person": [{"name": "Eve"}], "Knows": [{"from": "Eve", "to": "Ada"}]}
            >>> graph.load(rows, mode="append").total_entities
            2
        """
        core = self._alive()
        self._gate.require_load(core, branch=branch, from_branch=from_branch, actor=actor)
        order = orders.request_order(
            data,
            type_name=type,
            strict=strict,
            idempotency_key=idempotency_key,
            uri=self.uri,
            mode=mode,
            branch=branch,
            from_branch=from_branch,
            actor=self._gate.acting(actor),
            message=message,
            on_error=on_error,
            quarantine=quarantine,
            embed=self._core.world.embedder,
        )
        report = loading.load_here(core, order, listener=progress, then=self._auto.notice)
        self._store_topologies(branch)
        return LoadResult.of(report)

    def embed(
        self,
        branch: str = MAIN,
        *,
        types: Sequence[str] | None = None,
        actor: str | None = None,
        message: str | None = None,
    ) -> filling.EmbedReport:
        """Make the `@embed` vectors that stored entities lack, with the graph's `embedder`.

        Some thousand a commit: what is done stays when a later text fails, and a second call goes
        on from there.
        """
        return filling.fill_vectors(
            self._allowed("embed", branch=branch, actor=actor),
            branch=branch,
            types=types,
            actor_id=self._gate.acting(actor),
            message=message,
            then=self._auto.notice,
        )

    # --- schema ------------------------------------------------------------------------------

    def plan_schema(
        self,
        source: str,
        allow_data_loss: bool = False,  # noqa: FBT001, FBT002 - the signature is fixed by the API
        *,
        branch: str = MAIN,
    ) -> SchemaPlan:
        """The steps from the branch's schema to this one, without taking them.

        Examples:
            >>> more = graph.schema_source() + "node Town { name: String @key }"
            >>> [step.to_json()["kind"] for step in graph.plan_schema(more).steps]
            ['add_type']
        """
        core = self._told_by("plan_schema", branch)
        return evolving.plan_schema(core, source, branch=branch, allow_data_loss=allow_data_loss)

    def apply_schema(
        self,
        source: str,
        allow_data_loss: bool = False,  # noqa: FBT001, FBT002 - likewise
        actor: str | None = None,
        *,
        branch: str = MAIN,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> SchemaApplyResult:
        """Bring a branch to this schema in one commit; other branches keep theirs.

        With `allow_data_loss`, the past of dropped types and properties goes too, as far as no
        other branch needs it. With an `idempotency_key` the schema is applied once, however often
        it is submitted. `SchemaUnsupportedError` names the step that cannot be taken.

        Examples:
            >>> more = graph.schema_source() + "node Town { name: String @key }"
            >>> graph.apply_schema(more, message="towns").applied
            True
        """
        core = self._allowed("apply_schema", target=branch, actor=actor)
        return evolving.apply_schema(
            core,
            source,
            branch=branch,
            allow_data_loss=allow_data_loss,
            actor_id=self._gate.acting(actor),
            message=message,
            idempotency_key=idempotency_key,
        )


def _reopened(uri: str, mode: OpenMode, options: Mapping[str, Any]) -> Graph:
    """A graph that came from another process, opened here."""
    return Graph.open(uri, mode, **options)


def _maintenance(options: dict[str, Any]) -> MaintenancePolicy | None:
    policy: MaintenancePolicy | None = options.pop("maintenance", DEFAULT_POLICY)
    require(or_none(instance(MaintenancePolicy)), maintenance=policy)
    return policy
