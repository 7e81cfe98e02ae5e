"""`policy validate|test|explain`: what a policy file says, before a server goes by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.call import Call, CommandGroup, together, verb
from omnigraph.cli.scope import Capability
from omnigraph.errors import InputError, PackageMissingError

if TYPE_CHECKING:
    from omnigraph.policy.engine import Policy

policy = CommandGroup("policy", help="Check and explain policy files.")

_file_options = together(
    click.option("--file", "path", metavar="FILE", help="the policy, a YAML file"),
    click.option(
        "--graph-id",
        default="graph",
        show_default=True,
        metavar="ID",
        help="the graph that is asked about",
    ),
    click.option("--server-policy", "of_server", is_flag=True, help="it is the server's policy"),
)


def _policy(call: Call, path: str | None, graph_id: str, *, of_server: bool) -> Policy:
    if call.flags.cluster is not None:
        raise InputError(
            f"`{call.verb}` cannot open the cluster '{call.flags.cluster}': "
            "this release knows no clusters",
            hint="pass the policy with --file",
        )
    if path is None:
        raise click.UsageError("Missing option '--file'.")
    try:
        from omnigraph.policy.engine import Policy
    except ModuleNotFoundError as cause:
        raise PackageMissingError(use="a policy", package="cedarpy", extra="server") from cause
    return Policy.load(path, graph_id=graph_id, kind="server" if of_server else "graph")


@verb("policy validate", capability=Capability.LOCAL)
@_file_options
def validate(call: Call, path: str | None, graph_id: str, *, of_server: bool) -> None:
    """Check a policy file; the first thing that is wrong with it is an error."""
    found = _policy(call, path, graph_id, of_server=of_server).document
    payload = {
        "ok": True,
        "file": found.path,
        "kind": found.kind,
        "actors": len(found.actors),
        "groups": len(found.groups),
        "rules": len(found.rules),
        "protected_branches": sorted(found.protected_branches),
    }
    call.emit(
        payload,
        human=f"policy valid: {found.path} ({len(found.actors)} actors, {len(found.rules)} rules)",
    )


@verb("policy test", capability=Capability.LOCAL)
@_file_options
@click.option("--tests", "tests_path", required=True, metavar="FILE", help="the cases, as YAML")
def test(call: Call, path: str | None, graph_id: str, *, of_server: bool, tests_path: str) -> None:
    """Ask a policy every case of a file; the exit code is 1 if one is decided otherwise."""
    gate = _policy(call, path, graph_id, of_server=of_server)
    from omnigraph.policy.cases import read_cases, run_cases

    outcomes = run_cases(gate, read_cases(tests_path))
    failed = [one for one in outcomes if not one.passed]
    payload = {
        "ok": not failed,
        "cases": len(outcomes),
        "failures": [
            {
                "id": one.case.id,
                "expected": one.case.expect,
                "got": "allow" if one.decision.allowed else "deny",
                "message": one.decision.message,
            }
            for one in failed
        ],
    }
    lines = [
        f"FAIL {one.case.id}: expected {one.case.expect}: {one.decision.message}" for one in failed
    ]
    told = f"policy tests failed: {len(failed)} of {len(outcomes)}"
    lines.append(told if failed else f"policy tests passed: {len(outcomes)}")
    call.emit(payload, human=lines)
    if failed:
        click.get_current_context().exit(1)


@verb("policy explain", capability=Capability.LOCAL)
@_file_options
@click.option("--actor", required=True, metavar="ACTOR", help="who wants it")
@click.option("--action", required=True, metavar="ACTION", help="what they want")
@click.option("--branch", metavar="NAME", help="the branch that is worked on")
@click.option("--target-branch", metavar="NAME", help="the branch that is aimed at")
def explain(
    call: Call, path: str | None, graph_id: str, *, of_server: bool, actor: str, **asked: Any
) -> None:
    """Say what a policy decides about one action of one actor, and by which rule."""
    gate = _policy(call, path, graph_id, of_server=of_server)
    from omnigraph.policy.cases import access_of

    access = access_of(asked["action"], asked["branch"], asked["target_branch"])
    decision = gate.decide(actor, access)
    payload = {
        "decision": "allow" if decision.allowed else "deny",
        "actor": actor,
        "action": access.action,
        "branch": access.branch,
        "target_branch": access.target_branch,
        "matched_rule": decision.matched_rule_id,
        "message": decision.message,
    }
    call.emit(payload, human=[f"{name}: {value or '-'}" for name, value in payload.items()])


for _command in (validate, test, explain):
    policy.add_command(_command)
