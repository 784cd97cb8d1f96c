"""Cohorts, and determinism."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from fednet_emu.errors import AlgorithmError
from fednet_emu.federation.cohort import cohort_size
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import Process
from fednet_emu.testing import run_small, small_federation, small_scenario


class Ask:
    """Asks for a cohort at an instant, and notes who came and when."""

    def __init__(self, size: int, at_s: float = 0.0) -> None:
        self.size, self.at_s = size, at_s
        self.seen: list[tuple[float, list[int]]] = []

    def run(self, fed: Federation) -> Process:
        yield fed.clock.sleep(self.at_s)
        cohort = yield fed.cohort(self.size, 0)
        self.seen.append((fed.clock.now_s, [device.index for device in cohort]))


def asked(size: int, at_s: float, *settings: str) -> Any:
    """When the cohort came and who was in it."""
    ask = Ask(size, at_s)
    small_federation(*settings).run(ask)
    return ask.seen[0]


def windows(**devices: str) -> str:
    listed = ", ".join(f"'{name.removeprefix('dev')}': {spans}" for name, spans in devices.items())
    return f"devices.availability={{kind: windows, devices: {{{listed}}}}}"


def drawn(seed: int, rounds: int) -> list[tuple[int, ...]]:
    """Cohorts of 3 of 10 devices."""
    fed = small_federation("devices.count=10", f"seed={seed}", timing_only=True)
    return [tuple(device.index for device in fed.cohort(3, t).value) for t in range(rounds)]


def test_another_seed_gives_another_cohort() -> None:
    """The draw depends on the seed and the round, and on nothing else."""
    assert drawn(0, 20) == drawn(0, 20) != drawn(1, 20)
    assert len(set(drawn(0, 20))) > 10


def test_every_device_is_as_likely_as_the_others() -> None:
    """Over 2000 draws of 3 of 10, counts stay within five deviations of 600, and no draw repeats a device."""
    cohorts = drawn(0, 2000)
    counts = Counter(index for cohort in cohorts for index in cohort)

    assert all(abs(counts[index] - 600) < 5 * 20.5 for index in range(10))
    assert all(list(cohort) == sorted(set(cohort)) for cohort in cohorts)


def test_only_those_who_are_there_are_drawn() -> None:
    """At 2 ms devices 0 and 2 are away, so a cohort of three has the other two."""
    away = "[[0, 0.001], [0.005, 1]]"

    assert asked(3, 0.002, windows(dev0=away, dev2=away)) == (0.002, [1, 3])


def test_when_all_are_away_the_cohort_comes_with_the_first_to_return() -> None:
    """The event waits for the first return, in the order of time and not of numbers."""
    returns_s = {"dev0": 0.009, "dev1": 0.007, "dev2": 0.005, "dev3": 0.006}
    spans = {name: f"[[0, 0.001], [{back_s}, 1]]" for name, back_s in returns_s.items()}

    assert asked(2, 0.002, windows(**spans)) == (0.005, [2])


def test_two_who_return_in_one_instant_are_both_in() -> None:
    """Everything that happens in the instant of the return counts."""
    spans = dict.fromkeys(("dev0", "dev1", "dev2", "dev3"), "[[0, 0.001], [0.005, 1]]")

    assert asked(9, 0.002, windows(**spans)) == (0.005, [0, 1, 2, 3])


def test_among_some_nobody_else_is_drawn() -> None:
    """Of devices 1, 4 and 7 two are drawn; while only others are there, the draw waits for one of the three."""
    fed = small_federation("devices.count=10", timing_only=True)
    cohorts = [fed.cohort(2, t, among=np.array([1, 4, 7])).value for t in range(60)]

    class Wait:
        """Asks for device 1 alone, which is away for 5 ms."""

        def run(self, fed: Federation) -> Process:
            [k] = yield fed.cohort(1, 0, among=np.array([1]))
            assert (k.index, fed.now_s) == (1, 0.005)

    small_federation(windows(dev1="[[0.005, 9]]")).run(Wait())

    assert {tuple(k.index for k in cohort) for cohort in cohorts} == {(1, 4), (1, 7), (4, 7)}


@pytest.mark.parametrize(
    ("cohort", "size"),
    [(0.01, 1), (0.25, 3), (0.999, 10), (1.0, 10), (np.float32(1.0), 10), (1, 1), (np.int64(1), 1), (7, 7)],
)
def test_a_float_is_a_share_and_an_int_a_count(cohort: float, size: int) -> None:
    """Of ten devices, 1.0 is all and 1 is one, as with McMahan's C = 1.0; shares round half up, to at least one."""
    assert cohort_size(cohort, 10) == size
    assert len(small_federation("devices.count=10", timing_only=True).cohort(cohort).value) == size


@pytest.mark.parametrize(
    ("size", "remedy"), [(10.0, "write 10"), (1.5, "0.5 half"), (0, "0.5"), (0.0, "0.5"), (-1, "0.5"), ("1.0", "1.0")]
)
def test_a_size_that_is_neither_is_a_slip_of_the_algorithm(size: Any, remedy: str) -> None:
    """A float above 1.0 is no count, not even a whole one."""
    with pytest.raises(AlgorithmError, match=rf"fed\.cohort: must be a number of devices.*got {size!r}; .*{remedy}"):
        small_federation().cohort(size)


VARIED = (
    "devices.count=8",
    "devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 0.5}",
    "devices.straggler={kind: shifted-exponential, mean_factor: 0.5}",
    "channel=urban-micro",
    "network.uplink.access=ofdma",
    "network.uplink.message_loss={kind: random, probability: 0.2}",
    "data={kind: synthetic, n_samples: 240, n_test: 60, features: [1, 8, 8], classes: 4}",
    "partition={kind: dirichlet, alpha: 0.5, min_samples: 4}",
    "model=softmax",
    "algorithm.cohort=5",
    "algorithm.batch_size=10",
    "algorithm.local_steps=3",
    "stop.rounds=5",
)


@pytest.fixture
def _threads() -> Iterator[None]:
    """Put torch's number of threads back, which the scenario may set."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def varied() -> Federation:
    """A run of the varied scenario, serial and with training."""
    return run_small(*VARIED)


@pytest.mark.usefixtures("_threads")
def test_learnt_numbers_do_not_depend_on_how_fast_the_host_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a host whose clock stands still and on one where every look at it takes an hour, models agree bit for bit."""
    settings = (*VARIED, "training={threads: 1}", "stop.rounds=12")
    found = []
    for hour_s in (0.0, 3600.0):
        with monkeypatch.context() as patched:
            patched.setattr(time, "perf_counter", partial(next, count(0.0, hour_s)))
            fed = small_federation(*settings)
            found.append(fed.read(fed.run(small_scenario(*settings).algorithm)))

    assert torch.equal(*found)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("how", ["engine=by-rule", "threads=1", "threads=2"])
def test_how_training_is_run_changes_no_event(how: str, varied: Federation) -> None:
    """Its engine and its threads on the host are no business of the simulated clock."""
    assert run_small(*VARIED, f"training.{how}").ledger.event_digest() == varied.ledger.event_digest()


def test_a_timing_only_run_has_the_same_events(varied: Federation) -> None:
    """Leaving out training changes neither time nor bits nor who does what."""
    timed = run_small(*VARIED, timing_only=True)

    assert timed.ledger.event_digest() == varied.ledger.event_digest()
    assert timed.ledger.energy_j == varied.ledger.energy_j
    assert timed.ledger.transfers.column("value_id").tolist() == varied.ledger.transfers.column("value_id").tolist()


@pytest.mark.parametrize("model", ["softmax", "{kind: mlp, hidden: [16]}", "mcmahan-cnn"])
def test_serial_and_batched_training_agree_after_five_rounds(model: str) -> None:
    """With devices of unequal sizes, the models of the two engines differ by at most 1e-5 in relative norm."""

    def trained(engine: str) -> tuple[torch.Tensor, Federation]:
        settings = (*VARIED, f"model={model}", f"training.engine={engine}", "evaluation.every_rounds=5")
        fed = small_federation(*settings)
        final = fed.run(small_scenario(*settings).algorithm)
        assert final is not None
        return fed.read(final), fed

    serial, fed = trained("serial")
    batched, _ = trained("batched")
    moved = (serial - fed.task.model.initial()).norm()

    assert len(set(fed.task.n_samples.tolist())) > 4
    assert float((serial - batched).norm() / serial.norm()) <= 1e-5
    assert moved > 100 * (serial - batched).norm()
