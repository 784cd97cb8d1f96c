"""Claims about idle time: what is left beside sending, receiving and computing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.play import play
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.summaries import idle_s
from tests.quick import examples

S = 1_000_000_000


def test_idle_is_the_rest_of_a_run(rows, make_ledger):
    """Of 5 s, devices 0 and 1 listen, compute and send for 1 s each; device 2 never had its turn."""
    assert idle_s(make_ledger(rows), 3, 5 * S).tolist() == [2, 2, 5]


def test_what_overlaps_counts_once(rows, make_ledger):
    """A computation from 3 to 4.5 s beside device 0's uplink from 3 to 4 s takes half a second of its idle time."""
    rows["computes"].append({**rows["computes"][0], "started_ns": 3 * S, "ended_ns": 9 * S // 2})

    assert idle_s(make_ledger(rows), 3, 5 * S).tolist() == [1.5, 2, 5]


def test_without_records_all_time_is_idle():
    """Nobody did anything."""
    assert idle_s(Ledger(), 2, 7 * S).tolist() == [7, 7]


SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 20)), max_size=12)


@examples(60)
@given(spans=SPANS)
def test_idle_is_what_a_second_by_second_count_finds(spans):
    """Ticking off every second of every computation leaves the same, whatever overlaps; what is late is cut off."""
    ledger, free = Ledger(), np.ones((3, 15), bool)
    for device, start, length in spans:
        ledger.computes.append((device, start * S, (start + length) * S, 1.0, 0.0, 1, 2, 0))
        free[device, start : start + length] = False

    assert idle_s(ledger, 3, 15 * S).tolist() == free.sum(axis=1).tolist()


@pytest.mark.parametrize(("idle_w", "expected_j"), [(0.0, 0.0), (0.25, 2.5)])
def test_waiting_costs_idle_power_times_idle_time(tmp_path, idle_w, expected_j):
    """Two devices, one at a time always busy: one of them waits through all 10 s, at 0.25 W for 2.5 of 5 J."""
    changes = [
        "devices={count: 2, placement: {kind: disc, radius_m: 50}, speed: {kind: fixed, flop_per_s: 1.0e+8}}",
        *("channel=ideal", f"channel.device.idle_w={idle_w}", "algorithm.cohort=1", "stop={simulated_s: 10}"),
    ]

    summary = play(load_scenario("quickstart", changes), "idle", tmp_path / "run", timing_only=True).summary

    assert summary["transfers"] > 10
    assert summary["waiting_j"] == pytest.approx(expected_j, abs=1e-6)
    assert summary["idle_j"] == pytest.approx(2 * expected_j, abs=1e-6)
