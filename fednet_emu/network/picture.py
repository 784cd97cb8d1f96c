"""A picture of the network at an instant."""

from __future__ import annotations

from typing import NamedTuple

from fednet_emu.arrays import Array, IntArray


class Picture(NamedTuple):
    """The network at an instant, with an entry per device in each array.

    Attributes:
        xy_m: coordinates in m, [devices, 2].
        cell: the cell that serves it.
        up_snr: mean SNR (linear) of its uplink alone in the band.
        up_bps: rate of its uplink alone in the band in bit/s, as recorded or at the mean SNR.
        down_bps: the same for its downlink.
    """

    xy_m: Array
    cell: IntArray
    up_snr: Array
    up_bps: Array
    down_bps: Array
