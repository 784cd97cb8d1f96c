"""The network of one run: uplink, downlink and perhaps a sidelink, each a medium of its own (frequency division)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from fednet_emu.component import Component
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.access import ACCESSES, Access, AnyAccess, Tdma
from fednet_emu.network.availability import Presence
from fednet_emu.network.band import Band
from fednet_emu.network.cells import Cells, SingleCell
from fednet_emu.network.links import CellLinks, Links, PairLinks
from fednet_emu.network.loss import AnyLoss, NoLoss
from fednet_emu.network.medium import Medium, Rules
from fednet_emu.network.station_links import StationLinks, network_links
from fednet_emu.radio.channel import Channel, Terminal
from fednet_emu.radio.energy import transmit_energy_j
from fednet_emu.records.ledger import KINDS, Ledger
from fednet_emu.units import Array


class Uplink(Component):
    """From devices to the server."""

    DIRECTION: ClassVar[str] = "uplink"

    access: AnyAccess = Tdma()
    loss: AnyLoss = NoLoss()
    timeout_s: float = Field(3600.0, gt=0)
    """A transfer that is on the air for longer is given up."""

    @field_validator("access")
    @classmethod
    def _goes_this_way(cls, access: Access) -> Access:
        if cls.DIRECTION not in access.DIRECTIONS:
            others = [kind for kind, known in ACCESSES.items() if cls.DIRECTION in known.DIRECTIONS]
            raise ValueError(
                f"is not for a {cls.DIRECTION}, got {getattr(access, 'kind', '?')}; choose {', '.join(others)}"
            )
        return access


class Downlink(Uplink):
    """From the server to devices."""

    DIRECTION: ClassVar[str] = "downlink"

    mode: Literal["broadcast", "unicast"] = "broadcast"
    """Whether one transmission, as long as the worst receiver needs, serves all who are sent the same in an instant."""


class Sidelink(Downlink):
    """From device to device, in a band of its own."""

    DIRECTION: ClassVar[str] = "sidelink"

    channel: Channel


class Network:
    """The media of one run, and the links of its cells."""

    def __init__(
        self,
        clock: Clock,
        ledger: Ledger,
        streams: Streams,
        presence: Presence,
        channel: Channel,
        xy_m: Array,
        settings: tuple[Uplink, Downlink, Sidelink | None],
        cells: Cells | None = None,
    ) -> None:
        self._clock, self._ledger, self._streams, self._presence = clock, ledger, streams, presence
        uplink, downlink, sidelink = settings
        stations_m = (cells or SingleCell()).positions_m()
        self.up_links: CellLinks | StationLinks
        self.down_links: CellLinks | StationLinks
        self.up_links, self.down_links = network_links(channel, xy_m, stations_m, streams)
        count = len(stations_m)
        self.uplink = self._medium("uplink", uplink, channel, self.up_links, channel.device, count)
        self.downlink = self._medium("downlink", downlink, channel, self.down_links, channel.base_station, count)
        self.sidelink: Medium | None = None
        if sidelink is not None:
            links = PairLinks(sidelink.channel, xy_m, streams)
            self.sidelink = self._medium("sidelink", sidelink, sidelink.channel, links, sidelink.channel.device)

    def _medium(
        self, kind: str, settings: Uplink, channel: Channel, links: Links, sender: Terminal, cells: int = 1
    ) -> Medium:
        access_key = self._streams.key("access", kind)
        rules = Rules(
            band=Band.of(channel.bandwidth_hz, settings.access, channel.rate, channel.fading, access_key),
            links=links,
            loss=settings.loss,
            loss_key=self._streams.key("loss", kind),
            drawn_w=transmit_energy_j(sender.tx_power_w, 1.0, sender.amplifier_efficiency, sender.circuit_w),
            multicast=isinstance(settings, Downlink) and settings.mode == "broadcast",
            timeout_s=settings.timeout_s,
            cells=cells,
        )
        return Medium(self._clock, self._ledger, self._presence, KINDS.index(kind), rules)

    def close(self) -> None:
        """Take everything off the air at the end of the run."""
        for medium in (self.uplink, self.downlink, self.sidelink):
            if medium is not None:
                medium.close()
