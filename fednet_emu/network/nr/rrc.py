"""Connections of the radio that are released after silence, and set up again before the next message."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.kernel.clock import to_ns
from fednet_emu.network.access.base import Use
from fednet_emu.network.air.transfer import FileTransfer, Transfer


class Idle(Component):
    """The rule by which the radio connection of a silent device is released."""


class Rrc(Idle):
    """Released after a timer: the next message first waits until the device is connected again.

    A device that trains for longer than the timer pays this once in each round (RRC_IDLE and RRC_CONNECTED, TS 38.331
    clauses 5.3.3 and 5.3.8). Messages in both directions count and wait; broadcasts do not, as they reach idle devices.
    At the start of a run no device is connected. Both defaults are assumptions, and differ by operator; a private cell
    may never release.
    Ignored here: paging cycles, the energy of the tail before the release, and that a message that is lost keeps the
    connection until then.
    """

    inactivity_s: float = Field(10.0, ge=0, le=1e6)
    """Time in s without a message after which the connection is released."""

    promotion_s: float = Field(0.2, ge=0, le=1e6)
    """Time in s until a device is connected again."""


IDLES: dict[str, type[Idle]] = kinds(Rrc)
AnyIdle = Annotated[Idle, Slot("idle", IDLES)]


@final
class RadioConnections:
    """The radio connections of all devices, over both directions."""

    def __init__(self, rrc: Rrc) -> None:
        self._inactivity_ns, self._promotion_ns = to_ns(rrc.inactivity_s), to_ns(rrc.promotion_s)
        self._stands_ns: dict[int, int] = {}  # since when each device is connected, or will be
        self._seen_ns: dict[int, int] = {}  # when its last message ended, as far as known
        self._under_way: dict[int, list[Transfer]] = {}

    def enter(self, transfer: Transfer, now_ns: int) -> int:
        """Note a message that is requested now; return the time in ns until its device is connected."""
        if type(transfer) is FileTransfer:  # other users keep their connection
            return 0
        device = max(transfer.sender, transfer.receiver)
        others = [other for other in self._under_way.get(device, ()) if not (other.triggered or other.cancelled)]
        self._under_way[device] = [*others, transfer]
        seen_ns = self._seen_ns.get(device)
        if not others and (seen_ns is None or now_ns - seen_ns > self._inactivity_ns):
            self._stands_ns[device] = now_ns + self._promotion_ns
        self._seen_ns[device] = max(now_ns, seen_ns or 0)
        return max(self._stands_ns[device] - now_ns, 0)

    def leave(self, transfer: Transfer, now_ns: int) -> None:
        """Note that the last bit of a message leaves the air."""
        self._seen_ns[max(transfer.sender, transfer.receiver)] = now_ns

    def around(self, use: Use) -> Use:
        """The same use of a band by devices that are connected first."""

        def before_ns(transfer: Transfer, now_ns: int) -> int:
            wait_ns = self.enter(transfer, now_ns)
            return wait_ns + (0 if use.before is None else use.before(transfer, now_ns + wait_ns))

        def after_ns(transfer: Transfer, now_ns: int) -> int:
            self.leave(transfer, now_ns)
            return 0 if use.after is None else use.after(transfer, now_ns)

        return use._replace(before=before_ns, after=after_ns)
