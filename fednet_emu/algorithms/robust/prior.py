"""The prior: the weight of each device before anything is learnt."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.component.component import Component


class Prior(Component):
    """Prior weights q of the devices: equal, except for suspects."""

    suspects: tuple[int, ...] = ()
    """Numbers of the devices that may be malicious."""
    suspect_share: float = Field(0.1, ge=0, le=1)
    """Weight of a suspect in units of 1 / N, with N devices; the other devices share the rest equally."""

    def weights(self, workers: IntArray) -> Array:
        """The weights q [N] of the devices `workers` [N]; their sum is 1. If all are suspects, weights are equal."""
        count = len(workers)
        suspect = np.isin(workers, self.suspects)
        if suspect.all():
            return np.full(count, 1.0 / count)
        own = self.suspect_share / count
        return np.where(suspect, own, (1.0 - own * suspect.sum()) / (~suspect).sum())
