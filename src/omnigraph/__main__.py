"""`python -m omnigraph` is the `omnigraph` command."""

from omnigraph.cli.main import entry

if __name__ == "__main__":
    raise SystemExit(entry())
