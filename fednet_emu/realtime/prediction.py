"""Transfer times that the simulator predicts for the messages of a live run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from simpy.events import Event

from fednet_emu.emulation.build import build
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.air.transfer import Message as Sent
from fednet_emu.network.air.transfer import Transfer
from fednet_emu.network.transport.transports import Tcp
from fednet_emu.radio.overhead import Packets
from fednet_emu.realtime.messages import Message
from fednet_emu.realtime.options import beneath
from fednet_emu.records.ledger import SERVER
from fednet_emu.scenario.model import Scenario

WIRE = Packets(headers="tcp-ipv4-timestamps")
"""Headers of the packets in live runs. The headers take 52 of the 1500 bytes of a packet."""


class Prediction(NamedTuple):
    """The predicted transfer of a message.

    Attributes:
        took_s: time in s from the request to the end of the transmission.
        ended_s: end time of the transmission, in s.
        ack_wait_s: part of `took_s` in which TCP sends nothing, because it waits for acknowledgements.
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

    From the live run, only the size of the payload and the arrival time of the first packet are taken; at this time,
    the transfer is requested. Programs do not broadcast, so that each message on the downlink is for one device, and
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
