"""Claims about a battery: when it is empty, when it is charged again, and that no joule is made or lost."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from fednet_emu.devices.availability import Periodic, Presence
from fednet_emu.devices.batteries import COMPUTING, IDLE, SENDING, Batteries, Battery, Load
from fednet_emu.devices.harvesting import (
    ConstantHarvesting,
    Harvesting,
    PoissonHarvesting,
    SolarHarvesting,
    TraceHarvesting,
)
from fednet_emu.devices.powers import PerDevice
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, Clock, Process, to_ns
from fednet_emu.kernel.streams import Streams, uniform
from fednet_emu.records.laws import charge_problem
from fednet_emu.records.ledger import IdleEnergy, Ledger
from tests.quick import examples

KEY = 5


class Bench:
    """Batteries with a clock and a ledger of their own; `log` has when a load was cut and when a device was back."""

    def __init__(self, count: int = 1, idle_w: float = 0.0, **battery: object) -> None:
        self.clock, self.ledger = Clock(), Ledger()
        self.ledger.idle = IdleEnergy(count * idle_w)
        self.batteries = Batteries(
            Battery(**battery), count, PerDevice((idle_w,), bytes(count)), self.clock, self.ledger, Streams(1)
        )
        self.log: list[tuple[str, int]] = []

    def draw(self, power_w: float, device: int = 0, use: int = SENDING) -> Load:
        return self.batteries.load(device, use, power_w, lambda: self.log.append(("empty", self.clock.now)))

    def draw_whenever_on(self, power_w: float) -> None:
        """Draw, and again each time that the device is back."""

        def empty() -> None:
            self.log.append(("empty", self.clock.now))
            self.batteries.when_back(0, back)

        def back() -> None:
            self.log.append(("back", self.clock.now))
            self.batteries.load(0, SENDING, power_w, empty)

        self.batteries.load(0, SENDING, power_w, empty)

    def rows(self, until_s: float) -> np.ndarray:
        """Device, time, charge, harvested, spilled, and what was drawn, by row, after so much time."""
        self.clock.run(until=round(until_s * NS_PER_S))
        self.batteries.close()
        names = [name for name in self.ledger.batteries.columns if name != "state"]
        return np.array([self.ledger.batteries.column(name) for name in names]).T.astype(float)


@examples(200)
@given(
    capacity_j=st.floats(1e-3, 1e4), power_w=st.floats(1e-2, 1e3), share=st.floats(0, 0.99), restart=st.floats(0.001, 1)
)
def test_it_is_empty_and_back_at_the_instants_of_the_closed_form(
    capacity_j: float, power_w: float, share: float, restart: float
) -> None:
    """C / (P - H) after a full battery is drawn from it is empty, and restart C / H later the device is back."""
    harvest_w = share * power_w
    bench = Bench(capacity_j=capacity_j, restart_share=restart, harvesting=ConstantHarvesting(power_w=harvest_w))
    bench.draw_whenever_on(power_w)
    empty_s = capacity_j / (power_w - harvest_w)
    back_s = empty_s + restart * capacity_j / harvest_w if harvest_w > 1e-9 * power_w else math.inf
    bench.clock.run(until=min(math.ceil(min(back_s, 2 * empty_s) * NS_PER_S * (1 + 1e-8)) + 9, FOREVER_NS - 1))

    assert bench.log[0] == ("empty", pytest.approx(empty_s * NS_PER_S, rel=1e-14, abs=1))
    if back_s <= 2 * empty_s:  # what less than a nanosecond would have drawn was left
        assert bench.log[1] == ("back", pytest.approx(back_s * NS_PER_S, rel=1e-12, abs=2 + 1 / share))


def test_round_numbers_are_met_to_the_nanosecond() -> None:
    """10 J at 2.5 W, of which 0.5 W are harvested, last for 5 s; 1 J at 0.5 W takes 2 s; and so on."""
    bench = Bench(capacity_j=10.0, restart_share=0.1, harvesting=ConstantHarvesting(power_w=0.5))
    bench.draw_whenever_on(2.5)
    bench.rows(10.1)

    s = NS_PER_S
    assert bench.log == [
        ("empty", 5 * s), ("back", 7 * s), ("empty", 7 * s + s // 2), ("back", 9 * s + s // 2), ("empty", 10 * s)
    ]  # fmt: skip
    assert charge_problem(bench.ledger).startswith("dev-0: sending_j")  # the ledger has no transfers


def test_idle_power_is_drawn_under_everything_else() -> None:
    """1 W all the time: 5 s of it and 3 s of computing at 0.5 W leave 10 - 5 - 1.5 J; then 3.5 s until empty."""
    bench = Bench(idle_w=1.0, capacity_j=10.0)
    began: list[Load] = []
    bench.clock.call_at(2 * NS_PER_S, lambda _: began.append(bench.draw(0.5, use=COMPUTING)))
    bench.clock.call_at(5 * NS_PER_S, lambda _: bench.batteries.unload(began[0], 1.5))
    rows = bench.rows(20.0)

    assert rows[:, 1].tolist() == [0, 2 * NS_PER_S, 5 * NS_PER_S, 8.5 * NS_PER_S, 20 * NS_PER_S]
    assert rows[:, 2].tolist() == [10.0, 8.0, 3.5, 0.0, 0.0]
    assert bench.batteries.used_j(IDLE) == 8.5
    assert not bench.batteries.on[0]
    assert bench.log == []  # nothing was cut


def test_a_load_may_change_its_power_in_blocks() -> None:
    """2 W, 0 W, 2 W, a second each: 3 J are gone after 2.5 s."""
    bench = Bench(capacity_j=3.0)
    load = bench.draw(9.0)
    bench.batteries.change(load, [0, NS_PER_S, 2 * NS_PER_S], [2.0, 0.0, 2.0])
    bench.clock.run()

    assert bench.log == [("empty", 2_500_000_000)]
    assert load.drawn_j == 3.0
    assert load.cut_ns == 2_500_000_000


def test_what_is_spilled_keeps_no_device_on() -> None:
    """A full battery of 1 J, 1 W drawn, 2 W of sun for 10 s: no more than 1 J is in it then, so it is empty at 11 s."""
    bench = Bench(capacity_j=1.0, harvesting=TraceHarvesting(power_w=(2.0, 0.0), step_s=10.0))
    bench.draw(1.0)
    bench.clock.run(until=15 * NS_PER_S)

    assert bench.log == [("empty", 11 * NS_PER_S)]


def test_arrivals_can_be_asked_for_again_after_a_look_ahead() -> None:
    """After thirty-two pieces ahead of any instant, the next arrival is that of the sums of exponential gaps."""
    source, mean_s = PoissonHarvesting(mean_interval_s=0.5).source(KEY), 0.5
    gaps_ns = [max(to_ns(-mean_s * math.log(uniform(KEY, n))), 1) for n in range(9000)]
    arrives_ns = [0, *accumulate(gaps_ns)]
    for place in range(0, 8900, 20):
        ahead_ns = arrives_ns[place]
        for _ in range(32):
            ahead_ns = source.piece(ahead_ns).until_ns
        assert ahead_ns == arrives_ns[place + 32]
        assert source.piece(arrives_ns[place]).until_ns == arrives_ns[place + 1]


def test_energy_packets_bring_a_device_back_at_the_first_that_suffices() -> None:
    """With 0.4 of 1 J needed and 0.25 J in a packet, the second arrival after the charge was gone."""
    harvesting = PoissonHarvesting(arrival_j=0.25, mean_interval_s=100.0)
    bench = Bench(capacity_j=1.0, initial_share=0.0, restart_share=0.4, harvesting=harvesting)
    back: list[int] = []
    bench.batteries.when_back(0, lambda: back.append(bench.clock.now))
    bench.clock.run(until=100_000 * NS_PER_S)
    charge_j, harvested_j = bench.ledger.batteries.column("charge_j"), bench.ledger.batteries.column("harvested_j")

    assert len(back) == 1
    assert charge_j.tolist() == [0.0, 0.5]
    assert harvested_j.tolist() == [0.0, 0.5]


def mean_power_w(harvesting: Harvesting, until_s: float) -> float:
    bench = Bench(capacity_j=1e9, initial_share=0.5, harvesting=harvesting)
    return float(bench.rows(until_s)[-1, 3]) / until_s


def test_a_day_of_sun_is_the_integral_of_its_sine() -> None:
    """A whole day gives peak x day / pi, a morning half of it, whatever the steps; the night nothing."""
    for steps in (4, 100):
        sun = SolarHarvesting(peak_w=3.0, day_s=1000.0, steps=steps)
        assert mean_power_w(sun, 1000.0) == pytest.approx(sun.mean_w, rel=1e-12)
        assert mean_power_w(sun, 1000.0) == pytest.approx(3.0 / math.pi, rel=1e-12)
        assert mean_power_w(sun, 500.0) == pytest.approx(6.0 / math.pi, rel=1e-12)
        assert mean_power_w(sun, 250.0) == pytest.approx(6.0 / math.pi, rel=1e-12)


def test_a_trace_starts_again() -> None:
    """1 W, 0 W and 2 W, 10 s each, bring 30 J in 30 s, 40 in 40 and 50 in the first 55 seconds."""
    trace = TraceHarvesting(power_w=(1.0, 0.0, 2.0), step_s=10.0)

    assert [mean_power_w(trace, t) * t for t in (5.0, 30.0, 40.0, 55.0)] == pytest.approx([5.0, 30.0, 40.0, 50.0])
    assert trace.mean_w == 1.0


POWERS = st.floats(0.01, 5.0)


@examples(20, phases=[Phase.generate])
@given(data=st.data())
def test_a_slow_integrator_agrees(data: st.DataObject) -> None:
    """A replay in millisecond steps from each row has the charge of the next one, and the same spill in the end.

    It starts from each row anew: where the battery charges slowly, a millijoule of rounding at the end of a cycle is
    seconds at the end of the next one.
    """
    trace = tuple(data.draw(st.lists(POWERS, min_size=1, max_size=4), "trace"))
    idle_w, capacity_j = data.draw(POWERS, "idle"), data.draw(st.floats(1.0, 50.0), "capacity")
    harvesting = TraceHarvesting(power_w=trace, step_s=0.5)
    bench = Bench(idle_w=idle_w, capacity_j=capacity_j, restart_share=0.3, harvesting=harvesting)
    plan = data.draw(st.lists(st.tuples(st.integers(0, 19), st.integers(1, 10), POWERS), max_size=4), "plan")
    asked: list[tuple[int, int, float]] = []

    def begin(start: int, length: int, power_w: float) -> None:
        if bench.batteries.on[0]:
            load = bench.draw(power_w)
            asked.append((bench.clock.now, bench.clock.now + length * NS_PER_S, power_w))
            bench.clock.call_at((start + length) * NS_PER_S, lambda _: end(load, start, power_w))

    def end(load: Load, start: int, power_w: float) -> None:
        drawn_s = min(bench.clock.now, load.cut_ns) / NS_PER_S - start
        bench.batteries.unload(load, power_w * drawn_s)

    for start, length, power_w in plan:
        bench.clock.call_at(start * NS_PER_S, lambda _, item=(start, length, power_w): begin(*item))
    rows = bench.rows(30.0)
    step_ns, charge_j, on, cut_ns, spilled_j, ahead = 1_000_000, capacity_j, True, -1.0, 0.0, list(rows)
    slack_j = 2e-3 * (5.0 + idle_w + sum(power_w for _, _, power_w in asked))  # all power, at both ends of a replay
    for at_ns in range(0, 30 * NS_PER_S + 1, step_ns):
        while ahead and ahead[0][1] <= at_ns:
            row = ahead.pop(0)
            assert row[2] == pytest.approx(charge_j, abs=slack_j)
            charge_j = row[2]
            if on and charge_j <= 1e-6:
                on, cut_ns = False, row[1]
            elif not on:
                on = charge_j >= 0.3 * capacity_j - 1e-6
        draws = [p for a, b, p in asked if a <= at_ns < b and a > cut_ns]
        drawn_w = (sum(draws) + idle_w) if on else 0.0
        charge_j += (trace[at_ns // (NS_PER_S // 2) % len(trace)] - drawn_w) * 1e-3
        assert charge_j > -slack_j or not on, "the battery has been empty without a row"
        spilled_j += max(charge_j - capacity_j, 0.0)
        charge_j = min(charge_j, capacity_j)
    assert not ahead
    assert rows[-1, 4] == pytest.approx(spilled_j, abs=slack_j * len(rows))
    drawn_j = rows[:, 5:].sum(axis=1)
    assert np.allclose(capacity_j + rows[:, 3] - rows[:, 4] - drawn_j, rows[:, 2], rtol=0, atol=1e-9 * 200)


def test_presence_knows_of_batteries() -> None:
    """Empty devices are away until they may be charged, and who is never charged never returns."""
    bench = Bench(3, capacity_j=1.0, restart_share=0.5, harvesting=ConstantHarvesting(power_w=0.1))
    presence = Presence(Periodic(on_s=1e6, off_s=1.0), KEY, 3, bench.batteries)
    before = presence.present(0).tolist()
    bench.draw(1.1, device=1)
    bench.clock.run(until=2 * NS_PER_S)

    assert (before, presence.present(bench.clock.now).tolist()) == ([0, 1, 2], [0, 2])
    assert presence.until_ns(1, bench.clock.now) == bench.clock.now < presence.until_ns(0, bench.clock.now)
    assert presence.only(np.array([1])).next_return_ns(bench.clock.now) == 6 * NS_PER_S
    assert presence.next_return_ns(bench.clock.now) == bench.clock.now
    assert not presence.always

    dark = Bench(1, capacity_j=1.0)
    dark.draw(1.0)
    dark.clock.run()
    assert Presence(Periodic(on_s=1.0, off_s=1.0), KEY, 1, dark.batteries).next_return_ns(0) == FOREVER_NS
    assert not dark.batteries.when_back(0, lambda: None)


def test_initial_charges_are_each_devices_own() -> None:
    """Uniform below the initial share, and unchanged by more devices."""
    few, many = (Bench(n, capacity_j=8.0, initial_share=0.75, initial_spread=0.5) for n in (10, 4000))
    charges_j = many.batteries.charges_j()

    assert few.batteries.charges_j().tolist() == charges_j[:10].tolist()
    assert charges_j.min() >= 2.0
    assert charges_j.max() <= 6.0
    assert charges_j.mean() == pytest.approx(4.0, abs=4 * 4 / math.sqrt(12 * 4000))


def test_who_waits_for_charge_is_called_however_far_ahead_that_is() -> None:
    """Half a joule at 1 W takes 0.5 s, fifty steps of a trace: more than one look ahead."""
    harvesting = TraceHarvesting(power_w=(1.0,), step_s=0.01)
    bench = Bench(capacity_j=1.0, initial_share=0.0, restart_share=0.5, harvesting=harvesting)
    back = bench.clock.event()

    def call() -> None:
        back.succeed()

    def main() -> Process:
        bench.batteries.when_back(0, call)
        yield back

    bench.clock.run_process(main())

    assert bench.clock.now == NS_PER_S // 2
