"""What lint says about a query that is sound, and yet hardly meant: each remark has a code.

| code | severity | what |
|---|---|---|
| L203 | warning | a parameter that the query does not use |
| L204 | warning | variables that nothing connects: the answer has every pair of them |
| L205 | warning | conditions that can never be true together, or one that never is |
| L206 | info | a variable that is named once: `$_` says that it does not matter |
| L207 | warning | a sort key that is the same in every row |

All looks at the tree as written, with the types that the plan gave the variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from omnigraph.compiler.query import ast
from omnigraph.compiler.query.ir import SELF
from omnigraph.compiler.query.printer import expression
from omnigraph.compiler.query.scope import WILDCARD
from omnigraph.model.schema import Catalog, EdgeType, NodeType, Property, Scalar
from omnigraph.model.values import parse_date, parse_moment


class Remark(NamedTuple):
    """Something to say about a place of a query."""

    at: int
    code: str
    severity: str
    message: str


def remarks(
    query: ast.Query, catalog: Catalog, types: Mapping[str, NodeType | EdgeType]
) -> list[Remark]:
    """Every remark about a query; `types` are those of its variables by written name."""
    found = [*_unused_parameters(query), *_constant_orders(query), *_named_once(query)]
    for block in _outermost_blocks(query.body):
        found += _cross_products(block, types)
        found += _Bounds(types).of_block(block)
    for part in _parts(query.body):
        if isinstance(part, ast.Update | ast.Delete):
            entity = catalog.nodes.get(part.type_name) or catalog.edges.get(part.type_name)
            where = getattr(part, "where", None)
            if entity is not None and where is not None:
                found += _Bounds({SELF: entity}).of_condition(where)
    return sorted(set(found))


# --- the tree, whatever it is made of ------------------------------------------------------------


def _parts(node: object) -> Iterator[msgspec.Struct]:
    """A part of a tree and everything inside it, in the order written."""
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, tuple | list):
            pending.extend(reversed(current))
        elif isinstance(current, msgspec.Struct):
            yield current
            pending.extend(getattr(current, name) for name in reversed(current.__struct_fields__))


def _clauses(node: object) -> tuple[ast.Clause, ...]:
    found: tuple[ast.Clause, ...] = getattr(node, "clauses", ())
    return found


def _outermost_blocks(body: object) -> Iterator[tuple[ast.Clause, ...]]:
    """The clauses of every match of a query, without the blocks inside them."""
    pending = [body]
    while pending:
        current = pending.pop()
        if isinstance(current, tuple | list):
            pending.extend(reversed(current))
        elif isinstance(current, msgspec.Struct):
            if _clauses(current):
                yield _clauses(current)
            names = [name for name in current.__struct_fields__ if name != "clauses"]
            pending.extend(getattr(current, name) for name in reversed(names))


def _variables(node: object) -> Iterator[tuple[str, int]]:
    """Every mention of a variable, with its place."""
    for part in _parts(node):
        match part:
            case ast.Var():
                yield part.name, part.at
            case ast.Access() | ast.Star() | ast.Binding():
                yield part.var, part.at
            case _:
                pass


def _names(node: object) -> set[str]:
    return {name for name, _ in _variables(node)}


# --- parameters, names and orders ----------------------------------------------------------------


def _unused_parameters(query: ast.Query) -> Iterator[Remark]:
    used = _names(query.body)
    for param in query.params:
        if param.name not in used:
            message = f"parameter `${param.name}` is not used"
            yield Remark(param.at, "L203", "warning", message)


def _named_once(query: ast.Query) -> Iterator[Remark]:
    """Ends and edges of traversals that nothing else mentions."""
    mentions: dict[str, int] = {}
    for name, _ in _variables(query.body):
        mentions[name] = mentions.get(name, 0) + 1
    for part in _parts(query.body):
        if not isinstance(part, ast.Traversal):
            continue
        for var in (part.src, part.edge_var, part.dst):
            if var is None or var.name == WILDCARD or mentions[var.name] > 1:
                continue
            if var is part.edge_var:
                message = f"`${var.name}` is not used; an edge needs no name"
            else:
                message = f"`${var.name}` is named once; `$_` says that it may be any"
            yield Remark(var.at, "L206", "info", message)


def _constant_orders(query: ast.Query) -> Iterator[Remark]:
    params = {param.name for param in query.params}
    for part in _parts(query.body):
        if isinstance(part, ast.Ordering) and _is_constant(part.expr, params):
            message = f"`{expression(part.expr)}` is the same in every row and orders nothing"
            yield Remark(part.at, "L207", "warning", message)


def _is_constant(expr: ast.Expr, params: set[str]) -> bool:
    for part in _parts(expr):
        if isinstance(part, ast.Word | ast.Access | ast.Aggregate | ast.Block | ast.Star):
            return False
        if isinstance(part, ast.Var) and part.name not in params:
            return False
    return True


# --- cross products ------------------------------------------------------------------------------


def _cross_products(
    clauses: tuple[ast.Clause, ...], types: Mapping[str, NodeType | EdgeType]
) -> Iterator[Remark]:
    """Variables of one block that no edge, condition or inner block connects."""
    groups: list[set[str]] = []
    for clause in clauses:
        names = {name for name in _names(clause) if name in types}
        touched = [group for group in groups if group & names]
        groups = [group for group in groups if not group & names]
        if names:
            groups.append(set(names).union(*touched))
    single = {name for name in types if _is_single(name, clauses, types[name])}
    many = [group for group in groups if not group <= single]
    if len(many) < 2:
        return
    first = _shown(many[0])
    for group in many[1:]:
        at = min(at for name, at in _variables(clauses) if name in group)
        message = f"nothing connects {first} and {_shown(group)}: the answer has every pair of them"
        yield Remark(at, "L204", "warning", message)


def _shown(names: Iterable[str]) -> str:
    return " ".join(f"`${name}`" for name in sorted(names)[:3])


def _is_single(name: str, clauses: tuple[ast.Clause, ...], entity: NodeType | EdgeType) -> bool:
    """Whether conditions fix the key or the id of a variable, so that it is one node at most."""
    fixed: set[str] = set()
    for clause in clauses:
        if isinstance(clause, ast.Binding) and clause.var == name:
            fixed |= {entry.name for entry in clause.matches}
        if isinstance(clause, ast.FilterClause):
            for test in _conjuncts(clause.expr):
                if isinstance(test, ast.Binary) and test.op == "=":
                    for side in (test.left, test.right):
                        if isinstance(side, ast.Access) and side.var == name:
                            fixed.add(side.prop)
                        if isinstance(side, ast.Var) and side.name == name:
                            fixed.add("id")
    key = entity.key if isinstance(entity, NodeType) else ()
    return "id" in fixed or (bool(key) and fixed >= set(key))


def _conjuncts(expr: ast.Expr) -> Iterator[ast.Expr]:
    if isinstance(expr, ast.Logic) and expr.op == "and":
        for item in expr.items:
            yield from _conjuncts(item)
    else:
        yield expr


# --- conditions that are never true --------------------------------------------------------------

_MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


class _Known(msgspec.Struct):
    """What the conditions so far leave of the values of one property."""

    low: Any = None
    low_open: bool = False
    high: Any = None
    high_open: bool = False
    among: list[Any] | None = None
    absent: bool | None = None  # it is null, or it is not

    def copy(self) -> _Known:
        among = None if self.among is None else [*self.among]
        return msgspec.structs.replace(self, among=among)

    def narrowed(self, op: str, value: Any) -> bool:
        """Take a comparison into account; False if nothing is left."""
        if self.absent:
            return False
        self.absent = False
        if op == "=":
            self._keep([value])
        elif op in {"<", "<="} and (
            self.high is None or value < self.high or (value == self.high and op == "<")
        ):
            self.high, self.high_open = value, op == "<"
        elif op in {">", ">="} and (
            self.low is None or value > self.low or (value == self.low and op == ">")
        ):
            self.low, self.low_open = value, op == ">"
        elif op == "!=" and self.among is not None:
            self.among = [each for each in self.among if each != value]
        return self._is_possible()

    def narrowed_to(self, values: list[Any]) -> bool:
        if self.absent:
            return False
        self.absent = False
        self._keep(values)
        return self._is_possible()

    def _keep(self, values: list[Any]) -> None:
        self.among = values if self.among is None else [v for v in self.among if v in values]

    def _is_possible(self) -> bool:
        if self.among is not None:
            return any(self._holds(value) for value in self.among)
        if self.low is None or self.high is None:
            return True
        if self.low_open or self.high_open:
            return bool(self.low < self.high)
        return bool(self.low <= self.high)

    def _holds(self, value: Any) -> bool:
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        return not (
            self.high is not None and (value > self.high or (self.high_open and value == self.high))
        )


class _Bounds:
    """Looks for conditions of a block, and of the blocks inside it, that contradict."""

    def __init__(self, types: Mapping[str, NodeType | EdgeType]) -> None:
        self.types = types
        self.found: list[Remark] = []

    def of_block(self, clauses: tuple[ast.Clause, ...]) -> list[Remark]:
        self._block(clauses, {})
        return self.found

    def of_condition(self, where: ast.Expr) -> list[Remark]:
        """The same for a condition on the row that a statement looks at."""
        known: dict[tuple[str, str], _Known] = {}
        for test in _conjuncts(where):
            self._test(known, test)
        return self.found

    def _block(
        self, clauses: tuple[ast.Clause, ...], outer: Mapping[tuple[str, str], _Known]
    ) -> None:
        known = {key: each.copy() for key, each in outer.items()}
        for clause in clauses:
            if isinstance(clause, ast.Binding):
                for entry in clause.matches:
                    access = ast.Access(clause.var, entry.name, entry.at)
                    self._compared(known, entry.at, "=", access, entry.value)
            if isinstance(clause, ast.FilterClause):
                for test in _conjuncts(clause.expr):
                    self._test(known, test)
        for clause in clauses:
            if isinstance(clause, ast.BlockClause):
                self._block(clause.clauses, known)
            for part in _parts(clause):
                if isinstance(part, ast.Block):
                    self._block(part.clauses, known)

    def _test(self, known: dict[tuple[str, str], _Known], test: ast.Expr) -> None:
        match test:
            case ast.Binary() if test.op in _MIRRORED:
                at = test.left.at
                self._compared(known, at, test.op, test.left, test.right)
                self._compared(known, at, _MIRRORED[test.op], test.right, test.left)
                self._literals(test)
            case ast.Between():
                self._compared(known, test.item.at, ">=", test.item, test.low)
                self._compared(known, test.item.at, "<=", test.item, test.high)
            case ast.In() if not test.negated and isinstance(test.options, ast.ListLit):
                found = self._of(known, test.item)
                values = [self._literal(test.item, item) for item in test.options.items]
                if found is not None and None not in values:
                    self._judge(test.item, test.item.at, lambda: found.narrowed_to(values))
            case ast.NullTest():
                self._null_test(known, test)
            case _:
                pass

    def _literals(self, test: ast.Binary) -> None:
        left, right = _value(test.left), _value(test.right)
        if left is None or right is None:
            return
        holds = {
            "=": left == right, "!=": left != right, "<": left < right, ">": left > right,
            "<=": left <= right, ">=": left >= right,
        } if type(left) is type(right) else {}  # fmt: skip
        if holds.get(test.op) is False:
            self._never(test.left.at, f"`{expression(test)}` is never true")

    def _null_test(self, known: dict[tuple[str, str], _Known], test: ast.NullTest) -> None:
        found, prop = self._of(known, test.item), self._property(test.item)
        if found is None or prop is None:
            return
        wanted = not test.negated
        if found.absent is not None and found.absent != wanted:
            self._never(test.item.at, f"`{expression(test)}` contradicts another condition")
        found.absent = wanted

    def _compared(
        self,
        known: dict[tuple[str, str], _Known],
        at: int,
        op: str,
        left: ast.Expr,
        right: ast.Expr,
    ) -> None:
        found, value = self._of(known, left), self._literal(left, right)
        prop = self._property(left)
        values = None if prop is None else prop.type.enum_values
        if values is not None and value not in values:
            return  # the checker says so
        if found is not None and value is not None:
            self._judge(left, at, lambda: found.narrowed(op, value))

    def _judge(self, item: ast.Expr, at: int, narrow: Any) -> None:
        try:
            possible = narrow()
        except TypeError:  # values of two kinds, which the checker has its own word about
            return
        if not possible:
            text = expression(item)
            message = f"the conditions on `{text}` are never true together, or outside its values"
            self._never(at, message)

    def _never(self, at: int, message: str) -> None:
        self.found.append(Remark(at, "L205", "warning", message))

    def _literal(self, item: ast.Expr, written: ast.Expr) -> Any:
        """The value of a literal, read as the property that it is compared with."""
        value, prop = _value(written), self._property(item)
        if isinstance(value, str) and prop is not None:
            if prop.type.scalar is Scalar.DATE:
                return parse_date(value)
            if prop.type.scalar is Scalar.DATETIME:
                return parse_moment(value)
        return value

    def _key(self, expr: ast.Expr) -> tuple[str, str] | None:
        """The variable and property that an expression names."""
        match expr:
            case ast.Access() if expr.var in self.types:
                return expr.var, expr.prop
            case ast.Word() if SELF in self.types:
                return SELF, expr.name
            case _:
                return None

    def _property(self, expr: ast.Expr) -> Property | None:
        key = self._key(expr)
        prop = None if key is None else self.types[key[0]].by_name.get(key[1])
        return None if prop is None or prop.type.is_list else prop

    def _of(self, known: dict[tuple[str, str], _Known], expr: ast.Expr) -> _Known | None:
        """What is known of a property, which begins with what its type allows."""
        key, prop = self._key(expr), self._property(expr)
        if key is None or prop is None:
            return None
        if key not in known:
            known[key] = _allowed(self.types[key[0]], prop)
        return known[key]


def _allowed(entity: NodeType | EdgeType, prop: Property) -> _Known:
    values = prop.type.enum_values
    known = _Known(among=None if values is None else [*values])
    for span in entity.ranges if isinstance(entity, NodeType) else ():
        if span.property == prop.name:
            known.low, known.high = span.minimum, span.maximum
    return known


def _value(expr: ast.Expr) -> Any:
    """The value of a literal that has an order; None for everything else."""
    if not isinstance(expr, ast.Lit) or expr.value is None:
        return None
    if expr.kind == "date":
        return parse_date(str(expr.value))
    return parse_moment(str(expr.value)) if expr.kind == "datetime" else expr.value
