"""Servers of the operator: their addresses, and the tokens for them.

A token is kept by the name of its server, in `credentials` of the operator's folder, and goes only
to addresses at or below that server's own.
"""

from __future__ import annotations

import configparser
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from omnigraph.cli.scope import OperatorConfig, home
from omnigraph.errors import InputError, NotFoundError


def server_url(config: OperatorConfig, server: str) -> str:
    """The address of a server: of that name, or the address itself."""
    if server.startswith(("http://", "https://")):
        return server.rstrip("/")
    found = config.servers.get(server)
    url = found.get("url") if isinstance(found, dict) else None
    if not url:
        known = ", ".join(sorted(map(str, config.servers))) or "none"
        raise NotFoundError(
            f"no server '{server}' in '{config.path}'",
            kind="server",
            name=server,
            hint=f"known servers: {known}; or pass its URL",
        )
    return str(url).rstrip("/")


def token_for(config: OperatorConfig, url: str, environ: Mapping[str, str]) -> str | None:
    """The token for an address: of the server whose own is the longest beginning of it, else the
    one that the environment has for all."""
    owners = sorted(
        (
            (own, str(name))
            for name in config.servers
            for own in [server_url(config, str(name))]
            if url == own or url.startswith(own + "/")
        ),
        key=lambda one: len(one[0]),
        reverse=True,
    )
    for _, name in owners:
        found = environ.get(variable(name)) or read_credentials(environ).get(name)
        if found:
            return found
    return environ.get("OMNIGRAPH_BEARER_TOKEN") or None


def variable(name: str) -> str:
    return "OMNIGRAPH_TOKEN_" + name.upper().replace("-", "_")


# --- the file -------------------------------------------------------------------------------------


def credentials_path(environ: Mapping[str, str]) -> Path:
    return home(environ) / "credentials"


def read_credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """Tokens by server; a file that others can read is refused."""
    path = credentials_path(environ)
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(f"cannot read '{path}': {cause}") from cause
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(
            f"'{path}' can be read by others", hint=f"chmod 600 {path}, and change the tokens"
        )
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as cause:
        raise InputError(f"'{path}' is damaged") from cause
    return {name: parser[name]["token"] for name in parser.sections() if "token" in parser[name]}


def write_credentials(environ: Mapping[str, str], tokens: Mapping[str, str]) -> Path:
    """Put the file in place as a whole, for its owner alone."""
    path = credentials_path(environ)
    parser = configparser.ConfigParser(interpolation=None)
    for name, token in sorted(tokens.items()):
        parser[name] = {"token": token}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".credentials.{os.getpid()}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            parser.write(out)
        draft.replace(path)
    except OSError as cause:
        raise InputError(f"cannot write '{path}': {cause.strerror or cause}") from cause
    finally:
        draft.unlink(missing_ok=True)
    return path
