"""What the tab key offers beside commands and options: files, and what the graph of the line has.

A parameter says by its metavar what it takes (`BRANCH`, `REF`, `TYPE`, `FILE`, …). Branches and
tags are read from their small files, so that a key press does not wait for the storage library;
types need the graph. Whatever goes wrong, nothing is offered and nothing is said.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from omnigraph.cli.scope import Capability, ScopeFlags, Served, load_config, resolve
from omnigraph.model.graph import MAIN

WAIT_SECONDS_MAX = 3.0  # a person has typed on by then
_FLAGS = ("store", "server", "graph", "profile", "cluster")


class Offered(StringParamType):
    """A text of which likely values are known."""

    def __init__(self, offer: Callable[[click.Context], Iterable[str]]) -> None:
        self._offer = offer

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        found: list[str] = []

        def look() -> None:
            with suppress(Exception), ctx.scope(cleanup=False):
                found.extend(self._offer(ctx))

        # Not waited for at the end of the process either: a server may never answer.
        looking = threading.Thread(target=look, daemon=True)
        before = logging.root.manager.disable
        logging.disable()  # a warning would land in the line that is being typed
        try:
            looking.start()
            looking.join(WAIT_SECONDS_MAX)
        finally:
            logging.disable(before)
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


class Place(StringParamType):
    """A path, which the shell completes by itself."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type=self._kind)]


# --- the graph of the line ------------------------------------------------------------------------


def _target(context: click.Context) -> Any:
    given: Mapping[str, Any] = {
        **context.find_root().params,
        **{name: value for name, value in context.params.items() if value is not None},
    }
    flags = ScopeFlags(
        uri=given.get("uri_argument") or given.get("uri_option"),
        **{name: given.get(name) for name in _FLAGS},
    )
    config = load_config(os.environ)
    return config, resolve(
        "completion", capability=Capability.ANY, flags=flags, config=config, environ=os.environ
    )


@contextmanager
def _graph(context: click.Context) -> Iterator[Any]:
    from omnigraph.storage.pandas_later import put_off_pandas

    put_off_pandas(to_the_end=True)
    from omnigraph import Graph

    config, target = _target(context)
    if isinstance(target, Served):
        from omnigraph.cli.credentials import server_url, token_for

        url = server_url(config, target.server)
        token = token_for(config, url, os.environ)
        opened: Any = Graph.connect(
            url, token=token, graph=target.graph_id, timeout=WAIT_SECONDS_MAX
        )
    else:
        opened = Graph.open(target.uri, mode="read-only")
    with opened as graph:
        yield graph


def branches(context: click.Context) -> list[str]:
    """The branches, `main` first."""
    target = _target(context)[1]
    if isinstance(target, Served):
        with _graph(context) as graph:
            return list(graph.branches())
    from omnigraph.storage.manifest.ref_files import RefFiles

    # A graph of an older format has its branches elsewhere; here it has `main`.
    return _names(RefFiles(_control_files(target.uri), lambda: None).names())


def tags(context: click.Context) -> list[str]:
    """The tags."""
    target = _target(context)[1]
    if isinstance(target, Served):
        with _graph(context) as graph:
            return [one.name for one in graph.tags()]
    from omnigraph.storage.manifest.tags import TagFiles

    return _names(TagFiles(_control_files(target.uri)).names())


def _control_files(uri: str) -> Any:
    from omnigraph.model.ports import World
    from omnigraph.storage.objects.root import Root, aws_environment, open_store

    return open_store(Root.parse(uri, aws_environment()), World())


def _names(found: Iterable[str]) -> list[str]:
    """Those that are told by the name of their file; of very long names that is a hash."""
    return sorted(
        (name for name in found if not name.startswith("%sha256-")),
        key=lambda name: (name != MAIN, name),
    )


def refs(context: click.Context) -> list[str]:
    """What names a state of the graph: branches and tags."""
    return [*branches(context), *tags(context)]


def types(context: click.Context) -> list[str]:
    """The types of the branch that the line names; only nodes or only edges if it says so."""
    from omnigraph.compiler.schema import compile_schema

    with _graph(context) as graph:
        catalog = compile_schema(graph.schema_source(context.params.get("branch") or MAIN))
    kind = context.params.get("kind") or context.params.get("entity")
    return sorted(one.name for one in catalog.types() if kind in (None, (), one.kind))


def profiles(_: click.Context) -> list[str]:
    """The operator's named scopes."""
    return sorted(load_config(os.environ).profiles)


def queries(context: click.Context) -> list[str]:
    """The queries of the file that the line names."""
    from omnigraph.compiler.query import parse_file

    path = context.params.get("query_path") or context.params.get("script") or ""
    source = Path(path).read_text(encoding="utf-8")
    return [one.name for one in parse_file(source).queries]


_FILE, _FOLDER = Place("file"), Place("dir")
_TYPES: Mapping[str, StringParamType] = {
    "BRANCH": Offered(branches),
    "TAG": Offered(tags),
    "REF": Offered(refs),
    "FROM": Offered(refs),
    "TO": Offered(refs),
    "TYPE": Offered(types),
    "PROFILE": Offered(profiles),
    "[NAME] [URI]": Offered(queries),
    "FILE": _FILE,
    "FILE...": _FILE,
    "PATH": _FILE,
    "DEST": _FOLDER,
    "DIR": _FOLDER,
    "FOLDER": _FOLDER,
    "URI": _FOLDER,
    "[URI]": _FOLDER,
    "[NAME=]URI...": _FOLDER,
}


def completed(param: click.Parameter) -> click.Parameter:
    """The parameter, with what the tab key offers for its metavar."""
    known = _TYPES.get(param.metavar or "")
    if known is not None and isinstance(param.type, StringParamType):
        param.type = known
    return param
