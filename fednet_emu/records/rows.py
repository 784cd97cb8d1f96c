"""The rows of the recorded tables: annotations are the types of the columns, docstrings their reference.

Times are integer nanoseconds here and seconds in the tables that users read. Devices are numbered from 0, the server
is -1.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from fednet_emu.records.reasons import REASONS
from fednet_emu.records.table import MEASURE, Column

KINDS = ("uplink", "downlink", "sidelink")
DIRECTIONS = ("down", "up")
"""Directions on the backhaul: from the cloud to an edge server, and back."""

Time = Annotated[int, Column(np.int64, seconds=True)]
Number = Annotated[int, Column(np.int64)]
Value = Annotated[int, Column(np.int64, digest=False)]
Device = Annotated[int, Column(np.int32)]
Measure = Annotated[float, MEASURE]
Ratio = Annotated[float, Column(np.float32, digest=False, decibels=True)]
Why = Annotated[int, Column(np.int8, words=REASONS)]


class TransferRow(NamedTuple):
    """One row for each transmission, in the order of their ends."""

    kind: Annotated[int, Column(np.int8, words=KINDS)]
    """the direction"""
    sender: Device
    """who sends"""
    receiver: Device
    """who receives; -2 means several, see `receptions`"""
    receivers: Device
    """how many devices the transmission was meant for"""
    size_bit: Number
    """payload and header"""
    payload: Value
    """number of the value sent, -1 if it is no single deferred value; `computes` has the same numbers"""
    requested_ns: Time
    """asked for"""
    started_ns: Time
    """on the air; NaN for a transfer that never was"""
    ended_ns: Time
    """over"""
    air_bit: Measure
    """bits that flowed: the payload when it was completed, less when it was cut short"""
    delivered_bit: Number
    """sum over the receivers who got it"""
    lost: Why
    """empty, or the reason of the loss, see [reasons](#reasons-of-loss)"""
    energy_j: Measure
    """drawn by the transmitter: (power / amplifier efficiency + circuit power) x time on the air"""
    receive_j: Measure
    """drawn by the receiving devices: `receive_w` x time on the air, for each of them"""
    cell: Annotated[int, Column(np.int32, digest=False)]
    """in which it is sent, from 0; in which it ends if it is handed over; of a sidelink the cluster"""
    snr: Ratio = 0.0
    """mean SNR of the link at the start: over noise alone, on the whole band, at the transmit power of the transfer,
    averaged over fading, with the gain of the receiver's antennas; of several receivers the lowest; NaN where links are
    wired or recorded, or the transfer never was on the air"""


class PhaseColumns(NamedTuple):
    """The columns from `access_s` on are there in runs with waits beside the air; `size_bit` is then the payload alone.

    From request to end a transfer passes set-up, access, its wait for a turn, the time on the air with its gaps, and
    the tail.
    """

    access_ns: Time
    """wait for access to the channel"""
    setup_ns: Time
    """wait for a connection, and for software"""
    gap_ns: Time
    """while on the air, with nothing to send: waiting for acknowledgements"""
    tail_ns: Time
    """from the last bit on the air until it counts as received"""
    wire_bit: Number
    """payload and headers"""
    reverse_bit: Number
    """acknowledgements of the receiver; they take no time on the air"""


class ReceptionRow(NamedTuple):
    """One row for each receiver of a transmission to several."""

    transfer: Number
    """row number of the table `transfers`"""
    receiver: Device
    """who received"""
    lost: Why
    """empty, or the reason of the loss, see [reasons](#reasons-of-loss)"""
    receive_j: Measure = 0.0
    """drawn by this receiver; the sum over all receivers is `receive_j` of the transfer"""
    snr: Ratio = 0.0
    """mean SNR of the link to this receiver, as in `transfers`"""


class HandoverRow(NamedTuple):
    """With `network.handover: during`: a row for each transfer that changes its cell, when it does."""

    kind: Annotated[int, Column(np.int8, words=KINDS)]
    """the direction"""
    device: Device
    """who is handed over"""
    simulated_ns: Time
    """when"""
    payload: Value
    """number of the value sent, as in `transfers`"""
    from_cell: Device
    """the cell until then"""
    to_cell: Device
    """the cell from then on"""


class BackhaulRow(NamedTuple):
    """One row for each message between the cloud and an edge server, in the order of their ends."""

    direction: Annotated[int, Column(np.int8, words=DIRECTIONS)]
    """`up` to the cloud, `down` from it"""
    edge: Device
    """number of the edge server, that of its cell"""
    size_bit: Number
    """payload and header"""
    payload: Value
    """number of the value sent, -1 if it is no single deferred value; `computes` has the same numbers"""
    requested_ns: Time
    """asked for"""
    started_ns: Time
    """on the line; NaN for a message that never was"""
    ended_ns: Time
    """arrived or lost"""
    sent_bit: Number
    """bits that left: the size, less when it was cut short"""
    delivered_bit: Number
    """the size if it has arrived"""
    lost: Why
    """empty, or the reason of the loss, see [reasons](#reasons-of-loss)"""
    energy_j: Measure
    """`energy_j_per_bit` x bits that left"""


class ComputeRow(NamedTuple):
    """One row for each computation on a device or the server."""

    device: Device
    """who"""
    started_ns: Time
    """the processor begins"""
    ended_ns: Time
    """over"""
    flop: Measure
    """work done"""
    energy_j: Measure
    """drawn by the processor; 0 for the server"""
    input: Value
    """number of the value that the computation starts from"""
    result: Value
    """number of the value that comes out"""
    stopped: Why
    """empty, or why it did not come to its end; work and energy are then those of the part that was done"""


class RoundRow(NamedTuple):
    """One row for each round of the algorithm."""

    round: Number
    """number of the round, from 1"""
    started_ns: Time
    """its begin"""
    ended_ns: Time
    """over"""
    invited: Device
    """devices that were asked"""
    arrived: Device
    """devices whose update came in time"""


class EvaluationRow(NamedTuple):
    """One row for each evaluation of the model; counts and energy are sums up to that moment.

    A column for each of `evaluation.metrics` follows, and `consensus` and `own_accuracy` with `evaluation.consensus`.
    """

    round: Number
    """number of the round, from 1"""
    simulated_ns: Time
    """when"""
    uplink_bit: Number
    """on the air of the uplink"""
    downlink_bit: Number
    """on the air of the downlink, a broadcast once"""
    sidelink_bit: Number
    """on the air between devices"""
    energy_j: Measure
    """of all transmissions, receptions and computations, the backhaul, and the idle power of devices and stations"""
    loss: Measure
    """on the test samples"""
    accuracy: Measure
    """share of the test samples that are classified right; NaN for a regression"""
    worst_accuracy: Measure
    """that of the device for which it is lowest, with `evaluation.per_device`"""
    std_accuracy: Measure
    """standard deviation over devices, with `evaluation.per_device`"""
    worst_train_loss: Measure
    """largest mean loss of a device on its own training samples, with `evaluation.train_loss`"""
    attack_success: Measure
    """share of the attacked test samples that become what the attacker wants"""


class DeviceEvaluationRow(NamedTuple):
    """One row for each device and evaluation, with `evaluation.per_device`."""

    round: Number
    """number of the round, from 1"""
    device: Device
    """who"""
    samples: Number
    """test samples of the device"""
    loss: Measure
    """on the device's own test samples"""
    accuracy: Measure
    """on the device's own test samples"""


class BatteryRow(NamedTuple):
    """With `devices.battery`: a row for each battery at the start, at the end, and whenever what it supplies changes.

    Amounts are sums since the start.
    """

    device: Device
    """who"""
    simulated_ns: Time
    """when"""
    charge_j: Measure
    """in the battery"""
    harvested_j: Measure
    """came in"""
    spilled_j: Measure
    """came in and had no room"""
    computing_j: Measure
    """drawn by computations"""
    sending_j: Measure
    """drawn by transmissions"""
    receiving_j: Measure
    """drawn by receptions"""
    idle_j: Measure
    """idle power, all the time that the device is on"""
    state: Annotated[int, Column(np.int8, words=("empty", "on"))]
    """from then on; a device whose battery is `empty` is away"""


class EnergyRow(NamedTuple):
    """One row for each device, and a last one for all base stations together, whose `device` is -1; of the whole run.

    `computing_j`, `sending_j`, `receiving_j` and `idle_j` of all rows add up to `energy_j` of the summary, less
    `backhaul_j`. A broadcast counts once for its sender; each of its receivers has what it draws itself.
    """

    device: Device
    """who"""
    computing_j: Measure
    """drawn by its computations beside idle power; NaN where nothing says what they draw"""
    sending_j: Measure
    """drawn by its transmissions beside idle power"""
    receiving_j: Measure
    """drawn by its receptions beside idle power"""
    idle_j: Measure
    """idle power, all the time but while its battery is empty"""
    waiting_j: Measure
    """part of `idle_j` in which it neither sends, receives nor computes; NaN for base stations"""


ROWS: dict[str, type[tuple[float, ...]]] = {
    "transfers": TransferRow,
    "receptions": ReceptionRow,
    "computes": ComputeRow,
    "rounds": RoundRow,
    "evaluations": EvaluationRow,
    "device_evaluations": DeviceEvaluationRow,
    "backhaul": BackhaulRow,
    "batteries": BatteryRow,
    "handovers": HandoverRow,
    "energies": EnergyRow,
}
"""The rows of each table."""
