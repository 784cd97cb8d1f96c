"""Access schemes without interference within a cell: transmissions take turns or use separate parts of the band."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fednet_emu.arrays import Array
from fednet_emu.network.access.base import RatedAccess
from fednet_emu.network.access.schedulers import best_of_each_block, equal_finish_shares
from fednet_emu.network.air.sharing import Allocation, RateInputs


class Tdma(RatedAccess):
    """One transmission at a time in a cell, in the order of requests, and always on the whole band."""

    capacity: ClassVar[int] = 1

    def share(self, active: int) -> float:
        return 1.0

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        return on_parts(inputs, 1.0)


class Ofdma(RatedAccess):
    """Simultaneous transmissions of a cell on separate parts of the band, each at full power, with its part's noise.

    If `subchannels` is set, the band is split into that many fixed equal parts, one per transmission; further
    transmissions wait. Otherwise the scheduler redivides the band whenever a transmission starts or ends.
    Interference from other cells is spread evenly over the band, as with random frequency hopping.
    Ignored here: frequency selectivity (a link has the same gain in every part), and the division into resource blocks.
    """

    subchannels: int | None = Field(default=None, gt=0)
    """Number of fixed parts of the band; null to divide the whole band among the current transmissions."""

    scheduler: Literal["equal", "proportional-fair", "equal-finish"] = "equal"
    """How the band is divided among the current transmissions.

    equal: equal parts. proportional-fair: in each fading block, only the link with the highest ratio of gain to mean
    gain sends, on the whole band at full power (normalised-SNR scheduling, which equals proportional fairness if rates
    are proportional to SNR); without fading, equal parts. equal-finish: parts with which all transmissions would finish
    at the same time at their mean SNRs, so that the last transmission finishes as early as possible.
    """

    def _check(self) -> None:
        if self.subchannels is not None and self.scheduler != "equal":
            raise ValueError(
                f"subchannels are equal parts, got scheduler {self.scheduler} with {self.subchannels} of them; "
                "leave one of the two out"
            )

    @property
    def capacity(self) -> int | None:
        return self.subchannels

    def share(self, active: int) -> float:
        return 1.0 / (self.subchannels or active)

    def power(self, inputs: RateInputs) -> Array | None:
        """Return 1 for the burst scheduled in a block, 0 for all others; None if no burst is scheduled per block."""
        if self.scheduler != "proportional-fair" or inputs.band.constant:
            return None
        active = inputs.active
        return best_of_each_block(inputs.own, active.of_legs(active.mean), active.first_leg)

    @override
    def plain_rule(self) -> Callable[[Array], Allocation] | None:
        return self._in_equal_parts if self.scheduler == "equal" else None

    def _in_equal_parts(self, snr: Array) -> Allocation:
        share = self.share(snr.shape[1])
        sinr = snr * (1.0 / share)
        return Allocation(sinr, share, sinr)

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        active = inputs.active
        if power is not None:
            own = inputs.own
            return Allocation(own / inputs.noise_of_legs(), 1.0, own, power[active.burst] > 0)
        if self.scheduler == "equal-finish" and len(active.sender) > 1:
            snr = active.of_legs(active.mean) * active.part[active.burst]
            weakest = np.minimum.reduceat(snr, active.first_leg)
            left_bit = np.maximum.reduceat(active.left_bit, active.first_leg)
            return on_parts(
                inputs, equal_finish_shares(weakest, left_bit, inputs.band.law, inputs.band.bandwidth_hz)[active.burst]
            )
        return on_parts(inputs, self.share(len(active.sender)))


def on_parts(inputs: RateInputs, share: Array | float) -> Allocation:
    """Return the SINRs on separate parts `share` of the band; the bursts of a sender split its power equally."""
    active = inputs.active
    boost = active.part_of_legs() / share
    clear = inputs.own * boost[:, None]
    column = share[:, None] if isinstance(share, np.ndarray) else share
    return Allocation(clear / inputs.noise_of_legs(), column, clear)
