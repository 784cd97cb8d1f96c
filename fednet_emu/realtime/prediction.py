"""What the simulator predicts for the messages of a live run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from simpy.events import Event

from fednet_emu.emulation.build import build
from fednet_emu.network.air.transfer import Delivery, Transfer
from fednet_emu.radio.overhead import Packets
from fednet_emu.realtime.messages import Message
from fednet_emu.records.ledger import SERVER
from fednet_emu.scenario.model import Scenario

WIRE = Packets(headers="tcp-ipv4-timestamps")
"""The headers of what passes: 52 of 1500 bytes in each packet."""


def predicted(scenario: Scenario, messages: Sequence[Message], data_dir: Path | str | None) -> list[Delivery | None]:
    """Simulate transfers of the payload of messages, each requested when its first packet came; None if it never ends.

    Only what each message carries and when it began is taken from the live run. A message on the downlink is for one
    device: programs do not broadcast, whatever `downlink.mode` says.
    """
    twin = build(scenario, data_dir=data_dir, learning=False)
    network = twin.network
    transfers: list[Transfer | None] = [None] * len(messages)

    def request(place: int, message: Message, _event: Event) -> None:
        ends = (message.device, SERVER) if message.upwards else (SERVER, message.device)
        medium = network.uplink if message.upwards else network.downlink
        transfers[place] = medium.send(*ends, None, -1, WIRE.wire_bit(8 * message.payload_byte))

    for place, message in enumerate(messages):
        twin.clock.call_at(message.arrived_ns, partial(request, place, message))
    twin.clock.run()
    return [None if transfer is None or not transfer.triggered else transfer.value for transfer in transfers]
