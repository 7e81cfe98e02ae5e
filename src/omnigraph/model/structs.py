"""Shapes of values: one is its own JSON, one keeps fields out of `==` or `repr`, one forgets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

K = TypeVar("K")
V = TypeVar("V")


class JsonStruct(msgspec.Struct, frozen=True):
    """A value whose JSON is its fields, in their order; an `error` is told only if there is one."""

    def to_json(self) -> dict[str, Any]:
        # By way of its text: `to_builtins` would leave tuples where JSON has lists.
        body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        if body.get("error", "") is None:
            del body["error"]
        return body


class HidingStruct(msgspec.Struct, frozen=True):
    """A value of which some fields say where it came from, how it was had, or a secret.

    Two are equal when all fields but those `UNCOMPARED` are; `repr` leaves out those `UNSHOWN`.
    """

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset()
    UNSHOWN: ClassVar[frozenset[str]] = frozenset()

    def _compared(self) -> tuple[object, ...]:
        return tuple(
            getattr(self, name) for name in self.__struct_fields__ if name not in self.UNCOMPARED
        )

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, HidingStruct)
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((type(self), self._compared()))

    def __repr__(self) -> str:
        shown = (
            f"{name}={getattr(self, name)!r}"
            for name in self.__struct_fields__
            if name not in self.UNSHOWN
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class Recent(Generic[K, V]):
    """The values used last, a bounded number of them. Safe to share between threads."""

    def __init__(self, values_max: int) -> None:
        self._max = values_max
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._max:
                self._values.popitem(last=False)

    def drop(self, unwanted: Callable[[K], bool]) -> None:
        """Keep none of the values with such a key."""
        with self._lock:
            for key in [key for key in self._values if unwanted(key)]:
                del self._values[key]
