"""The links of a federation, from payloads to transfers: sizes, headers, broadcasts and compression."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, final

from fednet_emu.compression import NoCompression
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.device import Device, Fed
from fednet_emu.federation.updates import (
    Compressor,
    Publications,
    Read,
    Shared,
    Since,
    Uploads,
    bits_of,
    n_scalars,
    whole_bit,
)
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.network.air.transfer import Grant, Message, Transfer
from fednet_emu.network.backhaul import Message as BackhaulMessage
from fednet_emu.network.network import Network
from fednet_emu.records.ledger import SERVER


@final
class Links:
    """Sends payloads over the network; the send operations of `Federation` use this class.

    Attributes:
        grants: planned grants (resource shares) for the uploads of a round, by device.
        compresses_uploads: whether uploads are compressed as differences from the model that the device received, which
            is then stored until the upload.
        uploads_payloads: whether each upload is an uncompressed message of its own, with the size of payload and
            headers.
        statistics: number of running statistics at the end of a vector, by size of the vector; they are not compressed.

    Args:
        read: function that computes a deferred value, for messages whose size in bits depends on values.
        base_bit: additional bits in the first message to each device, for frozen weights to which adapters are added.
    """

    def __init__(self, network: Network, graph: Graph, streams: Streams, read: Read, base_bit: int = 0) -> None:
        self._network, self._shared, self._base_bit, self._has_base = network, 0, base_bit, set[int]()
        self._wire_bit = lru_cache(network.settings.overhead.wire_bit)  # few different sizes
        self.grants: dict[int, Grant[float]] = {}
        self.statistics: dict[int, int] = {}
        self._up, down = network.settings.uplink.compression, network.settings.downlink.compression
        plain, rest = NoCompression, (graph, streams, read, self.statistics)
        self._uploads = None if type(self._up) is plain else Uploads(Compressor(self._up, *rest))
        self._publications = None if type(down) is plain else Publications(Compressor(down, *rest))
        self.compresses_uploads = self._uploads is not None
        self.uploads_payloads = self._uploads is None and network.superposition is None

    @property
    def sends_plainly(self) -> bool:
        """True if messages have the size of their payloads: neither compression nor added frozen weights."""
        return self._uploads is None and self._publications is None and not self._base_bit

    def parcel(self, payload: Any, size_bit: int | None = None) -> Message:
        """Return the message for a payload of `size_bit` bits without headers; None means 32 bits per scalar."""
        number = -1
        group: Hashable = None
        if type(payload) is Shared:
            payload, shared = payload
            group = "shared", shared
        if type(payload) is Deferred:
            number, scalars = payload.number, payload.size
            group = group or number
        else:
            scalars = n_scalars(payload) if size_bit is None else 0
        bits = scalars * FLOAT_BIT if size_bit is None else whole_bit(size_bit)
        return Message(payload, self._wire_bit(bits), number, group)

    def shared(self, payload: Any) -> Shared:
        self._shared += 1
        return Shared(payload, self._shared)

    def downlink(self, device: int, payload: Any, size_bit: int | None) -> Transfer:
        """Send to a device; a published model is sent as an update if the device has the one published before."""
        published = None if size_bit is not None else self._publications
        if published is not None:
            size_bit = published.bit(device, payload.payload if isinstance(payload, Shared) else payload)
        bare = self._base_bit > 0 and device not in self._has_base
        if bare:
            whole = payload.payload if isinstance(payload, Shared) else payload
            size_bit = self._base_bit + (n_scalars(whole) * FLOAT_BIT if size_bit is None else size_bit)
        message = self.parcel(payload, size_bit)
        transfer = self._network.downlink.send(SERVER, device, message)
        if bare:
            transfer.callbacks.append(lambda event: None if event.lost else self._has_base.add(device))
        if published is not None:
            published.until_arrived(device, message.payload, transfer)
        return transfer

    def downlinks(self, devices: Sequence[int], payload: Any) -> list[Transfer]:
        if self._publications is not None or (self._base_bit and not self._has_base.issuperset(devices)):
            return [self.downlink(device, payload, None) for device in devices]
        return self._network.downlink.send_all(SERVER, devices, self.parcel(payload))

    def uplink(
        self,
        device: int,
        payload: Any,
        size_bit: int | None,
        power_part: float,
        since: Since,
        kept: float | None = None,
    ) -> Transfer:
        """Send from a device to the server, as an update if the uplink compresses and `since` is given.

        `kept` is the share of entries that a sparse update keeps; None means the share set in the scenario. A
        `ScenarioError` is raised if the uplink access is `over-the-air`, which carries only sums of all uploads.
        """
        if self._network.superposition is not None:
            raise ScenarioError(
                "network.uplink.access: carries sums only, got a single upload; choose another kind than "
                "over-the-air, or an algorithm that requests sums"
            )
        uploads = None if since is None else self._uploads
        read = payload
        if uploads is not None:
            read, size_bit = uploads.message(device, payload, since, kept)
        message = self.parcel(payload, size_bit)
        if uploads is not None:
            message = message._replace(payload=read)
        if device in self.grants:
            message = message._replace(grant=self.grants[device])
        transfer = self._network.uplink.send(device, SERVER, message, power_part=power_part)
        if uploads is not None:
            uploads.until_arrived(device, transfer)
        return transfer

    def superposed(self, device: int, payload: Deferred, power_part: float) -> Transfer:
        """Send an analogue signal without headers from a device to the server; each entry counts `FLOAT_BIT` bits."""
        message = Message(payload, payload.size * FLOAT_BIT, payload.number)
        return self._network.uplink.send(device, SERVER, message, power_part=power_part)

    def sidelink(
        self, sender: int, receivers: Sequence[Device], payload: Any, size_bit: int | None, cluster: int
    ) -> list[Transfer]:
        medium = self._network.sidelink
        if medium is None:
            raise ScenarioError("network.sidelink: is required, the algorithm sends from device to device; add one")
        message = self.parcel(self.shared(payload), size_bit)
        return [medium.send(sender, receiver.index, message, cluster=cluster) for receiver in receivers]

    def published(self, model: Deferred) -> Deferred:
        return model if self._publications is None else self._publications.publish(model)

    def update_bit(self, n: int) -> int:
        """Return the maximum size in bits, without headers, of an uplink update with `n` parameters."""
        return bits_of(self._up, n, self.statistics.get(n, 0))


@final
class EdgeServers:
    """The edge servers of a hierarchical network, one at each base station, with the index of the base station.

    A device and its edge server communicate by uplinks and downlinks, through the serving base station.
    """

    def __init__(self, fed: Fed) -> None:
        self._network: Network = fed.network
        self._links: Links = fed.links

    @property
    def count(self) -> int:
        return self._network.settings.cells.count

    def of(self, device: Device) -> int:
        """Return the index of the edge server that serves a device now, and receives uploads that start now."""
        return self._network.serving_cell(device.index)

    def up(self, edge: int, payload: Any) -> BackhaulMessage:
        """Send a payload from an edge server to the cloud; the value of the event is the `Delivery`."""
        return self._send(edge, payload, up=True)

    def down(self, edge: int, payload: Any) -> BackhaulMessage:
        """Send a payload from the cloud to an edge server; the value of the event is the `Delivery`."""
        return self._send(edge, payload, up=False)

    def _send(self, edge: int, payload: Any, *, up: bool) -> BackhaulMessage:
        payload, size_bit, number, *_ = self._links.parcel(payload)
        return self._network.backhaul.send(edge, up=up, payload=payload, number=number, size_bit=size_bit)
