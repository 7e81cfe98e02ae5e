"""`login` and `logout`: the tokens that the operator keeps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from omnigraph.cli.call import Call, verb
from omnigraph.cli.credentials import read_credentials, write_credentials
from omnigraph.cli.scope import Capability
from omnigraph.errors import InputError, NotFoundError


@verb("login", capability=Capability.LOCAL)
@click.argument("name")
@click.option(
    "--token", metavar="TOKEN", help="the token; without it one line of the input is read"
)
def login(call: Call, name: str, *, token: str | None) -> None:
    """Keep the token of the server NAME."""
    given = token if token is not None else _asked()
    if not given.strip() or not name.strip() or any(char in name for char in "[]\r\n"):
        raise InputError("login needs a name and a token that are not blank")
    if any(char.isspace() for char in given.strip()):
        raise InputError("a token has no space in it")
    found = read_credentials(call.environ) | {name: given.strip()}
    _tell(call, name, write_credentials(call.environ, found), f"logged in to {name}")


def _asked() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("token", hide_input=True, err=True))
    return sys.stdin.readline()


@verb("logout", capability=Capability.LOCAL)
@click.argument("name")
def logout(call: Call, name: str) -> None:
    """Forget the token of the server NAME."""
    found = read_credentials(call.environ)
    if found.pop(name, None) is None:
        raise NotFoundError(f"there is no token of '{name}'", kind="server", name=name)
    _tell(call, name, write_credentials(call.environ, found), f"logged out of {name}")


def _tell(call: Call, name: str, path: Path, human: str) -> None:
    body: dict[str, Any] = {
        "server": name,
        "credentials_path": str(path),
        "declared": name in call.config.servers,
    }
    call.emit(body, human=human)
