"""A graph for the tests of the write path, told as short stories."""

import json

from omnigraph import Graph

PEOPLE = """
interface Named { name: String @key }
node Person implements Named {
  age: I32?
  email: String? @unique
  role: enum(admin, user)?
  vec: Vector(2)?
  tags: [String]?
  born: Date?
  seen: DateTime?
  @range(age, 0..150)
  @check(email, "^[^@]+@[^@]+$")
}
node Company { name: String @key  founded: I32? }
node Note { text: String }
edge Knows: Person -> Person { since: Date?  @unique(src, dst) }
edge WorksAt: Person -> Company @card(0..1)
edge Mentors: Person -> Person @card(2..3)
edge About: Note -> Person
"""


class WriteWorld:
    """One graph, with the little that the stories need."""

    def __init__(self, uri, schema=PEOPLE):
        self.graph = Graph.init(uri, schema, durability="process")

    def load(self, *records, mode="append", **options):
        text = "\n".join(json.dumps(record) for record in records)
        return self.graph.load(text, mode=mode, **options)

    def mutate(self, *statements, **params):
        declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in params.items())
        source = f"query q({declared}) {{ {' '.join(statements)} }}"
        return self.graph.mutate(
            source, params={name: value for name, (_, value) in params.items()}
        )

    def head(self):
        return self.graph.snapshot().graph_commit_id

    def version(self, table_key):
        entries = {entry.type_key: entry for entry in self.graph.snapshot().datasets}
        return entries[table_key].published_dataset_version

    def nodes(self, type_name, branch="main"):
        """Properties by id."""
        lines = map(json.loads, self.graph.export(branch=branch, types=[type_name]))
        return {line["data"]["id"]: line["data"] for line in lines}

    def edges(self, type_name, branch="main"):
        """(from, to) pairs, sorted."""
        lines = map(json.loads, self.graph.export(branch=branch, types=[type_name]))
        return sorted((line["from"], line["to"]) for line in lines)


def person(name, **data):
    return {"type": "Person", "data": {"name": name, **data}}


def company(name, **data):
    return {"type": "Company", "data": {"name": name, **data}}


def edge(kind, source, target, **data):
    return {"edge": kind, "from": source, "to": target, "data": data}
