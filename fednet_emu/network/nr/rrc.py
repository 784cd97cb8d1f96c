"""Radio connections that are released after a time without messages, and set up again before the next message."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.kernel.clock import to_ns
from fednet_emu.network.access.base import Use
from fednet_emu.network.air.transfer import FileTransfer, Transfer


class Idle(Component):
    """Rule for the release of the radio connection of a device without messages."""


class Rrc(Idle):
    """The radio connection is released after a timer; the next message waits until the device is connected again.

    The states are RRC_CONNECTED and RRC_IDLE (TS 38.331 clauses 5.3.3 and 5.3.8). A device that trains for longer than
    the timer waits for its connection once per round. Messages in both directions restart the timer and wait for the
    connection. Broadcasts reach idle devices; they neither restart the timer nor wait. At the start of a run no device
    is connected. Both defaults are assumptions; the values differ between operators, and a private cell may never
    release connections.
    Ignored here: paging cycles, the energy before the release, and the restart of the timer by lost messages.
    """

    inactivity_s: float = Field(10.0, ge=0, le=1e6)
    """Time in s without messages after which the connection is released."""

    promotion_s: float = Field(0.2, ge=0, le=1e6)
    """Time in s for setting up the connection of an idle device."""


IDLES: dict[str, type[Idle]] = kinds(Rrc)
AnyIdle = Annotated[Idle, Slot("idle", IDLES)]


@final
class RadioConnections:
    """The radio connections of all devices; uplink and downlink use the same connections."""

    def __init__(self, rrc: Rrc) -> None:
        self._inactivity_ns, self._promotion_ns = to_ns(rrc.inactivity_s), to_ns(rrc.promotion_s)
        self._stands_ns: dict[int, int] = {}  # time from which on each device is connected
        self._seen_ns: dict[int, int] = {}  # time of the latest known activity of each device
        self._under_way: dict[int, list[Transfer]] = {}

    def enter(self, transfer: Transfer, now_ns: int) -> int:
        """Register a message that is requested now; return the time in ns until its device is connected."""
        if type(transfer) is FileTransfer:  # other users are always connected
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
        self._seen_ns[max(transfer.sender, transfer.receiver)] = now_ns

    def around(self, use: Use) -> Use:
        """Return a copy of the scheme's settings `use` in which transfers also wait for the device's RRC connection."""

        def before_ns(transfer: Transfer, now_ns: int) -> int:
            wait_ns = self.enter(transfer, now_ns)
            return wait_ns + (0 if use.before is None else use.before(transfer, now_ns + wait_ns))

        def after_ns(transfer: Transfer, now_ns: int) -> int:
            self.leave(transfer, now_ns)
            return 0 if use.after is None else use.after(transfer, now_ns)

        return use._replace(before=before_ns, after=after_ns)
