"""What receivers spend is in a trace: on the counter of energy, and in the slices of those who receive."""

from __future__ import annotations

import numpy as np
import pytest

from fednet_emu.draw.trace.feed import Part
from fednet_emu.draw.trace.slices import device_slices, steps
from fednet_emu.records.ledger import SERVER, SEVERAL
from fednet_emu.records.rows import KINDS

BROADCAST, UPLOAD, GOSSIP = range(3)
SENT = {
    "transfer": [BROADCAST, UPLOAD, GOSSIP],
    "kind": [KINDS.index(kind) for kind in ("downlink", "uplink", "sidelink")],
    "sender": [SERVER, 0, 1],
    "receiver": [SEVERAL, SERVER, 0],
    "receivers": [2, 1, 1],
    "size_bit": [800, 400, 400],
    "payload": [-1, -1, -1],
    "requested_ns": [0, 10, 20],
    "started_ns": [0, 10, 20],
    "ended_ns": [10, 20, 30],
    "air_bit": [800.0, 400.0, 400.0],
    "lost": [0, 0, 0],
    "energy_j": [5.0, 2.0, 3.0],
    "receive_j": [0.8, 0.0, 0.25],
}
"""A broadcast to devices 0 and 1, for which each of them spends 0.4 J; an upload to the server; one between devices."""
HEARD = {"transfer": [BROADCAST, BROADCAST], "receiver": [0, 1], "lost": [0, 0]}
NOTHING = ("device", "started_ns", "ended_ns", "flop", "energy_j", "input", "result", "stopped", "compute")


@pytest.fixture
def part() -> Part:
    """The three transfers."""
    sent, heard = ({name: np.array(values) for name, values in table.items()} for table in (SENT, HEARD))
    return Part(30, sent, heard, {name: np.zeros(0, np.int64) for name in NOTHING})


def test_the_counter_of_energy_adds_what_receivers_spend(part: Part) -> None:
    """5.8 J by the end of the broadcast, 7.8 J by that of the upload, and 11.05 J in all."""
    found = steps(part, np.zeros(3, np.int64))
    energy = np.sort(found[found["counter"] == 0], order="at_ns")

    assert energy["at_ns"].tolist() == [10, 20, 30]
    assert np.cumsum(energy["step"]).tolist() == pytest.approx([5.8, 7.8, 11.05])


def test_a_slice_of_a_receiver_has_its_own_share(part: Part) -> None:
    """Half of what the broadcast cost its two receivers, all of what the sidelink cost its one; none of the sending."""
    found = device_slices(part)
    spent_j = {(int(row["device"]), int(row["row"])): float(row["energy_j"]) for row in found}

    assert spent_j == pytest.approx({
        (0, BROADCAST): 0.4,
        (1, BROADCAST): 0.4,
        (0, UPLOAD): 2.0,
        (1, GOSSIP): 3.0,
        (0, GOSSIP): 0.25,
    })  # fmt: skip
