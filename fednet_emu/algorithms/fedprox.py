"""FedProx: federated averaging with a proximal term, which tolerates partial work.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020,
https://arxiv.org/abs/1812.06127, Algorithm 2

Method: the server sends w^t to a random cohort. Device k finds a gamma-inexact minimiser of h_k(w; w^t) = F_k(w)
+ mu/2 ||w - w^t||^2, here by all or some of the local steps of its plan (`partial_work`), so that gamma differs between
devices and rounds. The server averages the models that arrive.

Differences from the paper: devices are drawn uniformly, or by another `selection`, and weighted by their numbers of
samples, as in the paper's experiments. Algorithm 2 instead draws devices in proportion to their samples and gives them
equal weights (`weighting: uniform`). The adaptive mu follows the heuristic of Appendix C.3.3 (`mu_step`, `falls`), but
uses the mean of the devices' losses during local steps, since a server has no samples. Devices send the loss with the
model, and receive mu with the model: one more scalar in each direction. All settings of `fedavg` can also be used.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from fednet_emu.algorithms.fedavg import FedAvg, Server
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.federation import Deferred, Device, Federation, LocalStep, Process, SgdPlan, computes_only


class PartialWork(Component):
    """A rule for the number of local steps of a device in a round."""

    @abstractmethod
    def steps(self, fed: Federation, k: Device, plan: SgdPlan, t: int, upload_bit: int) -> int:
        """Return the number of steps, at least 1, that device `k` takes in round `t` if it starts training now.

        The device is invited and has samples. `plan` contains all its local steps. `upload_bit` is the size of the
        device's upload in bits, without headers.
        """

    def plan(self, fed: Federation, k: Device, plan: SgdPlan, t: int, upload_bit: int) -> SgdPlan:
        """Return `plan`, shortened to the number of steps that device `k` takes in round `t`."""
        steps = self.steps(fed, k, plan, t, upload_bit)
        return plan if steps == plan.n_steps(k.n_samples) else replace(plan, epochs=None, steps=steps)


class FullWork(PartialWork):
    """Every device takes all local steps; a device that misses the deadline is left out."""

    kind = "full"

    def steps(self, fed: Federation, k: Device, plan: SgdPlan, t: int, upload_bit: int) -> int:
        return plan.n_steps(k.n_samples)


class UntilDeadline(PartialWork):
    """A device takes as many steps as fit before the deadline, with time left for the upload, but at least one.

    A device estimates the number of steps from its nominal speed and the mean rate of its link. The estimate ignores
    slowdowns of the device (`straggler`), fading, and other senders, so the device may still be late.
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


class FedProx(FedAvg):
    """FedAvg with a penalty that keeps devices near the received model; devices may take only some of their steps."""

    kind = "fedprox"
    mu: float = Field(0.01, ge=0)
    """Factor mu of the proximal term mu/2 ||w - w^t||^2, which keeps a device's model near the received one; 0 is
    federated averaging."""
    adaptive: bool = False
    """Whether to adapt mu: starting at `mu`, mu increases when the loss rises, and decreases when the loss keeps
    falling."""
    mu_step: float = Field(0.1, ge=0)
    """Amount by which an adaptive mu increases or decreases; 0.1 in the paper."""
    falls: int = Field(5, gt=0)
    """Number of consecutive rounds with a falling loss after which an adaptive mu decreases; 5 in the paper."""
    partial_work: AnyPartialWork = FullWork()
    """Rule that determines how many of the local steps a device takes in a round."""

    def _check(self) -> None:
        super()._check()
        if self.adaptive and self.dp_sgd is not None:
            raise ValueError("devices send losses for mu, which dp_sgd does not hide; leave one of them out")
        if isinstance(self.partial_work, UntilDeadline) and self.deadline_s is None:
            raise ValueError("partial_work is what fits before the deadline, got none; give deadline_s")

    def run(self, fed: Federation) -> Process:
        w, server = fed.initial_model(), Server(fed, self)
        pull = fed.defer(Pull, self.mu, None, 0, size=3) if self.adaptive else w
        whole = not self.adaptive and type(self.partial_work) is FullWork and type(self).client is FedProx.client
        client = LocalStep(self.plan, {"prox": self.mu}, reply=self.aggregation.protected) if whole else self.client
        for t in fed.rounds():
            if self.adaptive:
                mu = pull.part("mu", 1)
                arrived = yield from self.round(fed, t, (w, mu), self.client)
                if arrived:
                    weights = arrived.weights(self.weighting)
                    pull = fed.defer(adapted, pull, arrived.part(1), weights, self.mu_step, self.falls)
            else:
                arrived = yield from self.round(fed, t, self.message(fed, w), client)
            w = server.step(arrived)
            fed.end_of_round(w)
            if self.adaptive and not fed.timing_only:
                fed.ledger.record("proximal", round=fed.round, mu=fed.read(pull.part("mu", 1)))

    @computes_only
    def client(self, fed: Federation, k: Device, w: Deferred, *more: Any) -> Process:
        *told, t = more
        mu = told.pop(0) if self.adaptive else self.mu
        upload_bit = fed.links.update_bit(w.size) + FLOAT_BIT * self.adaptive
        plan = self.partial_work.plan(fed, k, self.plan, t, upload_bit)
        if type(self.partial_work) is not FullWork:
            fed.record(
                "partial_work", device=k.index, steps=plan.n_steps(k.n_samples), of=self.plan.n_steps(k.n_samples)
            )
        trained = yield k.train(w, plan, t, prox=mu)
        sent = self.aggregation.reply(fed, k, w, trained.params, *told)
        return (sent, trained.loss) if self.adaptive else sent

    def conflicts_with_sums(self) -> Iterator[tuple[str, str]]:
        yield from super().conflicts_with_sums()
        if self.adaptive:
            yield "adaptive", "mu follows losses that single devices send, got true"
        if isinstance(self.partial_work, UntilDeadline):
            yield "partial_work", "a device estimates its own upload time, got deadline"


class Pull(NamedTuple):
    """State of the adaptive mu: mu for the next round, last mean loss, and consecutive rounds with a falling loss."""

    mu: float
    loss: float | None
    falls: int


def adapted(pull: Pull, losses: Sequence[float], weights: Sequence[float], step: float, falls: int) -> Pull:
    """Return the state with mu + `step` if the mean loss rises, or mu - `step` after `falls` falls in a row."""
    loss = float(np.average(losses, weights=weights))
    if pull.loss is None:
        return Pull(pull.mu, loss, 0)
    if loss > pull.loss:
        return Pull(pull.mu + step, loss, 0)
    fallen = pull.falls + 1 if loss < pull.loss else 0
    if fallen == falls:
        return Pull(max(pull.mu - step, 0.0), loss, 0)
    return Pull(pull.mu, loss, fallen)
