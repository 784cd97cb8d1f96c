"""The network of one run: an uplink, a downlink and an optional sidelink, which use separate bands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.devices.availability import Presence
from fednet_emu.devices.mobility.base import Paths
from fednet_emu.devices.placement import Disc, Placement
from fednet_emu.devices.powers import DevicePowers
from fednet_emu.errors import ScenarioError
from fednet_emu.files.gains import Gains
from fednet_emu.kernel.clock import NS_PER_S, Clock, to_ns
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.access.base import Access, DelayNs, RatedAccess, Use
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.air.queue import TurnQueue
from fednet_emu.network.air.separate import SeparateAir, at_recorded_rates
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.transfer import Transfer, Unheard
from fednet_emu.network.backhaul import Backhaul, EdgeServers
from fednet_emu.network.delay import Delay, NoDelay
from fednet_emu.network.links.links import (
    Asymmetry,
    CellEnvironment,
    CellLinks,
    Links,
    LinksOverTime,
    MovingLinks,
    OneWay,
    PairLinks,
    cell_of,
    network_links,
)
from fednet_emu.network.medium.loads import Radios
from fednet_emu.network.medium.medium import Medium
from fednet_emu.network.nr.rrc import RadioConnections, Rrc
from fednet_emu.network.over_the_air import OverTheAir, Superposition
from fednet_emu.network.settings import NetworkSettings, Sidelink, Uplink
from fednet_emu.network.slices import Sliced, Slices
from fednet_emu.network.topology import Digraph, Graphs, TopologyInputs
from fednet_emu.network.traces.series import device_rates
from fednet_emu.network.traffic.senders import OtherUsers
from fednet_emu.network.traffic.settings import Traffic
from fednet_emu.network.traffic.turns import SharedTurns
from fednet_emu.network.traffic.users import Users, users_of
from fednet_emu.network.transport.transports import Connections, EndToEndTransport
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.receiver.combining import ONE_ANTENNA
from fednet_emu.radio.receiver.power_control import FullPower
from fednet_emu.records.ledger import SERVER, Ledger
from fednet_emu.records.table import Rows


class Network:
    """The network of one run: the medium of each direction, and the links of all cells.

    Attributes:
        uplink, downlink, sidelink: the medium of each direction; `sidelink` is None if the network has no sidelink.
        superposition: model of over-the-air sums on the uplink; None if the uplink has another access scheme.

    Args:
        traffic: traffic classes of other users.
        placement: placement of users whose traffic class has no placement; None for a disc with a radius of 100 m
            around the origin.
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
        powers: DevicePowers | None = None,
        traffic: Sequence[Traffic] = (),
        placement: Placement | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._powers = powers or DevicePowers.of(channel.device, bytes(presence.count))
        self._clock, self._ledger, self._streams, self._presence = clock, ledger, streams, presence
        self._paths, self._everybody, self.settings = paths, np.arange(presence.count), settings
        self._slices = Slices(settings.slices)
        self._users = self._users_of(traffic, placement)
        transport, session = settings.transport, settings.session
        self._connections = Connections(transport, session) if isinstance(transport, EndToEndTransport) else None
        idle = settings.uplink.idle
        self._radio_connections = RadioConnections(idle) if isinstance(idle, Rrc) else None
        self._stations_m = settings.cells.positions_m()
        moving = paths.speed_m_s > 0
        self._environment = CellEnvironment(
            *(channel, streams, settings.power_control, moving, settings.reception.antennas),
            None if self._users is None else np.concatenate((self._everybody, self._users.numbers)),
        )
        self._cell_links = lru_cache(maxsize=1)(self._links_at)  # uplink and downlink get links of the same time
        self.up_links, self.down_links = self._cell_links(0.0)
        up: LinksOverTime = self.up_links
        down: LinksOverTime = self.down_links
        if moving:
            up = self._moving(lambda at_s: self._cell_links(at_s)[0])
            down = self._moving(lambda at_s: self._cell_links(at_s)[1])
        count = len(self._stations_m)
        self.uplink = self._medium(settings.uplink, channel, up, count)
        self.downlink = self._medium(settings.downlink, channel, down, count)
        edges, loss_key = settings.edge_servers or EdgeServers(), streams.key("loss", "backhaul")
        self.backhaul = Backhaul(clock, ledger, edges.backhaul, loss_key)
        access = settings.uplink.access
        self.superposition = Superposition(access, channel, up, streams) if isinstance(access, OverTheAir) else None
        self.sidelink: Medium | None = None
        self._graphs: Graphs | None = None
        if settings.sidelink is not None:
            self._add_sidelink(settings.sidelink, moving)
        ledger.distances = self._distances(channel)
        self._others: OtherUsers | None = None
        if self._users is not None:
            media = {medium.kind: medium for medium in (self.uplink, self.downlink)}
            self._others = OtherUsers(clock, ledger, self._users.sources, media, [its.name for its in traffic])

    def _users_of(self, traffic: Sequence[Traffic], placement: Placement | None) -> Users | None:
        if not traffic:
            return None
        settings, count = self.settings, len(self._everybody)
        near = placement or Disc(radius_m=100.0, inner_radius_m=10.0)
        self._ledger.add_traffic(
            {its.name: (to_ns(its.warm_up_s), its.direction) for its in traffic}, self._slices.names
        )
        wire_bit, names = settings.overhead.wire_bit, self._slices.names
        return users_of(traffic, near, count, self._streams, wire_bit, self._data_dir, names)

    def _add_sidelink(self, side: Sidelink, moving: bool) -> None:
        one_way = None
        if side.asymmetry != Asymmetry():
            one_way = OneWay(side.asymmetry, len(self._everybody), self._streams)

        def pair_links(at_s: float) -> PairLinks:
            xy_m = self._paths.positions_m(self._everybody, at_s)
            return PairLinks(side.channel, xy_m, self._streams, one_way)

        still = pair_links(0.0)
        self.sidelink = self._medium(side, side.channel, self._moving(pair_links) if moving else still)
        if side.topology is not None:
            links_at = pair_links if moving else lambda _at_s: still
            inputs = TopologyInputs(len(self._everybody), self._streams, self._paths, links_at, self._data_dir)
            self._graphs = Graphs(side.topology, inputs)

    def _moving(self, links_at: Callable[[float], Links]) -> MovingLinks:
        return MovingLinks(self._clock, self.settings.position_update_s, links_at)

    def _links_at(self, at_s: float) -> tuple[CellLinks, CellLinks]:
        places_m = self._paths.positions_m(self._everybody, at_s)
        if self._users is not None:
            places_m = np.concatenate((places_m[:, :2], self._users.xy_m))
        return network_links(self._environment, places_m, self._stations_m)

    def losses(self) -> list[str]:
        """Return the settings that may cause losses of messages to or from the server, as `key: value`."""
        away = [] if self._presence.always else ["devices: not always there"]
        return [*self.settings.losses(self._environment.channel), *away]

    def positions_m(self) -> Array:
        return self._paths.positions_m(self._everybody, self._clock.now_s)

    def expected_uplink_bps(self, device: int) -> float:
        """Return the present uplink rate of a device in bit/s.

        The rate is the recorded rate, or the rate of a transfer that is alone in the band, at the mean SNR.
        """
        return float(self.expected_bps(np.array([device]), down=False)[0])

    def expected_downlink_bps(self, device: int) -> float:
        return float(self.expected_bps(np.array([device]), down=True)[0])

    def expected_bps(self, devices: IntArray, *, down: bool) -> Array:
        """Return the present uplink rates of `devices` [n] in bit/s, or their downlink rates if `down` is True.

        Each rate is the recorded rate, or the rate of a transfer that is alone in the band, at the mean SNR.
        """
        medium = self.downlink if down else self.uplink
        return medium.expected_bps(devices, medium.links.now(), self._clock.now_s)

    def serving_cell(self, device: int) -> int:
        return cell_of(self.uplink.links.now().station_of(device))

    @property
    def moving(self) -> bool:
        return self._environment.moving

    @property
    def changes(self) -> bool:
        """True if the positions, the presence or the recorded rates of devices change over time."""
        recorded = self.uplink.rates is not None or self.downlink.rates is not None
        return self.moving or recorded or self._presence.scheduled

    @property
    def gains(self) -> Gains | None:
        """Table of the path gain at each position; None if the path loss is a function of the distance."""
        return self._environment.channel.path_loss.gains

    def picture(self, at_s: float) -> NetworkState:
        """Return the state of the network at the time `at_s` in s, which may differ from the time of the clock.

        Rates are computed at the mean SNR. If a link with fading has the rate 0 at its mean SNR, its rate averaged over
        fading is used.
        """
        up, down = self._cell_links(at_s)
        up_bps, down_bps = (
            self._rates_bps(medium, links, at_s) for medium, links in ((self.uplink, up), (self.downlink, down))
        )
        xy_m, there = self._paths.positions_m(self._everybody, at_s)[:, :2], self._presence.expected(to_ns(at_s))
        return NetworkState(xy_m, up.serving[self._everybody], up.mean_snr[self._everybody], up_bps, down_bps, there)

    def _rates_bps(self, medium: Medium, links: CellLinks, at_s: float) -> Array:
        rates_bps = medium.expected_bps(self._everybody, links, at_s)
        if medium.rates is not None or medium.band.constant or rates_bps.all():
            return rates_bps
        own = self._everybody
        faded_bps = Patience(medium.band).mean_bps(links.mean_snr[own], links.in_sight[own])
        return np.where(rates_bps > 0, rates_bps, faded_bps)

    def digraph(self, *name: int) -> Digraph:
        """Return the present device-to-device graph.

        `name` is the key of the graph's random draws; it starts with the round number.

        Raises:
            ScenarioError: the scenario has no topology, or the topology cannot be built.
        """
        if self._graphs is None:
            raise ScenarioError(
                "network.sidelink.topology: is missing, but the algorithm needs the network's graph; add one"
            )
        return self._graphs.at(self._clock.now_s, *name)

    def _medium(self, settings: Uplink, channel: Channel, links: LinksOverTime, cells: int = 1) -> Medium:
        streams, kind, rates = self._streams, settings.DIRECTION, None
        down = kind == "downlink"
        if settings.trace is not None:
            rates = device_rates(settings.trace, len(self._everybody), streams, self._data_dir)
        reception = self.settings.reception if kind == "uplink" else ONE_ANTENNA
        law = channel.medium_rate(reception.branches(1))
        key = streams.key("access", kind)
        band = Band.of(channel.usable_hz, law, channel.medium_fading, key, reception, down=down)
        powers = self._powers
        if self._users is not None and kind != "sidelink":
            band = replace(band, numbers=self._environment.numbers)
        if self._users is not None:  # other users get the powers of the device class 0; their energy is not counted
            powers = replace(powers, which=powers.which + bytes(len(self._users.numbers)))
        radios = Radios(
            channel.base_station if down else channel.device,
            None if down else powers.sending(channel.device),
            (powers.rx_consumption_w(channel.device) or None) if kind != "uplink" else None,
            0.0 if down else (channel.device.stated("tx_j_per_bit") or 0.0),
            (channel.device.stated("rx_j_per_bit") or 0.0) if kind != "uplink" else 0.0,
            controlled=rates is None and self._powers_differ(settings),
        )
        use = settings.access.use(band, links, cells, len(self._everybody))
        if rates is not None:
            use = Use(use.band, TurnQueue(None), SeparateAir(at_recorded_rates(rates)))
        if self._radio_connections is not None and kind != "sidelink" and not settings.broadcasts:
            use = self._radio_connections.around(use)
        if not isinstance(settings.delay, NoDelay):
            use = use._replace(after=partial(self._after_ns, use.after, settings.delay, channel))
        if self._users is not None and kind != "sidelink":
            use = self._beside_others(use, settings.access, links, cells)
        medium = Medium(
            self._clock,
            self._ledger,
            self._presence,
            settings,
            use,
            links,
            radios,
            loss_key=streams.key("loss", kind),
            cells=cells,
            rates=rates,
            hands_over=cells > 1 and self.settings.handover == "during",
            connections=self._connections,
        )
        if medium.is_delayed and not self._ledger.has_phases:
            self._ledger.add_phases()
        return medium

    def _after_ns(
        self, grant_delay_ns: DelayNs | None, delay: Delay, channel: Channel, transfer: Transfer, now_ns: int
    ) -> int:
        """Return the time in ns from the transmission of a transfer's last bit to the reception of this bit.

        This time consists of the propagation delay and of the access scheme's delay.
        """

        def place_m(end: int) -> Array:
            at_s = transfer.started_ns / NS_PER_S
            places_m = _with_heights(self._stations_m[[transfer.cell]], channel.base_station.height_m)
            if end >= 0:
                places_m = _with_heights(self._place_m(end, at_s), channel.device.height_m)
            place: Array = places_m[0]
            return place

        way_ns = delay.delay_ns(lambda: math.dist(place_m(transfer.sender), place_m(transfer.receiver)))
        return way_ns + (0 if grant_delay_ns is None else grant_delay_ns(transfer, now_ns))

    def _beside_others(self, use: Use, access: Access, links: LinksOverTime, cells: int) -> Use:
        """Return a copy of the access scheme's settings `use` for a band that other users share.

        The copy has no default timeouts, because these depend on expected durations, which are unknown in a shared
        band.
        """
        slices, places = self._slices, use.turns.places
        divides = places is None and not access.overlapping
        turns = SharedTurns(places, cells, self._clock, divides=divides, slices=slices)
        if slices.given and places is None and isinstance(access, RatedAccess):
            use = use._replace(air=SharedAir(Sliced(access, slices), use.band, links, cells, slice_of=slices.of))
        return use._replace(turns=turns, patience=None)

    def _place_m(self, end: int, at_s: float) -> Array:
        user = end - len(self._everybody)
        if self._users is not None and user >= 0:
            return self._users.xy_m[user : user + 1]
        return self._paths.positions_m(np.array([end]), at_s)

    def _powers_differ(self, settings: Uplink) -> bool:
        """Return True if transmit powers differ between devices, due to power control or differences between radios."""
        if isinstance(settings, Sidelink):
            return settings.asymmetry.tx_power_sigma_db > 0
        return settings.DIRECTION == "uplink" and not isinstance(self.settings.power_control, FullPower)

    def _distances(self, channel: Channel) -> Distances:
        stations_m = _with_heights(self._stations_m, channel.base_station.height_m)
        side = self.settings.sidelink
        kinds = (self.uplink, channel), (self.downlink, channel), (self.sidelink, side.channel if side else channel)
        heights_m = [its.device.height_m if medium is not None and medium.has_snr else None for medium, its in kinds]
        return Distances(self._paths, stations_m, heights_m, to_ns(self.settings.position_update_s))

    @property
    def idle_w(self) -> Array:
        """Idle power of each device in W [devices]."""
        return self._powers.idle_w.all

    def unheard(self) -> list[Unheard]:
        found: list[Unheard] = []
        for medium in (self.uplink, self.downlink, self.sidelink):
            if medium is not None and medium.unheard:
                found, medium.unheard = found + medium.unheard, []
        return found

    def close(self) -> None:
        for medium in (self.uplink, self.downlink, self.sidelink):
            if medium is not None:
                medium.close()
        if self._others is not None:
            self._others.close()
        self.backhaul.close()


def _with_heights(places_m: Array, height_m: float) -> Array:
    """Return positions [n, 3] in m; positions [n, 2] get the antenna height `height_m`."""
    return places_m if places_m.shape[1] == 3 else np.column_stack([places_m, np.full(len(places_m), height_m)])


class NetworkState(NamedTuple):
    """The state of the network at an instant.

    Attributes:
        xy_m: [devices, 2] coordinates on the ground in m.
        cell: [devices] index of the serving cell.
        up_snr: [devices] mean SNR (linear) of the uplink if it is alone in the band.
        up_bps: [devices] recorded rate of the uplink in bit/s, or its rate at the mean SNR if it is alone in the band.
        down_bps: [devices] rate of the downlink in bit/s, defined in the same way as `up_bps`.
        there: [devices] True if the device is present, even if its battery is empty.
    """

    xy_m: Array
    cell: IntArray
    up_snr: Array
    up_bps: Array
    down_bps: Array
    there: Mask


@final
class Distances:
    """Computes the distance between the antennas of sender and receiver at the start of each transfer.

    Ignored here: movement within a movement period.

    Args:
        paths: the paths of the devices.
        stations_m: coordinates of the base stations, [stations, 3] in m.
        heights_m: for each kind of link, the antenna height in m of devices whose paths have no height; None for wired
            links and links with recorded rates.
        period_ns: length of a movement period in ns.
    """

    def __init__(self, paths: Paths, stations_m: Array, heights_m: Sequence[float | None], period_ns: int) -> None:
        self._paths, self._stations_m, self._period_ns = paths, stations_m, period_ns
        self._heights_m = np.array([np.nan if height_m is None else height_m for height_m in heights_m])

    def __call__(self, transfers: Rows, receivers: IntArray) -> Array:
        """Return the distances [n] in m between the senders and the receivers of transfers [n] that have started.

        Each transfer has one receiver, which is in `receivers` [n]. The distance is NaN for wired links and for links
        with recorded rates.
        """
        height_m, moves = self._heights_m[transfers["direction"]], self._paths.speed_m_s > 0
        at_ns = transfers["started_ns"] // self._period_ns * self._period_ns * moves
        ends_m = []
        for radio in (transfers["sender"], receivers):
            device = radio > SERVER
            place_m = self._stations_m[np.where(device, 0, transfers["cell"])]
            place_m[device] = self._devices_m(radio[device], at_ns[device], height_m[device])
            ends_m.append(place_m)
        distance_m: Array = np.linalg.norm(ends_m[0] - ends_m[1], axis=1)
        return distance_m

    def _devices_m(self, device: IntArray, at_ns: IntArray, height_m: Array) -> Array:
        """Return the coordinates [n, 3] in m of devices [n] at the times `at_ns` [n] in ns.

        Devices whose paths have no height get the heights `height_m` [n] in m.
        """
        place_m = np.column_stack([np.empty((len(device), 2)), height_m])
        order = np.argsort(at_ns, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(at_ns[order])) + 1) if len(order) else ():
            known_m = self._paths.positions_m(device[rows], int(at_ns[rows[0]]) / NS_PER_S)
            place_m[rows, : known_m.shape[1]] = known_m
        return place_m
