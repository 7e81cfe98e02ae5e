"""Which accepted name each desired name stands for: the same one, or the one renamed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from omnigraph.compiler.diagnostics import did_you_mean
from omnigraph.errors import SchemaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Desired names to accepted names and back, and what is left on either side, sorted."""

    accepted_of: Mapping[str, str]
    desired_of: Mapping[str, str]
    added: tuple[str, ...]
    dropped: tuple[str, ...]


def match_names(
    *, label: str, unknown: str, accepted: Iterable[str], hints: Mapping[str, str | None]
) -> Matching:
    """Match by name first, so that a hint that has done its work is harmless; then by hint.

    `hints` maps every desired name to its `@rename_from`. `label` stands before a name in errors;
    `unknown` ends the one about a hint that names nothing.
    """
    known = set(accepted)
    found = {name: name for name in hints if name in known}
    taken = {name: name for name in found}
    for name, hint in hints.items():
        if name in found or hint is None:
            continue
        if hint not in known:
            raise SchemaError(
                f'{label}{name} declares @rename_from("{hint}"), {unknown}',
                hint=did_you_mean(hint, known),
                entity=f"{label}{name}",
            )
        if hint in taken:
            raise SchemaError(
                f"{label}{hint} is consumed by more than one desired declaration: "
                f"{taken[hint]} and {name}",
                hint="only one declaration can go on with its data; the other one starts anew",
                entity=f"{label}{hint}",
            )
        found[name], taken[hint] = hint, name
    return Matching(
        accepted_of=found,
        desired_of={old: new for new, old in found.items()},
        added=tuple(sorted(name for name in hints if name not in found)),
        dropped=tuple(sorted(known - taken.keys())),
    )
