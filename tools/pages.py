"""What the documents need to become a web site: a hook of mkdocs, named in `mkdocs.yml`.

The pages are written to be read as plain Markdown too. So the order of the navigation is that of
`docs/index.md`, and what stands behind the language of a fence (`gq T1`, `text file=words.gq`: it
tells tests what to do) is taken away or turned into a title here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^(?P<lead> *)(?P<ticks>`{3,})(?P<language>[\w-]+)(?: (?P<words>[^`\n]+))?$")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+\.md)\)")
# What a browser would show as text; the lexers of Pygments call these otherwise.
LANGUAGES = {"sh": "bash", "shell": "bash"}


def on_config(config: Any) -> Any:
    """Take the navigation from the index."""
    config["nav"] = navigation((Path(config["docs_dir"]) / "index.md").read_text(encoding="utf-8"))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fences as the site's Markdown knows them."""
    return fences(markdown)


def navigation(index: str) -> list[Any]:
    """The sections of the index with the pages they link, each page once, in their order."""
    sections: list[Any] = [{"Home": "index.md"}]
    seen: set[str] = set()
    for part in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        pages = [{name: page} for name, page in LINK.findall(body) if page not in seen]
        seen.update(page for entry in pages for page in entry.values())
        if pages:
            sections.append({title.strip(): pages})
    return sections


def fences(markdown: str) -> str:
    """Every opening fence with the language that highlights it, and nothing else but a title."""
    lines, inside = [], ""
    for line in markdown.split("\n"):
        found = FENCE.match(line) if not inside else None
        if found is not None:
            inside = found["ticks"]
            lines.append(found["lead"] + inside + _opening(found["language"], found["words"] or ""))
            continue
        if inside and line.strip() == inside:
            inside = ""
        elif not inside and line.strip().startswith("```"):
            inside = "```"
        lines.append(line)
    return "\n".join(lines)


def _opening(language: str, words: str) -> str:
    language = LANGUAGES.get(language, language)
    file = re.search(r"\bfile=(\S+)", words)
    if file is None:
        return language
    kind = Path(file[1]).suffix.removeprefix(".")
    shown = {"jsonl": "json", "py": "python"}.get(kind, kind) or language
    return f'{shown} title="{file[1]}"'
