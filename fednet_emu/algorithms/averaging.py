"""What the server of a synchronous round makes of the models that arrive: their mean, say, and a step towards it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from fednet_emu.algorithms.aggregation import AnyAggregation, Mean
from fednet_emu.algorithms.chosen import ChosenCohort
from fednet_emu.algorithms.server_optimizers import AnyServerOptimizer, ServerOptimizer, ServerSgd
from fednet_emu.federation import Accumulation, Deferred, Device, Federation, MeanOf, mean_update, of_means


class Averaging(ChosenCohort):
    """Settings of a server that moves its model by what it makes of the updates that arrive, such as their mean."""

    single_uploads: ClassVar[str] = ""
    weighting: Literal["samples", "uniform"] = "samples"
    """Weight of a device in the mean update: its number of samples, as in the paper, or the same for all devices."""
    aggregation: AnyAggregation = Mean()
    """What the server makes of the updates that arrive. Any kind but the mean counts them alike, holds all models
    of a round in memory, and leaves the model as it is in a round with fewer than it needs."""
    server_optimizer: AnyServerOptimizer | None = None
    """How the server moves its model by the aggregated update; null makes plain steps of size `server_lr`."""
    server_lr: float | None = Field(None, ge=0)
    """Step size of plain steps of the server: the factor of the update; null is 1. Any other server optimizer has
    its own `lr`."""

    retries: int = Field(0, ge=0)
    """Number of times that a lost upload is sent again."""

    @model_validator(mode="after")
    def _one_step_size_of_the_server(self) -> Self:
        if self.server_optimizer is not None and self.server_lr is not None:
            raise ValueError(
                f"server_lr and server_optimizer both set the server's step size, got {self.server_lr:g} and "
                f"{type(self.server_optimizer).__name__}; leave out server_lr and give server_optimizer.lr"
            )
        return self

    def weight(self, k: Device) -> int:
        """The weight of a device in a mean."""
        return k.n_samples if self.weighting == "samples" else 1

    def moved(
        self,
        fed: Federation,
        w: Deferred,
        memory: Deferred | None,
        arrived: Sequence[tuple[Device, Deferred]],
        mean: MeanOf = mean_update,
    ) -> tuple[Deferred, Deferred | None]:
        """The server's model after a round, and what its optimizer keeps.

        Args:
            fed: the federation.
            w: the model before.
            memory: what the optimizer kept in the round before; None before the first.
            arrived: the devices, at least one, and their trained models, which are given away.
            mean: makes the weighted mean of the differences to w of these.
        """
        models = [w_k for _, w_k in arrived]
        if len(models) < self.aggregation.least:
            return w, memory
        weights = [self.weight(k) for k, _ in arrived]
        server = self._server
        if type(self.aggregation) is Mean and type(server) is ServerSgd:  # one sum and no memory
            return fed.accumulate(average, models, w, weights, server.lr, mean), None
        update = self.aggregation.of(fed, w, models, weights, mean)
        if memory is None:
            memory = fed.defer(server.start, w, size=server.vectors * w.size)
        after = fed.defer(server.step, w, update, memory, size=(1 + server.vectors) * w.size)
        return fed.defer(_FIRST, after, size=w.size), fed.defer(_SECOND, after, size=server.vectors * w.size)

    def contradictions(self, count: int) -> Iterator[tuple[str, str]]:
        """An aggregation that needs more updates than a round can have, as (key, what is wrong)."""
        yield from super().contradictions(count)
        most, least = self.participants(count), self.aggregation.least
        if least > most:
            yield "aggregation", f"never has enough updates, got at most {most} a round; must be at least {least}"

    def conflicts_with_sums(self) -> Iterator[tuple[str, str]]:
        """A rule that compares single updates, or answers to single devices, as (key, what is wrong)."""
        yield from super().conflicts_with_sums()
        if type(self.aggregation) is not Mean:
            yield "aggregation", f"{getattr(self.aggregation, 'kind', '?')} compares single updates"
        if self.retries:
            yield "retries", f"no upload can be sent again by itself, got {self.retries}"

    @property
    def _server(self) -> ServerOptimizer:
        return self.server_optimizer or ServerSgd(lr=1.0 if self.server_lr is None else self.server_lr)


_FIRST, _SECOND = itemgetter(0), itemgetter(1)


@of_means
def average(w: Tensor, weights: Sequence[float], server_lr: float = 1.0, mean: MeanOf = mean_update) -> Accumulation:
    """Move w [P] by server_lr times the weighted mean of the differences to it of the models that come one by one.

    Summing differences instead of models leaves w bit-identical when all models equal w.
    """
    update = yield from mean(w, weights)
    return w + server_lr * update
