"""Texts of other languages turned into ours, for hints: patterns and conditions of Cypher and GQL,
statements of SQL, walks of Gremlin. What cannot be turned is left as a sketch with `...`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ITEMS_MAX = 8  # columns or steps that a hint translates


# --- Cypher's patterns ---------------------------------------------------------------------------

_PROPERTIES = r"\{[^{}]*\}"
NODE = (
    r"\(\s*(?:\$?[A-Za-z_]\w*)?\s*(?:(?::|\bis\b)\s*[A-Za-z_]\w*(?:[|&:]\w+)*)?"
    rf"\s*(?:{_PROPERTIES})?\s*\)"
)
EDGE = r"(?:<?-\[[^\][\n]*\]->?|<--|-->|--|->|<-)(?:\{\d*,?\d*\})?"
ROAD = rf"{NODE}(?:\s*{EDGE}\s*{NODE})*+"
# A pattern that can be nothing else: a labelled node, or a node and an edge.
SURE_ROAD = (
    rf"(?:\(\s*(?:\$?[A-Za-z_]\w*)?\s*(?::|\bis\b)\s*[A-Za-z_]\w*[^()\n]*\)|{NODE}(?=\s*{EDGE}))"
    rf"(?:\s*{EDGE}\s*{NODE})*+"
)
_STEP = re.compile(rf"({NODE})|({EDGE})", re.IGNORECASE)
_NODE_PARTS = re.compile(
    r"\(\s*\$?([A-Za-z_]\w*)?\s*(?:(?::|\bis\b)\s*([A-Za-z_]\w*))?[^{)]*(\{[^{}]*\})?\s*\)",
    re.IGNORECASE,
)
_EDGE_PARTS = re.compile(
    r"\[\s*\$?([A-Za-z_]\w*)?\s*(?::\s*([\w|:]+))?\s*(\*)?\s*(\d+)?\s*(\.\.)?\s*(\d+)?"
)


def translated(road: str) -> str:
    """A path pattern as clauses: `(a:Person)-[:KNOWS]->(b)` is `$a: Person  $a knows $b`."""
    nodes: list[str] = []
    edges: list[str] = []
    clauses: list[str] = []
    for found in list(_STEP.finditer(road))[:_ITEMS_MAX]:
        if found.group(1) is None:
            edges.append(found.group(2))
            continue
        parts = _NODE_PARTS.match(found.group(1))
        assert parts is not None, "a step begins with a node"
        name, label, properties = parts.groups()
        # Two nodes without a name are two, so that the second gets another than the wildcard.
        nodes.append(f"${_small(name)}" if name else "$_")
        if label or properties:
            if not name:
                nodes[-1] = "$" + _free("abcdefgh", nodes)
            listed = "" if properties is None else f" {_entries(properties)}"
            clauses.append(f"{nodes[-1]}: {_type_name(label)}{listed}")
    for edge, left, right in zip(edges, nodes, nodes[1:], strict=False):
        clauses.append(_walk(edge, left, right))
    return "  ".join(clauses)


def _free(letters: str, taken: Sequence[str]) -> str:
    return next(letter for letter in letters if f"${letter}" not in taken)


def _walk(edge: str, left: str, right: str) -> str:
    parts = _EDGE_PARTS.search(edge)
    named, types, star, low, dots, high = parts.groups() if parts else (None,) * 6
    words = [_edge_name(word) for word in re.split(r"[|:]+", types or "") if word]
    name = "|".join(words) or "any"
    backwards, forwards = edge.startswith("<"), edge.rstrip("}0123456789,{").endswith(">")
    if backwards == forwards:
        name = f"<{name}>"
    counted = re.search(r"\{(\d*)(,?)(\d*)\}$", edge)
    if star:
        top = high if dots or high else low
        name += f"{{{low or 1},{top or ''}}}"
    elif counted:
        least, comma, most = counted.groups()
        name += f"{{{least or 0},{most if comma else least}}}"
    if named:
        name = f"${_small(named)}:{name}"
    if backwards and not forwards:
        left, right = right, left
    return f"{left} {name} {right}"


def _edge_name(word: str) -> str:
    """`WORKS_AT` is `worksAt`."""
    if word.isupper() or "_" in word:
        first, *others = word.lower().split("_")
        return first + "".join(part.capitalize() for part in others)
    return _small(word)


def _type_name(word: str | None) -> str:
    return "Person" if not word else word[0].upper() + word[1:]


def _small(word: str) -> str:
    return word[0].lower() + word[1:]


def _entries(properties: str) -> str:
    """`{name: 'Ann'}` as it is written here."""
    inner = " ".join(converted(properties.strip("{} \n"), bare=False).split())
    return f"{{ {inner} }}" if inner else ""


_FREE_TEXT = re.compile(r"'((?:[^'\\]|\\.)*)'|(\"(?:[^\"\\]|\\.)*\")")
_CALLED = re.compile(r"(?<![\w$.\"])([A-Za-z_]\w*)(\.\w+)?(?!\w*\s*[(:\w])")
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "and or not in is null true false as asc desc contains starts_with ends_with like matches "
        "between case when then else end distinct",
    )
)


def converted(text: str, *, bare: bool = True) -> str:
    """An expression of Cypher as ours: double quotes, dollar signs before variables, `!=`."""

    def word(found: re.Match[str]) -> str:
        name, rest = found.groups(default="")
        if name.lower() in _WORDS:
            return name.lower()
        return f"${_small(name)}{rest}" if bare or rest else name + rest

    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        single, double = found.groups()
        kept.append(double if single is None else '"' + single.replace('"', '\\"') + '"')
        return f"\x00{len(kept) - 1}\x00"

    text = _FREE_TEXT.sub(keep, text)
    text = re.sub(r"\s+starts\s+with\s+", " starts_with ", text, flags=re.IGNORECASE)
    text = re.sub(r"\s+ends\s+with\s+", " ends_with ", text, flags=re.IGNORECASE)
    text = text.replace("<>", "!=").replace("=~", "matches").replace("==", "=")
    text = _CALLED.sub(word, text)
    return re.sub(r"\x00(\d+)\x00", lambda found: kept[int(found.group(1))], text)


# --- whole statements ---------------------------------------------------------------------------


def _found_query(clauses: str, columns: str, tail: str = "", *, word: str = "return") -> str:
    return f"write `query find() {{ match {{ {clauses} }} {word} {{ {columns} }}{tail} }}`"


def cypher_read(found: re.Match[str]) -> str:
    """A whole `MATCH … WHERE … RETURN …`."""
    roads, where, distinct, columns, order, limit = found.groups()
    clauses = "  ".join(translated(road) for road in re.findall(ROAD, roads, re.IGNORECASE))
    if not clauses:
        bare = _NODE_PARTS.search(roads)
        name = bare.group(1) if bare and bare.group(1) else "p"
        clauses = f"${_small(name)}: Person"
    if where:
        clauses += f"  {converted(where.strip())}"
    items = "$p.name" if not columns else converted(columns.strip())
    if items.strip() == "*":
        first = re.search(r"\$[a-z]\w*", clauses)
        items = f"{first.group() if first else '$p'}.*"
    tail = f" order {{ {converted(order.strip())} }}" if order else ""
    tail += f" limit {limit}" if limit else ""
    word = "return distinct" if distinct else "return"
    return _found_query(clauses, " ".join(items.split()), tail, word=word)


def sql_read(found: re.Match[str]) -> str:
    distinct, columns, table, where = found.groups()
    items = "$p.*" if columns.strip() == "*" else _of_row(columns.strip())
    clauses = f"$p: {_type_name(table)}" + (f"  {_of_row(where.strip())}" if where else "")
    return _found_query(clauses, items, word="return distinct" if distinct else "return")


_COLUMN = re.compile(r"(?<![\w$.\"])(?:[A-Za-z]\w*\.)?([a-z]\w*)(?!\w*\s*\()(?!\w)")


def _of_row(text: str) -> str:
    """Bare columns as properties of `$p`."""

    def column(found: re.Match[str]) -> str:
        name = found.group(1)
        return name if name.lower() in _WORDS else f"$p.{name}"

    parts = re.split(r"('(?:[^'\\]|\\.)*')", text)
    return "".join(
        f'"{part[1:-1]}"' if part.startswith("'") else _COLUMN.sub(column, part.replace("<>", "!="))
        for part in parts
    )


def written(node: str) -> str:
    """The `Type { … }` of a node that Cypher or GQL creates."""
    parts = _NODE_PARTS.search(node)
    _, label, properties = parts.groups() if parts else (None, None, None)
    return f"{_type_name(label)} {_entries(properties or '') or '{ ... }'}"


def inserted(found: re.Match[str]) -> str:
    return f"write `query add() {{ insert {written(found.group(1))} }}`"


def upserted(found: re.Match[str]) -> str:
    return f"write `query put() {{ upsert {written(found.group(1))} }}`"


def sql_insert(found: re.Match[str]) -> str:
    table, columns, values = found.groups()
    names = [name.strip() for name in (columns or "").split(",") if name.strip()]
    given = [_of_row(value.strip()) for value in (values or "").split(",") if value.strip()]
    pairs = ", ".join(f"{name}: {value}" for name, value in zip(names, given, strict=False))
    listed = f"{{ {pairs} }}" if pairs else "{ ... }"
    return f"write `query add() {{ insert {_type_name(table)} {listed} }}`"


def sql_update(found: re.Match[str]) -> str:
    table, assigns, where = found.groups()
    pairs = re.sub(r"(\w+)\s*=\s*", r"\1: ", assigns.strip())
    pairs = quotes(pairs)
    return (  # a hint, not a statement that anybody runs
        f"write `query change() {{ update {_type_name(table)} set {{ {pairs} }} "
        f"where {quotes((where or '...').strip())} }}`"
    )


def quotes(text: str) -> str:
    return re.sub(r"'([^']*)'", r'"\1"', text)


def sql_delete(found: re.Match[str]) -> str:
    condition = quotes((found.group(2) or "...").strip())
    return f"write `query drop() {{ delete {_type_name(found.group(1))} where {condition} }}`"


def gremlin(found: re.Match[str]) -> str:
    text = found.group()
    label = re.search(r"hasLabel\(['\"](\w+)", text)
    edge = re.search(r"\.(?:out|both|in)\(['\"](\w+)", text)
    value = re.search(r"values\(['\"](\w+)", text)
    clauses = f"$p: {_type_name(label.group(1) if label else None)}"
    shown = "$p"
    if edge:
        clauses, shown = f"{clauses}  $p {_edge_name(edge.group(1))} $f", "$f"
    return _found_query(clauses, f"{shown}.{value.group(1) if value else 'name'}")


# --- parts of a query ---------------------------------------------------------------------------


def whole_match(found: re.Match[str]) -> str:
    clauses = translated(found.group("road"))
    return f"write `match {{ {clauses} }}`" if clauses else ""


def clause_of_road(found: re.Match[str]) -> str:
    clauses = translated(found.group("road"))
    return f"write `{clauses}`" if clauses else ""


def walked(found: re.Match[str]) -> str:
    left, edge, right = found.groups()
    return f"there are no arrows: write `{_walk(edge, left, right)}`"


def named_path(found: re.Match[str]) -> str:
    name, road = found.group(1), found.group("road")
    clause = translated(road).split("  ")[-1]
    left, edge, right = [*clause.split(" "), "", ""][:3]
    return f"a path is named before its edge: `{left} ${_small(name)}:{edge} {right}`"


def moved_condition(found: re.Match[str]) -> str:
    written = f"{found.group('inside').strip()}  {found.group('test').strip()}"
    return f"conditions are clauses of `match {{ ... }}`: `match {{ {written} }}`"


def set_of_match(found: re.Match[str]) -> str:
    name, prop, value = found.groups()
    return f"write `update ${name} set {{ {prop}: {quotes(value)} }}` after the match"


def bracketed_list(found: re.Match[str]) -> str:
    return f"a list stands in square brackets: `in [{quotes(found.group(1).strip())}]`"


_TYPES: Final = {
    "int": "I32` or `I64", "integer": "I32` or `I64", "long": "I64", "bigint": "I64",
    "text": "String", "str": "String", "string": "String", "varchar": "String",
    "boolean": "Bool", "bool": "Bool", "float": "F64", "double": "F64", "number": "F64",
    "timestamp": "DateTime", "time": "DateTime", "datetime": "DateTime", "date": "Date",
    "list": "[String]", "array": "[String]", "vector": "Vector(n)",
}  # fmt: skip


def parameter_type(found: re.Match[str]) -> str:
    """The type of a parameter that another language calls otherwise."""
    written = found.group("at")
    ours = _TYPES.get(written.lower(), "")
    return f"write `{ours}`" if ours and ours != written else ""


def lowered(keys: str) -> str:
    return re.sub(r"\b(ASC|DESC)\b", lambda found: found.group().lower(), converted(keys.strip()))


def sql_values(found: re.Match[str]) -> str:
    names = [name.strip() for name in found.group(3).split(",") if name.strip()]
    given = [value.strip() for value in (found.group(4) or "").split(",") if value.strip()]
    given += [f"${name}" for name in names[len(given) :]]
    pairs = ", ".join(f"{name}: {quotes(value)}" for name, value in zip(names, given, strict=False))
    return f"write `insert {found.group(1)} {{ {pairs or '...'} }}`"


def likened(found: re.Match[str]) -> str:
    item, word, value = found.group(1), found.group("at").lower(), found.group(3) or '"A"'
    value = quotes(value)
    if word == "ilike":
        return f"write `lower({item}) like {value.lower()}`"
    if word in {"contain", "include", "includes", "has"}:
        return f"write `{item} contains {value}`"
    return f"write `{item} matches {value}`"


def columns(found: re.Match[str]) -> str:
    """What stands behind `return` without braces."""
    items = found.group("at")
    distinct = "distinct " if found.group(1) else ""
    items = items if items.startswith("$") else converted(items)
    return f"the columns stand in braces: `return {distinct}{{ {items} }}`"


def null_test(found: re.Match[str]) -> str:
    word = "is null" if found.group("at").lower() == "isnull" else "is not null"
    return f"write `{found.group(1)} {word}`"
