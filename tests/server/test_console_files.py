"""The console's files: as new as their sources, small, and served with strict rules."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from omnigraph.server.handlers.files import FOLDER, MEDIA

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "ui"
GZIPPED_BYTES_MAX = 250_000
MADE_BY = ("wire.d.ts",)  # by the build, from openapi.json; types leave nothing in the bundle

requires_sources = pytest.mark.skipif(
    not SOURCES.is_dir(), reason="an installed package has no sources of the console"
)


@requires_sources
def test_the_bundle_was_built_from_the_sources_as_they_are():
    told = json.loads((FOLDER / "BUILD.json").read_text("utf-8"))["sources"]
    inside = {
        path.relative_to(SOURCES).as_posix()
        for path in (SOURCES / "src").rglob("*")
        if path.is_file() and path.name not in MADE_BY
    }
    assert {name for name in told if name.startswith("src/")} == inside, "run `make console`"
    stale = [
        name
        for name, digest in told.items()
        if hashlib.sha256((SOURCES / name).read_bytes()).hexdigest() != digest
    ]
    assert stale == [], "run `make console`"


def test_the_bundle_is_small():
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in FOLDER.iterdir()}
    del sizes["BUILD.json"]
    assert sum(sizes.values()) <= GZIPPED_BYTES_MAX, sizes


def test_the_bundle_names_no_other_place():
    page = (FOLDER / "index.html").read_text("utf-8")
    assert "<script>" not in page
    assert "https://" not in page


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/index.js", "/ui/index.css"])
def test_files_are_served_to_anybody_with_strict_rules(served, path):
    reply = served.get(path, headers={"accept-encoding": "gzip"})
    name = path.removeprefix("/ui").strip("/") or "index.html"
    assert reply.status == 200
    assert reply.body == (FOLDER / name).read_bytes()
    assert reply.headers["content-type"] == MEDIA[Path(name).suffix]
    assert reply.headers["content-encoding"] == "gzip"
    assert reply.headers["x-content-type-options"] == "nosniff"
    rules = reply.headers["content-security-policy"]
    assert "default-src 'none'" in rules
    assert "script-src 'self';" in rules
    assert "frame-ancestors 'none'" in rules
    again = served.get(path, headers={"if-none-match": reply.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("name", ["BUILD.json", "nothing.js", "..%2Fui%2Findex.js", "%2e%2e"])
def test_nothing_else_is_given_away(served, name):
    assert served.get(f"/ui/{name}").status == 404


@pytest.mark.slow
@requires_sources
def test_a_build_of_the_sources_gives_the_bundle(tmp_path):
    if shutil.which("npm") is None or not (SOURCES / "node_modules").is_dir():
        pytest.skip("needs Node and `npm ci` in ui/")
    subprocess.run(
        ["npx", "vite", "build", "--outDir", str(tmp_path)], cwd=SOURCES, check=True, timeout=200
    )
    for path in FOLDER.iterdir():
        if path.suffix in MEDIA:
            assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
