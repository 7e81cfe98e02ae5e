"""`omnigraph demo`."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from omnigraph.cli.call import Call, verb, write_text
from omnigraph.cli.scope import Capability
from omnigraph.errors import InputError
from omnigraph.model.machine import optional

if TYPE_CHECKING:
    from omnigraph.demo.packages import DataSet

# How many packages a demo of each size takes; None = all there are.
SIZES: Final[dict[str, int | None]] = {"small": 300, "medium": 15_000, "full": None}
MARKER: Final = ".omnigraph-demo"


@verb("demo", capability=Capability.LOCAL)
@click.option(
    "--size",
    type=click.Choice(tuple(SIZES)),
    default="full",
    show_default=True,
    help="how much data",
)
@click.option(
    "--data",
    "source",
    type=click.Choice(("auto", "debian", "python")),
    default="auto",
    show_default=True,
    help="Debian's package lists, or the modules of Python's library where there are none",
)
@click.option(
    "--out",
    metavar="FOLDER",
    default="omnigraph-demo",
    show_default=True,
    help="where the graph and report.html go; an earlier demo there is replaced",
)
def demo(call: Call, size: str, source: str, out: str) -> None:
    """Build a graph of this machine's packages on Spark and show what can be done with it."""
    optional("pyspark", use="the demo")
    folder = _emptied(Path(out))
    from omnigraph.demo.packages import reduced
    from omnigraph.demo.story import Journal, summary_json, tell_story

    silent = call.as_json or call.quiet
    journal = Journal(
        say=(lambda _: None) if silent else click.echo,
        width=shutil.get_terminal_size().columns if sys.stdout.isatty() else None,
    )
    started = time.monotonic()
    facts = tell_story(
        folder,
        journal,
        lambda: reduced(_found(source), SIZES[size]),
        show_progress=call.wants_progress,
    )
    facts["seconds"] = round(time.monotonic() - started, 1)
    report = folder / "report.html"
    write_text(str(report), journal.page("OmniGraph, shown on this machine", facts), what="report")
    if call.as_json:
        click.echo(summary_json(facts, journal, report))
        return
    click.echo(f"\n{facts['seconds']} s in all; the report with pictures is {report}")
    click.echo(f"look around: omnigraph shell --store {facts['graph']}")
    from omnigraph.demo.serving import show_server

    stay = sys.stdout.isatty() and sys.stdin.isatty()
    show_server(str(facts["graph"]), folder, stay=stay, say=click.echo)


def _found(source: str) -> DataSet:
    from omnigraph.demo.packages import debian_packages, python_modules

    data = None if source == "python" else debian_packages()
    if data is None and source == "debian":
        raise InputError("this machine has no Debian package lists", hint="use --data python")
    return data or python_modules()


def _emptied(folder: Path) -> Path:
    """The folder, empty but for our marker; one that is not an earlier demo's is left alone."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            if not (folder / MARKER).is_file():
                raise InputError(
                    f"'{folder}' exists and is not an earlier demo", hint="name another with --out"
                )
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).touch()
    except OSError as cause:
        raise InputError(f"cannot write '{folder}': {cause.strerror or cause}") from cause
    return folder
