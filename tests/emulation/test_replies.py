"""Values kept in the run folder one by one: they survive a kill at any moment, and nothing false comes back."""

import logging

import numpy as np
import pytest

from fednet_emu.emulation.checkpoints import LINE_BYTE, kept_replies
from fednet_emu.errors import DataError
from fednet_emu.records.folder.store import REPLIES

MINE = {"scenario": "1", "version of fednet_emu": "2"}


def value(number):
    """A value as clients' answers are: records with bytes, numbers, and nothing."""
    return (("content", [("a", "arrays", [np.full(100, number, np.uint8)])]), number, 0.5, [None])


def written(folder, *keys, belongs=MINE):
    """Keep a value for each key, and return the file."""
    with kept_replies(folder, belongs) as kept:
        for number, key in enumerate(keys):
            kept.put(key, value(number))
    return folder / REPLIES


def found(folder, *keys, belongs=MINE):
    """Whether there is the right value for each key."""
    with kept_replies(folder, belongs) as kept:
        got = [kept.get(key) for key in keys]
    for number, its in enumerate(got):
        if its is not None:
            (_, ((_, _, (array,)),)), *rest = its
            assert rest == [number, 0.5, [None]]
            assert array.dtype == np.uint8
            assert array.tolist() == [number] * 100
    return [its is not None for its in got]


def test_what_was_kept_is_found(tmp_path):
    """Also by the run itself, and by one that goes on and keeps more; other keys have nothing."""
    written(tmp_path, "0 0 train", "1 0 train")
    with kept_replies(tmp_path, MINE) as kept:
        assert len(kept) == 2
        kept.put("2 0 a b", value(2))
        assert kept.get("2 0 a b")[1] == 2
        assert kept.get("2 0") is None

    assert found(tmp_path, "0 0 train", "1 0 train", "2 0 a b", "3 0 train") == [True, True, True, False]


def test_a_write_that_was_cut_off_is_as_none(tmp_path):
    """Wherever it was cut, the values before it are found, and others can be kept after them."""
    whole = written(tmp_path, "a", "b").read_bytes()
    for length in (*range(0, len(whole), 37), len(whole) - 1):
        (tmp_path / REPLIES).write_bytes(whole[:length])
        one, two = found(tmp_path, "a", "b")
        assert not two
        assert one or length < len(whole) * 0.8
        with kept_replies(tmp_path, MINE) as kept:
            if not one:
                kept.put("a", value(0))
            kept.put("b", value(1))
        assert found(tmp_path, "a", "b") == [True, True]


@pytest.mark.parametrize("place", [5, 60, 120, 400, -300, -3])
def test_what_is_damaged_is_not_read(tmp_path, place):
    """One byte that is not what was written hides its value and those after it; a false one never comes back."""
    path = written(tmp_path, "a", "b")
    data = bytearray(path.read_bytes())
    data[place] ^= 0x20
    path.write_bytes(data)

    assert not all(found(tmp_path, "a", "b"))
    assert found(tmp_path, "a", "b")[1] is False


def test_a_length_beyond_the_file_is_no_length(tmp_path):
    """It is not asked for, whatever memory it would take."""
    place = len(written(tmp_path, "a").read_bytes())
    whole = written(tmp_path, "a", "b").read_bytes()
    line = b"%b %b     \n" % (b"9" * 25, whole[place:].split()[1])
    (tmp_path / REPLIES).write_bytes(whole[:place] + line + whole[place + len(line) :])

    assert len(line) == LINE_BYTE
    assert found(tmp_path, "a", "b") == [True, False]


@pytest.mark.parametrize("other", MINE)
def test_values_of_something_else_are_of_no_use(tmp_path, caplog, other):
    """Another scenario, app or version starts anew, and says why."""
    caplog.set_level(logging.INFO, "fednet_emu")
    written(tmp_path, "a")

    assert found(tmp_path, "a", belongs={**MINE, other: "9"}) == [False]
    assert f"belongs to another {other}; the run starts anew" in caplog.text
    assert found(tmp_path, "a") == [False]


def test_memory_holds_only_the_places(tmp_path):
    """A hundred values of a megabyte take none."""
    import tracemalloc

    big = np.zeros(1_000_000, np.uint8)
    tracemalloc.start()
    with kept_replies(tmp_path, MINE) as kept:
        for number in range(100):
            kept.put(str(number), big)
        held, _ = tracemalloc.get_traced_memory()
        assert kept.get("7").nbytes == big.nbytes
    tracemalloc.stop()

    assert held < 5e6


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    """The file that cannot be written is named in one sentence."""
    with kept_replies(tmp_path, MINE) as kept:
        file = kept._file

        class Full:
            name = file.name

            def __getattr__(self, name):
                return getattr(file, name)

            def write(self, data):
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(kept, "_file", Full())
        with pytest.raises(DataError, match=rf"{REPLIES}.* cannot be written \(No space left on device\)"):
            kept.put("a", 1)
