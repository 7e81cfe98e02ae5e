"""Pictures are well-formed, harmless and the same every time."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from omnigraph.demo.story import draw_bars

NASTY = "<script>alert('&')</script>\x00\x1b"


def texts(svg: str) -> str:
    return "".join(ET.fromstring(svg).itertext())


def test_bars_name_their_values():
    shown = texts(draw_bars([("load", 2.5), (NASTY, 0.0)], unit="s"))
    assert "load2.50 s" in shown
    assert "0.00 s" in shown
    assert draw_bars([], unit="s").startswith("<svg")
