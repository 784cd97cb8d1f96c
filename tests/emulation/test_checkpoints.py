"""Checkpoint files: what comes back is what was saved or nothing, no code of theirs is run, and they cost little."""

from __future__ import annotations

import io
import logging
import math
import pickle
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.emulation import checkpoints, provenance
from fednet_emu.emulation.checkpoints import Saver, from_bytes, load_checkpoint, to_bytes
from fednet_emu.emulation.play import play
from fednet_emu.emulation.serialise import NotPlain, Reader, Writer
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.learner import Checkpoint
from fednet_emu.learning.graph.graph import Snapshot
from fednet_emu.records.folder.store import CHECKPOINT
from fednet_emu.testing import small_scenario

CHANGES = ("stop.rounds=6", "evaluation.every_rounds=2")
BELONGS = {"scenario": "s", "data file": {"digits": "d"}}


class Pair(NamedTuple):
    """A record of this module."""

    left: Any
    right: Any


def small_checkpoint() -> Checkpoint:
    """A checkpoint with a bit of everything."""
    values = {3: torch.arange(6.0), 5: Pair(0.5, np.eye(2)), 8: (None, math.nan, [True, -7, "x"])}
    return Checkpoint(Snapshot(9, values, 2, 5, 4096), [0.25, np.arange(3), np.float64(0.1)])


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


@given(st.lists(VALUES, max_size=3), st.dictionaries(st.integers(1, 99), VALUES, max_size=3))
def test_values_come_back_to_the_bit(readings: list[Any], values: dict[int, Any]) -> None:
    """Numbers, arrays and tensors in any nesting keep their bits, types, shapes and strides."""
    checkpoint = Checkpoint(Snapshot(100, values, 1, 2, 3, frozenset({4, 9}), frozenset({12})), readings)

    again = from_bytes(to_bytes(checkpoint, BELONGS), BELONGS)

    assert same(again.readings, readings)
    assert same(again.snapshot.values, values)
    assert again.snapshot[2:] == (1, 2, 3, frozenset({4, 9}), frozenset({12}))


def test_one_tensor_stays_one_and_slices_are_apart() -> None:
    """A tensor that occurs twice takes its memory once, and what shares memory is saved all the same."""
    whole = torch.arange(1000.0)
    twice = to_bytes(Checkpoint(Snapshot(1, {}), [whole, whole, whole.detach(), whole[:3], whole[::2]]), {})
    again = from_bytes(twice, {}).readings

    assert again[0] is again[1]
    assert same(again[3:], [whole[:3].clone(), torch.empty_strided((500,), (2,)).copy_(whole[::2])])
    assert len(twice) < 4 * (1000 + 1000 + 3 + 500) + 1000


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (object(), "class object"),
        (np.array(["x"]), "type <U1"),
        (lambda: 1, "class function"),
        (torch.eye(2).to_sparse(), "layout torch.sparse_coo"),
    ],
)
def test_what_would_need_code_is_not_saved(value: Any, what: str) -> None:
    """An object of any other kind is refused when it is saved, not when it is read."""
    with pytest.raises(NotPlain, match=what):
        Writer().plain([value])


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
def test_any_flipped_bit_is_noticed(where: str, tmp_path: Path) -> None:
    """Each bit of the first 600 bytes, and one bit of each other: the checkpoint is never taken for a sound one."""
    data = to_bytes(small_checkpoint(), BELONGS)
    path = tmp_path / CHECKPOINT
    header = [(place, bit) for place in range(600) for bit in range(8)]
    body = [(place, place % 8) for place in range(600, len(data))]
    path.write_bytes(data)
    assert load_checkpoint(tmp_path, BELONGS) is not None

    for place, bit in header if where == "header" else body:
        damaged = bytearray(data)
        damaged[place] ^= 1 << bit
        with pytest.raises((checkpoints.Refused, ValueError)):
            from_bytes(bytes(damaged), BELONGS)


def test_a_part_of_a_checkpoint_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Cut anywhere, or with something behind it, it is not used, and one sentence says so."""
    data = to_bytes(small_checkpoint(), BELONGS)
    for damaged in (*(data[:end] for end in range(0, len(data), 7)), data + b"\0", data + data):
        (tmp_path / CHECKPOINT).write_bytes(damaged)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert load_checkpoint(tmp_path, BELONGS) is None
        (message,) = caplog.messages
        assert message.startswith(f"{tmp_path / CHECKPOINT}: is ")
        assert message.endswith("; the run starts anew")


class Planted:
    """A pickle of this writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_planted_pickle_is_not_run(tmp_path: Path) -> None:
    """Neither a plain one, nor that of a file of torch, under the first line of a checkpoint, or in its tensors."""
    victim, folder, scenario = tmp_path / "was here", tmp_path / "run", small_scenario(*CHANGES)
    file = io.BytesIO()
    torch.save({"version": "0.1.0", "created": 1, "values": {1: Planted(victim)}, "readings": []}, file)
    code = pickle.dumps(Planted(victim))
    hashed = b"fednet_emu checkpoint 2 " + checkpoints._hash(code) + b"\n" + code
    in_tensors = to_bytes(Checkpoint(Snapshot(1, {1: np.frombuffer(code, np.uint8)}), []), {})
    for planted in (code, file.getvalue(), hashed, in_tensors):
        interrupted(folder, scenario)
        for name in (CHECKPOINT, "checkpoint.pt"):
            (folder / name).write_bytes(planted)
        assert play(scenario, "small", folder).summary["status"] == "done"
        for path in folder.iterdir():
            path.unlink()

    assert not victim.exists()
    pickle.loads(code)
    assert victim.exists()  # it would have been


@pytest.mark.parametrize("other", ["scenario", "version of fednet_emu", "version of a package"])
def test_a_checkpoint_of_something_else_is_not_used(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another seed, other source files or other packages: the run starts anew, says so, and ends as if undisturbed."""
    scenario = small_scenario(*CHANGES)
    whole = play(scenario, "small", tmp_path / "whole").summary
    interrupted(tmp_path / "run", scenario)
    if other == "scenario":
        interrupted(tmp_path / "other", small_scenario(*CHANGES, "seed=9"))
        (tmp_path / "other" / CHECKPOINT).replace(tmp_path / "run" / CHECKPOINT)
    elif other == "version of fednet_emu":
        monkeypatch.setattr(provenance, "source_hash", lambda: "0" * 32)
    else:
        monkeypatch.setattr(provenance, "versions", lambda: {"torch": "1.0"})
    again = play(scenario, "small", tmp_path / "run").summary

    log = (tmp_path / "run" / "log.txt").read_text()
    assert f"{CHECKPOINT}: belongs to another {other}; the run starts anew" in log
    assert "going on from a checkpoint" not in log
    assert again["loss"] == whole["loss"]
    assert again["wavefronts"] == whole["wavefronts"]


def test_a_checkpoint_of_another_format_is_not_used() -> None:
    """The version of the format comes first, so that a later one needs no other line to be understood."""
    data = to_bytes(small_checkpoint(), BELONGS)

    with pytest.raises(checkpoints.Refused, match="is of another version"):
        from_bytes(data.replace(b"checkpoint 2 ", b"checkpoint 3 ", 1), BELONGS)


# ---- how often -------------------------------------------------------------------------------------------------------


class Clock:
    """Host time as the test wants it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        """The time."""
        return self.now_s


class Graph:
    """What a saver looks at, with nothing in it."""

    caught_up = True

    def __init__(self, byte: int) -> None:
        self.byte = byte

    def at_rest(self) -> bool:
        """Always."""
        return True

    def known_byte(self) -> int:
        """The size of the next checkpoint."""
        return self.byte

    @property
    def host(self) -> Any:
        """Nobody counts."""
        return self

    def part(self, _name: str) -> Any:
        """Nobody counts."""
        return io.StringIO()


class Fed:
    """What a saver looks at."""

    timing_only = False

    def __init__(self, byte: int) -> None:
        self.graph, self.learner = Graph(byte), self

    def checkpoint(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("cost_s", "byte", "lost_s"), [(0.0, 0, 2.0), (0.03, 1_000_000, 2.0), (0.5, 10**8, 64.1), (2.0, 10**8, 192.0)]
)
def test_checkpoints_are_frequent_and_cheap(
    cost_s: float, byte: int, lost_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rounds of 0.1 s: no more than so much is ever lost, and less than 2 % of the time is spent."""
    clock, spent_s, at_s = Clock(), 0.0, [100.0]

    def write(_checkpoint: None) -> None:
        nonlocal spent_s
        clock.now_s += cost_s
        spent_s += cost_s
        at_s.append(clock.now_s)

    monkeypatch.setattr(checkpoints, "time", clock)
    saver, fed = Saver(None, 2.0, {}), Fed(byte)  # type: ignore[arg-type]
    monkeypatch.setattr(saver, "write", write)
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
        patch.setattr(checkpoints, "COST", math.inf)
        ended = play(scenario, "small", tmp_path / "run", on_round=odd)

    log = (tmp_path / "run" / "log.txt").read_text()
    assert ended.summary["status"] == "done"
    assert log.count("no checkpoints are saved: a value of the run is a value of class") == 1
