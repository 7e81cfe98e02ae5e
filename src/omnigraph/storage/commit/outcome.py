"""What became of a write whose caller was interrupted, told in a note on the interrupt."""

from __future__ import annotations

from typing import Final

_MARK: Final = "omnigraph: "


# Written by the thread that writes and read by the one that was interrupted, which has waited for
# it: there is no moment at which both are at it.
class _Process:
    """What a process has to say when it is interrupted after all its handles are closed."""

    last_commit_id: str | None = None


class Outcome:
    """Nothing, a commit, or (while it is being made) nobody knows which."""

    def __init__(self) -> None:
        self._commit_id: str | None = None
        self._known = True

    def begin(self, commit_id: str) -> None:
        """From here on the write may or may not land as this commit."""
        assert self._known, "one write is in doubt at a time"
        self._commit_id, self._known = commit_id, False

    def land(self) -> None:
        assert self._commit_id is not None, "what lands was begun"
        self._known = True
        # Kept for the whole process: an interrupt may fall behind the end of the last handle.
        _Process.last_commit_id = self._commit_id

    def come_to_nothing(self) -> None:
        assert self._commit_id is not None, "what comes to nothing was begun"
        self._commit_id, self._known = None, True

    def tell(self, interrupt: BaseException) -> None:
        """Add a note that says what happened."""
        # Three outcomes, never two: "not known" must not be told as "nothing was written".
        if self._commit_id is None:
            text = "nothing was written"
        elif self._known:
            text = f"the write was committed as {self._commit_id}"
        else:
            text = f"whether commit {self._commit_id} landed is not known"
        interrupt.add_note(_MARK + text)


def tell_last_commit(interrupt: BaseException, commit_id: str | None) -> None:
    """Say which commit was the last one, if the interrupt fell outside a write."""
    if commit_id is not None and outcome_told(interrupt) is None:
        interrupt.add_note(f"{_MARK}the last commit was {commit_id}")


def last_commit_made() -> str | None:
    """The newest commit that this process made, through any handle; None if it made none."""
    return _Process.last_commit_id


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that was being handled when the error came, if there was one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def outcome_told(interrupt: BaseException) -> str | None:
    """What a note on the interrupt says became of the write; None if it says nothing."""
    # The newest note counts: a write inside of another one has told of itself first.
    notes = getattr(interrupt, "__notes__", ())
    ours = [note for note in notes if note.startswith(_MARK)]
    return ours[-1].removeprefix(_MARK) if ours else None
