"""Processors: how long computations take, in which order, and what they cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.devices.processors import Computation, Processors, Work
from fednet_emu.devices.stragglers import NoStraggler, ShiftedExponential, SlowWindow, Straggler
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.clock import Clock
from fednet_emu.network.air.transfer import Delivery
from fednet_emu.radio.energy import CmosEnergy
from fednet_emu.records.ledger import SERVER, Ledger
from tests.quick import examples

LATE = Delivery(SERVER, SERVER, None, 0, 0.0, math.nan, 0.0, "deadline")


class Bench:
    """Processors with a clock and a ledger of their own."""

    def __init__(
        self, *speeds: float, straggler: Straggler | None = None, server: float | None = None, **energy: float
    ):
        self.clock, self.ledger = Clock(), Ledger()
        laws = ([CmosEnergy(**energy) if energy else None], straggler or NoStraggler(), 7)
        self.processors = Processors(self.clock, self.ledger, np.array(speeds), server, *laws)
        self.log: list[tuple[str, int]] = []

    def compute(self, device: int, flop: float, result: Any = None) -> Computation:
        computation = self.processors.run(device, Work(flop, result))
        computation.callbacks.append(lambda event: self.log.append((event.value, self.clock.now)))
        return computation

    def at(self, time_ns: int, action: Any) -> None:
        self.clock.call_at(time_ns, lambda _: action())

    def table(self) -> pd.DataFrame:
        """The records of all computations after everything has been played."""
        self.clock.run()
        return self.ledger.frame("computes")


@pytest.mark.parametrize(
    ("flop", "flop_per_s", "duration_ns"),
    [(720, 1e6, 720_000), (1e9, 1e9, 10**9), (1, 3e9, 1), (1, 1e9 / 3, 3), (7, 0.1, 70 * 10**9), (0, 1e6, 0)],
)
def test_a_computation_takes_work_over_speed_to_the_nanosecond(
    flop: float, flop_per_s: float, duration_ns: int
) -> None:
    """The end comes after flop / speed, rounded up to a nanosecond, and carries the result."""
    bench = Bench(flop_per_s)

    bench.compute(0, flop, "done")
    bench.clock.run()

    assert bench.log == [("done", duration_ns)]


def test_a_device_computes_one_thing_at_a_time_and_devices_side_by_side() -> None:
    """The second job of a device starts when its first has ended; another device is not held up."""
    bench = Bench(1e6, 1e6)

    bench.compute(0, 1000, "a")
    bench.compute(0, 500, "b")
    bench.compute(1, 1200, "other")
    table = bench.table()

    assert bench.log == [("a", 1_000_000), ("other", 1_200_000), ("b", 1_500_000)]
    assert table["started_s"].tolist() == [0.0, 0.0, 0.001]


def test_a_computation_cancelled_half_way_records_half_its_work_and_energy() -> None:
    """What was done until then is recorded as stopped, and its event never comes to a process that was cancelled."""
    bench = Bench(1e6, kappa=1e-18, clock_hz=1e6, flop_per_cycle=1.0)

    computation = bench.compute(0, 1000, "a")
    bench.at(250_000, lambda: computation.cancel(LATE))
    [row] = bench.table().itertuples()

    assert (row.ended_s, row.flop, row.stopped) == (0.00025, 250.0, "deadline")
    assert row.energy_j == pytest.approx(1e-18 * 250 * 1e12)
    assert bench.ledger.energy_j == row.energy_j


def test_cancelling_frees_the_processor_for_what_waits() -> None:
    """When the running job is cancelled, the next in the queue starts in that instant."""
    bench = Bench(1e6)

    first = bench.compute(0, 1000, "a")
    bench.compute(0, 1000, "b")
    bench.at(300_000, lambda: first.cancel(LATE))
    bench.clock.run(until=2_000_000)

    assert ("b", 1_300_000) in bench.log


def test_cancelling_a_whole_queue_leaves_the_device_idle() -> None:
    """After all jobs of a device are cancelled, a new one starts at once; jobs that never started leave no record."""
    bench = Bench(1e6)

    queue = [bench.compute(0, 1000, name) for name in "abc"]
    bench.at(300_000, lambda: [job.cancel(LATE) for job in queue])
    bench.at(400_000, lambda: bench.compute(0, 100, "new"))
    table = bench.table()

    assert ("new", 500_000) in bench.log
    assert table[["started_s", "ended_s", "stopped"]].values.tolist() == [[0, 0.0003, "deadline"], [0.0004, 0.0005, ""]]


def test_cancelling_what_waits_changes_nothing_for_what_runs() -> None:
    """A job that never started is dropped without a record."""
    bench = Bench(1e6)

    bench.compute(0, 1000, "a")
    waiting = bench.compute(0, 1000, "b")
    bench.at(300_000, lambda: waiting.cancel(LATE))

    assert bench.table()["ended_s"].tolist() == [0.001]
    assert waiting.describe() == "a computation of dev-0 that waits for its turn"


def test_cancelling_after_the_end_does_nothing() -> None:
    """The record of a finished computation stays as it is."""
    bench = Bench(1e6)

    done = bench.compute(0, 1000, "a")
    bench.at(2_000_000, lambda: done.cancel(LATE))

    assert bench.table()["stopped"].tolist() == [""]


def test_closing_stops_everything_for_the_reason_end() -> None:
    """At the end of a run, what computes is recorded up to now, and what waits is not."""
    bench = Bench(1e6, 1e6)
    for device in (0, 0, 1):
        bench.compute(device, 1000)

    bench.clock.run(until=400_000)
    bench.processors.close()
    table = bench.ledger.frame("computes")

    assert table[["device", "flop", "stopped"]].values.tolist() == [[0, 400.0, "end"], [1, 400.0, "end"]]


@examples(40)
@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 1000)), min_size=1, max_size=6))
def test_whatever_is_cancelled_one_device_never_computes_two_things(jobs: list[tuple[int, int]]) -> None:
    """Records of a device never overlap, and busy time times speed is the work recorded."""
    bench = Bench(1e9)
    for cancelled_ns, flop in jobs:
        job = bench.compute(0, flop)
        bench.at(cancelled_ns, lambda job=job: job.cancel(LATE))

    bench.clock.run()
    column = bench.ledger.computes.column

    assert np.all(column("started_ns")[1:] >= column("ended_ns")[:-1])
    assert (column("ended_ns") - column("started_ns")).sum() == pytest.approx(column("flop").sum())


def test_the_energy_of_a_computation_is_the_worked_example_of_the_literature() -> None:
    """2e4 cycles per sample, 500 samples, 1 GHz and kappa 1e-28 take 10 ms and 1 mJ per epoch."""
    bench = Bench(1e9, kappa=1e-28, clock_hz=1e9, flop_per_cycle=1.0)

    bench.compute(0, 2e4 * 500)
    [row] = bench.table().itertuples()

    assert row.ended_s == 0.010
    assert row.energy_j == pytest.approx(1e-3)


def test_energy_depends_on_the_work_not_on_how_long_a_straggler_takes() -> None:
    """Waiting is free: a slow window stretches the time and leaves the energy."""
    window = SlowWindow(devices=(1,), factor=3.0, from_s=0.0, to_s=10.0)
    bench = Bench(1e6, 1e6, straggler=window)

    for device in (0, 1):
        bench.compute(device, 1000)
    table = bench.table().set_index("device")

    assert table["ended_s"].to_dict() == {0: 0.001, 1: 0.003}
    assert table["energy_j"][0] == table["energy_j"][1]


def test_the_server_computes_at_its_speed_without_energy_or_stragglers() -> None:
    """Server work takes exactly flop / speed, and its energy is not counted."""
    bench = Bench(1e6, server=1e9, straggler=ShiftedExponential(mean_factor=5.0))

    bench.compute(SERVER, 1000)
    [row] = bench.table().itertuples()

    assert (row.device, row.ended_s, row.energy_j) == (SERVER, 1e-6, 0.0)


def test_straggler_draws_belong_to_a_device_and_its_count() -> None:
    """Another device's computations shift nobody's delays; a device's own delays differ from one to the next."""

    def durations(devices: list[int]) -> list[float]:
        bench = Bench(1e6, 1e6, straggler=ShiftedExponential(mean_factor=1.0))
        for device in devices:
            bench.compute(device, 1000)
        table = bench.table()
        mine = table[table["device"] == 0]
        return (mine["ended_s"] - mine["started_s"]).round(9).tolist()

    alone = durations([0, 0, 0])

    assert alone == durations([1, 0, 1, 1, 0, 0])
    assert len(set(alone)) == 3


def test_work_too_long_for_the_clock_leaves_the_processor_free() -> None:
    """The request is refused, first or second in the queue; at the end of the run the records close as always."""
    bench = Bench(1.0)
    bench.compute(0, 2.0)
    bench.compute(0, 1e18)

    with pytest.raises(ScenarioError, match="too long for the clock, got 1e\\+18 s"):
        bench.clock.run()
    bench.processors.close()
    with pytest.raises(ScenarioError, match="too long for the clock"):
        bench.compute(0, 1e18)
    bench.processors.close()

    assert bench.ledger.frame("computes")["ended_s"].tolist() == [2.0]
