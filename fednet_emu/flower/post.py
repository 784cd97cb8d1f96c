"""Simulation of a Flower app's messages (downlink, computation, uplink) and of the devices that reply to them.

A round of the app begins when the app sends messages that request training, and ends when it sends later such messages.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, final

from flwr.app import ArrayRecord, Error, Message, RecordDict

from fednet_emu.federation import Delivery, Device, Federation, Process, Shared, Work
from fednet_emu.flower.control import APP_POLL_S, Loops
from fednet_emu.flower.executors import Done, Executor, Result, Task, reply_of
from fednet_emu.flower.folder import Config
from fednet_emu.flower.host import at
from fednet_emu.flower.versions import FIRST_NODE, LOST_MESSAGE, LOST_REPLY, stamp
from fednet_emu.flower.work import FlowerWork, Toll


class Answer(NamedTuple):
    """The reply of a device, its number of floating-point operations, and the time in s spent in `time.sleep`."""

    reply: Message
    flop: float
    slept_s: float


class Answering(NamedTuple):
    """A message whose reply a device is computing.

    Attributes:
        answer: function that waits for the reply and returns it; raises `AppFailed` if the `ClientApp` fails.
        flop: number of floating-point operations; None if the number is unknown until the reply is complete.
    """

    answer: Callable[[], Answer]
    flop: float | None


@final
class Clients:
    """The devices of a Flower app in a run, whose replies are computed in parallel on the host.

    The emulator waits for a reply only when the simulation needs the reply, so that several clients train in parallel.
    If the number of operations is known from an earlier message, the reply is needed at the end of the device's
    simulated computation. Otherwise it is needed at the start, because the number determines the computing time.
    """

    def __init__(self, fed: Federation, config: Config, work: FlowerWork, executor: Executor) -> None:
        self._fed, self._config, self._executor = fed, config, executor
        self._states: dict[int, list[object]] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._answering: dict[int, Answering] = {}
        self._toll = Toll(work)

    def begin(self, device: Device, message: Message, content: RecordDict) -> Answering:
        """Wait for the device's reply to its previous message, if any; then start to compute the reply to this message.

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
        def waited_for() -> Done:
            done = result()
            self._fed.kept.put(key, tuple(done))
            return done

        return waited_for

    def _settle(self, device: Device, message: Message, content: RecordDict, done: Done) -> Answer:
        k, kind = device.index, str(message.metadata.message_type)
        del self._answering[k]
        self._states[k] = done.state
        self._toll.learn(device, kind, done.counted)
        with at(self._fed.clock.now):
            reply = reply_of(done.reply, message)
        return Answer(reply, self._toll.flop(device, kind, content, reply), done.slept_s)


Lost = Literal["error", "silence"]

ERROR_BYTE = 8
"""Size in bytes of a transmitted error without its reason; the length of the reason in UTF-8 is added."""


class Over(Exception):  # noqa: N818  (an event)
    """Exception that ends the app at the beginning of a round, because a stop rule applies."""


@final
class Turns:
    """Counts the rounds of an app and records them.

    Attributes:
        going_on: True while a round is in progress.
    """

    def __init__(self, fed: Federation) -> None:
        self._fed = fed
        self.going_on = False
        self._invited = self._arrived = 0
        self._began_ns = -1

    @property
    def number(self) -> int:
        """Number of the round in progress or, between rounds, of the last round; 0 before the first round."""
        return self._fed.round + self.going_on

    def begin(self, invited: int) -> None:
        """Start a round, or extend the round in progress, because training messages are sent to `invited` devices.

        Messages that the app sends one by one at the same instant belong to one round.

        Raises:
            Over: the previous round has ended, and a stop rule ends the run.
        """
        if self.going_on and (self._fed.clock.now > self._began_ns or self._arrived):
            self.end()
        if not self.going_on:
            if self._fed.stopped:
                raise Over
            self.going_on, self._began_ns = True, self._fed.clock.now
        self._invited += invited

    def arrived(self, count: int) -> None:
        """Add `count` to the number of replies to training messages that the app has received in this round."""
        self._arrived += count

    def end(self) -> None:
        """End and record the round in progress, if there is one."""
        if self.going_on:
            self.going_on = False
            invited, arrived, self._invited, self._arrived = self._invited, self._arrived, 0, 0
            self._fed.end_of_round(None, invited=invited, arrived=arrived)


class Letter(NamedTuple):
    """A message in transit: the message of Flower, a copy of its records, and the payload that is transmitted."""

    message: Message
    content: RecordDict
    payload: RecordDict | Shared

    @property
    def device(self) -> int:
        """Index of the receiving device."""
        return int(self.message.metadata.dst_node_id) - FIRST_NODE


@final
class Post:
    """Carries messages between the server and the devices.

    Args:
        lost: the effect of a lost message on the server app: `error` or `silence`, as in the setting `lost`.
        deadline_s: maximum time in s that the server waits for replies, in addition to time limits of the app; None for
            no maximum.
        loops: the polling loops; None to process messages without delay.
    """

    def __init__(
        self,
        fed: Federation,
        clients: Clients,
        turns: Turns,
        lost: Lost,
        deadline_s: float | None,
        loops: Loops | None = None,
    ) -> None:
        self._fed, self._clients, self._turns, self._lost, self._deadline_s = fed, clients, turns, lost, deadline_s
        self._loops = loops
        self._announced_ns: dict[str, int] = {}  # announcement time of each reply in transit or arrived
        self._sent = 0
        self._ready: dict[str, Message] = {}
        self.under_way = 0

    def letters(self, messages: Sequence[Message]) -> list[Letter]:
        """Assign IDs to messages and copy their records; messages with equal records share a payload for a broadcast.

        Raises:
            ValueError: a message is addressed to a node that does not exist.
        """
        before = copied = mark = None
        groups: dict[tuple[bytes | None, int], Shared] = {}
        seen: Counter[tuple[bytes | None, int]] = Counter()  # equal messages to one receiver do not share a payload
        made = []
        for message in messages:
            node, content = int(message.metadata.dst_node_id), message.content
            if not FIRST_NODE <= node < FIRST_NODE + self._fed.n_devices:
                known = f"{FIRST_NODE} to {FIRST_NODE + self._fed.n_devices - 1}, as from get_node_ids"
                raise ValueError(f"dst_node_id: there is no such node, got {node}; those are {known}")
            if content is not before:  # most strategies pass one object for all nodes
                before, copied, mark = content, copy.deepcopy(content), fingerprint(content)
            seen[mark, node] += 1
            payload = groups.setdefault((mark, seen[mark, node]), self._fed.shared(copied))
            self._sent += 1
            stamp(message, self._sent)
            made.append(Letter(message, copied, payload))
        return made

    def exchange(self, letters: Sequence[Letter], timeout_s: float | None) -> Process:
        """Send messages, wait for the replies, and return the replies that arrive in time.

        The work of late devices is cancelled. If a reply was lost and `lost` is `silence`, the server waits until the
        time limit. If a message expires without a reply, an error takes the place of the reply.
        """
        if self._loops is not None:
            return (yield from self._collected(letters, timeout_s))
        began_s, lives_s = self._fed.now_s, max(float(letter.message.metadata.ttl) for letter in letters)
        limit_s = min(limit for limit in (timeout_s, self._deadline_s, lives_s) if limit is not None)
        self._begin(letters)
        results = yield self._fed.gather((self._carry(letter) for letter in letters), limit_s)
        losses = [result.lost for result in results if result.lost and result.lost != "deadline"]
        left_s = began_s + limit_s - self._fed.now_s
        if losses and self._lost == "silence" and left_s > 0:
            yield self._fed.sleep(left_s)
        expired = limit_s == lives_s
        return self._handed([self._reply(letter, its, expired) for letter, its in zip(letters, results, strict=True)])

    def push(self, letters: Sequence[Letter]) -> Process:
        """Send messages without waiting, and return the IDs of the messages."""
        self._begin(letters)
        for letter in letters:
            self.under_way += 1
            self._fed.start(self._carry_alone(letter))
        return [letter.message.metadata.message_id for letter in letters]
        yield

    def pull(self, numbers: Sequence[str]) -> Process:
        """Return the replies to the messages with the IDs `numbers` that have arrived and were not returned before.

        If there are polling loops, also wait for replies that are announced but incomplete.
        """
        there = [number for number in numbers if number in self._ready or number in self._announced_ns]
        for number in there:
            if self._loops is not None:
                yield from self._loops.collect(self._ready, number)
                self._announced_ns.pop(number, None)
        return self._handed([self._ready.pop(number) for number in there])

    def _collected(self, letters: Sequence[Letter], timeout_s: float | None) -> Process:
        """Send messages, and collect replies every `APP_POLL_S` seconds until all have arrived or time is up."""
        limits = [limit for limit in (timeout_s, self._deadline_s) if limit is not None]
        end_s = self._fed.now_s + min(limits, default=math.inf)
        numbers: list[str] = yield from self.push(letters)
        replies: list[Message] = []
        while True:
            replies += yield from self.pull(numbers)
            got = {str(reply.metadata.reply_to_message_id) for reply in replies}
            numbers = [number for number in numbers if number not in got]
            if not numbers or self._fed.now_s >= end_s:
                return replies
            yield self._fed.sleep(APP_POLL_S)

    def _begin(self, letters: Sequence[Letter]) -> None:
        invited = sum(map(is_training, (letter.message for letter in letters)))
        if invited:
            self._turns.begin(invited)

    def _handed(self, replies: Sequence[Message | None]) -> list[Message]:
        handed = [reply for reply in replies if reply is not None]
        self._turns.arrived(sum(reply.has_content() and is_training(reply) for reply in handed))
        return handed

    def _carry_alone(self, letter: Letter) -> Process:
        lives_s = float(letter.message.metadata.ttl)
        limit_s = lives_s if self._deadline_s is None or self._loops else min(lives_s, self._deadline_s)
        began_s = self._fed.now_s
        (result,) = yield self._fed.gather([self._carry(letter)], limit_s)
        number, left_s = letter.message.metadata.message_id, began_s + limit_s - self._fed.now_s
        if self._loops is not None:
            left_s = min(left_s, self._loops.unnoticed_s(self._announced_ns.get(number)))
        if result.lost and (self._lost == "silence" or self._loops is not None) and left_s > 0:
            yield self._fed.sleep(left_s)
        reply = self._reply(letter, result, expired=limit_s == lives_s)
        self.under_way -= 1
        if reply is not None:
            self._ready[number] = reply

    def _carry(self, letter: Letter) -> Process:
        """Send a message to its device and the reply to the server; return the last `Delivery`, which may be lost."""
        if self._loops is None:
            return (yield from self._carry_through(letter, None))
        yield from self._loops.fetch(letter.device)
        try:
            return (yield from self._carry_through(letter, self._loops))
        finally:
            self._loops.release(letter.device)

    def _carry_through(self, letter: Letter, loops: Loops | None) -> Process:
        fed, device, message = self._fed, self._fed.device(letter.device), letter.message
        got: Delivery = yield fed.downlink(device, letter.payload, size_bit(message))
        if got.lost:
            return got
        fetched_ns = fed.clock.now
        if loops is not None:
            yield from loops.start(letter.device)
        answering = self._clients.begin(device, message, letter.content)
        if answering.flop is None:
            yield fed.sleep(0.0)  # first, all devices whose messages arrive at this instant begin
        flop = answering.answer().flop if answering.flop is None else answering.flop
        yield device.compute(Work(flop, None))
        answer = answering.answer()
        if answer.slept_s:
            yield fed.sleep(answer.slept_s)
        if loops is not None:
            yield from loops.notice(fetched_ns)
            self._announced_ns[message.metadata.message_id] = fed.clock.now
        sent: Delivery = yield fed.uplink(device, answer.reply, size_bit(answer.reply))
        if sent.lost == "away":
            self._announced_ns.pop(message.metadata.message_id, None)
        return sent

    def _reply(self, letter: Letter, result: Delivery, expired: bool) -> Message | None:
        if not result.lost:
            reply: Message = result.payload
            return reply
        if not expired and (self._lost == "silence" or result.lost == "deadline"):
            return None
        name = Device(self._fed, letter.device).name
        down = result.sender == self._fed.server.index
        code, what = (LOST_MESSAGE, f"message to {name}") if down else (LOST_REPLY, f"reply of {name}")
        with at(self._fed.clock.now):
            return Message(Error(code, f"the {what} was lost: {result.lost}"), reply_to=letter.message)


# ---- size and identity of messages -----------------------------------------------------------------------------------


def size_bit(message: Message) -> int:
    """Return the size in bits of the content of a message: its records or its error.

    Records are counted as in Flower's `flwr.clientapp.mod.message_size_mod`.

    The metadata of the message and the framing of the transport are not included; `network.overhead` can add them.
    """
    if not message.has_content():
        return 8 * (ERROR_BYTE + len((message.error.reason or "").encode()))
    return 8 * sum(map(_byte, message.content.values()))


def _byte(record: Any) -> int:
    """Return the size of a record in bytes.

    Flower cannot count empty values, so that only their names are counted.
    """
    try:
        return int(record.count_bytes())
    except (ValueError, IndexError):
        empty = [name for name, value in record.items() if value in ("", b"", [])]
        rest = type(record)({name: value for name, value in record.items() if name not in empty})
        return int(rest.count_bytes()) + sum(len(name) for name in empty)


def is_training(message: Message) -> bool:
    """Return True if a message requests training, so that its type is `train` or `train.<action>`."""
    return str(message.metadata.message_type).partition(".")[0] == "train"


def fingerprint(content: RecordDict) -> bytes:
    """Return a hash of the names, types and contents of records."""
    whole = blake2b(digest_size=16)
    for key, record in content.items():
        whole.update(repr((key, type(record).__name__)).encode())
        if isinstance(record, ArrayRecord):
            for name, array in record.items():
                whole.update(repr((name, array.dtype, tuple(array.shape), array.stype)).encode())
                whole.update(array.data)
        else:
            whole.update(repr(list(record.items())).encode())
    return whole.digest()
