"""Everything that can be wrong with a policy file is said with the file and the rule."""

from __future__ import annotations

import pytest

from omnigraph.errors import InputError, NotFoundError
from omnigraph.policy.document import parse_policy, read_policy
from omnigraph.policy.engine import Policy

GROUPS = "version: 1\ngroups: {team: [act-a]}\nprotected_branches: [main]\n"


def rule(allow: str, *, name: str = "r1") -> str:
    return f"{GROUPS}rules: [{{id: {name}, allow: {{{allow}}}}}]\n"


TEAM = "actors: {group: team}"
WRONG = {
    "another version": ("version: 2\n", "version: it must be 1"),
    "no version": ("groups: {}\n", "version: it must be 1"),
    "a version that is true": ("version: true\n", "version: it must be 1"),
    "a list": ("[]\n", "the file: it must be a mapping"),
    "a field of its own": ("version: 1\nroles: []\n", "the file: unknown field 'roles'"),
    "a blank group": ("version: 1\ngroups: {' ': [a]}\n", "groups: a group has a blank name"),
    "an empty group": ("version: 1\ngroups: {team: []}\n", "group 'team': it has no actors"),
    "a blank actor": ("version: 1\ngroups: {team: [' ']}\n", "group 'team': an actor has a blank"),
    "a group of numbers": ("version: 1\ngroups: {team: [1]}\n", "groups: "),
    "a blank branch": ("version: 1\nprotected_branches: ['']\n", "protected_branches: a branch"),
    "a group twice": ("version: 1\ngroups: {a: [x], a: [y]}\n", "the key 'a' comes twice"),
    "no YAML": ("version: [\n", "is not valid YAML"),
    "a rule without id": (f"{GROUPS}rules: [{{allow: {{{TEAM}, actions: [read]}}}}]", "rule 1: "),
    "a blank id": (rule(f"{TEAM}, actions: [read]", name="' '"), "rule 1: its id is blank"),
    "an unknown field of a rule": (
        f"{GROUPS}rules: [{{id: r, deny: {{}}, allow: {{{TEAM}, actions: [read]}}}}]",
        "rule 'r': ",
    ),
    "an unknown field of allow": (rule(f"{TEAM}, actions: [read], types: []"), "rule 'r1': "),
    "an unknown field of actors": (
        rule("actors: {group: team, ids: []}, actions: [read]"),
        "rule 'r1': ",
    ),
    "no actions": (rule(f"{TEAM}, actions: []"), "rule 'r1': it has no actions"),
    "an unknown action": (rule(f"{TEAM}, actions: [write]"), "rule 'r1': unknown action 'write'"),
    "a blank group of a rule": (
        rule("actors: {group: ''}, actions: [read]"),
        "rule 'r1': its group is blank",
    ),
    "an unknown group": (
        rule("actors: {group: others}, actions: [read]"),
        "rule 'r1': there is no group 'others'",
    ),
    "both scopes": (
        rule(f"{TEAM}, actions: [read], branch_scope: any, target_branch_scope: any"),
        "rule 'r1': it has branch_scope and target_branch_scope",
    ),
    "an unknown scope": (rule(f"{TEAM}, actions: [read], branch_scope: some"), "rule 'r1': "),
    "branch_scope of a merge": (
        rule(f"{TEAM}, actions: [branch_merge], branch_scope: any"),
        "rule 'r1': 'branch_merge' takes no branch_scope",
    ),
    "target_branch_scope of a read": (
        rule(f"{TEAM}, actions: [branch_merge, read], target_branch_scope: any"),
        "rule 'r1': 'read' takes no target_branch_scope",
    ),
    "a scope of admin": (
        rule(f"{TEAM}, actions: [admin], branch_scope: any"),
        "rule 'r1': 'admin' takes no branch_scope",
    ),
    "a scope of invoke_query": (
        rule(f"{TEAM}, actions: [invoke_query], target_branch_scope: any"),
        "rule 'r1': 'invoke_query' takes no target_branch_scope",
    ),
    "graph_list among graph actions": (
        rule(f"{TEAM}, actions: [read, graph_list]"),
        "rule 'r1': 'graph_list' is about the server and 'read' about a graph",
    ),
    "graph_list in a graph's file": (
        rule(f"{TEAM}, actions: [graph_list]"),
        "rule 'r1': 'graph_list' is about the server: move the rule to the server's policy file",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_by_name_and_place(case):
    text, told = WRONG[case]
    with pytest.raises(InputError) as caught:
        parse_policy(text, path="team.yaml")
    assert "'team.yaml'" in caught.value.message
    assert told in caught.value.message


def test_two_rules_of_one_id_are_refused():
    one = f"{{id: r, allow: {{{TEAM}, actions: [read]}}}}"
    with pytest.raises(InputError, match="rule 'r': another rule has the same id"):
        parse_policy(f"{GROUPS}rules: [{one}, {one}]", path="p.yaml")


def test_a_servers_file_knows_the_servers_actions_only():
    listing = rule(f"{TEAM}, actions: [graph_list]")
    assert parse_policy(listing, path="p.yaml", kind="server").actors == {"act-a"}
    with pytest.raises(InputError, match="move the rule to the graph's policy file"):
        parse_policy(rule(f"{TEAM}, actions: [read]"), path="p.yaml", kind="server")
    text = rule(f"{TEAM}, actions: [graph_list], branch_scope: any")
    with pytest.raises(InputError, match="takes no branch_scope"):
        parse_policy(text, path="p.yaml", kind="server")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NotFoundError, match=r"there is no policy file '.*none.yaml'"):
        read_policy(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "name", ['a"b', "back\\slash", "new\nline", "o'neil", "e\u0301", "\x01\t\0", "ünïcode ☃", "a:b"]
)
def test_any_text_is_a_name(name):
    import json

    from omnigraph.model.access import Access

    text = json.dumps(
        {
            "version": 1,
            "groups": {name: [name]},
            "rules": [{"id": name, "allow": {"actors": {"group": name}, "actions": ["read"]}}],
        }
    )
    found = Policy(parse_policy(text, path="p"), graph_id=name)
    assert found.decide(name, Access("read", name)).matched_rule_id == name
    assert not found.decide("other", Access("read", name)).allowed
