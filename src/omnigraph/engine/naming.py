"""Names for what may be gone otherwise: tags, and deleted branches that get their name back.

A tag is a small file that is made once. What it names stays, whatever the retention says and
whatever becomes of the branch that the commit is of. A branch that was deleted with work that no
other branch has is put aside, and can be brought back until cleanup takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from omnigraph.compiler.text import closest
from omnigraph.engine.arguments import AT_OR_NONE, TEXT, TEXT_OR_NONE, require, require_message
from omnigraph.engine.core import Core
from omnigraph.engine.refs import At, tag_named
from omnigraph.errors import CorruptGraphError, NotFoundError
from omnigraph.model.graph import MAIN, Branch, DeletedBranch, Tag
from omnigraph.model.limits import LEASE_WAIT_MS_MAX
from omnigraph.storage.manifest.refs import validate_name
from omnigraph.storage.manifest.store import not_kept
from omnigraph.storage.objects.lease import PAST, Lease

_Done = TypeVar("_Done")


def tags(core: Core) -> list[Tag]:
    """Every tag that can be read, by name."""
    return sorted(core.store.manifests.tags.all(), key=lambda tag: tag.name)


def create_tag(
    core: Core, name: str, at: At | None, *, actor_id: str | None, message: str | None
) -> Tag:
    """Name the commit that `at` is, by default main's head."""
    core.require_writable()
    require(TEXT, name=name)
    require(AT_OR_NONE, at=at)
    require(TEXT_OR_NONE, actor=actor_id)
    require_message(message)
    validate_name(name, kind="tag")
    manifests = core.store.manifests
    row = manifests.commit_row(core.snapshot(MAIN, at).graph_commit_id)
    owner = manifests.at_row(row).branch  # a migrated branch has another id than its old commits
    tag = Tag(
        name=name,
        graph_commit_id=row.id,
        branch_id=owner.id,
        message=message,
        created_by=actor_id,
        created_us=core.world.clock.now_us(),
    )

    def create(_: Lease) -> Tag:
        # Cleanup ends snapshots under the lease of the past and a branch is deleted under its own.
        # We hold both, so that what is here now is still here when the tag is.
        manifests.at_row(row)
        if not manifests.is_kept(row):
            raise not_kept(row.id, row.commit.graph_manifest_version)
        return core.store.refs.create_tag(tag)

    return holding_past(core, owner, create)


def holding_past(core: Core, branch: Branch, work: Callable[[Lease], _Done]) -> _Done:
    """Do the work while no cleanup can end anything and nobody can delete the branch."""
    leases = core.store.leases
    if branch.id is None:  # main is never deleted, and its writers need not be waited for
        return leases.holding(PAST, work, wait_ms=LEASE_WAIT_MS_MAX)
    # In this order everywhere: a cleanup holds the past when it asks for branches.
    return leases.holding(
        PAST,
        lambda _: leases.holding(branch.id, work, wait_ms=LEASE_WAIT_MS_MAX),
        wait_ms=LEASE_WAIT_MS_MAX,
    )


def delete_tag(core: Core, name: str) -> None:
    """Take the name away; what it named stays as long as anything else needs it."""
    core.require_writable()
    require(TEXT, name=name)
    if not core.store.manifests.tags.is_there(name):
        tag_named(core.store, name)  # says what may have been meant
    core.store.refs.delete_tag(name)


# --- deleted branches --------------------------------------------------------------------------


def deleted_branches(core: Core) -> list[DeletedBranch]:
    """The deleted branches that can be brought back, the newest deletion first."""
    manifests = core.store.manifests
    live = {branch.id for branch in core.store.refs.list()}
    found: list[DeletedBranch] = []
    for branch in manifests.retired.branches():
        retirement = manifests.retired.retirement(branch)
        if branch.id in live or retirement is None:
            continue  # its deletion did not come to its end, or cleanup has just ended it
        try:
            head = manifests.head(branch).head
        except (NotFoundError, CorruptGraphError):
            continue  # there is nothing that could be brought back
        found.append(
            DeletedBranch(
                branch=branch,
                head=head,
                deleted_us=retirement.deleted_at,
                deleted_by=retirement.deleted_by,
            )
        )
    return sorted(found, key=lambda one: (-(one.deleted_us or 0), one.name))


def restore_branch(core: Core, name: str, *, as_name: str | None) -> Branch:
    """Bring back the branch of that id, or the one that was deleted last of those of that name."""
    core.require_writable()
    require(TEXT, name=name)
    require(TEXT_OR_NONE, as_name=as_name)
    known = deleted_branches(core)
    found = next((one.branch for one in known if name in (one.name, one.branch.id)), None)
    if found is None:
        near = closest(name, [one.name for one in known])
        raise NotFoundError(
            f"there is no deleted branch '{name}' that could be brought back",
            kind="branch",
            name=name,
            hint=f"did you mean '{near}'?" if near else "cleanup takes deleted branches",
        )

    def restore(_: Lease) -> Branch:
        # Under the lease of the past: no cleanup is at work, and what it took is not here any more.
        if core.store.manifests.retired.retirement(found) is None:
            raise NotFoundError(
                f"cleanup has taken the deleted branch '{name}'", kind="branch", name=name
            )
        core.store.manifests.fresh(found.id)
        return core.store.refs.restore(found, as_name or found.name)

    return holding_past(core, found, restore)
