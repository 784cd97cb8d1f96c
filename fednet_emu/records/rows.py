"""The rows of the recorded tables. Annotations define the types of columns, and docstrings are their documentation.

Times in these rows are integers in ns. Tables for users have times in s. Device indices begin at 0; the server is -1.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from fednet_emu.records.reasons import REASONS
from fednet_emu.records.table import MEASURE, Column

KINDS = ("uplink", "downlink", "sidelink")
DIRECTIONS = ("down", "up")
"""Directions on the backhaul: from the cloud to an edge server, and from an edge server to the cloud."""

Time = Annotated[int, Column(np.int64, seconds=True)]
Number = Annotated[int, Column(np.int64)]
Value = Annotated[int, Column(np.int64, digest=False)]
Device = Annotated[int, Column(np.int32)]
Measure = Annotated[float, MEASURE]
Ratio = Annotated[float, Column(np.float32, digest=False, decibels=True)]
Why = Annotated[int, Column(np.int8, words=REASONS)]
LossReason = Annotated[int, Column(np.int8, words=REASONS, hashed="lost")]
Direction = Annotated[int, Column(np.int8, words=KINDS, hashed="kind")]


class TransferRow(NamedTuple):
    """One row for each transmission, sorted by end time."""

    direction: Direction
    """direction of the link: uplink, downlink or sidelink"""
    sender: Device
    """index of the sending device, or -1 for the server"""
    receiver: Device
    """index of the receiving device, -1 for the server, or -2 for several receivers, which `receptions` lists"""
    receivers: Device
    """number of receivers"""
    size_bit: Number
    """size of payload and headers; without headers if there is a column `wire_bit`"""
    value_id: Value
    """identification number of the sent value, as for inputs and results in `computes`; -1 if it has no number"""
    requested_ns: Time
    """time of the request for the transfer"""
    started_ns: Time
    """time at which the transmission on the air starts; NaN for a transfer that never started"""
    ended_ns: Time
    """time at which the transfer ends: completion, loss or cancellation"""
    transmitted_bit: Measure
    """bits transmitted: the size of a completed transfer with headers, or less if the transfer was cut off"""
    delivered_bit: Number
    """bits delivered, summed over receivers"""
    loss_reason: LossReason
    """empty, or the reason for the loss, see [reasons](#reasons-of-loss)"""
    energy_j: Measure
    """energy of the transmitter: (radiated power / amplifier efficiency + circuit power) x airtime + `tx_j_per_bit`"""
    rx_energy_j: Measure
    """energy of the receiving devices, summed: `rx_consumption_w` x time from start to end + `rx_j_per_bit`"""
    cell: Annotated[int, Column(np.int32, digest=False)]
    """index of the transfer's cell, from 0. After a handover, it is the last cell; for a sidelink transfer, the index
    of the cluster"""
    snr: Ratio = 0.0
    """mean SNR of the link at the start, over the whole band and averaged over fading. It includes the transmit power
    of the transfer and the gain of the receiver's antennas. If there are several receivers, it is the minimum over
    receivers. NaN for wired links, for links from recordings, and for a transfer that never started"""


class PhaseColumns(NamedTuple):
    """The columns from `grant_delay_s` on exist only in runs with delays other than airtime.

    In these runs, `size_bit` excludes headers. The phases of a transfer from request to end are connection set-up,
    access to the channel, the wait for a turn, the airtime with waits for acknowledgements, and the reception delay.
    """

    grant_delay_ns: Annotated[int, Column(np.int64, seconds=True, hashed="access_ns")]
    """time until the sender has access to the channel, with the RRC connection set-up"""
    connection_setup_ns: Annotated[int, Column(np.int64, seconds=True, hashed="setup_ns")]
    """time until the transport connection is set up and the software has processed the message"""
    ack_wait_ns: Annotated[int, Column(np.int64, seconds=True, hashed="gap_ns")]
    """time on the air in which no bits are sent because the sender waits for acknowledgements"""
    reception_delay_ns: Annotated[int, Column(np.int64, seconds=True, hashed="tail_ns")]
    """time from the last bit on the air to its reception"""
    wire_bit: Number
    """size of payload and headers"""
    ack_bit: Annotated[int, Column(np.int64, hashed="reverse_bit")]
    """size of the receiver's acknowledgements, for which no airtime is modelled"""


class SharedColumns(NamedTuple):
    """The column `others_s` exists only in runs with other users of the network (setting `traffic`)."""

    others_s: Measure
    """delay due to files of other users. On the air, it is the integral over time of 1 - (share of the band) / (share
    of the band without these files). During a wait for a turn, it is the integral over time of the fraction of files
    among the transmissions on the air"""


class TrafficRow(NamedTuple):
    """One row for each file of another user, sorted by end time; present only if `traffic` is set."""

    traffic_class: Annotated[int, Column(np.int32)]
    """name of the class of other users, as in the setting `traffic`"""
    user: Device
    """index of the user in its class"""
    direction: Annotated[int, Column(np.int8, words=KINDS)]
    """direction of the link: uplink or downlink"""
    cell: Annotated[int, Column(np.int32, digest=False)]
    """index of the cell in which the file is sent, from 0"""
    slice: Annotated[int, Column(np.int32, digest=False)]
    """name of the network slice in which the file is sent"""
    size_bit: Number
    """size of the file and its headers"""
    requested_ns: Time
    """time at which the file arrives in the queue"""
    started_ns: Time
    """time at which the transmission on the air starts; NaN for a file that never started"""
    ended_ns: Time
    """time at which the file's transfer ends; the end of the run if the file is unfinished"""
    transmitted_bit: Measure
    """bits of the file that were transmitted"""
    loss_reason: Why
    """empty, or the reason for the loss, see [reasons](#reasons-of-loss); `end` for a file unfinished at the end of the
    run"""


class ReceptionRow(NamedTuple):
    """One row for each receiver of a transmission to several receivers."""

    transfer: Number
    """row number of the transfer in the table `transfers`"""
    receiver: Device
    """receiving device"""
    loss_reason: LossReason
    """empty, or the reason for the loss, see [reasons](#reasons-of-loss)"""
    rx_energy_j: Measure = 0.0
    """energy of the receiver; the sum over all receivers is `rx_energy_j` of the transfer"""
    snr: Ratio = 0.0
    """mean SNR of the link to the receiver, defined like the SNR in `transfers`"""


class HandoverRow(NamedTuple):
    """One row for each change of a transfer's cell; present only if `network.handover` is `during`."""

    direction: Direction
    """direction of the transfer: uplink or downlink"""
    device: Device
    """device that is handed over"""
    simulated_ns: Time
    """time of the handover"""
    value_id: Value
    """identification number of the sent value, as in `transfers`"""
    from_cell: Device
    """cell before the handover"""
    to_cell: Device
    """cell after the handover"""


class BackhaulRow(NamedTuple):
    """One row for each message between the cloud and an edge server, sorted by end time."""

    direction: Annotated[int, Column(np.int8, words=DIRECTIONS)]
    """direction: `up` to the cloud, `down` from the cloud"""
    edge: Device
    """index of the edge server, which is the index of its cell"""
    size_bit: Number
    """size of payload and headers"""
    value_id: Value
    """identification number of the sent value, as for inputs and results in `computes`; -1 if it has no number"""
    requested_ns: Time
    """time of the request for the message"""
    started_ns: Time
    """time at which the transmission starts; NaN for a message that never started"""
    ended_ns: Time
    """time of arrival or loss"""
    sent_bit: Number
    """bits sent: the size of the message, or less if the message was cut off"""
    delivered_bit: Number
    """bits delivered: the size of the message, or 0 if the message was lost"""
    loss_reason: LossReason
    """empty, or the reason for the loss, see [reasons](#reasons-of-loss)"""
    energy_j: Measure
    """energy of the message: `energy_j_per_bit` x `sent_bit`"""


class ComputeRow(NamedTuple):
    """One row for each computation on a device or the server."""

    device: Device
    """index of the computing device, or -1 for the server"""
    started_ns: Time
    """time at which the computation starts"""
    ended_ns: Time
    """time at which the computation ends"""
    flop: Measure
    """number of completed floating-point operations"""
    energy_j: Measure
    """energy of the processor; 0 for the server"""
    input: Value
    """identification number of the input value; -1 if there is none"""
    result: Value
    """identification number of the resulting value; -1 if there is none"""
    stopped: Why
    """empty, or the reason for an early stop; `flop` and `energy_j` then include only the completed operations"""


class RoundRow(NamedTuple):
    """One row for each round of the algorithm."""

    round: Number
    """number of the round, from 1"""
    started_ns: Time
    """time at which the round starts"""
    ended_ns: Time
    """time at which the round ends"""
    invited: Device
    """number of invitations; a device that is invited several times in a round counts several times"""
    arrived: Device
    """number of updates that arrived in time"""


class EvaluationRow(NamedTuple):
    """One row for each evaluation of the model; bits and energy are totals from the start of the run.

    Where each device has its own model, `loss` and `accuracy` are those of each model on its device's share of the test
    set, pooled over the samples; with `evaluation.consensus`, those of the mean of the models on the whole test set.
    Further columns are the metrics in `evaluation.metrics`. If `evaluation.consensus` is set, there are also the
    columns `consensus_distance` and `local_model_accuracy`.
    """

    round: Number
    """number of the round, from 1"""
    simulated_ns: Time
    """time of the evaluation"""
    uplink_bit: Number
    """bits transmitted on the uplink"""
    downlink_bit: Number
    """bits transmitted on the downlink; a broadcast counts once"""
    sidelink_bit: Number
    """bits transmitted between devices"""
    energy_j: Measure
    """energy of transmissions, receptions, computations and backhaul, and idle energy of devices and base stations"""
    loss: Measure
    """mean loss on the test samples"""
    accuracy: Measure
    """fraction of test samples that are classified correctly; NaN for a regression"""
    worst_accuracy: Measure
    """minimum accuracy over devices; NaN unless `evaluation.per_device` is set"""
    std_accuracy: Measure
    """standard deviation of the accuracy over devices; NaN unless `evaluation.per_device` is set"""
    worst_train_loss: Measure
    """maximum over devices of the mean training loss of the device; NaN unless `evaluation.worst_train_loss` is set"""
    attack_success: Measure
    """fraction of the attacked test samples that are classified as the attacker intends"""


class DeviceEvaluationRow(NamedTuple):
    """One row for each device and evaluation. Without `evaluation.per_device`, only Flower apps can add rows."""

    round: Number
    """number of the round, from 1"""
    device: Device
    """evaluated device"""
    samples: Number
    """number of test samples of the device"""
    loss: Measure
    """mean loss on the device's own test samples"""
    accuracy: Measure
    """accuracy on the device's own test samples"""


class BatteryRow(NamedTuple):
    """One row for each battery at the start, at the end, and at each change of its loads, if batteries are modelled.

    All energies except the charge are totals since the start of the run.
    """

    device: Device
    """index of the device that the battery supplies"""
    simulated_ns: Time
    """time of the change"""
    charge_j: Measure
    """charge of the battery after the change"""
    harvested_j: Measure
    """harvested energy"""
    spilled_j: Measure
    """harvested energy that exceeded the capacity of the battery"""
    computing_j: Measure
    """energy of computations"""
    sending_j: Measure
    """energy of transmissions"""
    receiving_j: Measure
    """energy of receptions"""
    idle_j: Measure
    """idle energy, which the device consumes while it is on"""
    state: Annotated[int, Column(np.int8, words=("empty", "on"))]
    """state after the change; a device whose battery is `empty` is away"""


class EnergyRow(NamedTuple):
    """Energies of the whole run: one row for each device, and a last row (`device` -1) for all base stations together.

    `computing_j`, `sending_j`, `receiving_j` and `idle_j` of all rows add up to `energy_j` minus `backhaul_j` of the
    summary. The energy of a broadcast counts once for its sender and once for each receiver.
    """

    device: Device
    """device, or -1 for base stations"""
    computing_j: Measure
    """energy of computations in addition to idle energy; NaN if unknown"""
    sending_j: Measure
    """energy of transmissions in addition to idle energy"""
    receiving_j: Measure
    """energy of receptions in addition to idle energy"""
    idle_j: Measure
    """idle energy; a device consumes none while its battery is empty"""
    waiting_j: Measure
    """idle energy in times in which the device neither sends, receives nor computes; NaN for base stations"""


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
    "traffic": TrafficRow,
}
"""Row class of each table."""
