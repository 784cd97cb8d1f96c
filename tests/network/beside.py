"""The same play of requests and cancellations on media and airs that should write the same books."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st
from simpy.events import NORMAL

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.kernel.clock import COLLECT, Clock
from fednet_emu.network.access.base import Access
from fednet_emu.network.access.orthogonal import Tdma
from fednet_emu.network.air.transfer import Delivery, Grant, Message, Transfer
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.records.ledger import SERVER, Ledger
from tests.network.media import HandMadeLinks, medium_of

MS = 1_000_000


class Request(NamedTuple):
    """A request, and what else is asked of it."""

    at_ns: int
    device: int
    size_bit: int
    again: int = 0
    power_part: float = 1.0
    grant: Grant[float] | None = None


class Cancelling(NamedTuple):
    """The cancellation of a request, before or after all else of an instant."""

    request: int
    at_ns: int
    last: bool = False


class World:
    """A medium, and the log of what its senders see."""

    def __init__(self, snr: Sequence[float], **options: Any) -> None:
        self.clock, self.ledger, self.log = Clock(), Ledger(), []
        presence = Presence(options.pop("availability", Always()), 5, len(snr))
        self.medium = medium_of(
            options.pop("access", Tdma()), options.pop("law", Shannon()), HandMadeLinks(snr), len(snr),
            clock=self.clock, ledger=self.ledger, presence=presence, **options,
        )  # fmt: skip
        self.sent: dict[int, Transfer] = {}

    def play(self, asked: Sequence[Request], cancelled: Sequence[Cancelling], until_ns: int) -> tuple[Any, ...]:
        """Play to the end of the run; what came of it."""
        for number, request in enumerate(asked):
            self.clock.call_at(request.at_ns, lambda _, now=(number, request): self.ask(*now), NORMAL)
        for one in cancelled:
            self.clock.call_at(one.at_ns, lambda _, one=one: self.cancel(one.request), COLLECT if one.last else NORMAL)
        self.clock.run(until_ns + 1)
        self.medium.close()
        unheard = [one.describe() for one in self.medium.unheard]
        rows = [row for block in self.ledger.transfers.blocks() for row in block.tolist()]
        return rows, self.log, unheard, self.ledger.energy_j, self.ledger.sent_bit, self.ledger.offered_bit

    def ask(self, number: int, request: Request) -> None:
        """Send, and log the delivery; some requests are made again when they have ended, some have nobody who waits."""
        ends = (request.device, SERVER) if self.medium.kind == 0 else (SERVER, request.device)
        message = Message(f"payload {number}", request.size_bit, number, grant=request.grant)
        transfer = self.sent[number] = self.medium.send(*ends, message, power_part=request.power_part)
        if request.again < 0:
            return

        def note(event: Any) -> None:
            self.log.append((number, self.clock.now, event.value))
            if request.again:
                self.ask(number, request._replace(again=request.again - 1))

        transfer.callbacks.append(note)

    def cancel(self, number: int) -> None:
        if number in self.sent:
            self.sent[number].cancel(Delivery.given_up(self.clock.now_s))
            self.log.append((number, self.clock.now, "cancelled"))


def general(access: Access) -> Access:
    """The same scheme on the general air: it says that it is never plain."""
    never = {"plain_rule": lambda _: None, "plain_duty": property(lambda _: None)}
    scheme = type("General", (type(access),), {**never, "kind": access.kind})
    return scheme.model_construct(**dict(access))


def instants_of(rows: Sequence[tuple[Any, ...]]) -> set[int]:
    return {time_ns for row in rows for time_ns in row[6:9]}


instants = st.integers(0, 40).map(lambda step: step * MS) | st.integers(0, 60 * MS)
requests = st.builds(
    Request, instants, st.integers(0, 3), st.sampled_from([0, 1, 800, 20_000, 20_000, 200_000]),
    st.sampled_from([-1, 0, 0, 1, 3]), st.sampled_from([1.0, 1.0, 0.3]),
    st.sampled_from([None, None, None, Grant(1.0, 0.5, 1.0, 1.0, 1.0, 0.4)]),
)  # fmt: skip
cancellings = st.builds(Cancelling, st.integers(0, 11), instants, st.booleans())
