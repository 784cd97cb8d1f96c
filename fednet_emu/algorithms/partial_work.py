"""Partial work: how many local steps a device makes in a round that is too short for all of them."""

from __future__ import annotations

import sys
from abc import abstractmethod
from bisect import bisect_right
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.federation import Device, Federation, SgdPlan


class PartialWork(Component):
    """A rule for the local work of a device in a round."""

    @abstractmethod
    def steps(self, fed: Federation, k: Device, plan: SgdPlan, t: int, upload_bit: int) -> int:
        """Number of steps, at least one, of an invited device with samples that begins to train `plan` in round t now.

        `upload_bit` is the size of its upload, without headers.
        """

    def plan(self, fed: Federation, k: Device, plan: SgdPlan, t: int, upload_bit: int) -> SgdPlan:
        """The first steps of a plan, as many as the device makes of it."""
        steps = self.steps(fed, k, plan, t, upload_bit)
        return plan if steps == plan.n_steps(k.n_samples) else replace(plan, epochs=None, steps=steps)


class FullWork(PartialWork):
    """All of it; a late device is left out."""

    kind = "full"

    def steps(self, fed: Federation, k: Device, plan: SgdPlan, t: int, upload_bit: int) -> int:
        return plan.n_steps(k.n_samples)


class UntilDeadline(PartialWork):
    """As many steps as fit before the deadline, less the time to upload the result, and one at least.

    A device knows its nominal speed and the mean rate of its link; it knows neither its slowdowns (`straggler`, fading)
    nor the other senders, so that it may still be late.
    """

    kind = "deadline"
    reserve: float = Field(1.0, ge=0)
    """Time reserved for the upload, as a multiple of its duration alone in the band, at the mean rate and without
    headers."""

    def steps(self, fed: Federation, k: Device, plan: SgdPlan, t: int, upload_bit: int) -> int:
        most = plan.n_steps(k.n_samples)
        if k.invitation.ends_s is None:
            return most
        upload_s = self.reserve * upload_bit / max(k.expected_rate_bps, sys.float_info.min)
        samples = (k.invitation.ends_s - fed.now_s - upload_s) * k.flop_per_s / fed.task.model.flop_per_sample

        def processed(steps: int) -> int:
            return replace(plan, epochs=None, steps=steps).n_samples_processed(k.n_samples)

        return max(1, bisect_right(range(1, most + 1), samples * (1 + 1e-12), key=processed))


class RandomWork(PartialWork):
    """A random part for a share of the cohort, as in the experiments of FedProx: x epochs of E, x uniform from 1 on."""

    kind = "random"
    share: float = Field(ge=0, le=1)
    """Share of the cohort that makes a part only; 0, 0.5 and 0.9 in the paper. The others do all."""

    def steps(self, fed: Federation, k: Device, plan: SgdPlan, t: int, upload_bit: int) -> int:
        rng, n = fed.streams("partial_work", t), len(k.invitation.cohort)
        drawn = rng.integers(1, (plan.epochs or plan.steps or 1) + 1, n)
        few = rng.permutation(n)[: round(self.share * n)]
        place = k.invitation.cohort.index(k)
        if place not in few:
            return plan.n_steps(k.n_samples)
        return int(drawn[place]) * (plan.steps_per_epoch(k.n_samples) if plan.epochs else 1)


PARTIAL_WORKS: dict[str, type[PartialWork]] = kinds(UntilDeadline, FullWork, RandomWork)

AnyPartialWork = Annotated[PartialWork, Slot("partial_work", PARTIAL_WORKS)]
