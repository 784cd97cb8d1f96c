"""The main function of a worker: train the stack of each message, and say when it is done."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fednet_emu.host import end_with_parent
from fednet_emu.learning.engines.parcels import tensor_of
from fednet_emu.learning.engines.table import ENGINES
from fednet_emu.learning.engines.trainer import Trainer, TrainReport
from fednet_emu.learning.engines.workers.memory import Memory, Place
from fednet_emu.learning.graph.jobs import TrainData


class Order(NamedTuple):
    """A stack to be trained, and where everything lies.

    Attributes:
        engine: name of the engine.
        text: the text of the parcel with the jobs.
        used: numbers of the models and data of the parcel.
        keeps: where what is to be kept lies, by number: a model, or the inputs and targets of data.
        tensors: the parcel's tensors.
        results: where the parameters [jobs, size] are to be written.
    """

    engine: str
    text: Place
    used: Sequence[int]
    keeps: Mapping[int, tuple[Place, ...]]
    tensors: Sequence[Place]
    results: Place


def serve(orders: Any, memory: Memory) -> None:
    """Answer each order by its report, or by None if it cannot be unpacked here, until the orders end."""
    end_with_parent()
    torch.set_num_threads(1)

    def fetched(places: tuple[Place, ...]) -> Any:
        arrays = [memory.at(place) for place in places]
        return TrainData(*map(tensor_of, arrays)) if len(arrays) > 1 else pickle.loads(arrays[0].tobytes())

    trainer = Trainer("cpu", fetched)
    engines = {name: make() for name, make in ENGINES.items()}
    while True:
        try:
            order = Order(*orders.recv())
        except EOFError:
            return
        orders.send(_answer(order, memory, trainer, engines))


def _answer(order: Order, memory: Memory, trainer: Trainer, engines: Mapping[str, Any]) -> TrainReport | None:
    arrays = [memory.at(place) for place in order.tensors]
    try:
        jobs = trainer.unpack(memory.at(order.text).tobytes(), order.used, order.keeps, arrays)
    except Exception:  # whatever the user's classes raise
        return None
    results = tensor_of(memory.at(order.results))

    def keep(place: int, params: Tensor) -> None:
        results[place] = params

    report = trainer.train(jobs, engines[order.engine].run_stack, keep)
    if report.error is None:
        return report
    return report._replace(error=RuntimeError())  # it is raised where the job is repeated
