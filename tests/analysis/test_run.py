"""Run folders: how they open, their summary, and who did what when: timeline, air, crowd, data and time."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.analysis.activity import (
    COMPUTE_COLUMNS,
    FEWEST_BINS,
    MOST_BINS,
    RECEPTION_COLUMNS,
    SPENT,
    TRANSFER_COLUMNS,
    WAITING,
    activity_bars,
    air_use,
    first_rounds_end_s,
    ranked,
    spread,
    state_shares,
    time_split,
)
from fednet_emu.analysis.beside import rounds_beside, transfers_beside
from fednet_emu.analysis.data_split import Part
from fednet_emu.analysis.run import RunRecords, distinct_labels
from fednet_emu.analysis.summary import profile_rows, summary_rows
from fednet_emu.analysis.usage import Usage, turn_s
from fednet_emu.draw.figures.run_figures import EVALUATION_COLUMNS, ROUND_COLUMNS
from fednet_emu.errors import DataError
from fednet_emu.records.ledger import Ledger
from tests.quick import examples


def test_a_run_gives_its_summary_scenario_and_tables(tmp_path, write_run):
    """A run folder opens into its summary, its scenario (YAML 1.2: 1e6 is a number), and tables by name."""
    folder = write_run(tmp_path / "a", {"rounds": [{"round": 3, "started_s": 1.0, "ended_s": 2.5}]}, accuracy=0.9)
    run = RunRecords.opened(folder)
    assert run.name == "a"
    assert run.summary["accuracy"] == 0.9
    assert run.settings["network"]["bandwidth_hz"] == 1_000_000.0
    assert run.table("rounds", ["ended_s", "round"]).to_dict("records") == [{"ended_s": 2.5, "round": 3}]
    assert RunRecords.opened(folder, name="mine").name == "mine"


def test_the_label_is_the_folder_when_the_run_has_no_name(tmp_path, write_run):
    """A run without a name is labelled by its folder."""
    assert RunRecords.opened(write_run(tmp_path / "seed-3", {}, name=None)).name == "seed-3"


def test_equal_labels_are_told_apart_by_seed_then_by_folder(tmp_path, write_run):
    """Runs of one scenario are told apart in a legend, and a label that is already unique stays short."""
    one, two, other = (
        RunRecords.opened(write_run(tmp_path / folder, {}, name=name, seed=seed))
        for folder, name, seed in (("x", "fedavg", 1), ("y", "fedavg", 2), ("z", "cyclic", 1))
    )
    again = RunRecords.opened(write_run(tmp_path / "w", {}, name="cyclic", seed=1))
    assert distinct_labels([one, two, other]) == ["fedavg, seed 1", "fedavg, seed 2", "cyclic"]
    assert distinct_labels([one, other, again]) == ["fedavg", "cyclic, z", "cyclic, w"]


@pytest.mark.parametrize("missing", ["summary.json", "scenario.yaml"])
def test_a_run_that_died_is_recognised(tmp_path, write_run, missing):
    """A folder without its summary or scenario is an error that names the file and says what to do."""
    folder = write_run(tmp_path / "a", {})
    (folder / missing).unlink()
    with pytest.raises(DataError) as caught:
        RunRecords.opened(folder)
    assert str(caught.value) == (
        f"{folder / missing}: no such file in this run folder; "
        "finish the run that writes it, or run it again with --force"
    )


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("summary.json", "{", "unreadable, got 'Expecting property name"),
        ("summary.json", "[1]", "expected a mapping of names to values, got list"),
        ("scenario.yaml", "a: [", "unreadable, got 'while parsing"),
        ("scenario.yaml", "", "expected a mapping of names to values, got NoneType"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, write_run, name, content, problem):
    """A file that cannot be parsed is an error that begins with its path and quotes the parser."""
    folder = write_run(tmp_path / "a", {})
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        RunRecords.opened(folder)
    assert str(caught.value).startswith(f"{folder / name}: {problem}")


def test_tables_that_cannot_be_read_are_named(tmp_path, write_run):
    """A missing table, a missing column and a file that is no Parquet are errors that name the file."""
    run = RunRecords.opened(write_run(tmp_path / "a", {}))
    (run.folder / "computes.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"staleness\.parquet: no such table in this run folder"):
        run.table("staleness")
    with pytest.raises(DataError, match=r"rounds\.parquet: not a readable table, got '.*latency_s"):
        run.table("rounds", ["latency_s"])
    with pytest.raises(DataError, match=r"computes\.parquet: not a readable table"):
        run.table("computes")


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("transfers", TRANSFER_COLUMNS),
        ("receptions", RECEPTION_COLUMNS),
        ("computes", COMPUTE_COLUMNS),
        ("rounds", ROUND_COLUMNS),
        ("evaluations", EVALUATION_COLUMNS),
    ],
)
def test_the_ledger_writes_the_columns_that_figures_read(tmp_path, table, columns):
    """Every column that a figure asks for is one that a run's ledger has, and survives Parquet even when empty."""
    path = tmp_path / "table.parquet"
    Ledger().frame(table).to_parquet(path)
    assert list(pd.read_parquet(path, columns=list(columns)).columns) == list(columns)


SUMMARY = {
    "name": "cyclic-fedavg",
    "seed": 7,
    "status": "finished",
    "simulated_s": 200.0,
    "host_s": 1.5,
    "rounds": 12_000,
    "uplink_bit": 12_345_678,
    "downlink_bit": 6.4e9,
    "sidelink_bit": 0,
    "energy_j": 4.56,
    "accuracy": 0.91234,
    "loss": 0.2718281,
    "event_digest": "0123456789abcdef0123456789abcdef",
    "verified": True,
    "something_new": 1,
}


def test_every_row_has_its_unit():
    """The table shows what a run measured in units that people read, in a fixed order."""
    assert summary_rows(SUMMARY) == [
        ("scenario", "cyclic-fedavg"),
        ("seed", "7"),
        ("status", "finished"),
        ("simulated time", "3 min 20 s"),
        ("host time", "1.5 s"),
        ("rounds", "12 000"),
        ("uplink", "12.3 Mbit"),
        ("downlink", "6.4 Gbit"),
        ("sidelink", "0 bit"),
        ("energy", "4.56 J"),
        ("accuracy", "0.912"),
        ("loss", "0.2718"),
        ("event digest", "0123456789ab"),
        ("verdict", "all records consistent"),
    ]


@pytest.mark.parametrize("unmeasured", [None, math.nan])
def test_what_was_not_measured_has_no_row(unmeasured):
    """A timing-only run has no accuracy, and the table does not pretend that it has."""
    titles = [title for title, _ in summary_rows({**SUMMARY, "accuracy": unmeasured, "loss": unmeasured})]
    assert "accuracy" not in titles
    assert "loss" not in titles
    assert "energy" in titles


@pytest.mark.parametrize(
    ("verified", "verdict"), [(True, "all records consistent"), (False, "records are not consistent")]
)
def test_the_verdict_says_whether_records_are_consistent(verified, verdict):
    """A run whose records contradict a conservation law says so."""
    assert dict(summary_rows({"verified": verified})) == {"verdict": verdict}


def test_the_profile_lists_parts_by_size():
    """Parts come with share and seconds, the largest first, and say how long the thread stood still."""
    parts = {"building": {"host_s": 1.0, "waiting_s": 0.0}, "training": {"host_s": 3.0, "waiting_s": 0.5}}

    assert profile_rows({"host_parts": parts, "mean_wavefront": 12.5}) == [
        ("  training", " 75%  3 s, 500 ms of it waiting"),
        ("  building", " 25%  1 s"),
        ("  mean wavefront", "12.5 training jobs"),
    ]


def test_the_profile_says_why_exchanges_are_played_one_by_one():
    """Three exchanges as arrays, and the reason of two others."""
    own = {"as_arrays": 3, "one_by_one": {"messages are compressed": 2}}

    assert profile_rows({"host_parts": {}, "mean_wavefront": 1, "exchanges": own})[1:] == [
        ("  exchanges as arrays", "3"),
        ("  exchanges one by one", "2: messages are compressed"),
    ]


def test_the_profile_tells_what_processes_have_computed():
    """Added up over all of them, beside what the run itself did meanwhile, and what went to and fro."""
    own = {"processes": 2, "computing_s": 5.0, "ahead_s": 0.25, "sent_byte": 190e6, "received_byte": 1.5e6}
    parts = {"training": {"host_s": 3.0, "waiting_s": 2.5}}

    assert profile_rows({"host_parts": parts, "mean_wavefront": 1, "elsewhere": own})[2:] == [
        ("  computing elsewhere", "5 s, the sum of 2 processes"),
        ("  overlap with the clock", "250 ms"),
        ("  sent, received", "190 MB, 1.5 MB"),
    ]


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
    parties = {"direction": kind, "sender": sender, "receiver": receiver, "loss_reason": lost, "transfer": number}
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
        receptions=[{"transfer": 9, "receiver": 0}, {"transfer": 9, "receiver": 5, "loss_reason": "outage"}],
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


def sent(*rows):
    return pd.DataFrame(list(rows), columns=["direction", "cell", "started_s", "ended_s"])


def test_one_sender_and_several_are_told_apart():
    """From 0 to 4 s one sends, from 2 to 6 s another, a third follows at once until 8 s; the last never starts."""
    told = sent(("uplink", 0, 0, 4), ("uplink", 0, 2, 6), ("uplink", 0, 6, 8), ("uplink", 0, np.nan, 9))

    edges_s, (use,) = air_use(told, 10.0)
    width_s = edges_s[1] - edges_s[0]

    assert (use.kind, use.cell) == ("uplink", 0)
    assert use.one.sum() * width_s == pytest.approx(6.0)
    assert use.several.sum() * width_s == pytest.approx(2.0)
    assert use.several[(edges_s[:-1] >= 2) & (edges_s[1:] <= 4)].min() == pytest.approx(1.0)


def test_bands_are_apart():
    """Cells and kinds do not share their air, and what never ended lasts until the end of the run."""
    told = sent(("uplink", 0, 0, 5), ("uplink", 1, 0, 5), ("downlink", 0, 5, np.nan))

    _, uses = air_use(told, 10.0)

    assert {(use.kind, use.cell): use.one.mean() for use in uses} == pytest.approx(
        {("uplink", 0): 0.5, ("uplink", 1): 0.5, ("downlink", 0): 0.5}
    )
    assert not any(use.several.any() for use in uses)


def test_many_bands_have_fewer_stretches():
    """The numbers of a page stay few, however many cells there are."""
    few, _ = air_use(sent(("uplink", 0, 0, 1)), 1.0)
    many, _ = air_use(sent(*(("uplink", cell, 0, 1) for cell in range(3000))), 1.0)

    assert (len(few) - 1, len(many) - 1) == (MOST_BINS, FEWEST_BINS)


def test_a_run_without_transfers_uses_no_air():
    """There is nothing to show, and no error."""
    assert air_use(sent(), 0.0)[1] == []


BARS = st.lists(st.tuples(st.sampled_from(["uplink", "compute"]), st.integers(0, 90), st.integers(0, 40)), min_size=1)


def bars(*rows: tuple[int, str, float, float, bool]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["device", "activity", "started_s", "ended_s", "failed"])


@given(BARS)
def test_shares_are_the_part_of_each_stretch_that_devices_spend(spans: list[tuple[str, int, int]]) -> None:
    """With times in whole seconds, a count of seconds one by one gives the same shares; an uplink hides computing."""
    table = bars(*((0, activity, float(start), float(start + took), False) for activity, start, took in spans))
    edges_s = np.arange(0.0, 141.0, 7.0)

    shares = state_shares(table, 5, edges_s)

    taken = np.zeros(140, bool)
    for activity in ("uplink", "compute"):
        does = np.zeros(140, bool)
        for which, start, took in spans:
            does[start : start + took] |= which == activity
        seconds, taken = (does & ~taken).astype(float), taken | does
        if activity not in shares:
            assert not seconds.any()
            continue
        np.testing.assert_allclose(shares[activity], seconds.reshape(20, 7).sum(axis=1) / (7 * 5), atol=1e-12)


def test_shares_of_a_window_leave_out_what_is_outside() -> None:
    """Of four devices one sends for the second half of the window; what it did before does not count."""
    shares = state_shares(
        bars((2, "uplink", 0.0, 1.0, False), (2, "uplink", 6.0, 9.0, False)), 4, np.array([4.0, 6.0, 8.0])
    )

    np.testing.assert_allclose(shares["uplink"], [0.0, 0.25])


ROWS = bars(
    (7, "uplink", 0.0, 5.0, True),
    (7, WAITING, 0.0, 1.0, False),
    (2, "compute", 0.0, 9.0, False),
    (2, WAITING, 0.0, 4.0, False),
    (5, "compute", 0.0, 9.0, False),
)


@pytest.mark.parametrize(
    ("sort", "devices"),
    [("device", [2, 5, 7]), ("waiting", [2, 7, 5]), ("computing", [2, 5, 7]), ("busy", [2, 5, 7]), ("lost", [7, 2, 5])],
)
def test_orders_of_devices(sort: str, devices: list[int]) -> None:
    """The longest time comes first, equal times in the order of the numbers; waiting is not being busy."""
    assert ranked(ROWS, sort) == devices


def test_chosen_devices_are_spread_over_the_ranking() -> None:
    """The first and the last are there, the others at equal distances, nobody twice."""
    assert spread(list(range(100, 0, -1)), 4) == [100, 67, 34, 1]
    assert spread([3, 1], 24) == [3, 1]


def bars_of_time_split(*rows):
    return pd.DataFrame(list(rows), columns=["device", "activity", "started_s", "ended_s"])


def test_what_happens_at_once_counts_once_and_the_first_kind_wins():
    """Device 0 computes from 1 to 5 s, sends from 2 to 3 s, and waits from 4 to 7 s; two uplinks at once are one."""
    told = bars_of_time_split(
        (0, "compute", 1, 5), (0, "uplink", 2, 3), (0, "uplink", 2.5, 3), (0, "waiting", 4, 7), (-1, "compute", 0, 9)
    )

    spent = time_split(told, 2, 10.0)

    assert {name: seconds.tolist() for name, seconds in spent.items()} == {
        "uplink": [1.0, 0.0],
        "downlink": [0.0, 0.0],
        "sidelink": [0.0, 0.0],
        "compute": [3.0, 0.0],
        "waiting": [2.0, 0.0],
        "idle": [4.0, 10.0],
    }


@pytest.mark.parametrize("seed", range(5))
def test_the_parts_add_up(seed):
    """Whatever overlaps, each device has all its time, and no more; sampled at random instants it is the same."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.uniform(0, 10, (200, 2)), axis=1)
    told = pd.DataFrame({"device": rng.integers(0, 4, 200), "activity": rng.choice(SPENT[:-1], 200)})
    told["started_s"], told["ended_s"] = ends[:, 0], ends[:, 0] + 0.02 * (ends[:, 1] - ends[:, 0])

    spent = time_split(told, 4, 10.0)

    np.testing.assert_allclose(sum(spent.values()), 10.0)
    instants = (np.arange(20_000) + 0.5) / 2000
    own = told[told["device"] == 2]
    on = (own["started_s"].to_numpy()[:, None] <= instants) & (instants < own["ended_s"].to_numpy()[:, None])
    uplink = (own["activity"] == "uplink").to_numpy()
    assert spent["uplink"][2] == pytest.approx(on[uplink].any(axis=0).mean() * 10, abs=0.02)
    assert spent["idle"][2] == pytest.approx((~on.any(axis=0)).mean() * 10, abs=0.02)


def test_a_turn_is_a_computation_or_an_uplink_of_a_device_that_never_computes():
    """Device 0 computes twice and sends once in 6 s, device 1 sends four times in 4 s, device 2 does nothing.

    A third computation of device 0 is unfinished at the end, and does not count.
    """
    sent = pd.DataFrame(
        [(0, 4, 6), *((1, second, second + 1) for second in range(4))], columns=["sender", "started_s", "ended_s"]
    ).assign(
        direction="uplink", receiver=-1, loss_reason="", transfer=range(5), requested_s=lambda table: table["started_s"]
    )
    amounts = (
        "receivers",
        "size_bit",
        "transmitted_bit",
        "delivered_bit",
        "lost_bit",
        "energy_j",
        "rx_energy_j",
        "cell",
    )
    times, stopped = {"started_s": [0.0, 2.0, 6.0], "ended_s": [2.0, 4.0, np.nan]}, ["", "", "end"]
    computes = pd.DataFrame({"device": 0, **times, "stopped": stopped, "flop": 1.0})
    tables = {
        "transfers": sent.assign(**dict.fromkeys(amounts, 1)),
        "receptions": pd.DataFrame(columns=["transfer", "receiver", "loss_reason"]),
        "computes": computes.assign(energy_j=0.0),
    }
    run = RunRecords("it", {"simulated_s": 10.0}, {"devices": {"count": 3}}, None, lambda: tables)

    assert turn_s(Usage(run)).tolist() == pytest.approx([3.0, 1.0, np.nan], nan_ok=True)


ORDER, OFFSETS = np.array([4, 0, 1, 5, 2]), np.array([0, 2, 2, 5])
"""Three devices: samples 4 and 0, none, samples 1, 5 and 2; sample 3 is nobody's."""


def test_labels_are_counted_at_their_owners() -> None:
    """Sample by sample, also a label that nobody has."""
    part = Part.of(np.array([2, 0, 0, 1, 2, 0]), ORDER, OFFSETS, classes=4)

    assert part.sizes.tolist() == [2, 0, 3]
    assert part.counts.tolist() == [[0, 0, 3], [0, 0, 0], [2, 0, 0], [0, 0, 0]]
    assert part.shares.T.tolist() == [[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert part.order().tolist() == [2, 0, 1]
    assert part.frame("train").values.tolist() == [["train", 0, 2, 2], ["train", 2, 0, 3]]


def test_a_sample_in_two_sets_counts_twice() -> None:
    """As its device trains on it."""
    part = Part.of(np.array([1, 0]), np.array([0, 0, 1]), np.array([0, 3]), classes=2)
    assert part.counts.tolist() == [[1], [2]]


def test_targets_have_quantiles() -> None:
    """Linear between neighbours; a device without samples has none, and comes last."""
    y = np.array([10.0, 0.0, 2.0, 99.0, 20.0, 1.0])
    part = Part.of(y, ORDER, OFFSETS, classes=None)

    assert part.targets[:, 0] == pytest.approx([10.5, 12.5, 15.0, 17.5, 19.5])
    assert part.targets[:, 2] == pytest.approx([0.1, 0.5, 1.0, 1.5, 1.9])
    assert np.isnan(part.targets[:, 1]).all()
    assert part.order().tolist() == [2, 0, 1]
    assert list(part.frame("test")) == ["part", "device", "samples", "q05", "q25", "q50", "q75", "q95"]


def test_samples_with_several_targets_have_sizes_alone() -> None:
    """Sequences of tokens, for example; the largest first."""
    part = Part.of(np.zeros((6, 3), np.int64), ORDER, OFFSETS, classes=7)

    assert part.counts is part.targets is None
    assert part.order().tolist() == [2, 0, 1]
    assert part.frame("train").values.tolist() == [["train", 0, 2], ["train", 1, 0], ["train", 2, 3]]


def test_alike_devices_are_side_by_side() -> None:
    """By the most frequent label, the purest first."""
    counts = np.array([[1, 5, 0, 9, 2], [3, 5, 0, 0, 8]])
    assert Part(counts.sum(axis=0), counts).order().tolist() == [3, 1, 4, 0, 2]


@pytest.fixture
def run() -> RunRecords:
    """Two rounds; in the first two uploads overlap, in the second the prediction of one is unknown."""
    transfers = pd.DataFrame({
        "transfer": [0, 1, 2, 3], "direction": ["downlink", "uplink", "uplink", "uplink"], "sender": [-1, 0, 1, 0],
        "receiver": [0, -1, -1, -1], "requested_s": [1.0, 5.0, 6.0, 13.0], "started_s": [1.0, 5.0, 6.0, 13.0],
        "ended_s": [2.0, 7.0, 8.0, 15.0], "loss_reason": ["", "", "", "left"],
    })  # fmt: skip
    live = pd.DataFrame({
        "transfer": [0, 1, 2, 3], "predicted_s": [1.5, 7.0, 7.5, np.nan], "error": [1.0, 0.0, 1 / 3, np.nan],
        "starved_s": [0.0, 0.1, 0.0, 0.0], "away_s": [0.0] * 4, "repeated_byte": [0, 10, 0, 0],
    })  # fmt: skip
    computes = pd.DataFrame({"device": [0, 1], "started_s": [2.0, 2.0], "ended_s": [4.0, 5.5]})
    rounds = pd.DataFrame({"round": [1, 2], "started_s": [0.0, 12.0], "ended_s": [12.0, 20.0]})
    tables = {"transfers": transfers, "live_messages": live, "computes": computes, "rounds": rounds}
    return RunRecords("made", {}, {}, None, lambda: tables)


def test_transfers_from_request_to_end(run: RunRecords) -> None:
    """As measured and as predicted, of the device at either end."""
    beside = transfers_beside(run)
    assert beside["device"].tolist() == [0, 0, 1, 0]
    assert beside["took_s"].tolist() == [1.0, 2.0, 2.0, 2.0]
    assert beside["predicted_s"].tolist() == pytest.approx([0.5, 2.0, 1.5, np.nan], nan_ok=True)
    assert beside["loss_reason"].tolist() == ["", "", "", "left"]


def test_rounds_are_air_computing_and_waiting(run: RunRecords) -> None:
    """Overlaps count once; computing counts where nothing is on the air; an unknown prediction is as measured."""
    first, second = rounds_beside(run).to_dict("records")
    assert first == {
        "round": 1, "took_s": 12.0, "air_s": 4.0, "predicted_air_s": 3.0, "compute_s": 3.0, "waiting_s": 5.0
    }  # fmt: skip
    assert (second["air_s"], second["predicted_air_s"], second["waiting_s"]) == (2.0, 2.0, 6.0)
