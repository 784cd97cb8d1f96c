"""Polling loops by which Flower's processes find messages in a deployment; Flower's simulation omits these loops."""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, final

from numpy.random import Generator
from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.federation import Federation, Process

NS_PER_S = 1_000_000_000
NODE_POLL_S = 3.0
"""Polling interval of an idle SuperNode, in s."""
TASK_POLL_S = 1.0
"""Polling interval of SuperExec, in s."""
REPLY_POLL_S = 0.5
"""Interval in s at which a SuperNode looks for the reply of its `ClientApp`, from the arrival of the message on."""
APP_POLL_S = 3.0
"""Pause of a `ServerApp` between two collections of replies, in s."""
BACKOFF_S, MOST_BACKOFF_S, JITTER = 1.0, 10.0, 0.2
"""First and maximum pause in s of a collection that waits for an announced reply, and relative jitter of the pause,
which doubles each time."""
PUSH_SESSION_S = 180.0
"""Time in s after which an announced reply that has not arrived counts as lost."""
OFFLINE_S = 60.0
"""Time in s without a heartbeat after which a SuperNode is offline."""
FETCH_TRIPS, PUSH_TRIPS = 4, 6
"""Number of round trips, in addition to the data, of a message to a SuperNode and of a reply."""


class Control(Component):
    """Delays between the arrival of a message and its processing."""


class NoControl(Control):
    """No delays: messages are processed at once."""

    kind = "none"


class Flower141(Control):
    """The polling loops of a deployment of Flower 1.41 or 1.42.

    A SuperNode polls every 3 s, SuperExec every 1 s, the SuperNode looks for its reply every 0.5 s, and the `ServerApp`
    collects every 3 s; a collection that finds an announced reply waits 1, 2, 4, 8, 10 s, each within 20 %. A reply
    that is lost during its upload becomes an error 180 s after the start of the upload, any other loss of a device
    after 60 s. The phases of the loops are random. Source: constants of the packages flwr 1.41 and 1.42, which a test
    compares with the installed package.
    """

    kind = "flower-1.41"
    start_s: float = Field(1.3, ge=0)
    """Time in s to start a Flower process and import the app, which Flower does for each message. The default was
    measured in a live run of one SuperNode (Flower 1.42, an app with NumPy, a core of a server). This time depends on
    the host and on the number of simultaneous starts: three on two cores took 2.3 s. A live run measures and prints
    this time (`live.start_s` in the summary)."""
    rtt_s: float = Field(0.0, ge=0)
    """Round-trip time in s between a device and the server, in addition to the time on the air. A message takes 4 round
    trips, a reply 6."""


CONTROLS = kinds(NoControl, Flower141)
AnyControl = Annotated[Control, Slot("control", CONTROLS)]


@final
class Loops:
    """The polling loops of a run, as processes of simulated time."""

    def __init__(self, control: Flower141, fed: Federation) -> None:
        self._control, self._fed = control, fed
        self._draws: dict[int, Generator] = {}
        self._free_ns: dict[int, int] = {}  # time at which each idle SuperNode started to poll
        self._busy: set[int] = set()

    def _uniform(self, device: int) -> float:
        draws = self._draws.get(device)
        if draws is None:
            draws = self._draws[device] = self._fed.streams("flower control", device)
        return float(draws.random())

    def fetch(self, device: int) -> Process:
        """Wait until the SuperNode of a device has fetched the next message; the SuperNode is busy until `release`."""
        while device in self._busy:
            yield self._fed.sleep(REPLY_POLL_S)
        self._busy.add(device)
        now_ns = self._fed.clock.now
        if device not in self._free_ns:
            self._free_ns[device] = -round(self._uniform(device) * NODE_POLL_S * NS_PER_S)
        wait_ns = -(now_ns - self._free_ns[device]) % round(NODE_POLL_S * NS_PER_S)
        yield self._fed.sleep(wait_ns / NS_PER_S + FETCH_TRIPS * self._control.rtt_s)

    def start(self, device: int) -> Process:
        """Wait from the arrival of a message at the SuperNode of a device until the `ClientApp` runs."""
        yield self._fed.sleep(self._uniform(device) * TASK_POLL_S + self._control.start_s)

    def notice(self, fetched_ns: int) -> Process:
        """Wait until the SuperNode, which received the message at `fetched_ns`, has seen and announced the reply."""
        wait_ns = -(self._fed.clock.now - fetched_ns) % round(REPLY_POLL_S * NS_PER_S)
        yield self._fed.sleep(wait_ns / NS_PER_S + PUSH_TRIPS * self._control.rtt_s)

    def release(self, device: int) -> None:
        """Make the SuperNode of a device poll for the next message from now on."""
        self._busy.discard(device)
        self._free_ns[device] = self._fed.clock.now

    def unnoticed_s(self, announced_ns: int | None) -> float:
        """Return the time in s until the server detects the loss of a reply (announced at `announced_ns`) or device."""
        if announced_ns is None:
            return OFFLINE_S
        return PUSH_SESSION_S - (self._fed.clock.now - announced_ns) / NS_PER_S

    def collect(self, ready: Container[str], number: str) -> Process:
        """Wait until a collection finds that the announced reply `number` is complete."""
        pause_s = BACKOFF_S
        while number not in ready:
            spread = 1.0 + JITTER * (2.0 * self._uniform(self._fed.server.index) - 1.0)
            yield self._fed.sleep(pause_s * spread)
            pause_s = min(2.0 * pause_s, MOST_BACKOFF_S)
