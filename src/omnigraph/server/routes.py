"""Everything that can be asked of a server, as one tuple."""

from __future__ import annotations

from omnigraph.server.calls import Route
from omnigraph.server.handlers import flat, reading, writing

ROUTES: tuple[Route, ...] = (
    *flat.ROUTES,
    *reading.ROUTES,
    *writing.ROUTES,
)
