"""The one entry into the server for everybody outside: `serve`."""

from __future__ import annotations

import contextlib
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from omnigraph.engine.rows.blobs import BlobBases
from omnigraph.errors import InputError, UnavailableError
from omnigraph.model.limits import (
    SERVER_ACTOR_BYTES_MAX,
    SERVER_ACTOR_WRITES_MAX,
    SERVER_WORKERS_MAX,
)
from omnigraph.server.boot import access_of
from omnigraph.server.settings import (
    Settings,
    Sockets,
    graph_specs,
    number,
    split_address,
    switched_on,
    told,
)
from omnigraph.server.supervisor import Supervisor
from omnigraph.server.telemetry import log_as_json
from omnigraph.server.worker import serve_sockets

logger = logging.getLogger(__name__)

BACKLOG = 2048


def serve(uris: Sequence[str], *, bind: str, **options: Any) -> int:
    """Serve the graphs until a signal says stop; the exit code."""
    return _served(uris, lambda address: _say(f"OMNIGRAPH_LISTEN_ADDR={address}"), bind, options)


def serve_console(
    uris: Sequence[str], *, bind: str, show: Callable[[str], object], **options: Any
) -> int:
    """The same, for somebody who wants to look: tell and show where the console is."""

    def told(address: str) -> None:
        url = f"http://{address}/ui/"
        _say(url)
        show(url)

    return _served(uris, told, bind, options)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _served(
    uris: Sequence[str], told: Callable[[str], object], bind: str, options: dict[str, Any]
) -> int:
    settings = settings_of(uris, bind=bind, **options)
    access_of(settings)  # what cannot be started is told before anything is
    _raise_file_limit()
    _be_asked_calmly()
    with contextlib.ExitStack() as stack:
        sockets = Sockets(requests=stack.enter_context(bound_socket(settings.host, settings.port)))
        told(_address(sockets.requests))
        if settings.metrics is not None:
            sockets.metrics = stack.enter_context(bound_socket(*split_address(settings.metrics)))
            _say(f"OMNIGRAPH_METRICS_ADDR={_address(sockets.metrics)}")
        if settings.workers > 1:
            return Supervisor(settings, sockets).run()
        return serve_sockets(settings, sockets, when_ready=lambda: None)


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"{host}:{port}"


def _be_asked_calmly() -> None:
    """Until whoever serves takes signals: asked to end, end; files are about to be read anyway. A
    worker process inherits that SIGHUP is passed over, and is not killed by an early one."""
    for word in (signal.SIGTERM, signal.SIGINT):
        signal.signal(word, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _raise_file_limit() -> None:
    """As many open files as the system lets us have: connections and tables are files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # as many as there were, then
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def settings_of(uris: Sequence[str], *, bind: str, **options: Any) -> Settings:
    """The settings of a command line, completed by the environment."""
    host, port = split_address(bind)
    grace = options.pop("shutdown_grace_seconds", None)
    if grace is None:
        grace = float(told("OMNIGRAPH_SHUTDOWN_GRACE_SECONDS") or 25)
    log_as_json()
    found = {name: value for name, value in options.items() if value is not None}
    for name, variable, default in (
        ("actor_writes_max", "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", SERVER_ACTOR_WRITES_MAX),
        ("actor_bytes_max", "OMNIGRAPH_PER_ACTOR_BYTES_MAX", SERVER_ACTOR_BYTES_MAX),
    ):
        found[name], warning = number(variable, default)
        if warning is not None:
            logger.warning(warning)
    if found.get("unauthenticated") is None and switched_on("OMNIGRAPH_UNAUTHENTICATED"):
        found["unauthenticated"] = "yes"
    found["require_all_graphs"] = found.get("require_all_graphs") or switched_on(
        "OMNIGRAPH_REQUIRE_ALL_GRAPHS"
    )
    settings = Settings(
        graphs=graph_specs(uris), host=host, port=port, shutdown_grace_seconds=grace, **found
    )
    if not 1 <= settings.workers <= SERVER_WORKERS_MAX:
        raise InputError(f"workers must be between 1 and {SERVER_WORKERS_MAX}")
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise InputError("--tls-cert and --tls-key go together")
    BlobBases.of(settings.blob_bases)
    if settings.metrics is not None:
        split_address(settings.metrics)
    if "*" in settings.cors_origins:
        raise InputError("--cors-origin takes exact origins, not *")
    return settings


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket: requests may come from now on, and wait until somebody takes them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as cause:
        raise UnavailableError(
            f"cannot listen on {host}:{port}: {cause.strerror or cause}"
        ) from cause
