"""Speed of the shared medium: rates under interference, and changes of the active set per host second."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import numpy as np

from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.gather import Gather
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.access import Access
from fednet_emu.network.availability import Always, Presence
from fednet_emu.network.band import Band
from fednet_emu.network.links import CellLinks
from fednet_emu.network.loss import NoLoss
from fednet_emu.network.medium import Medium, Rules
from fednet_emu.radio.fading import Rayleigh
from fednet_emu.radio.rate import Shannon
from fednet_emu.records.ledger import SERVER, Ledger

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)


def changes_per_s(access: Access, senders: int, changes: int, size_bit: int = 20_000) -> float:
    """Changes of the active set per host second on an uplink on which everybody always has something to send."""
    clock, ledger, streams = Clock(), Ledger(), Streams(0)
    rng = np.random.default_rng(0)
    snr = 10 ** rng.uniform(0, 3, senders)
    sizes_bit = iter(rng.integers(1, 2 * size_bit, changes).tolist())
    links = CellLinks(snr, streams.key("fading"))
    rules = Rules(Band.of(20e6, access, CAPACITY, Rayleigh()), links, NoLoss(), 0, 0.2, False, 3600.0)
    medium = Medium(clock, ledger, Presence(Always(), 0, senders), 0, rules)

    def device(index: int) -> Generator[Any, Any, None]:
        while len(ledger.transfers) < changes // 2:
            yield medium.send(index, SERVER, None, -1, next(sizes_bit))
            yield clock.sleep(1e-6)  # an end and a start are two instants

    def everyone() -> Generator[Any, Any, None]:
        yield Gather(clock, (device(index) for index in range(senders)))

    started = time.process_time()
    clock.run_process(everyone())
    return 2 * len(ledger.transfers) / (time.process_time() - started)
