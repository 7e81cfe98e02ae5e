"""What all pictures share: the frame with its colours, text that is safe, labels that are free."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from omnigraph.model import structs

LABEL_CHARACTERS_MAX: Final = 24
# The middle of the scale, so that they can be told apart on white and on black.
COLOURS: Final = (
    *("#4a7fb8", "#cf5f47", "#62985f", "#9a759a", "#c8912e"),
    *("#2a9d9d", "#858585", "#bd5f86", "#8a7740", "#7d9c38"),
)
LINE_HEIGHT: Final = 14.0
# Widths of the letters of a sans-serif of 11 px, rather too wide than too narrow.
_NARROW, _WIDE = 6.6, 11.5
# Of a class of their own: in a page, the rules of one picture are seen by everything.
_STYLE: Final = (
    "<style>.og-ground{fill:#fff}.og text{fill:#1d2433}.og .og-soft{fill:#5a6375}"
    ".og .og-line{stroke:#8b93a5;fill:none}.og .og-tip{fill:#8b93a5}"
    ".og .og-box{fill:#f5f7fa;stroke:#b9c0cd}"
    "@media (prefers-color-scheme:dark){.og-ground{fill:#1b1f27}.og text{fill:#e6e9ef}"
    ".og .og-soft{fill:#a3acbd}.og .og-line{stroke:#7b8496}.og .og-tip{fill:#7b8496}"
    ".og .og-box{fill:#262b36;stroke:#4a5263}}</style>"
)


class Box(msgspec.Struct, frozen=True):
    """A rectangle of a picture: left, top, width and height."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, other: Box) -> bool:
        """Whether the two have a point in common that is inside both."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def inside(self, width: float, height: float) -> bool:
        return (
            self.x >= 0
            and self.y >= 0
            and self.x + self.width <= width
            and self.y + self.height <= height
        )


def svg(width: float, height: float, parts: Sequence[str], *, title: str) -> str:
    """A whole picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="og" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escaped(title)}" '
        f'font-family="system-ui,sans-serif" font-size="11">{_STYLE}'
        '<rect class="og-ground" width="100%" height="100%"/>' + "".join(parts) + "</svg>"
    )


def label(name: str, *, limit: int = LABEL_CHARACTERS_MAX) -> str:
    """The name as a picture shows it: cut, and safe."""
    return escaped(cut(name, limit))


def cut(name: str, limit: int = LABEL_CHARACTERS_MAX) -> str:
    return name if len(name) <= limit else name[: limit - 1] + "…"


def escaped(words: str) -> str:
    """Text that an SVG may hold: escaped, and without the characters that XML has no words for."""
    return structs.escaped("".join(char if char.isprintable() else "\ufffd" for char in words))


def text_width(words: str) -> float:
    """About how wide the text is; never less than it is."""
    return sum(_WIDE if unicodedata.east_asian_width(c) in "WF" else _NARROW for c in words)


def text(x: float, y: float, words: str, *, soft: bool = False, more: str = "") -> str:
    """A line of text that is escaped already, its foot at `y`."""
    kind = ' class="og-soft"' if soft else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}{more}>{words}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="og-line" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def free_box(wanted: Box, taken: Sequence[Box], width: float, height: float) -> Box:
    """The place nearest to the wanted one where a box of its size meets no other.

    Rings are tried outwards until the picture ends. In a picture that is full, the wanted place.
    """
    for x, y in _rings(wanted, max(width, height)):
        box = Box(x, y, wanted.width, wanted.height)
        if box.inside(width, height) and not any(box.meets(other) for other in taken):
            return box
    return wanted


def _rings(wanted: Box, reach: float) -> Iterator[tuple[float, float]]:
    yield wanted.x, wanted.y
    step = wanted.height / 2
    for ring in range(1, int(reach / step) + 1):
        for at in range(-ring, ring + 1):
            far, along = ring * step, at * step
            yield wanted.x + along, wanted.y - far
            yield wanted.x + along, wanted.y + far
            yield wanted.x - far, wanted.y + along
            yield wanted.x + far, wanted.y + along
