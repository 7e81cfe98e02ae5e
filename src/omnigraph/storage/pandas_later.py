"""Keeps pandas out of a process until somebody imports it.

The first time that Arrow makes a value of a Python object it imports pandas, in order to know its
NA, its NaT and its Series when it meets them; Lance does so while it is imported. Nothing of ours
needs pandas unless a caller asks for a DataFrame, and importing it costs more than a small query.

So Arrow is served before anything else can ask. Its compiled half keeps what it finds for good: it
gets the true NA and NaT, whose two modules are imported without the rest of pandas, and stand-ins
for three classes of which it only asks what is an instance or calls them. Its other half can be
asked again: it is told that there is no pandas, and to look once more when pandas has been imported
after all. A process that has pandas already is left as it is, and whoever imports pandas later,
Arrow's own `to_pandas` too, finds everything as if we were not there. Where any of this does not
work, pandas is imported as ever: only time is lost. docs/decisions/0011 says why.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from threading import get_ident
from types import ModuleType
from typing import Any

import pyarrow as pa

_PANDAS = "pandas"
# The packages around the two modules: begun as empty ones, and filled by the import of pandas.
_PACKAGES = (_PANDAS, "pandas._libs", "pandas._libs.tslibs")


class _Kind(type):
    """The type of classes whose instances are those of the class of that name in pandas."""

    def __instancecheck__(cls, value: object) -> bool:
        pandas = sys.modules.get(_PANDAS)
        true = getattr(pandas, cls.__name__, None)
        return true is not None and isinstance(value, true)

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return getattr(import_module(_PANDAS), cls.__name__)(*args, **options)


# Arrow keeps these without counting its references, so that they must never go.
_STAND_INS = tuple(_Kind(name, (), {}) for name in ("Timestamp", "Timedelta", "DateOffset"))


class _ServedError(ImportError):
    """Ends the import of pandas when Arrow has what it needs; the module stays in no list."""


class _Beginning:
    """A loader of packages that stay empty, so that single modules of them can be imported.

    It works while the import of pandas is under way: the interpreter's lock for that name keeps
    every other thread that wants pandas waiting, and lets it begin anew when this one has ended.
    """

    def __init__(self) -> None:
        self.modules = {name: ModuleType(name) for name in _PACKAGES}

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Take the module that the true import will fill later."""
        return self.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Leave the package empty; with pandas itself, serve Arrow and end."""
        if module.__name__ == _PANDAS:
            try:
                self._serve_arrow(module)
            finally:
                self._hand_over()
            raise _ServedError("Arrow has what it needs")

    def _serve_arrow(self, pandas: Any) -> None:
        """Give Arrow's compiled half what it looks for in pandas."""
        import_module("pandas._libs.pandas_datetime")  # the two below rely on it
        pandas.NaT = import_module("pandas._libs.tslibs.nattype").NaT
        pandas.NA = import_module("pandas._libs.missing").NA
        for stand_in in _STAND_INS:
            setattr(pandas, stand_in.__name__, stand_in)
        pa.scalar(0)  # looks for them, the first time that it is called

    def _hand_over(self) -> None:
        """Let the true import find the packages missing, and these modules as if new."""
        for name, module in self.modules.items():
            if name != _PANDAS:  # which the failing import removes
                sys.modules.pop(name, None)
            for fact in ("__file__", "__loader__", "__package__", "__path__", "__spec__"):
                module.__dict__.pop(fact, None)
        for stand_in in _STAND_INS:
            self.modules[_PANDAS].__dict__.pop(stand_in.__name__, None)


class _Finder:
    """A finder by what it does: the base class of finders would itself be slow to import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, _: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the packages of pandas; of everything else know nothing."""
        return self.found(name, path) if name in _PACKAGES else None

    def found(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """What the other finders find."""
        others = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        specs = (finder.find_spec(name, path) for finder in others)
        return next((spec for spec in specs if spec is not None), None)

    @contextmanager
    def asked_first(self) -> Iterator[None]:
        """Let this finder be the first that is asked, for as long as the block runs."""
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)


class _Hidden(_Finder):
    """Tells the thread that made it that there is no pandas, or no more than the beginning."""

    def __init__(self, beginning: _Beginning | None) -> None:
        self._thread = get_ident()
        self._beginning = beginning

    def found(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        if get_ident() != self._thread:
            return None
        true = super().found(name, path)
        if self._beginning is None or true is None:
            raise ModuleNotFoundError("pandas is left out of the start", name=name)
        loader: Any = self._beginning
        begun = ModuleSpec(name, loader, is_package=True)
        begun.submodule_search_locations = true.submodule_search_locations
        return begun


class _Awaited(_Finder):
    """Lets pandas be imported, and Arrow look for it again when it has been."""

    def __init__(self, arrow: Any, beginning: _Beginning) -> None:
        self._arrow = arrow
        self._modules = beginning.modules

    def found(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        spec = super().found(name, path)
        if spec is not None and spec.loader is not None:
            # Not here: to look for a module is not to import it, and Lance looks for pandas.
            self._act_on_import(spec.loader, name)
        return spec

    def _act_on_import(self, loader: Any, name: str) -> None:
        run = loader.exec_module  # a loader serves one module, so that it can be changed

        def exec_module(module: ModuleType) -> None:
            run(module)
            if name == _PANDAS:
                self._arrow.__init__()
                with suppress(ValueError):  # another import of pandas was first
                    sys.meta_path.remove(self)

        # The modules that are there already have put their names into the package that was begun.
        loader.create_module = lambda _: self._modules[name]
        loader.exec_module = exec_module


def put_off_pandas(*, to_the_end: bool = False) -> None:
    """Serve Arrow so that it does not import pandas, unless the process has it already.

    The first call settles it. `to_the_end` is for a process that never hands Arrow anything of
    pandas: there nothing of it is imported.
    """
    arrow: Any = getattr(pa.lib, "_pandas_api", None)
    waits = any(isinstance(finder, _Finder) for finder in sys.meta_path)
    if arrow is None or waits or _PANDAS in sys.modules:
        return
    try:
        installed = _Finder().found(_PANDAS, None) is not None
    except ImportError:  # a finder of somebody who keeps pandas out as well
        return
    if not installed:
        return
    with _Hidden(None).asked_first():
        assert not arrow.have_pandas, "pandas is hidden"
        if to_the_end:
            pa.scalar(0)
    beginning = _Beginning()
    if not to_the_end and not _is_begun(beginning):
        arrow.__init__()  # finds pandas by itself, as ever
    sys.meta_path.insert(0, _Awaited(arrow, beginning))


def _is_begun(beginning: _Beginning) -> bool:
    """Whether the import of pandas got as far as Arrow needs it."""
    try:
        with _Hidden(beginning).asked_first():
            import_module(_PANDAS)
    except _ServedError:
        return True
    except Exception:  # noqa: BLE001  # whatever a pandas that we do not know does here
        return False
    return False
