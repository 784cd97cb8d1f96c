"""Access schemes whose transmitters stay out of each other's way: turns in time, or parts of the band."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fednet_emu.arrays import Array
from fednet_emu.network.access.base import Access, Allocation, RateInputs
from fednet_emu.network.access.schedulers import best_of_each_block, equal_finish_shares


class Tdma(Access):
    """One after the other in the order of requests, each with the whole band."""

    kind: Literal["tdma"] = "tdma"

    @property
    def capacity(self) -> int:
        """One at a time."""
        return 1

    def share(self, active: int) -> float:
        """The whole band."""
        return 1.0

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Nobody else of the cell is there."""
        return _on_parts(inputs, 1.0)


class Ofdma(Access):
    """Side by side on parts of the band; noise shrinks with the part, power does not.

    With `subchannels`, the band is cut into so many fixed parts, one for each transmission, and further ones wait.
    Without, all who transmit share the band as the scheduler says, anew at each start and end.
    Ignored here: frequency selectivity (a link's gain is the same in every part), and the resource block as the
    smallest part. Other cells are heard evenly over the band, as with random hopping.
    """

    kind: Literal["ofdma"] = "ofdma"

    subchannels: int | None = Field(default=None, gt=0)
    """Number of fixed parts, or null for parts that follow the number of transmissions."""

    scheduler: Literal["equal", "proportional-fair", "equal-finish"] = "equal"
    """Who gets how much of the band.

    equal: equal parts. proportional-fair: each fading block goes to the link whose gain is best relative to its own
    mean, whole band and whole power, and the others are silent (normalised-SNR scheduling, which proportional fairness
    is for links whose rate grows as their SNR; equal parts without fading). equal-finish: parts with which all would
    end together at their mean SNRs, which ends the last one as early as can be.
    """

    @model_validator(mode="after")
    def _parts_are_fixed_or_scheduled(self) -> Self:
        if self.subchannels is not None and self.scheduler != "equal":
            raise ValueError(
                f"subchannels are equal parts, got scheduler {self.scheduler} with {self.subchannels} of them; "
                "leave one of the two out"
            )
        return self

    @property
    def capacity(self) -> int | None:
        """As many as there are subchannels."""
        return self.subchannels

    def share(self, active: int) -> float:
        """One subchannel, or an equal part."""
        return 1.0 / (self.subchannels or active)

    def power(self, inputs: RateInputs) -> Array | None:
        """All of it in a block that a burst has won, with the proportional-fair scheduler and fading."""
        if self.scheduler != "proportional-fair" or inputs.constant:
            return None
        active = inputs.active
        winner = best_of_each_block(active.of_legs(inputs.heard), active.of_legs(active.mean), active.first_leg)
        won = np.zeros((len(active.sender), inputs.heard.shape[2]))
        won[winner, np.arange(len(winner))] = 1.0
        return won

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Parts of the band, or the whole of it for the winner of a block."""
        active = inputs.active
        if power is not None:
            own = active.of_legs(inputs.heard)
            return Allocation(own / inputs.noise[active.receiver], 1.0, own, power[active.burst] > 0)
        if self.scheduler == "equal-finish" and len(active.sender) > 1:
            snr = active.of_legs(active.mean) * active.part[active.burst]
            weakest = np.minimum.reduceat(snr, active.first_leg)
            left_bit = np.maximum.reduceat(active.left_bit, active.first_leg)
            return _on_parts(
                inputs, equal_finish_shares(weakest, left_bit, inputs.law, inputs.bandwidth_hz)[active.burst]
            )
        return _on_parts(inputs, self.share(len(active.sender)))


def _on_parts(inputs: RateInputs, share: Array | float) -> Allocation:
    """Legs on parts of the band that do not overlap, all at their share of their sender's power."""
    active = inputs.active
    boost = active.part[active.burst] / share
    clear = active.of_legs(inputs.heard) * boost[:, None]
    column = share[:, None] if isinstance(share, np.ndarray) else share
    return Allocation(clear / inputs.noise[active.receiver], column, clear)
