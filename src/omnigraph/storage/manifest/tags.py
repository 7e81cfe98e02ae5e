"""The small files of tags: names that stand for one commit, for good.

The file makes a tag exist and its deletion ends it. A file that cannot be read may name any commit,
so cleanup lets nothing go while there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import msgspec
import orjson

from omnigraph.errors import CorruptGraphError, NotFoundError
from omnigraph.model.graph import Tag
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.manifest.ref_files import UnreadableRef, encodable, name_of, ref_key
from omnigraph.storage.objects.root import TAGS, is_id

logger = logging.getLogger(__name__)

TAG_FORMAT: Final = 1


def tag_key(name: str) -> str:
    return ref_key(name, folder=TAGS)


def encode_tag(tag: Tag) -> bytes:
    """The tag as stored: a format and its fields, under the names that `Tag` has for the file."""
    facts = {"format_version": TAG_FORMAT, **msgspec.to_builtins(tag)}
    return orjson.dumps(facts, option=orjson.OPT_INDENT_2)


def decode_tag(key: str, body: bytes) -> Tag:
    """The tag that a file holds; `CorruptGraphError` if it makes no sense."""
    try:
        facts = orjson.loads(body)
        tag = msgspec.convert(facts, Tag)
        _check(key, tag, form=facts["format_version"])
    except (KeyError, TypeError, ValueError, UnicodeError) as cause:
        name = name_of(key)
        raise CorruptGraphError(
            f"the tag '{name}' cannot be read: {cause}",
            hint=f"put '{key}' back from a copy, or `omnigraph tag delete {name}`",
            part=key,
            tag=name,
            reason=str(cause),
        ) from cause
    return tag


def _check(key: str, tag: Tag, *, form: object) -> None:
    """Raise ValueError for a tag that must not be followed."""
    if form != TAG_FORMAT:
        raise ValueError(f"unknown format {form!r}")
    # The name must lead back to this very file, and the id is compared with those of branches.
    if tag_key(tag.name) != key:
        raise ValueError(f"it names another tag, {tag.name!r}")
    if tag.branch_id is not None and not is_id(tag.branch_id):
        raise ValueError(f"{tag.branch_id!r} is no id of a branch")
    if not tag.graph_commit_id:
        raise ValueError("it names no commit")


class TagFiles:
    """The tags below a graph root."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._warned: set[str] = set()

    def find(self, name: str) -> Tag | None:
        """The tag of that name, or None; `CorruptGraphError` if it cannot be read."""
        if not name or not encodable(name):
            return None
        found = self._store.read(tag_key(name))
        return None if found is None else decode_tag(tag_key(name), found.body)

    def is_there(self, name: str) -> bool:
        """Whether there is a tag of that name, readable or not."""
        return encodable(name) and self._store.read(tag_key(name)) is not None

    def names(self) -> list[str]:
        """What the tags are called, readable or not, as far as their files tell it."""
        return [name_of(key) for key in self._keys()]

    def all(self) -> Iterator[Tag]:
        """Every tag that can be read, in no order that means anything."""
        return (tag for tag in self._stored() if isinstance(tag, Tag))

    def unreadable(self) -> list[UnreadableRef]:
        """The tags that make no sense, by name."""
        found = [tag for tag in self._stored() if isinstance(tag, UnreadableRef)]
        return sorted(found, key=lambda tag: tag.name)

    def put(self, tag: Tag) -> bool:
        """Make the tag; False if there is one of that name."""
        return self._store.put_if_absent(tag_key(tag.name), encode_tag(tag))

    def remove(self, name: str) -> None:
        """End the tag, readable or not; `NotFoundError` if there is none."""
        if not name or not encodable(name) or not self._store.delete(tag_key(name)):
            raise NotFoundError(f"tag '{name}' does not exist", kind="tag", name=name)

    def _keys(self) -> list[str]:
        return [key for key in self._store.list_keys(TAGS) if key.endswith(".json")]

    def _stored(self) -> Iterator[Tag | UnreadableRef]:
        for key in self._keys():
            found = self._store.read(key)
            if found is None:
                continue  # deleted since the listing
            try:
                yield decode_tag(key, found.body)
            except CorruptGraphError as cause:
                if key not in self._warned:
                    self._warned.add(key)
                    logger.warning("%s", cause.message)
                yield UnreadableRef(name=name_of(key), key=key, problem=cause.facts["reason"])
