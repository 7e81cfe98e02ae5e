"""How a policy decides, against the plain meaning of its rules."""

from __future__ import annotations

import pickle
from itertools import product

import pytest

from omnigraph.model.access import ACTIONS, BRANCH_ACTIONS, SERVER_ACTIONS, TARGET_ACTIONS, Access
from omnigraph.policy.document import parse_policy
from omnigraph.policy.engine import Policy

BRANCHES = {"protected": "main", "unprotected": "feature", "none": None}


def policy_with(action: str, scope: str | None) -> Policy:
    word = "branch_scope" if action in BRANCH_ACTIONS else "target_branch_scope"
    bound = f", {word}: {scope}" if scope else ""
    kind = "server" if action in SERVER_ACTIONS else "graph"
    text = (
        "version: 1\ngroups: {team: [act-in], others: [act-out]}\nprotected_branches: [main]\n"
        f"rules: [{{id: r, allow: {{actors: {{group: team}}, actions: [{action}]{bound}}}}}]"
    )
    return Policy(parse_policy(text, path="p.yaml", kind=kind))


def meant(action: str, scope: str | None, actor: str, branch: str | None) -> bool:
    if actor != "act-in":
        return False
    if scope in (None, "any"):
        return True
    return branch is not None and (branch == "main") == (scope == "protected")


MATRIX = [
    (action, scope, actor, state)
    for action in ACTIONS
    for scope in (
        (None, "any", "protected", "unprotected")
        if action in BRANCH_ACTIONS | TARGET_ACTIONS
        else (None,)
    )
    for actor, state in product(("act-in", "act-out", "act-nobody"), BRANCHES)
]


def test_every_action_scope_branch_and_actor_is_decided_as_the_rule_says():
    assert len(MATRIX) >= 250
    known = {(action, scope): policy_with(action, scope) for action, scope, _, _ in MATRIX}
    wrong = []
    for action, scope, actor, state in MATRIX:
        branch = BRANCHES[state]
        of_branch = action in BRANCH_ACTIONS
        access = Access(action, branch, None) if of_branch else Access(action, None, branch)
        for _ in range(2):  # once from Cedar, once from the memo
            found = known[action, scope].decide(actor, access)
            if found.allowed != meant(action, scope, actor, branch):
                wrong.append((action, scope, actor, state, found))
            assert (found.matched_rule_id == "r") == found.allowed
    assert wrong == []


def test_what_is_said_names_actor_action_and_branches():
    policy = policy_with("branch_merge", "unprotected")
    access = Access("branch_merge", "feature", "main")
    assert policy.decide("act-in", access).message == (
        "policy denied action 'branch_merge' on branch 'feature' targeting branch 'main' "
        "for actor 'act-in'"
    )
    assert policy.decide("act-x", access).message == (
        "policy denied action 'branch_merge' for unknown actor 'act-x'"
    )
    allowed = policy.decide("act-in", Access("branch_merge", "main", "feature"))
    assert allowed.message == "policy allowed action 'branch_merge' for actor 'act-in'"
    assert not policy.decide(None, access).allowed


def test_of_several_rules_the_first_by_id_is_named():
    text = (
        "version: 1\ngroups: {team: [a]}\nrules:\n"
        "  - {id: z, allow: {actors: {group: team}, actions: [read, export]}}\n"
        "  - {id: b, allow: {actors: {group: team}, actions: [read]}}\n"
    )
    policy = Policy(parse_policy(text, path="p.yaml"))
    assert policy.decide("a", Access("read")).matched_rule_id == "b"
    assert policy.decide("a", Access("export", "main")).matched_rule_id == "z"


def test_the_memo_has_an_end(monkeypatch):
    monkeypatch.setattr("omnigraph.policy.engine.POLICY_MEMO_MAX", 10)
    policy = policy_with("read", "unprotected")
    for number in range(50):
        assert policy.decide("act-in", Access("read", f"b{number}")).allowed
    assert len(policy._memo) <= 10


@pytest.mark.parametrize("name", ["main ", " main", "Main", "main\x00"])
def test_protection_goes_by_the_exact_name(name):
    # Callers trim what users write before they ask; here a name is a name.
    assert policy_with("change", "unprotected").decide("act-in", Access("change", name)).allowed
    assert (
        not policy_with("change", "unprotected").decide("act-in", Access("change", "main")).allowed
    )


def test_a_policy_decides_alike_in_another_process():
    text = (
        "version: 1\ngroups: {team: [ann]}\n"
        "rules: [{id: r, allow: {actors: {group: team}, actions: [read]}}]"
    )
    policy = Policy(parse_policy(text, path="p.yaml"), graph_id="alpha")
    copied = pickle.loads(pickle.dumps(policy))
    for actor, action in product(("ann", "bob"), ("read", "change")):
        assert copied.decide(actor, Access(action)) == policy.decide(actor, Access(action))
