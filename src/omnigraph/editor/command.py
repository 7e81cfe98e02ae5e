"""`omnigraph lsp`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from omnigraph.cli.call import Call, read_text, verb, write_text
from omnigraph.cli.scope import Capability
from omnigraph.editor.grammar import FILES
from omnigraph.model.machine import extra_for


@verb("lsp", capability=Capability.LOCAL)
@click.option(
    "--schema",
    "schema_path",
    metavar="FILE",
    help="check queries against this schema instead of the nearest .pg file",
)
@click.option(
    "--grammars",
    "folder",
    metavar="FOLDER",
    help="write the TextMate grammars there instead of serving",
)
def lsp(call: Call, schema_path: str | None, folder: str | None) -> None:
    """Serve an editor: problems, completion, hover and formatting of .gq and .pg files, over
    standard input and output."""
    if folder is not None:
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name in FILES.values():
            text = files("omnigraph.editor").joinpath(name).read_text(encoding="utf-8")
            write_text(str(target / name), text, what="grammar")
        call.emit(
            {"files": [*FILES.values()]}, human=[str(target / name) for name in FILES.values()]
        )
        return
    if schema_path is not None:
        read_text(schema_path, what="schema")
    with extra_for("the language server"):
        from omnigraph.editor.server import made_server
    made_server(schema_path).start_io()
