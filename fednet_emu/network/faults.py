"""Faults: causes, other than weak links, of lost transfers. A medium queries its faults until one reports a loss.

Each fault is queried twice for a transfer. At the start, it returns the time at which the transfer must end at the
latest. After the radio has delivered the transfer, it returns whether the transfer is lost.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Protocol, final

from pydantic import Field
from typing_extensions import override

from fednet_emu.arrays import IntArray
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.devices.availability import Presence
from fednet_emu.kernel.clock import FOREVER_NS
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.network.air.transfer import Grant, Transfer
from fednet_emu.records.reasons import add_reason


class Sent(Protocol):
    """Interface (`typing.Protocol`) of a message, on the air or on the backhaul."""

    size_bit: int
    requested_ns: int
    started_ns: int


class SentOnAir(Sent, Protocol):
    """Interface of a message on the air, between a device and the server or between two devices."""

    sender: int
    receiver: int
    grant: Grant[float] | None


class Fault:
    """A cause of lost transfers."""

    reason: ClassVar[str]
    """Reason for the loss, as it appears in the records; the reason of a new subclass is registered automatically."""

    @classmethod
    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "reason" in vars(cls):
            add_reason(cls.reason, (cls.__doc__ or cls.reason).partition("\n")[0].rstrip("."))

    @property
    def unsent(self) -> str:
        """Reason that is recorded if the fault prevents a transfer from starting; by default `reason`."""
        return self.reason

    def until_ns(self, transfer: Transfer, now_ns: int) -> int:
        """Return the time in ns at which the fault ends a transfer that starts now; `now_ns` if it cannot start."""
        return FOREVER_NS

    def fate(self, transfer: Sent, draw: float) -> str:
        """Return `reason` if the fault loses a transfer that the link has delivered; an empty string otherwise.

        Args:
            transfer: the transfer, on the air or on the backhaul.
            draw: random number, uniform in (0, 1), specific to the link and the transfer.
        """
        return ""


@final
class Absence(Fault):
    """Loss of a transfer because its sender or receiver leaves during the transfer."""

    reason: ClassVar[str] = "left"
    unsent: ClassVar[str] = "away"

    def __init__(self, presence: Presence) -> None:
        self._presence = presence

    @override
    def until_ns(self, transfer: Transfer, now_ns: int) -> int:
        until_ns = self._presence.until_ns
        return min(until_ns(transfer.sender, now_ns), until_ns(transfer.receiver, now_ns))


class Loss(Fault, Component):
    """Random loss of transfers, which a scenario sets, after their delivery by the radio."""

    reason: ClassVar[str] = "erased"


class NoLoss(Loss):
    """No random loss: transfers are lost for other reasons only, such as weak links and timeouts."""

    kind = "none"


class RandomLoss(Loss):
    """Each transfer is lost independently with the same probability; a lost transfer still uses airtime and energy."""

    kind = "random"
    probability: float = Field(ge=0, lt=1)

    @override
    def fate(self, transfer: Sent, draw: float) -> str:
        return self.reason if draw < self.probability else ""


LOSSES = kinds(NoLoss, RandomLoss)
AnyLoss = Annotated[Loss, Slot("loss", LOSSES)]


@final
class Faults:
    """The faults of one medium, in the order in which the medium queries them.

    Args:
        key: key of the random draws.
        numbers: [devices] numbers used as keys of random draws; None for the device numbers.

    Attributes:
        ending: the faults that may end a current transfer.
        losing: the faults that may lose a transfer that the radio has delivered.
    """

    def __init__(self, presence: Presence, loss: Loss, key: int, numbers: IntArray | None = None) -> None:
        faults = [*([] if presence.always else [Absence(presence)]), loss]
        self.ending = [fault for fault in faults if type(fault).until_ns is not Fault.until_ns]
        self.losing = [fault for fault in faults if type(fault).fate is not Fault.fate]
        self._key, self._numbers = key, numbers
        self._sent: dict[tuple[int, int], int] = {}

    def fate(self, transfer: SentOnAir) -> str:
        """Return why a transfer is lost after its delivery by the radio; an empty string if the transfer arrives."""
        link = (transfer.sender, transfer.receiver)
        count = self._sent[link] = self._sent.get(link, -1) + 1
        ends = link if self._numbers is None else [int(self._numbers[end]) if end >= 0 else end for end in link]
        key = mix(mix(self._key, ends[0] + 1), ends[1] + 1)
        if transfer.grant is not None and uniform(mix(key, 1), count) < transfer.grant.error:
            return RandomLoss.reason
        draw = uniform(key, count)
        for fault in self.losing:
            if lost := fault.fate(transfer, draw):
                return lost
        return ""
