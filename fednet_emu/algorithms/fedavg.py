"""Federated averaging.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, https://proceedings.mlr.press/v54/mcmahan17a.html

Differences from the paper: a round may have a deadline, and lost uplinks may be sent again. Updates that do not arrive
are left out of the mean. `aggregation` may replace the mean of the updates by their median, their trimmed mean, or
Krum. `server_optimizer` and `server_lr` may replace the plain step along the mean update (FedAvgM, FedAdagrad, FedAdam,
FedYogi). `selection` may replace the random selection of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, final

import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.accountant import Privacy
from fednet_emu.algorithms.aggregation import Aggregation, Krum, Mean, Median, MultiKrum, TrimmedMean
from fednet_emu.algorithms.base import Synchronous
from fednet_emu.algorithms.private import CentralPrivacy, LocalPrivacy
from fednet_emu.algorithms.server_optimizers import AnyServerOptimizer, Memory, ServerOptimizer, ServerSgd
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.federation import Arrived, Deferred, Federation, LocalStep, Process

AGGREGATIONS: dict[str, type[Aggregation]] = kinds(
    CentralPrivacy, Krum, LocalPrivacy, Mean, Median, MultiKrum, TrimmedMean
)

AnyAggregation = Annotated[Aggregation, Slot("aggregation", AGGREGATIONS)]


class FedAvg(Synchronous):
    """In each round a cohort, random by default, trains locally, and the server averages the updates that arrive."""

    kind = "fedavg"
    sends_models = True
    uses = Synchronous.uses | {"sums", "steps"}

    weighting: Literal["samples", "uniform"] = "samples"
    """Weight of a device in the mean update: its number of samples, as in the paper, or the same for all devices."""
    aggregation: AnyAggregation = Mean()
    """How the server aggregates the updates that arrive. All kinds except the mean give all updates the same weight.
    Kinds that compare updates keep all updates of a round in memory, and do not change the model if too few updates
    arrive."""
    server_optimizer: AnyServerOptimizer | None = None
    """How the server moves its model along the aggregated update; if null, the server takes plain steps of size
    `server_lr`."""
    server_lr: float | None = Field(None, ge=0)
    """Step size of the server, by which it multiplies the aggregated update; null is 1. Must be null if
    `server_optimizer` is set, which has its own `lr`."""

    def _check(self) -> None:
        super()._check()
        if self.server_optimizer is not None and self.server_lr is not None:
            raise ValueError(
                f"server_lr and server_optimizer both set the server's step size, got {self.server_lr:g} and "
                f"{type(self.server_optimizer).__name__}; leave out server_lr and give server_optimizer.lr"
            )

    def run(self, fed: Federation) -> Process:
        w, server = fed.initial_model(), Server(fed, self)
        for t in fed.rounds():
            arrived = yield from self.round(fed, t, self.message(fed, w), self.client)
            w = server.step(arrived)
            fed.end_of_round(w)

    @property
    def client(self) -> Callable[..., Process]:
        return LocalStep(self.plan, reply=self.aggregation.protected)

    def message(self, fed: Federation, w: Deferred) -> Any:
        """Return the message to the devices of a round: model `w`, with the values that the aggregation rule adds."""
        told = self.aggregation.sent_along(fed)
        return (w, *told) if told else w

    @property
    def equal_weights(self) -> bool:  # type: ignore[override]  # a constant of most algorithms
        return self.weighting == "uniform" or type(self.aggregation) is not Mean

    def privacy(self, rounds: int, count: int, *, always_there: bool) -> Privacy | None:
        return self.aggregation.privacy(rounds, self.asking_rate(count) if always_there else None)

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        most, least = self.participants(scenario.devices.count), self.aggregation.least
        if least > most:
            yield "aggregation", f"never has enough updates, got at most {most} a round; must be at least {least}"

    def conflicts_with_statistics(self) -> Iterator[tuple[str, str]]:
        yield from super().conflicts_with_statistics()
        if self.aggregation.reveals_statistics:
            what = "hides updates, and statistics of the data would be sent as they are"
            yield "aggregation", f"{self.aggregation.kind} {what}"

    def conflicts_with_sums(self) -> Iterator[tuple[str, str]]:
        yield from super().conflicts_with_sums()
        if self.aggregation.needs_singles:
            yield "aggregation", f"{self.aggregation.kind} compares single updates"


@final
class Server:
    """The server of a run, with the state of its server optimizer."""

    def __init__(self, fed: Federation, settings: FedAvg) -> None:
        self._fed, self._settings = fed, settings
        own_lr = 1.0 if settings.server_lr is None else settings.server_lr
        self._optimizer: ServerOptimizer = settings.server_optimizer or ServerSgd(lr=own_lr)
        self._memory: Deferred | None = None

    def step(self, arrived: Arrived) -> Deferred:
        """Return the server's model after a round with the replies `arrived`, and free the memory of these replies."""
        own, server, fed, w = self._settings, self._optimizer, self._fed, arrived.model
        if len(arrived) < own.aggregation.least:
            return w
        if type(own.aggregation) is Mean and type(server) is ServerSgd:  # one weighted sum suffices
            return arrived.average(own.weighting, server.lr)
        rate = own.asking_rate(fed.n_devices)
        update = own.aggregation.of(fed, arrived, arrived.weights(own.weighting), rate)
        if self._memory is None:
            self._memory = fed.defer(started, server, w, fed.n_statistics, size=server.vectors * w.size)
        what = server, w, update, self._memory, fed.n_statistics
        after = fed.defer(stepped, *what, size=(1 + server.vectors) * w.size)
        self._memory = after.part(1, server.vectors * w.size)
        return after.part(0, w.size)


def started(server: ServerOptimizer, w: Tensor, statistics: int) -> Memory:
    """Return the initial state of a server optimizer for model `w` [P] without its last `statistics` entries."""
    return server.start(w[: len(w) - statistics])


def stepped(
    server: ServerOptimizer, w: Tensor, update: Tensor, memory: Memory, statistics: int
) -> tuple[Tensor, Memory]:
    """Return the model [P] and the state after a server step; the last `statistics` entries are `w` + `update`."""
    n = len(w) - statistics
    after, memory = server.step(w[:n], update[:n], memory)
    return (torch.cat([after, (w + update)[n:]]) if statistics else after), memory
