"""The language server over pygls: problems, completion, hover and formatting of `.gq` and `.pg`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from omnigraph import __version__
from omnigraph.compiler import editing
from omnigraph.model.schema import Catalog

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
_KINDS = {
    "keyword": types.CompletionItemKind.Keyword,
    "function": types.CompletionItemKind.Function,
    "type": types.CompletionItemKind.Class,
    "edge": types.CompletionItemKind.Reference,
    "property": types.CompletionItemKind.Field,
    "variable": types.CompletionItemKind.Variable,
    "note": types.CompletionItemKind.Property,
}
_FOLDERS_UP_MAX = 8  # how far above a query file its schema is looked for


def made_server(schema_path: str | None) -> LanguageServer:
    """A server; queries are checked against that schema file, or the nearest one."""
    server = LanguageServer("omnigraph", __version__)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(ls: LanguageServer, params: types.DidOpenTextDocumentParams) -> None:
        _publish(ls, params.text_document.uri, schema_path)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(ls: LanguageServer, params: types.DidChangeTextDocumentParams) -> None:
        _publish(ls, params.text_document.uri, schema_path)

    @server.feature(
        types.TEXT_DOCUMENT_COMPLETION,
        types.CompletionOptions(trigger_characters=[".", "$", "@", ":", " "]),
    )
    def complete(ls: LanguageServer, params: types.CompletionParams) -> types.CompletionList:
        document = ls.workspace.get_text_document(params.text_document.uri)
        at = document.offset_at_position(params.position)
        if _is_schema(document):
            found = editing.schema_completions(document.source, at)
        else:
            catalog = _catalog(ls, document, schema_path)
            found = editing.query_completions(document.source, at, catalog)
        return types.CompletionList(is_incomplete=False, items=[*map(_item, found)])

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(ls: LanguageServer, params: types.HoverParams) -> types.Hover | None:
        document = ls.workspace.get_text_document(params.text_document.uri)
        at = document.offset_at_position(params.position)
        if _is_schema(document):
            found = editing.schema_hover(document.source, at)
        else:
            catalog = _catalog(ls, document, schema_path)
            found = editing.query_hover(document.source, at, catalog)
        if found is None:
            return None
        begin, end, says = found
        contents = types.MarkupContent(kind=types.MarkupKind.Markdown, value=says)
        return types.Hover(contents=contents, range=_range(ls, document, begin, end))

    @server.feature(types.TEXT_DOCUMENT_FORMATTING)
    def layout(
        ls: LanguageServer, params: types.DocumentFormattingParams
    ) -> list[types.TextEdit] | None:
        document = ls.workspace.get_text_document(params.text_document.uri)
        text = editing.formatted(document.source, "pg" if _is_schema(document) else "gq")
        if text is None or text == document.source:
            return None
        whole = _range(ls, document, 0, len(document.source))
        return [types.TextEdit(range=whole, new_text=text)]

    return server


def _is_schema(document: TextDocument) -> bool:
    return document.uri.endswith(".pg")


def _item(found: editing.Completion) -> types.CompletionItem:
    says = types.MarkupContent(kind=types.MarkupKind.Markdown, value=found.says)
    return types.CompletionItem(
        label=found.label, kind=_KINDS[found.kind], detail=found.detail, documentation=says
    )


def _publish(ls: LanguageServer, uri: str, schema_path: str | None) -> None:
    """Tell the problems of a document; those of queries also change with their schema."""
    document = ls.workspace.get_text_document(uri)
    documents = [document]
    if _is_schema(document):
        documents += [
            each
            for each in ls.workspace.text_documents.values()
            if not _is_schema(each) and each.uri != uri
        ]
    for each in documents:
        found = (
            editing.schema_problems(each.source)
            if _is_schema(each)
            else editing.query_problems(each.source, _catalog(ls, each, schema_path))
        )
        ls.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(
                uri=each.uri,
                version=each.version,
                diagnostics=[
                    types.Diagnostic(
                        range=_range(ls, each, one.at, one.end),
                        message=one.message,
                        severity=_SEVERITIES[one.severity],
                        code=one.code,
                        source="omnigraph",
                    )
                    for one in found
                ],
            )
        )


def _range(ls: LanguageServer, document: TextDocument, begin: int, end: int) -> types.Range:
    """Character offsets as places in the units of the client."""
    lines = document.lines

    def place(offset: int) -> types.Position:
        line = document.source.count("\n", 0, offset)
        start = document.source.rfind("\n", 0, offset) + 1
        position = types.Position(line=line, character=offset - start)
        if line >= len(lines):
            return position
        return ls.workspace.position_codec.position_to_client_units(lines, position)

    return types.Range(start=place(begin), end=place(end))


# --- the schema of a query file ------------------------------------------------------------------


def _catalog(ls: LanguageServer, document: TextDocument, schema_path: str | None) -> Catalog | None:
    path = Path(schema_path) if schema_path else _nearest_schema(_path(document.uri))
    if path is None:
        return None
    for opened in ls.workspace.text_documents.values():
        if _is_schema(opened) and _path(opened.uri) == path:
            return editing.catalog_of(opened.source)
    try:
        return editing.catalog_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def _path(uri: str) -> Path:
    return Path(unquote(urlparse(uri).path))


def _nearest_schema(query: Path) -> Path | None:
    """The schema in the folder of a query file or the nearest one above: the one of the same name,
    else the first."""
    for folder in [*query.parents][:_FOLDERS_UP_MAX]:
        found = sorted(folder.glob("*.pg")) if folder.is_dir() else []
        if found:
            return next((path for path in found if path.stem == query.stem), found[0])
    return None
