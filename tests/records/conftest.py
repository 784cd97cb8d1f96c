"""A ledger of a small, lawful run, that tests may break."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fednet_emu.records.ledger import NEVER_NS, SERVER, SEVERAL, Ledger
from fednet_emu.records.reasons import CODE

DOWN, UP = 1, 0
S = 1_000_000_000
TRANSFER = {
    "direction": UP,
    "sender": 0,
    "receiver": SERVER,
    "receivers": 1,
    "size_bit": 100,
    "value_id": 7,
    "requested_ns": 0,
    "started_ns": 0,
    "ended_ns": S,
    "transmitted_bit": 100.0,
    "delivered_bit": 100,
    "loss_reason": CODE[""],
    "energy_j": 0.5,
    "rx_energy_j": 0.0,
    "cell": 0,
    "snr": 10.0,
}
MESSAGE = {
    "direction": 0,
    "edge": 1,
    "size_bit": 50,
    "value_id": 7,
    "requested_ns": 0,
    "started_ns": 0,
    "ended_ns": S,
    "sent_bit": 50,
    "delivered_bit": 50,
    "loss_reason": CODE[""],
    "energy_j": 0.0,
}
UNMEASURED = dict.fromkeys(("worst_train_loss", "attack_success"), float("nan"))
COMPUTE = {
    "device": 0,
    "started_ns": 2 * S,
    "ended_ns": 3 * S,
    "flop": 1e6,
    "energy_j": 0.25,
    "input": 1,
    "result": 2,
    "stopped": CODE[""],
}


def broadcast() -> dict[str, Any]:
    """Model 1 goes to devices 0 and 1 in the second second; device 1 misses it."""
    changes = {"direction": DOWN, "sender": SERVER, "receiver": SEVERAL, "receivers": 2, "value_id": 1}
    return {**TRANSFER, **changes, "requested_ns": S, "started_ns": S, "ended_ns": 2 * S}


def lawful() -> dict[str, Any]:
    """Rows of every table: broadcast, computation, two uplinks in turns, one that never had its turn."""
    sent = {"value_id": 2, "requested_ns": 3 * S}
    return {
        "transfers": [
            broadcast(),
            {**TRANSFER, **sent, "started_ns": 3 * S, "ended_ns": 4 * S},
            {**TRANSFER, **sent, "sender": 1, "value_id": 9, "started_ns": 4 * S, "ended_ns": 5 * S},
            {**TRANSFER, **sent, "sender": 2, "value_id": 8, "started_ns": NEVER_NS, "ended_ns": 5 * S}
            | {"transmitted_bit": 0.0, "delivered_bit": 0, "loss_reason": CODE["deadline"], "energy_j": 0.0},
        ],
        "receptions": [
            {"transfer": 0, "receiver": 0, "loss_reason": CODE[""], "rx_energy_j": 0.0, "snr": 10.0},
            {"transfer": 0, "receiver": 1, "loss_reason": CODE["erased"], "rx_energy_j": 0.0, "snr": 10.0},
        ],
        "backhaul": [
            {**MESSAGE},
            {**MESSAGE, "direction": 1, "started_ns": NEVER_NS, "ended_ns": 2 * S, "sent_bit": 0, "delivered_bit": 0}
            | {"loss_reason": CODE["deadline"], "energy_j": 0.0},
        ],
        "computes": [{**COMPUTE}, {**COMPUTE, "device": 1, "input": 5, "result": 9}],
        "rounds": [{"round": 1, "started_ns": 0, "ended_ns": 5 * S, "invited": 3, "arrived": 2}],
        "evaluations": [
            {"round": 0, "simulated_ns": 0, "uplink_bit": 0, "downlink_bit": 0, "sidelink_bit": 0, "energy_j": 0.0}
            | {"loss": 2.3, "accuracy": 0.1, "worst_accuracy": 0.0, "std_accuracy": 0.0, **UNMEASURED},
            {"round": 1, "simulated_ns": 5 * S, "uplink_bit": 200, "downlink_bit": 100, "sidelink_bit": 0}
            | {"energy_j": 2.0, "loss": 1.1, "accuracy": 0.5, "worst_accuracy": 0.2, "std_accuracy": 0.1, **UNMEASURED},
        ],
    }


def ledger_of(rows: Mapping[str, Any]) -> Ledger:
    """A ledger with these rows, and the totals of the lawful ones."""
    ledger = Ledger()
    for name, entries in rows.items():
        table = getattr(ledger, name)
        for entry in entries:
            table.append(tuple(entry[column] for column in table.columns))
    ledger.offered_bit = [300, 200, 0]
    ledger.sent_bit = [200, 100, 0]
    ledger.energy_j, ledger.backhaul_bit = 2.0, 50
    return ledger


@pytest.fixture
def rows() -> dict[str, Any]:
    """Rows of every table of a lawful run, to change as a test likes."""
    rows = lawful()
    rows["transfers"][0] |= {"delivered_bit": 100}
    return rows


@pytest.fixture
def make_ledger() -> Callable[[Mapping[str, Any]], Ledger]:
    return ledger_of
