"""What we say about ourselves is complete, up to date, and points at things that exist."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])
HOME = "https://github.com/omnigraph/omnigraph/blob/main/"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"```.*?```", re.DOTALL)


def test_the_generated_reference_is_up_to_date():
    found = subprocess.run(
        [sys.executable, "tools/reference.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_of_a_page_leads_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if link.startswith(HOME):  # the README is read on PyPI, too
            assert (REPOSITORY / link.removeprefix(HOME).partition("#")[0]).exists(), link
        if "://" in link or link.startswith(("#", "mailto:")):
            continue
        assert page.name != "README.md" or page.parent != REPOSITORY, f"{link} breaks on PyPI"
        target = page.parent / link.partition("#")[0]
        assert target.exists(), f"{link} leads nowhere"


def test_every_page_is_reached_from_the_index():
    docs = REPOSITORY / "docs"
    linked = {
        (docs / link.partition("#")[0]).resolve()
        for link in LINK.findall((docs / "index.md").read_text(encoding="utf-8"))
    }
    pages = {page.resolve() for page in docs.rglob("*.md")} - {(docs / "index.md").resolve()}
    assert sorted(page.name for page in pages - linked) == []


def test_the_readme_names_the_two_commands_and_ci_runs_the_second():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme
    assert "make test" in (REPOSITORY / ".ci/run").read_text(encoding="utf-8")


def test_bare_make_prints_every_command():
    shown = subprocess.run(["make"], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    for target in phony[1].split():
        assert f"make {target}" in shown.stdout


def test_every_decision_has_a_number_a_title_and_fits_a_page():
    for page in sorted((REPOSITORY / "docs/decisions").glob("*.md")):
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", page.name), page.name
        lines = page.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"# {page.name[:4]}"), page.name
        assert len(lines) <= 60, f"{page.name} is longer than a page"


# The path of a file, or its last part: `storage/commit/writer.py`, `commit/writer.py`.
FILES = [
    path for top in ("src", "tests", "docs", "tools") for path in (REPOSITORY / top).rglob("*.*")
]
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|svg|pg|gq))`")


@pytest.mark.parametrize(
    "page",
    [REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs/internals").rglob("*.md"))],
    ids=lambda page: page.name,
)
def test_every_file_a_page_for_contributors_names_is_there(page):
    named = FILE.findall(page.read_text(encoding="utf-8"))
    there = [f"/{path.relative_to(REPOSITORY)}" for path in FILES]
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in there)] == []


def test_the_drawn_journeys_pass_files_that_are_there_and_the_picture_is_up_to_date():
    drawing = runpy.run_path(str(REPOSITORY / "tools/architecture.py"))
    for _, _, files, _ in drawing["JOURNEYS"]:
        for file in files.split():
            path = REPOSITORY / "src/omnigraph" / file
            assert path.is_dir() or path.with_suffix(".py").exists(), file
    assert drawing["PICTURE"].read_text(encoding="utf-8") == drawing["picture"]()
