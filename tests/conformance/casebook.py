"""Finds and reads the conformance cases.

They are data and live beside the checkout (`../shared/conformance`), or where `OMNIGRAPH_SHARED`
points. `cases()` turns one file into pytest parameters, one a case.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from exceptions import EXCEPTIONS

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("OMNIGRAPH_SHARED", REPOSITORY.parent / "shared"))


def read_cases(file_name: str) -> list[dict[str, Any]]:
    """Every case of a file that can be run, in order; none when the shared folder is not here.

    A case whose basis is `doc` tells people something and has no steps to run.
    """
    path = SHARED / "conformance" / file_name
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines if line.strip()]
    return [case for case in found if case["basis"] != "doc"]


def cases(file_name: str) -> list[Any]:
    """The cases of a file as pytest parameters, one a case, named after it."""
    found = read_cases(file_name)
    if not found:
        reason = f"no {file_name} in a shared folder beside the checkout (see OMNIGRAPH_SHARED)"
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(case, id=case["name"], marks=_marks(case)) for case in found]


def _marks(case: Mapping[str, Any]) -> list[pytest.MarkDecorator]:
    if case["name"] in EXCEPTIONS:
        return [pytest.mark.xfail(strict=True, reason=EXCEPTIONS[case["name"]])]
    return []
