"""What the tab key offers: names of the graph that the line addresses, files, and no noise."""

from __future__ import annotations

import subprocess
import sys

import pytest

from omnigraph import Graph
from omnigraph.cli.main import COMMANDS, entry

SCHEMA = """node Person { name: String @key }
node Place { name: String @key }
edge LivesIn: Person -> Place
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    (folder / "home").mkdir()
    (folder / "home/config.yaml").write_text("profiles: { dev: { store: g.omni } }\n")
    (folder / "two.gq").write_text("query one() { match { $p: Person } return { $p.name } }")
    with Graph.init(folder / "g.omni", SCHEMA) as graph:
        graph.create_branch("review/a.b")
        graph.create_branch("b" * 230)  # its file is named by a hash
        graph.create_tag("v1")
    return folder


@pytest.fixture
def tab(desk, monkeypatch, capsys):
    """What is offered at the end of a line, and what is told on stderr."""

    def press(line, env=()):
        monkeypatch.chdir(desk)
        words = ["omnigraph", *line.split(" ")]
        for name, value in {
            "OMNIGRAPH_HOME": str(desk / "home"),
            "_OMNIGRAPH_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
            **dict(env),
        }.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            entry([])
        out, err = capsys.readouterr()
        return out.split(), err

    return press


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("--store g.omni branch delete ", ["plain,main", "plain,review/a.b"]),
        ("branch delete --uri g.omni re", ["plain,review/a.b"]),
        ("--profile dev branch merge re", ["plain,review/a.b"]),
        ("query --store g.omni --branch ", ["plain,main", "plain,review/a.b", "plain,v1"]),
        ("diff --store g.omni main v", ["plain,v1"]),
        ("tag delete --store g.omni ", ["plain,v1"]),
        ("export --store g.omni --type P", ["plain,Person", "plain,Place"]),
        ("entity history --store g.omni edge ", ["plain,LivesIn"]),
        ("entity history --store g.omni ", ["plain,node", "plain,edge"]),
        ("query --query two.gq ", ["plain,one"]),
        ("--profile ", ["plain,dev"]),
        ("load --data d", ["file,d"]),
        ("snapshot g", ["dir,g"]),
        ("branch del", ["plain,delete"]),
        ("mut", ["plain,mutate"]),
        # --- where nothing is known, nothing is said ---
        ("--store nowhere.omni branch delete x", []),
        ("--store nowhere.omni export --type ", []),
        ("--server http://127.0.0.1:1 branch delete ", []),
        ("branch delete x", []),
        ("query --query none.gq ", []),
        ("frobnicate x", []),
    ],
)
def test_the_key_offers_what_the_graph_of_the_line_has(tab, line, offered):
    assert tab(line) == (offered, "")


def test_the_environment_may_name_the_graph(tab):
    assert tab("branch delete r", {"OMNIGRAPH_STORE": "g.omni"}) == (["plain,review/a.b"], "")


def test_all_commands_are_offered(tab):
    shown = [f"plain,{name}" for name, one in COMMANDS.items() if not one.hidden]
    assert tab("") == (shown, "")


def test_names_of_branches_do_not_wait_for_the_storage_library(desk):
    program = (
        "import sys; from omnigraph.cli.completion import branches, tags;"
        "import click; from omnigraph.cli.main import root;"
        f"context = click.Context(root); context.params = {{'store': {str(desk / 'g.omni')!r}}};"
        "assert branches(context) == ['main', 'review/a.b'] and tags(context) == ['v1'];"
        "sys.exit(bool({'lance', 'pyarrow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
