"""Stored queries: declared in `.gq` files, checked against the schema, called by name.

A registry is read as a whole and swapped as a whole: files that change while the server runs are
read anew, and if they no longer check, the former registry stays.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET

from omnigraph.compiler.query import CompiledQuery, ir, parse_file
from omnigraph.compiler.query.types import kind_word
from omnigraph.errors import InputError, NotFoundError, OmnigraphError
from omnigraph.model.limits import STORED_QUERIES_MAX
from omnigraph.model.schema import Scalar
from omnigraph.model.yaml_text import read_yaml
from omnigraph.wire.answers import ParamKind, QueryParam, StoredQueryOutput, maybe

logger = logging.getLogger(__name__)

CATALOGS: Final = (".yaml", ".yml")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class StoredQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One query that can be called by its name. `source` is the whole file it stands in."""

    name: str
    source: str
    path: str
    is_mutation: bool
    description: str | None = None
    instruction: str | None = None
    exposed: bool = True
    tool_name: str | None = None

    @property
    def tool(self) -> str:
        return self.tool_name or self.name


class Declared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a catalog file says of one query: where it stands, and how it is shown."""

    file: str
    expose: bool = True
    tool_name: str | None = None


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """Queries by name, and a digest of all that was read."""

    queries: Mapping[str, StoredQuery]
    digest: str

    @property
    def exposed(self) -> list[StoredQuery]:
        return [one for _, one in sorted(self.queries.items()) if one.exposed]


EMPTY: Final = Registry(queries={}, digest=hashlib.sha256(b"").hexdigest())


# --- reading --------------------------------------------------------------------------------------


def read_registry(place: str | None) -> Registry:
    """The queries of a `.gq` file, of every `.gq` file of a folder, or of a YAML catalog
    `{name: {file, expose, tool_name}}`; none at all if there is no place."""
    if place is None:
        return EMPTY
    root = Path(place)
    try:
        if root.suffix in CATALOGS:
            return _catalog(root)
        files = sorted(root.rglob("*.gq")) if root.is_dir() else [root]
        texts = [(file, file.read_text("utf-8")) for file in files]
    except FileNotFoundError as cause:
        raise NotFoundError(
            f"there are no stored queries at '{place}'", kind="file", name=place
        ) from cause
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(f"cannot read stored queries at '{place}': {cause}") from cause
    return registry_of([(str(file), text, None) for file, text in texts])


def _catalog(path: Path) -> Registry:
    declared = _declared(path)
    try:
        texts = [
            (str(path.parent / one.file), (path.parent / one.file).read_text("utf-8"), (name, one))
            for name, one in declared.items()
        ]
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(f"cannot read the queries of '{path}': {cause}") from cause
    return registry_of(texts)


def _declared(path: Path) -> dict[str, Declared]:
    """What a catalog file says, by the names of its queries."""
    try:
        told = read_yaml(path.read_text("utf-8"), path=str(path)) or {}
        told = told.get("queries", told) if isinstance(told, dict) else told
        return msgspec.convert(told, dict[str, Declared])
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(f"cannot read the queries of '{path}': {cause}") from cause
    except ValueError as cause:
        raise InputError(f"'{path}' is no catalog of queries: {cause}") from cause


def registry_of(
    texts: Iterable[tuple[str, str, tuple[str, Declared] | None]],
) -> Registry:
    """The registry of these files: path, text, and what a catalog declared of one query."""
    found: dict[str, StoredQuery] = {}
    digest = hashlib.sha256()
    for path, text, declared in texts:
        digest.update(text.encode() + b"\0" + repr(declared).encode() + b"\0")
        for one in _queries(path, text, declared):
            other = found.setdefault(one.name, one)
            if other is not one:
                raise InputError(
                    f"query '{one.name}' is in '{other.path}' and in '{one.path}'",
                    hint="stored queries need names of their own",
                )
    if len(found) > STORED_QUERIES_MAX:
        raise InputError(f"there are {len(found)} stored queries, {STORED_QUERIES_MAX} are allowed")
    _require_tools(found.values())
    return Registry(queries=found, digest=digest.hexdigest())


def _queries(path: str, text: str, declared: tuple[str, Declared] | None) -> Iterable[StoredQuery]:
    try:
        parsed = parse_file(text).queries
    except OmnigraphError as problem:
        raise InputError(f"'{path}': {problem.message}") from problem
    entry = Declared(file=path)
    if declared is not None:
        name, entry = declared
        parsed = tuple(one for one in parsed if one.name == name)
        if not parsed:
            raise InputError(f"'{path}' has no query '{name}'", hint="name and symbol must agree")
    for one in parsed:
        yield StoredQuery(
            name=one.name,
            source=text,
            path=path,
            is_mutation=one.kind != "read",
            description=one.description,
            instruction=one.instruction,
            exposed=entry.expose,
            tool_name=entry.tool_name,
        )


def _require_tools(queries: Iterable[StoredQuery]) -> None:
    """Names under which agents see the queries are well-formed and used once."""
    taken: dict[str, str] = {}
    for one in queries:
        if not one.exposed:
            continue
        if _TOOL_NAME.fullmatch(one.tool) is None:
            raise InputError(
                f"'{one.tool}' cannot be the tool name of query '{one.name}'",
                hint="1 to 64 letters, digits, _ and -",
            )
        other = taken.setdefault(one.tool, one.name)
        if other != one.name:
            raise InputError(f"queries '{other}' and '{one.name}' have one tool name '{one.tool}'")


# The compiled form of a query of some text, under the schema that counts.
Describe = Callable[[str, str], CompiledQuery]


def check_registry(registry: Registry, describe: Describe) -> list[str]:
    """`InputError` if a query does not fit the schema; what is worth a warning otherwise."""
    broken, warnings = checked(registry, describe)
    if broken:
        raise broken[0]
    return warnings


def checked(registry: Registry, describe: Describe) -> tuple[list[InputError], list[str]]:
    """What is wrong with queries under the schema, and what is worth a warning."""
    broken: list[InputError] = []
    warnings: list[str] = []
    for name, one in sorted(registry.queries.items()):
        try:
            compiled = describe(one.source, name)
        except OmnigraphError as problem:
            error = InputError(
                f"stored query '{name}' ('{one.path}') does not fit the schema: {problem.message}",
                hint=problem.hint,
                query=name,
            )
            error.__cause__ = problem
            broken.append(error)
            continue
        if one.exposed and any(
            isinstance(param, ir.Param) and param.type.scalar is Scalar.VECTOR
            for param in compiled.params
        ):
            warnings.append(f"stored query '{name}' takes a vector, which few agents can give")
    return broken, warnings


# --- telling --------------------------------------------------------------------------------------


def described(one: StoredQuery, describe: Describe) -> StoredQueryOutput:
    """What the catalog of stored queries says of one."""
    compiled = describe(one.source, one.name)
    return StoredQueryOutput(
        name=one.name,
        tool_name=one.tool,
        description=maybe(one.description),
        instruction=maybe(one.instruction),
        mutation=one.is_mutation,
        params=[_param(param) for param in compiled.params],
    )


def _param(param: ir.Param | ir.RecordParam) -> QueryParam:
    if isinstance(param, ir.RecordParam):
        return QueryParam(name=param.name, kind="record", nullable=False)
    kind = param.type
    return QueryParam(
        name=param.name,
        kind=_kind(kind_word(kind)),
        item_kind=_kind(kind_word(kind, item=True)) if kind.is_list else UNSET,
        vector_dim=maybe(kind.dimension),
        choices=maybe(None if kind.enum_values is None else list(kind.enum_values)),
        nullable=kind.nullable or param.default is not None,
    )


def _kind(word: str) -> ParamKind:
    found: ParamKind = msgspec.convert(word, ParamKind)
    return found


# --- what a served graph holds --------------------------------------------------------------------


class StoredQueries:
    """The registry of one graph: read by every request, replaced as a whole."""

    def __init__(self, place: str | None, registry: Registry) -> None:
        self._place = place
        self._registry = registry
        self._problem: str | None = None
        self._lock = threading.Lock()

    @property
    def registry(self) -> Registry:
        return self._registry

    @property
    def problem(self) -> str | None:
        """Why the files as they are now are not in use; None if they are."""
        return self._problem

    def find(self, name: str) -> StoredQuery | None:
        return self._registry.queries.get(name)

    def reload(self, describe: Describe) -> bool:
        """Read the files again and use them if they check; whether anything changed."""
        with self._lock:
            try:
                found = read_registry(self._place)
                if found.digest == self._registry.digest:
                    self._problem = None
                    return False
                check_registry(found, describe)
            except OmnigraphError as problem:
                if self._problem != problem.message:
                    logger.warning("stored queries kept", extra={"problem": problem.message})
                self._problem = problem.message
                return False
            self._registry, self._problem = found, None
        logger.info("stored queries reloaded", extra={"queries": len(found.queries)})
        return True

    @property
    def watched(self) -> Sequence[tuple[str, int, int]]:
        """What tells whether the files may have changed: names, times and sizes."""
        if self._place is None:
            return ()
        root = Path(self._place)
        if root.is_dir():
            return sorted(map(_stamp, root.rglob("*.gq")))
        return sorted(map(_stamp, [root, *_files_of(root)]))


def _files_of(root: Path) -> Sequence[Path]:
    """The files that a catalog names, wherever they are; none if it is none."""
    if root.suffix not in CATALOGS:
        return ()
    try:
        return [root.parent / one.file for one in _declared(root).values()]
    except InputError:  # told when it is read
        return ()


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), found.st_mtime_ns, found.st_size
