"""The page about loading tells the truth: its schema and records load as printed."""

import re
from pathlib import Path

from omnigraph import Graph

PAGE = Path(__file__).parents[2] / "docs/reference/loading.md"


def test_the_records_of_the_page_load_and_come_back(tmp_path):
    text = PAGE.read_text()
    (schema,) = re.findall(r"```pg\n(.*?)```", text, re.DOTALL)
    (records,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    with Graph.init(tmp_path / "g", schema, durability="process") as graph:
        result = graph.load(records, mode="append")
        assert (result.nodes, result.edges) == ({"Person": 2, "Note": 1}, {"Knows": 1, "About": 1})
        lines = "\n".join(graph.export())
        again = graph.load(lines, mode="merge")
        assert again.total_entities == result.total_entities
        assert "\n".join(graph.export()) == lines
