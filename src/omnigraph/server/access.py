"""Who asks, and whether they may: the two questions that every request but the open ones answers.

`Access` is what a running server holds: `authenticate` says who the bearer of a token is, and
`authorize` whether that actor may do something to a branch. Without tokens everything is allowed;
with tokens and no policy only reading is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
from starlette.types import Scope

from omnigraph.errors import PolicyDeniedError, UnauthenticatedError
from omnigraph.model.access import Access as Wanted
from omnigraph.model.access import Action, Decision
from omnigraph.server.settings import Settings, is_loopback
from omnigraph.wire.failures import RefusedError

logger = logging.getLogger("omnigraph.server.decisions")


class Actor(msgspec.Struct, frozen=True):
    """Who asks. `id` is None where the server takes requests from anybody."""

    id: str | None


ANYBODY: Final = Actor(None)


class Tokens(Protocol):
    """What is known of tokens; `reload` looks again and says what is wrong, if anything is."""

    def actor(self, token: str) -> str | None:
        """Whose token it is; None if it is nobody's."""

    def reload(self) -> str | None: ...

    @property
    def stamp(self) -> object:
        """Something else when the source of the tokens may have changed."""


class Gate(Protocol):
    """A policy as the server asks it: a `PolicyGate` that also knows what is never allowed."""

    def decide(self, actor: str | None, access: Wanted) -> Decision: ...

    def may_ever(self, actor: str, action: Action) -> bool:
        """Whether there is a branch on which the actor may do it."""


class OnlyReading:
    """The policy of a server with tokens and none of its own."""

    def decide(self, actor: str | None, access: Wanted) -> Decision:
        if actor is not None and access.action == "read":
            return Decision(allowed=True, message=f"'{actor}' may read", matched_rule_id="default")
        return Decision(
            allowed=False,
            message=f"'{actor}' may not do {access.words}: the server has no policy",
        )

    def may_ever(self, actor: str, action: Action) -> bool:
        return self.decide(actor, Wanted(action)).allowed


ONLY_READING: Final = OnlyReading()


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one server; `gates` are by graph id."""

    tokens: Tokens | None = None
    gates: Mapping[str, Gate] = msgspec.field(default_factory=dict)
    server_gate: Gate | None = None

    @property
    def is_open(self) -> bool:
        """Whether anybody may do anything."""
        return self.tokens is None

    def authenticate(self, authorization: list[str]) -> Actor:
        """The bearer of the token in the request's `Authorization` headers."""
        if self.tokens is None:
            return ANYBODY
        if len(authorization) != 1:
            raise UnauthenticatedError("the request needs one bearer token")
        scheme, _, token = authorization[0].partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise UnauthenticatedError("the request needs a bearer token")
        # Headers are bytes that somebody read as Latin-1; tokens are kept as UTF-8.
        sent = token.strip().encode("latin-1").decode("utf-8", "surrogateescape")
        actor = self.tokens.actor(sent)
        if actor is None:
            raise UnauthenticatedError("the token is not known")
        return Actor(actor)

    def gate(self, graph_id: str | None) -> Gate | None:
        """The policy of a graph, or of the server itself; None where anybody may do anything."""
        if self.tokens is None:
            return None
        found = self.server_gate if graph_id is None else self.gates.get(graph_id)
        return ONLY_READING if found is None else found

    def authorize(
        self,
        graph_id: str | None,
        actor: Actor,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        request_id: str | None = None,
    ) -> None:
        """Raise `PolicyDeniedError` unless the actor may; no graph means the server itself."""
        gate = self.gate(graph_id)
        if gate is None:
            return
        decision = gate.decide(actor.id, Wanted(action, branch, target))
        quiet = decision.allowed and action == "read"  # as many as there are requests
        if not quiet or logger.isEnabledFor(logging.DEBUG):
            logger.log(
                logging.DEBUG if quiet else logging.INFO,
                "policy decision",
                extra={
                    "graph": graph_id,
                    "actor": actor.id,
                    "action": action,
                    "branch": branch,
                    "target_branch": target,
                    "allowed": decision.allowed,
                    "rule": decision.matched_rule_id,
                    "request_id": request_id,
                },
            )
        if not decision.allowed:
            raise PolicyDeniedError(
                decision.message,
                actor=actor.id,
                action=action,
                branch=branch,
                target_branch=target,
            )

    def may_ever(self, graph_id: str | None, actor: Actor, action: Action) -> bool:
        """Whether the actor may do it to anything at all."""
        gate = self.gate(graph_id)
        return gate is None or (actor.id is not None and gate.may_ever(actor.id, action))


def require_own_origin(scope: Scope, settings: Settings) -> None:
    """Refuse what a browser sends from a strange page, or was led to send by a false name: on this
    machine `Host` must be one of its names. Whoever comes from elsewhere may know the server by
    any name."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin in settings.cors_origins:
        return
    host = headers.get(b"host", b"").decode("latin-1")
    named = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if settings.is_loopback and not is_loopback(named.strip("[]")):
        raise RefusedError(421, "this server has another name")
    if origin and urlsplit(origin).netloc != host:
        raise RefusedError(403, "requests from this origin are refused")
