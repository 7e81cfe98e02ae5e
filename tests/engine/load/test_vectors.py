"""Vectors made while loading: filled from text, batched, checked, kept for a second try."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyarrow import parquet
from twins import bulk_load

from omnigraph import Graph, Source, pipeline
from omnigraph.engine.embed import EmbedConfig, MockEmbedder
from omnigraph.errors import (
    ConstraintViolationError,
    EmbeddingError,
    EmbeddingModelMismatchError,
    InputError,
    RecordError,
)
from omnigraph.model.limits import EMBED_BATCH_TEXTS

SCHEMA = """
node Note {
  slug: String @key
  text: String?
  stars: I32?
  vec: Vector(4)? @embed("text", model="m1")
  @range(stars, 0..5)
}
node Page {
  slug: String @key
  body: String?
  vec: Vector(3) @embed("body")
}
edge Cites: Note -> Page
"""
MOCK = EmbedConfig(provider="mock", base_url="", model="m1")
NOTE_VECTORS = "query all() { match { $n: Note } return { $n.slug, $n.vec } }"
PAGE_VECTORS = "query all() { match { $p: Page } return { $p.slug, $p.vec } }"


@pytest.fixture
def graph(tmp_path):
    uri = str(tmp_path / "graph")
    Graph.init(uri, SCHEMA, durability="process").close()
    return uri


def node(kind: str, **data) -> dict:
    return {"type": kind, "data": data}


def written(folder: Path, records: list, name: str = "in.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def loaded(graph: str, sources, *, mode: str = "append", embed=MOCK, **options):
    return bulk_load(graph, sources, mode=mode, embed=embed, **options)


def vectors(graph: str, query: str = NOTE_VECTORS) -> dict:
    with Graph.open(graph) as opened:
        rows = opened.query(query).to_pylist()
    return {row["n.slug" if "n.slug" in row else "p.slug"]: _vec(row) for row in rows}


def _vec(row: dict):
    return next(value for name, value in row.items() if name.endswith("vec"))


def mock(text: str, dimension: int = 4):
    return pytest.approx(MockEmbedder().embed(text, dimension=dimension), abs=1e-6)


# --- what is filled ---------------------------------------------------------------------------


def test_missing_vectors_are_made_and_given_ones_stay(graph, tmp_path):
    records = [
        node("Note", slug="made", text="hello"),
        node("Note", slug="spelled-null", text="hello", vec=None),
        node("Note", slug="given", text="hello", vec=[0, 0, 0, 1]),
        node("Note", slug="no-text"),
        node("Note", slug="null-text", text=None),
        node("Note", slug="blank", text="  "),
        node("Page", slug="required", body="a page"),
    ]
    report = loaded(graph, str(written(tmp_path, records)))
    assert vectors(graph) == {
        "made": mock("hello"),
        "spelled-null": mock("hello"),
        "given": [0, 0, 0, 1],
        "no-text": None,
        "null-text": None,
        "blank": None,
    }
    assert vectors(graph, PAGE_VECTORS) == {"required": mock("a page", 3)}
    assert (report.vectors, report.to_json()["vectors"]) == (3, 3)


def test_without_embed_nothing_is_made(graph, tmp_path):
    report = loaded(graph, str(written(tmp_path, [node("Note", slug="a", text="x")])), embed=None)
    assert vectors(graph) == {"a": None}
    assert report.vectors == 0
    with pytest.raises(ConstraintViolationError):
        loaded(graph, str(written(tmp_path, [node("Page", slug="a", body="x")])), embed=None)


def test_a_required_vector_without_text_is_refused_with_its_place(graph, tmp_path):
    path = written(tmp_path, [node("Page", slug="a", body="x"), node("Page", slug="b")])
    with pytest.raises(ConstraintViolationError) as refused:
        loaded(graph, str(path))
    assert str(refused.value.violations[0].place) == f"{path}:2"
    assert refused.value.violations[0].property == "vec"
    assert vectors(graph, PAGE_VECTORS) == {}


def test_a_given_vector_that_does_not_fit_is_an_error_and_not_a_gap(graph, tmp_path):
    path = written(tmp_path, [node("Note", slug="a", text="x", vec=[1.0, 2.0])])
    with pytest.raises((ConstraintViolationError, RecordError)):
        loaded(graph, str(path))


def test_a_merge_makes_the_vector_of_the_new_text(graph, tmp_path):
    loaded(graph, str(written(tmp_path, [node("Note", slug="a", text="old")])))
    loaded(graph, str(written(tmp_path, [node("Note", slug="a", text="new")])), mode="merge")
    assert vectors(graph) == {"a": mock("new")}


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_typed_sources_may_leave_a_required_vector_out(graph, tmp_path, form):
    path = tmp_path / f"pages.{form}"
    rows = [{"slug": "a", "body": "one"}, {"slug": "b", "body": "two"}]
    if form == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif form == "csv":
        path.write_text("slug,body\n" + "".join(f"{r['slug']},{r['body']}\n" for r in rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"Page": getattr(Source, form)(str(path))}
    loaded(graph, source)
    assert vectors(graph, PAGE_VECTORS) == {"a": mock("one", 3), "b": mock("two", 3)}
    with pytest.raises(InputError, match="no column for required 'vec'"):
        loaded(graph, source, embed=None)


def test_a_model_that_the_schema_does_not_name_is_refused(graph, tmp_path):
    path = written(tmp_path, [node("Page", slug="p", body="x"), node("Note", slug="n", text="x")])
    with pytest.raises(EmbeddingModelMismatchError, match=r"'m1'.*the load .*'m2'"):
        loaded(graph, str(path), embed=replace(MOCK, model="m2"))
    only_pages = written(tmp_path, [node("Page", slug="p", body="x")])
    loaded(graph, str(only_pages), embed=replace(MOCK, model="m2"))
    assert vectors(graph, PAGE_VECTORS) == {"p": mock("x", 3)}


# --- over HTTP: batches, failures, second tries -----------------------------------------------


class Provider:
    """An OpenAI-style server on loopback. Texts with `refuse` are refused; `down` fails all."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.down_after: int | None = None
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                texts, dimension = body["input"], body["dimensions"]
                down = provider.down_after is not None and (
                    len(provider.batches) >= provider.down_after
                )
                if down or any("refuse" in text for text in texts):
                    self.send_response(503 if down else 400)
                    self.end_headers()
                    return
                provider.batches.append(texts)
                made = [
                    {"index": at, "embedding": MockEmbedder().embed(text, dimension=dimension)}
                    for at, text in enumerate(texts)
                ]
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"data": made[::-1]}).encode())

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def config(self) -> EmbedConfig:
        return EmbedConfig(
            base_url=self.url, model="m1", api_key="k", retry_attempts=2, retry_backoff_ms=1
        )

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def provider():
    server = Provider()
    yield server
    server.stop()


def many(count: int) -> list:
    return [node("Note", slug=f"n{i:03}", text=f"text {i}") for i in range(count)]


def test_texts_travel_in_batches_and_each_of_them_once(graph, tmp_path, provider):
    records = [*many(EMBED_BATCH_TEXTS + 10), node("Note", slug="twin", text="text 0")]
    report = loaded(graph, str(written(tmp_path, records)), embed=provider.config)
    assert [len(batch) for batch in provider.batches] == [EMBED_BATCH_TEXTS, 10]
    found = vectors(graph)
    assert found["n003"] == mock("text 3")
    assert found["twin"] == found["n000"] == mock("text 0")
    assert report.vectors == EMBED_BATCH_TEXTS + 11


@pytest.mark.parametrize("on_error", ["fail", "quarantine"])
def test_a_text_that_is_refused_fails_the_load_and_is_named(graph, tmp_path, provider, on_error):
    records = [*many(5), node("Note", slug="bad", text="please refuse"), *many(9)[6:]]
    path = written(tmp_path, records)
    with pytest.raises(EmbeddingError) as failed:
        loaded(graph, str(path), embed=provider.config, on_error=on_error)
    error = failed.value
    assert (error.type_name, error.property_name, error.place) == ("Note", "vec", f"{path}:6")
    assert str(error).startswith(f"{path}:6: no vector for 'Note.vec': ")
    assert "HTTP 400" in str(error)
    assert vectors(graph) == {}


def test_records_that_are_refused_anyway_are_not_embedded(graph, tmp_path, provider):
    records = [node("Note", slug="bad", text="costly", stars=9), *many(2)]
    path = str(written(tmp_path, records))
    with pytest.raises(ConstraintViolationError):
        loaded(graph, path, embed=provider.config)
    assert provider.batches == []
    report = loaded(graph, path, embed=provider.config, on_error="quarantine")
    assert provider.batches == [["text 0", "text 1"]]
    assert (report.rejected_total, report.vectors) == (1, 2)


def test_a_load_with_a_key_asks_only_for_what_is_missing_when_it_is_repeated(
    graph, tmp_path, provider
):
    path = str(written(tmp_path, many(2 * EMBED_BATCH_TEXTS + 5)))
    provider.down_after = 1
    with pytest.raises(EmbeddingError, match="HTTP 503"):
        loaded(graph, path, embed=provider.config, idempotency_key="night-7")
    provider.down_after = None
    report = loaded(graph, path, embed=provider.config, idempotency_key="night-7")
    assert [len(batch) for batch in provider.batches] == [EMBED_BATCH_TEXTS, EMBED_BATCH_TEXTS, 5]
    assert report.vectors == 2 * EMBED_BATCH_TEXTS + 5
    assert vectors(graph)["n003"] == mock("text 3")
    again = loaded(graph, path, embed=provider.config, idempotency_key="night-7")
    assert again.status == "already_loaded"
    assert len(provider.batches) == 3
    assert list(Path(graph).rglob("embeddings-*")) == []


def test_a_kept_file_that_was_cut_off_is_made_again(graph, tmp_path, provider):
    path = str(written(tmp_path, many(EMBED_BATCH_TEXTS + 1)))
    provider.down_after = 1
    with pytest.raises(EmbeddingError):
        loaded(graph, path, embed=provider.config, idempotency_key="k")
    (kept,) = Path(graph).rglob("*.f32")
    kept.write_bytes(kept.read_bytes()[:-9])
    provider.down_after = None
    loaded(graph, path, embed=provider.config, idempotency_key="k")
    assert [len(batch) for batch in provider.batches] == [EMBED_BATCH_TEXTS, EMBED_BATCH_TEXTS, 1]
    assert vectors(graph)["n064"] == mock("text 64")


def test_a_load_without_a_key_keeps_its_vectors_until_it_lands(graph, tmp_path, provider):
    provider.down_after = 1
    path = str(written(tmp_path, many(EMBED_BATCH_TEXTS + 1)))
    with pytest.raises(EmbeddingError):
        loaded(graph, path, embed=provider.config)
    provider.down_after = None
    loaded(graph, path, embed=provider.config)
    assert [len(batch) for batch in provider.batches] == [EMBED_BATCH_TEXTS, 1]
    assert list(Path(graph).rglob("*.f32")) == []


def test_another_load_that_lands_leaves_the_vectors_of_one_that_failed(graph, tmp_path, provider):
    provider.down_after = 1
    path = str(written(tmp_path, many(EMBED_BATCH_TEXTS + 1)))
    with pytest.raises(EmbeddingError):
        loaded(graph, path, embed=provider.config)
    provider.down_after = None
    other = written(tmp_path, [node("Note", slug="z", text="other")], "other.jsonl")
    loaded(graph, str(other), embed=provider.config)
    loaded(graph, path, embed=provider.config)
    assert [len(batch) for batch in provider.batches] == [EMBED_BATCH_TEXTS, 1, 1]
    assert list(Path(graph).rglob("*.f32")) == []


def test_a_provider_without_a_key_is_refused_in_its_own_words(graph, tmp_path, provider):
    path = str(written(tmp_path, many(1)))
    with pytest.raises(InputError, match="needs an API key"):
        loaded(graph, path, embed=replace(provider.config, api_key=None))
    assert "secret" not in repr(replace(provider.config, api_key="secret"))


# --- on Spark ---------------------------------------------------------------------------------


@pytest.mark.spark
def test_executors_make_vectors_for_files_and_frames(graph, tmp_path, spark, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    path = written(tmp_path, [node("Note", slug="n", text="hello")])
    frame = spark.createDataFrame([("p", "a page"), ("q", "two")], "slug string, body string")
    report = pipeline.load(spark, graph, [str(path), {"Page": frame}], mode="append", embed=True)
    assert report.vectors == 3
    assert vectors(graph) == {"n": mock("hello")}
    assert vectors(graph, PAGE_VECTORS) == {"p": mock("a page", 3), "q": mock("two", 3)}


@pytest.mark.spark
def test_a_failure_on_executors_arrives_as_itself(graph, spark, provider):
    frame = spark.createDataFrame([("p", "refuse this")], "slug string, body string").coalesce(1)
    with pytest.raises(EmbeddingError) as failed:
        pipeline.load(spark, graph, {"Page": frame}, mode="append", embed=provider.config)
    assert (failed.value.type_name, failed.value.property_name) == ("Page", "vec")
    assert failed.value.place.endswith("row 1")
