"""Ethernet: a switch whose ports have one speed, instead of a radio."""

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
    """One bit per second and hertz at any SINR: the speed of a port is its width."""

    min_sinr: ClassVar[float] = 0.0

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        """The bandwidth."""
        return bandwidth_hz

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        """The bandwidth, in the broadcast shape."""
        return np.broadcast_to(bandwidth_hz, np.broadcast_shapes(sinr.shape, np.shape(bandwidth_hz))) + 0.0


class Switch(RatedAccess):
    """Ethernet: all devices and the server are at one switch, whose ports carry `port_bps` in each direction.

    All present transfers of a direction share the port of the server equally, TCP within 1 to 3 % in
    measurements of Linux at 10 Mbit/s; uplink and downlink do not disturb each other (full duplex). A broadcast passes
    that port once. Of the channel only the power of devices applies: `idle_w`, `receive_w` and the energies of bits,
    which should describe a network card; no power is radiated, so that `circuit_w` does not act.
    Ignored here: queues and losses in the switch, and the delay of frames.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})
    wired: ClassVar[bool] = True

    port_bps: float = Field(1e9, gt=0, le=1e18)
    """Speed of each port in bit/s: of Ethernet frames, so that `network.overhead` may add 38 bytes to each packet."""

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
        """Nothing is radiated."""
        return np.zeros((len(inputs.active.sender), 1))

    @property
    @override
    def plain_duty(self) -> float:
        return 0.0

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Equal shares of the port."""
        return Allocation(inputs.own, self.share(len(inputs.active.sender)), inputs.own)
