"""Values kept in the run folder one by one: they survive a kill at any moment, and nothing false comes back."""

import logging

import numpy as np
import pytest

from fednet_emu.emulation import store
from fednet_emu.emulation.store import REPLY, Head, Replies
from fednet_emu.errors import DataError

MINE = {"scenario": "1", "version of fednet_emu": "2"}


def value(number):
    """A value as clients' answers are: records with bytes, numbers, and nothing."""
    return (("content", [("a", "arrays", [np.full(100, number, np.uint8)])]), number, 0.5, [None])


def written(folder, *keys, belongs=MINE):
    """Keep a value for each key, and return the files."""
    kept = Replies(folder / "learning", Head(belongs))
    for number, key in enumerate(keys):
        kept.put(key, value(number))
    return [kept._path(key) for key in keys]


def found(folder, *keys, belongs=MINE):
    """Whether there is the right value for each key."""
    kept = Replies(folder / "learning", Head(belongs))
    got = [kept.get(key) for key in keys]
    for number, its in enumerate(got):
        if its is not None:
            (_, ((_, _, (array,)),)), *rest = its
            assert rest == [number, 0.5, [None]]
            assert array.dtype == np.uint8
            assert array.tolist() == [number] * 100
    return [its is not None for its in got]


def test_what_was_kept_is_found(tmp_path, caplog):
    """Also by the run itself, and by one that goes on and keeps more; other keys have nothing."""
    caplog.set_level(logging.INFO, "fednet_emu")
    written(tmp_path, "0 0 train", "1 0 train")
    kept = Replies(tmp_path / "learning", Head(MINE))
    kept.put("2 0 a b", value(2))

    assert "going on: 2 replies of clients are known" in caplog.text
    assert kept.get("2 0 a b")[1] == 2
    assert kept.get("2 0") is None
    assert found(tmp_path, "0 0 train", "1 0 train", "2 0 a b", "3 0 train") == [True, True, True, False]


def test_a_file_that_was_cut_off_is_as_none(tmp_path):
    """Wherever it was cut, the others are found, and it can be kept again."""
    _, path = written(tmp_path, "a", "b")
    whole = path.read_bytes()
    for length in (*range(0, len(whole), 37), len(whole) - 1):
        path.write_bytes(whole[:length])
        assert found(tmp_path, "a", "b") == [True, False]
        written(tmp_path, "a", "b")
        assert found(tmp_path, "a", "b") == [True, True]


@pytest.mark.parametrize("place", [5, 60, 120, 400, -300, -3])
def test_what_is_damaged_is_not_read(tmp_path, place):
    """One byte that is not what was written hides its value; a false one never comes back."""
    path, _ = written(tmp_path, "a", "b")
    data = bytearray(path.read_bytes())
    data[place] ^= 0x20
    path.write_bytes(data)

    assert found(tmp_path, "a", "b") == [False, True]


def test_an_answer_to_something_else_is_no_answer(tmp_path):
    """A sound file under the name of another one, or a link to one, is not used."""
    one, other = written(tmp_path, "a", "b")
    other.write_bytes(one.read_bytes())
    assert found(tmp_path, "a", "b") == [True, False]

    one.rename(tmp_path / "elsewhere")
    one.symlink_to(tmp_path / "elsewhere")
    assert found(tmp_path, "a", "b") == [False, False]


@pytest.mark.parametrize("other", MINE)
def test_values_of_something_else_are_of_no_use(tmp_path, caplog, other):
    """Another scenario, app or version starts anew, and says why."""
    caplog.set_level(logging.INFO, "fednet_emu")
    written(tmp_path, "a")

    assert found(tmp_path, "a", belongs={**MINE, other: "9"}) == [False]
    assert f"belongs to another {other}; everything is computed" in caplog.text
    assert found(tmp_path, "a") == [True]


def test_memory_holds_none_of_them(tmp_path):
    """A hundred values of a megabyte take none."""
    import tracemalloc

    big = np.zeros(1_000_000, np.uint8)
    kept = Replies(tmp_path / "learning", Head(MINE))
    tracemalloc.start()
    for number in range(100):
        kept.put(str(number), big)
    held, _ = tracemalloc.get_traced_memory()
    assert kept.get("7").nbytes == big.nbytes
    tracemalloc.stop()

    assert held < 5e6


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    """The file that cannot be written is named in one sentence, and no part of it is left."""
    kept = Replies(tmp_path / "learning", Head(MINE))
    kept.put("a", 1)

    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.Path, "write_bytes", full)
    with pytest.raises(DataError, match=rf"{REPLY}.* cannot be written \(No space left on device\)"):
        kept.put("b", 1)
    assert len(list((tmp_path / "learning").glob("*/*"))) == 2
