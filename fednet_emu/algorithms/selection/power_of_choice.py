"""Power of choice: the devices with the largest losses among some random devices.

Cho, Wang, Joshi: "Towards Understanding Biased Client Selection in Federated Learning", AISTATS 2022,
https://proceedings.mlr.press/v151/jee-cho22a.html

Line by line: d devices are drawn without replacement, with probabilities in proportion to their numbers of samples;
each is sent the model and sends back its loss, of all its samples (pow-d) or of one batch (cpow-d); or the server takes
the losses of the devices' latest local steps (rpow-d), infinite before the first, without a separate message; the m
devices with the largest losses are selected.

The cost of a request counts: the model on the downlink, a forward pass on the samples, and one scalar on the uplink, in
simulated time, bits and energy. With rpow-d an upload carries one scalar more.

Differences from the paper: a selected device is sent the round's message as always, although it has received the model
with the request. A device whose loss does not arrive, or not within the algorithm's `deadline_s`, which holds for the
requests as it does for the round, ranks after all others. Ties are broken at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.selection.base import Selection, ServerView, highest, weighted
from fednet_emu.federation import SgdPlan, Statistic


class PowerOfChoice(Selection):
    """Draws `candidates` devices, and selects the candidates with the largest losses."""

    single_uploads: ClassVar[str] = "reads the losses of single devices"
    variant: Literal["pow-d", "cpow-d", "rpow-d"] = "pow-d"
    """Source of the losses: `pow-d` requests from the candidates the loss of the present model on all their samples,
    `cpow-d` on one batch; `rpow-d` takes the mean loss of the latest upload, without a request."""
    candidates: int | None = Field(None, gt=0)
    """Number of devices that are drawn, in proportion to their samples (d); null for twice the cohort."""
    batch_size: int | None = Field(None, gt=0)
    """Samples of a batch for `cpow-d`; null for the algorithm's `batch_size`."""

    @property
    def reports(self) -> tuple[Statistic, ...]:  # type: ignore[override]
        return ("loss",) if self.variant == "rpow-d" else ()

    @property
    def polls(self) -> bool:  # type: ignore[override]
        return self.variant != "rpow-d"

    def problem(self, cohort: int) -> str:
        few = self.candidates is not None and self.candidates < cohort
        return f"candidates are fewer than the cohort, got {self.candidates} and {cohort}" if few else ""

    def poll(self, view: ServerView) -> Sequence[int]:
        return self._drawn(view) if self.polls else ()

    def poll_batch(self, plan: SgdPlan) -> int | None:
        return (self.batch_size or plan.batch_size) if self.variant == "cpow-d" else None

    def choose(self, view: ServerView) -> Sequence[int]:
        if self.polls:
            return highest(view.polled_loss, view, view.polled)
        return highest(np.nan_to_num(view.told["loss"], nan=np.inf), view, np.array(self._drawn(view)))

    def _drawn(self, view: ServerView) -> list[int]:
        size = 2 * view.size if self.candidates is None else self.candidates
        return weighted(view.there, view.n_samples[view.there].astype(float), size, view.rng)
