"""Embedders: text in, a unit vector of the asked length out.

The configuration is a value (`EmbedConfig`), read from a mapping of environment names by whoever
calls. Providers speak HTTP through the standard library; `mock` is a pure function of the text, for
tests and offline work.
"""

from __future__ import annotations

import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import msgspec

from omnigraph.errors import EmbeddingError, EmbeddingModelMismatchError, InputError, RecordError
from omnigraph.model.structs import HidingStruct
from omnigraph.storage.objects.root import fnv1a64

Provider = Literal["openai-compatible", "openai", "gemini", "mock"]
Purpose = Literal["query", "document"]

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
    """Turns text into unit vectors. `model` is None when it stands in for any model."""

    model: str | None

    def embed(self, text: str, *, dimension: int, purpose: Purpose = "query") -> tuple[float, ...]:
        return self.embed_many([text], dimension=dimension, purpose=purpose)[0]

    @abstractmethod
    def embed_many(
        self, texts: Sequence[str], *, dimension: int, purpose: Purpose = "document"
    ) -> list[tuple[float, ...]]:
        """The vectors of all texts, in their order, in one exchange; all of them or an error."""


def embedder(config: EmbedConfig) -> Embedder:
    """The embedder that the configuration names."""
    return MockEmbedder(config.model) if config.provider == "mock" else HttpEmbedder(config)


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


def _unit(values: Sequence[Any], *, dimension: int, source: str) -> tuple[float, ...]:
    """The vector scaled to length one, or an error if it is none that we can use."""
    if len(values) != dimension:
        raise EmbeddingError(
            f"embedding from {source} has {len(values)} numbers, expected {dimension}",
            source=source,
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
        return [_unit(values, dimension=dimension, source=source) for values in vectors]

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


# --- the vectors of an NDJSON file ----------------------------------------------------------------

# Records travel one at a time, so a file of any size needs little memory; the output appears under
# its name only when it is complete. Edge records and types that the spec does not name pass by.

Mode = Literal["fill_missing", "reembed_selected", "reembed_all", "clean"]


class TypeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which property of a node type holds the vector, and which fields make up its text."""

    target: str
    fields: tuple[str, ...]


class EmbedSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to embed: the length of the vectors, and the types that have them."""

    dimension: int
    types: Mapping[str, TypeSpec]

    @classmethod
    def from_mapping(cls, body: Any, *, where: str) -> EmbedSpec:
        """Read `{dimension, types: {T: {target, fields}}}`, or say what is wrong with it."""
        if not isinstance(body, Mapping):
            raise InputError(f"{where} must be a mapping with 'dimension' and 'types'")
        dimension = body.get("dimension")
        if not isinstance(dimension, int) or isinstance(dimension, bool) or dimension < 1:
            raise InputError(f"{where}: 'dimension' must be a whole number of 1 or more")
        types = body.get("types")
        if not isinstance(types, Mapping) or not types:
            raise InputError(f"{where}: 'types' must name at least one node type")
        return cls(
            dimension=dimension,
            types={str(name): _type_spec(name, value, where) for name, value in types.items()},
        )


def _type_spec(name: Any, value: Any, where: str) -> TypeSpec:
    facts = value if isinstance(value, Mapping) else {}
    target, fields = facts.get("target"), facts.get("fields")
    if not isinstance(target, str) or not target:
        raise InputError(f"{where}: type '{name}' needs a 'target' property")
    if not isinstance(fields, list) or not fields or not all(isinstance(f, str) for f in fields):
        raise InputError(f"{where}: type '{name}' needs 'fields', a list of property names")
    return TypeSpec(target=target, fields=tuple(fields))


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one type whose field has this value."""

    type_name: str
    field: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Read `Type:field=value`."""
        type_name, colon, rest = text.partition(":")
        field, equals, value = rest.partition("=")
        if not (colon and equals and type_name and field):
            raise InputError(f"'{text}' is not of the form Type:field=value")
        return cls(type_name=type_name, field=field, value=value)

    def matches(self, type_name: str, data: Mapping[str, Any]) -> bool:
        return type_name == self.type_name and _text(data.get(self.field)) == self.value


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are meant. Without types and selectors, every record the spec knows."""

    mode: Mode
    types: tuple[str, ...] = ()
    selectors: tuple[Selector, ...] = ()

    def selects(self, type_name: str, data: Mapping[str, Any]) -> bool:
        every = not self.types and not self.selectors
        chosen = any(selector.matches(type_name, data) for selector in self.selectors)
        return every or chosen or type_name in self.types


class EmbedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a file's records."""

    records: int = 0
    selected_records: int = 0
    embedded_records: int = 0
    cleaned_records: int = 0


def embed_file(
    source: Path, output: Path, *, spec: EmbedSpec, selection: Selection, embedder: Embedder
) -> EmbedSummary:
    """Write the source with its vectors filled, renewed or removed; all of it, or nothing."""
    unknown = sorted(
        {*selection.types, *(one.type_name for one in selection.selectors)} - spec.types.keys()
    )
    if unknown:
        known = ", ".join(sorted(spec.types))
        raise InputError(f"the spec has no type '{unknown[0]}'", hint=f"it has: {known}")
    counts: Counter[str] = Counter()
    unfinished = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as out:
            for record in _records(source):
                counts.update(_treat(record, spec, selection, embedder))
                out.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(output)
    except OSError as cause:
        raise InputError(f"cannot embed '{source}' into '{output}': {cause}") from cause
    finally:
        unfinished.unlink(missing_ok=True)
    return EmbedSummary(**counts)


def _records(source: Path) -> Iterator[dict[str, Any]]:
    with source.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as cause:
                message = f"{source}:{number}: not a JSON value: {cause}"
                raise RecordError(message, line=number) from cause
            if not isinstance(record, dict):
                raise RecordError(f"{source}:{number}: a record is a JSON object", line=number)
            yield record


def _treat(
    record: dict[str, Any], spec: EmbedSpec, selection: Selection, embedder: Embedder
) -> Iterator[str]:
    """Do to one record what the selection says, in place; where the summary is to count it."""
    yield "records"
    type_name, data = record.get("type"), record.get("data")
    rule = spec.types.get(type_name) if isinstance(type_name, str) else None
    if rule is None or not isinstance(type_name, str) or not isinstance(data, dict):
        return
    if not selection.selects(type_name, data):
        return
    yield "selected_records"
    present = data.get(rule.target) is not None
    if selection.mode == "clean":
        data.pop(rule.target, None)
        if present:
            yield "cleaned_records"
    elif not (present and selection.mode == "fill_missing"):
        text = embedding_text(type_name, data, rule.fields)
        vector = embedder.embed(text, dimension=spec.dimension, purpose="document")
        data[rule.target] = list(vector)
        yield "embedded_records"


def embedding_text(type_name: str, data: Mapping[str, Any], fields: Sequence[str]) -> str:
    """The text that stands for a record: its type, then each field that has a value."""
    lines = [f"type: {type_name}"]
    lines += [f"{name}: {_text(data[name])}" for name in fields if data.get(name) is not None]
    return "\n".join(lines)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
