"""Which of the states a server starts in: open to anybody, reading for known actors, or policy.

`access_of` is the one place where tokens and policies come in.
"""

from __future__ import annotations

import logging
import os

import msgspec

from omnigraph.errors import InputError
from omnigraph.server.access import Access
from omnigraph.server.settings import Settings
from omnigraph.server.tokens import file_stamp, token_set

logger = logging.getLogger(__name__)


def access_of(settings: Settings) -> Access:
    """Who may do what on a server with these settings; refused if nobody said."""
    tokens = token_set(os.environ)
    if tokens is None:
        _require_open(settings)
        return Access()
    if settings.unauthenticated != "no":
        logger.warning("there are tokens, so --unauthenticated says nothing")
    if settings.policy is None and settings.server_policy is None:
        logger.warning("without a policy, actors may only read")
        return Access(tokens=tokens)
    return with_policies(Access(tokens=tokens), settings)


def with_policies(access: Access, settings: Settings) -> Access:
    """The same access by the policies as their files are now; `InputError` says what is wrong."""
    if settings.policy is None and settings.server_policy is None:
        return access
    from omnigraph.policy.engine import Policy  # noqa: PLC0415 - an optional package

    gates = {}
    if settings.policy is not None:
        for spec in settings.graphs:
            gates[spec.graph_id] = Policy.load(settings.policy, graph_id=spec.graph_id)
    of_server = None
    if settings.server_policy is not None:
        of_server = Policy.load(settings.server_policy, kind="server")
    return msgspec.structs.replace(access, gates=gates, server_gate=of_server)


def policy_stamps(settings: Settings) -> list[tuple[int, int, int] | None]:
    """What tells whether the files of the policies may have changed."""
    return [file_stamp(path) for path in (settings.policy, settings.server_policy)]


def _require_open(settings: Settings) -> None:
    """Let anybody in only where that was asked for, or cannot reach beyond this machine."""
    if settings.policy is not None or settings.server_policy is not None:
        raise InputError(
            "a policy needs tokens: without them nobody is known",
            hint="set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",
        )
    if not settings.is_loopback and settings.unauthenticated != "public":
        raise InputError(
            f"a server on {settings.host} without tokens would be open to everybody",
            hint="give it tokens, or say --unauthenticated=public",
        )
    if settings.unauthenticated == "no":
        logger.warning("anybody on this machine may use the server: there are no tokens")
