"""Entries of the store: what comes back is what was saved or nothing, no code of theirs is run, they cost little."""

from __future__ import annotations

import io
import logging
import math
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.emulation import store
from fednet_emu.emulation.play import play
from fednet_emu.emulation.serialise import Reader, Writer
from fednet_emu.emulation.store import (
    Head,
    Refused,
    Saver,
    Shelf,
    bound,
    cache_folder,
    entries_in,
    from_bytes,
    to_bytes,
    usable,
)
from fednet_emu.federation.federation import Federation
from fednet_emu.records.folder import LEARNING
from fednet_emu.testing import small_scenario

CHANGES = ("stop.rounds=6", "evaluation.every_rounds=2")
MINE, NAME = Head({"seed": "1", "version of fednet_emu": "2"}), "0f" * 16


class Pair(NamedTuple):
    """A record of this module."""

    left: Any
    right: Any


VALUES_OF_ALL_KINDS = [torch.arange(6.0), Pair(0.5, np.eye(2)), (None, math.nan, [True, -7, "x"]), np.float64(0.1)]


def entry(value: Any, name: str = NAME) -> bytes:
    """The file of an entry."""
    writer = Writer()
    return to_bytes(name, writer.plain(value), writer.tensors)


def value_of(data: bytes, name: str = NAME) -> Any:
    """What the file of an entry holds."""
    plain, tensors = from_bytes(name, data)
    return Reader(tensors).value(plain)


def interrupted(folder: Path, scenario: Any) -> None:
    """Leave a run that was interrupted after four rounds, with its checkpoint."""

    def stop(fed: Federation) -> None:
        if fed.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(scenario, "small", folder, on_round=stop)


def same(got: Any, expected: Any) -> bool:
    """Whether two values are equal, to the bit and in their types."""
    if type(got) is not type(expected):
        return False
    if isinstance(expected, torch.Tensor):
        return (got.dtype, got.shape) == (expected.dtype, expected.shape) and (
            (expected.is_contiguous() or got.stride() == expected.stride())
            and got.contiguous().numpy().tobytes() == expected.contiguous().numpy().tobytes()
        )
    if isinstance(expected, np.ndarray | np.generic):
        return (got.dtype, got.shape, got.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
    if isinstance(expected, dict):
        return all(map(same, got.items(), expected.items())) and len(got) == len(expected)
    if isinstance(expected, list | tuple):
        return all(map(same, got, expected)) and len(got) == len(expected)
    return repr(got) == repr(expected)


NUMBERS = st.floats(width=64) | st.integers(-(2**70), 2**70) | st.booleans() | st.none() | st.text(max_size=5)
ARRAYS = st.builds(
    lambda kind, shape, step: np.arange(math.prod(shape) * step, step=step).astype(kind).reshape(shape),
    st.sampled_from(["f8", "f4", "i8", "i4", "u1", "?"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.just(1),
)
LEAVES = (
    NUMBERS
    | ARRAYS
    | ARRAYS.map(torch.from_numpy)
    | ARRAYS.map(lambda array: torch.from_numpy(array.T))
    | ARRAYS.filter(lambda array: array.size > 0).map(lambda array: array.reshape(-1)[0])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=3))
def test_values_come_back_to_the_bit(values: list[Any]) -> None:
    """Numbers, arrays and tensors in any nesting keep their bits, types, shapes and strides."""
    assert same(value_of(entry(values)), values)


def test_one_tensor_stays_one_and_slices_are_apart() -> None:
    """A tensor that occurs twice takes its memory once, and what shares memory is saved all the same."""
    whole = torch.arange(1000.0)
    twice = entry([whole, whole, whole.detach(), whole[:3], whole[::2]])
    again = value_of(twice)

    assert again[0] is again[1]
    assert same(again[3:], [whole[:3].clone(), torch.empty_strided((500,), (2,)).copy_(whole[::2])])
    assert len(twice) < 4 * (1000 + 1000 + 3 + 500) + 1000


def test_a_record_is_made_without_running_or_importing_anything() -> None:
    """Its class must be loaded and be a record: no other class, function or module is reached by its name."""
    loaded = set(sys.modules)
    for name in (
        "os:system",
        "subprocess:Popen",
        "antigravity:x",
        "builtins:eval",
        "pathlib:Path",
        "",
        "fractions:a.b",
    ):
        with pytest.raises(ValueError, match="no such class of records"):
            Reader({}).value(["record", name, "echo"])

    assert set(sys.modules) == loaded


@pytest.mark.parametrize("where", ["header", "body"])
def test_any_flipped_bit_is_noticed(where: str) -> None:
    """Each bit of the first 600 bytes, and one bit of each other: the entry is never taken for a sound one."""
    data = entry(VALUES_OF_ALL_KINDS)
    header = [(place, bit) for place in range(600) for bit in range(8)]
    body = [(place, place % 8) for place in range(600, len(data))]

    for place, bit in header if where == "header" else body:
        damaged = bytearray(data)
        damaged[place] ^= 1 << bit
        with pytest.raises((Refused, ValueError)):
            from_bytes(NAME, bytes(damaged))


# ---- shelves ---------------------------------------------------------------------------------------------------------

KEYS = [bytes([number]) * 16 for number in range(4)]


def filled(own: Path | None, shared: Path | None = None) -> Path:
    """A folder with a chapter of two values, and a snapshot; returns the folder of the head."""
    shelf = Shelf(own, shared, MINE)
    shelf.note(MINE.digest)
    for number in (0, 1):
        shelf.put(KEYS[number], value_for(number))
    shelf.keep(KEYS[2], {KEYS[3]: torch.arange(5.0)})
    return (own or shared or Path()) / MINE.digest.hex()


def value_for(number: int) -> Any:
    """What is read under a key."""
    return Pair(number, np.full(3, number))


def known(own: Path | None, shared: Path | None = None, head: Head = MINE) -> tuple[list[int], bool]:
    """Numbers of the values that are found, each of which is right; and whether the snapshot is found, and right."""
    shelf, found = Shelf(own, shared, head), []
    for number in (0, 1):
        try:
            assert same(shelf.get(KEYS[number]), value_for(number))
            found.append(number)
        except KeyError:
            pass
    values = shelf.load(KEYS[2]) if KEYS[2] in shelf.snapshots else {}
    assert not values or same(values, {KEYS[3]: torch.arange(5.0)})
    assert (MINE.digest in shelf.passed) == bool(found)
    return found, bool(values)


def test_what_is_written_is_found(tmp_path: Path) -> None:
    """In the folder of the run, in one that runs share, and in the second one where the first has gone."""
    filled(tmp_path / "own", tmp_path / "shared")
    assert known(tmp_path / "own") == known(None, tmp_path / "shared") == ([0, 1], True)
    assert known(tmp_path / "elsewhere") == ([], False)
    assert known(tmp_path / "own", head=Head({**MINE.items, "seed": "2"})) == ([], False)


def test_a_large_value_is_not_kept_and_keeps_no_small_one_out(tmp_path: Path) -> None:
    """Of a large tensor, a value that needs code, and small tensors read in between, the small ones are kept."""
    shelf, small = Shelf(tmp_path, None, MINE), [torch.full((3,), float(place)) for place in range(3)]
    for place, value in enumerate((small[0], torch.zeros(10**6), small[1], [torch.zeros(3), print], small[2])):
        shelf.put(bytes([place]), value)
    shelf.write()

    again = Shelf(tmp_path, None, MINE)
    assert [again.get(bytes([place])).tolist() for place in (0, 2, 4)] == [its.tolist() for its in small]
    for place in (1, 3):
        with pytest.raises(KeyError):
            again.get(bytes([place]))
    assert sum(entry.byte for entry in entries_in(tmp_path)) < 2000


def test_a_value_is_stored_as_it_was_read(tmp_path: Path) -> None:
    """Changes of an array or a tensor in place come later; the same object read twice is two values."""
    shelf, array, tensor = Shelf(tmp_path, None, MINE), np.zeros(3), torch.zeros(3)
    for place in range(2):
        shelf.put(bytes([place]), (array, tensor))
        array += 1
        tensor += 1
    shelf.write()

    again = Shelf(tmp_path, None, MINE)
    for place in range(2):
        assert same(again.get(bytes([place])), (np.full(3, float(place)), torch.full((3,), float(place))))


def test_a_damaged_entry_is_written_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The warning comes once; a later run finds all."""
    (path,) = filled(None, tmp_path).glob("*.known")
    path.write_bytes(path.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        assert known(None, tmp_path) == ([], True)
        filled(None, tmp_path)
        assert known(None, tmp_path) == ([0, 1], True)
    assert len(caplog.messages) == 1


def test_folders_of_others_stay(tmp_path: Path) -> None:
    """A cache in a folder that holds other things: only sub-folders named by a digest are bounded."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "head.json").write_text("{}")
    filled(None, tmp_path)
    bound(tmp_path, 0)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["head.json", "logs", "web"]


@pytest.mark.parametrize("name", ["~nosuchuser/x", "x" * 300, "file/x"])
def test_a_cache_that_cannot_be_is_not_used(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown home, a long name, a file in place of a folder."""
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDNET_CACHE", name)
    assert usable(cache_folder()) is None


@pytest.mark.parametrize("harm", ["cut", "empty", "bit", "link", "folder", "swapped", "longer", "gone", "huge"])
@pytest.mark.parametrize("suffix", [".known", ".snapshot"])
def test_an_entry_that_was_tampered_with_counts_as_missing(
    harm: str, suffix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning names it, and the others are found."""
    (path,) = filled(tmp_path).glob(f"*{suffix}")
    data = path.read_bytes()
    path.unlink()
    if harm == "link":
        (tmp_path / "target").write_bytes(data)
        path.symlink_to(tmp_path / "target")
    elif harm == "folder":
        path.mkdir()
    elif harm == "huge":
        path.write_bytes(data)
        monkeypatch.setattr(store, "LARGEST_BYTE", 10)
    elif harm != "gone":
        flipped = bytes([*data[:-9], data[-9] ^ 4, *data[-8:]])
        other = entry({"passed": [], "read": [], "values": []}, "0e" * 16)
        path.write_bytes({"cut": data[:-1], "empty": b"", "bit": flipped, "swapped": other}.get(harm, data + b"x"))
    with caplog.at_level(logging.WARNING):
        found, snapshot = known(tmp_path)

    if harm != "huge":
        assert (found, snapshot) == (([], True) if suffix == ".known" else ([0, 1], False))
    silent = harm == "gone" or (suffix == ".snapshot" and harm in ("link", "folder"))
    assert len(caplog.messages) == (not silent)
    assert all("; its values are computed" in message for message in caplog.messages)


def test_a_folder_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor one behind a link; one sentence says so."""
    filled(None, tmp_path / "shared")
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    assert usable(tmp_path / "shared") == tmp_path / "shared"
    caplog.set_level(logging.INFO, "fednet_emu")
    assert usable(tmp_path / "link") is None
    monkeypatch.setattr(store.os, "getuid", lambda: 12345)
    assert usable(tmp_path / "shared") is None
    assert known(None, tmp_path / "shared") == ([], False)
    assert caplog.text.count("is no folder, a link, or of another user, and is not used") == 2


def test_a_shared_folder_that_cannot_be_written_stops_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file is in its place: one warning, and what the run keeps for itself is there."""
    (tmp_path / "shared").write_text("mine")
    with caplog.at_level(logging.WARNING):
        filled(tmp_path / "own", tmp_path / "shared")

    assert known(tmp_path / "own") == ([0, 1], True)
    assert sum("learnt values are not shared" in message for message in caplog.messages) == 1
    assert (tmp_path / "shared").read_text() == "mine"


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    """Of entries that were used at different times those that fit in stay; without any, the folders go."""
    folder = filled(None, tmp_path)
    paths = [folder / f"{number:032x}.known" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(1000))
        os.utime(path, (2e9 + number, 2e9 + number))
    before = sum(entry.byte for entry in entries_in(tmp_path))

    bound(tmp_path, 3000 + (folder / "head.json").stat().st_size)
    assert [path.exists() for path in paths] == [False, False, True, True, True]
    assert bound(tmp_path, 0) < before
    assert list(tmp_path.iterdir()) == []


class Planted:
    """A pickle of this writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_planted_pickle_is_not_run(tmp_path: Path) -> None:
    """Neither a plain one, nor that of a file of torch, under the first line of an entry, or in its tensors."""
    victim, folder, scenario = tmp_path / "was here", tmp_path / "run", small_scenario(*CHANGES)
    file = io.BytesIO()
    torch.save({"version": "0.1.0", "passed": [], "read": [Planted(victim)], "values": {}}, file)
    code = pickle.dumps(Planted(victim))
    hashed = b"fednet_emu learning 3 " + store._hash(code) + b"\n" + code
    for planted in (code, file.getvalue(), hashed, entry(np.frombuffer(code, np.uint8))):
        interrupted(folder, scenario)
        paths = list((folder / LEARNING).glob("*/*"))
        assert len(paths) >= 3
        for path in paths:
            path.write_bytes(planted)
        assert play(scenario, "small", folder).summary["status"] == "done"
        for path in folder.iterdir():
            path.unlink()

    assert not victim.exists()
    pickle.loads(code)
    assert victim.exists()  # it would have been


def test_learning_of_something_else_is_not_used(tmp_path: Path) -> None:
    """Of another seed: the run starts anew, says so, and ends as if undisturbed."""
    scenario = small_scenario(*CHANGES)
    whole = play(scenario, "small", tmp_path / "whole").summary
    interrupted(tmp_path / "run", scenario)
    interrupted(tmp_path / "other", small_scenario(*CHANGES, "seed=9"))
    shutil.rmtree(tmp_path / "run" / LEARNING)
    (tmp_path / "other" / LEARNING).replace(tmp_path / "run" / LEARNING)
    again = play(scenario, "small", tmp_path / "run").summary

    log = (tmp_path / "run" / "log.txt").read_text()
    assert f"{LEARNING}: the content belongs to another seed; everything is computed" in log
    assert "going on from a checkpoint" not in log
    assert again["loss"] == whole["loss"]
    assert again["trained_jobs"] == whole["trained_jobs"]


# ---- how often -------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Graph:
    """What a saver looks at, with nothing in it."""

    puts_off = False

    def __init__(self, byte: int) -> None:
        self.byte, self.program, self.passed = byte, self, b""

    def snapshot(self) -> dict[bytes, Any]:
        """Nothing."""
        return {}

    def at_rest(self) -> bool:
        return True

    def known_byte(self) -> int:
        return self.byte

    @property
    def host(self) -> Any:
        return self

    def part(self, _name: str) -> Any:
        return io.StringIO()


class Fed:
    timing_only = False

    def __init__(self, byte: int) -> None:
        self.graph = Graph(byte)


@pytest.mark.parametrize(
    ("cost_s", "byte", "lost_s"), [(0.0, 0, 2.0), (0.03, 1_000_000, 2.0), (0.5, 10**8, 64.1), (2.0, 10**8, 192.0)]
)
def test_checkpoints_are_frequent_and_cheap(
    cost_s: float, byte: int, lost_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rounds of 0.1 s: no more than so much is ever lost, and less than 2 % of the time is spent."""
    clock, spent_s, at_s = Clock(), 0.0, [100.0]

    def write(*_snapshot: Any) -> None:
        nonlocal spent_s
        clock.now_s += cost_s
        spent_s += cost_s
        at_s.append(clock.now_s)

    monkeypatch.setattr(store, "time", clock)
    saver, fed = Saver(Shelf(None, None, MINE), 2.0), Fed(byte)
    monkeypatch.setattr(saver._shelf, "keep", write)
    shares = []
    for _ in range(10_000):
        clock.now_s += 0.1
        saver(fed)  # type: ignore[arg-type]
        shares.append(spent_s / (clock.now_s - 100.0))
    first = next(place for place, share in enumerate(shares) if share > 0) if spent_s else 0

    gaps_s = np.diff([*at_s, clock.now_s])
    assert len(at_s) > 4
    assert gaps_s.max() <= lost_s + cost_s + 0.1 + 1e-6
    assert max(shares[2 * first :]) < 0.02  # before, the first one may have taken longer than its size let expect


def test_a_run_whose_values_cannot_be_saved_goes_on_without(tmp_path: Path) -> None:
    """One warning says why there is no checkpoint; the run itself ends as any other."""

    class Odd:
        """A value of an algorithm's own that is no record."""

    kept = []

    def odd(fed: Federation) -> None:
        kept.append(fed.defer(Odd, size=1))
        fed.graph.read(kept[-1])

    scenario = small_scenario(*CHANGES, "training.checkpoint_s=1e-9")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "COST", math.inf)
        ended = play(scenario, "small", tmp_path / "run", on_round=odd)

    log = (tmp_path / "run" / "log.txt").read_text()
    assert ended.summary["status"] == "done"
    assert log.count("no checkpoints are saved: a value of the run is a value of class") == 1
