"""A publisher of its own: run as a program it is one of several processes on one graph.

`python publishing.py <uri> <name> <commits>` advances its own table that many times, prints the
ids of the commits that were acknowledged and leaves.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from manifest_world import Authority, update
from omnigraph.errors import RowLevelCasContentionError
from omnigraph.model.graph import TableIs

LOST_IN_A_ROW_MAX = 1000


@dataclass(frozen=True, slots=True)
class Address:
    uri: str
    environ: dict


def publish_all(authority, table_key, commits):
    """Advance the table so often; the ids of the acknowledged commits."""
    acknowledged = []
    for version in range(2, commits + 2):
        for _ in range(LOST_IN_A_ROW_MAX):
            try:
                snapshot = authority.publish(
                    update(table_key, version),
                    expects=[TableIs(table_key=table_key, version=version - 1)],
                )
            except RowLevelCasContentionError:
                continue  # nothing landed: a caller may try again
            acknowledged.append(snapshot.graph_commit_id)
            break
    return acknowledged


if __name__ == "__main__":
    uri, name, commits = sys.argv[1:]
    publisher = Authority.over(Address(uri, dict(os.environ)))
    sys.stdout.write("\n".join(publish_all(publisher, name, int(commits))))
