"""A graph of people and projects with a past: three branches, two merges, a tag, open conflicts."""

from __future__ import annotations

import json
from pathlib import Path

from omnigraph import Graph

SCHEMA = """
node Person @description("Somebody who works here") {
  name: String @key
  role: enum(engineer, designer, lead)?
  age: I32?
  joined: Date?
}
node Project { title: String @key  status: enum(idea, running, done)?  budget: I64? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksOn: Person -> Project { share: F64? }
edge LivesIn: Person -> City
edge Needs: Project -> Project
"""
PEOPLE = (
    *(("Ada", "lead", 41), ("Bo", "engineer", 36), ("Cleo", "designer", 29)),
    *(("Dev", "engineer", 33), ("Eve", "engineer", 45), ("Finn", "lead", 52)),
    *(("Gus", "designer", 38), ("Hana", "engineer", 27), ("Ivo", "engineer", 31)),
    *(("Jo", "lead", 48), ("Kai", "designer", 25), ("Lena", "engineer", 34)),
)
PROJECTS = (("Atlas", "running"), ("Beacon", "running"), ("Comet", "idea"), ("Delta", "done"))
CITIES = ("Delft", "Lisbon", "Oslo")
SCRIPT = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
BIG = 9_007_199_254_740_993  # the first whole number that a double does not have
QUERIES = """
query person($name: String) @description("One person by name") {
  match { $p: Person { name: $name } } return { $p.name, $p.role, $p.age }
}
query of_role($role: Person.role, $least: I32 = 30) {
  match { $p: Person  $p.role = $role  $p.age >= $least } return { $p, $p.name, $p.age }
}
query hire($name: String, $age: I32?) @description("A new colleague") {
  insert Person { name: $name, age: $age }
}
"""


def records() -> list[dict[str, object]]:
    found: list[dict[str, object]] = [
        {"type": "Person", "data": {"name": n, "role": r, "age": a, "joined": f"20{a}-01-15"}}
        for n, r, a in PEOPLE
    ]
    found += [
        {"type": "Project", "data": {"title": t, "status": s, "budget": BIG + 2 * at}}
        for at, (t, s) in enumerate(PROJECTS)
    ]
    found += [{"type": "City", "data": {"name": name}} for name in CITIES]
    names = [name for name, _, _ in PEOPLE]
    for at, name in enumerate(names):
        found.append({"edge": "LivesIn", "from": name, "to": CITIES[at % 3], "data": {}})
        project = PROJECTS[at % 4][0]
        found.append({"edge": "WorksOn", "from": name, "to": project, "data": {"share": 0.5}})
        for step in (1, 4):
            other = names[(at + step) % len(names)]
            found.append({"edge": "Knows", "from": name, "to": other, "data": {}})
    found.append({"edge": "Needs", "from": "Atlas", "to": "Beacon", "data": {}})
    found.append({"edge": "Needs", "from": "Comet", "to": "Atlas", "data": {}})
    return found


def change(graph: Graph, branch: str, text: str, message: str, actor: str) -> None:
    graph.mutate(f"query change() {{ {text} }}", branch=branch, message=message, actor=actor)


def make(path: Path) -> Path:
    """The graph: `reorg` can be merged, `rename` is in conflict with main over two people."""
    with Graph.init(path, SCHEMA, durability="process") as graph:
        graph.load(
            "\n".join(map(json.dumps, records())), mode="append", actor="ada", message="Everybody"
        )
        graph.create_tag("v1", message="the first state")
        graph.create_branch("hiring")
        add = 'insert Person { name: "Mia", role: "engineer", age: 30 }'
        knows = 'insert Knows { from: "Mia", to: "Ada" }'
        change(graph, "hiring", f"{add} {knows}", "Hire Mia", "jo")
        graph.merge("hiring", actor="ada", message="Welcome, Mia")
        graph.create_branch("birthdays")
        older = "update Person set { age: age + 1 } where age > 40"
        change(graph, "birthdays", older, "A year older", "cleo")
        change(graph, "main", 'update Project set { status: "running" } where title = "Comet"',
               "Comet starts", "finn")  # fmt: skip
        graph.merge("birthdays", actor="ada")
        graph.create_branch("reorg")
        graph.create_branch("rename")
        reorg(graph)
        conflicts(graph)
    return path


def reorg(graph: Graph) -> None:
    """Work on `reorg`: something new, something gone, something changed, nodes and edges."""
    add = 'insert Person { name: "Nia", role: "lead", age: 39 }'
    more = 'insert Project { title: "Ember", status: "idea" }'
    links = """
      insert Needs { from: "Ember", to: "Atlas" }
      insert WorksOn { from: "Nia", to: "Ember", share: 1.0 }
      insert Knows { from: "Nia", to: "Ada" }
    """
    change(graph, "reorg", f"{add} {more} {links}", "Nia leads Ember", "jo")
    change(graph, "reorg", 'update Person set { role: "lead", age: 37 } where name = "Bo"',
           "Bo leads", "jo")  # fmt: skip
    change(graph, "reorg", 'delete Project where title = "Delta"', "Delta is over", "jo")


def conflicts(graph: Graph) -> None:
    for branch, hana, ivo in (("rename", 28, "designer"), ("main", 29, "lead")):
        both = f'update Person set {{ age: {hana} }} where name = "Hana"'
        other = f'update Person set {{ role: "{ivo}" }} where name = "Ivo"'
        change(graph, branch, f"{both} {other}", f"What {branch} says", "eve")


def make_two_schemas(path: Path) -> Path:
    """A branch whose schema has one property more, and two people in conflict with main."""
    with Graph.init(path, SCHEMA, durability="process") as graph:
        graph.load("\n".join(map(json.dumps, records())), mode="append")
        graph.create_branch("wider")
        graph.apply_schema(
            SCHEMA.replace("age: I32?", "age: I32?\n  nick: String?"), branch="wider"
        )
        change(
            graph, "wider", 'update Person set { nick: "Countess" } where name = "Ada"', "n", "a"
        )
        wider = 'update Person set { age: 60 } where name = "Bo"'
        change(
            graph,
            "wider",
            wider + ' update Person set { role: "lead" } where name = "Dev"',
            "w",
            "a",
        )
        main = 'update Person set { age: 61 } where name = "Bo"'
        change(
            graph,
            "main",
            main + ' update Person set { role: "designer" } where name = "Dev"',
            "m",
            "b",
        )
    return path
