"""Which graph is meant: one place that turns flags, profiles and defaults into an address.

An address on the command line wins over one in the environment, that over the operator's
defaults; at each level an address wins over a profile. A flag that a
command cannot use is refused, never ignored. The operator's own settings stand in
`~/.omnigraph/config.yaml`, or below `OMNIGRAPH_HOME`: a missing file is an empty configuration;
keys we do not know are left alone and reported once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
import msgspec

from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.machine import local_path

SECTIONS = frozenset({"operator", "servers", "defaults", "clusters", "profiles", "aliases"})
BINDINGS = ("server", "cluster", "store")


class Profile(msgspec.Struct, frozen=True, kw_only=True):
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


class OperatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says, checked as far as its shape goes."""

    path: Path
    actor: str | None = None
    defaults: Mapping[str, Any] = msgspec.field(default_factory=dict)
    profiles: Mapping[str, Profile] = msgspec.field(default_factory=dict)
    servers: Mapping[str, Any] = msgspec.field(default_factory=dict)
    clusters: Mapping[str, Any] = msgspec.field(default_factory=dict)
    aliases: Mapping[str, Any] = msgspec.field(default_factory=dict)
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
    from omnigraph.model.yaml_text import read_yaml

    document = _mapping(read_yaml(text, path=str(path)), what="the file", path=path)
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


# --- which graph ----------------------------------------------------------------------------------


class Capability(StrEnum):
    """What kind of target a command can work on."""

    ANY = "any"  # a graph, however it is reached
    DIRECT = "direct"  # a graph's own storage
    SERVED = "served"  # a running server
    LOCAL = "local"  # no graph at all


class ScopeFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The address flags as given; `uri` is the positional argument or `--uri`."""

    uri: str | None = None
    store: str | None = None
    server: str | None = None
    graph: str | None = None
    profile: str | None = None
    cluster: str | None = None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One graph's storage, and whether it is on this machine."""

    uri: str
    local: bool

    @property
    def access(self) -> str:
        return f"(direct, {'local' if self.local else 'remote'})"


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """One graph of a server, or, without a graph, the only one that the server has. `server` is a
    name of the configuration or a URL."""

    server: str
    graph_id: str | None = None

    @property
    def local(self) -> bool:
        return False


_MEANING = {
    "server": "--server addresses a served graph",
    "store": "--store addresses a single graph's storage directly",
    "cluster": "--cluster addresses a cluster root",
    "graph": "--graph picks a graph inside a server or cluster",
    "profile": "--profile names a scope",
}
_REMEDY = {
    Capability.DIRECT: "Pass a storage URI, or --cluster <dir> --graph <id>.",
    Capability.SERVED: "Address the server with --server <name|url> or --profile <name>.",
}
_NATURE = {
    Capability.DIRECT: "a direct (storage-native) command",
    Capability.SERVED: "a served command",
    Capability.LOCAL: "a local command",
}


def refuse_flag(verb: str, capability: Capability, flag: str) -> InputError:
    """The error for an address flag that the command has no use for."""
    nature = _NATURE.get(capability, "a command on one graph")
    message = f"`{verb}` is {nature}; {_MEANING[flag]} and does not apply."
    remedy = _REMEDY.get(capability)
    return InputError(f"{message} {remedy}" if remedy else message)


def resolve(
    verb: str,
    *,
    capability: Capability,
    flags: ScopeFlags,
    config: OperatorConfig,
    environ: Mapping[str, str],
) -> Target | Served:
    """The graph that flags, profile or defaults name, or an error that tells the way."""
    _check_flags(verb, capability, flags)
    if flags.server is not None:
        return Served(server=flags.server, graph_id=flags.graph)
    explicit = flags.uri if flags.uri is not None else flags.store
    if explicit is None and flags.profile is None:
        explicit = environ.get("OMNIGRAPH_STORE") or None
    if explicit is not None:
        return _storage_target(verb, capability, explicit, graph=flags.graph)
    profile_name = flags.profile or environ.get("OMNIGRAPH_PROFILE")
    if profile_name:
        profile = profile_named(config, profile_name)
        return _profile_target(verb, capability, profile, graph=flags.graph)
    if config.defaults.get("store"):
        return _storage_target(verb, capability, str(config.defaults["store"]), graph=flags.graph)
    if config.defaults.get("server"):
        server = str(config.defaults["server"])
        if capability is Capability.DIRECT:
            raise InputError(
                f"`{verb}` is {_NATURE[capability]}; the default is the server '{server}'. "
                f"{_REMEDY[capability]}"
            )
        graph = flags.graph or config.defaults.get("default_graph")
        return Served(server=server, graph_id=None if graph is None else str(graph))
    raise InputError(
        f"no graph addressed: `{verb}` needs one",
        hint="name it as the last argument, pass --store <uri>, --server <name|url> or "
        "--profile <name>, or set OMNIGRAPH_STORE",
    )


def _check_flags(verb: str, capability: Capability, flags: ScopeFlags) -> None:
    given = {
        "a storage URI": flags.uri,
        "--store": flags.store,
        "--server": flags.server,
        "--profile": flags.profile,
        "--cluster": flags.cluster,
    }
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise click.UsageError(f"{names[0]} cannot be used with {names[1]}: address one graph")
    if capability is Capability.DIRECT and flags.server is not None:
        raise refuse_flag(verb, capability, "server")
    if flags.cluster is not None:
        raise InputError(
            f"`{verb}` cannot open the cluster '{flags.cluster}': this release knows no clusters",
            hint="pass the graph's own storage URI, for example <root>/graphs/<id>.omni",
        )


def _storage_target(verb: str, capability: Capability, uri: str, *, graph: str | None) -> Target:
    if not uri.strip():
        raise InputError("the graph's URI is empty", hint="pass a folder or s3://bucket/prefix")
    if uri.startswith(("http://", "https://")):
        if capability is Capability.DIRECT:
            raise InputError(
                f"`{verb}` is {_NATURE[capability]} and needs direct storage access; "
                f"'{uri}' is a remote server"
            )
        raise InputError(
            f"'{uri}' is a remote server, not a storage URI", hint=f"pass --server {uri}"
        )
    if graph is not None:
        raise InputError(
            f"'{uri}' is already a single graph, so --graph {graph} does not apply",
            hint="leave --graph out",
        )
    return Target(uri=uri, local=is_local(uri))


def is_local(uri: str) -> bool:
    """Whether a storage URI is a folder on this machine."""
    return local_path(uri) is not None


def profile_named(config: OperatorConfig, name: str) -> Profile:
    """The profile of that name, which must be a valid one."""
    profile = config.profiles.get(name)
    if profile is None:
        known = ", ".join(sorted(config.profiles)) or "none"
        raise NotFoundError(
            f"no profile '{name}' in '{config.path}'",
            kind="profile",
            name=name,
            hint=f"known profiles: {known}",
        )
    if profile.error is not None:
        raise InputError(profile.error, hint=f"mend it in '{config.path}'")
    return profile


def _profile_target(
    verb: str, capability: Capability, profile: Profile, *, graph: str | None
) -> Target | Served:
    assert profile.target is not None, "a valid profile has a target"
    if profile.scope_kind == "store":
        return _storage_target(verb, capability, profile.target, graph=graph)
    if capability is Capability.DIRECT and profile.scope_kind == "server":
        raise InputError(
            f"`{verb}` is {_NATURE[capability]}; profile '{profile.name}' binds a server "
            f"and does not apply. {_REMEDY[capability]}"
        )
    if profile.scope_kind == "server":
        return Served(server=profile.target, graph_id=graph or profile.default_graph)
    raise InputError(
        f"profile '{profile.name}' binds the cluster '{profile.target}': "
        "this release knows no clusters",
        hint="bind a store instead",
    )
