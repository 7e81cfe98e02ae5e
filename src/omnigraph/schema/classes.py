"""Classes as a schema: dataclasses, pydantic models, SQLModel tables, anything with type hints.

What Python's types cannot say stands in `Annotated`, in the words of the schema language: a type
(`Annotated[int, "I32"]`), or annotations (`Annotated[str, "@key"]`).
"""

from __future__ import annotations

import datetime as dt
import enum
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from omnigraph.compiler.schema import compile_schema, format_schema
from omnigraph.compiler.text import quoted
from omnigraph.errors import InputError

C = TypeVar("C", bound=type)
_MARK: Final = "__omnigraph__"
_SCALARS: Final[Mapping[type, str]] = {
    bool: "Bool",
    str: "String",
    int: "I64",
    float: "F64",
    bytes: "Blob",
    dt.datetime: "DateTime",
    dt.date: "Date",
}
# What every entity has, whatever its class calls it; no property may have these names.
_IDENTITY: Final = frozenset({"id", "src", "dst", "from_", "to"})


class Mark(msgspec.Struct, frozen=True):
    """What a decorator said of a class: the ends of an edge, and constraints in `.pg` words."""

    ends: tuple[type | str, type | str] | None
    constraints: tuple[str, ...]


def node(*constraints: str) -> Callable[[C], C]:
    """Say of a class what belongs to no single field: `@schema.node("@range(age, 0..150)")`.

    A class without a decorator is a node type, too.

    Examples:
        >>> from omnigraph import schema
        >>> @schema.node("@range(age, 0..150)")
        ... class Person:
        ...     name: str
        ...     age: int
        >>> print(schema.from_classes(Person))
        node Person {
            name: String
            age: I64
            @range(age, 0..150)
        }
        <BLANKLINE>
    """
    return _marking(Mark(None, constraints))


def edge(source: type | str, target: type | str, *constraints: str) -> Callable[[C], C]:
    """Make a class an edge type between two node types, which are classes or names.

    Fields called `src` and `dst` are its ends, and no properties.

    Examples:
        >>> from omnigraph import schema
        >>> class Person:
        ...     name: str
        >>> @schema.edge(Person, Person, "@card(0..1)")
        ... class Married:
        ...     src: str
        ...     dst: str
        >>> print(schema.from_classes(Person, Married))
        node Person {
            name: String
        }
        <BLANKLINE>
        edge Married: Person -> Person @card(0..1)
        <BLANKLINE>
    """
    return _marking(Mark((source, target), constraints))


def _marking(mark: Mark) -> Callable[[C], C]:
    def put(cls: C) -> C:
        setattr(cls, _MARK, mark)
        return cls

    return put


def from_classes(*classes: type) -> str:
    """The schema of these classes, as text for `Graph.init`.

    `str`, `int`, `float`, `bool`, `bytes`, `date` and `datetime` become String, I64, F64, Bool,
    Blob, Date and DateTime; `X | None` may be missing; `list[X]` is a list; `Literal` of texts and
    enums of texts are enums. `Annotated` adds words of the schema language. A default value becomes
    `@default`, a docstring `@description`; `primary_key`, `index` and `unique` of a SQLModel field
    become `@key`, `@index` and `@unique`. `InputError` names a field that is no property;
    `SchemaError` says what else is wrong.

    Examples:
        >>> from dataclasses import dataclass
        >>> from typing import Annotated
        >>> from omnigraph import schema
        >>> @dataclass
        ... class Person:
        ...     name: Annotated[str, "@key"]
        ...     age: Annotated[int, "I32"] | None = None
        >>> print(schema.from_classes(Person))
        node Person {
            name: String @key
            age: I32?
        }
        <BLANKLINE>
    """
    for one in classes:
        if not isinstance(one, type):
            raise InputError(
                f"from_classes: a schema is made of classes, got {type(one).__name__}",
                hint="pass the classes one by one: from_classes(Person, Knows)",
            )
    text = "\n".join(_declaration(cls) for cls in classes)
    compile_schema(text, name="classes")
    return format_schema(text, name="classes")


def _declaration(cls: type) -> str:
    mark: Mark = cls.__dict__.get(_MARK) or Mark(None, ())
    header = [f"node {cls.__name__}"]
    members = list(_members(cls, edge=mark.ends is not None))
    outside = [one for one in mark.constraints if one.startswith(("@card", "@instruction"))]
    outside += [one for one in mark.constraints if one.startswith("@description")]
    inside = [one for one in mark.constraints if one not in outside]
    if mark.ends is not None:
        source, target = (one if isinstance(one, str) else one.__name__ for one in mark.ends)
        header = [f"edge {cls.__name__}: {source} -> {target}"]
    doc = _described(cls)
    if doc and not any(one.startswith("@description") for one in outside):
        outside.append(f"@description({quoted(doc)})")
    body = "\n".join([*members, *inside])
    return f"{' '.join([*header, *outside])} {{\n{body}\n}}"


def _described(cls: type) -> str:
    """The docstring that somebody wrote: dataclasses make one of their own."""
    doc = cls.__dict__.get("__doc__") or ""
    made = doc.startswith(f"{cls.__name__}(")
    return "" if made else " ".join(doc.split())


def _members(cls: type, *, edge: bool) -> Iterator[str]:
    hints = _hints(cls)
    fields: Mapping[str, Any] = getattr(cls, "model_fields", None) or {}
    for name, hint in hints.items():
        if name in _IDENTITY and (edge or name == "id"):
            continue
        if name.startswith("_") or get_origin(hint) is ClassVar or hint is ClassVar:
            continue
        yield _property(cls, name, hint, fields.get(name))


def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls, include_extras=True)
    except (NameError, TypeError) as cause:
        raise InputError(
            f"the type hints of class {cls.__name__} cannot be read: {cause}",
            hint="names in them must be known in the module of the class",
        ) from cause


class _Written(msgspec.Struct):
    """What a hint says: a core type, and around it."""

    core: str = ""
    nullable: bool = False
    many: bool = False
    notes: list[str] = msgspec.field(default_factory=list)


def _property(cls: type, name: str, hint: Any, field: Any) -> str:
    written = _Written()
    _read(hint, written, where=f"field '{name}' of class {cls.__name__}")
    for word in getattr(field, "metadata", ()):
        _note(word, written)
    core = f"[{written.core}]" if written.many else written.core
    notes = list(dict.fromkeys([*written.notes, *_field_notes(field)]))
    default = _default(cls, name, field)
    if default is not None and not any(one.startswith("@default") for one in notes):
        notes.append(f"@default({default})")
    return " ".join([f"{name}: {core}{'?' * written.nullable}", *notes])


def _read(hint: Any, into: _Written, *, where: str) -> None:
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *words = get_args(hint)
        for word in words:
            _note(word, into)
        if into.core:  # the language said which type it is; Python's may be anything
            into.nullable |= _allows_none(inner)
            return
        _read(inner, into, where=where)
    elif origin in (Union, types.UnionType):
        kinds = [one for one in get_args(hint) if one is not type(None)]
        into.nullable |= len(kinds) < len(get_args(hint))
        if len(kinds) != 1:
            raise _no_type(hint, where)
        _read(kinds[0], into, where=where)
    elif origin in (list, tuple, set, frozenset) and not into.many:
        into.many = True
        _read(get_args(hint)[0], into, where=where)
    else:
        into.core = into.core or _core(hint, where)


def _allows_none(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)


def _core(hint: Any, where: str) -> str:
    if get_origin(hint) is Literal:
        values = get_args(hint)
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        values = tuple(one.value for one in hint)
    elif isinstance(hint, type) and hint in _SCALARS:
        return _SCALARS[hint]
    else:
        raise _no_type(hint, where)
    if not values or not all(isinstance(one, str) for one in values):
        raise InputError(f"{where} has values that are not text", hint="enums are of texts")
    return f"enum({', '.join(values)})"


def _no_type(hint: Any, where: str) -> InputError:
    return InputError(
        f"{where} is {hint!r}, which no type of the schema language is",
        hint='say which it shall be: Annotated[…, "String"]',
    )


def _note(word: Any, into: _Written) -> None:
    """A word of `Annotated`: a type or annotations; what is not text is for somebody else."""
    if not isinstance(word, str):
        return
    if word.startswith("@"):
        into.notes.append(word)
    elif word.endswith("?"):
        into.core, into.nullable = word[:-1], True
    else:
        into.core = word


def _field_notes(field: Any) -> Iterator[str]:
    """What a field of SQLModel or pydantic says of itself."""
    for name, note in (("primary_key", "@key"), ("index", "@index"), ("unique", "@unique")):
        if getattr(field, name, None) is True:
            yield note
    description = getattr(field, "description", None)
    if isinstance(description, str) and description:
        yield f"@description({quoted(description)})"


def _default(cls: type, name: str, field: Any) -> str | None:
    """The default of a field as the language writes it; None where there is none to write."""
    value = getattr(field, "default", None) if field is not None else cls.__dict__.get(name)
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int | float):
        return repr(value)
    return None


def records(rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Objects of such classes as records for `Graph.load`; an edge needs `src` and `dst`.

    Examples:
        >>> from dataclasses import dataclass
        >>> from omnigraph import schema
        >>> @dataclass
        ... class Person:
        ...     name: str
        >>> graph.load(schema.records([Person("Eve"), Person("Fay")]), mode="append").total_entities
        2
    """
    for row in rows:
        cls = type(row)
        dump = getattr(row, "model_dump", None)
        values = dict(dump() if dump is not None else _fields_of(row))
        mark: Mark | None = cls.__dict__.get(_MARK)
        plain = {
            name: value.value if isinstance(value, enum.Enum) else value
            for name, value in values.items()
        }
        if mark is None or mark.ends is None:
            yield {"type": cls.__name__, "data": plain}
            continue
        source, target = plain.pop("src", None), plain.pop("dst", None)
        if source is None or target is None:
            raise InputError(
                f"a {cls.__name__} does not say where it starts and ends",
                hint="an edge needs the fields src and dst",
            )
        yield {"edge": cls.__name__, "from": source, "to": target, "data": plain}


def _fields_of(row: Any) -> Iterator[tuple[str, Any]]:
    for name in _hints(type(row)):
        if not name.startswith("_") and hasattr(row, name):
            yield name, getattr(row, name)
