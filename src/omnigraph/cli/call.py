"""One call of one command: its flags, the graph it means, and its way to speak."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from omnigraph.cli import output
from omnigraph.cli.config import OperatorConfig, load_config
from omnigraph.cli.scope import Capability, ScopeFlags, Target, is_served, resolve
from omnigraph.cli.startup import without_pandas
from omnigraph.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a command's body gets beside its own arguments."""

    verb: str
    capability: Capability
    writes: bool
    flags: ScopeFlags
    environ: Mapping[str, str]
    as_json: bool = False
    quiet: bool = False
    yes: bool = False
    acting_as: str | None = None
    own_process: bool = False  # the command is all that this process does

    @cached_property
    def config(self) -> OperatorConfig:
        """The operator's settings; keys we do not know are mentioned once."""
        config = load_config(self.environ)
        for key in config.unknown_keys:
            self.note(f"warning: unknown key '{key}' in '{config.path}'")
        return config

    @cached_property
    def target(self) -> Target:
        """The graph this call is about."""
        if self.acting_as is not None and self.writes and is_served(self.flags):
            raise InputError(
                "`--as` is not allowed on a served write: the server knows who you are",
                hint="leave --as out",
            )
        return resolve(
            self.verb,
            capability=self.capability,
            flags=self.flags,
            config=self.config,
            environ=self.environ,
        )

    def require_target(self) -> None:
        """Refuse a bad address before anything else of the call is looked at."""
        assert self.target is not None, "a target is found or an error raised"

    @cached_property
    def actor(self) -> str | None:
        """Who writes: `--as`, else the operator's own name, else nobody in particular."""
        return self.acting_as if self.acting_as is not None else self.config.actor

    @contextmanager
    def graph(self, *, write: bool = False) -> Iterator[Graph]:
        """The graph, open for as long as the block runs; read-only unless it is to be written."""
        with without_pandas() if self.own_process else nullcontext():
            from omnigraph import Graph, OpenMode

        mode = OpenMode.READ_WRITE if write else OpenMode.READ_ONLY
        with Graph.open(self.target.uri, mode=mode) as graph:
            yield graph

    def announce(self) -> None:
        """Say which graph is about to change, on stderr."""
        self.note(f"omnigraph {self.verb} → {self.target.uri} {self.target.access}")

    def note(self, text: str) -> None:
        """A line on stderr for people, which `--quiet` drops."""
        if not self.quiet:
            click.echo(text, err=True)

    def consent(self) -> None:
        """Let a destructive command go on: always on this machine, else only when told so."""
        if self.target.local or self.yes:
            return
        question = f"{self.verb} destroys data at {self.target.uri}; go on?"
        if not self.as_json and sys.stdin.isatty() and click.confirm(question, err=True):
            return
        raise InputError(
            f"refusing destructive `{self.verb}` on {self.target.uri} without consent; pass --yes"
        )

    def emit(self, payload: Any, *, human: str | list[str]) -> None:
        """The result: pretty JSON under `--json`, else the lines for people."""
        if self.as_json:
            output.emit_json(payload)
            return
        for line in [human] if isinstance(human, str) else human:
            click.echo(line)

    def with_actor(self, payload: dict[str, Any]) -> dict[str, Any]:
        """The payload, with the actor if the call has one."""
        return payload if self.actor is None else {**payload, "actor_id": self.actor}


def read_text(path: str, *, what: str) -> str:
    """A file's text (`-` is stdin), or an error that names the file and what it was to be."""
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as cause:
        raise InputError(f"cannot read {what} '{path}': it is not UTF-8 text") from cause
    except OSError as cause:
        raise unreadable(path, cause, what=what) from cause


def unreadable(path: str, cause: OSError, *, what: str) -> InputError | NotFoundError:
    """Our error for a file that the system will not give us."""
    reason = cause.strerror or str(cause)
    message = f"cannot read {what} '{path}': {reason}"
    if isinstance(cause, FileNotFoundError):
        return NotFoundError(message, kind="file", name=path)
    return InputError(message)


def write_text(path: str, text: str, *, what: str) -> None:
    """Write a file that the user named, or say why it cannot be."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as cause:
        raise InputError(f"cannot write {what} '{path}': {cause.strerror or cause}") from cause


def write_lines(path: str | None, lines: Iterable[str]) -> int:
    """Write lines to a file, or to stdout when no file is named; how many there were."""
    if path is None:
        return _copy(lines, sys.stdout)
    target = Path(path).resolve()
    try:
        if target.exists() and not target.is_file():  # a pipe or a device takes what comes
            with target.open("w", encoding="utf-8", newline="\n") as out:
                return _copy(lines, out)
        return _written_whole(target, lines)
    except OSError as cause:
        raise InputError(f"cannot write '{path}': {cause.strerror or cause}") from cause


def _written_whole(target: Path, lines: Iterable[str]) -> int:
    """Write beside the target and put it there at the end: half an export looks like a whole one,
    and an earlier one is not given up for it."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as out:
            count = _copy(lines, out)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return count


def _copy(lines: Iterable[str], out: TextIO) -> int:
    count = 0
    for line in lines:
        out.write(line + "\n")
        count += 1
    out.flush()
    return count
