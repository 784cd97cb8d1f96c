"""Claims about the ledger: tables as users read them, and the fingerprint of what happened."""

import numpy as np
import pytest

from fednet_emu.records.ledger import TABLES, Ledger
from fednet_emu.records.reasons import CODE, REASONS
from fednet_emu.records.rows import KINDS


def test_tables_are_in_seconds_and_words(rows, make_ledger):
    """Every column says its unit; what never went on the air has no start."""
    frames = make_ledger(rows).frames()
    transfers = frames["transfers"]

    assert [*frames, "batteries", "handovers", "energies"] == list(TABLES)  # there are none
    assert list(transfers) == [
        *("transfer", "kind", "sender", "receiver", "receivers", "size_bit", "payload", "requested_s", "started_s"),
        *("ended_s", "air_bit", "delivered_bit", "lost_bit", "lost", "energy_j", "receive_j", "cell"),
        *("snr_db", "distance_m", "mean_rate_bps"),
    ]
    assert transfers["kind"].tolist() == ["downlink", "uplink", "uplink", "uplink"]
    assert transfers["ended_s"].tolist() == [2.0, 4.0, 5.0, 5.0]
    assert np.isnan(transfers["started_s"].iloc[3])
    assert transfers["lost"].tolist() == ["", "", "", "deadline"]
    assert transfers["snr_db"].tolist() == [10.0] * 4  # of a ratio of 10
    assert transfers["mean_rate_bps"].tolist() == pytest.approx([100.0, 100.0, 100.0, np.nan], nan_ok=True)
    assert frames["evaluations"]["simulated_s"].tolist() == [0.0, 5.0]


def test_lost_bits_are_what_was_offered_and_not_delivered(rows, make_ledger):
    """A broadcast to two that reaches one has lost one copy."""
    transfers = make_ledger(rows).frames()["transfers"]

    assert transfers["lost_bit"].tolist() == [100, 0, 0, 100]


def test_receptions_point_at_their_transfer(rows, make_ledger):
    """The column `transfer` joins the two tables."""
    frames = make_ledger(rows).frames()
    joined = frames["receptions"].merge(frames["transfers"], on="transfer", suffixes=("", "_sent"))

    assert joined[["receiver", "lost", "payload"]].values.tolist() == [[0, "", 1], [1, "erased", 1]]


def test_a_series_of_an_algorithm_is_a_table_beside_the_others():
    """One row per record, columns as they were named."""
    ledger = Ledger()
    ledger.record("staleness", step=1, staleness=0)
    ledger.record("staleness", step=2, staleness=3)

    assert ledger.frames()["staleness"].to_dict("list") == {"step": [1, 2], "staleness": [0, 3]}


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
        ("transfers", {"lost": CODE["end"]}),
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
        ("transfers", {"payload": 12, "air_bit": 99.9, "energy_j": 3.0}),
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
