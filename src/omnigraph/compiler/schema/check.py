"""Checks of single declarations: properties, annotations, constraints.

Every check reports what is wrong and goes on, so that one mistake does not hide the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.schema.parse import (
    AnnotationDecl,
    Argument,
    ConstraintDecl,
    Member,
    PropertyDecl,
    RangeArg,
    TypeExpr,
    Word,
)
from omnigraph.compiler.schema.patterns import pattern_problem
from omnigraph.compiler.text import Problems, RefusedError, closest
from omnigraph.model.schema import (
    FLOATS,
    INTEGERS,
    LANGUAGES,
    NUMBERS,
    PHYSICAL,
    TOKENIZERS,
    Annotation,
    Check,
    Embed,
    LiteralValue,
    Property,
    PropertyType,
    Range,
    Scalar,
)
from omnigraph.model.values import VECTOR_DIMENSION_MAX, Misfit, fit, in_bounds

_BASES = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}
_TYPE_WORDS = (*_BASES, "enum", "Vector")
_LITERALS: dict[Scalar, type | tuple[type, ...]] = {
    Scalar.BOOL: bool,
    **dict.fromkeys(INTEGERS, int),
    **dict.fromkeys(FLOATS, (int, float)),
}  # the others are text
_OTHER_NAMES = {
    "int": "I64", "integer": "I64", "long": "I64", "float": "F64", "double": "F64",
    "text": "String", "str": "String", "boolean": "Bool", "timestamp": "DateTime",
    "bytes": "Blob", "binary": "Blob",
}  # fmt: skip
RESERVED = PHYSICAL | {"id", "src", "dst"}
RESERVED_ON_EDGES = frozenset({"from", "to"})  # what mutations call the endpoints
_ENDPOINTS = ("src", "dst")
_64_BITS = (Scalar.I64, Scalar.U64)
_COLUMN_WORDS = ("key", "unique", "index")
_TEXT_WORDS = ("description", "instruction", "rename_from")
_INDEX_ARGUMENTS: Mapping[str, tuple[LiteralValue, ...]] = {
    "language": LANGUAGES,
    "tokenizer": TOKENIZERS,
    "ann": (True, False),
}
_WITHOUT_STEMS = {
    "chinese": "cjk", "japanese": "cjk", "korean": "cjk", "thai": "ngram", "lao": "ngram",
    "khmer": "ngram", "burmese": "ngram",
}  # fmt: skip
_INDEX_FORMS = '`@index(language="german")`, `@index(tokenizer="cjk")`, `@index(ann=true)`'


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A checked property and the constraint words written behind it."""

    property: Property
    words: frozenset[str]
    at: int


class TypeChecker(msgspec.Struct, kw_only=True):
    """A type whose declaration is being checked, and what could be understood of it.

    Constraints behind a property and those in the body end in one place. The columns of a unique or
    an index are a set, and a set said twice says nothing new.
    """

    kind: str  # "interface" | "node" | "edge"
    name: str
    problems: Problems
    drafts: dict[str, Draft] = msgspec.field(default_factory=dict)
    # None: declared with a type we do not understand
    types: dict[str, PropertyType | None] = msgspec.field(default_factory=dict)
    keys: list[tuple[str, ...]] = msgspec.field(default_factory=list)
    unique: dict[frozenset[str], tuple[str, ...]] = msgspec.field(default_factory=dict)
    index: dict[frozenset[str], tuple[str, ...]] = msgspec.field(default_factory=dict)
    ranges: dict[Range, None] = msgspec.field(default_factory=dict)
    checks: dict[Check, None] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    # --- properties ---------------------------------------------------------------------------

    def check_properties(self, members: Sequence[Member]) -> None:
        for decl in members:
            if not isinstance(decl, PropertyDecl):
                continue
            if decl.name in self.types:
                self.problems.report(decl.at, f"duplicate property '{decl.name}' in {self}")
                continue
            self.types[decl.name] = None
            self._check_name(decl)
            kind = None
            with suppress(RefusedError):
                kind = self._type(decl.type, f"{self.name}.{decl.name}")
            notes = self._once_each(f"property {self.name}.{decl.name}", decl.annotations)
            if kind is not None:
                self.types[decl.name] = kind
                self.drafts[decl.name] = self._property(decl, kind, notes)

    def _check_name(self, decl: PropertyDecl) -> None:
        name = decl.name
        if name in RESERVED or name.startswith("__"):
            self.problems.report(
                decl.at,
                f"property name '{name}' is reserved ({self}): "
                "it would hide a system column in stored and exported data",
                hint="every entity has `id`, and every edge `src` and `dst`, without declaring them"
                if name in ("id", *_ENDPOINTS)
                else "choose another name",
            )
        elif self.kind == "edge" and name in RESERVED_ON_EDGES:
            self.problems.report(
                decl.at,
                f"property name '{name}' is reserved on edges ({self}): it names an endpoint",
                hint=f"choose another name, for example `valid_{name}`",
            )

    def _property(
        self, decl: PropertyDecl, kind: PropertyType, notes: Sequence[AnnotationDecl]
    ) -> Draft:
        where = f"{self.name}.{decl.name}"
        words: set[str] = set()
        texts: dict[str, str] = {}
        arguments: list[Annotation] = []  # of `@index`
        embed, default = None, None
        for note in notes:
            with suppress(RefusedError):
                if note.name in _COLUMN_WORDS:
                    words.add(note.name)
                    if note.kwargs:
                        note = self._indexing(where, kind, note)
                        arguments += [as_value(note)] if note.kwargs else []
                    if note.name == "key" and self.kind == "edge":
                        message = f"@key is not supported on edge properties (edge {where})"
                        raise self.problems.refused(note.at, message)
                    self._check_column(note.name, decl.name, kind, note.at)
                elif note.name in ("range", "check"):
                    needed = "bounds" if note.name == "range" else "pattern"
                    message = f"@{note.name} requires property name and {needed}"
                    hint = _body_form(note.name, decl.name)
                    self.problems.report(note.at, message, hint=hint)
                elif note.name == "embed":
                    embed = self._embed(where, kind, note)
                elif note.name == "instruction":
                    message = "@instruction is only supported on node and edge types"
                    self.problems.report(note.at, message, hint="use @description")
                elif note.name == "default":
                    default = self._default(where, kind, note)
                elif note.name in _TEXT_WORDS:
                    texts[note.name] = self._text(f"property {where}", note)
        if "key" in words and default is not None:
            self.problems.report(decl.at, f"@default is not supported on key property {where}")
        made = Property(
            name=decl.name,
            type=kind,
            annotations=(
                *arguments,
                # One default has one spelling: `1` and `1.0` are the same for a float.
                *(
                    Annotation(name="default", value=default)
                    if note.name == "default" and default is not None
                    else as_value(note)
                    for note in notes
                    if note.name not in _COLUMN_WORDS
                ),
            ),
            embed=embed,
            default=default,
            description=texts.get("description"),
            rename_from=texts.get("rename_from"),
        )
        return Draft(property=made, words=frozenset(words), at=decl.at)

    def _check_column(self, word: str, name: str, kind: PropertyType, at: int) -> None:
        """`@key`, `@unique` or `@index` on one property."""
        report = partial(self.problems.report, at)
        where = f"{self.name}.{name}"
        if kind.scalar is Scalar.BLOB:
            report(f"@{word} is not supported on blob property {where}")
        elif kind.is_list:
            report(f"@{word} is not supported on list property {where}")
        elif kind.scalar is Scalar.VECTOR and word != "index":
            report(f"@{word} is not supported on vector property {where}")
        elif word == "key" and kind.nullable:
            report(f"@key property {where} cannot be nullable", hint="remove the `?`")

    def _indexing(self, where: str, kind: PropertyType, note: AnnotationDecl) -> AnnotationDecl:
        """`@index` with named arguments; those that say what holds anyway are left out."""
        refused = partial(self.problems.refused, note.at, hint=_INDEX_FORMS)
        if note.name != "index":
            raise refused(f"@{note.name} on {where} takes no arguments", hint=None)
        kept: dict[str, LiteralValue] = {}
        for name, value in note.kwargs:
            options = _INDEX_ARGUMENTS.get(name)
            if options is None:
                near = self.problems.suggest(name, _INDEX_ARGUMENTS)
                message = f"@index on {where} has no argument '{name}'"
                raise refused(message, hint=near or _INDEX_FORMS)
            is_text = kind.scalar is Scalar.STRING and kind.enum_values is None
            if (kind.scalar is Scalar.VECTOR) if name == "ann" else is_text:
                if value not in options or type(value) is not type(options[0]):
                    raise refused(
                        f"@index on {where}: {name} cannot be {_shown(value)}",
                        hint=_options_hint(name, value),
                    )
            else:
                wanted = "a Vector" if name == "ann" else "a String"
                raise refused(f"@index({name}=…) is only for {wanted}, {where} is {kind}")
            if value not in (False, "words"):
                kept[name] = value
        return replace(note, kwargs=tuple(sorted(kept.items())))

    def _embed(self, where: str, kind: PropertyType, note: AnnotationDecl) -> Embed:
        refused = partial(self.problems.refused, note.at)
        report = partial(
            self.problems.report, note.at, hint='`@embed("source_property", model="name")`'
        )
        if self.kind == "edge":
            raise refused(f"@embed is not supported on edge properties (edge {where})")
        if kind.scalar is Scalar.BLOB:
            raise refused(f"@embed is not supported on blob property {where}")
        if kind.scalar is not Scalar.VECTOR:
            raise refused(f"@embed is only supported on Vector properties, {where} is {kind}")
        source = _written_text(note.value)
        if not source:
            report(f"@embed on {where} requires a source property name")
            raise RefusedError
        model = None
        for key, value in note.kwargs:
            if key != "model":
                report(f"@embed on {where} has argument '{key}': only 'model' is supported")
            elif model is not None:
                report(f"@embed on {where} names its model twice")
            elif not isinstance(value, str) or not value.strip():
                report(f"@embed model of {where} must be a non-empty string")
            else:
                model = value
        return Embed(source=source, model=model)

    def check_embed_sources(self) -> None:
        """The source of `@embed` is known only when interfaces have brought their properties."""
        for draft in self.drafts.values():
            if draft.property.embed is None:
                continue
            name = draft.property.embed.source
            source = self.drafts.get(name)
            if source is None:
                self.problems.report(
                    draft.at,
                    f"@embed on {self.name}.{draft.property.name} references unknown source "
                    f"property '{name}'",
                    hint=self.problems.suggest(name, self.drafts),
                )
            elif source.property.type.scalar is not Scalar.STRING or source.property.type.is_list:
                message = f"@embed source property {self.name}.{name} must be String"
                self.problems.report(draft.at, message)

    def _default(self, where: str, kind: PropertyType, note: AnnotationDecl) -> LiteralValue:
        refused = partial(self.problems.refused, note.at)
        if kind.is_list or kind.scalar in (Scalar.VECTOR, Scalar.BLOB):
            raise refused(f"@default is not supported on {kind} property {where}")
        if note.value is None or note.kwargs:
            message = f"@default on {where} requires exactly one value"
            raise refused(message, hint=_default_forms(kind))
        written = note.value.text if isinstance(note.value, Word) else note.value
        value = _default_of(kind, written)
        if value is None:
            message = f"@default({written}) does not fit {where}: {kind}"
            raise refused(message, hint=_default_forms(kind))
        return value

    # --- annotations --------------------------------------------------------------------------

    def texts(self, notes: tuple[AnnotationDecl, ...]) -> dict[str, str]:
        """The texts of `@description`, `@instruction` and `@rename_from` of the type."""
        texts: dict[str, str] = {}
        for note in self._once_each(str(self), notes):
            if note.name in _TEXT_WORDS:
                with suppress(RefusedError):
                    texts[note.name] = self._text(str(self), note)
            elif note.name in (*_COLUMN_WORDS, "range", "check", "embed", "default"):
                # `as a type annotation` reads the same for both kinds, but the words are older
                # than us.
                self.problems.report(
                    note.at,
                    f"@{note.name} is not supported on edges ({self})"
                    if self.kind == "edge"
                    else f"@{note.name} is only supported on node properties ({self})",
                    hint=_body_form(note.name, "property"),
                )
        return texts

    def _once_each(
        self, what: str, notes: tuple[AnnotationDecl, ...]
    ) -> tuple[AnnotationDecl, ...]:
        """The annotations without the repetitions of those that may stand only once."""
        kept: list[AnnotationDecl] = []
        seen: set[str] = set()
        for note in notes:
            single = note.name in (*_COLUMN_WORDS, *_TEXT_WORDS, "embed", "default")
            if single and note.name in seen:
                self.problems.report(note.at, f"{what} declares @{note.name} multiple times")
                continue
            if len(dict(note.kwargs)) < len(note.kwargs):
                self.problems.report(note.at, f"@{note.name} on {what} names an argument twice")
            seen.add(note.name)
            kept.append(note)
        return tuple(kept)

    def _text(self, what: str, note: AnnotationDecl) -> str:
        text = _written_text(note.value)
        if text is None or not text.strip() or note.kwargs:
            one = "exactly one" if note.name == "rename_from" else "a"
            message = f"@{note.name} on {what} requires {one} non-empty value"
            raise self.problems.refused(note.at, message, hint=f'write `@{note.name}("…")`')
        return text

    # --- constraints --------------------------------------------------------------------------

    def check_constraints(self, members: Sequence[Member]) -> None:
        """Take the constraints behind the properties, inherited ones too, and those in the body."""
        for name, draft in self.drafts.items():
            for word in sorted(draft.words):
                self._add_columns(word, (name,))
        for decl in members:
            if not isinstance(decl, ConstraintDecl):
                continue
            with suppress(RefusedError):
                if self.kind == "edge" and decl.name in ("key", "range", "check"):
                    message = f"@{decl.name} constraint is not supported on edges ({self})"
                    raise self.problems.refused(decl.at, message)
                if decl.name in _COLUMN_WORDS:
                    self._check_columns(decl)
                elif decl.name == "range":
                    self._check_range(decl)
                else:
                    self._check_pattern(decl)

    def _add_columns(self, word: str, columns: tuple[str, ...]) -> None:
        if word == "key":
            self.keys.append(columns)
        else:
            into = self.unique if word == "unique" else self.index
            into.setdefault(frozenset(columns), columns)

    def _check_columns(self, decl: ConstraintDecl) -> None:
        columns: dict[str, None] = {}
        for arg in decl.args:
            if not isinstance(arg, Word):
                raise self.problems.refused(
                    decl.at,
                    f"expected property name argument in @{decl.name} constraint on {self.name}",
                    hint=f"`@{decl.name}(a, b)` lists properties; "
                    f"`@{decl.name}` behind a property takes no value",
                )
            if arg.text in columns:
                message = f"@{decl.name} on {self.name} names property '{arg.text}' twice"
                raise self.problems.refused(decl.at, message)
            columns[arg.text] = None
        for name in columns:
            if self.kind == "edge" and name in _ENDPOINTS:
                continue
            kind = self._typed(decl, name)
            if kind is not None:
                self._check_column(decl.name, name, kind, decl.at)
        self._add_columns(decl.name, tuple(columns))

    def _typed(self, decl: ConstraintDecl, name: str) -> PropertyType | None:
        if name not in self.types:
            self.problems.report(
                decl.at,
                f"@{decl.name} on {self.name} references unknown property '{name}'",
                hint=self.problems.suggest(name, self.types),
            )
        return self.types.get(name)

    def _check_range(self, decl: ConstraintDecl) -> None:
        refused = partial(self.problems.refused, decl.at)
        hint = "`@range(age, 0..150)`, `@range(age, 0..)` or `@range(age, ..150)`"
        if len(decl.args) < 2 or not isinstance(decl.args[0], Word):
            raise refused("@range requires property name and bounds", hint=hint)
        name, bounds = decl.args[0].text, decl.args[1]
        if not isinstance(bounds, RangeArg) or len(decl.args) > 2:
            raise refused("expected range bounds (min..max) in @range constraint", hint=hint)
        kind = self._typed(decl, name)
        on = f"@range on {self.name}.{name}"
        low, high = bounds.minimum, bounds.maximum
        if kind is not None and (kind.scalar not in NUMBERS or kind.is_list):
            raise refused(f"{on} requires a numeric type, got {kind}")
        if low is not None and high is not None and low > high:
            raise refused(f"{on} has min {low} > max {high}: no value could satisfy it")
        for bound in (low, high):
            # A bound is compared with columns of 64 bits, signed and unsigned.
            if bound is not None and not any(in_bounds(bound, kind) for kind in _64_BITS):
                raise refused(f"{on} has a bound beyond 64 bits")
        self.ranges[Range(property=name, minimum=low, maximum=high)] = None

    def _check_pattern(self, decl: ConstraintDecl) -> None:
        refused = partial(self.problems.refused, decl.at)
        hint = '`@check(code, "^[A-Z]{3}$")`'
        if len(decl.args) < 2 or not isinstance(decl.args[0], Word):
            raise refused("@check requires property name and pattern", hint=hint)
        name, pattern = decl.args[0].text, decl.args[1]
        if not isinstance(pattern, str) or len(decl.args) > 2:
            message = "expected string argument in constraint: @check needs a pattern"
            raise refused(message, hint=hint)
        kind = self._typed(decl, name)
        if kind is not None and (kind.scalar is not Scalar.STRING or kind.is_list):
            raise refused(f"@check on {self.name}.{name} requires a String type, got {kind}")
        wrong = pattern_problem(pattern)
        if wrong is not None:
            raise refused(f"@check pattern of {self.name}.{name} {wrong.message}", hint=wrong.hint)
        self.checks[Check(property=name, pattern=pattern)] = None

    # --- types as written ---------------------------------------------------------------------

    def _type(self, written: TypeExpr, where: str) -> PropertyType:
        """The property type; `where` names the property in messages."""
        refused = partial(self.problems.refused, written.at)
        if written.enum_values is not None:
            value, times = Counter(written.enum_values).most_common(1)[0]
            if times > 1:
                raise refused(f"duplicate enum value '{value}' in {where}")
            values = tuple(sorted(written.enum_values))
            return PropertyType(scalar=Scalar.STRING, nullable=written.nullable, enum_values=values)
        if written.dimension is not None:
            dimension = written.dimension
            if not in_bounds(dimension, Scalar.U32):
                raise refused(f"invalid Vector dimension {dimension} of {where}")
            if dimension > VECTOR_DIMENSION_MAX:
                most = f"exceeds maximum supported {VECTOR_DIMENSION_MAX}"
                raise refused(f"Vector dimension {dimension} of {where} {most}")
            if dimension == 0:
                raise refused(f"Vector dimension of {where} must be greater than zero")
            return PropertyType(
                scalar=Scalar.VECTOR, nullable=written.nullable, dimension=dimension
            )
        scalar = _BASES.get(written.base)
        if scalar is None:
            near = _OTHER_NAMES.get(written.base.lower()) or closest(written.base, _TYPE_WORDS)
            known = "the types are " + ", ".join(_TYPE_WORDS)
            hint = f"did you mean `{near}`?" if near else known
            raise refused(f"unknown type '{written.base}' of {where}", hint=hint)
        if written.is_list and scalar is Scalar.BLOB:
            raise refused(f"list of Blob is not supported ({where})")
        return PropertyType(scalar=scalar, nullable=written.nullable, is_list=written.is_list)


def as_value(note: AnnotationDecl) -> Annotation:
    """The annotation as the catalog keeps it: a bare name means its text."""
    value = note.value.text if isinstance(note.value, Word) else note.value
    return Annotation(name=note.name, value=value, kwargs=note.kwargs)


def _shown(value: LiteralValue) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower()


def _options_hint(name: str, value: LiteralValue) -> str:
    if name == "ann":
        return "write `true` or `false`"
    written, options = str(value).lower(), [str(one) for one in _INDEX_ARGUMENTS[name]]
    if written in _WITHOUT_STEMS:
        return f'no stems are known for it: write `tokenizer="{_WITHOUT_STEMS[written]}"`'
    near = closest(written, options)
    return f'did you mean "{near}"?' if near else f"it is one of {', '.join(options)}"


def _written_text(value: Argument | None) -> str | None:
    if isinstance(value, Word):
        return value.text
    return value if isinstance(value, str) else None


def _body_form(word: str, name: str) -> str:
    forms = {
        "range": f"write `@range({name}, 0..100)` in the body",
        "check": f'write `@check({name}, "regex")` in the body',
        "embed": "write it behind a Vector property of a node",
        "default": "write it behind the property",
    }
    return forms.get(word) or (
        f"write `@{word}` behind a property, or `@{word}({name})` between the braces"
    )


def _default_of(kind: PropertyType, value: LiteralValue) -> LiteralValue | None:
    """The value of `@default(value)` for a type, or None when the literal does not fit it.

    It must be written as a literal of the type, and be a value of it. Dates stay text, in the form
    the schema wrote them.
    """
    if kind.enum_values is not None:
        return value if value in kind.enum_values else None
    if not isinstance(value, _LITERALS.get(kind.scalar, str)):
        return None
    if isinstance(value, bool) is not (kind.scalar is Scalar.BOOL):
        return None
    if isinstance(fit(value, kind), Misfit):
        return None
    return float(value) if kind.scalar in FLOATS else value


def _default_forms(kind: PropertyType) -> str:
    """What a default of this type looks like."""
    if kind.enum_values is not None:
        return "one of: " + ", ".join(f"`{value}`" for value in kind.enum_values)
    return {
        Scalar.STRING: '`@default("text")`',
        Scalar.BOOL: "`@default(true)` or `@default(false)`",
        Scalar.DATE: '`@default("2024-01-31")`',
        Scalar.DATETIME: '`@default("2024-01-31T12:00:00Z")`',
        Scalar.F32: "`@default(0.5)`",
        Scalar.F64: "`@default(0.5)`",
    }.get(kind.scalar, f"a whole number in the range of {kind.scalar.value}: `@default(0)`")
