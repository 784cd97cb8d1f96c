"""Ethernet instead of a radio: a switch whose ports all have the same speed."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from fednet_emu.arrays import Array
from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.network.access.base import RatedAccess, Use
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.sharing import Allocation, RateInputs
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.radio.fading import NoFading
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.radio.receiver.combining import Reception


class Wire(RateLaw):
    """Rate law of a wire: 1 bit/s/Hz at any SINR; the bandwidth in Hz equals the speed of a port in bit/s."""

    min_sinr: ClassVar[float] = 0.0

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        return bandwidth_hz

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        return np.broadcast_to(bandwidth_hz, np.broadcast_shapes(sinr.shape, np.shape(bandwidth_hz))) + 0.0


class Ethernet(RatedAccess):
    """Ethernet: all devices and the server are connected to one switch with ports of `port_bps` in each direction.

    All current transfers in one direction share the server's port equally, as measured for TCP on Linux at 10 Mbit/s
    to within 1 to 3 %. Uplink and downlink do not slow each other down (full duplex). A broadcast passes the server's
    port once. Of the channel's settings, only the device powers are used: `idle_w`, `rx_consumption_w` and the energies
    per bit, which should describe a network card. No power is radiated, so that `circuit_w` has no effect.
    Ignored here: queues and losses in the switch, and the delay of frames.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})
    wired: ClassVar[bool] = True
    plain_duty: ClassVar[float] = 0.0

    port_bps: float = Field(1e9, gt=0, le=1e18)
    """Speed of each port in bit/s, including Ethernet headers and gaps (38 bytes per packet; see `overhead`)."""

    @override
    def conflict_with_antennas(self, reception: Reception) -> str:
        return f"a wire has no antennas, got {reception.kind} with {self.kind}; leave it out"

    @override
    def law(self, bandwidth_hz: float) -> Wire:
        return Wire()

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        port = replace(band, bandwidth_hz=self.port_bps, fading=NoFading(), coherence_ns=FOREVER_NS)
        return super().use(port, links, cells, devices)

    def power(self, inputs: RateInputs) -> Array:
        return np.zeros((len(inputs.active.sender), 1))

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        return Allocation(inputs.own, self.share(len(inputs.active.sender)), inputs.own)
