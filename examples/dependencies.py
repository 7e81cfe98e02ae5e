"""Package dependencies: what is installed here, what needs what, and what would break.

python examples/dependencies.py [package]
"""

import re
import sys
import tempfile
from importlib.metadata import distributions

from omnigraph import Graph

SCHEMA = """
node Package { name: String @key  version: String? }
edge Needs: Package -> Package
"""
QUERIES = """
query brings($name: String) {
    match { $p: Package { name: $name }  $p needs{1,20} $other }
    return { $other.name as name }
    order { $other.name }
}
query breaks($name: String) {
    match { $p: Package { name: $name }  $user needs{1,20} $p }
    return { count($user) as packages }
}
query most_needed() {
    match { $user: Package  $user needs $p }
    return { $p.name as name, count($user) as users }
    order { users desc, name }
    limit 5
}
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", name, maxsplit=1)[0]).lower()


def main(folder: str, package: str) -> None:
    known = {normal(one.metadata["Name"]): one for one in distributions() if one.metadata["Name"]}
    packages = [{"name": name, "version": one.version} for name, one in known.items()]
    needs = [
        (name, normal(wanted))
        for name, one in known.items()
        for wanted in one.requires or ()
        if "extra ==" not in wanted and normal(wanted) in known
    ]
    edges = [{"from": source, "to": target} for source, target in sorted(set(needs))]
    with Graph.init(f"{folder}/packages.omni", SCHEMA) as graph:
        graph.load({"Package": packages, "Needs": edges}, mode="append")
        brought = graph.query(QUERIES, "brings", params={"name": package}).column("name")
        users = graph.query(QUERIES, "breaks", params={"name": package}).scalar()
        print(f"{package} brings {', '.join(brought)}; {users} packages need it")
        print(graph.query(QUERIES, "most_needed"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(scratch, sys.argv[1] if len(sys.argv) > 1 else "pytest")
