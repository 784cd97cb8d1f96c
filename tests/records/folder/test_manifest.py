"""Claims about the manifest: the files of a run are those that it has written."""

import pytest

from fednet_emu.errors import DataError
from fednet_emu.records.folder.manifest import require_sound
from fednet_emu.records.folder.store import RunFolder


def test_a_file_that_was_changed_or_deleted_is_refused(tmp_path):
    """The first file that is not what the run has written is named, and what to do about it."""
    folder = RunFolder.create(tmp_path, "title: the scenario\n")
    for name in ("a.txt", "b.txt"):
        folder.write_text(name, name)
    folder.end("done")
    require_sound(tmp_path, ["a.txt", "b.txt"])

    (tmp_path / "b.txt").write_text("something else")
    with pytest.raises(DataError, match=r"b\.txt: damaged, its content has changed since it was written; pray"):
        require_sound(tmp_path, ["a.txt", "b.txt"], "pray")
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"a\.txt: no such file; run it again"):
        require_sound(tmp_path, ["a.txt", "b.txt"], "run it again")
