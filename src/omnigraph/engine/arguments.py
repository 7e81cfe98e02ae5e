"""What callers pass, checked at the door: a value of the wrong kind is named before any work.

The signature is the rule. Without this, a branch that is a number would fail somewhere inside,
or, worse, an actor that is a list would be written into the history.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar

from omnigraph.errors import InputError

C = TypeVar("C", bound=type)
Test = Callable[[Any], bool]


def checks_arguments(cls: C) -> C:
    """Let every public call of the class refuse arguments that its signature does not allow."""
    for name, member in inspect.getmembers_static(cls):
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod):
            setattr(cls, name, classmethod(_checked(member.__func__, cls)))
        elif inspect.isfunction(member):
            setattr(cls, name, _checked(member, cls))
    return cls


def _checked(call: Callable[..., Any], owner: type) -> Callable[..., Any]:
    hints = typing.get_type_hints(call, localns={owner.__name__: owner})
    parameters = inspect.signature(call).parameters.values()
    open_ended = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    names = [one.name for one in parameters]
    tests = {
        one.name: _test_of(hints[one.name])
        for one in parameters
        if one.name in hints and one.kind not in open_ended
    }

    @functools.wraps(call)
    def checked(*args: Any, **options: Any) -> Any:
        for name, value in (*zip(names, args, strict=False), *options.items()):
            test = tests.get(name)
            if test is not None and not test(value):
                raise _refused(call.__name__, name, value, hints[name])
        return call(*args, **options)

    return checked


def _refused(call: str, name: str, value: Any, hint: Any) -> InputError:
    if isinstance(value, str) and _test_of(hint)(""):
        problem = "is no text that can be stored: it holds half of a surrogate pair"
    elif typing.get_origin(hint) is Literal:
        problem = f"must be one of {', '.join(map(repr, typing.get_args(hint)))}, got {value!r}"
    else:
        problem = f"must be {_named(hint)}, got {type(value).__name__}"
    return InputError(f"{call}: {name} {problem}", call=call, argument=name)


def _named(hint: Any) -> str:
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        return " or ".join(_named(part) for part in typing.get_args(hint))
    if hint is NoneType:
        return "None"
    origin = typing.get_origin(hint)
    if origin is None:
        return str(getattr(hint, "__name__", hint))
    if origin is Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    parts = ", ".join(_named(part) for part in typing.get_args(hint))
    return f"{origin.__name__}[{parts}]"


def _test_of(hint: Any) -> Test:
    """A function that says whether a value may stand where the hint stands."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda _: True
    if origin is Literal:
        return lambda value: isinstance(value, str) and value in parts
    if origin in (typing.Union, UnionType):
        return functools.reduce(_either, map(_test_of, parts))
    if hint is str:
        return _is_text
    if hint is int:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    if origin is Sequence:
        return _test_of_many(_test_of(parts[0]))
    return lambda value: isinstance(value, origin or hint)


def _either(one: Test, other: Test) -> Test:
    return lambda value: one(value) or other(value)


def _is_text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def _test_of_many(test: Test) -> Test:
    """Several values, in any collection but text and mappings, which are one value to people."""

    def several(value: Any) -> bool:
        if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
            return False
        return all(test(item) for item in value)

    return several
