"""Links: the mean signal-to-noise ratio and the fading key of every sender and receiver that may talk."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fednet_emu.kernel.streams import Streams, mix, mixes, uniforms
from fednet_emu.radio.channel import Channel, Terminal
from fednet_emu.radio.geometry import Hop
from fednet_emu.units import Array

IntArray = NDArray[np.int64]


class Links(Protocol):
    """What a medium asks about a link."""

    def snr(self, sender: int, receiver: int) -> float:
        """Mean SNR (linear) of the link alone in the whole band, averaged over fading."""

    def fading_key(self, sender: int, receiver: int) -> int:
        """Key of the link's fading draws, one per coherence block."""

    def snrs(self, sender: IntArray, receiver: IntArray) -> Array:
        """Mean SNRs of many links, in the broadcast shape of senders and receivers."""

    def fading_keys(self, sender: IntArray, receiver: IntArray) -> NDArray[np.uint64]:
        """Fading keys of many links, in the broadcast shape of senders and receivers."""

    def radios(self, sender: int, receiver: int) -> tuple[int, int]:
        """Which radios a transfer goes from and to, in the numbers that the other methods take.

        A device's radio has its number; the server's is that of the base station which serves the device, -1 - cell.
        """


class CellLinks:
    """Links between one base station and the devices around it, in one direction.

    Both directions share path loss and shadowing (reciprocity); their fading is independent (frequency division).
    """

    def __init__(self, snr: Array, fading_key: int) -> None:
        self.mean_snr = snr
        self.key = fading_key
        self._snr: list[float] = snr.tolist()
        self._keys: list[int] = mixes(fading_key, np.arange(len(snr))).tolist()

    def snr(self, sender: int, receiver: int) -> float:
        """Mean SNR of the link of whichever end is a device."""
        return self._snr[sender if receiver < 0 else receiver]

    def fading_key(self, sender: int, receiver: int) -> int:
        """Key of the fading of whichever end is a device."""
        return self._keys[sender if receiver < 0 else receiver]

    def snrs(self, sender: IntArray, receiver: IntArray) -> Array:
        """Mean SNRs of the links of whichever ends are devices."""
        return self.mean_snr[np.maximum(sender, receiver)]

    def fading_keys(self, sender: IntArray, receiver: IntArray) -> NDArray[np.uint64]:
        """Fading keys of the links of whichever ends are devices."""
        return mixes(self.key, np.maximum(sender, receiver))

    def radios(self, sender: int, receiver: int) -> tuple[int, int]:
        """The device and the one base station."""
        return sender, receiver


def cell_links(channel: Channel, xy_m: Array, streams: Streams, cell: int = 0) -> tuple[CellLinks, CellLinks]:
    """Uplinks and downlinks between devices at coordinates [devices, 2] in metres and the base station of a cell.

    The base station is at the origin; each cell's links have their own shadowing and fading.
    """
    name = (cell,) if cell else ()
    heights_m = np.full(len(xy_m), channel.device.height_m)
    devices_m = np.column_stack([xy_m, heights_m])
    hop = Hop.between(devices_m, np.array([0.0, 0.0, channel.base_station.height_m]))
    gain = channel.mean_gain(hop, ndtri(uniforms(streams.key("shadowing", "cell", *name), np.arange(len(xy_m)))))
    return (
        CellLinks(_snr(channel, gain, channel.device, channel.base_station), streams.key("fading", "uplink", *name)),
        CellLinks(_snr(channel, gain, channel.base_station, channel.device), streams.key("fading", "downlink", *name)),
    )


class PairLinks:
    """Links between devices, worked out when first asked for.

    Path loss and shadowing are symmetric (keyed by the unordered pair); fading is drawn per direction.
    """

    def __init__(self, channel: Channel, xy_m: Array, streams: Streams) -> None:
        self._channel = channel
        self._xyz_m = np.column_stack([xy_m, np.full(len(xy_m), channel.device.height_m)])
        self._shadowing_key = streams.key("shadowing", "pair")
        self._fading_key = streams.key("fading", "sidelink")
        self._known: dict[tuple[int, int], float] = {}

    def snr(self, sender: int, receiver: int) -> float:
        """Mean SNR of the link from one device to another."""
        pair = (sender, receiver) if sender < receiver else (receiver, sender)
        if pair not in self._known:
            self._known[pair] = float(self.snrs(np.array([pair[0]]), np.array([pair[1]]))[0])
        return self._known[pair]

    def snrs(self, sender: IntArray, receiver: IntArray) -> Array:
        """Mean SNR of many links, in the broadcast shape of senders and receivers."""
        low, high = np.minimum(sender, receiver), np.maximum(sender, receiver)
        normal = ndtri(uniforms(mixes(self._shadowing_key, low), high))
        gain = self._channel.mean_gain(Hop.between(self._xyz_m[low], self._xyz_m[high]), normal)
        return _snr(self._channel, gain, self._channel.device, self._channel.device)

    def fading_key(self, sender: int, receiver: int) -> int:
        """Key of the fading in this direction."""
        return mix(mix(self._fading_key, sender), receiver)

    def fading_keys(self, sender: IntArray, receiver: IntArray) -> NDArray[np.uint64]:
        """Keys of the fading in these directions."""
        return mixes(mixes(self._fading_key, sender), receiver)

    def radios(self, sender: int, receiver: int) -> tuple[int, int]:
        """The devices themselves."""
        return sender, receiver


def _snr(channel: Channel, gain: Array, sender: Terminal, receiver: Terminal) -> Array:
    return gain * sender.tx_power_w / channel.noise_w(receiver, channel.bandwidth_hz)
