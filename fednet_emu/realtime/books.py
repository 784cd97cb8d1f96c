"""Records of a live run: messages as rows of the ledger, predicted times of the messages, and delays of the host."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from simpy.events import Event

from fednet_emu.devices.availability import Presence
from fednet_emu.emulation.build import build
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.air.transfer import Message as Sent
from fednet_emu.network.air.transfer import Transfer
from fednet_emu.network.links.links import cell_of
from fednet_emu.network.transport.transports import Tcp
from fednet_emu.radio.overhead import Packets
from fednet_emu.realtime.messages import Message
from fednet_emu.realtime.options import beneath
from fednet_emu.records.ledger import SERVER, Ledger, device_label
from fednet_emu.records.reasons import CODE
from fednet_emu.records.rows import KINDS, TransferRow
from fednet_emu.scenario.model import Scenario

WIRE = Packets(headers="tcp-ipv4-timestamps")
"""Headers of the packets in live runs, which take 52 of the 1500 bytes of a packet."""


class Prediction(NamedTuple):
    """The predicted transfer of a message.

    Attributes:
        took_s: time in s from the request to the end of the transmission.
        ended_s: end time of the transmission, in s.
        ack_wait_s: time in s, included in `took_s`, in which TCP sends nothing because it waits for acknowledgements.
        lost: reason for a loss, as in `records/reasons.py`; empty if the message arrives.
    """

    took_s: float
    ended_s: float
    ack_wait_s: float
    lost: str

    @classmethod
    def of(cls, transfer: Transfer) -> Prediction:
        """Return the prediction from a simulated transfer that has ended."""
        delivery: Any = transfer.value
        phases = transfer.phases
        reception_delay_s, ack_wait_s = (
            (0.0, 0.0) if phases is None else (phases.reception_delay_ns / NS_PER_S, phases.ack_wait_ns / NS_PER_S)
        )
        return cls(
            delivery.latency_s - reception_delay_s, delivery.ended_s - reception_delay_s, ack_wait_s, delivery.lost
        )


class Standing(Tcp):
    """TCP on open connections, without handshakes, because a live message begins with its first packet with payload."""

    handshakes: ClassVar[int] = 0


def predicted(
    scenario: Scenario, messages: Sequence[Message], data_dir: Path | str | None, way_s: float = 0.0
) -> list[Prediction | None]:
    """Simulate the transfer of each message of a live run; return None for a transfer that does not end.

    Only the payload size and the arrival time of the first packet are taken from the live run; at this time, the
    transfer is requested. Programs do not broadcast, so that each message on the downlink is for one device, and
    `downlink.mode` has no effect. The payload includes the data of sessions (such as TLS). `way_s` is the one-way delay
    of the live run in s, in addition to the time on the air; it is used only if the scenario has a transport.
    """
    bare, transport = beneath(scenario), scenario.network.transport
    if has_headers := isinstance(transport, Tcp):
        update = {"transport": Standing.model_validate(transport.model_dump(exclude={"kind"}) | {"rtt_s": 2 * way_s})}
        bare = bare.model_copy(update={"network": bare.network.model_copy(update=update)})
    twin = build(bare, data_dir=data_dir, learning=False)
    network = twin.network
    transfers: list[Transfer | None] = [None] * len(messages)

    def request(place: int, message: Message, _event: Event) -> None:
        ends = (message.device, SERVER) if message.upwards else (SERVER, message.device)
        medium, payload_bit = network.uplink if message.upwards else network.downlink, 8 * message.payload_byte
        transfers[place] = medium.send(*ends, Sent(None, payload_bit if has_headers else WIRE.wire_bit(payload_bit)))

    for place, message in enumerate(messages):
        twin.clock.call_at(message.arrived_ns, partial(request, place, message))
    twin.clock.run()
    return [None if its is None or not its.triggered else Prediction.of(its) for its in transfers]


LATE_NS = 5_000_000
"""A packet counts as late if it is written to its receiver more than this time in ns after the due time."""
MOST_LATE = 0.01
"""Maximum share of late packets; a run with a larger share is marked as doubtful."""
MOST_WAITING = 0.1
"""Maximum share of time for which a program waits for a processor; a run with a larger share is marked as doubtful."""
STARVED = 0.02
"""Maximum share of a message's duration in which the sender's queue is empty, without the gaps that TCP is predicted to
cause. A message with a larger share counts as starved: its program was too slow to supply data."""


class Ran(NamedTuple):
    """How long a program ran and how long it waited for a processor, both in ns, and its exit code.

    `code` is minus the signal number for a killed program, and 0 for a program that was running at the end of the run.
    """

    node: int
    ran_ns: int
    waited_ns: int
    code: int = 0


def write_messages(
    fed: Federation, messages: Sequence[Message], predictions: Sequence[Prediction | None]
) -> list[float]:
    """Add a row to each of the tables `transfers` and `live_messages` for every message, in order of end times.

    Returns:
        The relative errors of the predicted times, for messages that are neither lost nor starved.
    """
    errors: list[float] = []
    order = sorted(range(len(messages)), key=lambda place: messages[place].ended_ns)
    for row, place in enumerate(order):
        message, prediction = messages[place], predictions[place]
        _write_transfer(fed, message)
        starved_s = message.starved_ns / NS_PER_S
        error = math.nan
        if prediction is not None and not (prediction.lost or message.lost) and prediction.took_s > 0:
            error = (message.ended_ns / NS_PER_S - prediction.ended_s) / prediction.took_s
            if starved_s - prediction.ack_wait_s <= STARVED * (message.ended_ns - message.started_ns) / NS_PER_S:
                errors.append(error)
        fed.ledger.record(
            "live_messages",
            transfer=row,
            payload_byte=message.payload_byte,
            packets=message.packets,
            repeated_byte=message.repeated_byte,
            starved_s=starved_s,
            away_s=_away_ns(fed.presence, message) / NS_PER_S,
            predicted_s=math.nan if prediction is None else prediction.ended_s,
            error=error,
        )
    return errors


def _write_transfer(fed: Federation, message: Message) -> None:
    ledger, network, kind = fed.ledger, fed.network, KINDS.index("uplink" if message.upwards else "downlink")
    medium = network.uplink if message.upwards else network.downlink
    sender, receiver = (message.device, SERVER) if message.upwards else (SERVER, message.device)
    size_bit, now = 8 * message.air_byte, medium.links.now()
    station, snr = now.station_of(message.device), 0.0
    if medium.has_snr:
        snr = now.snr(*((message.device, station) if message.upwards else (station, message.device)))
    energy_j = medium.radios.drawn_w(sender, now.power_w(sender), 1.0) * message.power_ns / NS_PER_S
    rx_energy_j = medium.radios.receiving_w(receiver) * (message.ended_ns - message.started_ns) / NS_PER_S
    ledger.offered_bit[kind] += size_bit
    ledger.sent_bit[kind] += size_bit
    ledger.energy_j += energy_j + rx_energy_j
    ledger.transfers.append(TransferRow(
        kind, sender, receiver, 1, size_bit, -1, message.arrived_ns, message.started_ns, message.ended_ns,
        float(size_bit), 0 if message.lost else size_bit, CODE[message.lost], energy_j, rx_energy_j,
        cell_of(station), snr,
    ))  # fmt: skip


def _away_ns(presence: Presence, message: Message) -> int:
    """Return the time in ns between the first packet and the end of a message for which its device was absent."""
    if presence.always:
        return 0
    now_ns, away_ns, own = message.arrived_ns, 0, presence.only(np.array([message.device]))
    while now_ns < message.ended_ns:
        left_ns = min(presence.until_ns(message.device, now_ns), message.ended_ns)
        now_ns = min(own.next_return_ns(left_ns), message.ended_ns)
        away_ns += now_ns - left_ns
    return away_ns


def write_host(ledger: Ledger, late_ns: Mapping[int, array[int]], programs: Sequence[Ran]) -> dict[str, Any]:
    """Write the tables `live_host`, with one row per second, and `live_programs`; return entries for the summary.

    `late_ns` lists, for each second, the delays in ns between the due time and the writing of packets.
    """
    for second, late in sorted(late_ns.items()):
        half, most = np.quantile(np.frombuffer(late, np.int64), (0.5, 0.99)) / NS_PER_S
        ledger.record("live_host", simulated_s=second, packets=len(late), late_p50_s=half, late_p99_s=most)
    for ran in programs:
        times = {"ran_s": ran.ran_ns / NS_PER_S, "waited_s": ran.waited_ns / NS_PER_S}
        ledger.record("live_programs", device=ran.node - 1, **times, code=ran.code)
    every = np.concatenate([np.frombuffer(late, np.int64) for late in late_ns.values()] or [np.zeros(0, np.int64)])
    half, most = np.quantile(every, (0.5, 0.99)) / NS_PER_S if len(every) else (math.nan, math.nan)
    return {
        "packets": len(every),
        "late_p50_s": float(half),
        "late_p99_s": float(most),
        "late_share": float(np.mean(every > LATE_NS)) if len(every) else 0.0,
    }


def doubts(host: Mapping[str, Any], programs: Sequence[Ran]) -> str:
    """Return text about signs that the host was too busy for valid time measurements; empty if there are none."""
    found = []
    if host["late_share"] > MOST_LATE:
        found.append(f"{host['late_share']:.1%} of the packets were written more than {LATE_NS / 1e6:g} ms late")
    waited = [(ran.waited_ns / max(ran.ran_ns, 1), ran.node) for ran in programs]
    share, node = max(waited, default=(0.0, 0))
    if share > MOST_WAITING:
        found.append(f"the program of {device_label(node - 1)} waited for a processor for {share:.0%} of its time")
    return "; ".join(found)
