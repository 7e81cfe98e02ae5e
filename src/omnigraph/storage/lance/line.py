"""One way to talk to Lance about a dataset: open it, look at its versions, fork, clean up, sync.

A *line* is a row of versions of one dataset: (location, None) is its main line, (location, branch)
one of its Lance branches. Tables, the manifest and the audit stand on this file. What rows mean is
not known here; who commits, and what a lost race means, is the caller's. A dataset that is handed
out never leaves `storage`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from omnigraph.errors import AlreadyExistsError, CorruptGraphError, NotFoundError, OmnigraphError
from omnigraph.model.graph import Pin, TableEntry
from omnigraph.model.limits import STAGED_SAFE_AGE_MS, TABLE_HANDLES_MAX
from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.structs import Recent
from omnigraph.storage.lance import collect, digests, pylance
from omnigraph.storage.lance.collect import Choose, Collected, Dataset, Doomed, How, Outcome
from omnigraph.storage.lance.ends import Ends
from omnigraph.storage.lance.files import (
    PARTS,
    Flusher,
    bases_of,
    blamed,
    hinted,
    is_there,
    is_whole,
    newest_whole,
    owner,
    remove_torn,
    require_home,
    stored_lines,
    transaction_paths,
    version_file,
)
from omnigraph.storage.lance.pylance import VersionTransaction, told_by, translated
from omnigraph.storage.objects.root import Root, branch_folder, dropped_mark, open_store

logger = logging.getLogger(__name__)

_AT_ONCE: Final = How()


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A branch of a dataset. One without a reference was left behind half made or half dropped."""

    parent: str | None = None
    parent_version: int | None = None
    created_at: int | None = None  # microseconds; None = it has no reference

    @property
    def base(self) -> tuple[str | None, int] | None:
        """The line and version that it was made from; None if it has no reference."""
        return None if self.parent_version is None else (self.parent, self.parent_version)


class Lines:
    """Every line below one graph root, through one session; the latest handles are kept open.

    `opening` is what its errors say was tried. `owed`: a version above the newest one of its line
    was lost, so that asking for it is damage; lines that go on elsewhere cannot tell. Safe to share
    between threads.
    """

    def __init__(
        self,
        root: Root,
        world: World,
        store: ObjectStore | None = None,
        *,
        opening: str = "open table",
        owed: bool = True,
    ) -> None:
        self.root = root
        self.world = world
        self.store = open_store(root, world) if store is None else store
        self.flusher = Flusher(root, world)
        self._doing = opening
        self._owed = owed
        self._session = pylance.new_session()
        self._open: Recent[Pin, Any] = Recent(TABLE_HANDLES_MAX)
        self._ends = Ends()

    def uri(self, location: str, branch: str | None) -> str:
        """The address under which Lance opens a line."""
        return self.root.child(branch_folder(location, branch))

    def versions_folder(self, location: str, branch: str | None) -> str | None:
        """Where the version files of a line are on local disk; None on an object store."""
        if self.root.local_path is None:
            return None
        return f"{self.uri(location, branch)}/_versions"

    # --- opening -----------------------------------------------------------------------------

    def at(self, location: str, branch: str | None, version: int) -> Any:
        """The dataset at one version, through a handle that all share."""
        known = self._open.get((location, branch, version))
        if known is not None:
            return known
        dataset = self.sound(location, branch, self.own(location, branch, version))
        self.remember(location, branch, dataset)
        return dataset

    def sound(self, location: str, branch: str | None, dataset: Any) -> Any:
        """The dataset, if no local data file ends so that Lance would come to grief over it."""
        if self.root.local_path is not None:
            path = self._ends.bad_file((location, branch), dataset, self.uri(location, branch))
            if path is not None:
                part = path.removeprefix(f"{self.root.local_path}/")
                raise CorruptGraphError.at(part, doing=self._doing, reason="its end is damaged")
        return dataset

    def own(self, location: str, branch: str | None, version: int | None) -> Any:
        """A handle of one's own, for the few calls that move or lock the one they are made on;
        None = at the newest version, whole or not."""
        if version is not None:
            self._require_whole(location, branch, version)
        with told_by(lambda cause: self._cannot_open(cause, location, branch, version)):
            dataset = pylance.opened(
                self.uri(location, branch),
                self.root.storage_options,
                version=version,
                session=self._session,
            )
        if branch is not None:
            require_home(bases_of(dataset), self.root, branch_folder(location, branch))
        return dataset

    def head(self, location: str, branch: str | None) -> Any:
        """The dataset at its newest version; `CorruptGraphError` if that one is not whole."""
        folder = self.versions_folder(location, branch)
        hint = None if folder is None else hinted(folder)
        if hint is not None and not hint[1]:
            raise self.damaged(location, branch, None)
        dataset = self.own(location, branch, None)
        if hint is None or hint[0] != int(dataset.version):
            self._require_whole(location, branch, int(dataset.version))
        # Lance reads a file of zeros as version 0, which has no file.
        lost = folder is not None and not is_there(folder, int(dataset.version))
        if lost and folder is not None and newest_whole(folder).torn:
            raise self.damaged(location, branch, None)
        return dataset

    def whole_head(self, location: str, branch: str | None) -> tuple[Any, tuple[int, ...]]:
        """The dataset at its newest whole version, and the versions above it that are not whole.

        For whoever looks at the sidecars: what is torn was never acknowledged, or is damage.
        """
        folder = self.versions_folder(location, branch)
        if folder is None:
            return self.own(location, branch, None), ()
        try:
            return self.head(location, branch), ()
        except OmnigraphError as cause:
            found = newest_whole(folder)
            if not found.torn:
                if not isinstance(cause, CorruptGraphError):
                    raise
                # What was torn a moment ago is gone: recovery took it away, or all of it went, as
                # a branch does. Anything else says again what is wrong.
                return self.own(location, branch, None), ()
            if found.version is None:
                raise self.damaged(location, branch, found.torn[0]) from cause
            assert all(torn > found.version for torn in found.torn), "torn ones lie above"
            return self.own(location, branch, found.version), found.torn

    def exists(self, location: str) -> bool:
        """Whether there is a dataset, whole or damaged."""
        try:
            self.head(location, None)
        except NotFoundError:
            return False
        except CorruptGraphError:
            return True
        return True

    def head_version(self, location: str, branch: str | None) -> int:
        """The newest version that Lance has, published or not; `CorruptGraphError` if it is not
        whole."""
        return int(self.head(location, branch).version)

    def whole_head_version(self, location: str, branch: str | None) -> int:
        """The newest whole version (recovery only: whose sidecar explains what is torn)."""
        return int(self._standing(location, branch).version)

    def is_head(self, location: str, branch: str | None, version: int) -> bool:
        """Whether the version is the newest that Lance has. On local disk that is a look for the
        file of the next version, however many versions there are."""
        folder = self.versions_folder(location, branch)
        if folder is not None and not is_there(folder, version + 1):
            return is_there(folder, version)
        return self.head_version(location, branch) == version

    def _standing(self, location: str, branch: str | None) -> Any:
        dataset, torn = self.whole_head(location, branch)
        if torn:
            logger.warning("read around a torn version", extra={"table": location})
        return dataset

    def _require_whole(self, location: str, branch: str | None, version: int) -> None:
        """Look before Lance does: it panics over some of what it finds in a damaged file."""
        folder = self.versions_folder(location, branch)
        if folder is not None and is_there(folder, version) and not is_whole(folder, version):
            raise self.damaged(location, branch, version)

    # --- what is kept open -------------------------------------------------------------------

    def remember(self, location: str, branch: str | None, dataset: Any) -> None:
        """Keep a handle that is at hand already, for example the one that a commit returned."""
        self._open.put((location, branch, int(dataset.version)), dataset)

    def forget(self, location: str, branch: str | None = None) -> None:
        """Let go of what is open of a line that is removed."""
        self._open.drop(lambda pin: pin[:2] == (location, branch))
        self.flusher.forget(self.uri(location, branch))

    # --- what is wrong -----------------------------------------------------------------------

    def damaged(
        self,
        location: str,
        branch: str | None,
        version: int | None,
        *,
        reason: str = "it is not whole",
    ) -> CorruptGraphError:
        """What is said about a version that is lost or not whole although it was acknowledged."""
        place = f"{branch_folder(location, branch)}/_versions"
        folder = self.versions_folder(location, branch)
        if version is None and folder is not None:
            torn = newest_whole(folder).torn
            version = torn[0] if torn else None
        part = place if version is None else f"{place}/{version_file(version)}"
        return CorruptGraphError.at(part, doing=self._doing, reason=reason)

    def _cannot_open(
        self, cause: BaseException, location: str, branch: str | None, version: int | None
    ) -> OmnigraphError:
        reason = pylance.reason_of(cause)
        if pylance.is_missing(cause):
            if self._owed and version is not None and self._is_owed(location, branch, version):
                return self.damaged(location, branch, version, reason="it is not there")
            at = f" at version {version}" if version is not None else ""
            return NotFoundError(
                f"table '{location}'{at} is not there",
                kind="table-version" if version is not None else "table",
                name=location,
                branch=branch,
                version=version,
                reason=reason,
            )
        if pylance.is_damaged_version(cause):
            return self.damaged(location, branch, version, reason=reason)
        return pylance.as_ours(cause, uri=self.uri(location, branch), doing=self._doing)

    def _is_owed(self, location: str, branch: str | None, version: int) -> bool:
        """Whether a version that is not there should be. Cleanup never takes the newest of a line,
        so one above the newest was lost; a line or table that is gone as a whole was dropped if
        nothing refers to it any more."""
        try:
            return int(self.own(location, branch, None).version) < version
        except NotFoundError:
            if branch is not None:
                return self.store.read(_reference_key(location, branch)) is not None
            return self.store.read(dropped_mark(location)) is None
        except CorruptGraphError:
            return True

    def unreadable(
        self,
        line: tuple[str, str | None],
        dataset: Any,
        cause: BaseException,
        *,
        doing: str,
        named: str,
        is_damaged: Callable[[BaseException], bool],
    ) -> OmnigraphError:
        """The error of ours for what the library raised while it read an opened version.

        A file that is gone is damage if the version is still kept; else cleanup took both.
        """
        missing, uri = pylance.is_missing(cause), self.uri(*line)
        if not missing and not is_damaged(cause):
            return pylance.as_ours(cause, uri=uri, doing=doing)
        place = branch_folder(*line)
        try:
            file = f"{place}/_versions/{version_file(int(dataset.version))}"
            if missing and self.store.read(file) is None:
                return pylance.as_ours(cause, uri=uri, doing=doing)
            root = self.root.local_path
            part = blamed(dataset, uri, root) if root is not None else None
        except OmnigraphError as second:  # the store cannot be asked: that is all we know
            return second
        return CorruptGraphError.at(
            part or place, doing=f"{doing} {named}", reason=pylance.reason_of(cause)
        )

    # --- after a commit ----------------------------------------------------------------------

    def sync(
        self,
        location: str,
        branch: str | None,
        dataset: Any,
        *,
        since: int,
        uuid: str | None = None,
    ) -> None:
        """Make the versions after `since` survive a power cut.

        Danger: only after this may a commit be acknowledged, and its sidecar be deleted. `uuid` is
        the transaction of a commit that made one version; others are asked for theirs.
        """
        newest = int(dataset.version)
        assert newest > since, "a commit makes a version"
        assert uuid is None or newest == since + 1, "one transaction makes one version"
        if self.flusher.active:
            folder = self.uri(location, branch)
            paths = [f"{folder}/_versions/{version_file(v)}" for v in range(since + 1, newest + 1)]
            if uuid is not None:
                paths.append(f"{folder}/_transactions/{since}-{uuid}.txn")
            else:
                paths += transaction_paths(folder, dataset, since)
            self.flusher.flush(paths)

    def attempts(self, location: str, branch: str | None, version: int) -> list[str]:
        """The transactions that were begun on the version, but for the one that made it: Lance
        writes one down before its version. So a later version is there, or its write has not come
        to its end, or its file was lost."""
        folder = branch_folder(location, branch)
        found = list(self.store.keys_beginning(f"{folder}/_transactions/{version}-"))
        if not found:
            return []
        # A fork's first version has the number of the one it was made from.
        dataset = self.own(location, branch, version)
        with told_by(lambda cause: self._cannot_open(cause, location, branch, version)):
            made = dataset.read_transaction(version)
        return [key for key in found if made is None or str(made.uuid) not in key]

    def transactions(
        self, location: str, branch: str | None, *, after: int, upto: int
    ) -> list[VersionTransaction]:
        """What made the versions in (after, upto], oldest first."""
        if upto <= after:
            return []
        dataset = self._standing(location, branch)
        with translated(self.uri(location, branch), doing="read history of table"):
            return [pylance.transaction(dataset, one) for one in range(after + 1, upto + 1)]

    def clear_torn(self, location: str, branch: str | None, *, above: int) -> None:
        """Take away what a power cut left of the version after `above`, if anything.

        Only for recovery, which holds the sidecar of the write that the torn version belongs to.
        """
        folder = self.versions_folder(location, branch)
        if folder is None:
            return
        found = newest_whole(folder)
        if not found.torn or found.version is None or found.version < above:
            return  # nothing torn, or a published version is: that is damage, and stays
        gone = remove_torn(folder)
        logger.warning("removed torn versions", extra={"table": location, "versions": gone})

    # --- branches ----------------------------------------------------------------------------

    def fork(
        self, location: str, *, source_branch: str | None, version: int, branch_id: str
    ) -> None:
        """Have a branch that starts at (source_branch, version).

        A fork that is there already and has not moved is fine, so that it can be repeated after a
        crash. One that moved raises AlreadyExistsError: the caller knows whether anybody refers to
        it.
        """
        # Lance locks the handle meanwhile, and others are reading through the shared one.
        source = self.own(location, source_branch, version)
        with translated(self.uri(location, branch_id), doing="fork table"):
            try:
                source.create_branch(branch_id)
            except OSError:
                # Lance has one message for a branch that exists and for a half-made one.
                known = self._line(location, branch_id).base
                if known is None:
                    if not self._sweep_orphan(location, branch_id):
                        raise
                    source.create_branch(branch_id)
                else:
                    self._require_untouched(location, branch_id, known, (source_branch, version))
        if self.flusher.active:
            self.flusher.flush_tree(self.uri(location, branch_id))
            self.flusher.flush([self.root.child(_reference_key(location, branch_id))])

    def drop_branch(self, location: str, branch_id: str, *, is_leaf: bool = False) -> bool:
        """Remove a branch and all that only it holds, also a half-made one; False if there was
        nothing. Lance asks all branches whether they stand on it; `is_leaf`: the caller has, for
        many at once."""
        self.forget(location, branch_id)
        if is_leaf:
            # Danger: in this order. Files without a reference are an orphan that cleanup finds.
            had = self.store.delete(_reference_key(location, branch_id))
            return self._sweep_orphan(location, branch_id) or had
        try:
            trunk = self._standing(location, None)
        except NotFoundError:
            return self._sweep_orphan(location, branch_id)
        known = self._line(location, branch_id).base is not None
        with translated(self.uri(location, branch_id), doing="drop branch of table"):
            if known:
                pylance.steadily(lambda: trunk.branches.delete(branch_id))
        return self._sweep_orphan(location, branch_id) or known

    def branches(self, location: str) -> dict[str, Line]:
        """Every branch that has a reference, with what that says."""
        refs = self.store.list_keys(f"{location}/_refs/branches")
        named = (unquote(key.rsplit("/", 1)[-1].removesuffix(".json")) for key in refs)
        found = {name: self._line(location, name) for name in sorted(named)}
        return {name: line for name, line in found.items() if line.created_at is not None}

    def lines(self, location: str) -> dict[str, Line]:
        """Every branch that has a reference or files, also half-made ones."""
        stored = sorted(stored_lines(self.store, location))
        return {**dict.fromkeys(stored, Line()), **self.branches(location)}

    def shared(self, one: TableEntry, other: TableEntry) -> int:
        """The newest version that both came from, on one line or across forks; 0 if there is
        none."""
        if one.location != other.location:
            return 0
        behind = dict(self._way_back(one))
        for line, version in self._way_back(other):
            if line in behind:
                return min(version, behind[line])
        return 0

    def _way_back(self, entry: TableEntry) -> Iterator[tuple[str | None, int]]:
        """The version, then the one that its line was made from, and so on."""
        seen: set[str | None] = set()
        at: tuple[str | None, int] | None = (entry.branch, entry.version)
        while at is not None and at[0] not in seen:
            yield at
            seen.add(at[0])
            at = None if at[0] is None else self._line(entry.location, at[0]).base

    def _line(self, location: str, branch_id: str) -> Line:
        """Read from Lance's own reference file: asking Lance means reading those of all
        branches."""
        key = _reference_key(location, branch_id)
        found = self.store.read(key)
        if found is None:
            return Line()
        try:
            body = json.loads(found.body)
            return Line(
                parent=body["parentBranch"],
                parent_version=int(body["parentVersion"]),
                created_at=int(body["createAt"]) * 1_000_000,
            )
        except (ValueError, KeyError, TypeError) as cause:
            raise CorruptGraphError(
                f"the branch reference '{key}' cannot be read", part=key
            ) from cause

    def _require_untouched(
        self,
        location: str,
        branch_id: str,
        found: tuple[str | None, int],
        wanted: tuple[str | None, int],
    ) -> None:
        try:
            head = self.head_version(location, branch_id)
        except CorruptGraphError:
            head = None  # half a line of a power cut, or a damaged one: nothing to go on from
        if found != wanted or head != wanted[1]:
            raise AlreadyExistsError(
                f"branch '{branch_id}' of table '{location}' is there with other content",
                kind="table-branch",
                name=branch_id,
            )

    def _sweep_orphan(self, location: str, branch_id: str) -> bool:
        """Delete the files of a branch without a reference; Lance can neither list nor delete
        them."""
        self.forget(location, branch_id)
        folder = branch_folder(location, branch_id)
        keys = self.store.list_keys(folder)
        if any(owner(key.removeprefix(f"{location}/tree/")) != branch_id for key in keys):
            # Lines of migrated graphs nest: the folder of `a` holds the folder of `a/b`.
            return sum(self.store.delete_prefix(f"{folder}/{part}") for part in PARTS) > 0
        return self.store.delete_prefix(folder) > 0

    # --- old versions ------------------------------------------------------------------------

    def versions(self, location: str, branch: str | None) -> tuple[int, ...]:
        """Every version that is still stored, ascending; the last one is the head."""
        folder = branch_folder(location, branch)
        keys = self.store.keys_beginning(f"{folder}/_versions/")
        found = collect.versions_in(key[len(folder) + 1 :] for key in keys)
        return found or (int(self.head(location, branch).version),)

    def last_written_us(self, location: str) -> int:
        """When the newest version of a main line was made, by the machine that made it."""
        head = self.head(location, None)
        with translated(self.uri(location, None), doing="read age of table"):
            moment: datetime = head.get_version()["timestamp"]
        return round(moment.timestamp() * 1_000_000)

    def tagged(self, location: str) -> dict[str | None, frozenset[int]]:
        """The versions that tags of Lance's name, by line."""
        return collect.tagged(self.store, location)

    def collect(
        self, location: str, branch: str | None, unwanted: Collection[int], how: How = _AT_ONCE
    ) -> Collected:
        """Remove these versions of one line and the files of it that nothing needs any more, or
        only say what would go. Which ones nobody needs is for the caller to know."""
        return self.collect_lines(location, [branch], lambda *_: unwanted, how).of(branch)

    def collect_lines(
        self, location: str, lines: Collection[str | None], choose: Choose, how: How = _AT_ONCE
    ) -> Outcome:
        """The same of many lines of a dataset at once; `choose` tells the unwanted versions.

        The newest stays, and what a branch starts from and reads. Files that no version ever had go
        when they are a week old; writes that are still being staged have younger ones. A problem of
        one line is told and keeps those that it stands on.
        """
        dataset = Dataset(root=self.root, store=self.store, location=location)
        stored = collect.listed(dataset, lines)
        there = {line: collect.versions_in(one.path for one in stored[line]) for line in stored}
        problems: dict[str | None, OmnigraphError] = {}
        if None in there:
            try:
                self.head(location, None)  # a branch may be deleted meanwhile, a table may not
            except OmnigraphError as cause:
                problems[None], there[None] = cause, ()
        lost_before_us = self.world.clock.now_us() - STAGED_SAFE_AGE_MS * 1000
        unwanted = {line: choose(line, found) for line, found in there.items() if found}
        unwanted = {
            line: versions
            for line, versions in unwanted.items()
            if versions or collect.may_be_lost(stored[line], lost_before_us)
        }
        if not unwanted:
            return Outcome(problems=problems)
        # Danger: a branch that is made meanwhile is not known here. It starts from a published
        # head, which is never unwanted, and from no file that only others name.
        bases = {name: line.base for name, line in self.lines(location).items()}
        kin = collect.Kinship(bases=bases, tagged=self.tagged(location))
        plan = collect.planned(dataset, kin, unwanted, threads=how.threads)
        doomed = plan.doomed({line: stored[line] for line in unwanted}, lost_before_us)
        failed = {} if how.preview else self._remove(dataset, doomed, how)
        return Outcome(
            done={
                line: Collected(
                    versions=len(one.versions), bytes=one.bytes, failed_deletes=failed.get(line, 0)
                )
                for line, one in doomed.items()
            },
            problems={one: plan.problems[one] for one in lines if one in plan.problems} | problems,
        )

    def _remove(
        self, dataset: Dataset, doomed: Mapping[str | None, Doomed], how: How
    ) -> dict[str | None, int]:
        for line, going in doomed.items():
            self._save_digests(dataset.folder(line), going.versions)
        failed = collect.remove(dataset, doomed, how)
        gone = {
            (dataset.location, line, version)
            for line, going in doomed.items()
            for version in going.versions
        }
        self._open.drop(lambda pin: pin in gone)
        return failed

    def _save_digests(self, folder: str, going: Collection[int]) -> None:
        if going and self.root.local_path is not None:
            digests.save(self.store, folder, frozenset(going))


def _reference_key(location: str, branch_id: str) -> str:
    return f"{location}/_refs/branches/{quote(branch_id, safe='')}.json"
