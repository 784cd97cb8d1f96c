"""Devices: availability, placement, speeds and stragglers."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad
from scipy.stats import beta

from fednet_emu.devices.availability import Always, Periodic, Presence, Windows
from fednet_emu.devices.placement import Disc
from fednet_emu.devices.speeds import FlashSpeed, LogNormalSpeed
from fednet_emu.devices.stragglers import (
    LogNormal,
    NormalSteps,
    NoStraggler,
    Pareto,
    ShiftedExponential,
    SlowWindow,
    Straggler,
)
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S
from fednet_emu.kernel.streams import Streams
from fednet_emu.records.ledger import SERVER
from fednet_emu.testing import run_small, small_federation
from tests.quick import examples

LAWS = [NoStraggler(), ShiftedExponential(mean_factor=0.7), LogNormal(sigma=0.6), Pareto(alpha=3.0)]


def expected_order_statistic(law: Straggler, k: int, n: int) -> float:
    """Mean of the k-th fastest of n computations of 1 s: the quantile function weighted with a beta density."""
    value, _ = quad(lambda u: law.duration_s(1.0, 0, 0.0, u) * float(beta.pdf(u, k, n - k + 1)), 0.0, 1.0, limit=200)
    return float(value)


@pytest.mark.parametrize(
    ("k", "n", "factor"), [(10, 10, 2.92897), (8, 10, 1.42897), (100, 100, 5.18738), (90, 100, 2.25841)]
)
def test_waiting_for_k_of_n_exponentials_is_the_published_number(k: int, n: int, factor: float) -> None:
    """E[k-th of n] = a + (H_n - H_(n-k)) / mu for the shifted exponential, here with a = 1 / mu = 1."""
    assert expected_order_statistic(ShiftedExponential(mean_factor=1.0), k, n) == pytest.approx(1.0 + factor, abs=2e-5)


@pytest.mark.parametrize(("n", "factor"), [(10, 5.67546), (100, 17.74671)])
def test_slowest_of_n_paretos_is_the_published_number(n: int, factor: float) -> None:
    """E[max of n] for the Pareto law with alpha = 2 and minimum 1."""
    assert expected_order_statistic(Pareto(alpha=2.0), n, n) == pytest.approx(factor, rel=1e-4)


@pytest.mark.parametrize(
    ("law", "u", "duration_s"),
    [
        (ShiftedExponential(mean_factor=0.5), 1 - 1 / math.e, 3.0),
        (LogNormal(sigma=0.6), 0.5, 2.0),
        (LogNormal(sigma=0.6), 0.8413447460685429, 2 * math.exp(0.6)),
        (Pareto(alpha=2.0), 0.75, 4.0),
        (NormalSteps(step_s=0.5, deviation_s=0.1), 0.8413447460685429, 2.2),
        (NormalSteps(step_s=0.5, deviation_s=9.0), 1e-6, 1e-9),
    ],
)
def test_quantiles_are_the_closed_form(law: Straggler, u: float, duration_s: float) -> None:
    """Work of 2 s at known quantiles of each law."""
    assert law.duration_s(2.0, 0, 0.0, u) == pytest.approx(duration_s, rel=1e-9)


@examples(30)
@given(st.sampled_from(LAWS), st.floats(1e-6, 1e3), st.floats(1e-9, 1 - 1e-9), st.floats(1e-9, 1 - 1e-9))
def test_durations_scale_with_the_work_and_grow_with_the_draw(
    law: Straggler, work_s: float, u: float, v: float
) -> None:
    """Twice the work takes twice the time, and a quantile function never falls."""
    low, high = law.duration_s(work_s, 0, 0.0, min(u, v)), law.duration_s(work_s, 0, 0.0, max(u, v))

    assert low <= high
    assert law.duration_s(2 * work_s, 0, 0.0, u) == pytest.approx(2 * law.duration_s(work_s, 0, 0.0, u))


@examples(60)
@given(st.floats(1e-3, 50), st.floats(0, 30), st.floats(0, 20), st.floats(0.01, 20), st.floats(1.01, 50))
def test_a_slow_window_does_exactly_the_nominal_work(
    work_s: float, start_s: float, from_s: float, length_s: float, factor: float
) -> None:
    """Speed integrated from start to end, 1 / factor inside the window and 1 outside, is the work."""
    to_s = from_s + length_s
    law = SlowWindow(devices=(3,), factor=factor, from_s=from_s, to_s=to_s)

    duration_s = law.duration_s(work_s, 3, start_s, 0.5)
    inside_s = max(0.0, min(start_s + duration_s, to_s) - max(start_s, from_s))

    assert duration_s - inside_s + inside_s / factor == pytest.approx(work_s, rel=1e-9)
    assert law.duration_s(work_s, 4, start_s, 0.5) == work_s


KEY = 12


def test_always_is_always():
    """No end, and no waiting for a return."""
    assert Always().until_ns(3, 7, KEY) == FOREVER_NS
    assert Always().returns_ns(3, 7, KEY) == 7


@examples(100)
@given(device=st.integers(0, 50), now_ns=st.integers(0, 10**11))
def test_a_periodic_device_comes_and_goes_on_time(device, now_ns):
    """From its return it is there for exactly `on_s`, and from its leaving away for exactly `off_s`."""
    law = Periodic(on_s=3.0, off_s=7.0)
    back_ns = law.returns_ns(device, now_ns, KEY)
    leaves_ns = law.until_ns(device, back_ns, KEY)

    assert now_ns <= back_ns < now_ns + 7 * NS_PER_S + 1
    assert back_ns < leaves_ns <= back_ns + 3 * NS_PER_S
    assert law.until_ns(device, leaves_ns, KEY) == leaves_ns
    assert law.returns_ns(device, leaves_ns, KEY) == leaves_ns + 7 * NS_PER_S
    assert law.until_ns(device, leaves_ns + 7 * NS_PER_S, KEY) == leaves_ns + 10 * NS_PER_S


def test_phases_are_spread_evenly():
    """At any instant 30 % of the devices are there, and their phases are uniform."""
    law = Periodic(on_s=3.0, off_s=7.0)
    presence = Presence(law, KEY, 10_000)
    returns_s = np.array([law.returns_ns(device, law.until_ns(device, 0, KEY), KEY) for device in range(5000)]) / 1e9

    assert len(presence.present(0)) / 10_000 == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 10_000))
    assert stats.kstest(returns_s % 10.0 / 10.0, "uniform").pvalue > 1e-3


def test_more_devices_shift_nobodys_phase():
    """A device's windows belong to its number."""
    law = Periodic(on_s=1.0, off_s=1.0)
    few, more = Presence(law, KEY, 10).present(0), Presence(law, KEY, 1000).present(0)

    assert more[more < 10].tolist() == few.tolist()


def test_windows_are_half_open():
    """There from the first instant on, gone at the last; not there before, between and after."""
    law = Windows(devices={1: ((1.0, 2.0), (5.0, 6.0))})
    there_ns = {at_s: law.until_ns(1, int(at_s * NS_PER_S), KEY) for at_s in (0.0, 1.0, 1.5, 2.0, 5.5, 6.0)}

    assert there_ns == {0.0: 0, 1.0: 2e9, 1.5: 2e9, 2.0: 2e9, 5.5: 6e9, 6.0: 6e9}
    returns_ns = [law.returns_ns(1, at_s * NS_PER_S, KEY) for at_s in (0, 1, 2, 5, 6)]
    assert returns_ns == [1e9, 1e9, 5e9, 5e9, FOREVER_NS]


def test_a_device_without_windows_is_always_there_and_one_with_none_never():
    """Not listed is not the same as an empty list."""
    law = Windows(devices={1: ()})

    assert law.until_ns(0, 5, KEY) == FOREVER_NS
    assert law.returns_ns(0, 5, KEY) == 5
    assert law.until_ns(1, 5, KEY) == 5
    assert law.returns_ns(1, 5, KEY) == FOREVER_NS


def test_presence_lists_who_is_there_and_who_is_next():
    """Devices in order, the server always; the next return is the first of all."""
    presence = Presence(Windows(devices={0: ((2.0, 3.0),), 2: ((1.0, 3.0),)}), KEY, 3)

    assert presence.present(0).tolist() == [1]
    assert presence.present(NS_PER_S).tolist() == [1, 2]
    assert presence.present(2 * NS_PER_S).tolist() == [0, 1, 2]
    assert presence.until_ns(SERVER, 0) == FOREVER_NS
    assert Presence(Windows(devices={0: ((2.0, 3.0),)}), KEY, 1).next_return_ns(0) == 2 * NS_PER_S
    assert Presence(Always(), KEY, 4).present(0).tolist() == [0, 1, 2, 3]


@examples(50)
@given(now_ms=st.integers(0, 20_000), key=st.integers(0, 2**64 - 1))
@pytest.mark.parametrize(
    "law", [Always(), Periodic(on_s=1.3, off_s=0.7), Windows(devices={0: ((0.0, 5.0),), 2: ((1.0, 2.0), (3.0, 9.0))})]
)
def test_all_at_once_are_as_one_by_one(law, now_ms, key):
    """The vectorised answer is that of asking each device how long it stays."""
    now_ns = now_ms * 1_000_000

    one_by_one = [law.until_ns(device, now_ns, key) > now_ns for device in range(5)]
    assert law.present(5, now_ns, key).tolist() == one_by_one


def place(placement, count, seed=1):
    return placement.positions_m(count, Streams(seed)("placement"))


def test_a_disc_is_uniform_over_its_area():
    """Half of the devices are beyond 0.707 of the radius, not beyond half of it; angles are even."""
    xy_m = place(Disc(radius_m=200.0), 20_000)
    distance_m, angle = np.hypot(*xy_m.T), np.arctan2(xy_m[:, 1], xy_m[:, 0])

    assert stats.kstest((distance_m / 200.0) ** 2, "uniform").pvalue > 1e-3
    assert stats.kstest(angle / (2 * np.pi) + 0.5, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(distance_m, angle)[0, 1]) < 4 / np.sqrt(20_000)


def test_a_ring_is_uniform_over_its_area():
    """Nobody inside the inner radius, nobody outside the outer one, and area for area the same number."""
    distance_m = np.hypot(*place(Disc(radius_m=500.0, inner_radius_m=300.0), 20_000).T)

    assert 300.0 <= distance_m.min() < distance_m.max() <= 500.0
    assert stats.kstest((distance_m**2 - 300.0**2) / (500.0**2 - 300.0**2), "uniform").pvalue > 1e-3


def test_more_devices_move_none_of_the_others():
    """Device k stands in the same place in a network of ten and of a thousand."""
    disc = Disc(radius_m=200.0)

    assert place(disc, 1000)[:10].tolist() == place(disc, 10).tolist()
    assert place(disc, 10, seed=2).tolist() != place(disc, 10).tolist()


@pytest.mark.parametrize("count", [1, 3])
def test_a_list_needs_one_pair_per_device(count):
    """Too few or too many pairs are refused; the text has the number of pairs and of devices."""
    placement = "devices.placement={kind: list, xy_m: [[1, 2], [3, 4]]}"
    with pytest.raises(ScenarioError) as caught:
        load_scenario("quickstart", [f"devices.count={count}", placement])

    assert f"xy_m: not one for each device, got 2; must be as many as devices.count, {count}" in str(caught.value)


DATA = Path(os.environ.get("FEDNET_DATA", Path(__file__).parents[3] / "shared" / "data"))
RNG = np.random.default_rng(1)


def test_log_normal_speeds_have_the_median_and_spread_asked_for() -> None:
    """The logarithms have mean log(median) and deviation sigma, within five standard errors."""
    logs = np.log(LogNormalSpeed(median_flop_per_s=1e7, sigma=0.5).draw(10_000, RNG))

    assert logs.mean() == pytest.approx(np.log(1e7), abs=5 * 0.5 / 100)
    assert logs.std() == pytest.approx(0.5, abs=5 * 0.5 / 141)


@pytest.mark.parametrize("given", [2, 5])
def test_a_list_must_give_every_device_its_speed(given: int) -> None:
    """A list for fewer or more devices than there are is refused; no device has a compute time of zero."""
    speed = {"kind": "list", "flop_per_s": [1e6] * given}
    with pytest.raises(ScenarioError) as caught:
        load_scenario("quickstart", ["devices.count=3", "devices.profile=null", f"devices.speed={json.dumps(speed)}"])

    assert f"flop_per_s: not one for each device, got {given}; must be as many as devices.count, 3" in str(caught.value)


def test_a_listed_speed_is_the_device_of_that_place() -> None:
    """Compute times in a run follow the list: 720 FLOP at 1, 2, 4 and 8 MFLOP/s."""
    fed = run_small("devices.speed={kind: list, flop_per_s: [1e6, 2e6, 4e6, 8e6]}", "stop.rounds=1")
    computes = fed.ledger.frame("computes").set_index("device")

    assert (computes["ended_s"] - computes["started_s"]).sort_index().tolist() == pytest.approx(
        [720e-6, 360e-6, 180e-6, 90e-6], abs=1e-12
    )


def test_drawn_speeds_differ_with_the_seed_and_are_seen_by_algorithms() -> None:
    """The speeds come from the scenario's seed, and `device.flop_per_s` shows them."""

    def speeds(seed: int) -> list[float]:
        fed = small_federation(f"seed={seed}", "devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 1}")
        return [device.flop_per_s for device in fed.devices()]

    assert speeds(0) == speeds(0) != speeds(1)


def test_phones_of_real_users_spread_ninefold() -> None:
    """By the nearest measured phone, times are 0.179, 0.588 or 1.642 s per batch, as FLASH maps them."""
    if not (DATA / "device_flash").is_dir():
        pytest.skip("no device_flash: set FEDNET_DATA to a folder that has it")
    nearest, between = (FlashSpeed(median_flop_per_s=1e9, rule=rule) for rule in ("nearest", "interpolated"))
    speeds = nearest.draw(20_000, np.random.default_rng(0), DATA)

    assert speeds.max() / speeds.min() == pytest.approx(1.642 / 0.179)
    assert len(np.unique(speeds)) == 3
    assert nearest.draw(5, np.random.default_rng(0), DATA).tolist() == speeds[:5].tolist()
    assert np.mean(between.draw(20_000, np.random.default_rng(0), DATA) > 1e9) == pytest.approx(0.5, abs=0.02)
