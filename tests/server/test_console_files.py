"""The console's files: as new as their sources, small, and served with strict rules."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import urllib3

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
    named = set(re.findall(r'(?:src|href)="/ui/([^"]+)"', page))
    assert named >= {"theme.js", "index.js", "main.js", "editor.js", "index.css"}
    assert named <= {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/index.js", "/ui/editor.js", "/ui/index.css"])
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


def test_the_command_serves_on_a_free_port_and_shows_the_page(served, tmp_path):
    shown = tmp_path / "shown"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {shown}\n')
    browser.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "omnigraph", "ui", str(served.folder / "people.omni")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "BROWSER": f"{browser} %s"},
    )
    try:
        url = process.stdout.readline().decode().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/ui/", url)
        assert urllib3.request("GET", url, timeout=30).status == 200
        deadline = time.monotonic() + 20
        while not shown.exists() or not shown.read_text():
            assert time.monotonic() < deadline, "no browser was asked"
            time.sleep(0.05)
        assert shown.read_text().strip() == url
    finally:
        process.terminate()
        assert process.wait(30) == 0
        process.stdout.close()


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
