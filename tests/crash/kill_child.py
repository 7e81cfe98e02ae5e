"""Inserts node+edge pairs and logs each one it was told is safe: `kill_child.py URI LOG N`."""

from __future__ import annotations

import os
import sys

from omnigraph import Graph

PAIR = """
query pair($name: String) {
  insert Person { name: $name }
  insert Knows { from: $name, to: "root" }
}
"""

if __name__ == "__main__":
    uri, log, first = sys.argv[1:]
    acknowledged = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    number = int(first)
    with Graph.open(uri, durability="process") as graph:
        os.write(1, b"ready\n")
        while True:
            graph.mutate(PAIR, params={"name": f"p{number}"})
            os.write(acknowledged, f"p{number}\n".encode())
            number += 1
