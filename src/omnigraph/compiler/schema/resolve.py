"""Which accepted name each desired name stands for: the same one, or the one renamed from."""

from __future__ import annotations

from collections.abc import Mapping
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
    *,
    label: str,
    unknown: str,
    accepted: Mapping[str, str | None],
    hints: Mapping[str, str | None],
) -> Matching:
    """Match by name first, so that a hint that has done its work is harmless; then by hint.

    `hints` maps every desired name to its `@rename_from`, `accepted` every accepted one. `label`
    stands before a name in errors; `unknown` ends the one about a hint that names nothing.
    """
    known = accepted.keys()
    _check_no_exchange(label, accepted, hints)
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


def _check_no_exchange(
    label: str, accepted: Mapping[str, str | None], hints: Mapping[str, str | None]
) -> None:
    """A thing that is there cannot also become another one that is there.

    Matched by name, a swap would mean nothing, or take the values of one for those of the other.
    Only a hint that the accepted declaration had already has done its work: what bears the old
    name now came later.
    """
    for name, hint in hints.items():
        if hint is None or hint == name or name not in accepted or hint not in accepted:
            continue
        if accepted[name] != hint:
            raise SchemaError(
                f'{label}{name} declares @rename_from("{hint}"), but both {name} and {hint} are '
                "there already",
                hint=f"to exchange names, rename {name} to a third name first, in an apply of its "
                "own; if nothing is to be renamed, remove the hint",
                entity=f"{label}{name}",
            )
