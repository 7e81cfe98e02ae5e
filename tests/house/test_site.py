"""The built web site reads as the pages mean it: code is code, links lead on, nothing is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
OPENING = re.compile(r"^ *```[\w-]+.*$", re.MULTILINE)


class Page(HTMLParser):
    """What a browser would find in one page: its text outside code, blocks, names and links."""

    def __init__(self) -> None:
        super().__init__()
        self.prose: list[str] = []
        self.blocks: list[str] = []
        self.languages: list[str] = []
        self.names: set[str] = set()
        self.links: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag, attributes):
        facts = dict(attributes)
        self.names.add(facts.get("id") or "")
        self.links += [facts[key] for key in ("href", "src") if facts.get(key)]
        self.languages += re.findall(r"language-(\w+)", facts.get("class") or "")
        if tag in ("pre", "script", "style"):
            self._inside.append(tag)
            if tag == "pre":
                self.blocks.append("")

    def handle_endtag(self, tag):
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data):
        if not self._inside:
            self.prose.append(data)
        elif self._inside[-1] == "pre":
            self.blocks[-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> dict[Path, Page]:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(folder)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {}
    for file in folder.rglob("*.html"):
        page = pages[file] = Page()
        page.feed(file.read_text(encoding="utf-8"))
    return pages


@pytest.fixture(scope="module")
def built_from(site) -> dict[str, Page]:
    """The pages by the Markdown file they were made from."""
    top = min(site, key=lambda file: len(file.parts)).parent
    found = {}
    for source in DOCS.rglob("*.md"):
        place = source.relative_to(DOCS)
        folder = place.parent if place.name == "index.md" else place.with_suffix("")
        found[str(place)] = site[top / folder / "index.html"]
    return found


def test_every_fence_is_a_block_of_its_own_and_none_is_shown_as_text(built_from):
    for name, page in built_from.items():
        assert "```" not in "".join(page.prose), name
        opened = len(OPENING.findall((DOCS / name).read_text(encoding="utf-8")))
        assert len(page.blocks) >= opened, name


def test_code_keeps_its_lines(built_from):
    for name, page in built_from.items():
        wanted = re.findall(
            r"^```[\w-]+[^\n]*\n(.*?)^```$",
            (DOCS / name).read_text(encoding="utf-8"),
            re.DOTALL | re.MULTILINE,
        )
        shown = {block.strip("\n") for block in page.blocks}
        assert [text for text in wanted if text.strip("\n") not in shown] == [], name


def test_both_languages_are_highlighted(built_from):
    assert "gq" in built_from["reference/query-language.md"].languages
    assert "pg" in built_from["reference/schema-language.md"].languages


def test_the_navigation_has_every_page_in_the_order_of_the_index(built_from):
    home = built_from["index.md"].links
    places = []
    for name in re.findall(r"\(([\w/.-]+)\.md\)", (DOCS / "index.md").read_text(encoding="utf-8")):
        assert f"{name}/" in home, name
        places.append(home.index(f"{name}/"))
    first = list(dict.fromkeys(places))
    assert first == sorted(first)


def test_every_internal_link_leads_to_a_page_and_a_place_on_it(site):
    lost = []
    for file, page in site.items():
        if file.name == "404.html":
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            named = site[target].names if target in site else {unquote(parts.fragment)}
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in named):
                lost.append((str(file), link))
    assert lost == []


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.values():
        assert not [
            link for link in page.links if re.search(r"https?://.*\.(js|css|woff2?)$", link)
        ]
