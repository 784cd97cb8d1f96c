"""A transfer: the transport of one payload to one receiver, from the request to the delivery."""

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
    """Outcome of one transfer to one receiver.

    `lost` is empty if the payload has arrived, and otherwise the reason for the loss. Times are in s of simulated time;
    `started_s` is NaN if the transfer has not started.
    """

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
        """Time in s from the request to the end of the transfer, including the wait for the channel."""
        return self.ended_s - self.requested_s

    @classmethod
    def given_up(cls, now_s: float) -> Delivery:
        """Return the outcome of a transfer that the algorithm aborts at `now_s`: lost for the reason "deadline"."""
        return cls(SERVER, SERVER, None, 0, now_s, float("nan"), now_s, "deadline")


N = TypeVar("N", Array, float)


class Grant(NamedTuple, Generic[N]):
    """The resources planned in a round for one device (each attribute is a number) or for all devices (arrays [n]).

    Attributes:
        share: share of the band; 1 if devices take turns on the whole band, 0 for a device that skips the round.
        power_part: fraction of the full transmit power.
        clock_part: fraction of the full clock frequency.
        ends_s: planned arrival time of the upload, in s from the start of the round.
        noise: noise plus interference in the device's part of the band, relative to the noise alone.
        error: probability that the upload is lost, in addition to other losses.
    """

    share: N
    power_part: N
    clock_part: N
    ends_s: N
    noise: N
    error: N

    @staticmethod
    def undisturbed(share: Array, power_part: Array, clock_part: Array, ends_s: Array) -> Grant[Array]:
        """Return the grants of all devices [n], without interference and with the loss probability 0."""
        return Grant(share, power_part, clock_part, ends_s, np.ones(len(share)), np.zeros(len(share)))


class Message(NamedTuple):
    """A payload that is sent to one receiver.

    Attributes:
        payload: content to deliver.
        size_bit: number of bits on the air.
        number: serial number of the payload in the records; -1 for a payload without such a number.
        group: key of a broadcast. On a medium with multicast, messages that a sender sends at the same instant with the
            same `group` are one broadcast; a message whose `group` is None is a separate transfer.
        grant: planned resources of the transfer; None if there is no plan.
    """

    payload: Any
    size_bit: int
    number: int = -1
    group: Hashable = None
    grant: Grant[float] | None = None


@dataclass(slots=True)
class Phases:
    """Sizes of a transfer's message, and all its delays except the time in the queue and the airtime.

    Attributes:
        payload_bit: bits of the payload that is handed to the transport protocol.
        wire_bit: bits on the air: the payload and its headers.
        ack_bit: bits of the receiver's acknowledgements, which take no airtime.
        grant_delay_ns: delay in ns for channel access.
        connection_setup_ns: delay in ns for the setup of a connection, and for software.
        ack_wait_ns: total time in ns, after the first bit on the air, in which the sender waits for acknowledgements.
        reception_delay_ns: time in ns from the last bit on the air to its reception.
        window_bit: maximum number of bits in the first round trip; 0 for no limit.
        refused: reason for which the transfer is lost after its delays without being sent; empty for a transfer that is
            sent.
    """

    payload_bit: int
    wire_bit: int
    ack_bit: int = 0
    grant_delay_ns: int = 0
    connection_setup_ns: int = 0
    ack_wait_ns: int = 0
    reception_delay_ns: int = 0
    window_bit: int = 0
    refused: str = ""

    @property
    def wait_ns(self) -> int:
        """Time in ns from the request until the transfer may enter the queue or start."""
        return self.connection_setup_ns + self.grant_delay_ns

    def cut(self, passed_ns: int) -> None:
        """Truncate the delays of a transfer that was cancelled before its start, `passed_ns` ns after its request."""
        self.connection_setup_ns = min(self.connection_setup_ns, passed_ns)
        self.grant_delay_ns = min(self.grant_delay_ns, passed_ns - self.connection_setup_ns)


class Transfer(Completion):
    """Event that triggers when a transfer has ended (delivered or lost); the value of the event is the `Delivery`.

    Args:
        kind: 0 for an uplink, 1 for a downlink, 2 for a sidelink.
        stop: function that cancels a transfer which waits or is on the air, given the transfer and the reason.
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
        self.env = clock  # same code as in `Completion.__init__`, which is faster than a call
        self.callbacks = []
        self._ok = True
        self.kind = kind
        self._stop = stop
        self.sender, self.receiver = sender, receiver
        self.content, self.size_bit, self.number, self.group, self.grant = message
        self.requested_ns: int = clock.now
        self.started_ns = NEVER_NS
        self.until_ns = FOREVER_NS  # time of the timeout or of a device's departure; `until_reason` says which
        self.until_reason = "timeout"
        self.snr = 0.0
        self.fading_key = 0
        self.cell = 0
        self.cluster = 0
        self.transmitted_bit = 0.0
        self.power_part = 1.0
        self.phases: Phases | None = None  # None if transfers have no delays other than queueing and airtime
        self.drawn_w = 0.0
        self.power_s = 0.0  # airtime times share of the sender's power; set only in the first transfer of a burst
        self.spent_j = 0.0  # energy used before the last change of power; `power_s` counts from then on
        self.lost = ""  # reason for a loss, or empty; final at the end of the transfer
        self.cancelled = ""

    @property
    def payload(self) -> Any:
        """Not available: the payload is in the `Delivery`, which is the value of this event.

        Raises:
            AlgorithmError: always.
        """
        raise not_awaited(self, "its payload")

    def settle(self, power_s: float) -> None:
        """Add the energy used so far to `spent_j`; must be called before the transmit power changes.

        `power_s` is the airtime in s since the last change, multiplied by the fraction of the sender's power.
        """
        self.spent_j += self.drawn_w * power_s

    def cancel(self, outcome: Any) -> None:
        self._stop(self, outcome.lost)

    def describe(self) -> str:
        return described(self.kind, self.sender, self.receiver)


@final
class FileTransfer(Transfer):
    """Transfer of a file of a user outside the federation, which is recorded in a separate table.

    Attributes:
        arrived_ns: arrival time of the file in ns, from which its delay counts.
        user: index of the user in its traffic class.
        slice: index of the network slice.
    """

    arrived_ns: int
    user: int
    slice: int


def described(kind: int, sender: int, receiver: int) -> str:
    """Return a text that describes a transfer by its direction, its sender and its receiver."""
    return f"the {KINDS[kind]} from {device_label(sender)} to {device_label(receiver)}"


@final
class Unheard:
    """A transfer that ended while no simulation process waited for its event.

    A process may still wait for the event later, as long as the event exists.
    """

    def __init__(self, transfer: Transfer) -> None:
        self._transfer, self._attributes = ref(transfer), vars(transfer)  # the attributes outlive the transfer

    @property
    def is_forgotten(self) -> bool:
        """True if no process has waited for the transfer, and no process can wait for it any more."""
        return self._transfer() is None and "late" not in self._attributes

    def describe(self) -> str:
        return described(*(self._attributes[name] for name in ("kind", "sender", "receiver")))


Burst = list[Transfer]
"""One transmission, as the list of its transfers: a single transfer, or one transfer for each receiver of a
broadcast."""
