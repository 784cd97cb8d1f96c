"""A transfer: one payload sent to one receiver, from the request to the delivery."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, final
from weakref import ref

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.kernel.clock import FOREVER_NS, Clock
from fednet_emu.kernel.events import Completion, not_awaited
from fednet_emu.records.ledger import NEVER_NS, SERVER, device_label
from fednet_emu.records.rows import KINDS


class Delivery(NamedTuple):
    """Outcome of one transfer at one receiver; `lost` is the reason of a loss, empty when the payload has arrived."""

    sender: int
    receiver: int
    payload: Any
    size_bit: int
    requested_s: float
    started_s: float
    ended_s: float
    lost: str = ""

    @property
    def latency_s(self) -> float:
        """Time in s from the request to the end, including the wait for the channel."""
        return self.ended_s - self.requested_s

    @classmethod
    def given_up(cls, now_s: float) -> Delivery:
        """The outcome of a transfer that the algorithm gives up now: lost for the reason "deadline"."""
        return cls(SERVER, SERVER, None, 0, now_s, float("nan"), now_s, "deadline")


N = TypeVar("N", Array, float)


class Grant(NamedTuple, Generic[N]):
    """The plan for one device of a round, in numbers, or for all devices, in arrays [n].

    Attributes:
        share: part of the band, 1 where devices take turns on the whole of it; 0 for one that is left out of the round.
        power_part: part of the full transmit power.
        clock_part: part of the full clock.
        ends_s: when its upload should arrive, from the start of the round.
        noise: noise and interference over the noise alone in its part of the band.
        error: probability that its upload is lost, in addition to other losses.
    """

    share: N
    power_part: N
    clock_part: N
    ends_s: N
    noise: N
    error: N

    @staticmethod
    def undisturbed(share: Array, power_part: Array, clock_part: Array, ends_s: Array) -> Grant[Array]:
        """Grants without interference and errors."""
        return Grant(share, power_part, clock_part, ends_s, np.ones(len(share)), np.zeros(len(share)))


class Message(NamedTuple):
    """A payload on its way to one receiver.

    Attributes:
        payload: content of the delivery.
        size_bit: bits on the air.
        number: number of the payload in the records; -1 for none.
        group: where the medium has multicast, requests of one instant by one sender with the same group are one
            broadcast; None for a transfer of its own.
        grant: plan of the transfer; None without a plan.
    """

    payload: Any
    size_bit: int
    number: int = -1
    group: Hashable = None
    grant: Grant[float] | None = None


@dataclass(slots=True)
class Phases:
    """Delays of one transfer in addition to its turn and its time on the air, and the sizes of its message.

    Attributes:
        payload_bit: bits that the transport is given to carry.
        wire_bit: payload and headers, the bits on the air.
        reverse_bit: acknowledgements that the receiver returns; they take no time on the air.
        access_ns: wait for access.
        setup_ns: wait for a connection, and for software.
        gap_ns: time between the first bit on the air and the last in which the sender waited for acknowledgements.
        tail_ns: time from its last bit on the air until it is received.
        window_bit: bits that the first round trip may carry; 0 for no limit.
        refused: why the transfer is lost, without being sent, when its waits are over; empty if it is not.
    """

    payload_bit: int
    wire_bit: int
    reverse_bit: int = 0
    access_ns: int = 0
    setup_ns: int = 0
    gap_ns: int = 0
    tail_ns: int = 0
    window_bit: int = 0
    refused: str = ""

    @property
    def wait_ns(self) -> int:
        """Time in ns from the request until the transfer may queue for its turn, or start."""
        return self.setup_ns + self.access_ns

    def cut(self, passed_ns: int) -> None:
        """Note that a transfer that never started has ended after this time in ns."""
        self.setup_ns = min(self.setup_ns, passed_ns)
        self.access_ns = min(self.access_ns, passed_ns - self.setup_ns)


class Transfer(Completion):
    """Event that triggers when a transfer has ended, delivered or lost; its value is the `Delivery`.

    Args:
        kind: 0 for an uplink, 1 for a downlink, 2 for a sidelink.
        stop: cancels the given transfer for the given reason, whether it waits or is on the air.
    """

    # All attributes are set per instance: class defaults slow attribute access.
    def __init__(
        self,
        clock: Clock,
        kind: int,
        stop: Callable[[Transfer, str], None],
        sender: int,
        receiver: int,
        message: Message,
    ) -> None:
        self.env = clock  # what `Completion` does, without its call
        self.callbacks = []
        self._ok = True
        self.kind = kind
        self._stop = stop
        self.sender, self.receiver = sender, receiver
        self.content, self.size_bit, self.number, self.group, self.grant = message
        self.requested_ns: int = clock.now
        self.started_ns = NEVER_NS
        self.until_ns = FOREVER_NS  # time of the timeout or of an end's departure, as `until_reason` says
        self.until_reason = "timeout"
        self.snr = 0.0
        self.fading_key = 0
        self.cell = 0
        self.cluster = 0
        self.air_bit = 0.0
        self.power_part = 1.0
        self.phases: Phases | None = None  # None where transfers have no delays in addition to turn and air
        self.drawn_w = 0.0
        self.power_s = 0.0  # time on the air times share of the sender's power; set in the first transfer of a burst
        self.spent_j = 0.0  # energy drawn before that, at other powers
        self.lost = ""  # why it was lost, or empty; final at its end
        self.cancelled = ""

    @property
    def payload(self) -> Any:
        """Not available: the payload is in the delivery, the value of this event.

        Raises:
            AlgorithmError: always.
        """
        raise not_awaited(self, "its payload")

    def settle(self, power_s: float) -> None:
        """Settle the energy of a time on the air, times share of the sender's power, before that power changes."""
        self.spent_j += self.drawn_w * power_s

    def cancel(self, outcome: Any) -> None:
        """Stop the transfer for the reason in `outcome`, a lost `Delivery`."""
        self._stop(self, outcome.lost)

    def describe(self) -> str:
        """Describe this transfer, for deadlock messages."""
        return described(self.kind, self.sender, self.receiver)


@final
class FileTransfer(Transfer):
    """A file of another user, see `network.traffic`; the federation's records do not contain it.

    Attributes:
        arrived_ns: arrival of the file, since which its delay counts.
        user: number of the user in its class.
        slice: number of its slice.
    """

    arrived_ns: int
    user: int
    slice: int


def described(kind: int, sender: int, receiver: int) -> str:
    """Describe a transfer by its direction and its ends."""
    return f"the {KINDS[kind]} from {device_label(sender)} to {device_label(receiver)}"


@final
class Unheard:
    """A transfer that ended without a waiting process; a process may wait for it later, as long as it exists."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer, self._attributes = ref(transfer), vars(transfer)  # these outlive the transfer itself

    @property
    def is_forgotten(self) -> bool:
        """Whether no process has waited for it later, and none can any more."""
        return self._transfer() is None and "late" not in self._attributes

    def describe(self) -> str:
        """Describe the transfer."""
        return described(*(self._attributes[name] for name in ("kind", "sender", "receiver")))


Burst = list[Transfer]
"""Transfers that share one airtime: a single transfer, or one for each receiver of a broadcast."""
