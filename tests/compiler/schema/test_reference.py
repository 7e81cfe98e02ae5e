"""The reference page of the schema language compiles, and shows every code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.compiler.schema import compile_schema, format_schema, plan_migration
from omnigraph.compiler.schema.check import RESERVED, RESERVED_ON_EDGES
from omnigraph.errors import InputError
from omnigraph.model import plan as plans
from omnigraph.model.plan import Code
from omnigraph.model.schema import Scalar

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/schema-language.md").read_text(
    "utf-8"
)
BLOCKS = re.findall(r"(?ms)^```pg ?([^\n]*)\n(.*?)^```$(?:\n> ([^\n]*))?", PAGE)
RIGHT = [body for kind, body, _ in BLOCKS if kind == ""]
WRONG = [(body, said) for kind, body, said in BLOCKS if kind == "wrong"]
CHANGES = [(kind.split()[1:], body) for kind, body, _ in BLOCKS if kind.startswith("plan")]
NEVER_GIVEN = {Code.DROP_GRAPH, Code.DROP_VECTOR_PROPERTY, Code.TIGHTEN_NULLABILITY}


@pytest.mark.parametrize("source", RIGHT)
def test_an_example_compiles_and_can_be_laid_out(source):
    assert compile_schema(format_schema(source)).hash == compile_schema(source).hash


@pytest.mark.parametrize(("source", "said"), WRONG)
def test_a_wrong_example_is_refused_in_the_words_of_the_page(source, said):
    with pytest.raises(InputError) as caught:
        compile_schema(source)
    assert said
    assert caught.value.message.startswith(said)


@pytest.mark.parametrize(("codes", "body"), CHANGES)
def test_a_change_has_the_code_of_the_page(codes, body):
    old, new = (compile_schema(source) for source in body.split("---\n"))
    found = plan_migration(old, new)
    assert sorted({step.code for step in found.steps if getattr(step, "code", None)}) == codes
    assert found.supported == (not codes or codes[0].startswith("OG-DS"))


def test_every_code_is_shown_or_said_to_be_reserved():
    shown = {code for codes, _ in CHANGES for code in codes}
    assert shown | NEVER_GIVEN == set(Code)
    assert all(code in PAGE for code in Code)


def test_every_type_step_and_reserved_name_is_on_the_page():
    steps = [
        step.kind
        for step in vars(plans).values()
        if isinstance(step, type) and isinstance(getattr(step, "kind", None), str)
    ]
    assert len(steps) >= 15
    words = [*(scalar.value for scalar in Scalar), *RESERVED, *RESERVED_ON_EDGES, *steps]
    assert [word for word in words if f"`{word}" not in PAGE] == []
