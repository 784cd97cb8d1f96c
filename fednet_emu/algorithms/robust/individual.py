"""Individual training: one device learns from its own samples alone. The baseline that has to be beaten."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fednet_emu.algorithms.base import Algorithm
from fednet_emu.federation import Federation, Process, SgdPlan


class Individual(Algorithm):
    """One device trains on its own samples only, no bit is sent, and its model is evaluated on everybody's samples.

    A study over `device` gives the paper's Ind_j; its best worst accuracy is max Ind_j.
    """

    kind: Literal["individual"] = "individual"
    device: int = Field(ge=0)
    """The device that trains."""
    lr: float = Field(ge=0)
    """Step size."""
    batch_size: int | None = Field(gt=0)
    """Samples per step; null takes all of the device's samples at once."""
    local_steps: int = Field(gt=0)
    """Steps per round."""

    def demands(self) -> list[tuple[str, str, int]]:
        """Settings (key, meaning, number of devices) that need so many devices."""
        return [("device", "counted from 1 is more than there are", self.device + 1)]

    def run(self, fed: Federation) -> Process:
        """Rounds of local training."""
        w, k = fed.initial_model(), fed.device(self.device)
        plan = SgdPlan(lr=self.lr, batch_size=self.batch_size, steps=self.local_steps)
        for t in fed.rounds():
            w = (yield k.compute(fed.train(k, w, plan, t))).params
            fed.end_of_round(w, invited=1, arrived=1)
