"""Every case of `merge.jsonl`: two branches go their ways and meet again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from casebook import cases
from runner import World

from omnigraph.errors import MergeConflictsError


@pytest.mark.parametrize("case", cases("merge.jsonl"))
def test_the_merge_ends_as_the_case_says(case, tmp_path):
    world = World(tmp_path, case["schema"])
    try:
        world.load_base(case["base"])
        if not case.get("no_default_branch"):
            world.graph.create_branch("feature", from_branch="main")
        for step in (*case.get("pre", ()), *case["ours"], *case["theirs"]):
            world.run(step)
        outcome = merged(world, case)
        assert outcome == case["outcome"]
        check_state(world, case.get("state_after", {}))
        for step in case.get("checks", ()):
            world.run(step)
        if "merge_again" in case:
            assert merged(world, case) == case["merge_again"]
    finally:
        world.close()


def merged(world: World, case: Mapping[str, Any]) -> str:
    """Merge as the case says; a refused merge is checked against the conflicts it announces."""
    request = case["merge"]
    target = request["target"]
    world.before_merge = world.graph.snapshot(target)
    world.labels["target_head_before"] = world.head(target).graph_commit_id
    world.labels["source_head_before"] = world.head(request["source"]).graph_commit_id
    try:
        result = world.graph.merge(request["source"], into=target, actor=request.get("as"))
    except MergeConflictsError as error:
        check_conflicts(error, case)
        assert world.head(target).graph_commit_id == world.labels["target_head_before"]
        return "conflict"
    return str(result.outcome)


def check_conflicts(error: MergeConflictsError, case: Mapping[str, Any]) -> None:
    found = [
        {
            "type_key": f"{conflict.entity_kind}:{conflict.type_name}",
            "kind": str(conflict.kind),
            "entity_id": conflict.entity_id,
        }
        for conflict in error.conflicts
    ]
    for expected in case.get("conflicts", ()):
        # A case that names no entity leaves open whether the conflict does.
        named = {key: value for key, value in expected.items() if value is not None}
        assert any(named.items() <= one.items() for one in found), f"{expected} not in {found}"
    if case.get("conflicts_exact_count") is not None:
        assert len(found) == case["conflicts_exact_count"], found


def check_state(world: World, state: Mapping[str, Any]) -> None:
    """The people and friendships that main holds after the merge."""
    people = (
        {record["data"]["id"]: record["data"] for record in world.exported("node:Person")}
        if state
        else {}
    )
    for name, expected in state.items():
        if ":" in name:
            assert world.entity_count(name, "main") == expected, name
            assert len(world.exported(name)) == expected, name
        elif name.endswith("_age"):
            person = people.get(name.removesuffix("_age").capitalize(), {})
            assert person.get("age") == expected, name
        else:
            assert (name.removesuffix("_present").capitalize() in people) is expected, name
