"""Files of other users in one medium, without devices or beside a federation that the test plays itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fednet_emu.kernel.all_of import AllOf
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.work import BIT, done_ns, work_per_ns
from fednet_emu.network.access.orthogonal import Tdma
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.ethernet import Ethernet, Wire
from fednet_emu.network.medium.medium import Medium
from fednet_emu.network.slices import Sliced, Slices
from fednet_emu.network.traffic.laws import Law
from fednet_emu.network.traffic.senders import OtherUsers
from fednet_emu.network.traffic.turns import SharedTurns
from fednet_emu.network.traffic.users import Source, drawn_files
from fednet_emu.records.laws import verify
from fednet_emu.records.ledger import SERVER, Ledger
from tests.network.media import HandMadeLinks, medium_of

RADIOS = 20_000


def files(rows: Iterable[tuple[float, int]]) -> Any:
    """Files that arrive at times in s, with sizes in bits."""
    times = [0, *(round(1e9 * arrival_s) for arrival_s, _ in rows)]
    return iter([(late - early, bit) for (early, late), (_, bit) in zip(pairwise(times), rows, strict=True)])


def source(radio: int, flow: Any, **how: Any) -> Source:
    """The files of one user, or of a class."""
    return Source(how.pop("of", 0), 0, radio, radio, flow, **how)


def by_laws(radio: int, size: Law, gap: Law, **how: Any) -> Source:
    """Files drawn by laws."""
    return source(radio, drawn_files(size, gap, (radio, radio + 10**6), lambda bit: bit), **how)


class Played:
    """A medium with other users, ready to run; an uplink of 1 Mbit/s through a port, in turns, or by another scheme.

    `slice_of` replaces the function that gives the slice of a transfer on the air.
    """

    def __init__(self, sources: Sequence[Source], port_bps: float = 1e6, slices: Any = None, **how: Any) -> None:
        known = Slices(slices or {})
        self.clock, self.ledger = Clock(), Ledger()
        self.ledger.add_traffic(dict.fromkeys(("these", "those"), (0, "uplink")), known.names)
        in_turns = how.get("in_turns", False)
        access = how.get("access") or (Tdma() if in_turns else Ethernet(port_bps=port_bps))
        turns = SharedTurns(access.capacity, 1, self.clock, divides=not in_turns, slices=known)
        links = HandMadeLinks(how.get("snr", np.full(RADIOS, 1e9)))  # an array is found faster

        def refit(use: Any) -> Any:
            air = SharedAir(Sliced(access, known), use.band, links, slice_of=how.get("slice_of", known.of))
            return use._replace(turns=turns, air=air if known.given and not in_turns else use.air)

        parts = {"clock": self.clock, "ledger": self.ledger, "refit": refit, "bandwidth_hz": port_bps}
        self.medium: Medium = medium_of(access, how.get("law", Wire()), links, RADIOS, **parts)
        self.users = OtherUsers(self.clock, self.ledger, sources, {0: self.medium}, ["these", "those"])
        self.port_bps = port_bps

    def until(self, end_s: float) -> Any:
        """Play until a time in s; the files as a table."""
        return self.while_playing(self._wait(end_s))

    def _wait(self, end_s: float) -> Any:
        yield self.clock.sleep(end_s)

    def while_playing(self, process: Any) -> Any:
        """Play until a process ends; the files as a table, after all laws were checked."""
        self.clock.run_process(process)
        self.medium.close()
        self.users.close()
        assert not any(verify(self.ledger, frozenset()).values())
        return self.ledger.traffic.frame()

    def rounds(self, federation: Any, ends_ns: list[int]) -> Any:
        """Rounds of a broadcast, computations of given lengths, and uploads."""
        bit, clock = federation["size"], self.clock

        def device(number: int, compute_ns: int) -> Any:
            yield clock.sleep_until(clock.now + compute_ns)
            yield self.medium.send(number, SERVER, Message(None, bit))

        for _ in range(federation["rounds"]):
            yield clock.sleep_until(clock.now + done_ns(bit * BIT, work_per_ns(self.port_bps)))
            both = [device(int(number), compute_ns) for number, compute_ns in federation["compute"].items()]
            yield AllOf(clock, clock.processes(both))
            ends_ns.append(clock.now)


def mean_and_error(values: Any, batches: int = 25) -> tuple[float, float]:
    """Mean of correlated values, and its standard error by the means of batches."""
    means = [part.mean() for part in np.array_split(np.asarray(values, float), batches)]
    return float(np.mean(values)), float(np.std(means, ddof=1) / np.sqrt(batches))
