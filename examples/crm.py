"""A CRM where imports are reviewed: they go to a branch, somebody looks, then they count.

python examples/crm.py
"""

import tempfile

from omnigraph import Graph
from omnigraph.errors import MergeConflictsError

SCHEMA = """
node Account {
    name: String @key
    stage: enum(lead, customer, lost) @default("lead")
}
node Contact { mail: String @key  name: String }
edge WorksFor: Contact -> Account { role: String? }
"""
MOVE = """
query move($name: String, $stage: Account.stage) {
    update Account set { stage: $stage } where name = $name
}
"""


def main(folder: str) -> None:
    with Graph.init(f"{folder}/crm.omni", SCHEMA, actor="setup") as crm:
        accounts = [{"name": "Acme"}, {"name": "Globex"}]
        crm.load({"Account": accounts}, mode="append", actor="ann", message="first accounts")

        # An import of somebody else's list, aside.
        crm.create_branch("import/fair", actor="importer")
        found = [{"mail": "eve@acme", "name": "Eve"}, {"mail": "max@globex", "name": "Max"}]
        works = [{"from": "eve@acme", "to": "Acme"}, {"from": "max@globex", "to": "Globex"}]
        crm.load({"Contact": found, "WorksFor": works}, mode="merge", branch="import/fair")
        params = {"name": "Acme", "stage": "customer"}
        crm.mutate(MOVE, params=params, branch="import/fair", actor="importer")

        # Meanwhile on main the same account is lost.
        crm.mutate(MOVE, params={"name": "Acme", "stage": "lost"}, actor="ann")

        for change in crm.diff("main", "import/fair").changes:
            print(change.op, change.type_name, change.id if change.kind == "node" else "")
        try:
            crm.merge("import/fair", actor="ann")
        except MergeConflictsError as error:
            for conflict in error.conflicts:
                for name, base, ours, theirs in conflict.properties:
                    print(
                        f"{conflict.entity_id}.{name}: {base} became {ours} here and {theirs} there"
                    )
            settled = {(one.type_key, one.entity_id): "theirs" for one in error.conflicts}
            crm.merge("import/fair", actor="ann", resolutions=settled, message="fair, reviewed")
        crm.create_tag("after-fair")
        print([(one.actor_id, one.message) for one in crm.commits(limit=2)])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(scratch)
