"""The devices of a Flower app, each of which has a state, and answers messages by the `ClientApp`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, final

from flwr.app import Message, RecordDict

from fednet_emu.federation import Device, Federation
from fednet_emu.flower.client import Done, Result, Task, reply_of
from fednet_emu.flower.executors import Executor
from fednet_emu.flower.folder import Config
from fednet_emu.flower.host import at
from fednet_emu.flower.versions import FIRST_NODE
from fednet_emu.flower.work import FlowerWork, Toll


class Answer(NamedTuple):
    """The answer of a device: the reply, its number of operations, and the time in s spent in `time.sleep`."""

    reply: Message
    flop: float
    slept_s: float


class Answering(NamedTuple):
    """A message whose reply a device is computing.

    Attributes:
        answer: function that waits for and returns the answer; raises `AppFailed` if the `ClientApp` fails.
        flop: number of floating-point operations; None if the number is unknown until the reply is complete.
    """

    answer: Callable[[], Answer]
    flop: float | None


@final
class Clients:
    """The devices of a Flower app in a run, which compute replies in parallel on the host.

    The emulator waits for a reply only when the simulation needs the reply, so that several clients train in parallel.
    If the number of operations is known from an earlier message, the reply is needed when the device has finished its
    simulated computation, otherwise when the device begins this computation.
    """

    def __init__(self, fed: Federation, config: Config, work: FlowerWork, executor: Executor) -> None:
        self._fed, self._config, self._executor = fed, config, executor
        self._states: dict[int, list[object]] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._answering: dict[int, Answering] = {}
        self._toll = Toll(work)

    def begin(self, device: Device, message: Message, content: RecordDict) -> Answering:
        """Start to compute the reply of a device to a message, after a wait for the previous reply of the device.

        The seed of random numbers depends on the device, the message type, and the number of earlier messages of this
        type.

        Raises:
            AppFailed: the `ClientApp` failed on the previous message.
        """
        k, kind = device.index, str(message.metadata.message_type)
        if k in self._answering:
            self._answering[k].answer()
        count = self._counts[k, kind] = self._counts.get((k, kind), -1) + 1
        key = f"{k} {count} {kind}"
        known = self._fed.kept.get(key)
        if known is None:
            task = Task(
                where=f"the ClientApp of {device.name}, message '{kind}'",
                node=k + FIRST_NODE,
                seed=self._fed.streams.key("flower client", k, kind, count),
                now_ns=self._fed.clock.now,
                message=message,
                content=content,
                node_config={"partition-id": k, "num-partitions": self._fed.n_devices},
                run_config=self._config,
                state=self._states.get(k, []),
                counts=self._toll.counts(device, kind),
            )
            result = self._kept(key, self._executor.start(task))
        else:
            result = lambda: Done(*known)  # noqa: E731
        answer = cache(lambda: self._settle(device, message, content, result()))
        begun = self._answering[k] = Answering(answer, self._toll.before(device, kind))
        return begun

    def _kept(self, key: str, result: Result) -> Result:
        """Return a function that waits for the result and stores it under `key`, for reuse when the run is resumed."""

        def waited_for() -> Done:
            done = result()
            self._fed.kept.put(key, tuple(done))
            return done

        return waited_for

    def _settle(self, device: Device, message: Message, content: RecordDict, done: Done) -> Answer:
        """Store the new state of the device and the number of operations of a finished task, and return the answer."""
        k, kind = device.index, str(message.metadata.message_type)
        del self._answering[k]
        self._states[k] = done.state
        self._toll.learn(device, kind, done.counted)
        with at(self._fed.clock.now):
            reply = reply_of(done.reply, message)
        return Answer(reply, self._toll.flop(device, kind, content, reply), done.slept_s)
