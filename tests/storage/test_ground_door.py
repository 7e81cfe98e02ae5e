"""Tables move through one door: a scan of the source finds no other."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import omnigraph

SOURCE = Path(omnigraph.__file__).parent

# Calls that make or move a dataset, and the files that may make them.
DOORS = {
    "commit": {
        "storage/landing.py",  # tables
        "storage/manifest_dataset.py",  # the manifest
        "storage/evolution.py",  # a description in memory
    },
    "create_branch": {"storage/forks.py", "storage/manifest_dataset.py"},
    "add_columns": {"storage/evolution.py"},
    "drop_columns": {"storage/evolution.py"},
    "alter_columns": {"storage/evolution.py"},
}
# Calls that commit as a side effect: nobody may make them.
FORBIDDEN = {
    "write_dataset",
    "merge_insert",
    "commit_batch",
    "compact_files",
    "optimize_indices",
    "create_index",
    "create_scalar_index",
    "commit_existing_index_segments",
    "drop_index",
    "checkout_latest",
    "truncate_table",
    "update_config",
    "update_metadata",
    "update_schema_metadata",
    "update_field_metadata",
    "replace_schema_metadata",
    "migrate_manifest_paths_v2",
}


@cache
def calls_of_lance():
    """(file, line, name) of every method call in files that import lance."""
    return tuple(_calls_of_lance())


def _calls_of_lance():
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        if not any(_imports_lance(node) for node in ast.walk(tree)):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else None
                name = node.func.id if isinstance(node.func, ast.Name) else name
                yield path.relative_to(SOURCE).as_posix(), node.lineno, name


def _imports_lance(node):
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] == "lance" for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lance"


@pytest.mark.parametrize("call", DOORS)
def test_only_the_doors_make_calls_that_move_a_dataset(call):
    users = {path for path, _, name in calls_of_lance() if name == call}
    assert users
    assert users <= DOORS[call]


def test_nobody_commits_as_a_side_effect():
    found = [f"{path}:{line} {name}" for path, line, name in calls_of_lance() if name in FORBIDDEN]
    assert found == []
