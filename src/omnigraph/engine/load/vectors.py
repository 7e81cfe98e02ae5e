"""Vectors that a write makes itself: `@embed` properties that rows lack, from their text.

Runs inside the staging tasks of a load, and over the pending rows of a mutation. Texts go to the
embedder in batches, each text of a batch once. With a folder to keep them in, every finished batch
is put aside there under a name made from its texts and the model, so that a task or a whole load
that is run again asks only for what is missing.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph.engine.arrow import Column, Ints, Mask, as_mask, flat, pc, picked
from omnigraph.engine.check.rules import Cells, Entity
from omnigraph.engine.embed import EmbedConfig, check_same_space, embedder
from omnigraph.errors import EmbeddingError, NotFoundError, OmnigraphError
from omnigraph.model.limits import EMBED_BATCH_TEXTS
from omnigraph.model.ports import TextEmbedder
from omnigraph.model.schema import Property
from omnigraph.storage.objects.files import FileAccess

_Floats = np.ndarray[tuple[int, int], np.dtype[np.float32]]
_CHECKSUM_BYTES = 4


class EmbedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How the tasks of a load make vectors; `kept` is a folder for finished ones, None: nowhere.
    A configuration becomes an embedder where the task runs, on an executor perhaps."""

    source: EmbedConfig | TextEmbedder
    kept: str | None = None


def kept_folder(staging: str, *, branch: str, told_by: str) -> str:
    """Where the vectors of one load wait for its repetition, which is told by the same words."""
    name = hashlib.sha256(f"{branch}\x1f{told_by}".encode()).hexdigest()[:32]
    return f"{staging}/embeddings-{name}"


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one Vector property that have a text and no vector yet."""

    prop: Property
    rows: Ints


def gaps_of(entity: Entity, rows: pa.Table, misfits: Cells) -> list[Gap]:
    """What can be filled. A vector that was given and did not fit is an error, not a gap; a text
    that is null or blank has nothing to embed."""
    found: list[Gap] = []
    for prop in entity.properties:
        vectors = rows.column(prop.name)
        if prop.embed is None or not vectors.null_count:
            continue
        told = has_text(rows.column(prop.embed.source))
        at = np.flatnonzero(told & np.asarray(flat(pc.is_null(vectors))))
        if misfits:
            at = np.array([row for row in at if (int(row), prop.name) not in misfits], np.int64)
        if len(at):
            found.append(Gap(prop=prop, rows=at))
    return found


def has_text(texts: Column) -> Mask:
    """Which of the texts have something to embed."""
    return as_mask(flat(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(texts)), 0)))


class FillError(Exception):
    """Filling stopped at a row of the table; `error` says why."""

    def __init__(self, *, row: int, prop: Property, error: OmnigraphError) -> None:
        super().__init__(error.message)
        self.row, self.prop, self.error = row, prop, error


def no_vector(
    error: OmnigraphError, *, type_name: str, prop: str, where: str, **facts: Any
) -> OmnigraphError:
    """The error of an embedder with the type, the property and the record that it was about."""
    if not isinstance(error, EmbeddingError):
        return error
    return EmbeddingError(
        f"{where}: no vector for '{type_name}.{prop}': {error.message}",
        hint=error.hint,
        **{**error.facts, "type_name": type_name, "property_name": prop, **facts},
    )


class VectorFiller:
    """Makes the vectors of one task. `made` counts them, with those that were kept from before."""

    def __init__(self, plan: EmbedPlan, files: FileAccess, *, what: str = "the load") -> None:
        self._plan, self._files, self._what = plan, files, what
        self._embedder: TextEmbedder | None = None
        self.made = 0

    def filled(self, rows: pa.Table, gap: Gap) -> pa.Table:
        """The rows with this gap closed, or `FillError`."""
        try:
            if self._embedder is None:
                source = self._plan.source
                self._embedder = embedder(source) if isinstance(source, EmbedConfig) else source
            check_same_space(
                declared=gap.prop.embed.model if gap.prop.embed else None,
                used=self._embedder.model,
                property_name=gap.prop.name,
                what=self._what,
            )
        except OmnigraphError as error:
            raise FillError(row=int(gap.rows[0]), prop=gap.prop, error=error) from error
        assert gap.prop.embed is not None, "only embedded properties have gaps"
        texts: list[str] = picked(rows.column(gap.prop.embed.source), gap.rows).to_pylist()
        once = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        made = np.concatenate(list(self._batches(list(once), texts, gap)))
        self.made += len(texts)
        at = rows.schema.get_field_index(gap.prop.name)
        old = flat(rows.column(at))
        new = pa.FixedSizeListArray.from_arrays(pa.array(made.reshape(-1)), type=old.type)
        # A place behind the old ones is the place of a new vector.
        places = np.arange(len(old), dtype=np.int64)
        places[gap.rows] = [len(old) + once[text] for text in texts]
        column = pa.concat_arrays([old, new]).take(pa.array(places))
        return rows.set_column(at, rows.schema.field(at), column)

    def _batches(self, once: list[str], texts: list[str], gap: Gap) -> Iterator[_Floats]:
        dimension = gap.prop.type.dimension
        assert dimension is not None, "a Vector type has a dimension"
        for start in range(0, len(once), EMBED_BATCH_TEXTS):
            batch = once[start : start + EMBED_BATCH_TEXTS]
            try:
                yield self._batch(batch, dimension)
            except _TextError as stopped:
                row = int(gap.rows[texts.index(batch[stopped.at])])
                raise FillError(row=row, prop=gap.prop, error=stopped.error) from stopped.error

    def _batch(self, texts: Sequence[str], dimension: int) -> _Floats:
        assert self._embedder is not None, "made before the first batch"
        space = self._embedder.space
        if self._plan.kept is None or space is None:
            return self._embedded(texts, dimension)
        address = f"{self._plan.kept}/{_batch_name(space, texts, dimension)}.f32"
        kept = self._read(address, count=len(texts), dimension=dimension)
        if kept is not None:
            return kept
        made = self._embedded(texts, dimension)
        content = made.tobytes()
        self._files.write(address, content + zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big"))
        return made

    def _embedded(self, texts: Sequence[str], dimension: int) -> _Floats:
        """The vectors of the texts. Where the provider refuses a batch for what is in it, halves
        find the text that it does not want."""
        assert self._embedder is not None, "made before the first batch"
        try:
            made = self._embedder.embed_many(texts, dimension=dimension, purpose="document")
        except EmbeddingError as error:
            if len(texts) == 1 or not error.facts.get("refused"):
                raise _TextError(at=error.facts.pop("at", 0), error=error) from error
            middle = len(texts) // 2
            first = self._embedded(texts[:middle], dimension)
            try:
                second = self._embedded(texts[middle:], dimension)
            except _TextError as stopped:
                raise _TextError(at=middle + stopped.at, error=stopped.error) from stopped.error
            return np.concatenate([first, second])
        except OmnigraphError as error:
            raise _TextError(at=0, error=error) from error
        return np.array(made, dtype=np.float32)

    def _read(self, address: str, *, count: int, dimension: int) -> _Floats | None:
        try:
            with self._files.open(address) as file:
                content = bytes(file.read())
        except NotFoundError:
            return None
        body, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
        # A writer that died may have left half a file: then it is made again.
        whole = len(body) == count * dimension * np.dtype(np.float32).itemsize
        if not whole or zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
            return None
        return np.frombuffer(body, dtype=np.float32).reshape(count, dimension)


def _batch_name(space: str, texts: Sequence[str], dimension: int) -> str:
    digest = hashlib.sha256()
    for fact in (space, str(dimension), *texts):
        body = fact.encode(errors="surrogatepass")
        digest.update(len(body).to_bytes(8, "big") + body)
    return digest.hexdigest()


class _TextError(Exception):
    """One text of a batch could not be embedded."""

    def __init__(self, *, at: int, error: OmnigraphError) -> None:
        super().__init__(error.message)
        self.at, self.error = at, error
