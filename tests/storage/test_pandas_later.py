"""pandas stays out of a process that does not ask for it, and is whole in one that does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PEOPLE = Path(__file__).resolve().parents[2] / "examples/people"
OURS = "from omnigraph import Graph\n"
PANDAS = "import pandas as pd\n"
# A pandas of another shape than the one we know.
BROKEN = """
from importlib import import_module
from omnigraph.storage import pandas_later
def fail(*_):
    import_module("pandas._libs.pandas_datetime")
    raise AttributeError("no such name")
pandas_later._Beginning._serve_arrow = fail
"""
# What a program can do with pandas and Arrow together; it tells what came out.
PROGRAM = """
import pickle, pyarrow as pa
frame = pd.DataFrame({
    "whole": pd.Series([1, None], dtype="Int64"),
    "mixed": pd.Series([pd.NA, pd.NaT], dtype=object),
    "when": pd.date_range("2020", periods=2, tz="Europe/Paris"),
    "kind": pd.Categorical(["a", "b"]),
})
print(pa.Table.from_pandas(frame))
print(pa.Table.from_pandas(frame).to_pandas().dtypes)
print(pa.array(pd.Series([1, None, 3])))
print(pa.array([pd.NaT, pd.Timestamp(1), pd.NA], from_pandas=True))
print(pa.array([pd.Timedelta(1), None]), pa.array([pd.Timedelta(1)], pa.duration("ns")))
print(pa.array([pd.Timestamp(1), None], pa.timestamp("ns")))
print(pa.array([pa.MonthDayNano([1, 2, 3])]).to_pandas())
print(pa.scalar(1, pa.timestamp("ns")).as_py(), type(pa.scalar(1, pa.duration("ns")).as_py()))
print(pickle.loads(pickle.dumps(frame)).equals(frame), pd._libs.tslibs.NaT is pd.NaT)
print(pd.__file__, pd.__path__, type(pd.__loader__), pd.__spec__.name, sorted(vars(pd)))
"""


def told(program: str, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_graph_is_made_filled_and_asked_without_pandas(tmp_path):
    program = f"""
import sys
from pathlib import Path
from omnigraph import Graph
people = Path({str(PEOPLE)!r})
schema, data, queries = ((people / f"people.{{x}}").read_text() for x in ("pg", "jsonl", "gq"))
with Graph.init({str(tmp_path / "people.omni")!r}, schema) as graph:
    graph.load(data, mode="overwrite")
    found = graph.query(queries, "friends_of", params={{"name": "Ada"}})
    assert found.to_pylist()
    print("pandas" in sys.modules)
    print(type(found.to_pandas()), "pandas" in sys.modules)
"""
    first, second = told(program).splitlines()
    assert first == "False"
    assert second == "<class 'pandas.core.frame.DataFrame'> True"


@pytest.mark.parametrize(
    "start",
    [
        OURS + PANDAS,
        PANDAS + OURS,
        OURS + "import pyarrow\npyarrow.table({'a': [1]}).to_pandas()\n" + PANDAS,
        OURS + "import importlib.util\nimportlib.util.find_spec('pandas')\n" + PANDAS,
        BROKEN + OURS + PANDAS,
    ],
    ids=["before", "after", "behind to_pandas", "looked for only", "cannot be begun"],
)
def test_pandas_and_arrow_work_together_as_if_we_were_not_there(start):
    assert told(start + PROGRAM) == told(PANDAS + PROGRAM)


def test_a_thread_that_imports_pandas_meanwhile_gets_all_of_it():
    program = """
import threading
seen = []
def other():
    import pandas
    seen.append(pandas.DataFrame({"a": [1]}).shape)
threads = [threading.Thread(target=other) for _ in range(3)]
for thread in threads: thread.start()
from omnigraph import Graph
for thread in threads: thread.join()
import pandas
print(seen, pandas.NA)
"""
    assert told(program) == "[(1, 1), (1, 1), (1, 1)] <NA>\n"


def test_a_pandas_that_cannot_be_begun_is_left_to_arrow(tmp_path):
    (tmp_path / "pandas").mkdir()
    (tmp_path / "pandas/__init__.py").write_text("raise ImportError('not for this Python')\n")
    program = OURS + "import pyarrow as pa, sys\nprint(pa.scalar(1), 'pandas' in sys.modules)"
    assert told(program, PYTHONPATH=str(tmp_path)) == "1 False\n"
