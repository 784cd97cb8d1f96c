"""Execution of the `ClientApp` on one message in any process, with the state and the random numbers of the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import copy, deepcopy
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fednet_emu.flower.folder import Config
from fednet_emu.flower.host import NS_PER_S, CurrentFolder, Generators, SimulatedTime, app_code, simulated
from fednet_emu.flower.versions import RUN_ID, identity
from fednet_emu.learning.models.flops import FlopCount

App = Any
"""A `FlowerApp`; the class is not imported, because its module imports `running`."""

_KINDS = {"metrics": MetricRecord, "config": ConfigRecord}


class Task(NamedTuple):
    """A message to a device, with all other inputs that the `ClientApp` needs for the reply.

    Attributes:
        where: names of the device and the message, for error messages.
        node: Flower's node ID of the device.
        seed: the 64-bit seed of the global random generators.
        now_ns: simulated time in ns at which the message arrives.
        message: the message.
        content: the records of the message.
        node_config: the configuration of the device.
        run_config: the configuration of the run.
        state: the state of the device, in the format of `records`.
        counts: True if PyTorch counts the floating-point operations.
    """

    where: str
    node: int
    seed: int
    now_ns: int
    message: Message
    content: RecordDict
    node_config: Config
    run_config: Config
    state: list[Any]
    counts: bool


class Done(NamedTuple):
    """The result of a task, as values of plain Python types.

    Attributes:
        reply: the reply, in the format of `plain`.
        counted: number of floating-point operations; None if operations were not counted.
        slept_s: simulated time in s that the client has spent in `time.sleep`.
        state: the new state of the device, in the format of `records`.
    """

    reply: tuple[str, Any]
    counted: int | None
    slept_s: float
    state: list[Any]


Result = Callable[[], Done]
"""Function that waits for the result of a task, and raises `AppFailed` if the `ClientApp` fails."""


def done(app: ClientApp, task: Task) -> Done:
    """Run the `ClientApp` on the message of a task, and return the result.

    Raises:
        AppFailed: the `ClientApp` fails.
    """
    slept_s: list[float] = []
    own, state = copy(task.message), content_of(task.state)
    own.content = deepcopy(task.content)  # the app may modify the records of the message
    context = Context(RUN_ID, task.node, dict(task.node_config), state, dict(task.run_config))
    counter = FlopCount() if task.counts else None
    with ExitStack() as inside:
        enter = inside.enter_context
        enter(Generators(task.seed).active())
        enter(CurrentFolder().active())
        enter(identity(task.node))
        enter(simulated(SimulatedTime(lambda: task.now_ns + round(sum(slept_s) * NS_PER_S), slept_s.append)))
        enter(app_code(task.where))
        if counter is not None:
            enter(counter)
        reply = app(own, context)
        if not isinstance(reply, Message):
            raise TypeError(f"a ClientApp must return a flwr.app.Message, got {reply!r}")
    return Done(plain(reply), counter.total if counter else None, sum(slept_s), records(context.state))


# ---- replies and states as values of plain types, which can be stored without code -----------------------------------


def plain(reply: Message) -> tuple[str, Any]:
    """Convert a reply to values of plain types: its kind (`content` or `error`), and its records or its error."""
    if reply.has_content():
        return "content", records(reply.content)
    return "error", (int(reply.error.code), str(reply.error.reason or ""))


def reply_of(kept: Sequence[Any], message: Message) -> Message:
    """Return the reply to a message from the values `kept` that `plain` has returned."""
    kind, value = kept
    return Message(content_of(value) if kind == "content" else Error(*value), reply_to=message)


def records(content: RecordDict) -> list[Any]:
    """Convert records to values of plain types: the name, kind and content of each record; arrays become bytes."""
    return [(name, *_record(record)) for name, record in content.items()]


def content_of(kept: Sequence[Any]) -> RecordDict:
    """Return the records from the values `kept` that `records` has returned."""
    return RecordDict({name: _made(kind, value) for name, kind, value in kept})


def _record(record: Any) -> tuple[str, Any]:
    if isinstance(record, ArrayRecord):
        arrays = [
            (name, array.dtype, list(array.shape), array.stype, _bytes(array.data)) for name, array in record.items()
        ]
        return "arrays", arrays
    kind = "metrics" if isinstance(record, MetricRecord) else "config"
    return kind, [(key, _value(value)) for key, value in record.items()]


def _made(kind: str, value: Sequence[Any]) -> Any:
    if kind == "arrays":
        arrays = {
            name: Array(dtype=dtype, shape=tuple(shape), stype=stype, data=data.tobytes())
            for name, dtype, shape, stype, data in value
        }
        return ArrayRecord(arrays)
    return _KINDS[kind]({key: _restored(its) for key, its in value})


def _bytes(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


def _value(value: Any) -> Any:
    """Return a value of a record, with NumPy arrays in place of bytes."""
    if isinstance(value, bytes):
        return _bytes(value)
    return list(map(_value, value)) if isinstance(value, list) else value


def _restored(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return list(map(_restored, value)) if isinstance(value, list) else value
