"""Every case of `cli.jsonl`, through `entry()` in this process."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from casebook import SHARED, cases

from compare import environment, same
from omnigraph.cli.main import entry

PLACEHOLDER = re.compile(r"<(string|number|array)(?::(\d+))?>")


class Terminal:
    """A folder, the graph in it, what earlier steps saved, and a way to run commands."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.saved: dict[str, Any] = {}

    def fill_in(self, value: Any) -> Any:
        """Put real paths for $T, $G and $F, and saved values for @name."""
        if isinstance(value, str):
            if value.startswith("@") and value[1:] in self.saved:
                return self.saved[value[1:]]
            value = value.replace("$G", str(self.folder / "graph.omni"))
            return value.replace("$T", str(self.folder)).replace("$F", str(SHARED / "fixtures"))
        if isinstance(value, list):
            return [self.fill_in(item) for item in value]
        if isinstance(value, dict):
            return {self.fill_in(key): self.fill_in(item) for key, item in value.items()}
        return value

    def run(self, step: Mapping[str, Any]) -> None:
        step = self.fill_in(dict(step))
        if "argv" in step:
            home = {"OMNIGRAPH_HOME": str(self.folder / "no-home")}
            with environment({**home, **step.get("env", {})}):
                self.capsys.readouterr()
                code = entry(step["argv"])
                out, err = self.capsys.readouterr()
            check_command(step, code=code, out=out, err=err)
            self.keep(step, out)
        else:
            assert {"path_exists", "path_absent", "file_contains", "file_excludes"} & step.keys()
        check_files(step)

    def keep(self, step: Mapping[str, Any], out: str) -> None:
        for name, path in step.get("save", {}).items():
            value = json.loads(out)
            for part in path.split("."):
                value = value[part]
            self.saved[name] = value
        if "stdout_to" in step:
            Path(step["stdout_to"]).write_text(out, encoding="utf-8")


def check_command(step: Mapping[str, Any], *, code: int, out: str, err: str) -> None:
    story = f"exit {code}\n--- stdout\n{out}\n--- stderr\n{err}"
    expected = step.get("exit", 0)
    assert (code != 0) if expected == "nonzero" else (code == expected), story
    assert "Traceback" not in err, story
    assert '"code": "internal"' not in err, story
    assert "error: internal:" not in err, story
    for text in step.get("stdout_contains", ()):
        assert text in out, story
    for text in step.get("stdout_excludes", ()):
        assert text not in out, story
    for text in step.get("stderr_contains", ()):
        assert text in err, story
    for text in step.get("stderr_excludes", ()):
        assert text not in err, story
    if "stdout_equals" in step:
        assert out == step["stdout_equals"], story
    if "stdout_lines" in step:
        assert out.splitlines() == step["stdout_lines"], story
    if step.get("stdout_empty"):
        assert out == "", story
    if "stdout_json" in step:
        assert fits(json.loads(out), step["stdout_json"]), story
    for name in step.get("stdout_json_absent", ()):
        assert name not in json.loads(out), story
    if "stdout_jsonl" in step:
        check_lines([json.loads(line) for line in out.splitlines()], step["stdout_jsonl"])


def fits(found: Any, expected: Any) -> bool:
    """Objects by the listed keys, lists as subsets, placeholders by type, the rest by value."""
    if isinstance(expected, str) and (kind := PLACEHOLDER.fullmatch(expected)):
        match kind[1]:
            case "string":
                return isinstance(found, str) and found != ""
            case "number":
                return isinstance(found, int | float) and not isinstance(found, bool)
            case _:
                return isinstance(found, list) and len(found) == int(kind[2] or len(found))
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            key in found and fits(found[key], value) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(found, list) and all(
            any(fits(one, item) for one in found) for item in expected
        )
    return same(found, expected)


def check_lines(lines: list[Any], expected: Any) -> None:
    if isinstance(expected, list):
        assert len(lines) >= len(expected), lines
        assert all(fits(line, item) for line, item in zip(lines, expected, strict=False)), lines
        return
    assert len(lines) == expected.get("count", len(lines)), lines
    assert all(fits(line, expected.get("all", {})) for line in lines), lines
    assert any(fits(line, expected.get("any", {})) for line in lines), lines


def check_files(step: Mapping[str, Any]) -> None:
    for path in step.get("path_exists", ()):
        assert Path(path).exists(), path
    for path in step.get("path_absent", ()):
        assert not Path(path).exists(), path
    for path, texts in step.get("file_contains", {}).items():
        content = Path(path).read_text(encoding="utf-8")
        assert all(text in content for text in texts), content
    for path, texts in step.get("file_excludes", {}).items():
        content = Path(path).read_text(encoding="utf-8")
        assert not any(text in content for text in texts), content


@pytest.mark.parametrize("case", cases("cli.jsonl"))
def test_the_command_line_answers_as_the_case_says(case, tmp_path, capsys):
    terminal = Terminal(tmp_path, capsys)
    for name, content in case.get("files", {}).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    for step in (*case.get("setup", ()), *case["steps"]):
        terminal.run(step)
