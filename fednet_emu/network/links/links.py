"""Links: mean SNR and fading key of every pair of sender and receiver that may communicate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self, TypeVar

import numpy as np
import scipy
from pydantic import Field
from typing_extensions import override

from fednet_emu.arrays import Array, IntArray, Keys, Mask
from fednet_emu.component.component import Component
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, Clock, to_ns
from fednet_emu.kernel.streams import Streams, mix, mixes, uniforms
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.propagation.base import Propagation
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.radio.propagation.shadowing import WAVES, shadow_normals
from fednet_emu.radio.receiver.power_control import PowerControl
from fednet_emu.records.ledger import SERVER
from fednet_emu.units import db_to_linear


class Asymmetry(Component):
    """Random differences between the radios of devices, and obstacles that weaken only one direction of a link.

    Ignored here: the positions of obstacles; whether a link is obstructed is drawn for each ordered pair of devices.
    """

    tx_power_sigma_db: float = Field(0.0, ge=0)
    """Standard deviation in dB of the devices' radiated powers, which are Gaussian in dB around the channel's value."""

    noise_figure_sigma_db: float = Field(0.0, ge=0)
    """Standard deviation in dB of the devices' noise powers, which are Gaussian in dB around the channel's value. The
    differences can also represent interference that only some receivers experience."""

    obstacle_probability: float = Field(0.0, ge=0, le=1)
    """Probability that one direction of a link is obstructed. Obstructions are drawn for each ordered pair of
    devices."""

    obstacle_loss_db: float = Field(20.0, ge=0)
    """Additional loss in dB of an obstructed direction."""


class OneWay:
    """Factors by which the SNR of each direction of a link differs from the SNR of a symmetric link.

    The factors are drawn once per run.
    """

    def __init__(self, law: Asymmetry, count: int, streams: Streams) -> None:
        self._law, self._count, self._streams = law, count, streams
        self._obstacles = streams.key("asymmetry", "obstacle")

    @cached_property
    def tx(self) -> Array:
        """Radiated power of each device, divided by the radiated power in the channel's settings (linear) [devices]."""
        return self._spread("power", self._law.tx_power_sigma_db)

    @cached_property
    def rx(self) -> Array:
        """Noise power in the channel's settings, divided by the noise power of each device (linear) [devices]."""
        return self._spread("noise", self._law.noise_figure_sigma_db)

    def _spread(self, what: str, sigma_db: float) -> Array:
        draws = uniforms(self._streams.key("asymmetry", what), np.arange(self._count))
        return db_to_linear(sigma_db * np.asarray(scipy.special.ndtri(draws)))

    def factors(self, sender: IntArray, receiver: IntArray) -> Array:
        """Return the SNR from each sender to its receiver, divided by the SNR of a symmetric link (linear).

        The result has the shape to which both arguments broadcast.
        """
        factor = self.tx[sender] * self.rx[receiver]
        if self._law.obstacle_probability:
            hit = uniforms(mixes(self._obstacles, sender), receiver) < self._law.obstacle_probability
            factor = np.where(hit, factor * db_to_linear(-self._law.obstacle_loss_db), factor)
        return factor


PER_DEVICE = ("indoor", "building", "depth")
"""Names of random numbers that depend only on the device, not on the base station."""


def still_draws(streams: Streams, numbers: IntArray, cell: int = 0) -> LinkDraws:
    """Return the random numbers of the links between a cell's base station and devices that do not move.

    `numbers` [devices] contains the keys of the random numbers.
    """

    def uniform(what: str) -> Array:
        return uniforms(streams.key(what, *_name(what, cell)), numbers)

    return LinkDraws.of(uniform)


def moving_draws(
    channel: Channel, hop: Hop, xy_m: Array, streams: Streams, numbers: IntArray, cell: int = 0
) -> LinkDraws:
    """Return the random numbers of the links between a cell's base station and moving devices.

    Line of sight and shadowing are random functions of the position, with the spatial correlation exp(-d / d_corr) at
    the distance d. For shadowing, d_corr depends on whether the link has line of sight (Gudmundson, Electronics Letters
    1991; TR 38.901 Table 7.5-6). For line of sight, d_corr is a parameter of the path loss (Table 7.6.3.1-2). Both
    functions change smoothly along a path.

    Args:
        hop: geometry of the links.
        xy_m: [devices, 2] coordinates in m.
        numbers: [devices] numbers used as keys of the random numbers.
        cell: index of the base station's cell.
    """
    still = still_draws(streams, numbers, cell)
    los_waves = _waves(streams, "los", numbers, cell)
    los = scipy.special.ndtr(shadow_normals(xy_m, channel.path_loss.los_correlation_m, los_waves))
    seen = replace(still, los=np.asarray(los))
    correlation_m = np.maximum(channel.large_scale(hop, seen).correlation_m, 1e-3)
    shadowing = shadow_normals(xy_m, correlation_m, _waves(streams, "shadowing", numbers, cell))
    return replace(seen, shadowing=shadowing)


def _name(what: str, cell: int) -> tuple[str, *tuple[int, ...]]:
    return ("cell", cell) if cell and what not in PER_DEVICE else ("cell",)


def _waves(streams: Streams, what: str, numbers: IntArray, cell: int) -> Array:
    return _wave_uniforms(streams.key("waves", what, cell), numbers.tobytes())


@lru_cache(maxsize=8)
def _wave_uniforms(key: int, numbers: bytes) -> Array:
    device = mixes(key, np.frombuffer(numbers, np.int64))[:, None]
    return uniforms(device, np.arange(WAVES * 3)[None, :]).reshape(-1, WAVES, 3)


Number = TypeVar("Number", int, IntArray)


def radio_of(cell: Number) -> Number:
    """Return the radio number of a cell's base station: -1 (`SERVER`), -3, -5 and so on.

    Even negative numbers are not used, because -2 means `SEVERAL` in the records.
    """
    return SERVER - 2 * cell


def cell_of(radio: Number) -> Number:
    """Return the index of the cell whose base station has the radio number `radio`."""
    return (SERVER - radio) // 2


class Links(ABC):
    """Base class of the links between radios during one movement period.

    As a sender or receiver, the device number of the server means the base station that serves the other device.
    """

    @property
    def of_device(self) -> tuple[list[float], list[int]] | None:
        """Mean SNRs and fading keys [devices] of the links to the base station; None if there are several stations."""
        return None

    @abstractmethod
    def link(self, sender: int, receiver: int) -> tuple[float, int]:
        """Return the mean SNR of a link and the key of its fading draws, one of which is made for each fading block.

        The SNR (linear) is averaged over fading, and is that of a link alone on the whole band. The key is odd for a
        link with line of sight.
        """

    def snr(self, sender: int, receiver: int) -> float:
        return self.link(sender, receiver)[0]

    def fading_key(self, sender: int, receiver: int) -> int:
        return self.link(sender, receiver)[1]

    @abstractmethod
    def snrs(self, sender: IntArray, receiver: IntArray) -> Array:
        """Return the mean SNRs (linear) of many links, in the shape to which `sender` and `receiver` broadcast."""

    @abstractmethod
    def fading_keys(self, sender: IntArray, receiver: IntArray) -> Keys:
        """Return the fading keys of many links, in the shape to which `sender` and `receiver` broadcast."""

    def power_w(self, sender: int) -> float | None:
        """Return the transmit power of a device in W; None means the full power of its radio."""
        return None

    def learn(self, ends: Iterable[tuple[int, int]]) -> None:
        """Compute the links of the pairs (sender, receiver) in `ends` in advance, in one vectorised call."""
        return

    def station_of(self, device: int) -> int:
        """Return the radio number of the base station that serves a device."""
        return SERVER

    def now(self) -> Self:
        return self

    def until_ns(self) -> int:
        """Return the end of the current movement period in ns; `FOREVER_NS` if no device moves."""
        return FOREVER_NS


class CellLinks(Links):
    """Links between every device and every base station, in one direction.

    Uplink and downlink have the same path loss and shadowing (reciprocity), but independent fading (frequency
    division).

    Args:
        snr: [stations, devices] mean SNR (linear) of every link, alone on the whole band.
        keys: [stations] fading key of each station's links.
        serving: [devices] serving cell of each device; None for the cell with the highest `snr`.
        los: [stations, devices] True for links with line of sight; None if no link has line of sight.
        power_w: [devices] transmit power of each device in W; None if there is no power control.
        numbers: [devices] numbers used as keys of the fading; None for the device numbers.

    Attributes:
        serving: [devices] index of the serving cell of each device.
        mean_snr: [devices] mean SNR (linear) of the link between each device and its serving station.
        in_sight: [devices] True if the link between the device and its serving station has line of sight.
    """

    def __init__(
        self,
        snr: Array,
        keys: Sequence[int],
        serving: IntArray | None = None,
        los: Mask | None = None,
        power_w: Array | None = None,
        numbers: IntArray | None = None,
    ) -> None:
        self._numbers = numbers
        serving, own = snr.argmax(axis=0) if serving is None else serving, np.arange(snr.shape[1])
        self._snr, self._los = snr, np.zeros(snr.shape, np.bool_) if los is None else los
        self._keys, self._power_w = np.array(keys, np.uint64), power_w
        self.serving: IntArray = serving
        self.mean_snr: Array = snr[serving, own]
        self.in_sight: Mask = self._los[serving, own]

    @cached_property
    def _station(self) -> list[int]:
        stations: list[int] = radio_of(self.serving).tolist()
        return stations

    @cached_property
    def own_keys(self) -> Keys:
        """Fading key [devices] of the link between each device and its serving station."""
        own = np.arange(len(self.mean_snr)) if self._numbers is None else self._numbers
        return marked(mixes(self._keys[self.serving], own), self.in_sight)

    @cached_property
    def of_device(self) -> tuple[list[float], list[int]] | None:
        if len(self._snr) > 1:
            return None
        return self.mean_snr.tolist(), self.own_keys.tolist()

    @override
    def link(self, sender: int, receiver: int) -> tuple[float, int]:
        device = sender if receiver < 0 else receiver
        if self.of_device is not None:
            return self.of_device[0][device], self.of_device[1][device]
        cell, number = cell_of(min(sender, receiver)), device if self._numbers is None else int(self._numbers[device])
        key = mix(int(self._keys[cell]), number) & ~1 | bool(self._los[cell, device])
        return float(self._snr[cell, device]), key

    @override
    def snrs(self, sender: IntArray, receiver: IntArray) -> Array:
        return np.asarray(self._snr[cell_of(np.minimum(sender, receiver)), np.maximum(sender, receiver)])

    @override
    def fading_keys(self, sender: IntArray, receiver: IntArray) -> Keys:
        station, device = cell_of(np.minimum(sender, receiver)), np.maximum(sender, receiver)
        number = device if self._numbers is None else self._numbers[device]
        return marked(mixes(self._keys[station], number), self._los[station, device])

    @override
    def power_w(self, sender: int) -> float | None:
        return None if self._power_w is None else float(self._power_w[sender])

    @override
    def station_of(self, device: int) -> int:
        return self._station[device]


@dataclass(frozen=True, slots=True)
class CellEnvironment:
    """Properties that the links of all cells have in common.

    Attributes:
        power_control: rule by which devices choose their transmit power on the uplink.
        moving: True if devices move, so that shadowing and line of sight change with their positions.
        antennas: number of antennas of each base station, which are combined on the uplink.
        numbers: [devices] numbers used as keys of random draws; None for the device numbers.
    """

    channel: Channel
    streams: Streams
    power_control: PowerControl
    moving: bool = False
    antennas: int = 1
    numbers: IntArray | None = None


def network_links(environment: CellEnvironment, xy_m: Array, stations_m: Array) -> tuple[CellLinks, CellLinks]:
    """Compute the uplinks and downlinks between all devices and all base stations.

    Each device is served by the station with the strongest signal, including shadowing and averaged over fading; ties
    go to the first station. Each cell's links have their own shadowing and fading; the links of the first station do
    not depend on the number of stations.

    Args:
        environment: properties of the links.
        xy_m: [devices, 2 or 3] coordinates of the devices in m. If there is no third coordinate, the antenna has the
            height in the channel's settings.
        stations_m: [stations, 2 or 3] coordinates of the base stations in m, with the same default height.
    """
    channel = environment.channel
    # divided by the number of antennas, so that SNRs include the gain of the antenna array
    noise_w = channel.noise_w(channel.base_station, channel.usable_hz) / environment.antennas
    states = [_states(environment, xy_m, station_m, cell) for cell, station_m in enumerate(stations_m)]
    gain, los = np.stack([state.gain for state in states]), np.stack([state.los for state in states])
    max_w = np.full(len(xy_m), channel.device.tx_power_w)
    power_w = np.stack([environment.power_control.powers_w(max_w, each, noise_w, channel.usable_hz) for each in gain])
    down_snr = gain * channel.base_station.tx_power_w / channel.noise_w(channel.device, channel.usable_hz)
    serving = down_snr.argmax(axis=0)
    up_keys, down_keys = (
        [environment.streams.key("fading", direction, *((cell,) if cell else ())) for cell in range(len(states))]
        for direction in ("uplink", "downlink")
    )
    return (
        CellLinks(
            gain * power_w / noise_w, up_keys, serving, los, power_w[serving, np.arange(len(xy_m))], environment.numbers
        ),
        CellLinks(down_snr, down_keys, serving, los, numbers=environment.numbers),
    )


def _states(environment: CellEnvironment, places_m: Array, station_m: Array, cell: int) -> Propagation:
    """Return the path loss and the line of sight of the links between all devices and the base station of a cell."""
    channel, xy_m = environment.channel, places_m[:, :2] - station_m[:2]
    heights_m = np.full(len(xy_m), channel.device.height_m) if places_m.shape[1] == 2 else places_m[:, 2]
    height_m = channel.base_station.height_m if len(station_m) == 2 else station_m[2]
    between = Hop.between(np.column_stack([xy_m, heights_m]), np.array([0.0, 0.0, height_m]))
    hop = replace(between, place_m=places_m[:, :2], station=cell)
    numbers = np.arange(len(xy_m)) if environment.numbers is None else environment.numbers
    if environment.moving:
        return channel.large_scale(hop, moving_draws(channel, hop, xy_m, environment.streams, numbers, cell))
    return channel.large_scale(hop, still_draws(environment.streams, numbers, cell))


def marked(keys: Keys, los: Mask) -> Keys:
    """Return fading keys whose lowest bit is 1 for links with line of sight, and 0 for all other links."""
    return keys & ~np.uint64(1) | los.astype(np.uint64)


class PairLinks(Links):
    """Links between devices; each link is computed at its first use.

    Path loss and shadowing are symmetric (keyed by the unordered pair of devices). Fading is drawn for each direction.
    `one_way` describes all other differences between the two directions; None means no other differences.
    """

    def __init__(self, channel: Channel, xy_m: Array, streams: Streams, one_way: OneWay | None = None) -> None:
        self._one_way = one_way
        self._channel = channel
        flat = xy_m.shape[1] == 2
        self._xyz_m = np.column_stack([xy_m, np.full(len(xy_m), channel.device.height_m)]) if flat else xy_m
        self._streams = streams
        self._fading_key = streams.key("fading", "sidelink")
        self._known: dict[int, tuple[float, bool]] = {}

    @override
    def learn(self, ends: Iterable[tuple[int, int]]) -> None:
        new = [*{_pair(*both) for both in ends} - self._known.keys()]
        if new:
            pairs = np.array(new)
            state = self._states(pairs >> 32, pairs & 0xFFFFFFFF)
            known = zip(self._snr_of(state).tolist(), state.los.tolist(), strict=True)
            self._known.update(zip(new, known, strict=True))

    def _states(self, sender: IntArray, receiver: IntArray) -> Propagation:
        low, high = np.minimum(sender, receiver), np.maximum(sender, receiver)

        def uniform(what: str) -> Array:
            key = self._streams.key(what, "pair")
            return uniforms(key, low) if what in PER_DEVICE else uniforms(mixes(key, low), high)

        return self._channel.large_scale(Hop.between(self._xyz_m[low], self._xyz_m[high]), LinkDraws.of(uniform))

    def _snr_of(self, state: Propagation) -> Array:
        channel = self._channel
        return state.gain * channel.device.tx_power_w / channel.noise_w(channel.device, channel.usable_hz)

    @override
    def link(self, sender: int, receiver: int) -> tuple[float, int]:
        pair = _pair(sender, receiver)
        if pair not in self._known:
            self.learn([(sender, receiver)])
        snr, los = self._known[pair]
        if self._one_way is not None:
            snr *= float(self._one_way.factors(np.array(sender), np.array(receiver)))
        return snr, mix(mix(self._fading_key, sender), receiver) & ~1 | los

    @override
    def snrs(self, sender: IntArray, receiver: IntArray) -> Array:
        snr = self._snr_of(self._states(sender, receiver))
        return snr if self._one_way is None else snr * self._one_way.factors(sender, receiver)

    @override
    def fading_keys(self, sender: IntArray, receiver: IntArray) -> Keys:
        return marked(mixes(mixes(self._fading_key, sender), receiver), self._states(sender, receiver).los)

    @override
    def power_w(self, sender: int) -> float | None:
        if self._one_way is None:
            return None
        return self._channel.device.tx_power_w * float(self._one_way.tx[sender])


def _pair(one: int, other: int) -> int:
    return one << 32 | other if one < other else other << 32 | one


class MovingLinks:
    """Links of moving devices, which are constant during each movement period.

    The links of a period have the values at the start of the period, and are computed at their first use.

    Ignored here: movement within a period, apart from the fading that it causes.

    Args:
        period_s: length in s of a movement period; it should be so short that distances hardly change within a period.
        links_at: function that computes the links at a time in s.
    """

    def __init__(self, clock: Clock, period_s: float, links_at: Callable[[float], Links]) -> None:
        self._clock = clock
        self._period_ns = max(to_ns(period_s), 1)
        self._links_at = links_at
        self._period = -1
        self._links: Links

    def now(self) -> Links:
        period = self._clock.now // self._period_ns
        if period != self._period:
            self._links = self._links_at(period * self._period_ns / NS_PER_S)
            self._period = period
        return self._links

    def until_ns(self) -> int:
        return (self._clock.now // self._period_ns + 1) * self._period_ns


LinksOverTime = Links | MovingLinks
"""Type of the links of a medium: `MovingLinks` if devices move, and otherwise `Links`."""
