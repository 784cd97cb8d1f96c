"""Flower's `Grid` on the emulated network, through which a `ServerApp` sends messages and waits for replies.

The app runs in a greenlet. When the app would block, `wait` passes a simulation process to the engine, and the app
continues with the result of this process. No threads are used, so that results do not depend on the host's scheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, final

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from greenlet import GreenletExit, getcurrent, greenlet

from fednet_emu.errors import Deadlock
from fednet_emu.federation import Federation, Process
from fednet_emu.flower.post import Post
from fednet_emu.flower.scores import Scores
from fednet_emu.flower.versions import FIRST_NODE, empty_run

WARNINGS = 10
"""Number of times that a program may ignore a request to end, before the program is abandoned."""
POLL_S = 0.1
"""Pause in simulated s after an attempt to pull replies that finds none, if the app has already tried at the same
instant. Flower's in-memory Grid has the same pause."""
LOOKS = 1000
"""Maximum number of queries for nodes at one instant. Each further query waits for the simulated time `POLL_S`."""
VAIN_WAITS = 1000
"""Number of waits after which an app counts as deadlocked, if no message is in transit and devices are always
available."""
VAIN_WAITS_FOR_SOMEBODY = 100_000
"""Number of waits after which an app counts as deadlocked, if no message is in transit and devices can be absent. So
many waits take about a day of simulated time, because Flower's strategies wait 1 s each time."""


@final
class Program:
    """A program that runs in simulated time, and blocks by calling `wait`.

    Args:
        inside: function that returns a context manager, inside which the program runs between two calls of `wait`.
    """

    def __init__(self, main: Callable[[], Any], inside: Callable[[], AbstractContextManager[Any]]) -> None:
        self._greenlet, self._inside = greenlet(main), inside
        self._closing = False
        self._told_to_end = 0

    @property
    def is_here(self) -> bool:
        """True if the code that reads this property belongs to the program."""
        return getcurrent() is self._greenlet

    def wait(self, process: Process) -> Any:
        """Run a simulation process while the program waits; return its result. If the run is over, end the program."""
        if self._closing:
            self._told_to_end += 1
            if self._told_to_end > WARNINGS:
                self._greenlet.parent.switch(None)  # abandoned: the program catches every exception in a loop
            raise GreenletExit
        return self._greenlet.parent.switch(process)

    def process(self) -> Process:
        """Run the program as a simulation process. An exception of an awaited process ends it, and is raised here."""
        answer: Any = None
        try:
            while True:
                with self._inside():
                    wish = self._greenlet.switch(answer) if self._greenlet else self._greenlet.switch()
                if self._greenlet.dead:
                    return wish
                answer = yield from wish
        finally:
            self.close()

    def close(self) -> None:
        """End the program while it waits. Its `finally` blocks are executed, but cannot wait again."""
        self._closing = True
        if self._greenlet and not self._greenlet.dead:
            with self._inside():
                self._greenlet.throw()


@final
class EmulatedGrid(Grid):  # type: ignore[misc]
    """Flower's `Grid` with the available devices as nodes; sending and waiting take simulated time.

    Attributes:
        scores: recorder of the metrics of clients and strategies.
        program: the program of the server app, set before the app runs.
        together: function that replaces `send_and_receive` while messages of several callers are collected; None
            otherwise.
    """

    def __init__(self, fed: Federation, post: Post, scores: Scores) -> None:
        self._fed, self._post, self.scores = fed, post, scores
        self.program: Program | None = None
        self._run = empty_run()
        self._vain = 0
        self._pulled_ns = -1
        self._looks, self._looked_ns = 0, -1
        self.together: Callable[[list[Message]], list[Message]] | None = None

    @property
    def run(self) -> Any:
        """Flower's description of the run, which apps may read."""
        return self._run

    def set_run(self, run: Any) -> None:
        """Do nothing, because the grid belongs to a single run."""

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a new Flower message with the records `content`, addressed to the node `dst_node_id`."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return the node IDs of the available devices, in ascending order."""
        self._looks = self._looks + 1 if self._looked_ns == self._fed.clock.now else 1
        self._looked_ns = self._fed.clock.now
        if self._looks > LOOKS:
            self.sleep(POLL_S)
        return [int(device) + FIRST_NODE for device in self._fed.presence.present(self._fed.clock.now)]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages without waiting for replies, and return the IDs of the messages for `pull_messages`."""
        self._vain = 0
        return list(self._wait(self._post.push(self._post.letters(list(messages)))))

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies to the messages with these IDs that have arrived and were not returned before."""
        numbers = list(message_ids)
        replies: list[Message] = self._wait(self._post.pull(numbers))
        if replies:
            self._vain = 0
            self.scores.replies(replies)
        elif self._pulled_ns == self._fed.clock.now:
            self.sleep(POLL_S)
        self._pulled_ns = self._fed.clock.now
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages, wait at most `timeout` simulated seconds, and return the replies that have arrived."""
        given = list(messages)
        if self.together is not None:
            return self.together(given)
        letters: Sequence[Any] = self._post.letters(given)
        if not letters:
            self._wait_in_vain()
            return []
        self._vain = 0
        replies: list[Message] = self._wait(self._post.exchange(letters, timeout))
        self.scores.replies(replies)
        return replies

    def sleep(self, duration_s: float) -> None:
        """Wait for `duration_s` seconds of simulated time."""
        self._wait_in_vain()
        self._wait(self._asleep(duration_s))

    def _asleep(self, duration_s: float) -> Process:
        yield self._fed.sleep(duration_s)

    def _wait(self, process: Process) -> Any:
        assert self.program is not None
        if not self.program.is_here:
            raise RuntimeError("grid: is used in another thread, got none of the app's own; use it in the main one")
        return self.program.wait(process)

    def _wait_in_vain(self) -> None:
        """Count a wait, to detect an app that waits for an impossible event, for example for more nodes than exist.

        Raises:
            Deadlock: the app has waited too many times while no message was in transit. The maximum number of waits is
                smaller if no device can be absent.
        """
        self._vain += 1
        always = self._fed.presence.always
        limit = VAIN_WAITS if always else VAIN_WAITS_FOR_SOMEBODY
        if self._vain < limit or self._post.under_way:
            return
        there = f"all {self._fed.n_devices} nodes are there" if always else f"there are {self._fed.n_devices} nodes"
        what = f"the app has waited {limit} times, but {there}, and no message is under way"
        raise Deadlock(self._fed.now_s, f"{what}; does it need more nodes?")
