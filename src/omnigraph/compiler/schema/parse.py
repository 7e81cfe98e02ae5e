"""`.pg` text to syntax tree, by recursive descent: one function a rule of the grammar.

The grammar is in docs/reference/schema-language.md. Nothing in it nests, so the depth of the
descent is fixed. The parser stops at the first thing it cannot read; whatever can be read but makes
no sense is left to the checks, which report all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, TypeVar

import msgspec

from omnigraph.compiler.text import (
    Cursor,
    Node,
    SourceText,
    closest,
    parse_error,
    token_expression,
    tokenize,
)
from omnigraph.errors import LimitExceededError
from omnigraph.model.limits import (
    SCHEMA_MEMBERS_MAX,
    SCHEMA_NAME_LENGTH_MAX,
    SCHEMA_NUMBER_LENGTH_MAX,
    SCHEMA_SOURCE_BYTES_MAX,
    SCHEMA_TYPES_MAX,
)
from omnigraph.model.schema import LiteralValue

# What to say of a token that stands where a property's name is expected.
_NOT_NAMES: Final[Mapping[str, str]] = {
    "type": "property names begin with a lower-case letter",
    "(": "only `enum(a, b)` and `Vector(3)` have parentheses",
    "end": "a `}` is missing: every `{` is closed",
}

# --- the tree: what a text says, before anyone asks whether it makes sense ------------------------


class Word(msgspec.Struct, frozen=True):
    """A bare name in argument position: `@embed(title)`."""

    text: str


Argument = LiteralValue | Word


class Reference(Node, frozen=True):
    """A type name that should be declared elsewhere."""

    name: str
    at: int = 0


class TypeExpr(Node, frozen=True, kw_only=True):
    """A written type. `base` is the word as written, even when no such type exists."""

    base: str
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None
    at: int = 0


class AnnotationDecl(Node, frozen=True, kw_only=True):
    """`@name`, `@name(value)` or `@name(value, key=value)`."""

    name: str
    value: Argument | None = None
    kwargs: tuple[tuple[str, LiteralValue], ...] = ()
    at: int = 0


class RangeArg(msgspec.Struct, frozen=True, kw_only=True):
    """`lo..hi`, `lo..` or `..hi`."""

    minimum: int | float | None
    maximum: int | float | None


class ConstraintDecl(Node, frozen=True, kw_only=True):
    """`@key(a, b)` and its like in a body."""

    name: str
    args: tuple[Argument | RangeArg, ...]
    at: int = 0


class PropertyDecl(Node, frozen=True, kw_only=True):
    """`name: Type @annotation …`."""

    name: str
    type: TypeExpr
    annotations: tuple[AnnotationDecl, ...] = ()
    at: int = 0


Member = PropertyDecl | ConstraintDecl


class InterfaceDecl(Node, frozen=True, kw_only=True):
    """`interface Name { … }`."""

    name: str
    members: tuple[PropertyDecl, ...]
    at: int = 0
    end: int = 0


class NodeDecl(Node, frozen=True, kw_only=True):
    """`node Name … implements … { … }`."""

    name: str
    annotations: tuple[AnnotationDecl, ...]
    implements: tuple[Reference, ...]
    members: tuple[Member, ...]
    at: int = 0
    end: int = 0


class CardinalityDecl(Node, frozen=True, kw_only=True):
    """`@card(min..max)`; an absent maximum means no bound."""

    minimum: int
    maximum: int | None
    at: int = 0


class EdgeDecl(Node, frozen=True, kw_only=True):
    """`edge Name: From -> To … { … }`."""

    name: str
    source: Reference
    target: Reference
    cardinality: CardinalityDecl | None
    annotations: tuple[AnnotationDecl, ...]
    members: tuple[Member, ...]
    at: int = 0
    end: int = 0


Declaration = InterfaceDecl | NodeDecl | EdgeDecl


# --- the parser ----------------------------------------------------------------------------------

_MARKS = r"->|\.\.|[{}()\[\]:,@?=]"
_TOKEN = token_expression(
    r"(?P<type>[A-Z][A-Za-z0-9_]*+)|(?P<ident>[a-z_][A-Za-z0-9_]*+)"
    r"|(?P<float>-?[0-9]++\.[0-9]++)|(?P<int>-?[0-9]++)",
    marks=_MARKS,
)
_ENUM_TOKEN = token_expression(r"(?P<value>[A-Za-z0-9_-]++)", marks=_MARKS)
CONSTRAINT_WORDS = frozenset({"key", "unique", "index", "range", "check"})
_CONSTRAINT_FORMS = (
    '`@key(a)` `@unique(a, b)` `@index(a)` `@range(a, 0..9)` `@check(a, "regex")`; '
    "other annotations stand behind the property they describe"
)
_PATH = re.compile(r"[\w./\\:~ -]+\.pg")
_NUMBERS = ("int", "float")
_NUMBER_MAX = 10**40  # beyond any type of the language, and short enough to be printed back
_T = TypeVar("_T")


def parse_schema(source: SourceText) -> tuple[Declaration, ...]:
    """The declarations of a schema, or `ParseError` at the first place the grammar refuses."""
    try:
        size = len(source.text.encode())
    except UnicodeEncodeError as cause:
        raise parse_error(source, cause.start, "this is not a Unicode character") from cause
    if size > SCHEMA_SOURCE_BYTES_MAX:
        raise LimitExceededError(
            resource="schema source bytes", limit=SCHEMA_SOURCE_BYTES_MAX, actual=size
        )
    return _Parser(source).schema()


class _Parser(Cursor):
    SLIPS: ClassVar[dict[str, str]] = {"'": 'strings are written in double quotes: `"…"`'}

    def __init__(self, source: SourceText) -> None:
        super().__init__(source, tokenize(source.text, _TOKEN, lists={"enum": _ENUM_TOKEN}))
        for token in self.tokens:
            number = token.kind in _NUMBERS
            limit = SCHEMA_NUMBER_LENGTH_MAX if number else SCHEMA_NAME_LENGTH_MAX
            if len(token.text) > limit and token.kind != "string":
                what = "numbers" if number else "names"
                raise self.error(f"{what} are limited to {limit} characters", at=token.at)

    # --- declarations -------------------------------------------------------------------------

    def schema(self) -> tuple[Declaration, ...]:
        if path := _PATH.fullmatch(self.source.text.strip()):
            raise parse_error(
                self.source,
                0,
                "expected the text of a schema, found the path of a file",
                hint=f'pass `Path("{path.group()}").read_text()`',
            )
        rules: dict[str, Callable[[], Declaration]] = {
            "interface": self._interface,
            "node": self._node,
            "edge": self._edge,
        }

        def declaration() -> Declaration:
            word = self.peek().text
            if word not in rules:
                raise self.refusal("`interface`, `node` or `edge`", words=rules)
            return rules[word]()

        return self._until("end", declaration, "types of a schema", SCHEMA_TYPES_MAX)

    def _until(
        self, kind: str, rule: Callable[[], _T], resource: str, limit: int
    ) -> tuple[_T, ...]:
        found: list[_T] = []
        while not self.at(kind):
            if len(found) == limit:
                raise LimitExceededError(resource=resource, limit=limit, actual=limit + 1)
            found.append(rule())
        return tuple(found)

    def _interface(self) -> InterfaceDecl:
        at = self.take().at
        name = self._type_name("interface")
        if self.at("@"):
            raise self.error("interfaces take no annotations", hint="annotate its properties")
        self.expect("{", f"`{{` after `interface {name}`")
        members = self._members(self._interface_member)
        end = self.expect("}").end
        return InterfaceDecl(name=name, members=members, at=at, end=end)

    def _interface_member(self) -> PropertyDecl:
        if self.at("@"):
            raise self.error(
                "constraints are not allowed in an interface body",
                hint="write `@key`, `@unique` or `@index` behind the property, without brackets, "
                "or put the constraint into the nodes",
            )
        return self._property()

    def _node(self) -> NodeDecl:
        at = self.take().at
        name = self._type_name("node")
        annotations = self._annotations()
        implements: tuple[Reference, ...] = ()
        if self.skip_word("implements"):
            implements = self.listed(lambda: self._reference("interface"))
            if self.at("@"):
                raise self.error(
                    "annotations come before `implements`",
                    hint=f"write `node {name} @… implements {implements[0].name} {{`",
                )
        self._refuse_header_constraint(name)
        self.expect("{", f"`{{` after `node {name}`")
        members = self._members(self._member)
        end = self.expect("}").end
        return NodeDecl(
            name=name,
            annotations=annotations,
            implements=implements,
            members=members,
            at=at,
            end=end,
        )

    def _edge(self) -> EdgeDecl:
        at = self.take().at
        name = self._type_name("edge")
        self.expect(":", f"`:` after `edge {name}`", hint=f"write `edge {name}: From -> To`")
        source = self._reference("node")
        self.expect("->", hint=f"write `edge {name}: {source.name} -> To`")
        target = self._reference("node")
        cardinality = self._cardinality()
        annotations = self._annotations()
        self._refuse_header_constraint(name)
        members: tuple[Member, ...] = ()
        end = self.tokens[self.next - 1].end
        if self.skip("{"):
            members = self._members(self._member)
            end = self.expect("}").end
        return EdgeDecl(
            name=name,
            source=source,
            target=target,
            cardinality=cardinality,
            annotations=annotations,
            members=members,
            at=at,
            end=end,
        )

    def _refuse_header_constraint(self, name: str) -> None:
        """`_annotations` stops at `@key(`: say where that belongs."""
        if self.at("@"):
            word = self.peek(1).text
            raise self.error(
                f"@{word}(…) does not belong in the header of {name}",
                hint=f"put it between the braces: `{{ … @{word}(…) }}`",
            )

    def _cardinality(self) -> CardinalityDecl | None:
        if not (self.at("@") and self.peek(1).text == "card"):
            return None
        at = self.take().at
        self.take()
        forms = (
            "write `@card(1..1)` for exactly one, `@card(0..1)` for at most one, "
            "`@card(1..)` for at least one"
        )
        self.expect("(", "`(` after `@card`", hint=forms)
        if self.at(".."):
            raise self.error("@card needs a minimum", hint="write `@card(0..5)` for at most five")
        minimum = self._count("@card needs a number before `..`", hint=forms)
        if self.at(")"):
            raise self.error(
                f"@card({minimum}) is not a range",
                hint=f"write `@card({minimum}..{minimum})` for exactly {minimum}, "
                f"`@card({minimum}..)` for at least {minimum}, "
                f"`@card(0..{minimum})` for at most {minimum}",
            )
        self.expect("..", hint=forms)
        maximum = None
        if not self.at(")"):
            maximum = self._count("@card needs a number or nothing behind `..`", hint=forms)
        self.expect(")", hint=forms)
        return CardinalityDecl(minimum=minimum, maximum=maximum, at=at)

    def _count(self, message: str, *, hint: str) -> int:
        if self.peek().kind != "int" or self.peek().text.startswith("-"):
            raise self.error(message, hint=hint)
        return int(self.take().text)

    # --- members ------------------------------------------------------------------------------

    def _members(self, member: Callable[[], _T]) -> tuple[_T, ...]:
        def separated() -> _T:
            made = member()
            self.skip(",")  # separators are welcome, never needed
            return made

        return self._until("}", separated, "members of a type", SCHEMA_MEMBERS_MAX)

    def _member(self) -> Member:
        return self._constraint() if self.at("@") else self._property()

    def _property(self) -> PropertyDecl:
        hint = next((words for kind, words in _NOT_NAMES.items() if self.at(kind)), None)
        name = self.expect("ident", "a property name or `}`", hint=hint)
        self.expect(":", f"`:` after `{name.text}`", hint=f"write `{name.text}: String`")
        made, annotations = self._type(), self._annotations()
        return PropertyDecl(name=name.text, type=made, annotations=annotations, at=name.at)

    def _type(self) -> TypeExpr:
        at = self.peek().at
        is_list = self.skip("[")
        if self.peek().kind not in ("type", "ident"):
            raise self.refusal("a type name" if is_list else "a type")
        if is_list and self.peek().text in ("enum", "Vector"):
            raise self.error(f"a list of {self.peek().text} is not supported")
        base = self.take().text
        values = self._enum_values() if base == "enum" else None
        dimension = self._dimension() if base == "Vector" else None
        if is_list:
            self.expect("]", f"`]` after `[{base}`")
        return TypeExpr(
            base=base,
            nullable=self.skip("?"),
            is_list=is_list,
            enum_values=values,
            dimension=dimension,
            at=at,
        )

    def _dimension(self) -> int:
        self.expect("(", "`(` after `Vector`", hint="write the dimension: `Vector(384)`")
        hint = "write a number of 1 or more: `Vector(384)`"
        dimension = self._count("invalid Vector dimension", hint=hint)
        self.expect(")")
        return dimension

    def _enum_values(self) -> tuple[str, ...]:
        self.expect("(", "`(` after `enum`")
        values = self.listed(self._enum_value)
        self.expect(")", hint="enum values are separated by commas")
        return values

    def _enum_value(self) -> str:
        if not self.at("value"):
            raise self.error(
                "enum needs a value here",
                hint="values are made of letters, digits, `_` and `-`: `enum(open, in-progress)`",
            )
        return self.take().text

    # --- annotations and constraints ----------------------------------------------------------

    def _annotations(self) -> tuple[AnnotationDecl, ...]:
        """All annotations here, up to a constraint or something else."""
        found: list[AnnotationDecl] = []
        while self.at("@"):
            is_constraint = self.peek(1).text in CONSTRAINT_WORDS and self.peek(2).kind == "("
            # Named arguments describe the property: `@index(language="german")`.
            if is_constraint and not self._is_named(3):
                break
            at = self.take().at
            if self.at_word("card"):
                raise self.error(
                    "@card does not belong here",
                    hint="write it right behind the target of an edge, before other annotations: "
                    "`edge E: A -> B @card(0..1)`",
                )
            name = self.expect("ident", "the name of an annotation behind `@`").text
            value, kwargs = self._annotation_arguments()
            found.append(AnnotationDecl(name=name, value=value, kwargs=kwargs, at=at))
        return tuple(found)

    def _annotation_arguments(self) -> tuple[Argument | None, tuple[tuple[str, LiteralValue], ...]]:
        if not self.skip("("):
            return None, ()
        value = None if self._is_named(0) else self._argument("a value")
        kwargs: list[tuple[str, LiteralValue]] = []
        while (value is None and not kwargs) or self.skip(","):
            key = self.expect("ident", '`name="value"`').text
            self.expect("=", f"`=` after `{key}`", hint=f'further arguments are named: `{key}="…"`')
            literal = self._argument("a value")
            if isinstance(literal, Word):
                message = f'`{key}` needs a literal: `{key}="{literal.text}"`'
                raise self.error(message, at=self.tokens[self.next - 1].end - 1)
            kwargs.append((key, literal))
        self.expect(")")
        return value, tuple(kwargs)

    def _is_named(self, ahead: int) -> bool:
        return self.peek(ahead).kind == "ident" and self.peek(ahead + 1).kind == "="

    def _constraint(self) -> ConstraintDecl:
        at = self.take().at
        if self.peek().kind != "ident":
            raise self.refusal("a constraint behind `@`")
        name = self.peek().text
        if name not in CONSTRAINT_WORDS:
            near = closest(name, CONSTRAINT_WORDS)
            raise self.error(
                f"@{name} is not a constraint",
                hint=f"did you mean `@{near}`?" if near else _CONSTRAINT_FORMS,
            )
        self.take()
        self.expect("(", f"`(` after `@{name}`", hint=_CONSTRAINT_FORMS)
        if self._is_named(0):
            raise self.error(
                f"named arguments of @{name} stand behind the property that they describe",
                hint=f"write `property: String @{name}({self.peek().text}=…)`",
            )
        args = self.listed(self._constraint_argument)
        self.expect(")")
        return ConstraintDecl(name=name, args=args, at=at)

    def _constraint_argument(self) -> Argument | RangeArg:
        if self.skip(".."):
            if self.peek().kind not in _NUMBERS:
                raise self.refusal("a number behind `..`")
            return RangeArg(minimum=None, maximum=self._number())
        if self.peek().kind not in _NUMBERS:
            return self._argument("a property name")
        number = self._number()
        if not self.skip(".."):
            return number
        maximum = self._number() if self.peek().kind in _NUMBERS else None
        return RangeArg(minimum=number, maximum=maximum)

    def _argument(self, wanted: str) -> Argument:
        match self.peek().kind:
            case "string":
                return self.unquoted(self.take())
            case "int" | "float":
                return self._number()
            case "ident" if self.peek().text in ("true", "false"):
                return self.take().text == "true"
            case "ident" | "type":
                return Word(self.take().text)
            case _:
                raise self.refusal(wanted)

    def _number(self) -> int | float:
        token = self.peek()
        value = int(token.text) if token.kind == "int" else float(token.text)
        if abs(value) >= _NUMBER_MAX:
            raise self.error("this number is too large")
        self.take()
        return value

    # --- tokens -------------------------------------------------------------------------------

    def _type_name(self, kind: str) -> str:
        hint = None
        if self.at("ident"):
            written = self.peek().text.lstrip("_")
            hint = "type names begin with an upper-case letter"
            if written[:1].isalpha():
                hint += f": `{written[0].upper()}{written[1:]}`"
        return self.expect("type", f"the name of the {kind} type", hint=hint).text

    def _reference(self, kind: str) -> Reference:
        at = self.peek().at
        return Reference(self._type_name(kind), at)
