"""A browser, and one server for the tests of a module."""

from __future__ import annotations

import pytest
import teams
from browsing import ARGUMENTS, CHROMIUM, Console
from serving import serving


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("console")
    teams.make(found / "teams.omni")
    teams.make_two_schemas(found / "two.omni")
    (found / "queries.gq").write_text(teams.QUERIES)
    return found


@pytest.fixture(scope="module")
def served(browser, folder):
    graphs = [folder / "teams.omni", folder / "two.omni"]
    with serving(graphs, "--queries", str(folder / "queries.gq"), folder=folder) as found:
        yield found


@pytest.fixture
def opened(browser):
    """A way to open a page of a browser that knows nothing yet."""
    contexts = []

    def made(served, graph="teams", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        return Console(context.new_page(), served, graph)

    yield made
    for context in contexts:
        context.close()


@pytest.fixture
def console(opened, served):
    found = opened(served)
    yield found
    assert found.problems == []
