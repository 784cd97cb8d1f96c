"""Partial work: how many local steps a device takes in a round that may be too short for all of its steps."""

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
    """A rule for the number of local steps of a device in a round."""

    @abstractmethod
    def steps(self, fed: Federation, k: Device, plan: SgdPlan, t: int, upload_bit: int) -> int:
        """Number of steps, at least 1, that device `k` takes if it starts training by `plan` in round `t` now.

        The device is invited and has samples. `upload_bit` is the size of the device's upload in bits, without headers.
        """

    def plan(self, fed: Federation, k: Device, plan: SgdPlan, t: int, upload_bit: int) -> SgdPlan:
        """Return `plan`, shortened to the number of steps that device `k` takes."""
        steps = self.steps(fed, k, plan, t, upload_bit)
        return plan if steps == plan.n_steps(k.n_samples) else replace(plan, epochs=None, steps=steps)


class FullWork(PartialWork):
    """Every device takes all local steps; a device that misses the deadline is left out."""

    kind = "full"

    def steps(self, fed: Federation, k: Device, plan: SgdPlan, t: int, upload_bit: int) -> int:
        return plan.n_steps(k.n_samples)


class UntilDeadline(PartialWork):
    """A device takes as many steps as fit before the deadline, with time left for the upload, but at least one.

    A device estimates the number of steps from its nominal speed and the mean rate of its link. The device does not
    know its slowdowns (`straggler`), the fading, or the other senders, so it may still be late.
    """

    kind = "deadline"
    reserve: float = Field(1.0, ge=0)
    """Time reserved for the upload, as a multiple of the time that the upload takes without other senders, at the mean
    rate and without headers."""

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
    """A share of the cohort trains for a random number of epochs or steps, uniform from 1 to the full number."""

    kind = "random"
    share: float = Field(ge=0, le=1)
    """Share of devices in the cohort that take only some of their steps; 0, 0.5 and 0.9 in the paper."""

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
