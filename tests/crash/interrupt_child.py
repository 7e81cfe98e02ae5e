"""A process that runs one command and says how it ended: `interrupt_child.py WORDS...`."""

from __future__ import annotations

import signal
import sys

from omnigraph import Graph  # noqa: F401 - interrupts are about the work, not about the imports
from omnigraph.cli.main import entry

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    code = entry(sys.argv[1:])
    sys.stdout.write(f"exit {code}\n")
    sys.stdout.flush()
