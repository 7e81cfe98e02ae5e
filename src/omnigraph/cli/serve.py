"""`omnigraph serve`, also called `omnigraph-server`."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

import click

from omnigraph.cli.call import Call, verb
from omnigraph.cli.scope import Capability
from omnigraph.model.machine import extra_for


@verb("serve", capability=Capability.LOCAL)
@click.argument("uris", nargs=-1, metavar="[NAME=]URI...")
@click.option(
    "--bind",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="where to listen; port 0 takes a free one",
)
@click.option("--queries", metavar="PATH", help="stored queries: a .gq file, a folder, a catalog")
@click.option("--policy", metavar="FILE", help="what actors may do to the graphs")
@click.option("--server-policy", metavar="FILE", help="which actors may list the graphs")
@click.option(
    "--unauthenticated",
    is_flag=False,
    flag_value="yes",
    type=click.Choice(["yes", "public"]),
    help="take requests from anybody; `public` also from other machines",
)
@click.option(
    "--blob-base",
    "blob_bases",
    multiple=True,
    metavar="URI",
    help="blobs may be addresses below this one (s3:// or file://); repeatable",
)
@click.option("--require-all-graphs", is_flag=True, help="do not start without one of the graphs")
@click.option("--workers", type=int, default=1, show_default=True, metavar="N", help="processes")
@click.option("--read-only", is_flag=True, help="refuse writes")
@click.option("--writer-url", metavar="URL", help="where writes go, for a server that only reads")
@click.option(
    "--shutdown-grace-seconds", type=float, metavar="S", help="for the end  [default: 25]"
)
@click.option(
    "--query-timeout",
    "query_timeout",
    type=float,
    metavar="S",
    help="that one read may take  [default: 30]",
)
@click.option(
    "--metrics", metavar="HOST:PORT", help="tell metrics there, to anybody, and not at /metrics"
)
@click.option("--access-log", is_flag=True, help="a line in the log for every request")
@click.option("--cors-origin", "cors_origins", multiple=True, metavar="ORIGIN", help="repeatable")
@click.option("--tls-cert", metavar="FILE", help="certificate, PEM")
@click.option("--tls-key", metavar="FILE", help="its key, PEM")
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="believe the X-Forwarded headers of this address; repeatable",
)
def serve(
    call: Call, uris: tuple[str, ...], *, query_timeout: float | None, **options: Any
) -> None:
    """Serve graphs over HTTP. A graph is called like the last part of its URI, or NAME."""
    stores = [found for found in (call.flags.store, call.flags.uri) if found is not None]
    with extra_for("the server"):
        main = import_module("omnigraph.server.main")
    if query_timeout is not None:
        options["query_timeout_ms"] = int(query_timeout * 1000)
    code = main.serve([*uris, *stores], **options)
    click.get_current_context().exit(code)


@verb("ui", capability=Capability.LOCAL)
@click.argument("uris", nargs=-1, metavar="[NAME=]URI...")
@click.option("--queries", metavar="PATH", help="stored queries: a .gq file, a folder, a catalog")
@click.option("--read-only", is_flag=True, help="refuse writes")
@click.option(
    "--bind",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="where to listen; port 0 takes a free one",
)
@click.option("--no-browser", is_flag=True, help="only print the address")
def ui(call: Call, uris: tuple[str, ...], *, no_browser: bool, **options: Any) -> None:
    """Open the console in the browser, on a server that runs until Ctrl-C."""
    stores = [found for found in (call.flags.store, call.flags.uri) if found is not None]
    with extra_for("the console"):
        main = import_module("omnigraph.server.main")
    show = (lambda _: None) if no_browser else _opened
    code = main.serve_console([*uris, *stores], show=show, **options)
    click.get_current_context().exit(code)


def _opened(url: str) -> None:
    """Show a page in the user's browser; the printed address is there if that cannot be."""
    import webbrowser

    # A browser may take long to start, and the server is to answer it.
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def server_entry() -> int:
    """`omnigraph-server` is `omnigraph serve`."""
    from omnigraph.cli.main import entry

    sys.argv[1:1] = ["serve"]
    return entry()
