"""The edge servers of a federation: which device is served by which, and their messages to and from the cloud."""

from __future__ import annotations

from typing import Any, final

from fednet_emu.federation.device import Device
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.payload import parcel
from fednet_emu.network.backhaul import Message


@final
class EdgeServers:
    """Edge servers, one in each base station, with its number.

    What a device sends to or receives from its edge server is an uplink or downlink of the federation, which the base
    station that serves it carries.
    """

    def __init__(self, fed: Federation) -> None:
        self._network = fed.network

    @property
    def count(self) -> int:
        """Number of edge servers."""
        return self._network.settings.cells.count

    def of(self, device: Device) -> int:
        """The edge server that serves a device now, and receives what it begins to send now."""
        return self._network.serving_cell(device.index)

    def up(self, edge: int, payload: Any) -> Message:
        """Send from an edge server to the cloud; the event's value is the `Delivery`."""
        return self._send(edge, payload, up=True)

    def down(self, edge: int, payload: Any) -> Message:
        """Send from the cloud to an edge server; the event's value is the `Delivery`."""
        return self._send(edge, payload, up=False)

    def _send(self, edge: int, payload: Any, *, up: bool) -> Message:
        payload, _, number, size_bit = parcel(payload, None, self._network.settings.overhead)
        return self._network.backhaul.send(edge, up=up, payload=payload, number=number, size_bit=size_bit)
