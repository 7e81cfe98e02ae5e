"""The packages that this machine's Debian (or Ubuntu) knows about, read from its own lists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from omnigraph.cli.demo.packages import DataSet, Package

LISTS: Final = Path("/var/lib/apt/lists")
INSTALLED: Final = Path("/var/lib/dpkg/status")

Packing = Literal["lz4", "gzip", "zstd", "bz2"]
_PACKING: Final[Mapping[str, Packing]] = {
    ".lz4": "lz4",
    ".gz": "gzip",
    ".zst": "zstd",
    ".bz2": "bz2",
}
_FIELD: Final = re.compile(
    rb"^(Package|Version|Section|Installed-Size|Description|Depends|Pre-Depends|Recommends"
    rb"|Provides):[ \t]*(.*?)[ \t\r]*$",
    re.MULTILINE,
)
_BLANK_LINE: Final = re.compile(rb"\n[ \t\r]*\n")
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9+.-]+")

Stanza = dict[str, str]


def debian_packages(lists: Path = LISTS, installed: Path = INSTALLED) -> DataSet | None:
    """What the package lists say, else what is installed; None where there is neither."""
    files = sorted(_list_files(lists), key=_freshness)
    origin = f"{len(files)} package lists in {lists}"
    if not files and installed.is_file():
        files, origin = [installed], f"the packages installed here, from {installed}"
    stanzas: dict[str, Stanza] = {}
    for path in files:
        stanzas.update((one["Package"], one) for one in _stanzas(_unpacked(path)))
    if not stanzas:
        return None
    return DataSet(
        title="Debian's packages",
        origin=origin,
        packages=tuple(packages_of(stanzas)),
        search_words="compression",
    )


def _list_files(lists: Path) -> Iterator[Path]:
    if not lists.is_dir():
        return
    for path in lists.iterdir():
        name, sign, packing = path.name.rpartition("_Packages")
        if sign and name and packing in ("", *_PACKING) and path.is_file():
            yield path


def _freshness(path: Path) -> tuple[bool, bool, str]:
    """Security fixes replace updates, and those the release: they are read in that order."""
    return "-security_" in path.name, "-updates_" in path.name, path.name


def _unpacked(path: Path) -> bytes:
    import pyarrow as pa  # it can unpack what apt packs, and it is here anyway

    packing = _PACKING.get(path.suffix)
    with pa.input_stream(str(path), compression=packing) as packed:  # type: ignore[arg-type]
        return bytes(packed.read())


def _stanzas(text: bytes) -> Iterator[Stanza]:
    """Blocks of `Field: value` lines; only the first line of the fields that we use."""
    for block in _BLANK_LINE.split(text):
        stanza = {
            name.decode(): value.decode("utf-8", errors="replace")
            for name, value in _FIELD.findall(block)
        }
        if stanza.get("Package"):
            yield stanza


def packages_of(stanzas: Mapping[str, Stanza]) -> Iterator[Package]:
    """Each stanza as a package whose needs are names of other stanzas."""
    providers: dict[str, str] = {}
    for name, stanza in sorted(stanzas.items()):
        for virtual in _NAME.findall(re.sub(r"\([^)]*\)", "", stanza.get("Provides", ""))):
            providers.setdefault(virtual, name)

    def resolved(value: str) -> tuple[str, ...]:
        return tuple(_chosen(group, stanzas, providers) for group in value.split(",") if group)

    for name, stanza in stanzas.items():
        size = stanza.get("Installed-Size", "")
        needs = resolved(stanza.get("Pre-Depends", "")) + resolved(stanza.get("Depends", ""))
        yield Package(
            name=name,
            version=stanza.get("Version"),
            summary=stanza.get("Description") or None,
            section=stanza.get("Section", "").rpartition("/")[2] or None,
            size_kib=int(size) if size.isdecimal() else None,
            needs=needs,
            likes=resolved(stanza.get("Recommends", "")),
        )


def _chosen(group: str, stanzas: Mapping[str, Stanza], providers: Mapping[str, str]) -> str:
    """Of `a | b`, the first that exists; a virtual package is whoever provides it first."""
    names = [found[0] for one in group.split("|") if (found := _NAME.match(one.strip()))]
    for name in names:
        if name in stanzas:
            return name
    return next((providers[name] for name in names if name in providers), "")
