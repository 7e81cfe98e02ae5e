"""The operator's own settings: `~/.omnigraph/config.yaml`, or below `OMNIGRAPH_HOME`.

A missing file is an empty configuration; keys we do not know are left alone and reported once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError

SECTIONS = frozenset({"operator", "servers", "defaults", "clusters", "profiles", "aliases"})
BINDINGS = ("server", "cluster", "store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A named scope. A valid one binds exactly one of server, cluster and store."""

    name: str
    scope_kind: str | None
    target: str | None
    default_graph: str | None
    error: str | None

    @property
    def binding(self) -> str:
        return f"{self.scope_kind}: {self.target}" if self.error is None else "invalid"

    def to_json(self, *, active: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "name": self.name,
            "binding": self.binding,
            "scope_kind": self.scope_kind if self.error is None else "invalid",
            "target": self.target if self.error is None else None,
        }
        if self.default_graph is not None:
            body["default_graph"] = self.default_graph
        return {**body, "active": active, "valid": self.error is None, "error": self.error}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig:
    """What the file says, checked as far as its shape goes."""

    path: Path
    actor: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    servers: Mapping[str, Any] = field(default_factory=dict)
    clusters: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, Any] = field(default_factory=dict)
    unknown_keys: tuple[str, ...] = ()


def home(environ: Mapping[str, str]) -> Path:
    """The operator's folder; it need not exist."""
    override = environ.get("OMNIGRAPH_HOME")
    if override:
        return Path(override)
    return Path(environ.get("HOME") or Path.home()) / ".omnigraph"


def load_config(environ: Mapping[str, str]) -> OperatorConfig:
    """Read the operator's file, or give an empty configuration when there is none."""
    path = home(environ) / "config.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return OperatorConfig(path=path)
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(f"cannot read '{path}': {cause}") from cause
    return parse_config(text, path=path)


def parse_config(text: str, *, path: Path) -> OperatorConfig:
    """Turn the file's text into a configuration, or say what is wrong with it and where."""
    import yaml

    try:
        body = yaml.safe_load(text)
    except yaml.YAMLError as cause:
        raise InputError(f"'{path}' is not valid YAML: {cause}") from cause
    document = _mapping(body, what="the file", path=path)
    sections = {
        name: _mapping(document.get(name), what=f"'{name}'", path=path) for name in SECTIONS
    }
    defaults = sections["defaults"]
    if defaults.get("server") and defaults.get("store"):
        raise InputError(
            f"'{path}': defaults.server and defaults.store exclude each other",
            hint="keep one of the two",
        )
    actor = sections["operator"].get("actor")
    return OperatorConfig(
        path=path,
        actor=None if actor is None else str(actor),
        defaults=defaults,
        profiles={name: _profile(str(name), value) for name, value in sections["profiles"].items()},
        servers=sections["servers"],
        clusters=sections["clusters"],
        aliases=sections["aliases"],
        unknown_keys=tuple(sorted(str(key) for key in document if key not in SECTIONS)),
    )


def _mapping(value: Any, *, what: str, path: Path) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"'{path}': {what} must be a mapping, not {type(value).__name__}")
    return value


def _profile(name: str, value: Any) -> Profile:
    settings: dict[str, Any] = value if isinstance(value, dict) else {}
    bound = [kind for kind in BINDINGS if settings.get(kind)]
    graph = settings.get("default_graph")
    return Profile(
        name=name,
        scope_kind=bound[0] if len(bound) == 1 else None,
        target=str(settings[bound[0]]) if len(bound) == 1 else None,
        default_graph=None if graph is None else str(graph),
        error=_profile_error(name, value, bound),
    )


def _profile_error(name: str, value: Any, bound: list[str]) -> str | None:
    if not isinstance(value, dict):
        return f"profile '{name}' must be a mapping"
    if len(bound) == 1:
        return None
    found = " and ".join(bound) or "none of them"
    return f"profile '{name}' must bind exactly one of server, cluster or store; it has {found}"
