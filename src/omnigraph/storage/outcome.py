"""What became of a write whose caller was interrupted, told in a note on the interrupt."""

from __future__ import annotations

from typing import Final

_MARK: Final = "omnigraph: "


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
        self._commit_id, self._known = commit_id, False

    def land(self) -> None:
        assert self._commit_id is not None, "what lands was begun"
        self._known = True
        _Process.last_commit_id = self._commit_id

    def come_to_nothing(self) -> None:
        self._commit_id, self._known = None, True

    def tell(self, interrupt: BaseException) -> None:
        """Add a note that says what happened."""
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


def outcome_told(interrupt: BaseException) -> str | None:
    """What a note on the interrupt says became of the write; None if it says nothing."""
    notes = getattr(interrupt, "__notes__", ())
    ours = [note for note in notes if note.startswith(_MARK)]
    return ours[-1].removeprefix(_MARK) if ours else None
