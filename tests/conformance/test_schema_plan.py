"""schema_plan.jsonl: the steps between two schemas, and taking them."""

from __future__ import annotations

import pytest
from casebook import cases

from omnigraph import Graph
from omnigraph.compiler.schema import compile_schema, plan_migration
from omnigraph.errors import InputError, OmnigraphError, SchemaUnsupportedError


def _assert_plan(case):
    accepted = compile_schema(case["old"])
    for source in case.get("sequence", []):
        accepted = plan_migration(accepted, compile_schema(source)).catalog
    desired = compile_schema(case["new"])
    loss = case.get("allow_data_loss", False)
    if "resolution_error" in case:
        with pytest.raises(InputError, match=case["resolution_error"]):
            plan_migration(accepted, desired, allow_data_loss=loss)
        return
    plan = plan_migration(accepted, desired, allow_data_loss=loss)
    steps = plan.to_json()["steps"]
    _assert_steps(case, steps)
    assert plan.supported is case["supported"]
    _assert_refusals(case, plan)
    if plan.supported:
        assert plan_migration(plan.catalog, compile_schema(case["new"])).steps == ()


@pytest.mark.parametrize("case", cases("schema_plan.jsonl"))
def test_the_plan_has_the_steps_of_the_case_and_an_apply_takes_them_or_none(tmp_path, case):
    _assert_plan(case)
    with Graph.init(tmp_path / "g.omni", case["old"], durability="process") as graph:
        before = graph.snapshot()
        for source in case.get("sequence", []):
            assert graph.apply_schema(source).applied
        for step in case.get("pre", []):
            graph.create_branch(step["branch"]["create"], from_branch=step["branch"]["from"])
        head = graph.snapshot()
        loss = case.get("allow_data_loss", False)
        refused = not case["supported"] or "apply_error_contains" in case
        if refused:
            text = case.get("apply_error_contains") or case.get("resolution_error") or "."
            with pytest.raises(OmnigraphError, match=text):
                graph.apply_schema(case["new"], allow_data_loss=loss)
            assert graph.snapshot() == head
            return
        planned = graph.plan_schema(case["new"], allow_data_loss=loss)
        result = graph.apply_schema(case["new"], allow_data_loss=loss, actor="act-schema")
        assert result.applied is case.get("applied", bool(planned.steps))
        assert result.steps == planned.steps
        assert (result.commit is not None) is result.applied
        assert graph.snapshot().graph_manifest_version == result.graph_manifest_version
        assert graph.plan_schema(case["new"]).steps == ()
        _assert_new_life(case.get("expect", {}), before, graph.snapshot())


def _assert_new_life(expect, before, after):
    if "dataset_path_changed" in expect:
        key = expect["dataset_path_changed"]
        assert before.entries[key].dataset_path != after.entries[key].dataset_path
        version = after.entries[key].published_dataset_version
        assert version == expect["published_dataset_version"]


def _assert_steps(case, steps):
    for wanted in case.get("steps_contain", []):
        assert any(_contains(step, wanted) for step in steps), wanted
    kinds = [step["kind"] for step in steps]
    if "step_count" in case:
        assert len(steps) == case["step_count"]
    assert not set(kinds) & set(case.get("steps_absent", []))
    order = case.get("steps_order", [])
    assert [kind for kind in kinds if kind in order] == order


def _assert_refusals(case, plan):
    steps = plan.to_json()["steps"]
    assert set(case.get("codes", [])) <= {step.get("code") for step in steps}
    for wanted in case.get("unsupported", []):
        found = [step for step in steps if step.get("entity") == wanted["entity"]]
        reason = wanted.get("reason_contains", "")
        assert any(reason in step["reason"] for step in found), wanted
        if "code" in wanted:
            assert any(step.get("code") == wanted["code"] for step in found)
    if case.get("apply_error_contains", "").startswith("OG-"):
        with pytest.raises(SchemaUnsupportedError, match=case["apply_error_contains"]):
            plan.require_supported()


def _contains(step, wanted):
    if isinstance(wanted, dict):
        return all(key in step and _contains(step[key], value) for key, value in wanted.items())
    return step == wanted
