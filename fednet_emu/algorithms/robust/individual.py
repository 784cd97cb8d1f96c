"""Individual training: one device learns from its own samples alone. A baseline."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fednet_emu.algorithms.base import Algorithm
from fednet_emu.federation import Federation, Process, SgdPlan


class Individual(Algorithm):
    """One device trains on its own samples only; nothing is sent, and its model is evaluated on the samples of all.

    A study over `device` j gives the paper's Ind_j; the largest of their worst-case accuracies is its max Ind_j.
    """

    single_uploads: ClassVar[str] = "receives nothing"
    device: int = Field(ge=0)
    """Number of the device that trains, from 0."""
    lr: float = Field(ge=0)
    """Step size."""
    batch_size: int | None = Field(gt=0)
    """Samples per gradient step; null takes all of the device's samples."""
    local_steps: int = Field(gt=0)
    """Gradient steps per round."""

    def demands(self) -> list[tuple[str, str, int]]:
        """Settings that need a minimum number of devices, as (key, what is wrong with fewer, that minimum)."""
        return [("device", "counted from 1 is more than there are", self.device + 1)]

    def run(self, fed: Federation) -> Process:
        """Train the device locally, round after round, until its battery is empty for good."""
        w, k = fed.initial_model(), fed.device(self.device)
        plan = SgdPlan(lr=self.lr, batch_size=self.batch_size, steps=self.local_steps)
        for t in fed.rounds():
            computation = k.compute(fed.train(k, w, plan, t))
            trained = yield computation
            if computation.stopped:
                return
            w = trained.params
            fed.end_of_round(w, invited=1, arrived=1)
