"""Checks of single declarations: properties, annotations, constraints.

Every function reports what is wrong and returns what could be understood, so that one mistake does
not hide the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

import msgspec

from omnigraph.compiler.schema.ast import (
    AnnotationDecl,
    Argument,
    ConstraintDecl,
    PropertyDecl,
    RangeArg,
    TypeExpr,
    Word,
)
from omnigraph.compiler.schema.patterns import pattern_problem
from omnigraph.compiler.text import Problems, closest
from omnigraph.model.schema import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    PHYSICAL,
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
_COLUMN_WORDS = ("key", "unique", "index")
_TEXT_WORDS = ("description", "instruction", "rename_from")


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The type whose declaration is being checked."""

    kind: str  # "interface" | "node" | "edge"
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A checked property and the constraint words written behind it."""

    property: Property
    words: frozenset[str]
    at: int


class Constraints(msgspec.Struct):
    """The constraints of one type, property-level and body forms in one place.

    The columns of a unique or an index are a set, and a set said twice says nothing new.
    """

    keys: list[tuple[str, ...]] = msgspec.field(default_factory=list)
    unique: dict[frozenset[str], tuple[str, ...]] = msgspec.field(default_factory=dict)
    index: dict[frozenset[str], tuple[str, ...]] = msgspec.field(default_factory=dict)
    ranges: dict[Range, None] = msgspec.field(default_factory=dict)
    checks: dict[Check, None] = msgspec.field(default_factory=dict)

    def add_columns(self, word: str, columns: tuple[str, ...]) -> None:
        if word == "key":
            self.keys.append(columns)
        else:
            into = self.unique if word == "unique" else self.index
            into.setdefault(frozenset(columns), columns)


# --- properties ----------------------------------------------------------------------------


def check_property(owner: Owner, decl: PropertyDecl, problems: Problems) -> Draft | None:
    """The property, or None when its type could not be understood."""
    where = f"{owner.name}.{decl.name}"
    _check_name(owner, decl, problems)
    kind = _resolved_type(decl.type, where=where, problems=problems)
    annotations = _once_each(f"property {where}", decl.annotations, problems)
    if kind is None:
        return None
    words: set[str] = set()
    facts: dict[str, LiteralValue] = {}
    embed = None
    for note in annotations:
        report = partial(problems.report, note.at)
        if note.name in _COLUMN_WORDS:
            words.add(note.name)
            if note.name == "key" and owner.kind == "edge":
                report(f"@key is not supported on edge properties (edge {where})")
            else:
                _check_column(note.name, owner, decl.name, kind, note.at, problems)
        elif note.name in ("range", "check"):
            report(
                f"@{note.name} requires property name and "
                + ("bounds" if note.name == "range" else "pattern"),
                hint=_body_form(note.name, decl.name),
            )
        elif note.name == "embed":
            embed = _embed(owner, decl.name, kind, note, problems)
        elif note.name == "instruction":
            report("@instruction is only supported on node and edge types", hint="use @description")
        elif note.name == "default":
            value = _default(where, kind, note, problems)
            if value is not None:
                facts["default"] = value
        elif note.name in _TEXT_WORDS:
            text = _text(f"property {where}", note, problems)
            if text is not None:
                facts[note.name] = text
    if "key" in words and "default" in facts:
        problems.report(decl.at, f"@default is not supported on key property {where}")
    description, rename = facts.get("description"), facts.get("rename_from")
    made = Property(
        name=decl.name,
        type=kind,
        annotations=tuple(
            # One default has one spelling: `1` and `1.0` are the same for a float.
            Annotation(name="default", value=facts["default"])
            if note.name == "default" and "default" in facts
            else as_value(note)
            for note in annotations
            if note.name not in _COLUMN_WORDS
        ),
        embed=embed,
        default=facts.get("default"),
        description=description if isinstance(description, str) else None,
        rename_from=rename if isinstance(rename, str) else None,
    )
    return Draft(property=made, words=frozenset(words), at=decl.at)


def _check_name(owner: Owner, decl: PropertyDecl, problems: Problems) -> None:
    name = decl.name
    if name in RESERVED or name.startswith("__"):
        problems.report(
            decl.at,
            f"property name '{name}' is reserved ({owner}): "
            "it would hide a system column in stored and exported data",
            hint="every entity has `id`, and every edge `src` and `dst`, without declaring them"
            if name in ("id", *_ENDPOINTS)
            else "choose another name",
        )
    elif owner.kind == "edge" and name in RESERVED_ON_EDGES:
        problems.report(
            decl.at,
            f"property name '{name}' is reserved on edges ({owner}): it names an endpoint",
            hint=f"choose another name, for example `valid_{name}`",
        )


def _check_column(
    word: str, owner: Owner, name: str, kind: PropertyType, at: int, problems: Problems
) -> None:
    """`@key`, `@unique` or `@index` on one property."""
    where = f"{owner.name}.{name}"
    if kind.scalar is Scalar.BLOB:
        problems.report(at, f"@{word} is not supported on blob property {where}")
    elif kind.is_list:
        problems.report(at, f"@{word} is not supported on list property {where}")
    elif kind.scalar is Scalar.VECTOR and word != "index":
        problems.report(at, f"@{word} is not supported on vector property {where}")
    elif word == "key" and kind.nullable:
        problems.report(at, f"@key property {where} cannot be nullable", hint="remove the `?`")


def _embed(
    owner: Owner, name: str, kind: PropertyType, note: AnnotationDecl, problems: Problems
) -> Embed | None:
    where = f"{owner.name}.{name}"
    report = partial(problems.report, note.at)
    hint = '`@embed("source_property", model="name")`'
    if owner.kind == "edge":
        report(f"@embed is not supported on edge properties (edge {where})")
        return None
    if kind.scalar is Scalar.BLOB:
        report(f"@embed is not supported on blob property {where}")
        return None
    if kind.scalar is not Scalar.VECTOR:
        report(f"@embed is only supported on Vector properties, {where} is {kind}")
        return None
    source = _written_text(note.value)
    if not source:
        report(f"@embed on {where} requires a source property name", hint=hint)
        return None
    model = None
    for key, value in note.kwargs:
        if key != "model":
            report(f"@embed on {where} has argument '{key}': only 'model' is supported", hint=hint)
        elif model is not None:
            report(f"@embed on {where} names its model twice", hint=hint)
        elif not isinstance(value, str) or not value.strip():
            report(f"@embed model of {where} must be a non-empty string", hint=hint)
        else:
            model = value
    return Embed(source=source, model=model)


def check_embed_source(
    owner: Owner, draft: Draft, properties: Mapping[str, Property], problems: Problems
) -> None:
    """The source of `@embed` is known only when interfaces have brought their properties."""
    made = draft.property
    if made.embed is None:
        return
    source = properties.get(made.embed.source)
    if source is None:
        problems.report(
            draft.at,
            f"@embed on {owner.name}.{made.name} references unknown source property "
            f"'{made.embed.source}'",
            hint=problems.suggest(made.embed.source, properties),
        )
    elif source.type.scalar is not Scalar.STRING or source.type.is_list:
        problems.report(
            draft.at, f"@embed source property {owner.name}.{source.name} must be String"
        )


def _default(
    where: str, kind: PropertyType, note: AnnotationDecl, problems: Problems
) -> LiteralValue | None:
    report = partial(problems.report, note.at)
    if kind.is_list or kind.scalar in (Scalar.VECTOR, Scalar.BLOB):
        report(f"@default is not supported on {kind} property {where}")
        return None
    if note.value is None or note.kwargs:
        report(f"@default on {where} requires exactly one value", hint=_default_forms(kind))
        return None
    value = _default_of(kind, note.value)
    if value is None:
        shown = note.value.text if isinstance(note.value, Word) else note.value
        report(f"@default({shown}) does not fit {where}: {kind}", hint=_default_forms(kind))
    return value


# --- annotations ---------------------------------------------------------------------------


def as_value(note: AnnotationDecl) -> Annotation:
    """The annotation as the catalog keeps it: a bare name means its text."""
    value = note.value.text if isinstance(note.value, Word) else note.value
    return Annotation(name=note.name, value=value, kwargs=note.kwargs)


def check_type_annotations(
    owner: Owner, notes: tuple[AnnotationDecl, ...], problems: Problems
) -> dict[str, str]:
    """The texts of `@description`, `@instruction` and `@rename_from` of a type."""
    texts: dict[str, str] = {}
    for note in _once_each(f"{owner.kind} {owner.name}", notes, problems):
        report = partial(problems.report, note.at)
        if note.name in _TEXT_WORDS:
            text = _text(f"{owner.kind} {owner.name}", note, problems)
            if text is not None:
                texts[note.name] = text
        elif note.name in (*_COLUMN_WORDS, "range", "check", "embed", "default"):
            # `as a type annotation` reads the same for both kinds, but the words are older than us.
            report(
                f"@{note.name} is not supported on edges (edge {owner.name})"
                if owner.kind == "edge"
                else f"@{note.name} is only supported on node properties (node {owner.name})",
                hint=_body_form(note.name, "property"),
            )
    return texts


def _once_each(
    what: str, notes: tuple[AnnotationDecl, ...], problems: Problems
) -> tuple[AnnotationDecl, ...]:
    """The annotations without the repetitions of those that may stand only once."""
    kept: list[AnnotationDecl] = []
    seen: set[str] = set()
    for note in notes:
        single = note.name in (*_COLUMN_WORDS, *_TEXT_WORDS, "embed", "default")
        if single and note.name in seen:
            problems.report(note.at, f"{what} declares @{note.name} multiple times")
            continue
        if len(dict(note.kwargs)) < len(note.kwargs):
            problems.report(note.at, f"@{note.name} on {what} names an argument twice")
        seen.add(note.name)
        kept.append(note)
    return tuple(kept)


def _written_text(value: Argument | None) -> str | None:
    if isinstance(value, Word):
        return value.text
    return value if isinstance(value, str) else None


def _text(what: str, note: AnnotationDecl, problems: Problems) -> str | None:
    text = _written_text(note.value)
    one = "exactly one non-empty value" if note.name == "rename_from" else "a non-empty value"
    if text is None or not text.strip() or note.kwargs:
        problems.report(
            note.at, f"@{note.name} on {what} requires {one}", hint=f'write `@{note.name}("…")`'
        )
        return None
    return text


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


# --- constraints in the body ---------------------------------------------------------------


def check_constraint(
    owner: Owner,
    decl: ConstraintDecl,
    types: Mapping[str, PropertyType | None],
    into: Constraints,
    problems: Problems,
) -> None:
    """Check one body constraint; `types` knows every property, None for those without a type."""
    word = decl.name
    if owner.kind == "edge" and word in ("key", "range", "check"):
        problems.report(
            decl.at, f"@{word} constraint is not supported on edges (edge {owner.name})"
        )
        return
    if word in _COLUMN_WORDS:
        _check_columns(owner, decl, types, into, problems)
    elif word == "range":
        _check_range(owner, decl, types, into, problems)
    else:
        _check_pattern(owner, decl, types, into, problems)


def _check_columns(
    owner: Owner,
    decl: ConstraintDecl,
    types: Mapping[str, PropertyType | None],
    into: Constraints,
    problems: Problems,
) -> None:
    columns: dict[str, None] = {}
    for arg in decl.args:
        if not isinstance(arg, Word):
            problems.report(
                decl.at,
                f"expected property name argument in @{decl.name} constraint on {owner.name}",
                hint=f"`@{decl.name}(a, b)` lists properties; "
                f"`@{decl.name}` behind a property takes no value",
            )
            return
        if arg.text in columns:
            problems.report(
                decl.at, f"@{decl.name} on {owner.name} names property '{arg.text}' twice"
            )
            return
        columns[arg.text] = None
    for name in columns:
        if owner.kind == "edge" and name in _ENDPOINTS:
            continue
        kind = _typed(owner, decl, name, types, problems)
        if kind is not None:
            _check_column(decl.name, owner, name, kind, decl.at, problems)
    into.add_columns(decl.name, tuple(columns))


def _typed(
    owner: Owner,
    decl: ConstraintDecl,
    name: str,
    types: Mapping[str, PropertyType | None],
    problems: Problems,
) -> PropertyType | None:
    if name not in types:
        problems.report(
            decl.at,
            f"@{decl.name} on {owner.name} references unknown property '{name}'",
            hint=problems.suggest(name, types),
        )
        return None
    return types[name]


def _check_range(
    owner: Owner,
    decl: ConstraintDecl,
    types: Mapping[str, PropertyType | None],
    into: Constraints,
    problems: Problems,
) -> None:
    report = partial(problems.report, decl.at)
    hint = "`@range(age, 0..150)`, `@range(age, 0..)` or `@range(age, ..150)`"
    if len(decl.args) < 2 or not isinstance(decl.args[0], Word):
        report("@range requires property name and bounds", hint=hint)
        return
    name, bounds = decl.args[0].text, decl.args[1]
    if not isinstance(bounds, RangeArg) or len(decl.args) > 2:
        report("expected range bounds (min..max) in @range constraint", hint=hint)
        return
    kind = _typed(owner, decl, name, types, problems)
    where = f"{owner.name}.{name}"
    low, high = bounds.minimum, bounds.maximum
    if kind is not None and (kind.scalar not in NUMBERS or kind.is_list):
        report(f"@range on {where} requires a numeric type, got {kind}")
    elif low is not None and high is not None and low > high:
        report(f"@range on {where} has min {low} > max {high}: no value could satisfy it")
    elif any(b is not None and not _fits_64_bits(b) for b in (low, high)):
        report(f"@range on {where} has a bound beyond 64 bits")
    else:
        into.ranges[Range(property=name, minimum=low, maximum=high)] = None


def _fits_64_bits(bound: float) -> bool:
    """A bound is compared with columns of 64 bits, signed and unsigned."""
    return in_bounds(bound, Scalar.I64) or in_bounds(bound, Scalar.U64)


def _check_pattern(
    owner: Owner,
    decl: ConstraintDecl,
    types: Mapping[str, PropertyType | None],
    into: Constraints,
    problems: Problems,
) -> None:
    report = partial(problems.report, decl.at)
    hint = '`@check(code, "^[A-Z]{3}$")`'
    if len(decl.args) < 2 or not isinstance(decl.args[0], Word):
        report("@check requires property name and pattern", hint=hint)
        return
    name, pattern = decl.args[0].text, decl.args[1]
    if not isinstance(pattern, str) or len(decl.args) > 2:
        report("expected string argument in constraint: @check needs a pattern", hint=hint)
        return
    kind = _typed(owner, decl, name, types, problems)
    where = f"{owner.name}.{name}"
    if kind is not None and (kind.scalar is not Scalar.STRING or kind.is_list):
        report(f"@check on {where} requires a String type, got {kind}")
        return
    wrong = pattern_problem(pattern)
    if wrong is not None:
        report(f"@check pattern of {where} {wrong.message}", hint=wrong.hint)
        return
    into.checks[Check(property=name, pattern=pattern)] = None


# --- types and defaults as written -------------------------------------------------------------


def _resolved_type(written: TypeExpr, *, where: str, problems: Problems) -> PropertyType | None:
    """The property type, or None after a report. `where` names the property in messages."""
    if written.enum_values is not None:
        return _enum(written, written.enum_values, where=where, problems=problems)
    if written.dimension is not None:
        return _vector(written, written.dimension, where=where, problems=problems)
    scalar = _BASES.get(written.base)
    if scalar is None:
        near = _OTHER_NAMES.get(written.base.lower()) or closest(written.base, _TYPE_WORDS)
        problems.report(
            written.at,
            f"unknown type '{written.base}' of {where}",
            hint=f"did you mean `{near}`?" if near else "the types are " + ", ".join(_TYPE_WORDS),
        )
        return None
    if written.is_list and scalar is Scalar.BLOB:
        problems.report(written.at, f"list of Blob is not supported ({where})")
        return None
    return PropertyType(scalar=scalar, nullable=written.nullable, is_list=written.is_list)


def _enum(
    written: TypeExpr, values: tuple[str, ...], *, where: str, problems: Problems
) -> PropertyType | None:
    value, times = Counter(values).most_common(1)[0]
    if times > 1:
        problems.report(written.at, f"duplicate enum value '{value}' in {where}")
        return None
    return PropertyType(
        scalar=Scalar.STRING, nullable=written.nullable, enum_values=tuple(sorted(values))
    )


def _vector(
    written: TypeExpr, dimension: int, *, where: str, problems: Problems
) -> PropertyType | None:
    message = None
    if not in_bounds(dimension, Scalar.U32):
        message = f"invalid Vector dimension {dimension} of {where}"
    elif dimension > VECTOR_DIMENSION_MAX:
        message = (
            f"Vector dimension {dimension} of {where} exceeds maximum supported "
            f"{VECTOR_DIMENSION_MAX}"
        )
    elif dimension == 0:
        message = f"Vector dimension of {where} must be greater than zero"
    if message is not None:
        problems.report(written.at, message)
        return None
    return PropertyType(scalar=Scalar.VECTOR, nullable=written.nullable, dimension=dimension)


def _default_of(kind: PropertyType, written: Argument) -> LiteralValue | None:
    """The value of `@default(written)` for a type, or None when the literal does not fit it.

    It must be written as a literal of the type, and be a value of it. Dates stay text, in the form
    the schema wrote them.
    """
    value: LiteralValue = written.text if isinstance(written, Word) else written
    if kind.is_list or kind.scalar in (Scalar.VECTOR, Scalar.BLOB):
        return None
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
