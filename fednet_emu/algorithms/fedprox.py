"""FedProx: federated averaging with a proximal term, which tolerates partial work.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020,
https://arxiv.org/abs/1812.06127, Algorithm 2

Line by line: the server sends w^t to a random cohort; device k finds a gamma-inexact minimiser of
h_k(w; w^t) = F_k(w) + mu/2 ||w - w^t||^2, here by the local steps of its plan, of which it may make only a part
(`partial_work`), so that gamma differs between devices and rounds; the server averages what arrives.

Differences from the paper: devices are drawn uniformly, or by another `selection`, and weighted by their samples, as in
the paper's experiments, where Algorithm 2 draws them by their shares of the samples and weights them alike (`weighting:
uniform`). The adaptive mu follows the heuristic of Appendix C.3.3 (`mu_step`, `falls`), but the loss that it watches is
the mean of the losses that arriving devices had in their local steps, since a server has no samples; they send it with
the model, and receive mu with the model: one number more in each direction. Besides, everything of `fedavg` may be
added to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from fednet_emu.algorithms.averaging import Averaging
from fednet_emu.algorithms.partial_work import AnyPartialWork, FullWork, Invitation, UntilDeadline
from fednet_emu.federation import Device, Federation, Process, Summed, Upload
from fednet_emu.federation.payload import BIT_PER_SCALAR


class FedProx(Averaging):
    """Each round a random cohort trains around the received model, as far as it gets, and the server averages."""

    kind = "fedprox"
    moves: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})
    mu: float = Field(0.01, ge=0)
    """Factor of the proximal term mu/2 ||w - w^t||^2 that keeps devices near the model they received (mu); 0 is
    federated averaging."""
    adaptive: bool = False
    """Whether `mu` is only the first value: it rises when the loss rises, and falls when the loss keeps falling."""
    mu_step: float = Field(0.1, ge=0)
    """By how much an adaptive mu rises or falls; 0.1 in the paper."""
    falls: int = Field(5, gt=0)
    """Number of rounds in a row in which the loss has to fall for an adaptive mu to fall; 5 in the paper."""
    partial_work: AnyPartialWork = FullWork()
    """How much of the local work a device does in a round."""

    @model_validator(mode="after")
    def _a_deadline_to_work_for(self) -> Self:
        if isinstance(self.partial_work, UntilDeadline) and self.deadline_s is None:
            raise ValueError("partial_work is what fits before the deadline, got none; give deadline_s")
        return self

    def run(self, fed: Federation) -> Process:
        """The server: invite a cohort, average what it made of the model, adapt mu."""
        w, memory = fed.initial_model(), None
        pull = fed.defer(Pull, self.mu, None, 0, size=3) if self.adaptive else None
        asking = self.asking(fed, down=w.size + self.adaptive, up=w.size + self.adaptive)
        for t in fed.rounds():
            w = fed.published(w)
            cohort = yield from asking.cohort(t, w)
            message = w if pull is None else fed.shared((w, fed.defer(_MU, pull, size=1)))
            ends_s = None if self.deadline_s is None else fed.now_s + self.deadline_s
            upload_bit = fed.links.movement_bit(w.size) + BIT_PER_SCALAR * self.adaptive
            round_ = Invitation(t, cohort, ends_s, upload_bit)
            clients = (self.client(fed, k, message, round_) for k in cohort)
            summed: Summed = yield fed.uplink_sum(w, clients, self.deadline_s)
            arrived = asking.arrived(cohort, summed.replies)
            if arrived and pull is not None:
                losses, weights = [loss for _, (_, loss) in arrived], [self.weight(k) for k, _ in arrived]
                pull = fed.defer(adapted, pull, losses, weights, self.mu_step, self.falls)
                arrived = [(k, w_k) for k, (w_k, _) in arrived]
            if arrived:
                w, memory = self.moved(fed, w, memory, arrived, summed.mean)
            fed.end_of_round(w, invited=len(cohort), arrived=len(arrived))
            if pull is not None and not fed.timing_only:
                fed.ledger.record("proximal", round=fed.round, mu=fed.read(fed.defer(_MU, pull, size=1)))

    def client(self, fed: Federation, k: Device, message: Any, round_: Invitation) -> Process:
        """A device: receive the model, and mu if it is adaptive; train as far as it gets; have the result ready."""
        got = yield fed.downlink(k, message)
        if got.lost:
            return got
        w, mu = got.payload if self.adaptive else (got.payload, self.mu)
        plan = self.partial_work.plan(fed, k, self.plan, round_)
        if type(self.partial_work) is not FullWork:
            done = {"steps": plan.n_steps(k.n_samples), "of": self.plan.n_steps(k.n_samples)}
            fed.ledger.record("partial_work", round=round_.t + 1, device=k.index, **done)
        trained = yield k.compute(fed.train(k, w, plan, round_.t, prox=mu))
        reply, since = ((trained.params, trained.loss), (w, None)) if self.adaptive else (trained.params, w)
        return Upload(k, reply, since=since, attempts=1 + self.retries)

    def conflicts_with_sums(self) -> Iterator[tuple[str, str]]:
        """A rule for mu, or for the work, that needs more of a device than its update, as (key, what is wrong)."""
        yield from super().conflicts_with_sums()
        if self.adaptive:
            yield "adaptive", "mu follows losses that single devices send, got true"
        if isinstance(self.partial_work, UntilDeadline):
            yield "partial_work", "a device reckons with the rate of its own upload, got deadline"


class Pull(NamedTuple):
    """The proximal factor of the next round, the loss of the latest, and how often in a row it has fallen."""

    mu: float
    loss: float | None
    falls: int


_MU = attrgetter("mu")


def adapted(pull: Pull, losses: Sequence[float], weights: Sequence[float], step: float, falls: int) -> Pull:
    """Raise mu by `step` when the mean loss has risen; lower it when that has fallen `falls` times in a row."""
    loss = float(np.average(losses, weights=weights))
    if pull.loss is None:
        return Pull(pull.mu, loss, 0)
    if loss > pull.loss:
        return Pull(pull.mu + step, loss, 0)
    fallen = pull.falls + 1 if loss < pull.loss else 0
    if fallen == falls:
        return Pull(max(pull.mu - step, 0.0), loss, 0)
    return Pull(pull.mu, loss, fallen)
