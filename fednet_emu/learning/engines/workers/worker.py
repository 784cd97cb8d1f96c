"""The main function of a worker process, which receives stacks of jobs, trains them, and reports the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter

from fednet_emu.errors import described
from fednet_emu.host import end_with_parent, use_batch_scheduling
from fednet_emu.learning.engines.parcels import tensor_of, unpickled_with
from fednet_emu.learning.engines.rule import ENGINES
from fednet_emu.learning.engines.trainer import Trainer, TrainReport
from fednet_emu.learning.engines.workers.memory import Memory, Place
from fednet_emu.learning.graph.jobs import TrainData
from fednet_emu.learning.models.flat import FlatModel

MOST_OF_ERROR = 200
"""Maximum number of characters of an error message that a worker reports."""


class KeptModel(NamedTuple):
    """The locations in shared memory of a pickled model and of its tensors; True marks parameters."""

    pickled: Place
    constants: Sequence[tuple[Place, bool]]

    @property
    def places(self) -> list[Place]:
        return [self.pickled, *(place for place, _ in self.constants)]

    def load(self, memory: Memory) -> FlatModel:
        """Return the unpickled model; its constants are not copied, but refer to shared memory."""
        found = [(tensor_of(memory.at(place)), is_parameter) for place, is_parameter in self.constants]
        constants = [Parameter(its, requires_grad=False) if is_parameter else its for its, is_parameter in found]
        model: FlatModel = unpickled_with(memory.at(self.pickled).tobytes(), constants)
        return model


class KeptData(NamedTuple):
    """The locations in shared memory of the inputs and targets of training data."""

    x: Place
    y: Place

    @property
    def places(self) -> list[Place]:
        return [self.x, self.y]

    def load(self, memory: Memory) -> TrainData:
        return TrainData(*(tensor_of(memory.at(place)) for place in self.places))


class Order(NamedTuple):
    """A stack of jobs to be trained, with the locations of its inputs and results in shared memory."""

    engine: str  # name of the engine
    text: Place | bytes  # pickled jobs in shared memory, or a short `Columns` record as bytes
    used: Sequence[int]  # ids of the models and data in the parcel
    keeps: Mapping[int, KeptModel | KeptData]  # places of the models and data to keep, by id
    tensors: Sequence[Place]  # the parcel's tensors
    results: Place  # place of the parameters [jobs, size], with padding that aligns rows


def serve(orders: Any, memory: Memory) -> None:
    """Execute orders until the connection closes; answer with a report, or an error text if unpacking fails."""
    end_with_parent()
    use_batch_scheduling()  # else the first worker interrupts the main process, which has orders for the others
    torch.set_num_threads(1)
    trainer = Trainer("cpu", lambda kept: kept.load(memory))
    engines = {name: make() for name, make in ENGINES.items()}
    with suppress(EOFError, OSError):
        while True:
            order = Order(*orders.recv())
            report = _answer(order, memory, trainer, engines)
            orders.send(report)


def _answer(order: Order, memory: Memory, trainer: Trainer, engines: Mapping[str, Any]) -> TrainReport | str:
    arrays = [memory.at(place) for place in order.tensors]
    try:
        text = order.text if isinstance(order.text, bytes) else memory.at(order.text).tobytes()
        jobs = trainer.unpack(text, order.used, order.keeps, arrays)
    except Exception as error:  # classes of the user may raise any error
        return described(error, MOST_OF_ERROR)
    out = tensor_of(memory.at(order.results))[:, : jobs[0].job.model.size]
    report = trainer.train(partial(engines[order.engine].train_into, jobs, out))
    if report.error is None:
        return report
    return report._replace(error=RuntimeError(described(report.error, MOST_OF_ERROR)))  # the caller repeats the jobs
