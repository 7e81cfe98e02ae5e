"""`.pg` text to syntax tree, by recursive descent: one function a rule of the grammar.

The grammar is in docs/reference/schema-language.md. Nothing in it nests, so the depth of the
descent is fixed. The parser stops at the first thing it cannot read; whatever can be read but makes
no sense is left to the checks, which report all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from omnigraph.compiler.diagnostics import SourceText, closest
from omnigraph.compiler.schema.ast import (
    AnnotationDecl,
    Argument,
    CardinalityDecl,
    ConstraintDecl,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    Member,
    NodeDecl,
    PropertyDecl,
    RangeArg,
    Reference,
    SchemaDecl,
    TypeExpr,
    Word,
)
from omnigraph.compiler.schema.lexer import Lexer, Token, decoded
from omnigraph.errors import LimitExceededError, ParseError
from omnigraph.model.limits import SCHEMA_MEMBERS_MAX, SCHEMA_SOURCE_BYTES_MAX, SCHEMA_TYPES_MAX
from omnigraph.model.schema import LiteralValue

CONSTRAINT_WORDS = frozenset({"key", "unique", "index", "range", "check"})
_NUMBER_MAX = 10**40  # beyond any type of the language, and short enough to be printed back
_T = TypeVar("_T")


def parse_schema(source: SourceText) -> SchemaDecl:
    """The syntax tree of a schema, or `ParseError` at the first place the grammar refuses."""
    try:
        size = len(source.text.encode())
    except UnicodeEncodeError as cause:
        raise Lexer(source).error("this is not a Unicode character", offset=cause.start) from cause
    if size > SCHEMA_SOURCE_BYTES_MAX:
        raise LimitExceededError(
            resource="schema source bytes", limit=SCHEMA_SOURCE_BYTES_MAX, actual=size
        )
    return _Parser(Lexer(source)).schema()


class _Parser:
    def __init__(self, lexer: Lexer) -> None:
        self._lexer = lexer
        self._last_end = 0
        self._token = lexer.next()

    # --- declarations -------------------------------------------------------------------------

    def schema(self) -> SchemaDecl:
        declarations: list[Declaration] = []
        while self._token.kind != "end":
            if len(declarations) == SCHEMA_TYPES_MAX:
                raise LimitExceededError(
                    resource="types of a schema",
                    limit=SCHEMA_TYPES_MAX,
                    actual=SCHEMA_TYPES_MAX + 1,
                )
            declarations.append(self._declaration())
        return SchemaDecl(declarations=tuple(declarations))

    def _declaration(self) -> Declaration:
        word = self._token
        rules: dict[str, Callable[[], Declaration]] = {
            "interface": self._interface,
            "node": self._node,
            "edge": self._edge,
        }
        if word.text in rules:
            return rules[word.text]()
        hint = None
        if word.kind in ("lower", "upper"):
            near = closest(word.text, rules)
            hint = f"did you mean `{near}`?" if near else None
        raise self._unexpected("`interface`, `node` or `edge`", hint=hint)

    def _interface(self) -> InterfaceDecl:
        offset = self._take().offset
        name = self._type_name("interface")
        if self._is_mark("@"):
            raise self._error("interfaces take no annotations", hint="annotate its properties")
        self._expect("{", after=f"`interface {name}`")
        members = self._members(self._interface_member)
        end = self._expect("}").end
        return InterfaceDecl(name=name, members=members, offset=offset, end=end)

    def _interface_member(self) -> PropertyDecl:
        if self._is_mark("@"):
            raise self._error(
                "constraints are not allowed in an interface body",
                hint="write `@key`, `@unique` or `@index` behind the property, without brackets, "
                "or put the constraint into the nodes",
            )
        return self._property()

    def _node(self) -> NodeDecl:
        offset = self._take().offset
        name = self._type_name("node")
        annotations = self._annotations()
        implements: list[Reference] = []
        if self._is_word("implements"):
            self._take()
            implements.append(self._reference("interface"))
            while self._is_mark(","):
                self._take()
                implements.append(self._reference("interface"))
            if self._is_mark("@"):
                raise self._error(
                    "annotations come before `implements`",
                    hint=f"write `node {name} @… implements {implements[0].name} {{`",
                )
        self._refuse_header_constraint(name)
        self._expect("{", after=f"`node {name}`")
        members = self._members(self._member)
        end = self._expect("}").end
        return NodeDecl(
            name=name,
            annotations=annotations,
            implements=tuple(implements),
            members=members,
            offset=offset,
            end=end,
        )

    def _edge(self) -> EdgeDecl:
        offset = self._take().offset
        name = self._type_name("edge")
        self._expect(":", after=f"`edge {name}`", hint=f"write `edge {name}: From -> To`")
        source = self._reference("node")
        self._expect("->", hint=f"write `edge {name}: {source.name} -> To`")
        target = self._reference("node")
        cardinality = self._cardinality()
        annotations = self._annotations()
        self._refuse_header_constraint(name)
        members: tuple[Member, ...] = ()
        end = self._last_end
        if self._is_mark("{"):
            self._take()
            members = self._members(self._member)
            end = self._expect("}").end
        return EdgeDecl(
            name=name,
            source=source,
            target=target,
            cardinality=cardinality,
            annotations=annotations,
            members=members,
            offset=offset,
            end=end,
        )

    def _refuse_header_constraint(self, name: str) -> None:
        """`_annotations` stops at `@key(`: say where that belongs."""
        if not self._is_mark("@"):
            return
        word = self._peek().text
        raise self._error(
            f"@{word}(…) does not belong in the header of {name}",
            hint=f"put it between the braces: `{{ … @{word}(…) }}`",
        )

    def _cardinality(self) -> CardinalityDecl | None:
        if not (self._is_mark("@") and self._peek().text == "card"):
            return None
        offset = self._take().offset
        self._take()
        forms = (
            "write `@card(1..1)` for exactly one, `@card(0..1)` for at most one, "
            "`@card(1..)` for at least one"
        )
        self._expect("(", after="`@card`", hint=forms)
        if self._is_mark(".."):
            raise self._error("@card needs a minimum", hint="write `@card(0..5)` for at most five")
        minimum = self._count("@card needs a number before `..`", hint=forms)
        if self._is_mark(")"):
            raise self._error(
                f"@card({minimum}) is not a range",
                hint=f"write `@card({minimum}..{minimum})` for exactly {minimum}, "
                f"`@card({minimum}..)` for at least {minimum}, "
                f"`@card(0..{minimum})` for at most {minimum}",
            )
        self._expect("..", hint=forms)
        maximum = None
        if not self._is_mark(")"):
            maximum = self._count("@card needs a number or nothing behind `..`", hint=forms)
        self._expect(")", hint=forms)
        return CardinalityDecl(minimum=minimum, maximum=maximum, offset=offset)

    def _count(self, message: str, *, hint: str) -> int:
        if self._token.kind != "integer" or self._token.text.startswith("-"):
            raise self._error(message, hint=hint)
        return int(self._take().text)

    # --- members ------------------------------------------------------------------------------

    def _members(self, member: Callable[[], _T]) -> tuple[_T, ...]:
        members: list[_T] = []
        while not self._is_mark("}"):
            if len(members) == SCHEMA_MEMBERS_MAX:
                raise LimitExceededError(
                    resource="members of a type",
                    limit=SCHEMA_MEMBERS_MAX,
                    actual=SCHEMA_MEMBERS_MAX + 1,
                )
            members.append(member())
            if self._is_mark(","):  # separators are welcome, never needed
                self._take()
        return tuple(members)

    def _member(self) -> Member:
        return self._constraint() if self._is_mark("@") else self._property()

    def _property(self) -> PropertyDecl:
        if self._token.kind == "upper":
            raise self._unexpected(
                "a property name or `}`", hint="property names begin with a lower-case letter"
            )
        if self._token.kind != "lower":
            raise self._unexpected("a property name or `}`")
        name = self._take()
        self._expect(":", after=f"`{name.text}`", hint=f"write `{name.text}: String`")
        return PropertyDecl(
            name=name.text,
            type=self._type(),
            annotations=self._annotations(),
            offset=name.offset,
        )

    def _type(self) -> TypeExpr:
        start = self._token
        if start.kind == "[":
            self._take()
            base = self._take_base("a type name", inside_list=True).text
            self._expect("]", after=f"`[{base}`")
            return self._finished(TypeExpr(base=base, is_list=True, offset=start.offset))
        base = self._take_base("a type", inside_list=False).text
        if base == "enum":
            values = self._enum_values()
            return self._finished(TypeExpr(base=base, enum_values=values, offset=start.offset))
        if base == "Vector":
            self._expect("(", after="`Vector`", hint="write the dimension: `Vector(384)`")
            if self._token.kind != "integer" or self._token.text.startswith("-"):
                raise self._error(
                    "invalid Vector dimension", hint="write a number of 1 or more: `Vector(384)`"
                )
            dimension = int(self._take().text)
            self._expect(")")
            return self._finished(TypeExpr(base=base, dimension=dimension, offset=start.offset))
        return self._finished(TypeExpr(base=base, offset=start.offset))

    def _take_base(self, wanted: str, *, inside_list: bool) -> Token:
        if self._token.kind not in ("upper", "lower"):
            raise self._unexpected(wanted)
        if inside_list and self._token.text in ("enum", "Vector"):
            raise self._error(f"a list of {self._token.text} is not supported")
        return self._take()

    def _finished(self, written: TypeExpr) -> TypeExpr:
        if not self._is_mark("?"):
            return written
        self._take()
        return TypeExpr(
            base=written.base,
            nullable=True,
            is_list=written.is_list,
            enum_values=written.enum_values,
            dimension=written.dimension,
            offset=written.offset,
        )

    def _enum_values(self) -> tuple[str, ...]:
        self._expect_without_reading("(", after="`enum`")
        values = [self._enum_value()]
        while self._is_mark(","):
            values.append(self._enum_value())
        self._expect(")", hint="enum values are separated by commas")
        return tuple(values)

    def _enum_value(self) -> str:
        """Read one value behind the current mark, with the enum's own idea of a word."""
        self._lexer.position = self._token.end
        self._lexer.skip()
        start = self._lexer.position
        value = self._lexer.enum_value_at(start)
        if value is None:
            raise self._lexer.error(
                "enum needs a value here",
                offset=start,
                hint="values are made of letters, digits, `_` and `-`: `enum(open, in-progress)`",
            )
        self._last_end = value.end
        self._token = self._lexer.next()
        return value.text

    # --- annotations and constraints ----------------------------------------------------------

    def _annotations(self) -> tuple[AnnotationDecl, ...]:
        """All annotations here, up to a constraint or something else."""
        if not self._is_mark("@"):
            return ()
        found: list[AnnotationDecl] = []
        while self._is_mark("@") and not self._constraint_is_next():
            offset = self._take().offset
            if self._token.kind != "lower":
                raise self._unexpected("the name of an annotation behind `@`")
            if self._token.text == "card":
                raise self._error(
                    "@card does not belong here",
                    hint="write it right behind the target of an edge, before other annotations: "
                    "`edge E: A -> B @card(0..1)`",
                )
            name = self._take().text
            value, kwargs = self._annotation_arguments()
            found.append(AnnotationDecl(name=name, value=value, kwargs=kwargs, offset=offset))
        return tuple(found)

    def _constraint_is_next(self) -> bool:
        if self._peek().text not in CONSTRAINT_WORDS:
            return False
        state = self._lexer.position
        try:
            self._lexer.next()
            return self._lexer.next().kind == "("
        finally:
            self._lexer.position = state

    def _annotation_arguments(
        self,
    ) -> tuple[Argument | None, tuple[tuple[str, LiteralValue], ...]]:
        if not self._is_mark("("):
            return None, ()
        self._take()
        value = self._argument("a value")
        kwargs: list[tuple[str, LiteralValue]] = []
        while self._is_mark(","):
            self._take()
            if self._token.kind != "lower":
                raise self._unexpected('`name="value"`')
            key = self._take().text
            self._expect("=", after=f"`{key}`", hint=f'further arguments are named: `{key}="…"`')
            literal = self._argument("a value")
            if isinstance(literal, Word):
                raise self._error_behind(f'`{key}` needs a literal: `{key}="{literal.text}"`')
            kwargs.append((key, literal))
        self._expect(")")
        return value, tuple(kwargs)

    def _constraint(self) -> ConstraintDecl:
        offset = self._take().offset
        if self._token.kind != "lower":
            raise self._unexpected("a constraint behind `@`")
        name = self._token.text
        if name not in CONSTRAINT_WORDS:
            near = closest(name, CONSTRAINT_WORDS)
            raise self._error(
                f"@{name} is not a constraint",
                hint=f"did you mean `@{near}`?" if near else _constraint_forms(),
            )
        self._take()
        self._expect("(", after=f"`@{name}`", hint=_constraint_forms())
        args = [self._constraint_argument()]
        while self._is_mark(","):
            self._take()
            args.append(self._constraint_argument())
        self._expect(")")
        return ConstraintDecl(name=name, args=tuple(args), offset=offset)

    def _constraint_argument(self) -> Argument | RangeArg:
        if self._is_mark(".."):
            self._take()
            if self._token.kind not in ("integer", "float"):
                raise self._unexpected("a number behind `..`")
            return RangeArg(minimum=None, maximum=self._number())
        if self._token.kind not in ("integer", "float"):
            return self._argument("a property name")
        number = self._number()
        if not self._is_mark(".."):
            return number
        self._take()
        maximum = self._number() if self._token.kind in ("integer", "float") else None
        return RangeArg(minimum=number, maximum=maximum)

    def _argument(self, wanted: str) -> Argument:
        match self._token.kind:
            case "string":
                return decoded(self._lexer, self._take())
            case "integer" | "float":
                return self._number()
            case "lower" if self._token.text in ("true", "false"):
                return self._take().text == "true"
            case "lower" | "upper":
                return Word(self._take().text)
            case _:
                raise self._unexpected(wanted)

    def _number(self) -> int | float:
        token = self._token
        value = int(token.text) if token.kind == "integer" else float(token.text)
        if abs(value) >= _NUMBER_MAX:
            raise self._error("this number is too large")
        self._take()
        return value

    # --- tokens -------------------------------------------------------------------------------

    def _type_name(self, kind: str) -> str:
        if self._token.kind != "upper":
            hint = None
            if self._token.kind == "lower":
                written = self._token.text.lstrip("_")
                hint = "type names begin with an upper-case letter"
                if written[:1].isalpha():
                    hint += f": `{written[0].upper()}{written[1:]}`"
            raise self._unexpected(f"the name of the {kind} type", hint=hint)
        return self._take().text

    def _reference(self, kind: str) -> Reference:
        offset = self._token.offset
        return Reference(self._type_name(kind), offset)

    def _take(self) -> Token:
        token = self._token
        self._last_end = token.end
        self._token = self._lexer.next()
        return token

    def _peek(self) -> Token:
        """The token behind the current one."""
        state = self._lexer.position
        token = self._lexer.next()
        self._lexer.position = state
        return token

    def _is_mark(self, mark: str) -> bool:
        return self._token.kind == mark

    def _is_word(self, word: str) -> bool:
        return self._token.kind == "lower" and self._token.text == word

    def _expect(self, mark: str, *, after: str | None = None, hint: str | None = None) -> Token:
        self._expect_without_reading(mark, after=after, hint=hint)
        return self._take()

    def _expect_without_reading(
        self, mark: str, *, after: str | None = None, hint: str | None = None
    ) -> None:
        if self._token.kind != mark:
            raise self._unexpected(f"`{mark}`" + (f" after {after}" if after else ""), hint=hint)

    def _unexpected(self, wanted: str, *, hint: str | None = None) -> ParseError:
        found = "the end of the file" if self._token.kind == "end" else f"`{self._token.text[:40]}`"
        return self._error(f"expected {wanted}, found {found}", hint=hint)

    def _error(self, message: str, *, hint: str | None = None) -> ParseError:
        return self._lexer.error(message, offset=self._token.offset, hint=hint)

    def _error_behind(self, message: str) -> ParseError:
        return self._lexer.error(message, offset=self._last_end - 1)


def _constraint_forms() -> str:
    return (
        '`@key(a)` `@unique(a, b)` `@index(a)` `@range(a, 0..9)` `@check(a, "regex")`; '
        "other annotations stand behind the property they describe"
    )
