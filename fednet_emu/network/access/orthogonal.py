"""Access schemes whose transmitters stay out of each other's way: turns in time, or parts of the band."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fednet_emu.arrays import Array
from fednet_emu.network.access.base import Access, Scene, Split
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

    def split(self, scene: Scene, power: Array | None) -> Split:
        """Nobody else of the cell is there."""
        return _on_parts(scene, 1.0)


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

    def power(self, scene: Scene) -> Array | None:
        """All of it in a block that a burst has won, with the proportional-fair scheduler and fading."""
        if self.scheduler != "proportional-fair" or scene.band.constant:
            return None
        crew = scene.crew
        winner = best_of_each_block(crew.own(scene.heard), crew.own(crew.mean), crew.first_leg)
        won = np.zeros((len(crew.sender), scene.heard.shape[2]))
        won[winner, np.arange(len(winner))] = 1.0
        return won

    def split(self, scene: Scene, power: Array | None) -> Split:
        """Parts of the band, or the whole of it for the winner of a block."""
        crew, band = scene.crew, scene.band
        if power is not None:
            own = crew.own(scene.heard)
            return Split(own / scene.noise[crew.ear], 1.0, own, power[crew.burst] > 0)
        if self.scheduler == "equal-finish" and len(crew.sender) > 1:
            snr = crew.own(crew.mean) * crew.part[crew.burst]
            weakest = np.minimum.reduceat(snr, crew.first_leg)
            left_bit = np.maximum.reduceat(crew.left_bit, crew.first_leg)
            return _on_parts(scene, equal_finish_shares(weakest, left_bit, band.law, band.bandwidth_hz)[crew.burst])
        return _on_parts(scene, self.share(len(crew.sender)))


def _on_parts(scene: Scene, share: Array | float) -> Split:
    """Legs on parts of the band that do not overlap, all at their share of their sender's power."""
    crew = scene.crew
    boost = crew.part[crew.burst] / share
    clear = crew.own(scene.heard) * boost[:, None]
    column = share[:, None] if isinstance(share, np.ndarray) else share
    return Split(clear / scene.noise[crew.ear], column, clear)
