"""Which of the states a server starts in: open to anybody, reading for known actors, or policy.

`access_of` is the one place where tokens and policies come in.
"""

from __future__ import annotations

import logging

from omnigraph.errors import InputError
from omnigraph.server.access import Access
from omnigraph.server.settings import Settings

logger = logging.getLogger(__name__)


def access_of(settings: Settings) -> Access:
    """Who may do what on a server with these settings; refused if nobody said."""
    if not settings.is_loopback and settings.unauthenticated != "public":
        raise InputError(
            f"a server on {settings.host} without tokens would be open to everybody",
            hint="give it tokens, or say --unauthenticated=public",
        )
    if settings.unauthenticated == "no":
        logger.warning("anybody on this machine may use the server: there are no tokens")
    return Access()
