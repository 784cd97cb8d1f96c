"""Media with hand-made links: what all tests of the medium build."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.devices.powers import PerDevice
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import mix, mixes
from fednet_emu.network.access.base import Access, DelayNs, Use
from fednet_emu.network.air.band import Band
from fednet_emu.network.faults import Loss, NoLoss
from fednet_emu.network.links.links import Links, LinksOverTime
from fednet_emu.network.medium.loads import Radios
from fednet_emu.network.medium.medium import Medium
from fednet_emu.network.settings import Downlink, Sidelink, Uplink
from fednet_emu.network.transport.transports import Connections
from fednet_emu.radio.fading import NoFading
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.records.ledger import Ledger

MBIT = 1_000_000
CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
FADING_KEY = 0x5EED
WAYS = {"uplink": Uplink, "downlink": Downlink, "sidelink": Sidelink}


def capacity_bps(sinr: float, bandwidth_hz: float = 1e6) -> float:
    return bandwidth_hz * math.log2(1 + sinr)


class HandMadeLinks(Links):
    """Given SNRs, one per device; the fading key of device k is item k of a family."""

    def __init__(self, snr: Sequence[float]) -> None:
        self._snr = snr

    def link(self, sender: int, receiver: int) -> tuple[float, int]:
        return self._snr[max(sender, receiver)], mix(FADING_KEY, max(sender, receiver))

    def snrs(self, sender: Any, receiver: Any) -> Any:
        return np.asarray(self._snr, float)[np.maximum(sender, receiver)]

    def fading_keys(self, sender: Any, receiver: Any) -> Any:
        return mixes(FADING_KEY, np.maximum(sender, receiver))


class Pairs(Links):
    """Given SNRs [receivers, senders] between devices, without fading."""

    def __init__(self, snr: Any) -> None:
        self._snr = np.asarray(snr, float)

    def link(self, sender: int, receiver: int) -> tuple[float, int]:
        return float(self._snr[receiver, sender]), 0

    def snrs(self, sender: Any, receiver: Any) -> Any:
        return self._snr[receiver, sender]

    def fading_keys(self, sender: Any, receiver: Any) -> Any:
        return np.zeros(np.broadcast_shapes(np.shape(sender), np.shape(receiver)), np.uint64)


@dataclass(frozen=True)
class PlainRadios(Radios):
    """Senders that draw the same at any power."""

    sender: Any = None
    full_w: float = 0.2  # type: ignore[assignment]

    def drawn_w(self, device: int, power_w: float | None, part: float) -> float:
        return self.full_w


def medium_of(
    access: Access,
    law: RateLaw,
    links: LinksOverTime,
    devices: int,
    *,
    way: str = "uplink",
    clock: Clock | None = None,
    ledger: Ledger | None = None,
    presence: Presence | None = None,
    fading: Any = None,
    key: int = 0,
    multicast: bool = False,
    timeout_s: float | None = 3600.0,
    loss: Loss | None = None,
    drawn_w: float = 0.2,
    rx_consumption_w: float = 0.0,
    radios: Radios | None = None,
    cells: int = 1,
    connections: Connections | None = None,
    before: DelayNs | None = None,
    after: DelayNs | None = None,
    hands_over: bool = False,
    refit: Callable[[Use], Use] = lambda use: use,
    **of_band: Any,
) -> Medium:
    """A medium over 1 MHz, without fading, loss and delays unless these are given."""
    settings: dict[str, Any] = {"access": access, "message_loss": loss or NoLoss(), "timeout_s": timeout_s}
    if way != "uplink":
        settings["mode"] = "broadcast" if multicast else "unicast"
    band = Band.of(of_band.pop("bandwidth_hz", 1e6), law, fading or NoFading(), key, **of_band)
    receivers = PerDevice((rx_consumption_w,), bytes(devices)) if rx_consumption_w else None
    chosen, there = WAYS[way].model_construct(**settings), presence or Presence(Always(), 0, devices)
    ledger = ledger or Ledger()
    use = access.use(band, links, cells, devices)._replace(before=before, after=after)
    use = refit(use)
    made = Medium(
        clock or Clock(),
        ledger,
        there,
        chosen,
        use,
        links,
        radios or PlainRadios(full_w=drawn_w, rx_consumption_w=receivers),
        loss_key=77,
        cells=cells,
        hands_over=hands_over,
        connections=connections,
    )
    if made.is_delayed:
        ledger.add_phases()
    return made
