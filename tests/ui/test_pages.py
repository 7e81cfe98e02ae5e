"""Every page of the console, by what somebody sees and does there."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
import teams

pytestmark = pytest.mark.xdist_group("console")

READ = """query old($least: I32 = 30) {
  match { $p: Person  $p.age >= $least  $p knows $f }
  return { $p, $p.name, $p.age, $f }
}
"""
COUNT = "query n() { match { $p: Person } return { count($p) as n } }"
ADA = quote('["Person:Ada"]')
PLACES = {
    "query": f"query?q={quote(READ)}&ran=1",
    "graph": f"query?q={quote(READ)}&ran=1&view=graph",
    "json": f"query?q={quote(READ)}&ran=1&view=json",
    "explain": f"query?q={quote(READ)}&ran=1&view=explain",
    "schema": "schema",
    "types": "schema?view=list",
    "schema text": "schema?view=text",
    "explore": f"explore?find=a&focus=Person:Ada&open={ADA}",
    "versions": f"explore?focus=Person:Ada&side=versions&open={ADA}",
    "blame": f"explore?focus=Person:Ada&side=blame&open={ADA}",
    "history": "history?commit=v1",
    "compare": "compare?source=reorg&change=node:Person:Bo",
    "entities": "compare?source=reorg&view=list&type=node:Person",
    "conflicts": "compare?source=rename",
    "states": "compare?from=v1&to=main",
    "stored": "stored?query=of_role",
    "health": "health",
}
# What is to be seen at the places.
SEEN = {
    "query": "Knows|Eve",
    "explain": "expand",
    "schema": "WorksOn",
    "types": "Somebody who works here",
    "schema text": "node Project",
    "explore": "WorksOn",
    "versions": "A year older",
    "blame": "age",
    "history": "Welcome, Mia",
    "compare": "role: engineer → lead",
    "entities": "Nia",
    "conflicts": "both sides changed it",
    "states": "Mia",
    "stored": "may be empty",
    "health": "Cleanup frees",
}


def shown(page):
    return page.inner_text("main")


# The rest is asked by `make test-all`: a browser without a graphics card takes its time.
SOON = ("query", "schema", "explore", "history", "compare", "conflicts", "health")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in SOON else pytest.mark.slow) for one in PLACES]
)
def test_every_place_has_an_address_that_brings_it_back(console, name):
    page = console.visit(PLACES[name])
    if name in SEEN:
        page.wait_for_function(
            "words => new RegExp(words).test(document.querySelector('main').textContent)",
            arg=SEEN[name],
        )
    console.settled()
    before, address = shown(page), page.url
    page.reload()
    page.wait_for_function("size => document.querySelector('main').innerText.length >= size * 0.9",
                           arg=len(before))  # fmt: skip
    assert page.url == address
    assert page.locator(".problem").count() == 0, page.locator(".problem").all_inner_texts()


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened, served, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    console = opened(served, color_scheme=theme)
    found = {}
    for name, place in PLACES.items():
        page = console.visit(place)
        console.settled()
        told = axe.Axe().run(page).response
        assert told["passes"], name
        for violation in told["violations"]:
            if violation["impact"] in ("serious", "critical"):
                nodes = [
                    (node["html"][:160], node["failureSummary"]) for node in violation["nodes"]
                ]
                found[name, violation["id"]] = nodes[:3]
    assert found == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["query", "explore", "history", "compare", "conflicts", "schema"])
def test_nothing_is_wider_than_a_telephone(opened, served, name):
    console = opened(served, viewport={"width": 400, "height": 800})
    page = console.visit(PLACES[name])
    console.settled()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_no_request_leaves_the_origin_and_the_page_is_soon_there(console):
    for name in ("query", "graph", "explore", "compare"):
        console.visit(PLACES[name])
        page = console.settled()
    assert console.requests
    own = ("about:", "data:", console.served.url + "/")
    assert [url for url in console.requests if not url.startswith(own)] == []
    assert page.evaluate("performance.getEntriesByName('first-contentful-paint').length") == 1


BOXES = """() => Object.fromEntries(
  ['header', '.brand', 'header select', 'nav.pages', 'nav.pages a:last-child', 'main'].map(name => {
    const { x, y, width, height } = document.querySelector(name).getBoundingClientRect();
    return [name, [x, y, width, height].map(Math.round)];
  }).concat([['pages', document.querySelector('nav.pages').innerText.split(/\\s*\\n\\s*/)]]))"""


@pytest.mark.parametrize("wide", [1280, 400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_frame_is_painted_before_any_script_and_stays_where_it_is(opened, served, wide, theme):
    console = opened(served, viewport={"width": wide, "height": 800}, color_scheme=theme)
    page = console.page
    page.route(re.compile(r"/ui/(index|main)\.js"), lambda route: route.abort())
    console.visit("schema")
    painted = "() => performance.getEntriesByName('first-contentful-paint').length === 1"
    page.wait_for_function(painted)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 29)"}[theme]
    before = page.evaluate(BOXES)
    page.unroute_all()
    console.visit("schema")
    page.locator("nav.pages [aria-current]").wait_for()
    console.settled()
    assert page.evaluate(BOXES) == before
    console.problems.clear()  # of the files that were held back


def test_what_draws_is_fetched_by_the_pages_that_need_it(console):
    console.visit("history")
    console.settled()
    assert not any(url.endswith("/canvas.js") for url in console.requests)
    page = console.visit(PLACES["graph"])
    page.locator(".canvas-drawing[data-layout=done]").wait_for()
    assert any(url.endswith("/canvas.js") for url in console.requests)


# --- query ----------------------------------------------------------------------------------------


def test_a_query_runs_on_a_branch_and_at_a_commit(console):
    for state, people in (("", "13"), ("branch=reorg", "14"), ("at=v1", "12")):
        page = console.visit(f"query?q={quote(COUNT)}&{state}")
        page.get_by_role("button", name="Run").click()
        page.get_by_role("cell", name=people, exact=True).wait_for()


def test_the_state_is_chosen_by_the_keyboard(console):
    page = console.visit(f"query?q={quote(READ)}&ran=1")
    page.get_by_role("table", name="Rows").wait_for()
    page.get_by_label("Branch").select_option("reorg")
    page.wait_for_url(re.compile("branch=reorg"))
    page.get_by_label("at", exact=True).fill("v1")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("at=v1"))
    page.get_by_role("button", name="Back to now").press("Enter")
    page.wait_for_function("() => !location.hash.includes('at=v1')")


def test_a_moment_is_one_of_the_branch(console):
    """The branch had its first commit of its own after main's last: before that it is as made."""
    page = console.visit("query?branch=reorg&q=" + quote(COUNT))
    page.get_by_label("at", exact=True).fill("2999-01-01")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("at=[0-9A-Z]{26}"))
    page.get_by_role("button", name="Run").click()
    page.get_by_role("cell", name="14", exact=True).wait_for()
    page.get_by_label("at", exact=True).fill("1999-01-01 12:00")
    page.keyboard.press("Enter")
    page.get_by_text("reorg has no commit as old as 1999-01-01 12:00").wait_for()


def test_a_problem_is_underlined_at_its_place(console):
    page = console.visit(
        "query?q=" + quote("query q() {\n  match { $p: Persn }\n  return { $p }\n}")
    )
    mark = page.locator(".cm-lintRange-error").first
    mark.wait_for()
    assert mark.inner_text() == "Persn"
    mark.hover()
    page.get_by_text("did you mean `Person`?").wait_for()


def test_completion_knows_the_schema(console):
    page = console.visit("query?q=" + quote("query q() { match { $p: Person } return { } }"))
    editor = page.locator(".cm-content")
    editor.click()
    page.keyboard.press("Control+End")
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    page.keyboard.type("$p.")
    page.locator(".cm-tooltip-autocomplete").get_by_text("joined").wait_for()


def test_parameters_are_a_form_and_control_enter_runs(console):
    page = console.visit(f"query?q={quote(READ)}")
    page.get_by_label("$least").fill("50")
    page.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    page.get_by_role("cell", name="Finn", exact=True).first.wait_for()
    assert page.get_by_text("2 rows").is_visible()
    assert "50" in page.url


def test_values_are_text_and_whole_numbers_are_exact(console):
    source = "query q($t: String) { match { $p: Project } return { $p.budget, $t as t } limit 1 }"
    page = console.visit(f"query?q={quote(source)}")
    page.get_by_label("$t").fill(teams.SCRIPT)
    page.get_by_role("button", name="Run").click()
    page.get_by_role("cell", name=str(teams.BIG), exact=True).wait_for()
    assert page.get_by_role("cell", name=teams.SCRIPT, exact=True).is_visible()
    for view in ("JSON", "Explain", "Table"):
        page.get_by_role("tab", name=view).click()
        console.settled()
    assert "owned" not in page.title()
    assert page.locator("main img, main script").count() == 0


def test_a_result_is_drawn(console):
    page = console.visit(PLACES["graph"])
    page.locator(".canvas-drawing[data-layout=done]").wait_for()
    drawing = page.locator(".canvas-drawing")
    assert int(drawing.get_attribute("data-nodes")) == 13
    assert int(drawing.get_attribute("data-edges")) == 25


def test_a_long_result_keeps_few_rows_in_the_page(console):
    source = "query q() { match { $a: Person  $b: Person  $c: Person } return { $a, $b, $c } }"
    page = console.visit(f"query?q={quote(source)}&ran=1")
    table = page.get_by_role("table", name="Rows")
    table.wait_for()
    assert table.get_attribute("aria-rowcount") == str(13**3 + 1)
    assert page.get_by_role("row").count() < 80
    table.evaluate("box => box.scrollTop = box.scrollHeight")
    page.locator(f"[aria-rowindex='{13**3 + 1}']").wait_for()


def test_tabs_are_moved_through_with_arrows(console):
    page = console.visit(PLACES["query"])
    tab = page.get_by_role("tab", name="Table")
    tab.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="JSON").get_attribute("aria-selected") == "true"
    assert "view=json" in page.url


# --- explore, history -----------------------------------------------------------------------------


def test_a_node_is_found_and_expanded(console):
    page = console.visit("explore?type=Person")
    page.get_by_role("searchbox").fill("han")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Hana Person").click()
    page.locator(".canvas-drawing").wait_for()
    first = int(page.locator(".canvas-drawing").get_attribute("data-edges"))
    page.get_by_label("Entity", exact=True).get_by_role("button", name="Delta").click()
    page.get_by_role("button", name="Expand", exact=True).click()
    page.wait_for_function(
        "n => Number(document.querySelector('.canvas-drawing').dataset.edges) > n", arg=first
    )
    assert "Project" in page.url


def test_an_edge_has_a_page_of_its_own(console):
    page = console.visit("explore?focus=Project:Ember&branch=reorg")
    page.get_by_role("button", name="← WorksOn").click()
    side = page.get_by_label("Entity", exact=True)
    side.get_by_role("row", name=re.compile("^share")).wait_for()
    assert side.get_by_role("row", name=re.compile("^from")).inner_text().split() == ["from", "Nia"]
    side.get_by_role("tab", name="History").click()
    side.get_by_text("Nia leads Ember").wait_for()
    assert "edge=WorksOn" in page.url


def test_lanes_show_both_merges_and_the_names_of_commits(console):
    page = console.visit("history")
    page.get_by_text("Welcome, Mia").wait_for()
    merges = page.locator(".lanes circle[r='5.5']")
    assert merges.count() == 2
    names = page.locator(".commit .badge").all_inner_texts()
    assert {"main", "reorg", "rename", "⚑ v1"} <= set(names)
    # Every line goes on: a lane that leaves one row enters the next.
    ends = page.eval_on_selector_all(
        ".lanes", "rows => rows.map(row => row.querySelectorAll('path').length)"
    )
    assert all(ends)


@pytest.mark.slow
def test_older_commits_are_brought_by_a_button(opened, browser, tmp_path):
    from serving import serving

    from omnigraph import Graph

    with Graph.init(
        tmp_path / "long.omni", "node N { k: String @key }", durability="process"
    ) as graph:
        for at in range(205):
            teams.change(graph, "main", f'insert N {{ k: "n{at}" }}', f"number {at}", "ada")
    with serving([tmp_path / "long.omni"], folder=tmp_path) as served:
        console = opened(served, "long")
        page = console.visit("history")
        page.get_by_text("200 commits, the newest 200 of each branch").wait_for()
        page.get_by_role("button", name="Older commits").click()
        page.wait_for_function("() => !document.querySelector('.foot button')")
        assert "pages=2" in page.url
        page.get_by_role("list", name="Commits").evaluate("box => box.scrollTop = 1e6")
        page.get_by_text("The graph is made").wait_for()
        assert console.problems == []


def test_a_commit_tells_what_it_changed(console):
    page = console.visit("history")
    page.get_by_role("link", name=re.compile("A year older")).click()
    details = page.get_by_label("Commit", exact=True)
    details.get_by_text("4 changes").wait_for()
    details.get_by_role("button", name="changed Person Finn").click()
    row = details.get_by_role("row", name=re.compile("^age"))
    assert row.inner_text().split() == ["age", "52", "53"]
    details.get_by_role("link", name="Draw the change").click()
    page.locator(".spot.update").first.wait_for()
    assert page.locator(".spot.update").count() == 4


def test_a_stored_query_is_a_form(console):
    page = console.visit("stored")
    page.get_by_role("link", name="of_role").click()
    page.get_by_label("$role").select_option("lead")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("cell", name="Finn", exact=True).first.wait_for()


# --- who may what ---------------------------------------------------------------------------------

POLICY = """
version: 1
groups: { team: [act-ada] }
rules:
  - id: read
    allow: { actors: { group: team }, actions: [read] }
"""


@pytest.fixture(scope="module")
def guarded(browser, folder):
    from serving import serving

    (folder / "policy.yaml").write_text(POLICY)
    tokens = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"act-ada": "secret-of-ada"}'}
    with serving(
        [folder / "teams.omni"],
        *("--policy", str(folder / "policy.yaml")),
        folder=folder,
        env=tokens,
    ) as found:
        yield found


def test_who_may_not_sees_why_and_the_token_stays_in_the_tab(opened, guarded):
    console = opened(guarded)
    page = console.visit("compare?source=reorg")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("does not know this token").wait_for()
    page.get_by_label("Token").fill("secret-of-ada")
    page.get_by_role("button", name="Sign in").click()
    merge = page.get_by_role("button", name="Merge into main")
    merge.and_(page.locator(":disabled")).wait_for()
    reason = page.locator(f"[id='{merge.get_attribute('aria-describedby')}']").inner_text()
    assert "branch_merge" in reason
    change = "query c() { delete Person where name = $n }".replace("$n", '"Ada"')
    page = console.visit(f"query?q={quote(change)}")
    button = page.get_by_role("button", name="Change main")
    button.wait_for()
    page.wait_for_function("() => document.querySelector('.denied button')?.disabled")
    assert "secret" not in page.url
    assert "secret" not in page.evaluate("JSON.stringify({...localStorage})")
    assert "secret" in page.evaluate("JSON.stringify({...sessionStorage})")
    assert all("secret" not in url for url in console.requests)
