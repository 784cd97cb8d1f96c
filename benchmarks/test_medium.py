"""Speed of the shared medium: rates under interference, and changes of the active set per host second."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import numpy as np

from fednet_emu.devices.availability import Always, Presence
from fednet_emu.kernel.all_of import gather
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.access.base import Access
from fednet_emu.network.access.contention import FullReuse, Noma
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.active_set import ActiveSet
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.rates import rate_cells
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.sharing import Sharing
from fednet_emu.network.air.transfer import Message, Transfer
from fednet_emu.network.links.links import CellLinks, cell_of
from fednet_emu.network.medium.loads import Radios
from fednet_emu.network.medium.medium import Medium
from fednet_emu.network.settings import Uplink
from fednet_emu.radio.channel import DeviceRadio
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.records.ledger import SERVER, Ledger

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)


def changes_per_s(access: Access, senders: int, changes: int, *, general: bool = False) -> float:
    """Changes of the active set per host second on an uplink on which everybody always has something to send.

    With `general`, on the air that could do anything else as well.
    """
    clock, ledger, streams = Clock(), Ledger(), Streams(0)
    rng = np.random.default_rng(0)
    snr = 10 ** rng.uniform(0, 3, senders)
    sizes_bit = iter(rng.integers(1, 40_000, changes).tolist())
    links = CellLinks(snr[None], [streams.key("fading")])
    settings, use = (
        Uplink(access=access, timeout_s=3600.0),
        access.use(Band.of(20e6, CAPACITY, Rayleigh()), links, 1, senders),
    )
    medium = Medium(clock, ledger, Presence(Always(), 0, senders), settings, use, links, Radios(DeviceRadio()))
    if general:
        assert isinstance(access, Sharing)
        medium.air = SharedAir(access, use.band, links)

    def device(index: int) -> Generator[Any, Any, None]:
        while len(ledger.transfers) < changes // 2:
            yield medium.send(index, SERVER, Message(None, next(sizes_bit)))
            yield clock.sleep(1e-6)  # an end and a start are two instants

    def everyone() -> Generator[Any, Any, None]:
        yield gather(clock, (device(index) for index in range(senders)))

    started = time.process_time()
    clock.run_process(everyone())
    return 2 * len(ledger.transfers) / (time.process_time() - started)


def test_changes_of_the_active_set_per_second() -> None:
    """100 simultaneous senders cost less than four times what 2 cost: a change is a few passes over small arrays.

    The short way of plain bursts is at least 1.4 times as fast as the general one.
    """
    print()
    for access in (FullReuse(), Noma(), Ofdma()):
        many = max(changes_per_s(access, 100, 4000) for _ in range(3))
        general = max(changes_per_s(access, 100, 4000, general=True) for _ in range(3))
        few = max(changes_per_s(access, 2, 4000) for _ in range(3))
        print(
            f"{access.kind}: {many:,.0f} changes/s with 100 senders, {few:,.0f}/s with 2, in general {general:,.0f}/s"
        )
        assert many > few / 4
        assert many > 1.4 * general


def rerating_s(on_air: ActiveSet, access: Access, band: Band) -> float:
    """Host time to work out all rates anew in one more fading block, fading included."""
    best = float("inf")
    for block in range(5):
        started = time.perf_counter()
        numbers = np.array([block])
        rate_cells(on_air, access, band, numbers)
        best = min(best, time.perf_counter() - started)
    return best


def on_the_air(links: CellLinks, band: Band, count: int, cells: int) -> ActiveSet:
    """Uplinks of `count` devices, all on the air."""
    clock, active = Clock(), ActiveSet(band, links, cells)
    uplinks = [Transfer(clock, 0, print, device, SERVER, Message(None, 1000, 0)) for device in range(count)]
    for uplink in uplinks:
        uplink.cell = cell_of(links.station_of(uplink.sender))
    active.add([[uplink] for uplink in uplinks])
    active.gather()
    return active


def test_rates_of_ten_thousand_links_under_interference() -> None:
    """A new fading block of 10,000 links costs less than twenty blocks of 1000 links: it is vectorised.

    In one cell everybody hears everybody; in seven each station hears all 10,000 senders, 70,000 gains.
    """
    streams, law = Streams(0), Shannon()
    print()
    for access, cells in ((FullReuse(), 1), (Noma(), 1), (FullReuse(), 7)):
        spent_s = {}
        for count in (1000, 10_000):
            snr = 10 ** np.random.default_rng(0).uniform(0, 3, (cells, count))
            links = CellLinks(snr, [streams.key("fading", cell) for cell in range(cells)])
            band = access.use(Band.of(20e6, law, Rayleigh()), links, cells, count).band
            spent_s[count] = rerating_s(on_the_air(links, band, count, cells), access, band)
        many_ms, few_ms = spent_s[10_000] * 1e3, spent_s[1000] * 1e3
        print(f"{access.kind}, {cells} cells: 10,000 links {many_ms:.2f} ms, 1000: {few_ms:.2f} ms")
        assert spent_s[10_000] < 20 * spent_s[1000]
