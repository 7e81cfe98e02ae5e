"""Embedders: the mock is a fixed function, the others speak HTTP with patience and no more."""

from __future__ import annotations

import json
import math
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from omnigraph.engine.embed import (
    EmbedConfig,
    HttpEmbedder,
    MockEmbedder,
    Request,
    check_same_space,
    embedder,
)
from omnigraph.errors import EmbeddingError, EmbeddingModelMismatchError, InputError


class Provider:
    """An embedding provider on loopback that answers from a script and remembers what it got."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, dict(self.headers), body))
                status, answer = outer.answers.pop(0)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"


def openai(values):
    return 200, {"data": [{"embedding": values}]}


def config(server, **changes):
    fields = {
        "provider": "openai",
        "base_url": server.url,
        "model": "m",
        "api_key": "key",
        "retry_backoff_ms": 1,
    }
    return EmbedConfig(**{**fields, **changes})


def test_a_key_is_in_no_repr():
    asked = Request(url="u", body=b"", headers={"Authorization": "Bearer hidden-key"})
    assert "hidden-key" not in f"{asked!r} {EmbedConfig(api_key='hidden-key')!r}"


def test_the_mock_gives_the_vectors_that_the_reference_system_gives():
    expected = [-0.5420488119125366, -0.47179943323135376, 0.16090507805347443, 0.6765337586402893]
    found = MockEmbedder().embed("alpha", dimension=4)
    assert found == pytest.approx(expected, abs=1e-6)
    assert math.hypot(*found) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({}, ("openai-compatible", "openai/text-embedding-3-large", None)),
        ({"OPENAI_API_KEY": "o"}, ("openai-compatible", "openai/text-embedding-3-large", "o")),
        (
            {"OPENROUTER_API_KEY": "r", "OPENAI_API_KEY": "o"},
            ("openai-compatible", "openai/text-embedding-3-large", "r"),
        ),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "gemini", "GEMINI_API_KEY": "g"},
            ("gemini", "gemini-embedding-2", "g"),
        ),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "openai", "OMNIGRAPH_EMBED_MODEL": "x"},
            ("openai", "x", None),
        ),
        (
            {"OMNIGRAPH_EMBEDDINGS_MOCK": "yes", "OMNIGRAPH_EMBED_PROVIDER": "gemini"},
            ("mock", None, None),
        ),
    ],
)
def test_the_environment_names_choose_provider_model_and_key(names, expected):
    found = EmbedConfig.from_environment(names)
    assert (found.provider, found.model, found.api_key) == expected


@pytest.mark.parametrize(
    "names",
    [{"OMNIGRAPH_EMBED_PROVIDER": "nobody"}, {"OMNIGRAPH_EMBED_TIMEOUT_MS": "soon"}],
)
def test_a_wrong_configuration_is_refused_by_name(names):
    with pytest.raises(InputError) as caught:
        EmbedConfig.from_environment(names)
    assert next(iter(names.values())) in str(caught.value)


def test_an_openai_request_carries_model_text_dimension_and_key():
    with Provider(openai([3.0, 4.0])) as provider:
        found = embedder(config(provider)).embed("some text", dimension=2)
    path, headers, body = provider.requests[0]
    assert found == pytest.approx((0.6, 0.8))
    assert path == "/v1/embeddings"
    assert headers["Authorization"] == "Bearer key"
    assert body == {"model": "m", "input": ["some text"], "dimensions": 2}


@pytest.mark.parametrize(
    ("purpose", "task"), [("query", "RETRIEVAL_QUERY"), ("document", "RETRIEVAL_DOCUMENT")]
)
def test_a_gemini_request_says_what_the_vector_is_for(purpose, task):
    with Provider((200, {"embedding": {"values": [0.0, 2.0]}})) as provider:
        made = embedder(config(provider, provider="gemini", model="g1"))
        found = made.embed("t", dimension=2, purpose=purpose)
    path, headers, body = provider.requests[0]
    assert found == (0.0, 1.0)
    assert path == "/v1/models/g1:embedContent"
    assert {name.lower(): value for name, value in headers.items()}["x-goog-api-key"] == "key"
    assert body["taskType"] == task
    assert body["outputDimensionality"] == 2


def test_many_texts_travel_in_one_openai_request_and_come_back_in_their_order():
    answer = {
        "data": [{"index": 1, "embedding": [0.0, 2.0]}, {"index": 0, "embedding": [2.0, 0.0]}]
    }
    with Provider((200, answer)) as provider:
        found = embedder(config(provider)).embed_many(["a", "b"], dimension=2)
    assert found == [(1.0, 0.0), (0.0, 1.0)]
    assert [body["input"] for _, _, body in provider.requests] == [["a", "b"]]


def test_many_texts_travel_in_one_gemini_request():
    answer = {"embeddings": [{"values": [2.0, 0.0]}, {"values": [0.0, 2.0]}]}
    with Provider((200, answer)) as provider:
        made = embedder(config(provider, provider="gemini", model="g1"))
        found = made.embed_many(["a", "b"], dimension=2)
    ((path, _, body),) = provider.requests
    assert found == [(1.0, 0.0), (0.0, 1.0)]
    assert path == "/v1/models/g1:batchEmbedContents"
    assert [one["content"]["parts"][0]["text"] for one in body["requests"]] == ["a", "b"]
    assert {one["taskType"] for one in body["requests"]} == {"RETRIEVAL_DOCUMENT"}


def test_an_answer_with_fewer_vectors_than_texts_is_refused():
    with (
        Provider(openai([1.0])) as provider,
        pytest.raises(EmbeddingError, match="1 vectors for 2 texts"),
    ):
        embedder(config(provider)).embed_many(["a", "b"], dimension=1)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_provider_is_asked_again(status):
    with Provider((status, {}), (status, {}), openai([1.0])) as provider:
        assert embedder(config(provider)).embed("t", dimension=1) == (1.0,)
    assert len(provider.requests) == 3


@pytest.mark.parametrize(
    ("answers", "requests", "words"),
    [
        ([(401, {"error": "no such key"})], 1, "no such key"),
        ([(500, {})] * 4, 4, "HTTP 500"),
        ([openai([1.0, 2.0])], 1, "2 numbers, expected 1"),
        ([openai([0.0])], 1, "all zero"),
        ([openai(["a"])], 1, "no list of numbers"),
        ([(200, {"data": []})], 1, "without a vector"),
    ],
)
def test_an_unusable_answer_is_an_error_that_says_why(answers, requests, words):
    with Provider(*answers) as provider, pytest.raises(EmbeddingError, match=words):
        embedder(config(provider)).embed("t", dimension=1)
    assert len(provider.requests) == requests


def test_a_provider_that_is_not_there_is_given_up_after_the_attempts():
    tried = []

    def refuse(request, timeout_s):
        tried.append(timeout_s)
        raise ConnectionRefusedError("nobody listens")

    made = HttpEmbedder(
        EmbedConfig(api_key="k", retry_attempts=3), transport=refuse, sleep=lambda seconds: None
    )
    with pytest.raises(EmbeddingError, match="nobody listens"):
        made.embed("t", dimension=1)
    assert len(tried) == 3


def test_the_deadline_ends_the_attempts_and_shortens_the_last_one():
    now = [0.0]
    timeouts = []

    def hang(request, timeout_s):
        timeouts.append(timeout_s)
        now[0] += timeout_s
        raise TimeoutError("too slow")

    made = HttpEmbedder(
        EmbedConfig(api_key="k", timeout_ms=4000, deadline_ms=6000, retry_attempts=9),
        transport=hang,
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
        monotonic=lambda: now[0],
    )
    with pytest.raises(EmbeddingError):
        made.embed("t", dimension=1)
    assert timeouts == pytest.approx([4.0, 1.8])
    assert now[0] <= 6.0


def test_without_a_key_the_error_names_the_variable_to_set():
    with pytest.raises(InputError) as caught:
        embedder(EmbedConfig()).embed("t", dimension=1)
    assert "OPENROUTER_API_KEY" in (caught.value.hint or "")


def test_vectors_of_two_models_are_never_compared():
    check_same_space(declared=None, used="b", property_name="T.v")
    check_same_space(declared="a", used=None, property_name="T.v")
    with pytest.raises(EmbeddingModelMismatchError) as caught:
        check_same_space(declared="a", used="b", property_name="T.v")
    assert (caught.value.facts["declared"], caught.value.facts["used"]) == ("a", "b")
