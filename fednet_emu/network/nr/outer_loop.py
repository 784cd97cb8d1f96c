"""Transfers that start with a low modulation and coding scheme, and change to a higher scheme every 100 ms."""

from __future__ import annotations

from typing import final

import numpy as np
from typing_extensions import override

from fednet_emu.arrays import Array
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.sharing import Allocation, RateInputs, Sharing
from fednet_emu.network.air.transfer import Burst
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.nr.outer_loop import WINDOW_NS


@final
class Climbing(Sharing):
    """Sharing of slots between transfers whose current coding scheme permits only a fraction of their full rate."""

    overlapping = False

    def __init__(self, slots: Sharing, law: NrBlocks) -> None:
        self._slots, self._law = slots, law
        self.begun: list[int] = []
        """Indices of the 100 ms windows in which the transfers on the air began, in the order of bursts."""

    @override
    def power(self, inputs: RateInputs) -> Array | None:
        return self._slots.power(inputs)

    @override
    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Return the allocation of the slots, with each share multiplied by the fraction of the rate reached so far."""
        plain = self._slots.allocate(inputs, power)
        begun = np.array(self.begun)[inputs.active.burst]
        part = self._law.climbed(plain.sinr * plain.share, inputs.numbers - begun[:, None])
        sinr = np.divide(
            plain.sinr, part, out=np.zeros(np.broadcast_shapes(plain.sinr.shape, part.shape)), where=part > 0
        )
        return plain._replace(sinr=sinr, share=plain.share * part)


@final
class ClimbingAir(SharedAir):
    """Transmissions in the slots of one cell, with coding schemes that rise as in `Climbing`."""

    def __init__(self, slots: Sharing, band: Band, law: NrBlocks, links: LinksOverTime) -> None:
        self._climbing, self._bursts = Climbing(slots, law), list[Burst]()
        super().__init__(self._climbing, band, links)

    @override
    def start(self, bursts: list[Burst], now_ns: int) -> int:
        for burst in bursts:
            leg = burst[0]
            begun_ns = now_ns if leg.phases is None else leg.requested_ns + leg.phases.wait_ns
            self._bursts.append(burst)
            self._climbing.begun.append(begun_ns // WINDOW_NS)
        return super().start(bursts, now_ns)

    @override
    def advance(self, now_ns: int) -> list[Burst]:
        ended = super().advance(now_ns)
        for burst in ended:
            place = next(place for place, other in enumerate(self._bursts) if other is burst)
            del self._bursts[place], self._climbing.begun[place]
        return ended
