"""Polling loops by which Flower's processes find messages in a deployment, but not in Flower's simulation."""

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
"""Interval in s at which a SuperNode checks for the reply of its `ClientApp`, counted from the arrival of the
message."""
APP_POLL_S = 3.0
"""Pause in s of a `ServerApp` between two attempts to collect replies."""
BACKOFF_S, MOST_BACKOFF_S, JITTER = 1.0, 10.0, 0.2
"""Pauses of a `ServerApp` while it waits for a reply that the client has announced: the first and the maximum pause in
s, and the relative jitter. The pause doubles after each attempt."""
PUSH_SESSION_S = 180.0
"""Time in s after the announcement of a reply at which the server counts the reply as lost, if it has not arrived."""
OFFLINE_S = 60.0
"""Time in s without a heartbeat after which a SuperNode counts as offline."""
FETCH_TRIPS, PUSH_TRIPS = 4, 6
"""Number of round trips needed, in addition to the transfer of data, to fetch a message and to return a reply."""


class Control(Component):
    """Delays between the arrival of a message and the time at which a Flower process handles the message."""


class NoControl(Control):
    """No delays: messages are handled immediately."""

    kind = "none"


class Flower141(Control):
    """The polling loops of a deployment of Flower 1.41 or 1.42.

    A SuperNode polls for messages every 3 s, and SuperExec for tasks every 1 s. The SuperNode checks for the reply of
    its `ClientApp` every 0.5 s. The `ServerApp` tries to collect replies every 3 s; while an announced reply is
    incomplete, it tries again after 1, 2, 4, 8, 10, 10, ... s, each within 20 %. If a reply is lost during its upload,
    the server gets an error 180 s after the start of the upload. After any other loss, the server gets an error 60 s
    later. The phases of the loops are random. Source: constants of the packages flwr 1.41 and 1.42, which a test
    compares with the installed package.
    """

    kind = "flower-1.41"
    start_s: float = Field(1.3, ge=0)
    """Time in s to start a Flower process and import the app, which Flower does for each message. The default was
    measured in a live run with one SuperNode (Flower 1.42, an app with NumPy, one core of a server). The start-up time
    depends on the host and on the number of simultaneous starts: three starts on two cores took 2.3 s. A live run
    measures and prints the start-up time (`live.start_s` in the summary)."""
    rtt_s: float = Field(0.0, ge=0)
    """Round-trip time in s between a device and the server, in addition to the time on the air. A message needs 4 round
    trips, and a reply 6."""


CONTROLS = kinds(NoControl, Flower141)
AnyControl = Annotated[Control, Slot("control", CONTROLS)]


@final
class Loops:
    """The polling loops of a run. Most methods return a simulation process, which waits for simulated time to pass."""

    def __init__(self, control: Flower141, fed: Federation) -> None:
        self._control, self._fed = control, fed
        self._draws: dict[int, Generator] = {}
        self._free_ns: dict[int, int] = {}  # time at which each SuperNode last started to poll
        self._busy: set[int] = set()

    def _uniform(self, device: int) -> float:
        draws = self._draws.get(device)
        if draws is None:
            draws = self._draws[device] = self._fed.streams("flower control", device)
        return float(draws.random())

    def fetch(self, device: int) -> Process:
        """Wait until the SuperNode of a device has fetched its next message; it then stays busy until `release`."""
        while device in self._busy:
            yield self._fed.sleep(REPLY_POLL_S)
        self._busy.add(device)
        now_ns = self._fed.clock.now
        if device not in self._free_ns:
            self._free_ns[device] = -round(self._uniform(device) * NODE_POLL_S * NS_PER_S)
        wait_ns = -(now_ns - self._free_ns[device]) % round(NODE_POLL_S * NS_PER_S)
        yield self._fed.sleep(wait_ns / NS_PER_S + FETCH_TRIPS * self._control.rtt_s)

    def start(self, device: int) -> Process:
        """Wait for the time from the arrival of a message at a device's SuperNode to the start of the `ClientApp`."""
        yield self._fed.sleep(self._uniform(device) * TASK_POLL_S + self._control.start_s)

    def notice(self, fetched_ns: int) -> Process:
        """Wait until a SuperNode that received its message at `fetched_ns` (ns) has found and announced the reply."""
        wait_ns = -(self._fed.clock.now - fetched_ns) % round(REPLY_POLL_S * NS_PER_S)
        yield self._fed.sleep(wait_ns / NS_PER_S + PUSH_TRIPS * self._control.rtt_s)

    def release(self, device: int) -> None:
        """Mark the SuperNode of a device as idle, so that it polls for its next message from now on."""
        self._busy.discard(device)
        self._free_ns[device] = self._fed.clock.now

    def unnoticed_s(self, announced_ns: int | None) -> float:
        """Return the time in s from now until the server detects a loss.

        `announced_ns` is the time in ns at which the lost reply was announced; it is None if no reply was announced.
        """
        if announced_ns is None:
            return OFFLINE_S
        return PUSH_SESSION_S - (self._fed.clock.now - announced_ns) / NS_PER_S

    def collect(self, ready: Container[str], number: str) -> Process:
        """Wait until the announced reply with the ID `number` is in `ready`; the pauses between checks grow."""
        pause_s = BACKOFF_S
        while number not in ready:
            spread = 1.0 + JITTER * (2.0 * self._uniform(self._fed.server.index) - 1.0)
            yield self._fed.sleep(pause_s * spread)
            pause_s = min(2.0 * pause_s, MOST_BACKOFF_S)
