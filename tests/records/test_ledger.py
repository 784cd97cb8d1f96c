"""The ledger, its tables, losses, idle energy and fairness."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

import fednet_emu as fe
from fednet_emu.analysis.summary import summary_rows
from fednet_emu.cli.app import app
from fednet_emu.draw.page.run import run_document
from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.play import play
from fednet_emu.records import table as module
from fednet_emu.records.ledger import SEVERAL, TABLES, Ledger
from fednet_emu.records.reasons import CODE, MEANINGS, REASONS
from fednet_emu.records.rows import KINDS
from fednet_emu.records.summaries import idle_s, invitations, jain, losses_in_words, messages, recent_losses
from fednet_emu.records.table import Column, Table
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL, small_scenario
from tests.quick import examples


def test_tables_are_in_seconds_and_words(rows, make_ledger):
    """Every column says its unit; what never went on the air has no start."""
    ledger = make_ledger(rows)
    frames = ledger.frames()
    transfers = frames["transfers"]

    assert all(ledger.frame(name).equals(its) for name, its in frames.items())
    assert [*frames, "batteries", "handovers", "energies", "traffic"] == list(TABLES)  # there are none
    assert list(transfers) == [
        *(
            "transfer",
            "direction",
            "sender",
            "receiver",
            "receivers",
            "size_bit",
            "value_id",
            "requested_s",
            "started_s",
        ),
        *("ended_s", "transmitted_bit", "delivered_bit", "lost_bit", "loss_reason", "energy_j", "rx_energy_j", "cell"),
        *("snr_db", "distance_m", "mean_rate_bps"),
    ]
    assert transfers["direction"].tolist() == ["downlink", "uplink", "uplink", "uplink"]
    assert transfers["ended_s"].tolist() == [2.0, 4.0, 5.0, 5.0]
    assert np.isnan(transfers["started_s"].iloc[3])
    assert transfers["loss_reason"].tolist() == ["", "", "", "deadline"]
    assert transfers["snr_db"].tolist() == [10.0] * 4  # of a ratio of 10
    assert transfers["mean_rate_bps"].tolist() == pytest.approx([100.0, 100.0, 100.0, np.nan], nan_ok=True)
    assert frames["evaluations"]["simulated_s"].tolist() == [0.0, 5.0]


def test_lost_bits_are_what_was_offered_and_not_delivered(rows, make_ledger):
    """A broadcast to two that reaches one has lost one copy."""
    transfers = make_ledger(rows).frame("transfers")

    assert transfers["lost_bit"].tolist() == [100, 0, 0, 100]


def test_receptions_point_at_their_transfer(rows, make_ledger):
    """The column `transfer` joins the two tables."""
    ledger = make_ledger(rows)
    joined = ledger.frame("receptions").merge(ledger.frame("transfers"), on="transfer", suffixes=("", "_sent"))

    assert joined[["receiver", "loss_reason", "value_id"]].values.tolist() == [[0, "", 1], [1, "erased", 1]]


def test_a_series_of_an_algorithm_is_a_table_beside_the_others():
    """One row per record, columns as they were named."""
    ledger = Ledger()
    ledger.record("staleness", step=1, staleness=0)
    ledger.record("staleness", step=2, staleness=3)

    assert ledger.frame("staleness").to_dict("list") == {"step": [1, 2], "staleness": [0, 3]}


@pytest.mark.parametrize("name", TABLES)
def test_a_series_may_not_hide_a_table(name):
    """It would be lost in silence: the name is refused."""
    with pytest.raises(ValueError, match=f"is a table of the ledger, got '{name}'; choose another name"):
        Ledger().record(name, step=1)


@pytest.mark.parametrize(
    ("table", "changes"),
    [
        ("transfers", {"ended_ns": 5_000_000_001}),
        ("transfers", {"sender": 3}),
        ("transfers", {"size_bit": 101}),
        ("transfers", {"loss_reason": CODE["end"]}),
        ("receptions", {"receiver": 3}),
        ("computes", {"ended_ns": 3_000_000_001}),
        ("computes", {"device": 3}),
    ],
)
def test_the_digest_changes_with_what_happened(rows, make_ledger, table, changes):
    """Who, when to the nanosecond, how much, and whether it arrived."""
    before = make_ledger(rows).event_digest()
    rows[table][-1] |= changes

    assert make_ledger(rows).event_digest() != before


@pytest.mark.parametrize(
    ("table", "changes"),
    [
        ("transfers", {"value_id": 12, "transmitted_bit": 99.9, "energy_j": 3.0}),
        ("computes", {"flop": 1.0, "input": 12, "result": 13}),
        ("rounds", {"arrived": 1}),
        ("evaluations", {"loss": 9.9, "accuracy": 0.9}),
    ],
)
def test_the_digest_does_not_see_what_was_learnt(rows, make_ledger, table, changes):
    """Training and timing-only runs have the same fingerprint, and so has a run that was evaluated more often."""
    before = make_ledger(rows).event_digest()
    rows[table][-1] |= changes

    assert make_ledger(rows).event_digest() == before


def test_reasons_and_kinds_have_the_codes_of_published_runs():
    """The order is part of the digest: new words go to the end."""
    assert REASONS[:9] == ["", "erased", "outage", "unreachable", "away", "left", "timeout", "deadline", "end"]
    assert KINDS[:3] == ("uplink", "downlink", "sidelink")
    assert [CODE[reason] for reason in REASONS] == list(range(len(REASONS)))


COLUMNS = {
    "ended_ns": Column(np.int64, seconds=True),
    "direction": Column(np.int8, words=("uplink", "downlink")),
    "size_bit": Column(np.int64),
    "energy_j": Column(np.float64, digest=False),
}
ROW = st.tuples(st.integers(-1, 2**62), st.integers(0, 1), st.integers(0, 2**40), st.floats(0, 1))


def filled(rows):
    table = Table(COLUMNS)
    for row in rows:
        table.append(row)
    return table


@examples(60)
@given(
    rows=st.lists(ROW, max_size=20),
    sizes=st.tuples(*3 * [st.integers(1, 7)]),
    looks=st.sets(st.integers(0, 20)),
    way=st.sampled_from(["append", "add", "extend"]),
    filed_from=st.integers(0, 20),
)
def test_packing_changes_nothing(rows, sizes, looks, way, filed_from, tmp_path_factory):
    """Chunk by chunk, looked at in between, many rows at once, or in a file: the same columns and the same digest."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(("CHUNK_ROWS", "HELD_ROWS", "BLOCK_ROWS"), sizes, strict=True):
            patch.setattr(module, name, size)
        table = Table(COLUMNS)
        for number, row in enumerate(rows):
            if way == "extend":
                table.extend(**{name: np.array([value]) for name, value in zip(COLUMNS, row, strict=True)})
            elif way == "add":
                table.add([] if number % 2 else rows[number : number + 2])
            else:
                table.append(row)
            if number in looks:
                table.column("size_bit")
            if number == filed_from:
                table.folder = tmp_path_factory.getbasetemp()
        parts = list(table.frames())

    whole = filled(rows)
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole.frame())
    assert len(rows) <= sizes[2] or max(map(len, parts)) < sizes[2] + max(sizes[0], sizes[2]) + (way == "add")
    assert len(table) == len(rows) == len(whole)
    for index, (name, column) in enumerate(COLUMNS.items()):
        assert table.column(name).tolist() == [row[index] for row in rows] == whole.column(name).tolist()
        assert table.column(name).dtype == column.dtype
    assert table.digest() == whole.digest()


def test_an_empty_table_is_a_table():
    """Nothing happened: the columns are there, with their types."""
    frame = Table(COLUMNS).frame()

    assert list(frame) == ["ended_s", "direction", "size_bit", "energy_j"]
    assert len(frame) == 0
    assert frame["size_bit"].dtype == np.int64
    assert list(frame["direction"].cat.categories) == ["uplink", "downlink"]


def test_the_digest_sees_what_it_should():
    """Any digested value and the order of rows change it; a measure does not."""
    rows = [(5, 0, 7, 0.5), (6, 1, 8, 0.5)]
    reference = filled(rows).digest()
    others = [[(4, 0, 7, 0.5), rows[1]], [(5, 1, 7, 0.5), rows[1]], [(5, 0, 9, 0.5), rows[1]], rows[::-1], rows[:1]]

    assert all(filled(other).digest() != reference for other in others)
    assert filled([(5, 0, 7, 0.9), rows[1]]).digest() == reference


@pytest.mark.parametrize(
    "columns",
    [
        {"ended_ns": [1], "direction": [0], "size_bit": [5]},
        {"ended_ns": [1, 2], "direction": [0], "size_bit": [5], "energy_j": [0.0]},
    ],
    ids=["missing", "ragged"],
)
def test_many_rows_must_fit_the_columns(columns):
    """A missing column or another length is refused before anything is added."""
    table = filled([(5, 0, 7, 0.5)])

    with pytest.raises(
        ValueError, match="arrays of equal length for ended_ns, direction, size_bit, energy_j are right"
    ):
        table.extend(**{name: np.array(values) for name, values in columns.items()})
    assert len(table) == 1
    assert table.column("ended_ns").tolist() == [5]


MAPPING = from_text(SMALL, "small").data
SLOW = {"network.uplink.timeout_s": 1e-4}
"""Every upload takes 320 us, so that all twelve time out; the three broadcasts to four devices arrive."""
TOLD = "of 24 messages 12 were lost: 12 timed out"


def transfer(receiver, receivers, lost):
    return (1, -1, receiver, receivers, 8, 0, 0, 0, 1, 8.0, 8, CODE[lost], 0.0, 0.0, 0, 1.0)


def test_a_broadcast_is_a_message_for_each_receiver():
    """One to three, two of which are out of reach, and three by themselves."""
    ledger = Ledger()
    ledger.transfers.append(transfer(SEVERAL, 3, ""))
    for receiver, lost in enumerate(("", "unreachable", "unreachable")):
        ledger.receptions.append((0, receiver, CODE[lost], 0.0, 1.0))
    for lost in ("", "timeout", "unreachable"):
        ledger.transfers.append(transfer(0, 1, lost))

    assert messages(ledger) == {"messages": 6, "losses": {"unreachable": 3, "timeout": 1}}
    assert messages(Ledger()) == {"messages": 0, "losses": {}}


def test_every_reason_has_words():
    """Numbers have their separators, one loss its singular; no losses, or a summary without them, say nothing."""
    assert list(MEANINGS) == REASONS
    assert all(reason.meaning and reason.in_words for reason in MEANINGS.values())
    assert losses_in_words({"messages": 1010, "losses": {"timeout": 2}}) == (
        "of 1,010 messages 2 were lost: 2 timed out"
    )
    both = losses_in_words({"messages": 3000, "losses": {"unreachable": 1200, "end": 1}})
    assert both == "of 3,000 messages 1,201 were lost: 1,200 out of reach, 1 cut off by the end of the run"
    assert losses_in_words({"messages": 3, "losses": {"left": 1}}).startswith("of 3 messages 1 was lost")
    assert losses_in_words({"messages": 3, "losses": {}}) == losses_in_words({}) == ""


def test_they_are_told_in_summary_table_explanation_and_report():
    """By the run itself, its printed rows, the explanation, and the second sentence of its page."""
    run = fe.run(MAPPING, settings=SLOW)

    assert (run.summary["messages"], run.summary["losses"]) == (24, {"timeout": 12})
    assert ("losses", TOLD) in summary_rows(run.summary)
    assert f"  {TOLD}" in run.explain(replay=False).lines()
    assert run_document(run, "")["words"][1] == f"O{TOLD[1:]}."


def test_a_run_without_losses_says_nothing():
    """No row, no line, no sentence."""
    run = fe.run(MAPPING)

    assert run.summary["losses"] == {}
    assert "losses" not in dict(summary_rows(run.summary))
    assert not any("lost" in line for line in run.explain(replay=False).lines())


@pytest.mark.parametrize("command", ["run", "explain"])
def test_the_commands_print_them(command, tmp_path):
    """`run` in its table, `explain` of the folder in a line; summary.json holds them."""
    arguments = ["run", "quickstart", "--timing-only", "--no-plots", f"--out={tmp_path / 'run'}"]
    arguments += ["--set=stop.rounds=1", "--set=network.uplink.timeout_s=1e-4"]
    result = CliRunner().invoke(app, arguments)
    if command == "explain":
        result = CliRunner().invoke(app, ["explain", "--no-replay", str(tmp_path / "run")])

    assert "of 20 messages 10 were lost: 10 timed out" in result.stdout
    assert '"timeout": 10' in (tmp_path / "run" / "summary.json").read_text()


def test_losses_are_told_if_there_are_any(rows, make_ledger):
    """The last loss of each link, with what it was and when; without losses nothing."""
    told = recent_losses(make_ledger(rows))

    assert told.startswith("; last lost: ")
    assert "uplink dev-" in told
    assert "(deadline)" in told
    assert recent_losses(Ledger()) == ""


S = 1_000_000_000


def test_idle_is_the_rest_of_a_run(rows, make_ledger):
    """Of 5 s, devices 0 and 1 listen, compute and send for 1 s each; device 2 never had its turn."""
    assert idle_s(make_ledger(rows), 3, 5 * S).tolist() == [2, 2, 5]


def test_what_overlaps_counts_once(rows, make_ledger):
    """A computation from 3 to 4.5 s beside device 0's uplink from 3 to 4 s takes half a second of its idle time."""
    rows["computes"].append({**rows["computes"][0], "started_ns": 3 * S, "ended_ns": 9 * S // 2})

    assert idle_s(make_ledger(rows), 3, 5 * S).tolist() == [1.5, 2, 5]


SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 20)), max_size=12)


@examples(60)
@example(spans=[])
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


def test_jains_index() -> None:
    """1 for equal numbers, k / n when k of n are equal and the others zero, whatever the scale."""
    assert jain([3, 3, 3]) == 1
    assert jain([5, 5, 0, 0, 0]) == pytest.approx(2 / 5)
    assert jain([1, 2, 3]) == pytest.approx(36 / (3 * 14)) == jain([10, 20, 30])
    assert math.isnan(jain([0, 0]))


def test_those_never_asked_count() -> None:
    """Two of four devices asked alike: half of them, and an index of a half; nothing is said of nothing."""
    assert invitations({1: 4, 3: 4}, 4) == {"invited_jain": 0.5, "invited_share": 0.5}
    assert invitations({}, 4) == {"invited_jain": None, "invited_share": None}


def test_the_summary_has_both(tmp_path: Path) -> None:
    """Everybody in every round is 1 and 1; an algorithm that asks no cohort says nothing."""
    every = play(small_scenario(), "small", tmp_path / "a", timing_only=True).summary
    alone = small_scenario("algorithm={kind: individual, device: 0, lr: 0.1, local_steps: 2, batch_size: null}")
    nobody = play(alone, "small", tmp_path / "b", timing_only=True).summary

    assert (every["invited_jain"], every["invited_share"]) == (1.0, 1.0)
    assert (nobody["invited_jain"], nobody["invited_share"]) == (None, None)
