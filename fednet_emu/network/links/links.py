"""Links: mean SNR and fading key of every sender and receiver that may communicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys, Mask
from fednet_emu.kernel.streams import Streams, mix, mixes, uniforms
from fednet_emu.network.links.asymmetry import OneWay
from fednet_emu.network.links.draws import PER_DEVICE, moving_draws, still_draws
from fednet_emu.radio.channel import Channel, LargeScale
from fednet_emu.radio.propagation.draws import LinkDraws
from fednet_emu.radio.propagation.geometry import Hop
from fednet_emu.radio.receiver.power_control import PowerControl


class Links(Protocol):
    """The link properties that a medium needs."""

    def snr(self, sender: int, receiver: int) -> float:
        """SNR (linear) of the link alone on the whole band, averaged over fading."""

    def fading_key(self, sender: int, receiver: int) -> int:
        """Key of the link's fading draws (one draw per coherence block); odd for a link with line of sight."""

    def snrs(self, sender: IntArray, receiver: IntArray) -> Array:
        """Mean SNRs of many links, in the broadcast shape of senders and receivers."""

    def fading_keys(self, sender: IntArray, receiver: IntArray) -> Keys:
        """Fading keys of many links, in the broadcast shape of senders and receivers."""

    def power_w(self, sender: int) -> float | None:
        """Present transmit power of a device in W; None for the full power of its radio."""

    def radios(self, sender: int, receiver: int) -> tuple[int, int]:
        """Numbers of the sending and the receiving radio of a transfer, as the other methods take them.

        A device's radio has the device's number; for the server it is -1 - cell of the base station that serves the
        device.
        """

    def period(self) -> int:
        """Number of the present period of movement, during which no link changes; always 0 if no device moves."""


class CellLinks:
    """Links between one base station and the devices around it, in one direction.

    Both directions share path loss and shadowing (reciprocity); their fading is independent (frequency division).
    """

    def __init__(self, snr: Array, fading_key: int, los: Mask | None = None, power_w: Array | None = None) -> None:
        self.mean_snr = snr
        self._power_w = power_w
        self.key = fading_key
        self._snr: list[float] = snr.tolist()
        self.in_sight = np.zeros(len(snr), np.bool_) if los is None else los
        self._keys: list[int] = marked(mixes(fading_key, np.arange(len(snr))), self.in_sight).tolist()

    def snr(self, sender: int, receiver: int) -> float:
        """Mean SNR (linear) between the base station and the end that is a device."""
        return self._snr[sender if receiver < 0 else receiver]

    def fading_key(self, sender: int, receiver: int) -> int:
        """Fading key of the link between the base station and the end that is a device."""
        return self._keys[sender if receiver < 0 else receiver]

    def snrs(self, sender: IntArray, receiver: IntArray) -> Array:
        """Mean SNRs (linear) between the base station and the ends that are devices."""
        return self.mean_snr[np.maximum(sender, receiver)]

    def fading_keys(self, sender: IntArray, receiver: IntArray) -> Keys:
        """Fading keys of the links of whichever ends are devices."""
        device = np.maximum(sender, receiver)
        return marked(mixes(self.key, device), self.in_sight[device])

    def power_w(self, sender: int) -> float | None:
        """Power that a device sends with, where power control chose it."""
        return None if self._power_w is None else float(self._power_w[sender])

    def radios(self, sender: int, receiver: int) -> tuple[int, int]:
        """The device and the one base station."""
        return sender, receiver

    def period(self) -> int:
        """Nobody moves."""
        return 0


@dataclass(frozen=True, slots=True)
class Sky:
    """Properties that the links of all cells share.

    Attributes:
        channel: the radio environment.
        streams: random streams.
        power_control: how devices choose their power for the uplink.
        moving: whether shadowing and line of sight depend on the devices' positions rather than on their numbers only.
        antennas: antennas of each base station, combined on the uplink.
    """

    channel: Channel
    streams: Streams
    power_control: PowerControl
    moving: bool = False
    antennas: int = 1


def cell_links(sky: Sky, xy_m: Array, cell: int = 0) -> tuple[CellLinks, CellLinks]:
    """Compute uplinks and downlinks between devices at coordinates [devices, 2] in m and the base station of a cell.

    The base station is at the origin of these coordinates; each cell's links have their own shadowing and fading.
    """
    channel, name = sky.channel, (cell,) if cell else ()
    devices_m = np.column_stack([xy_m, np.full(len(xy_m), channel.device.height_m)])
    hop = Hop.between(devices_m, np.array([0.0, 0.0, channel.base_station.height_m]))
    if sky.moving:
        draws = moving_draws(channel, hop, xy_m, sky.streams, cell)
    else:
        draws = still_draws(sky.streams, len(xy_m), cell)
    state = channel.large_scale(hop, draws)
    gain = state.gain
    # divided by the antennas, so that SNRs have the array's gain
    noise_w = channel.noise_w(channel.base_station, channel.usable_hz) / sky.antennas
    most_w = np.full(len(xy_m), channel.device.tx_power_w)
    power_w = sky.power_control.lone_powers_w(most_w, gain, noise_w, channel.usable_hz)
    down_snr = gain * channel.base_station.tx_power_w / channel.noise_w(channel.device, channel.usable_hz)
    return (
        CellLinks(gain * power_w / noise_w, sky.streams.key("fading", "uplink", *name), state.los, power_w),
        CellLinks(down_snr, sky.streams.key("fading", "downlink", *name), state.los),
    )


def marked(keys: Keys, los: Mask) -> Keys:
    """Set the lowest bit of fading keys to 1 for links with line of sight and to 0 for others."""
    return keys & ~np.uint64(1) | los.astype(np.uint64)


class PairLinks:
    """Links between devices, computed when first used.

    Path loss and shadowing are symmetric (keyed by the unordered pair); fading is drawn per direction, and all other
    differences between the two directions are in `one_way`.
    """

    def __init__(self, channel: Channel, xy_m: Array, streams: Streams, one_way: OneWay | None = None) -> None:
        self._one_way = one_way
        self._channel = channel
        self._xyz_m = np.column_stack([xy_m, np.full(len(xy_m), channel.device.height_m)])
        self._streams = streams
        self._fading_key = streams.key("fading", "sidelink")
        self._known: dict[int, tuple[float, bool]] = {}

    def _link(self, sender: int, receiver: int) -> tuple[float, bool]:
        pair = sender << 32 | receiver if sender < receiver else receiver << 32 | sender
        if pair not in self._known:
            self.learn(np.array([sender]), np.array([receiver]))
        return self._known[pair]

    def learn(self, sender: IntArray, receiver: IntArray) -> None:
        """Compute these links in one vectorised call, before they are used one by one."""
        pairs = np.minimum(sender, receiver) << 32 | np.maximum(sender, receiver)
        new = list(set(pairs.tolist()) - self._known.keys())
        if new:
            pairs = np.array(new)
            state = self._states(pairs >> 32, pairs & 0xFFFFFFFF)
            known = zip(self._snr_of(state).tolist(), state.los.tolist(), strict=True)
            self._known.update(zip(new, known, strict=True))

    def _states(self, sender: IntArray, receiver: IntArray) -> LargeScale:
        low, high = np.minimum(sender, receiver), np.maximum(sender, receiver)

        def uniform(what: str) -> Array:
            key = self._streams.key(what, "pair")
            return uniforms(key, low) if what in PER_DEVICE else uniforms(mixes(key, low), high)

        return self._channel.large_scale(Hop.between(self._xyz_m[low], self._xyz_m[high]), LinkDraws.of(uniform))

    def _snr_of(self, state: LargeScale) -> Array:
        channel = self._channel
        return state.gain * channel.device.tx_power_w / channel.noise_w(channel.device, channel.usable_hz)

    def snr(self, sender: int, receiver: int) -> float:
        """Mean SNR (linear) of the link from one device to another."""
        snr = self._link(sender, receiver)[0]
        if self._one_way is None:
            return snr
        return snr * float(self._one_way.factors(np.array(sender), np.array(receiver)))

    def snrs(self, sender: IntArray, receiver: IntArray) -> Array:
        """Mean SNRs (linear) of many links, in the broadcast shape of senders and receivers."""
        snr = self._snr_of(self._states(sender, receiver))
        return snr if self._one_way is None else snr * self._one_way.factors(sender, receiver)

    def fading_key(self, sender: int, receiver: int) -> int:
        """Key of the fading in this direction."""
        return mix(mix(self._fading_key, sender), receiver) & ~1 | self._link(sender, receiver)[1]

    def fading_keys(self, sender: IntArray, receiver: IntArray) -> Keys:
        """Keys of the fading in these directions."""
        return marked(mixes(mixes(self._fading_key, sender), receiver), self._states(sender, receiver).los)

    def power_w(self, sender: int) -> float | None:
        """Transmit power of the device's own radio in W if radios differ, else None."""
        if self._one_way is None:
            return None
        return self._channel.device.tx_power_w * float(self._one_way.tx[sender])

    def radios(self, sender: int, receiver: int) -> tuple[int, int]:
        """The devices themselves."""
        return sender, receiver

    def period(self) -> int:
        """Nobody moves."""
        return 0
