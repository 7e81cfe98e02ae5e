"""Who asks, and whether they may: the two questions that every request but the open ones answers.

`Access` is what a running server holds: `authenticate` says who the bearer of a token is, and
`authorize` whether that actor may do something to a branch. Without tokens and policy everything
is allowed; with tokens and no policy only reading is.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from omnigraph.errors import PolicyDeniedError, UnauthenticatedError
from omnigraph.model.access import Access as Wanted
from omnigraph.model.access import Action
from omnigraph.model.ports import PolicyGate


class Actor(msgspec.Struct, frozen=True):
    """Who asks. `id` is None where the server takes requests from anybody."""

    id: str | None


ANYBODY: Final = Actor(None)


class Tokens(Protocol):
    """What is known of tokens; `reload` looks again and says what is wrong, if anything is."""

    def actor(self, token: str) -> str | None:
        """Whose token it is; None if it is nobody's."""

    def reload(self) -> str | None: ...


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one server; `policies` are by graph id."""

    tokens: Tokens | None = None
    policies: dict[str, PolicyGate] = msgspec.field(default_factory=dict)
    server_policy: PolicyGate | None = None

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
        actor = self.tokens.actor(token.strip())
        if actor is None:
            raise UnauthenticatedError("the token is not known")
        return Actor(actor)

    def authorize(
        self,
        graph_id: str | None,
        actor: Actor,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
    ) -> None:
        """Raise `PolicyDeniedError` unless the actor may; no graph means the server itself."""
        if actor.id is None:
            return
        policy = self.server_policy if graph_id is None else self.policies.get(graph_id)
        wanted = Wanted(action, branch, target)
        if policy is not None:
            decision = policy.decide(actor.id, wanted)
            allowed, message = decision.allowed, decision.message
        else:
            allowed = graph_id is not None and action == "read"
            message = f"actor '{actor.id}' is denied {wanted.words}: there is no policy"
        if not allowed:
            raise PolicyDeniedError(
                message, action=action, actor=actor.id, branch=branch, target_branch=target
            )
