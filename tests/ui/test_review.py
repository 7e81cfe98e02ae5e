"""A review from beginning to end, by clicking: branch, change, compare, settle, merge."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.xdist_group("console")


def written(page, text):
    """Type a text into the editor instead of what is there."""
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def changed(page, text, branch, message):
    """Run a mutation from the page of queries."""
    page.get_by_role("link", name="Query", exact=True).click()
    page.get_by_label("Branch").select_option(branch)
    written(page, "query change() {\n" + text + "\n}\n")
    button = page.get_by_role("button", name=f"Change {branch}")
    button.wait_for()
    page.get_by_label("Message").fill(message)
    button.click()
    page.get_by_text(re.compile(rf"Changed \d+ nodes? and .* on {branch}")).wait_for()


def test_a_review_by_clicking(console):
    page = console.visit("query")
    page.get_by_role("button", name="New branch").click()
    page.get_by_role("textbox", name="Name").fill("review")
    page.get_by_role("button", name="Make it").click()
    page.wait_for_url(re.compile("branch=review"))

    older = 'update Person set { age: 40 } where name = "Kai"'
    lead = 'update Person set { role: "lead" } where name = "Lena"'
    new = 'insert Person { name: "Zoe", age: 30 } insert Knows { from: "Zoe", to: "Kai" }'
    changed(page, f"{older} {lead} {new}", "review", "What the review says")
    older = 'update Person set { age: 41 } where name = "Kai"'
    lead = 'update Person set { role: "designer" } where name = "Lena"'
    changed(page, f"{older} {lead}", "main", "What main says")

    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_label("Bring").select_option("review")
    merge = page.get_by_role("button", name="Merge into main")
    page.get_by_text("2 conflicts open").wait_for()
    assert merge.is_disabled()
    page.get_by_role("tab", name="Drawing").click()
    page.locator(".spot.insert").wait_for()
    assert page.locator(".spot.insert").count() == 1
    assert page.locator(".spot.update .dispute").count() == 2
    assert page.locator(".line.insert").count() == 1
    page.get_by_role("button", name="changed Person Kai, in conflict").press("Enter")
    page.get_by_role("row", name=re.compile("^age")).first.wait_for()

    page.get_by_role("tab", name=re.compile("Conflicts")).click()
    kai = page.get_by_role("group", name=re.compile("Person Kai"))
    lena = page.get_by_role("group", name=re.compile("Person Lena"))
    assert kai.get_by_role("row", name=re.compile("^age")).inner_text().split() == [
        *("age", "25", "41", "40"),
    ]
    kai.get_by_label("Keep main's").check()
    page.get_by_text("1 conflict open").wait_for()
    lena.get_by_label("Take review's").check()
    page.get_by_text(re.compile("Ready: .*Person")).wait_for()
    page.get_by_label("Message").fill("Reviewed")
    page.get_by_label("delete review after").check()
    merge.click()
    page.get_by_text("Merged review into main.").wait_for()
    page.get_by_text("The branch is deleted.").wait_for()

    page.get_by_role("link", name="See it in the history").click()
    page.get_by_role("heading", name="Reviewed").wait_for()
    details = page.get_by_label("Commit", exact=True)
    details.get_by_text("3 changes").wait_for()
    assert "Lena" in details.inner_text()
    # The commits of a branch that is deleted are no longer part of the history.
    page.get_by_role("link", name=re.compile("What main says")).first.wait_for()
    people = console.served.post(
        "/graphs/teams/query",
        {"query": "query q() { match { $p: Person } return { $p.name, $p.age, $p.role } }"},
    ).json["rows"]
    found = {row["p.name"]: (row["p.age"], row["p.role"]) for row in people}
    assert found["Kai"] == (41, "designer")
    assert found["Lena"] == (34, "lead")
    assert found["Zoe"] == (30, None)


def test_a_review_of_branches_with_two_schemas(opened, served):
    console = opened(served, "two")
    page = console.visit("compare?source=wider")
    page.get_by_text("2 conflicts open").wait_for()
    page.get_by_role("tab", name="Schema").click()
    page.locator(".schema-diff .insert").get_by_text("nick: String?").wait_for()
    page.get_by_role("tab", name=re.compile("Conflicts")).click()
    bo = page.get_by_role("group", name=re.compile("Person Bo"))
    bo.get_by_label("By property").check()
    bo.get_by_label("Take age from").select_option("own")
    bo.get_by_label("Value of age").fill("62")
    bo.get_by_label("Value of age").press("Tab")
    dev = page.get_by_role("group", name=re.compile("Person Dev"))
    dev.get_by_label("Take wider's").check()
    page.get_by_text(re.compile("^Ready")).wait_for()
    page.reload()
    page.get_by_role("button", name="Merge into main").click()
    page.get_by_text("Merged wider into main.").wait_for()
    page.get_by_role("link", name="See it in the history").click()
    page.get_by_role("heading", name="Merge wider").wait_for()
    rows = served.post(
        "/graphs/two/query",
        {"query": "query q() { match { $p: Person } return { $p.* } }"},
    ).json["rows"]
    found = {row["p.name"]: row for row in rows}
    assert found["Bo"]["p.age"] == 62
    assert found["Dev"]["p.role"] == "lead"
    assert found["Ada"]["p.nick"] == "Countess"
    assert console.problems == []
