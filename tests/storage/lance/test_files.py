"""What the disk refuses while version files are looked at is an error of ours."""

from __future__ import annotations

import pytest

from omnigraph import Graph, errors
from omnigraph.storage.lance.files import is_whole, newest_whole, version_file

REFUSED = "x" * 5000  # longer than any file name may be: refused to whoever asks, root too


@pytest.mark.parametrize("look", [newest_whole, lambda folder: is_whole(folder, 1), Graph.open])
def test_what_the_disk_refuses_is_told_as_such(look):
    with pytest.raises(
        errors.StorageUnavailableError, match=r"cannot read '.*: File name too long"
    ):
        look(REFUSED)


def test_a_folder_in_the_place_of_a_version_is_not_whole(tmp_path):
    (tmp_path / version_file(1)).mkdir()
    assert not is_whole(str(tmp_path), 1)
    assert newest_whole(str(tmp_path)).torn == (1,)
