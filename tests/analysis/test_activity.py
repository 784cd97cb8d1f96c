"""Claims about the bars of a timeline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.analysis.activity import activity_bars, first_rounds_end_s
from fednet_emu.analysis.run import RunRecords
from tests.quick import examples

NEVER = np.nan


@pytest.fixture
def bars_of(tmp_path, write_run):
    """The bars of a run with the given rows, as sorted tuples (device, activity, start, end, failed)."""

    def bars(until_s=100.0, **tables):
        run = RunRecords.opened(write_run(tmp_path / "run", tables))
        found = activity_bars(run.table("transfers"), run.table("receptions"), run.table("computes"), until_s)
        return sorted(found.itertuples(index=False, name=None))

    return bars


def transfer(kind, sender, receiver, times, lost="", number=0):
    """A row of the table of transfers; `times` are when it was requested, started and ended."""
    requested_s, started_s, ended_s = times
    parties = {"kind": kind, "sender": sender, "receiver": receiver, "lost": lost, "transfer": number}
    return {**parties, "requested_s": requested_s, "started_s": started_s, "ended_s": ended_s}


def test_a_round_of_one_device(bars_of):
    """A device hears the model, computes, waits for the channel and sends: four bars in a row."""
    bars = bars_of(
        transfers=[transfer("downlink", -1, 0, (0, 0, 1)), transfer("uplink", 0, -1, (3, 4, 6), number=1)],
        computes=[{"device": 0, "started_s": 1.0, "ended_s": 3.0}],
    )
    assert sorted(bars, key=lambda bar: bar[2]) == [
        (0, "downlink", 0, 1, False),
        (0, "compute", 1, 3, False),
        (0, "waiting", 3, 4, False),
        (0, "uplink", 4, 6, False),
    ]


def test_each_receiver_of_a_broadcast_has_a_bar(bars_of):
    """A broadcast is a bar of each device that it was for, failed only for those that missed it."""
    bars = bars_of(
        transfers=[transfer("downlink", -1, -2, (0, 1, 2), number=9)],
        receptions=[{"transfer": 9, "receiver": 0}, {"transfer": 9, "receiver": 5, "lost": "outage"}],
    )
    assert bars == [
        (0, "downlink", 1, 2, False),
        (0, "waiting", 0, 1, False),
        (5, "downlink", 1, 2, True),
        (5, "waiting", 0, 1, False),
    ]


def test_a_sidelink_occupies_both_ends_and_only_the_sender_waits(bars_of):
    """Half-duplex: neither end of a device-to-device transfer can do anything else with its radio meanwhile."""
    assert bars_of(transfers=[transfer("sidelink", 1, 2, (0, 3, 4), lost="outage")]) == [
        (1, "sidelink", 3, 4, True),
        (1, "waiting", 0, 3, False),
        (2, "sidelink", 3, 4, True),
    ]


def test_a_transfer_that_never_started_is_a_failed_wait(bars_of):
    """A device that gave up waiting for the channel shows its wait, hatched, and no transfer."""
    assert bars_of(transfers=[transfer("uplink", 1, -1, (2, NEVER, 5), lost="timeout")]) == [(1, "waiting", 2, 5, True)]


def test_a_stopped_computation_has_failed(bars_of):
    """A device that left in the middle of its work shows work that came to nothing."""
    row = {"device": 0, "started_s": 1.0, "ended_s": 2.0, "stopped": "left"}
    assert bars_of(computes=[row]) == [(0, "compute", 1, 2, True)]


def test_bars_end_with_the_window(bars_of):
    """What lasts beyond the window is cut off there, what begins later is left out, what never ended fills it."""
    bars = bars_of(
        until_s=3.0,
        transfers=[transfer("uplink", 0, -1, (2, 2, 9)), transfer("uplink", 1, -1, (3, 3, 4), number=1)],
        computes=[{"device": 2, "started_s": 1.0, "ended_s": NEVER}, {"device": 3, "started_s": 5.0, "ended_s": 6.0}],
    )
    assert bars == [(0, "uplink", 2, 3, False), (2, "compute", 1, 3, False)]


def test_a_run_in_which_nothing_happened_has_no_bars(bars_of):
    """Empty tables are a run, too."""
    assert bars_of() == []


@examples(25)
@given(st.lists(st.tuples(st.integers(0, 3), *[st.floats(0, 50)] * 3), max_size=8), st.floats(0.1, 60))
def test_airtime_in_the_window_is_kept(make_frame, rows, until_s):
    """The uplink bars of the window last as long as the uplinks, cut off at its end."""
    uplinks = [(device, *sorted(times)) for device, *times in rows]
    transfers = [transfer("uplink", device, -1, times, number=i) for i, (device, *times) in enumerate(uplinks)]
    tables = (make_frame("transfers", transfers), make_frame("receptions", []), make_frame("computes", []))
    bars = activity_bars(*tables, until_s)
    on_air = bars[bars["activity"] == "uplink"]
    expected_s = sum(max(0.0, min(ended, until_s) - started) for _, _, started, ended in uplinks)
    assert (on_air["ended_s"] - on_air["started_s"]).sum() == pytest.approx(expected_s, abs=1e-9)


def test_a_window_cuts_bars_at_both_ends(make_frame):
    """What ended before the begin is left out, what began before it starts there."""
    computes = [{"device": 1, "started_s": start, "ended_s": start + 2.0} for start in (0.0, 3.0, 6.0, 9.0)]
    empty = (make_frame("transfers", []), make_frame("receptions", []))

    bars = activity_bars(*empty, make_frame("computes", computes), 7.0, 4.0)

    assert list(zip(bars["started_s"], bars["ended_s"], strict=True)) == [(4.0, 5.0), (6.0, 7.0)]


@pytest.mark.parametrize(("rounds", "end_s"), [(5, 30.0), (2, 20.0)])
def test_the_window_ends_with_the_third_round(make_frame, rounds, end_s):
    """The default window holds three rounds, or all when there are fewer."""
    table = make_frame("rounds", [{"started_s": 10.0 * i, "ended_s": 10.0 * (i + 1)} for i in range(rounds)])
    assert first_rounds_end_s(table, make_frame("transfers", []), make_frame("computes", [])) == end_s


def test_the_window_without_rounds_holds_three_computations_per_device(make_frame):
    """Two devices make six computations in three rounds; without any, the window ends with the last transfer."""
    computes = [{"device": i % 2, "started_s": float(i), "ended_s": i + 1.0} for i in range(20)]
    transfers = make_frame("transfers", [transfer("uplink", 0, -1, (0, 0, 42))])
    empty = {name: make_frame(name, []) for name in ("rounds", "transfers", "computes")}
    assert first_rounds_end_s(empty["rounds"], transfers, make_frame("computes", computes)) == 6.0
    assert first_rounds_end_s(empty["rounds"], transfers, empty["computes"]) == 42.0
    assert first_rounds_end_s(empty["rounds"], empty["transfers"], empty["computes"]) == 0.0
