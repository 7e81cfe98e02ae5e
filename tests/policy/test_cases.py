"""`policy validate|test|explain`, from the command line."""

from __future__ import annotations

import json

import pytest

from omnigraph.cli.main import entry

POLICY = """
version: 1
groups: {team: [act-a], admins: [act-root]}
protected_branches: [main]
rules:
  - {id: read, allow: {actors: {group: team}, actions: [read]}}
  - {id: write, allow: {actors: {group: team}, actions: [change], branch_scope: unprotected}}
"""


TWIN = "{id: c, actor: a, action: read, expect: deny}"


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def cases(tmp_path, text):
    path = tmp_path / "tests.yaml"
    path.write_text(text)
    return path


def test_a_good_policy_is_counted(policy, capsys):
    assert entry(["policy", "validate", "--file", str(policy), "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["ok"], body["actors"], body["rules"]) == (True, 2, 2)


def test_a_bad_one_is_exit_1_and_names_the_rule(tmp_path, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text(POLICY.replace("[change]", "[chnage]"))
    assert entry(["policy", "validate", "--file", str(path)]) == 1
    told = capsys.readouterr().err
    assert "bad.yaml" in told
    assert "rule 'write'" in told


def test_a_file_must_be_named(capsys):
    assert entry(["policy", "validate"]) == 2
    assert "--file" in capsys.readouterr().err


def test_cases_that_hold_are_exit_0_and_one_that_does_not_is_exit_1(tmp_path, policy, capsys):
    good = "{id: c1, actor: act-a, action: change, branch: main, expect: deny}"
    bad = "{id: c2, actor: act-root, action: read, branch: main, expect: allow}"
    words = ["policy", "test", "--file", str(policy), "--tests"]
    path = cases(tmp_path, f"version: 1\ncases: [{good}]")
    assert entry([*words, str(path)]) == 0
    path = cases(tmp_path, f"version: 1\ncases: [{good}, {bad}]")
    assert entry([*words, str(path)]) == 1
    assert "FAIL c2: expected allow: policy denied action 'read'" in capsys.readouterr().out
    assert entry([*words, str(path), "--json"]) == 1
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["failures"]] == ["c2"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("version: 2\ncases: []", "version: it must be 1"),
        ("version: 1\ncases: [{id: '', actor: a, action: read, expect: deny}]", "its id is blank"),
        ("version: 1\ncases: [{id: c, actor: ' ', action: read, expect: deny}]", "actor is blank"),
        ("version: 1\ncases: [{id: c, actor: a, action: rd, expect: deny}]", "unknown action 'rd'"),
        ("version: 1\ncases: [{id: c, actor: a, action: read, expect: no}]", "case 'c'"),
        (
            f"version: 1\ncases: [{TWIN}, {TWIN}]",
            "another case has the same id",
        ),
    ],
)
def test_bad_files_of_cases_are_refused(tmp_path, policy, capsys, text, told):
    path = cases(tmp_path, text)
    assert entry(["policy", "test", "--file", str(policy), "--tests", str(path)]) == 1
    message = capsys.readouterr().err
    assert told in message
    assert "tests.yaml" in message


def test_a_decision_is_explained_and_a_denial_is_no_failure(policy, capsys):
    words = ["policy", "explain", "--file", str(policy), "--actor", "act-a", "--action", "change"]
    assert entry([*words, "--branch", "topic", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["decision"], body["matched_rule"]) == ("allow", "write")
    assert entry([*words, "--branch", "main"]) == 0
    assert "decision: deny" in capsys.readouterr().out
    assert entry([*words[:-1], "chnage"]) == 1
