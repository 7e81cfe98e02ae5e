"""Every place where a crash may fall, by name.

A step is *reached* right after the durable effect it names. The crash tests walk this list, so a
new durable effect needs a new name here and nothing else.
"""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """Named durable steps; `<path>.<what has just happened>`."""

    INIT_CLAIMED = "init.claimed"
    INIT_TABLE_CREATED = "init.table-created"
    INIT_TABLES_CREATED = "init.tables-created"
    INIT_MANIFEST_CREATED = "init.manifest-created"
    INIT_CLAIM_RELEASED = "init.claim-released"

    BRANCH_MANIFEST_FORKED = "branch-create.manifest-forked"
    BRANCH_REF_WRITTEN = "branch-create.ref-written"
    BRANCH_DESCENT_KEPT = "branch-delete.descent-kept"
    BRANCH_RETIRED = "branch-delete.retired"
    BRANCH_REF_DELETED = "branch-delete.ref-deleted"
    BRANCH_MANIFEST_DROPPED = "branch-delete.manifest-dropped"
    BRANCH_TABLE_DROPPED = "branch-delete.table-dropped"

    BRANCH_RESTORED = "branch-restore.ref-written"
    BRANCH_RETIRED_ENDED = "branch-restore.retired-ended"

    TAG_WRITTEN = "tag-create.written"
    TAG_DELETED = "tag-delete.deleted"

    PENDING_SHOWN = "write.pending-shown"
    TABLE_FORKED = "write.table-forked"
    WRITE_STAGED = "write.staged"
    WRITE_LEASED = "write.leased"
    SIDECAR_WRITTEN = "write.sidecar-written"
    TABLE_EVOLVED = "write.table-evolved"
    TABLE_APPLIED = "write.table-applied"
    TABLES_APPLIED = "write.tables-applied"
    PUBLISH_STAGED = "publish.staged"
    PUBLISHED = "publish.published"
    WRITE_PUBLISHED = "write.published"
    SIDECAR_DELETED = "write.sidecar-deleted"
    WRITE_IN_DOUBT = "write.in-doubt"

    DERIVED_WRITTEN = "derive.file-written"

    RECOVERY_TABLE_RESTORED = "recovery.table-restored"
    RECOVERY_TABLE_FENCED = "recovery.table-fenced"
    RECOVERY_LATE_WRITE_ARMED = "recovery.late-write-armed"
    RECOVERY_PUBLISHED = "recovery.published"
    RECOVERY_AUDITED = "recovery.audited"
    RECOVERY_SIDECAR_DELETED = "recovery.sidecar-deleted"

    MIGRATION_LEFTOVER_REMOVED = "migration.leftover-removed"
    MIGRATION_FORKED = "migration.forked"
    MIGRATION_FOLDED = "migration.folded"
    MIGRATION_COMPARED = "migration.compared"
    MIGRATION_REF_WRITTEN = "migration.ref-written"
    MIGRATION_STAMPED = "migration.stamped"
    MIGRATION_LINE_DROPPED = "migration.line-dropped"
    MIGRATION_OLD_FILE_REMOVED = "migration.old-file-removed"

    RELOCATE_VERSION_REWRITTEN = "relocate.version-rewritten"
    RELOCATE_DONE = "relocate.done"

    BACKUP_BEGUN = "backup.begun"
    BACKUP_FILE_COPIED = "backup.file-copied"
    BACKUP_FILES_COPIED = "backup.files-copied"
    BACKUP_VERSIONS_COPIED = "backup.versions-copied"
    BACKUP_DONE = "backup.done"

    CLEANUP_DESCENT_KEPT = "cleanup.descent-kept"
    CLEANUP_RETIRED_ENDED = "cleanup.retired-ended"
    CLEANUP_FORK_RECLAIMED = "cleanup.fork-reclaimed"
    CLEANUP_VERSIONS_COLLECTED = "cleanup.versions-collected"
    CLEANUP_CONTROL_FILES_REMOVED = "cleanup.control-files-removed"
    CLEANUP_MANIFEST_PRUNED = "cleanup.manifest-pruned"
