"""A cell with hand-made links, on which a test plays requests and reads deliveries and rows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fednet_emu.devices.availability import Always, Availability, Presence
from fednet_emu.devices.powers import PerDevice
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import mix, mixes, uniform
from fednet_emu.network.access import Access, Tdma
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.transfer import Delivery
from fednet_emu.network.medium.loss import Loss, NoLoss
from fednet_emu.network.medium.medium import Medium, Rules
from fednet_emu.radio.fading import Fading, NoFading
from fednet_emu.radio.rates.shannon import FixedRate, RateLaw
from fednet_emu.radio.receiver.combining import ONE_ANTENNA, Reception
from fednet_emu.records.laws.verify import verify
from fednet_emu.records.ledger import SERVER, Ledger

FADING_KEY = 0x5EED


class HandMadeLinks:
    """Given SNRs, one per device; the fading key of device k is item k of a family."""

    def __init__(self, snr: Sequence[float]) -> None:
        self._snr = snr

    def snr(self, sender: int, receiver: int) -> float:
        """SNR of whichever end is a device."""
        return self._snr[max(sender, receiver)]

    def fading_key(self, sender: int, receiver: int) -> int:
        """Key of whichever end is a device."""
        return mix(FADING_KEY, max(sender, receiver))

    def snrs(self, sender: Any, receiver: Any) -> Any:
        """SNRs of whichever ends are devices."""
        return np.asarray(self._snr, float)[np.maximum(sender, receiver)]

    def fading_keys(self, sender: Any, receiver: Any) -> Any:
        """Keys of whichever ends are devices."""
        return mixes(FADING_KEY, np.maximum(sender, receiver))

    def radios(self, sender: int, receiver: int) -> tuple[int, int]:
        """The ends themselves: there is one cell."""
        return sender, receiver

    def period(self) -> int:
        """Nobody moves."""
        return 0


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
        receive_w: float = 0.0,
        availability: Availability | None = None,
        reception: Reception = ONE_ANTENNA,
    ) -> None:
        self.clock, self.ledger = Clock(), Ledger()
        access = access or Tdma()
        laws = law or FixedRate(bit_rate_bps=1e6), fading or NoFading()
        self.band = Band.of(bandwidth_hz, access, *laws, reception=reception)
        self.exclusive = frozenset({"uplink"} if access.capacity == 1 else ())
        rules = Rules(self.band, HandMadeLinks(snr), loss or NoLoss(), 77, drawn_w, multicast, timeout_s)
        rules = replace(rules, receive_w=PerDevice((receive_w,), bytes(len(snr))) if receive_w else None)
        presence = Presence(availability or Always(), 99, len(snr))
        self.medium = Medium(self.clock, self.ledger, presence, 0, rules)

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
        ends = (SERVER, device) if self.medium.rules.multicast else (device, SERVER)
        return (yield self.medium.send(*ends, payload, 0, size_bit, group=0 if self.medium.rules.multicast else None))

    def close(self) -> None:
        """Close the books; every law must hold."""
        self.medium.close()
        broken = {law: text for law, text in verify(self.ledger, self.exclusive).items() if text}
        assert broken == {}

    @property
    def rows(self) -> pd.DataFrame:
        """The transfers of the ledger."""
        return self.ledger.frames()["transfers"]


@pytest.fixture(scope="session")
def cell() -> Callable[..., Cell]:
    """Makes a cell; TDMA at a fixed 1 Mbit/s unless told otherwise."""
    return Cell


@pytest.fixture(scope="session")
def gain_of() -> Callable[[Fading, int, int], float]:
    """Fading gain of a device's link in a block, drawn one by one."""
    return lambda fading, device, block: fading.gain(uniform(mix(FADING_KEY, device), block))
