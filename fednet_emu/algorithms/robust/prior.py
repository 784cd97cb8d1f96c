"""The prior: how much each device counts before anything is learnt."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component import Component


class Prior(Component):
    """All devices count the same, except for suspects."""

    suspects: tuple[int, ...] = ()
    """Devices that may be malicious."""
    suspect_share: float = Field(0.1, ge=0, le=1)
    """A suspect's weight in units of 1 / N; the other devices share the rest evenly."""

    def weights(self, workers: IntArray) -> Array:
        """The weights q [N] of these devices; their sum is 1. Without anybody else, suspects are as good as any."""
        count = len(workers)
        suspect = np.isin(workers, self.suspects)
        if suspect.all():
            return np.full(count, 1.0 / count)
        own = self.suspect_share / count
        return np.where(suspect, own, (1.0 - own * suspect.sum()) / (~suspect).sum())
