"""What editors are told about a text: problems, completions, hovers, the formatted text. The
language server and the console ask here.

Plain functions of texts and a catalog. A text in an editor is unfinished most of the time, so that
what a variable is comes from the clauses around it, as far as they can be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from omnigraph.compiler.query import format_source, lint_source
from omnigraph.compiler.query.functions import CALLABLE, FUNCTIONS, OPERATORS
from omnigraph.compiler.schema import compile_schema, format_schema
from omnigraph.compiler.words import QUERY_NOTES, QUERY_WORDS, SCHEMA_NOTES, SCHEMA_WORDS
from omnigraph.errors import InputError
from omnigraph.model.schema import Catalog, EdgeType, NodeType, Scalar

Kind: TypeAlias = Literal["keyword", "function", "type", "edge", "property", "variable", "note"]
Severity: TypeAlias = Literal["error", "warning", "info"]
_WORD = re.compile(r"[$@]?[A-Za-z_]\w*")


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """Something to underline: from `at` to `end`, as character offsets."""

    at: int
    end: int
    severity: Severity
    code: str
    message: str


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could be written here; `says` is markdown."""

    label: str
    kind: Kind
    detail: str
    says: str


# --- problems ------------------------------------------------------------------------------------


def catalog_of(schema: str | None) -> Catalog | None:
    """The catalog of a schema text, or None if there is none or it is wrong."""
    if schema is None:
        return None
    try:
        return compile_schema(schema)
    except InputError:
        return None


def query_problems(text: str, catalog: Catalog | None) -> list[Diagnostic]:
    """All that lint says. Without a schema only what cannot be read is a problem."""
    report = lint_source(text, catalog or _EMPTY)
    severities: dict[str, Severity] = {"Q": "error", "T": "error", "E": "error", "L": "warning"}
    found: list[Diagnostic] = []
    for line, column, code, message in report.places():
        if catalog is None and code != "Q000":
            continue
        at = _offset(text, line, column)
        severity = "info" if code == "L206" else severities.get(code[0], "error")
        found.append(
            Diagnostic(
                at=at, end=_end_of_word(text, at), severity=severity, code=code, message=message
            )
        )
    return found


def schema_problems(text: str) -> list[Diagnostic]:
    """Every problem of a schema."""
    try:
        compile_schema(text)
    except InputError as error:
        listed = getattr(error, "errors", None) or [
            {
                "message": error.message,
                "line": getattr(error, "line", 1),
                "column": getattr(error, "column", 1),
                "hint": error.hint,
            }
        ]
        return [_of_schema(text, each) for each in listed]
    return []


def _of_schema(text: str, problem: dict[str, object]) -> Diagnostic:
    at = _offset(text, int(str(problem.get("line") or 1)), int(str(problem.get("column") or 1)))
    hint = problem.get("hint")
    message = f"{problem['message']}" + (f" ({hint})" if hint else "")
    return Diagnostic(
        at=at, end=_end_of_word(text, at), severity="error", code="schema", message=message
    )


_EMPTY = compile_schema("")


def _offset(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    before = sum(len(each) + 1 for each in lines[: line - 1])
    return min(before + column - 1, len(text))


def _end_of_word(text: str, at: int) -> int:
    found = _WORD.match(text, at)
    return found.end() if found else min(at + 1, len(text))


def formatted(text: str, language: str) -> str | None:
    """The text in the house style, or None while it cannot be read."""
    try:
        return format_source(text) if language == "gq" else format_schema(text)
    except InputError:
        return None


# --- what variables are --------------------------------------------------------------------------

_BINDING = re.compile(r"\$([a-z_]\w*)\s*:\s*([A-Z]\w*)")
_WALK = re.compile(
    r"\$([a-z_]\w*)\s+(?:\$([a-z_]\w*)\s*:\s*)?<?([a-z]\w*)(?:\|\w+)*>?\s*(?:\{[\d,\s]*\})?\s+"
    r"\$([a-z_]\w*)"
)
_INSERTED = re.compile(
    r"(?i)\b(?:insert|upsert)\s+((?-i:[A-Z])\w*)\s*\{[^{}]*\}\s+as\s+\$([a-z_]\w*)"
)
_HEAD = re.compile(r"(?im)^[ \t]*query\b")


def around(text: str, at: int) -> str:
    """The text of the query that a place is in."""
    starts = [found.start() for found in _HEAD.finditer(text)]
    begin = max((start for start in starts if start <= at), default=0)
    end = min((start for start in starts if start > at), default=len(text))
    return text[begin:end]


def variables(query: str, catalog: Catalog) -> dict[str, str]:
    """The type of each variable of a query, as far as it is told: a node's or an edge's name, or
    the type of a parameter."""
    found = dict(_BINDING.findall(query))
    found |= {name: of for of, name in _INSERTED.findall(query)}
    for src, named, edge_name, dst in _WALK.findall(query):
        edge = catalog.edge_named(edge_name)
        if edge is None:
            continue
        if named:
            found.setdefault(named, edge.name)
        reverse = found.get(src, edge.from_type) != edge.from_type
        ends = (edge.to_type, edge.from_type) if reverse else (edge.from_type, edge.to_type)
        found.setdefault(src, ends[0])
        found.setdefault(dst, ends[1])
    return found


def _entity(catalog: Catalog, name: str | None) -> NodeType | EdgeType | None:
    return None if name is None else catalog.nodes.get(name) or catalog.edges.get(name)


# --- completion ----------------------------------------------------------------------------------

_PROPERTY = re.compile(r"\$([a-z_]\w*)\.\w*$")
_TYPE = re.compile(r"\$[a-z_]\w*\s*:\s*\w*$")
_OF_STATEMENT = re.compile(r"(?i)\b(insert|upsert|update|delete)\s+\w*$")
_ASSIGNED = re.compile(r"(?i)\b(?:insert|upsert|update)\s+([A-Z]\w*)\s*(?:set\s*)?\{[^{}]*$")
_MATCHED = re.compile(r"\$[a-z_]\w*\s*:\s*([A-Z]\w*)\s*\{[^{}]*$")
_AFTER_VARIABLE = re.compile(r"\$([a-z_]\w*)\s+(?:\$[a-z_]\w*\s*:\s*)?<?\w*$")
_PARAMETER = re.compile(r"(?i)\bquery\s+\w+\s*\([^)]*:\s*\[?\w*$")


def query_completions(text: str, at: int, catalog: Catalog | None) -> list[Completion]:
    """What can be written at a place of a `.gq` text."""
    known, before = catalog or _EMPTY, text[:at]
    query = around(text, at)
    types = variables(query, known)
    if found := _PROPERTY.search(before):
        return [*_properties(_entity(known, types.get(found.group(1))))]
    if re.search(r"@\w*$", before):
        return [*_notes(QUERY_NOTES)]
    if re.search(r"\$\w*$", before):
        return [
            Completion(label=f"${name}", kind="variable", detail=of, says="")
            for name, of in sorted((dict(_PARAMS.findall(query)) | types).items())
        ]
    if _PARAMETER.search(before):
        return [*_scalars()]
    if found := _OF_STATEMENT.search(before):
        nodes = [*_nodes(known)]
        return nodes + [_edge_type(edge) for edge in known.edges.values()]
    if _TYPE.search(before):
        return [*_nodes(known)]
    found = _ASSIGNED.search(before) or _MATCHED.search(before)
    if found and re.search(r"[{,]\s*\w*$", before):
        return [*_properties(_entity(known, found.group(1)), assigned=True)]
    if found := _AFTER_VARIABLE.search(before):
        return [*_walks(known, types.get(found.group(1))), *_operators()]
    return [*_keywords(), *_functions()]


_PARAMS = re.compile(r"\$([a-z_]\w*)\s*:\s*(\[?\w+(?:\(\d+\))?\]?\??)")


def schema_completions(text: str, at: int) -> list[Completion]:
    """What can be written at a place of a `.pg` text."""
    before = text[:at]
    if re.search(r"@\w*$", before):
        return [*_notes(SCHEMA_NOTES)]
    if re.search(r"\bedge\s+\w+\s*:\s*(?:\w+\s*->\s*)?\w*$", before):
        names = sorted(set(re.findall(r"\bnode\s+([A-Z]\w*)", text)))
        return [Completion(label=name, kind="type", detail="node", says="") for name in names]
    if re.search(r":\s*\[?\w*$", before):
        return [*_scalars()]
    return [
        Completion(label=word, kind="keyword", detail=made.kind, says=made.says)
        for word, made in SCHEMA_WORDS.items()
    ]


def _properties(
    entity: NodeType | EdgeType | None, *, assigned: bool = False
) -> Iterator[Completion]:
    if entity is None:
        return
    for prop in entity.properties:
        label = f"{prop.name}: " if assigned else prop.name
        yield Completion(
            label=label, kind="property", detail=str(prop.type), says=prop.description or ""
        )
    extra = ["id", *(("src", "dst") if isinstance(entity, EdgeType) else ())]
    if assigned:
        extra = ["from: ", "to: "] if isinstance(entity, EdgeType) else []
    for name in extra:
        yield Completion(label=name, kind="property", detail="String", says="")


def _nodes(catalog: Catalog) -> Iterator[Completion]:
    for name, node in sorted(catalog.nodes.items()):
        yield Completion(label=name, kind="type", detail="node", says=declaration(node))


def _edge_type(edge: EdgeType) -> Completion:
    return Completion(label=edge.name, kind="type", detail="edge", says=declaration(edge))


def _walks(catalog: Catalog, of: str | None) -> Iterator[Completion]:
    for edge in catalog.edges.values():
        if of is not None and of in catalog.nodes and of not in (edge.from_type, edge.to_type):
            continue
        name = edge.name[0].lower() + edge.name[1:]
        detail = f"{edge.from_type} -> {edge.to_type}"
        yield Completion(label=name, kind="edge", detail=detail, says=declaration(edge))


def _keywords() -> Iterator[Completion]:
    for word, made in QUERY_WORDS.items():
        yield Completion(label=word, kind="keyword", detail=made.kind, says=made.says)


def _operators() -> Iterator[Completion]:
    for word, made in QUERY_WORDS.items():
        if made.kind == "operator":
            yield Completion(label=word, kind="keyword", detail="operator", says=made.says)


def _functions() -> Iterator[Completion]:
    for name in sorted(CALLABLE):
        made = FUNCTIONS[name]
        yield Completion(label=name, kind="function", detail=made.call, says=made.says)


def _notes(notes: object) -> Iterator[Completion]:
    assert isinstance(notes, dict), "notes are a table"
    for name, says in notes.items():
        yield Completion(label=f"@{name}", kind="note", detail="annotation", says=says)


def _scalars() -> Iterator[Completion]:
    for scalar in Scalar:
        yield Completion(label=scalar.value, kind="type", detail="type", says="")


# --- hover ---------------------------------------------------------------------------------------


def declaration(entity: NodeType | EdgeType) -> str:
    """A type as the schema declares it, in markdown."""
    ends = f": {entity.from_type} -> {entity.to_type}" if isinstance(entity, EdgeType) else ""
    key = entity.key if isinstance(entity, NodeType) else ()
    lines = [
        f"    {prop.name}: {prop.type}" + (" @key" if prop.name in key else "")
        for prop in entity.properties
    ]
    body = " {\n" + "\n".join(lines) + "\n}" if lines else ""
    text = f"```pg\n{entity.kind} {entity.name}{ends}{body}\n```"
    return f"{text}\n\n{entity.description}" if entity.description else text


def query_hover(text: str, at: int, catalog: Catalog | None) -> tuple[int, int, str] | None:
    """What a word of a `.gq` text means: from, to, and markdown."""
    known = catalog or _EMPTY
    found = next((each for each in _WORD.finditer(text) if each.start() <= at <= each.end()), None)
    if found is None:
        return None
    said = _meaning(text, found, known)
    return None if said is None else (found.start(), found.end(), said)


def _meaning(text: str, found: re.Match[str], catalog: Catalog) -> str | None:
    word = found.group()
    before, after = text[: found.start()], text[found.end() :]
    types = variables(around(text, found.start()), catalog)
    if word.startswith("$"):
        entity = _entity(catalog, types.get(word[1:]))
        if entity is not None:
            return declaration(entity)
        declared = dict(_PARAMS.findall(around(text, found.start()))).get(word[1:])
        return None if declared is None else f"parameter `{word}: {declared}`"
    if word.startswith("@"):
        return QUERY_NOTES.get(word[1:])
    if owner := re.search(r"\$([a-z_]\w*)\.$", before):
        entity = _entity(catalog, types.get(owner.group(1)))
        prop = None if entity is None else entity.by_name.get(word)
        if entity is None or prop is None:
            return None
        says = f"\n\n{prop.description}" if prop.description else ""
        return f"`{entity.name}.{prop.name}: {prop.type}`{says}"
    if after.lstrip().startswith("(") and word.lower() in CALLABLE:
        made = FUNCTIONS[word.lower()]
        return f"`{made.call}`\n\n{made.says}"
    entity = _entity(catalog, word) or (catalog.edge_named(word) if _is_walked(before) else None)
    if entity is not None:
        return declaration(entity)
    operator = next((made for made in OPERATORS if made.name == word.lower()), None)
    if operator is not None:
        return f"`{operator.call}`\n\n{operator.says}"
    known = QUERY_WORDS.get(word.lower())
    return None if known is None else f"**{known.word}**: {known.says}"


def _is_walked(before: str) -> bool:
    return bool(re.search(r"(?:\$\w+\s+|[:<|]|,\s*)$", before))


def schema_hover(text: str, at: int) -> tuple[int, int, str] | None:
    """What a word of a `.pg` text means."""
    found = next((each for each in _WORD.finditer(text) if each.start() <= at <= each.end()), None)
    if found is None:
        return None
    word, said = found.group(), None
    if word.startswith("@"):
        said = SCHEMA_NOTES.get(word[1:])
    elif word in SCHEMA_WORDS:
        said = f"**{word}**: {SCHEMA_WORDS[word].says}"
    else:
        catalog = catalog_of(text)
        entity = None if catalog is None else _entity(catalog, word)
        said = None if entity is None else declaration(entity)
    return None if said is None else (found.start(), found.end(), said)
