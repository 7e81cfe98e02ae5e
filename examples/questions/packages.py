"""Prints the packages that are installed on this machine as the lines that a load takes; where
there is no Debian, the modules of Python's library."""

from __future__ import annotations

from pathlib import Path

from omnigraph.demo.packages import DataSet, debian_packages, python_modules, records, reduced

NOWHERE = Path("/nonexistent")


def installed() -> DataSet:
    """What is installed here, with the needs that are installed too."""
    found = debian_packages(lists=NOWHERE) or python_modules()
    return reduced(found, None)


if __name__ == "__main__":
    for line in records(installed()):
        print(line)
