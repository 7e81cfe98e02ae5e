"""Arrow's functions are the same, however quickly they were imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

TOLD = """
import inspect, pyarrow.compute as pc
made = [getattr(pc, name) for name in sorted(dir(pc))]
functions = [one for one in made if hasattr(one, "__arrow_compute_function__")]
print(len(functions) > 200)
for one in functions:
    print(one.__name__, inspect.signature(one), one.__doc__)
"""
QUICKLY = "from omnigraph.storage.compute_quickly import import_compute\nimport_compute()\n"
OTHER_ARROW = "import pyarrow.vendored.docscrape as d\ndel d.NumpyDocString\n"


def said(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return done.stdout


def test_functions_have_the_signatures_and_documentation_that_they_have_elsewhere():
    plain = said(TOLD)
    assert plain.startswith("True\n")
    assert said(QUICKLY + TOLD) == plain


def test_nothing_is_left_changed_behind():
    kept = "import inspect\ntrue = inspect.signature\n"
    program = (
        kept
        + QUICKLY
        + "print(inspect.signature is true, 'pyarrow.compute' in __import__('sys').modules)"
    )
    assert said(program) == "True True\n"


@pytest.mark.parametrize("before", [OTHER_ARROW, "import pyarrow.compute\n"])
def test_an_arrow_of_another_shape_or_one_that_is_there_already_is_left_alone(before):
    assert said(before + QUICKLY + "print('done')") == "done\n"
