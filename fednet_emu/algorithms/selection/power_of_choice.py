"""Power of choice: selects the devices with the largest losses from a random set of candidates.

Cho, Wang, Joshi: "Towards Understanding Biased Client Selection in Federated Learning", AISTATS 2022,
https://proceedings.mlr.press/v151/jee-cho22a.html

Method: d devices are drawn without replacement, with probabilities in proportion to their numbers of samples. Each of
them receives the model and returns its loss, on all its samples (pow-d) or on one batch (cpow-d). In rpow-d there are
no requests: the server uses the losses of the devices' latest local steps, or infinity for a device that has not
trained yet. The m devices with the largest losses are selected.

Requests have a cost in simulated time, bits and energy: the model on the downlink, a forward pass on the samples, and
one scalar on the uplink. In rpow-d each upload contains one more scalar.

Differences from the paper: a selected device receives the message of the round in full, although it has already
received the model with the request. The algorithm's `deadline_s` applies to requests as well as to the round; a device
whose loss does not arrive in time ranks after all others. Ties are broken at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.selection.base import Selection, ServerView, highest, weighted
from fednet_emu.federation import SgdPlan, Statistic


class PowerOfChoice(Selection):
    """Draws `candidates` devices, and selects from them the devices with the largest losses."""

    single_uploads = "reads the losses of single devices"
    variant: Literal["pow-d", "cpow-d", "rpow-d"] = "pow-d"
    """Source of the losses. pow-d: candidates send the loss of the current model on all their samples; cpow-d:
    candidates send the loss on one batch; rpow-d: the server uses the mean loss that a device sent with its latest
    upload."""
    candidates: int | None = Field(None, gt=0)
    """Number of candidates d, drawn in proportion to their numbers of samples; null is twice the size of the cohort."""
    batch_size: int | None = Field(None, gt=0)
    """Number of samples on which a candidate computes its loss in cpow-d; null is the algorithm's `batch_size`."""

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
