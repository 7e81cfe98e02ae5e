"""Rules of the house that no linter knows, read off the source itself."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src/omnigraph"
SOURCES = sorted(PACKAGE.rglob("*.py"))

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60

# Lance calls that make a version, move a reference or delete files, and the few files that are the
# doors to them. Everything else stages and reads.
DOORS: dict[str, frozenset[str]] = {
    "storage/lance/pylance.py": frozenset({"commit"}),
    "storage/table/table.py": frozenset({"commit", "commit_first"}),
    "storage/manifest/dataset.py": frozenset({"commit", "commit_first"}),
    # Only ever on a scratch dataset in memory, to let Lance number the columns.
    "storage/table/schema_change.py": frozenset(
        {"commit", "add_columns", "alter_columns", "drop_columns"},
    ),
}
LANCE_CALLS = frozenset(
    {
        "write_dataset",
        "merge_insert",
        "create_index",
        "create_scalar_index",
        "compact_files",
        "optimize_indices",
        "cleanup_old_versions",
        "commit_first",
        "add_columns",
        "alter_columns",
        "drop_columns",
        "update_config",
        "update_metadata",
        "update_schema_metadata",
        "update_field_metadata",
        "replace_schema_metadata",
        "replace_field_metadata",
    }
)
# Names that only commit when Lance's own classes, or our module over them, carry them.
LANCE_CLASSES = frozenset({"LanceDataset", "Compaction", "pylance"})


# Storage takes the AWS_* names, the pipeline what it needs to find and start a JVM, the embedders
# the OMNIGRAPH_EMBED* names and the providers' keys; all hand on
# values, so that everything behind the door can be told another environment.
ENVIRONMENT_DOORS = frozenset(
    {"storage/objects/root.py", "pipeline/sessions.py", "engine/embed.py"}
)


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_lance(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if any(name.split(".")[0] == "lance" for name in names):
            return True
    return False


def committing_calls(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, holder = node.func.attr, node.func.value
        carrier = getattr(holder, "attr", getattr(holder, "id", ""))
        if name in LANCE_CALLS or (name == "commit" and carrier in LANCE_CLASSES):
            yield name, node.lineno


def test_only_the_doors_can_commit_to_lance():
    # The floors below and above never see a Lance handle, so their words are their own.
    found = [
        f"{relative(path)}:{line} {name}"
        for path in SOURCES
        if relative(path).split("/")[0] in ("storage", "engine", "pipeline")
        for name, line in committing_calls(parsed(path))
        if name not in DOORS.get(relative(path), frozenset())
    ]
    assert not found


def test_only_one_file_opens_datasets():
    opening = {relative(path) for path in SOURCES if "lance.dataset(" in path.read_text("utf-8")}
    assert opening == {"storage/lance/pylance.py"}


def test_only_storage_says_lance():
    rooms = {relative(path).split("/")[0] for path in SOURCES if imports_lance(parsed(path))}
    assert rooms <= {"storage"}


def test_files_stay_small():
    lines = {relative(path): path.read_text(encoding="utf-8").count("\n") for path in SOURCES}
    assert {name: n for name, n in lines.items() if n > FILE_LINES_MAX} == {}


def test_functions_stay_small():
    found = {
        f"{relative(path)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    }
    assert {name: n for name, n in found.items() if n > FUNCTION_LINES_MAX} == {}


def test_nothing_is_left_for_later():
    words = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    found = [relative(path) for path in SOURCES if words.search(path.read_text(encoding="utf-8"))]
    assert not found


def reads_environment(tree: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
        for node in ast.walk(tree)
        if isinstance(getattr(node, "value", None), ast.Name) and node.value.id == "os"
    )


def test_the_environment_is_read_at_the_front_door_only():
    readers = {relative(path) for path in SOURCES if reads_environment(parsed(path))}
    inside = {name for name in readers if not name.startswith(("cli/", "server/"))}
    assert inside <= ENVIRONMENT_DOORS


def test_no_file_of_the_repository_names_a_path_of_one_machine():
    listed = subprocess.run(
        ["git", "ls-files"], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    pattern = re.compile(r"(?<![\w.])/(?:work|tmp|root|home)/[a-z]")
    kinds = (".py", ".toml", ".md", ".cfg", ".txt", ".yml", ".yaml", "Makefile", "run")
    for name in listed.stdout.splitlines():
        path = REPOSITORY / name
        if name.endswith(kinds) and path.is_file():
            text = path.read_text(encoding="utf-8", errors="ignore")
            assert not pattern.search(text), f"{name} names a path of one machine"
