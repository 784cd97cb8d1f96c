"""Claims about files: what is wrong with one, and what is in tables for spreadsheets."""

import csv
import io

import numpy as np
import pandas as pd

from fednet_emu.files.writing import checksum, csv_text, flaw, read_csv


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


def test_no_text_in_a_csv_file_is_a_formula(tmp_path):
    """An apostrophe keeps a spreadsheet from running it; numbers, and texts that are numbers, are left alone."""
    risky = ['=HYPERLINK("x")', "+1+cmd", "-1-1", "@SUM(A1)", "\ttab", "'quoted'", "- 5"]
    harmless = ["-0.5", "+1e6", "a=b", "50 % & more", "", "-inf"]
    names = [*risky, *harmless]
    levels = [-0.5, "-x", *[None] * (len(names) - 2)]
    table = pd.DataFrame({"=name": names, "loss": -np.arange(len(names)), "level": levels, "-b": -1.5})
    table["kind"] = pd.Categorical(names)
    text = csv_text(table, 6)
    rows = list(csv.reader(io.StringIO(text)))
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    again = read_csv(tmp_path / "a.csv", keep_default_na=False)

    assert rows[0] == ["'=name", "loss", "level", "'-b", "kind"]
    assert [row[0] for row in rows[1:]] == [f"'{name}" for name in risky] + harmless == [row[4] for row in rows[1:]]
    assert [row[1:4] for row in rows[1:3]] == [["0", "-0.5", "-1.5"], ["-1", "'-x", "-1.5"]]
    assert list(again) == list(table)
    assert again["=name"].tolist() == names
    assert again["loss"].tolist() == table["loss"].tolist()
    assert again["level"].tolist() == ["-0.5", "-x", *[""] * 11]
