"""Checks of single declarations: properties, annotations, constraints.

Every function reports what is wrong and returns what could be understood, so that one mistake does
not hide the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from omnigraph.compiler.diagnostics import did_you_mean
from omnigraph.compiler.schema.ast import (
    AnnotationDecl,
    Argument,
    ConstraintDecl,
    PropertyDecl,
    RangeArg,
    Word,
)
from omnigraph.compiler.schema.patterns import pattern_problem
from omnigraph.compiler.schema.problems import Problems
from omnigraph.compiler.schema.values import default_forms, default_of, resolved_type
from omnigraph.model.schema import (
    NUMBERS,
    Annotation,
    Check,
    Embed,
    LiteralValue,
    Property,
    PropertyType,
    Range,
    Scalar,
)

RESERVED = frozenset({
    "id", "src", "dst",
    "_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version",
})  # fmt: skip
RESERVED_ON_EDGES = frozenset({"from", "to"})  # what mutations call the endpoints
ENDPOINTS = ("src", "dst")
_COLUMN_WORDS = ("key", "unique", "index")
_TEXT_WORDS = ("description", "instruction", "rename_from")
# A range bound is compared with 64-bit columns, signed and unsigned.
_BOUND_MIN, _BOUND_MAX = -(2**63), 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The type whose declaration is being checked."""

    kind: str  # "interface" | "node" | "edge"
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A checked property and the constraint words written behind it."""

    property: Property
    words: frozenset[str]
    offset: int


@dataclass(slots=True)
class Constraints:
    """The constraints of one type, property-level and body forms in one place.

    The columns of a unique or an index are a set, and a set said twice says nothing new.
    """

    keys: list[tuple[str, ...]] = field(default_factory=list)
    unique: dict[frozenset[str], tuple[str, ...]] = field(default_factory=dict)
    index: dict[frozenset[str], tuple[str, ...]] = field(default_factory=dict)
    ranges: dict[Range, None] = field(default_factory=dict)
    checks: dict[Check, None] = field(default_factory=dict)

    def add_columns(self, word: str, columns: tuple[str, ...]) -> None:
        if word == "key":
            self.keys.append(columns)
        else:
            into = self.unique if word == "unique" else self.index
            into.setdefault(frozenset(columns), columns)


# --- properties --------------------------------------------------------------------------------


def check_property(owner: Owner, decl: PropertyDecl, problems: Problems) -> Draft | None:
    """The property, or None when its type could not be understood."""
    where = f"{owner.name}.{decl.name}"
    _check_name(owner, decl, problems)
    kind = resolved_type(decl.type, where=where, problems=problems)
    annotations = _once_each(f"property {where}", decl.annotations, problems)
    if kind is None:
        return None
    words: set[str] = set()
    facts: dict[str, LiteralValue] = {}
    embed = None
    for note in annotations:
        report = partial(problems.report, offset=note.offset)
        if note.name in _COLUMN_WORDS:
            words.add(note.name)
            if note.name == "key" and owner.kind == "edge":
                report(f"@key is not supported on edge properties (edge {where})")
            else:
                _check_column(note.name, owner, decl.name, kind, note.offset, problems)
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
        problems.report(f"@default is not supported on key property {where}", offset=decl.offset)
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
    return Draft(property=made, words=frozenset(words), offset=decl.offset)


def _check_name(owner: Owner, decl: PropertyDecl, problems: Problems) -> None:
    name = decl.name
    if name in RESERVED or name.startswith("__"):
        problems.report(
            f"property name '{name}' is reserved ({owner}): "
            "it would hide a system column in stored and exported data",
            offset=decl.offset,
            hint="every entity has `id`, and every edge `src` and `dst`, without declaring them"
            if name in ("id", *ENDPOINTS)
            else "choose another name",
        )
    elif owner.kind == "edge" and name in RESERVED_ON_EDGES:
        problems.report(
            f"property name '{name}' is reserved on edges ({owner}): it names an endpoint",
            offset=decl.offset,
            hint=f"choose another name, for example `valid_{name}`",
        )


def _check_column(
    word: str, owner: Owner, name: str, kind: PropertyType, offset: int, problems: Problems
) -> None:
    """`@key`, `@unique` or `@index` on one property."""
    where = f"{owner.name}.{name}"
    if kind.scalar is Scalar.BLOB:
        problems.report(f"@{word} is not supported on blob property {where}", offset=offset)
    elif kind.is_list:
        problems.report(f"@{word} is not supported on list property {where}", offset=offset)
    elif kind.scalar is Scalar.VECTOR and word != "index":
        problems.report(f"@{word} is not supported on vector property {where}", offset=offset)
    elif word == "key" and kind.nullable:
        problems.report(
            f"@key property {where} cannot be nullable", offset=offset, hint="remove the `?`"
        )


def _embed(
    owner: Owner, name: str, kind: PropertyType, note: AnnotationDecl, problems: Problems
) -> Embed | None:
    where = f"{owner.name}.{name}"
    report = partial(problems.report, offset=note.offset)
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
            f"@embed on {owner.name}.{made.name} references unknown source property "
            f"'{made.embed.source}'",
            offset=draft.offset,
            hint=partial(did_you_mean, made.embed.source, properties),
        )
    elif source.type.scalar is not Scalar.STRING or source.type.is_list:
        problems.report(
            f"@embed source property {owner.name}.{source.name} must be String",
            offset=draft.offset,
        )


def _default(
    where: str, kind: PropertyType, note: AnnotationDecl, problems: Problems
) -> LiteralValue | None:
    report = partial(problems.report, offset=note.offset)
    if kind.is_list or kind.scalar in (Scalar.VECTOR, Scalar.BLOB):
        report(f"@default is not supported on {kind} property {where}")
        return None
    if note.value is None or note.kwargs:
        report(f"@default on {where} requires exactly one value", hint=default_forms(kind))
        return None
    value = default_of(kind, note.value)
    if value is None:
        shown = note.value.text if isinstance(note.value, Word) else note.value
        report(f"@default({shown}) does not fit {where}: {kind}", hint=default_forms(kind))
    return value


# --- annotations -------------------------------------------------------------------------------


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
        report = partial(problems.report, offset=note.offset)
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
            problems.report(f"{what} declares @{note.name} multiple times", offset=note.offset)
            continue
        if len(dict(note.kwargs)) < len(note.kwargs):
            problems.report(f"@{note.name} on {what} names an argument twice", offset=note.offset)
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
            f"@{note.name} on {what} requires {one}",
            offset=note.offset,
            hint=f'write `@{note.name}("…")`',
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


# --- constraints in the body -------------------------------------------------------------------


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
            f"@{word} constraint is not supported on edges (edge {owner.name})", offset=decl.offset
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
                f"expected property name argument in @{decl.name} constraint on {owner.name}",
                offset=decl.offset,
                hint=f"`@{decl.name}(a, b)` lists properties; "
                f"`@{decl.name}` behind a property takes no value",
            )
            return
        if arg.text in columns:
            problems.report(
                f"@{decl.name} on {owner.name} names property '{arg.text}' twice",
                offset=decl.offset,
            )
            return
        columns[arg.text] = None
    for name in columns:
        if owner.kind == "edge" and name in ENDPOINTS:
            continue
        kind = _typed(owner, decl, name, types, problems)
        if kind is not None:
            _check_column(decl.name, owner, name, kind, decl.offset, problems)
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
            f"@{decl.name} on {owner.name} references unknown property '{name}'",
            offset=decl.offset,
            hint=partial(did_you_mean, name, types),
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
    report = partial(problems.report, offset=decl.offset)
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
    elif any(b is not None and not _BOUND_MIN <= b <= _BOUND_MAX for b in (low, high)):
        report(f"@range on {where} has a bound beyond 64 bits")
    else:
        into.ranges[Range(property=name, minimum=low, maximum=high)] = None


def _check_pattern(
    owner: Owner,
    decl: ConstraintDecl,
    types: Mapping[str, PropertyType | None],
    into: Constraints,
    problems: Problems,
) -> None:
    report = partial(problems.report, offset=decl.offset)
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
