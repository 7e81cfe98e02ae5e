"""Takes the pictures of the console's guide, from a graph that is made for it.

python tools/tour.py            rewrite docs/guide/console-*.png (needs Chromium and playwright)
python tools/tour.py FOLDER     every page, light and dark, 1280 and 400 wide, into a folder
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests/ui"), str(ROOT / "tests/server")]

import teams  # noqa: E402 - helpers of the tests
from browsing import ARGUMENTS, CHROMIUM, Console  # noqa: E402
from playwright.sync_api import Browser, sync_playwright  # noqa: E402
from serving import Served, serving  # noqa: E402

READ = """query colleagues($least: I32 = 30) {
  match {
    $p: Person
    $p.age >= $least
    $p knows $f
  }
  return { $p, $p.name, $p.role, $p.age, $f, $f.name as friend }
  order { $p.name }
}
"""
OPEN = quote('["Person:Ada","Project:Atlas"]')
PLACES = {
    "query": f"query?q={quote(READ)}&ran=1",
    "graph": f"query?q={quote(READ)}&ran=1&view=graph",
    "schema": "schema",
    "explore": f"explore?find=a&focus=Person:Ada&side=versions&open={OPEN}",
    "history": "history?commit=main",
    "compare": "compare?source=reorg&change=node:Person:Bo",
    "conflicts": "compare?source=rename&take=" + quote('{"node:Person:Hana":"theirs"}'),
    "stored": "stored?query=of_role",
    "health": "health",
}
SHOWN = ("query", "schema", "history", "compare", "conflicts")
SETTLED_MS = 300  # what still moves


def take(
    browser: Browser, served: Served, folder: Path, names: tuple[str, ...], *, theme: str, wide: int
) -> None:
    """A picture of each place."""
    context = browser.new_context(viewport={"width": wide, "height": 760}, color_scheme=theme)
    console = Console(context.new_page(), served, "teams")
    for name in names:
        console.visit(PLACES[name])
        page = console.settled()
        page.wait_for_timeout(SETTLED_MS)
        page.screenshot(
            path=str(folder / f"console-{name}{'' if wide == 1160 else f'-{theme}-{wide}'}.png")
        )
    context.close()


def main() -> int:
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        place = Path(made)
        teams.make(place / "teams.omni")
        (place / "queries.gq").write_text(teams.QUERIES)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        options = ("--queries", str(place / "queries.gq"))
        with serving([place / "teams.omni"], *options, folder=place) as served:
            if len(sys.argv) == 1:
                take(browser, served, ROOT / "docs/guide", SHOWN, theme="light", wide=1160)
            else:
                folder = Path(sys.argv[1])
                folder.mkdir(parents=True, exist_ok=True)
                for theme in ("light", "dark"):
                    for wide in (1280, 400):
                        take(browser, served, folder, tuple(PLACES), theme=theme, wide=wide)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
