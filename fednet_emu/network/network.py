"""The network of one run: uplink, downlink and perhaps a sidelink, each a medium of its own (frequency division)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from fednet_emu.component import Component
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.access import ACCESSES, Access, AnyAccess, Tdma
from fednet_emu.network.availability import Presence
from fednet_emu.network.band import Band
from fednet_emu.network.cells import AnyCells, SingleCell
from fednet_emu.network.contention import Noma, Shared
from fednet_emu.network.links import CellLinks, Links, PairLinks, Sky
from fednet_emu.network.loss import AnyLoss, NoLoss
from fednet_emu.network.medium import Medium, Rules
from fednet_emu.network.mobility import Paths
from fednet_emu.network.moving_links import MovingLinks
from fednet_emu.network.station_links import StationLinks, network_links
from fednet_emu.network.traces import AnyRateTraces
from fednet_emu.network.traces.assign import device_rates
from fednet_emu.radio.admission import Rivals
from fednet_emu.radio.channel import Channel, Terminal
from fednet_emu.radio.energy import transmit_energy_j
from fednet_emu.radio.overhead import AnyOverhead, NoOverhead
from fednet_emu.radio.power_control import AnyPowerControl, FullPower
from fednet_emu.records.ledger import KINDS, SERVER, Ledger
from fednet_emu.units import db_to_linear


class Uplink(Component):
    """From devices to the server."""

    DIRECTION: ClassVar[str] = "uplink"

    access: AnyAccess = Tdma()
    loss: AnyLoss = NoLoss()
    trace: AnyRateTraces | None = None
    """Recorded rates, one trace for each device, in place of the channel and the access scheme."""
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
    trace: None = None


class NetworkSettings(Component):
    """How the bands are used."""

    uplink: Uplink = Uplink()
    downlink: Downlink = Downlink()
    sidelink: Sidelink | None = None
    cells: AnyCells = SingleCell()
    """Where base stations are."""
    power_control: AnyPowerControl = FullPower()
    """How devices choose their power for the uplink, each by its own link; all others send at full power."""
    overhead: AnyOverhead = NoOverhead()
    """What messages carry beside their payload."""
    movement_s: float = Field(1.0, gt=0)
    """How often links are worked out anew when devices move; nothing happens while nobody asks."""


Pair = tuple[CellLinks | StationLinks, CellLinks | StationLinks]
"""Uplinks and downlinks."""


class Network:
    """The media of one run, and the links of its cells.

    Args:
        clock: simulated time.
        ledger: records.
        streams: randomness.
        presence: who is there.
        channel: the environment.
        paths: where devices are.
        settings: how the bands are used.
        data_dir: folder of recorded data.
        recorded: whether to load recorded rates; without them the radio stands in.
    """

    def __init__(
        self,
        clock: Clock,
        ledger: Ledger,
        streams: Streams,
        presence: Presence,
        channel: Channel,
        paths: Paths,
        settings: NetworkSettings,
        *,
        data_dir: Path | None = None,
        recorded: bool = True,
    ) -> None:
        self._data_dir, self._recorded = data_dir, recorded
        self._clock, self._ledger, self._streams, self._presence = clock, ledger, streams, presence
        self._paths, self._everybody, self._settings = paths, np.arange(presence.count), settings
        self._stations_m = settings.cells.positions_m()
        moving = paths.speed_m_s > 0
        self._sky = Sky(channel, streams, settings.power_control, moving)
        self._known: tuple[float, Pair] | None = None
        self.up_links, self.down_links = self._cell_links(0.0)
        up: Links = self.up_links
        down: Links = self.down_links
        if moving:
            up = self._moving(lambda at_s: self._cell_links(at_s)[0])
            down = self._moving(lambda at_s: self._cell_links(at_s)[1])
        count = len(self._stations_m)
        self.uplink = self._medium("uplink", settings.uplink, channel, up, channel.device, count)
        self.downlink = self._medium("downlink", settings.downlink, channel, down, channel.base_station, count)
        self.sidelink: Medium | None = None
        if settings.sidelink is not None:
            side, near = settings.sidelink, settings.sidelink.channel
            pairs: Links = self._pair_links(0.0)
            if moving:
                pairs = self._moving(self._pair_links)
            self.sidelink = self._medium("sidelink", side, near, pairs, near.device)

    def _moving(self, links_at: Callable[[float], Links]) -> MovingLinks:
        return MovingLinks(self._clock, self._settings.movement_s, links_at)

    def _cell_links(self, at_s: float) -> Pair:
        """Uplinks and downlinks at a time; both ask for the same one, one after the other."""
        if self._known is None or self._known[0] != at_s:
            xy_m = self._paths.positions_m(self._everybody, at_s)
            self._known = (at_s, network_links(self._sky, xy_m, self._stations_m))
        return self._known[1]

    def _pair_links(self, at_s: float) -> PairLinks:
        assert self._settings.sidelink is not None
        xy_m = self._paths.positions_m(self._everybody, at_s)
        return PairLinks(self._settings.sidelink.channel, xy_m, self._streams)

    def _medium(
        self, kind: str, settings: Uplink, channel: Channel, links: Links, sender: Terminal, cells: int = 1
    ) -> Medium:
        access_key, full = self._streams.key("access", kind), self._settings.power_control
        rates = None
        if settings.trace is not None and self._recorded:
            rates = device_rates(settings.trace, len(self._everybody), self._streams, self._data_dir)
        band = Band.of(channel.usable_hz, settings.access, channel.medium_rate, channel.medium_fading, access_key)
        rules = Rules(
            band=band,
            links=links,
            loss=settings.loss,
            loss_key=self._streams.key("loss", kind),
            drawn_w=transmit_energy_j(sender.tx_power_w, 1.0, sender.amplifier_efficiency, sender.circuit_w),
            multicast=isinstance(settings, Downlink) and settings.mode == "broadcast",
            timeout_s=settings.timeout_s,
            cells=cells,
            receive_w=0.0 if kind == "uplink" else channel.device.receive_w,
            rates=rates,
            radio=sender,
            controlled=not rates and kind == "uplink" and not isinstance(full, FullPower),
        )
        return Medium(self._clock, self._ledger, self._presence, KINDS.index(kind), rules)

    def rivals(self, sinr_db: float | None = None, margin_db: float = 0.0) -> Rivals:
        """Every device as a sender of the uplink at its full power, for deciding who may be on the air together now.

        Args:
            sinr_db: SINR that each needs; None takes the lowest at which anything gets through.
            margin_db: how much above that each is to be.

        Raises:
            ScenarioError: this uplink never has several senders on the air together, or nothing gives a threshold.
        """
        band, links = self.uplink.rules.band, self.uplink.rules.links
        access = band.access
        if not isinstance(access, Shared | Noma) or self.uplink.rules.rates is not None:
            got = "recorded rates" if self.uplink.rules.rates is not None else getattr(access, "kind", "?")
            raise ScenarioError(
                f"network.uplink.access: its senders are never on the air together, got {got}; choose shared or noma"
            )
        receiver = [links.radios(device, SERVER)[1] for device in self._everybody.tolist()]
        gain = links.snrs(self._everybody[None, :], np.array(receiver)[:, None])
        lowest = max(band.law.min_sinr, access.threshold)
        residual = access.residual if isinstance(access, Noma) else None
        target = lowest if sinr_db is None else db_to_linear(sinr_db)
        if target == 0:
            raise ScenarioError(
                "network.uplink.access.threshold_db: nothing says which SINR is needed, got none here and in "
                "channel.rate; give it here, or sinr_db to the groups"
            )
        return Rivals(gain, receiver, target * db_to_linear(margin_db), residual)

    def close(self) -> None:
        """Take everything off the air at the end of the run."""
        for medium in (self.uplink, self.downlink, self.sidelink):
            if medium is not None:
                medium.close()
