"""The arguments of calls that ask the graph: variables, edges by name, and paths."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.compiler.query import ast
from omnigraph.compiler.query.functions import FUNCTIONS, Function
from omnigraph.compiler.text import Cursor, Token

ANY = "any"  # every edge type, unless one of that name is declared


def graph_arguments(cursor: Cursor, function: Function) -> tuple[ast.Expr, ...]:
    """What stands between the brackets of the call."""
    hint = f"write `{function.call}`"
    if function.name in {"nodes", "edges"} and cursor.at_word("shortest"):
        return (_shortest(cursor),)
    args: list[ast.Expr] = [_variable(cursor, hint)]
    if function.name == "shortest":
        cursor.expect(",", "`,` and another node", hint=hint)
        args.append(_variable(cursor, hint))
    if function.name in {"degree", "shortest"}:
        cursor.expect(",", "`,` and an edge", hint=hint)
        args.append(_edges(cursor, hint))
    if function.name == "shortest" and cursor.skip(","):
        weight = cursor.expect("ident", "a property of the edge", hint=hint)
        args.append(ast.Word(weight.text, weight.at))
    return tuple(args)


def alternatives(cursor: Cursor, name: Callable[[], Token]) -> str:
    """One name, or several as `one|other`."""
    found = [name().text]
    while cursor.skip("|"):
        found.append(name().text)
    return "|".join(found)


def _shortest(cursor: Cursor) -> ast.Call:
    token = cursor.take()
    cursor.expect("(", "`(`")
    args = graph_arguments(cursor, FUNCTIONS["shortest"])
    cursor.expect(")", "`)`")
    return ast.Call("shortest", args, token.at)


def _variable(cursor: Cursor, hint: str) -> ast.Var:
    var = cursor.expect("variable", "a variable", hint=hint)
    return ast.Var(var.text[1:], var.at)


def _edge(cursor: Cursor, hint: str) -> Token:
    return cursor.take() if cursor.at_word(ANY) else cursor.expect("ident", "an edge", hint=hint)


def _edges(cursor: Cursor, hint: str) -> ast.EdgeName:
    at, undirected = cursor.peek().at, cursor.skip("<")
    names = alternatives(cursor, lambda: _edge(cursor, hint))
    if undirected:
        cursor.expect(">", "`>`")
    return ast.EdgeName(names, undirected, at)
