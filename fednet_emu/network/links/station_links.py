"""Links between several base stations and the devices around them."""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys, Mask
from fednet_emu.kernel.streams import mix, mixes
from fednet_emu.network.links.links import CellLinks, Sky, cell_links, marked


class StationLinks:
    """Links of every device with every base station in one direction; radio -1 - c is the base station of cell c.

    Args:
        snr: [stations, devices] mean SNR (linear) of every link, alone on the whole band.
        serving: [devices] the cell of each device.
        keys: [stations] fading key of each station's links.
        los: [stations, devices] whether each link has line of sight; None for no link.
        power_w: [devices] transmit power of each device in W if power control sets it, else None.
    """

    def __init__(
        self, snr: Array, serving: IntArray, keys: list[int], los: Mask | None = None, power_w: Array | None = None
    ) -> None:
        self._los = np.zeros(snr.shape, np.bool_) if los is None else los
        self._power_w = power_w
        self.mean_snr: Array = snr[serving, np.arange(len(serving))]
        self.in_sight: Mask = self._los[serving, np.arange(len(serving))]
        self._snr = snr
        self._serving: list[int] = serving.tolist()
        self._keys = np.array(keys, np.uint64)

    def snr(self, sender: int, receiver: int) -> float:
        """Mean SNR between a device's radio and a base station's."""
        return float(self._snr[-1 - min(sender, receiver), max(sender, receiver)])

    def fading_key(self, sender: int, receiver: int) -> int:
        """Key of the fading between a device's radio and a base station's."""
        station, device = -1 - min(sender, receiver), max(sender, receiver)
        return mix(int(self._keys[station]), device) & ~1 | bool(self._los[station, device])

    def snrs(self, sender: IntArray, receiver: IntArray) -> Array:
        """Mean SNRs between radios of devices and of base stations."""
        return np.asarray(self._snr[-1 - np.minimum(sender, receiver), np.maximum(sender, receiver)])

    def fading_keys(self, sender: IntArray, receiver: IntArray) -> Keys:
        """Fading keys between radios of devices and of base stations."""
        station, device = -1 - np.minimum(sender, receiver), np.maximum(sender, receiver)
        return marked(mixes(self._keys[station], device), self._los[station, device])

    def power_w(self, sender: int) -> float | None:
        """Transmit power in W of a device to the base station that serves it if power control sets it, else None."""
        return None if self._power_w is None else float(self._power_w[sender])

    def radios(self, sender: int, receiver: int) -> tuple[int, int]:
        """Radios of sender and receiver; for the server, the base station that serves the device."""
        if receiver < 0:
            return sender, -1 - self._serving[sender]
        return -1 - self._serving[receiver], receiver

    def period(self) -> int:
        """Nobody moves."""
        return 0


def network_links(
    sky: Sky, xy_m: Array, stations_m: Array
) -> tuple[CellLinks | StationLinks, CellLinks | StationLinks]:
    """Compute uplinks and downlinks between devices [devices, 2] and base stations [stations, 2], coordinates in m.

    A device is served by the station with the strongest signal, including shadowing and averaged over fading; in a tie
    by the first. The links of the first station are the same as in a network with this station only.
    """
    pairs = [cell_links(sky, xy_m - station_m, cell) for cell, station_m in enumerate(stations_m)]
    if len(pairs) == 1:
        return pairs[0]
    ups, downs = zip(*pairs, strict=True)
    down_snr, up_snr = (np.stack([links.mean_snr for links in each]) for each in (downs, ups))
    serving, los = down_snr.argmax(axis=0), np.stack([links.in_sight for links in ups])
    power_w = np.array([ups[cell].power_w(device) for device, cell in enumerate(serving.tolist())], np.float64)
    return (
        StationLinks(up_snr, serving, [links.key for links in ups], los, power_w),
        StationLinks(down_snr, serving, [links.key for links in downs], los),
    )
