"""Embedders: text in, a unit vector of the asked length out.

The configuration is a value (`EmbedConfig`), read from a mapping of environment names by whoever
calls. Providers speak HTTP through the standard library; `mock` is a pure function of the text, for
tests and offline work; a Python callable may stand in for a provider.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, cast

import msgspec

from omnigraph.errors import EmbeddingError, EmbeddingModelMismatchError, InputError
from omnigraph.model.limits import EMBED_CACHE_BYTES_MAX
from omnigraph.model.ports import Purpose
from omnigraph.model.structs import HidingStruct
from omnigraph.storage.objects.root import fnv1a64

Provider = Literal["openai-compatible", "openai", "gemini", "mock"]
Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]

_MASK: Final = (1 << 64) - 1
_TRUE_WORDS: Final = frozenset({"1", "true", "yes", "on"})
_RETRIED_STATUS: Final = frozenset({408, 429})


class _Defaults(msgspec.Struct, frozen=True, kw_only=True):
    base_url: str
    model: str
    key_names: tuple[str, ...]


_PROVIDERS: Final[Mapping[str, _Defaults]] = {
    "openai-compatible": _Defaults(
        base_url="https://openrouter.ai/api/v1",
        model="openai/text-embedding-3-large",
        key_names=("OPENROUTER_API_KEY", "OPENAI_API_KEY"),
    ),
    "openai": _Defaults(
        base_url="https://api.openai.com/v1",
        model="text-embedding-3-large",
        key_names=("OPENAI_API_KEY",),
    ),
    "gemini": _Defaults(
        base_url="https://generativelanguage.googleapis.com/v1beta",
        model="gemini-embedding-2",
        key_names=("GEMINI_API_KEY",),
    ),
}


_PATIENCE: Final = {
    "timeout_ms": "OMNIGRAPH_EMBED_TIMEOUT_MS",
    "retry_attempts": "OMNIGRAPH_EMBED_RETRY_ATTEMPTS",
    "retry_backoff_ms": "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS",
    "deadline_ms": "OMNIGRAPH_EMBED_DEADLINE_MS",
}


class EmbedConfig(HidingStruct, frozen=True, kw_only=True):
    """Which embedder to use and how patient to be. `deadline_ms` 0 means no deadline."""

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"api_key"})

    provider: Provider = "openai-compatible"
    base_url: str = _PROVIDERS["openai-compatible"].base_url
    model: str | None = _PROVIDERS["openai-compatible"].model
    api_key: str | None = None
    timeout_ms: int = 30_000
    retry_attempts: int = 4
    retry_backoff_ms: int = 200
    deadline_ms: int = 60_000

    @classmethod
    def from_environment(cls, names: Mapping[str, str]) -> EmbedConfig:
        """The configuration that the environment names of the reference system describe."""
        mock = names.get("OMNIGRAPH_EMBEDDINGS_MOCK", "").strip().lower() in _TRUE_WORDS
        named = names.get("OMNIGRAPH_EMBED_PROVIDER", "").strip().lower() or "openai-compatible"
        model = names.get("OMNIGRAPH_EMBED_MODEL", "").strip() or None
        patience: dict[str, Any] = {}
        for field, name in _PATIENCE.items():
            text = names.get(name, "").strip()
            if text and not text.isdigit():
                raise InputError(
                    f"{name} must be a whole number of 0 or more, got '{text}'", name=name
                )
            if text:
                patience[field] = int(text)
        if patience.get("retry_attempts") == 0:
            patience["retry_attempts"] = 1  # one attempt is made in any case
        if mock or named == "mock":
            return cls(provider="mock", base_url="", model=model, **patience)
        defaults = _PROVIDERS.get(named)
        if defaults is None:
            known = ", ".join([*_PROVIDERS, "mock"])
            raise InputError(
                f"unknown embedding provider '{named}'", hint=f"use one of: {known}", provider=named
            )
        key = next((names[name] for name in defaults.key_names if names.get(name)), None)
        return cls(
            provider=named,  # type: ignore[arg-type]  # a key of _PROVIDERS
            base_url=(names.get("OMNIGRAPH_EMBED_BASE_URL") or defaults.base_url).rstrip("/"),
            model=model or defaults.model,
            api_key=key,
            **patience,
        )


class Embedder(ABC):
    """Turns text into unit vectors. `model` is None when it stands in for any model.

    `space` names what makes the vectors, so that work that was kept is known again; None: nobody
    can tell two such embedders apart, and nothing is kept beyond the process.
    """

    model: str | None
    space: str | None

    def embed(self, text: str, *, dimension: int, purpose: Purpose = "query") -> tuple[float, ...]:
        return self.embed_many([text], dimension=dimension, purpose=purpose)[0]

    @abstractmethod
    def embed_many(
        self, texts: Sequence[str], *, dimension: int, purpose: Purpose = "document"
    ) -> list[tuple[float, ...]]:
        """The vectors of all texts, in their order, in one exchange; all of them or an error.
        `at` of an `EmbeddingError` is the place of the text whose vector is of no use."""


def embedder(config: EmbedConfig | Embedder) -> Embedder:
    """The embedder that the configuration names."""
    if isinstance(config, Embedder):
        return config
    return MockEmbedder(config.model) if config.provider == "mock" else HttpEmbedder(config)


def embedder_for(asked: Any) -> Embedder | None:
    """The embedder that a caller means by a callable, an `EmbedConfig`, an `Embedder`, or True for
    the one that the environment names; None and False mean none."""
    if asked is None or asked is False:
        return None
    if asked is True:
        asked = environment_config()
    if isinstance(asked, EmbedConfig | Embedder):
        return embedder(asked)
    if not callable(asked):
        raise InputError(
            f"embedder must be a callable, an EmbedConfig or True, got {type(asked).__name__}",
            hint="a callable takes a list of texts and gives their vectors",
            argument="embedder",
        )
    return CallableEmbedder(cast("Embed", asked))


def environment_embedder() -> Embedder:
    """The embedder that the environment of this process names, looked at anew on every call."""
    return embedder(environment_config())


def environment_config() -> EmbedConfig:
    """The configuration that the environment of this process names, looked at anew."""
    return EmbedConfig.from_environment(os.environ)


def check_same_space(
    *, declared: str | None, used: str | None, property_name: str, what: str = "the query"
) -> None:
    """Refuse to compare vectors of two models: their distances mean nothing."""
    if declared is not None and used is not None and declared != used:
        raise EmbeddingModelMismatchError(
            property_name=property_name, declared=declared, used=used, what=what
        )


class MockEmbedder(Embedder):
    """A deterministic embedder: FNV-1a seeds a xorshift generator, and that fills the vector."""

    def __init__(self, model: str | None = None) -> None:
        self.model = model
        self.space = f"mock\x1f{model or ''}"

    def embed_many(
        self,
        texts: Sequence[str],
        *,
        dimension: int,
        purpose: Purpose = "document",  # noqa: ARG002 - the mock knows one space only
    ) -> list[tuple[float, ...]]:
        return [_mock_vector(text, dimension) for text in texts]


def _mock_vector(text: str, dimension: int) -> tuple[float, ...]:
    state = fnv1a64(text)
    values = []
    for _ in range(dimension):
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        values.append(state / 2**64 * 2.0 - 1.0)
    return _unit(values, dimension=dimension, source="mock")


class CallableEmbedder(Embedder):
    """An embedder that is a Python callable: a list of texts in, their vectors out.

    An attribute `model` of the callable says by which name a schema knows what it makes. Without
    one it fits every schema, and its work is kept in memory only: after a change of its code
    nobody could tell the old vectors from the new.
    """

    def __init__(self, call: Embed) -> None:
        model = getattr(call, "model", None)
        self.model = model if isinstance(model, str) and model else None
        self.space = None if self.model is None else f"callable\x1f{self.model}"
        self._call = call
        self._name = str(getattr(call, "__qualname__", type(call).__name__))

    def embed_many(
        self,
        texts: Sequence[str],
        *,
        dimension: int,
        purpose: Purpose = "document",  # noqa: ARG002 - a callable knows one space only
    ) -> list[tuple[float, ...]]:
        if not texts:
            return []
        try:
            made = list(self._call(list(texts)))
        except Exception as cause:
            raise EmbeddingError(
                f"embedder '{self._name}' failed: {type(cause).__name__}: {cause}",
                hint="what it has made before is kept: run it again when it works",
                provider=self._name,
            ) from cause
        if len(made) != len(texts):
            raise EmbeddingError(
                f"embedder '{self._name}' made {len(made)} vectors for {len(texts)} texts",
                provider=self._name,
            )
        return _units(made, dimension=dimension, source=f"'{self._name}'")


class CachingEmbedder(Embedder):
    """An embedder that remembers: a text that comes again is not embedded again, also when the
    write that asked for it failed. The oldest vectors go when they take too much memory."""

    def __init__(self, inner: Embedder, *, bytes_max: int = EMBED_CACHE_BYTES_MAX) -> None:
        self.model, self.space = inner.model, inner.space
        self._inner, self._bytes_max = inner, bytes_max
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, array[float]] = OrderedDict()
        self._bytes = 0

    def embed_many(
        self, texts: Sequence[str], *, dimension: int, purpose: Purpose = "document"
    ) -> list[tuple[float, ...]]:
        head = f"{dimension}\x1f{purpose}\x1f".encode()
        keys = [_digest(head, text) for text in texts]
        found: dict[bytes, Sequence[float]] = {}
        with self._lock:
            for key in keys:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    found[key] = self._kept[key]
        asked = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if asked:
            # Without the lock: a provider may take long, and two that ask for one text only pay.
            try:
                made = self._inner.embed_many(
                    list(asked.values()), dimension=dimension, purpose=purpose
                )
            except EmbeddingError as error:
                if "at" in error.facts:
                    error.facts["at"] = keys.index(list(asked)[error.facts["at"]])
                raise
            new = dict(zip(asked, made, strict=True))
            found |= new
            self._keep(new)
        return [tuple(found[key]) for key in keys]

    def _keep(self, new: Mapping[bytes, Sequence[float]]) -> None:
        with self._lock:
            for key, vector in new.items():
                if key not in self._kept:
                    self._kept[key] = array("d", vector)
                    self._bytes += 8 * len(vector)
            while self._bytes > self._bytes_max:
                self._bytes -= 8 * len(self._kept.popitem(last=False)[1])


def _digest(head: bytes, text: str) -> bytes:
    return hashlib.sha256(head + text.encode(errors="surrogatepass")).digest()


def _units(made: Sequence[Any], *, dimension: int, source: str) -> list[tuple[float, ...]]:
    """The vectors, each scaled to length one; `at` of an error is the place of a bad one."""
    found = []
    for at, values in enumerate(made):
        try:
            found.append(_unit(values, dimension=dimension, source=source))
        except EmbeddingError as error:
            error.facts["at"] = at
            raise
    return found


def _unit(values: Sequence[Any], *, dimension: int, source: str) -> tuple[float, ...]:
    """The vector scaled to length one, or an error if it is none that we can use."""
    try:
        size = len(values)
    except TypeError as cause:
        raise EmbeddingError(f"embedding from {source} is no list of numbers", source=source) from (
            cause
        )
    if size != dimension:
        raise EmbeddingError(
            f"embedding from {source} has {size} numbers, expected {dimension}", source=source
        )
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError) as cause:
        raise EmbeddingError(f"embedding from {source} is no list of numbers", source=source) from (
            cause
        )
    length = math.sqrt(math.fsum(number * number for number in numbers))
    if not math.isfinite(length) or length == 0.0:
        raise EmbeddingError(f"embedding from {source} is not finite or all zero", source=source)
    return tuple(number / length for number in numbers)


class Request(HidingStruct, frozen=True, kw_only=True):
    """What an HTTP server is asked, by POST. Its headers hold the provider's key."""

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"headers"})

    url: str
    body: bytes
    headers: Mapping[str, str]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What an HTTP server answered."""

    status: int
    body: bytes


Transport = Callable[[Request, float], Reply]


def http_transport(request: Request, timeout_s: float) -> Reply:
    """One HTTP exchange; an error status is an answer, a broken connection is an OSError."""
    # Imported when a provider is asked: every process would pay for it, and few ever ask.
    from urllib import error as http_error  # noqa: PLC0415
    from urllib import request as http  # noqa: PLC0415

    asked = http.Request(  # noqa: S310 - the scheme was checked when the embedder was made
        request.url, data=request.body, headers=dict(request.headers), method="POST"
    )
    try:
        with http.urlopen(asked, timeout=timeout_s) as answer:  # noqa: S310
            return Reply(status=answer.status, body=answer.read())
    except http_error.HTTPError as refused:
        with refused:
            return Reply(status=refused.code, body=refused.read())


class HttpEmbedder(Embedder):
    """An embedder behind an OpenAI-style or Gemini HTTP interface, with retries and a deadline."""

    def __init__(
        self,
        config: EmbedConfig,
        *,
        transport: Transport = http_transport,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not config.base_url.startswith(("http://", "https://")):
            raise InputError(
                f"embedding base URL must be http or https, got '{config.base_url}'",
                base_url=config.base_url,
            )
        self.model = config.model
        self.space = f"{config.provider}\x1f{config.base_url}\x1f{config.model or ''}"
        self._config = config
        self._transport = transport
        self._sleep = sleep
        self._monotonic = monotonic

    def embed_many(
        self, texts: Sequence[str], *, dimension: int, purpose: Purpose = "document"
    ) -> list[tuple[float, ...]]:
        if not texts:
            return []
        if self._config.api_key is None:
            wanted = " or ".join(_PROVIDERS[self._config.provider].key_names)
            raise InputError(
                f"embedding provider '{self._config.provider}' needs an API key",
                hint=f"set {wanted}, or OMNIGRAPH_EMBEDDINGS_MOCK=1 to work without a provider",
                provider=self._config.provider,
            )
        request = self._request(texts, dimension, purpose)
        vectors = self._vectors(self._exchange(request), count=len(texts))
        source = self._config.provider
        return _units(vectors, dimension=dimension, source=source)

    def _request(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> Request:
        config = self._config
        headers = {"Content-Type": "application/json"}
        if config.provider == "gemini":
            headers["x-goog-api-key"] = config.api_key or ""
            asked: list[dict[str, Any]] = [
                {
                    "model": f"models/{config.model}",
                    "content": {"parts": [{"text": text}]},
                    "taskType": f"RETRIEVAL_{purpose.upper()}",
                    "outputDimensionality": dimension,
                }
                for text in texts
            ]
            single = len(asked) == 1
            verb = "embedContent" if single else "batchEmbedContents"
            url = f"{config.base_url}/models/{config.model}:{verb}"
            body: dict[str, Any] = asked[0] if single else {"requests": asked}
        else:
            url = f"{config.base_url}/embeddings"
            headers["Authorization"] = f"Bearer {config.api_key}"
            body = {"model": config.model, "input": list(texts), "dimensions": dimension}
        return Request(url=url, body=json.dumps(body).encode(), headers=headers)

    def _exchange(self, request: Request) -> bytes:
        """The body of the first good answer within the attempts and the deadline."""
        config = self._config
        started = self._monotonic()
        backoff_s = config.retry_backoff_ms / 1000
        reason = "no attempt was made"
        refused = False
        for attempt in range(config.retry_attempts):
            if attempt:
                left_s = self._left(started)
                if left_s is not None and left_s <= backoff_s:
                    break
                self._sleep(backoff_s)
                backoff_s *= 2
            timeout_s = config.timeout_ms / 1000
            left_s = self._left(started)
            if left_s is not None:
                timeout_s = max(0.001, min(timeout_s, left_s))
            try:
                reply = self._transport(request, timeout_s)
            except OSError as cause:  # timeouts, refused connections, broken pipes
                reason = str(cause) or type(cause).__name__
                continue
            if 200 <= reply.status < 300:
                return reply.body
            reason = f"HTTP {reply.status}: {reply.body[:200].decode(errors='replace')}"
            if reply.status not in _RETRIED_STATUS and reply.status < 500:
                refused = True
                break
        raise self._failed(f"did not answer: {reason}", reason=reason, refused=refused)

    def _failed(self, how: str, **facts: Any) -> EmbeddingError:
        provider = self._config.provider
        return EmbeddingError(f"embedding provider '{provider}' {how}", provider=provider, **facts)

    def _left(self, started: float) -> float | None:
        if self._config.deadline_ms == 0:
            return None
        return self._config.deadline_ms / 1000 - (self._monotonic() - started)

    def _vectors(self, body: bytes, *, count: int) -> list[Sequence[Any]]:
        """The vectors of the answer in the order of the texts."""
        try:
            answer = json.loads(body)
            if self._config.provider == "gemini":
                listed = [answer["embedding"]] if count == 1 else answer["embeddings"]
                vectors = [one["values"] for one in listed]
            else:
                listed = answer["data"]
                # The order is the server's; the index says which text was meant.
                placed = sorted(enumerate(listed), key=lambda at: at[1].get("index", at[0]))
                vectors = [one["embedding"] for _, one in placed]
            vectors[0]  # no vector at all is the same as an answer of another form
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as cause:
            raise self._failed("sent an answer without a vector") from cause
        if len(vectors) != count:
            raise self._failed(f"sent {len(vectors)} vectors for {count} texts")
        if not all(isinstance(values, list) for values in vectors):
            raise self._failed("sent a vector that is no list")
        return vectors
