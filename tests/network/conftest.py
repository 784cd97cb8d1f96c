"""A cell with hand-made links, on which a test plays requests and reads deliveries and rows."""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pytest

from fednet_emu.devices.availability import Always, Availability, Presence
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.network.access.base import Access, DelayNs
from fednet_emu.network.access.orthogonal import Tdma
from fednet_emu.network.air.transfer import Delivery, Message
from fednet_emu.network.faults import Loss
from fednet_emu.network.medium.loads import Radios
from fednet_emu.network.transport.transports import Connections
from fednet_emu.radio.fading import Fading, NoFading
from fednet_emu.radio.rates.shannon import FixedRate, RateLaw
from fednet_emu.radio.receiver.combining import ONE_ANTENNA, Reception
from fednet_emu.records.laws import verify
from fednet_emu.records.ledger import SERVER, Ledger
from tests.network.media import FADING_KEY, HandMadeLinks, medium_of


class Cell:
    """One medium, its clock and its books."""

    def __init__(
        self,
        access: Access | None = None,
        law: RateLaw | None = None,
        fading: Fading | None = None,
        *,
        snr: Sequence[float] = (1.0,) * 8,
        bandwidth_hz: float = 1e6,
        loss: Loss | None = None,
        multicast: bool = False,
        timeout_s: float = 3600.0,
        drawn_w: float = 0.2,
        rx_consumption_w: float = 0.0,
        availability: Availability | None = None,
        reception: Reception = ONE_ANTENNA,
        radios: Radios | None = None,
        cells: int = 1,
        connections: Connections | None = None,
        before: DelayNs | None = None,
        after: DelayNs | None = None,
    ) -> None:
        self.clock, self.ledger = Clock(), Ledger()
        access = access or Tdma()
        laws = law or FixedRate(bit_rate_bps=1e6), fading or NoFading()
        self.exclusive = frozenset({"downlink" if multicast else "uplink"} if access.capacity == 1 else ())
        self.presence = Presence(availability or Always(), 99, len(snr))
        self.medium = medium_of(
            access,
            laws[0],
            HandMadeLinks(snr),
            len(snr),
            way="downlink" if multicast else "uplink",
            clock=self.clock,
            ledger=self.ledger,
            presence=self.presence,
            fading=laws[1],
            multicast=multicast,
            timeout_s=timeout_s,
            loss=loss,
            drawn_w=drawn_w,
            rx_consumption_w=rx_consumption_w,
            radios=radios,
            cells=cells,
            connections=connections,
            before=before,
            after=after,
            bandwidth_hz=bandwidth_hz,
            reception=reception,
        )
        self.band = self.medium.band

    def play(self, *requests: tuple[float, int, int], payload: Any = "payload") -> list[Delivery]:
        """Send (at_s, device, size_bit) to the server, or from it with `multicast`; deliveries in the given order."""
        started = [self.clock.process(self._send(request, payload)) for request in requests]

        def everything() -> Any:
            yield self.clock.all_of(started)

        self.clock.run_process(everything())
        self.close()
        return [process.value for process in started]

    def _send(self, request: tuple[float, int, int], payload: Any) -> Any:
        at_s, device, size_bit = request
        yield self.clock.sleep(at_s)
        together = self.medium.settings.broadcasts
        ends = (SERVER, device) if together else (device, SERVER)
        return (yield self.medium.send(*ends, Message(payload, size_bit, 0, 0 if together else None)))

    def close(self) -> None:
        self.medium.close()
        broken = {law: text for law, text in verify(self.ledger, self.exclusive).items() if text}
        assert broken == {}

    @property
    def rows(self) -> pd.DataFrame:
        return self.ledger.frame("transfers")


@pytest.fixture(scope="session")
def cell() -> Callable[..., Cell]:
    """Makes a cell; TDMA at a fixed 1 Mbit/s unless told otherwise."""
    return Cell


@pytest.fixture(scope="session")
def gain_of() -> Callable[[Fading, int, int], float]:
    """Fading gain of a device's link in a block, drawn one by one."""
    return lambda fading, device, block: fading.gain(uniform(mix(FADING_KEY, device), block))
