"""The law of the phases finds every way in which they may not add up, in a ledger that has their columns."""

from typing import Any

import pytest

from fednet_emu.records.laws import verify
from fednet_emu.records.ledger import NEVER_NS, Ledger
from fednet_emu.records.reasons import CODE
from tests.records.conftest import TRANSFER, S

LAW = "phases add up to the time from request to end"
ROW = {**TRANSFER, "started_ns": S, "ended_ns": 2 * S, "transmitted_bit": 120.0, "energy_j": 0.0} | {
    "grant_delay_ns": S // 4,
    "connection_setup_ns": S // 4,
    "ack_wait_ns": S // 4,
    "reception_delay_ns": S // 4,
    "wire_bit": 120,
    "ack_bit": 2,
}
UNSENT = {
    "started_ns": NEVER_NS,
    "ended_ns": S // 2,
    "transmitted_bit": 0.0,
    "delivered_bit": 0,
    "loss_reason": CODE["deadline"],
}


def problems(*rows: dict[str, Any]) -> dict[str, str]:
    ledger = Ledger()
    ledger.add_phases()
    for row in rows:
        ledger.transfers.append(tuple(row[name] for name in ledger.transfers.columns))
    ledger.offered_bit[0] = 100 * len(rows)
    return {law: text for law, text in verify(ledger, frozenset({"uplink"})).items() if text}


def test_phases_that_add_up_break_no_law() -> None:
    """A wait for a turn of 0.5 s, 0.5 s on the air; the next is on the air in its tail, a third never was."""
    following = {"started_ns": 2 * S - S // 4, "ended_ns": 3 * S}
    unsent = {**UNSENT, "ended_ns": 4 * S, "ack_wait_ns": 0, "reception_delay_ns": 0}
    assert problems(ROW, ROW | following, ROW | unsent) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"connection_setup_ns": S - S // 4 + 1},
        {"grant_delay_ns": S - S // 4 + 1},
        {"ack_wait_ns": S - S // 4 + 1},
        {"reception_delay_ns": S - S // 4 + 1},
        {"reception_delay_ns": S - S // 4},
        {"ack_wait_ns": -1},
        {"ack_bit": -1},
        {**UNSENT, "ack_wait_ns": 0, "reception_delay_ns": 0, "grant_delay_ns": S // 4 + 1},
        {**UNSENT, "ack_wait_ns": 0, "reception_delay_ns": 1},
    ],
)
def test_a_phase_that_does_not_fit_is_found(change: dict[str, Any]) -> None:
    """Phases that are too long by a nanosecond, bits in no time, and phases that end before they begin."""
    assert problems(ROW, ROW | change | {"wire_bit": 120})[LAW] == "1 of 2 transfers, first in row 1"


def test_the_air_carries_what_is_on_the_wire() -> None:
    """Headers count on the air; a message cannot be smaller on the wire than its payload."""
    assert "bits on the air = payload" in problems(ROW | {"transmitted_bit": 100.0})
    assert LAW in problems(ROW | {"wire_bit": 99, "transmitted_bit": 99.0})
