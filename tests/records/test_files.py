"""Claims about files: what is wrong with one."""

from fednet_emu.records.files import checksum, flaw


def test_a_file_is_missing_sound_or_damaged(tmp_path):
    """Without a checksum to compare with, a file that is there is sound."""
    path = tmp_path / "table.csv"
    assert flaw(path, None) == "no such file"
    path.write_text("1,2")
    expected = checksum(path)

    assert flaw(tmp_path, expected) == "no such file"
    assert flaw(path, None) == flaw(path, expected) == ""
    path.write_text("1,3")
    assert flaw(path, expected) == "damaged, its content is not what was written"
