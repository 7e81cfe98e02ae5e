"""Control objects on S3 and its kin, with the server's own conditional writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import S3Store

from omnigraph import errors
from omnigraph.errors import StorageUnavailableError
from omnigraph.model.limits import (
    STORE_CONNECT_MS_MAX,
    STORE_REQUEST_MS_MAX,
    STORE_RETRIES_MAX,
    STORE_RETRY_MS_MAX,
)
from omnigraph.model.ports import Listed, StoredObject

_CHUNK_BYTES: Final = 1 << 20


class S3Objects:
    """The `ObjectStore` of a bucket folder."""

    def __init__(self, *, bucket: str, prefix: str, settings: Mapping[str, str]) -> None:
        self._uri = f"s3://{bucket}/{prefix}".rstrip("/")
        self._store = _connect(bucket, prefix, settings)

    def read(self, key: str) -> StoredObject | None:
        with self._faults(key, "read"):
            try:
                answer = obstore.get(self._store, key)
                return StoredObject(key=key, body=bytes(answer.bytes()), tag=answer.meta["e_tag"])
            except (NotFoundError, FileNotFoundError):
                return None

    def put(self, key: str, body: bytes) -> None:
        with self._faults(key, "write"):
            obstore.put(self._store, key, body, use_multipart=False)

    def put_if_absent(self, key: str, body: bytes) -> bool:
        return self.create_tagged(key, body) is not None

    def put_if_match(self, key: str, body: bytes, *, tag: str) -> bool:
        return self.replace_tagged(key, body, tag=tag) is not None

    def create_tagged(self, key: str, body: bytes) -> str | None:
        """The tag of the new object, or None if one was there."""
        with self._faults(key, "write"):
            try:
                made = obstore.put(self._store, key, body, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return None
        return made["e_tag"] or ""

    def replace_tagged(self, key: str, body: bytes, *, tag: str) -> str | None:
        """The new tag, or None if the object no longer carried the old one."""
        with self._faults(key, "write"):
            try:
                made = obstore.put(self._store, key, body, mode={"e_tag": tag}, use_multipart=False)
            except (PreconditionError, NotFoundError, FileNotFoundError):
                return None
        return made["e_tag"] or ""

    def list_keys(self, prefix: str) -> Sequence[str]:
        with self._faults(prefix, "list"):
            found = obstore.list(self._store, prefix or None).collect()
            return sorted(str(meta["path"]) for meta in found)

    def keys_beginning(self, start: str) -> Sequence[str]:
        folder = start.rpartition("/")[0]
        found: list[str] = []
        with self._faults(folder, "list"):
            # Keys come sorted from behind the offset on, so the first page is enough to stop.
            for page in obstore.list(self._store, folder, offset=start):
                names = [str(meta["path"]) for meta in page]
                found += [name for name in names if name.startswith(start)]
                if not names or not names[-1].startswith(start):
                    break
        return found

    def folders(self, prefix: str) -> Sequence[str]:
        with self._faults(prefix, "list"):
            found = obstore.list_with_delimiter(self._store, prefix)["common_prefixes"]
            return sorted(one.rstrip("/").rpartition("/")[2] for one in found)

    def put_chunks(self, key: str, pieces: Iterator[bytes]) -> None:
        with self._faults(key, "write"):
            obstore.put(self._store, key, pieces)

    def listed(self, prefix: str) -> dict[str, Listed]:
        with self._faults(prefix, "list"):
            found = obstore.list(self._store, prefix or None).collect()
            return {
                str(meta["path"]): Listed(
                    bytes=int(meta["size"]),
                    written_us=round(meta["last_modified"].timestamp() * 1_000_000),
                )
                for meta in found
            }

    def chunks(self, key: str) -> Iterator[bytes]:
        with self._faults(key, "read"):
            try:
                for piece in obstore.get(self._store, key).stream(min_chunk_size=_CHUNK_BYTES):
                    yield bytes(piece)
            except (NotFoundError, FileNotFoundError) as cause:
                raise errors.NotFoundError(
                    f"'{key}' is not there", kind="object", name=key
                ) from cause

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        with self._faults(key, "read"):
            try:
                found = obstore.get_ranges(self._store, key, starts=starts, ends=ends)
            except (NotFoundError, FileNotFoundError):
                return None
            return [bytes(body) for body in found]

    def delete(self, key: str) -> bool:
        with self._faults(key, "delete"):
            try:
                obstore.head(self._store, key)
            except (NotFoundError, FileNotFoundError):
                return False
            obstore.delete(self._store, key)
        return True

    def delete_prefix(self, prefix: str) -> int:
        assert prefix.strip("/"), "refusing to delete a whole graph root"
        keys = list(self.list_keys(prefix))
        with self._faults(prefix, "delete"):
            if keys:
                obstore.delete(self._store, keys)
        return len(keys)

    @contextmanager
    def _faults(self, key: str, verb: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as cause:
            uri = f"{self._uri}/{key}"
            reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0][:500]
            raise StorageUnavailableError(
                f"cannot {verb} '{uri}': {reason}", uri=uri, reason=reason
            ) from cause


def _connect(bucket: str, prefix: str, settings: Mapping[str, str]) -> S3Store:
    config: dict[str, Any] = {k: v for k, v in settings.items() if k != "allow_http"}
    if "virtual_hosted_style_request" in config:
        config["virtual_hosted_style_request"] = config["virtual_hosted_style_request"] == "true"
    return S3Store(
        bucket,
        prefix=prefix or None,
        client_options={
            "allow_http": settings.get("allow_http") == "true",
            "connect_timeout": timedelta(milliseconds=STORE_CONNECT_MS_MAX),
            "timeout": timedelta(milliseconds=STORE_REQUEST_MS_MAX),
        },
        retry_config={
            "max_retries": STORE_RETRIES_MAX,
            "retry_timeout": timedelta(milliseconds=STORE_RETRY_MS_MAX),
        },
        **config,
    )
