"""Commits as a picture: a line a commit, a lane a branch; and the list that shows itself so."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from omnigraph.model.graph import Commit
from omnigraph.model.pictures.svg import COLOURS, escaped, label, svg, text, text_width
from omnigraph.model.structs import html_block
from omnigraph.model.values import moment_at, moment_text

COMMITS_DRAWN_MAX: Final = 200
_ROW, _LANE, _MARGIN, _DOT = 22.0, 16.0, 20.0, 5.0
_MESSAGE_CHARACTERS_MAX: Final = 60


class Commits(list[Commit]):
    """Commits, newest first. A list like any other, which notebooks draw."""

    def _repr_html_(self) -> str:
        more = len(self) - COMMITS_DRAWN_MAX
        rest = f" (the newest {COMMITS_DRAWN_MAX} are drawn)" if more > 0 else ""
        return html_block(
            f"{len(self):,} commits{rest}", draw_commits(self[:COMMITS_DRAWN_MAX], {})
        )


def in_order(commits: Iterable[Commit]) -> list[Commit]:
    """Newest first, and no commit before one that came from it, whatever the clocks said."""
    known = {one.graph_commit_id: one for one in commits}
    children = dict.fromkeys(known, 0)
    for one in known.values():
        for parent in parents_of(one, known):
            children[parent] += 1
    ready = [_rank(one) for one in known.values() if not children[one.graph_commit_id]]
    heapq.heapify(ready)
    ordered: list[Commit] = []
    while ready:
        one = known[heapq.heappop(ready)[1]]
        ordered.append(one)
        for parent in parents_of(one, known):
            children[parent] -= 1
            if not children[parent]:
                heapq.heappush(ready, _rank(known[parent]))
    return ordered


def _rank(one: Commit) -> tuple[int, str]:
    return -one.created_us, one.graph_commit_id


def parents_of(one: Commit, known: Mapping[str, Commit]) -> list[str]:
    """Its parents that are drawn; commits of a deleted branch are not."""
    both = (one.parent_commit_id, one.merged_parent_commit_id)
    return [parent for parent in dict.fromkeys(both) if parent is not None and parent in known]


def draw_commits(commits: Sequence[Commit], heads: Mapping[str, Sequence[str]]) -> str:
    """Newest at the top; `commits` stand in such an order, children before their parents.

    `heads` are the names of branches by the id of their newest commit.
    """
    lanes: dict[str, int] = {}
    for one in commits:
        lanes.setdefault(one.graph_branch, len(lanes))
    order = {name: at for at, name in enumerate(sorted(lanes, key=lambda n: (n != "main", n)))}
    at = {
        one.graph_commit_id: (_MARGIN + _LANE * order[one.graph_branch], _MARGIN + _ROW * row)
        for row, one in enumerate(commits)
    }
    left = _MARGIN + _LANE * len(order) + 6
    lines = [_links(one, at) for one in commits]
    dots: list[str] = []
    width = left
    for one in commits:
        x, y = at[one.graph_commit_id]
        colour = COLOURS[order[one.graph_branch] % len(COLOURS)]
        names = heads.get(one.graph_commit_id, ())
        words, size = _words(one, names)
        width = max(width, left + size)
        dots.append(
            f"<g><title>{escaped(_title(one))}</title>"
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_DOT}" fill="{colour}"/>'
            f"{text(left, y + 4, words)}</g>"
        )
    return svg(
        width + _MARGIN,
        2 * _MARGIN + _ROW * max(len(commits) - 1, 0),
        lines + dots,
        title="commits",
    )


def _links(one: Commit, at: Mapping[str, tuple[float, float]]) -> str:
    x, y = at[one.graph_commit_id]
    parts = []
    for parent in (one.parent_commit_id, one.merged_parent_commit_id):
        if parent is not None and parent in at:
            px, py = at[parent]
            # A fork leaves its parent there; what is merged comes in at the merge.
            down = y if px > x else py - _ROW
            turn = down + _ROW / 2
            parts.append(
                f'<path class="og-line" d="M{x:.1f},{y:.1f} V{down:.1f} C{x:.1f},{turn:.1f} '
                f'{px:.1f},{turn:.1f} {px:.1f},{down + _ROW:.1f} V{py:.1f}"/>'
            )
    return "".join(parts)


def _words(one: Commit, names: Sequence[str]) -> tuple[str, float]:
    """The line beside a commit as spans, and how wide it is."""
    plain = one.graph_commit_id[-8:]
    shown = f'<tspan font-family="monospace">{escaped(plain)}</tspan>'
    if names:
        told = f" [{', '.join(names)}]"
        shown += f'<tspan font-weight="bold">{escaped(told)}</tspan>'
        plain += told + " " * len(told)
    message = (one.message or "").strip().partition("\n")[0]
    told = f" {message or one.writer_kind or ('Genesis' if not one.parent_commit_id else '-')}"
    shown += label(told, limit=_MESSAGE_CHARACTERS_MAX)
    soft = f"  {one.actor_id or ''} {_moment(one)}"
    shown += f'<tspan class="og-soft">{label(soft, limit=_MESSAGE_CHARACTERS_MAX)}</tspan>'
    return shown, text_width(
        plain + told[:_MESSAGE_CHARACTERS_MAX] + soft[:_MESSAGE_CHARACTERS_MAX]
    )


def _title(one: Commit) -> str:
    return f"{one.graph_commit_id} on {one.graph_branch}"


def _moment(one: Commit) -> str:
    return moment_text(moment_at(one.created_us // 1000), timespec="seconds")
