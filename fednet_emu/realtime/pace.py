"""Rates of simultaneously active links, through which live mode uses the simulator's radio models.

`LiveAir` needs only the protocol `Pace`; `RatedPace` implements this protocol with the simulator's classes.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from fednet_emu.kernel.clock import FOREVER_NS, Clock
from fednet_emu.kernel.work import work_per_ns
from fednet_emu.network.air.active_set import ActiveSet
from fednet_emu.network.air.rates import rate_cells
from fednet_emu.network.air.sharing import Sharing
from fednet_emu.network.air.transfer import Message, Transfer
from fednet_emu.network.links.links import LinksOverTime, cell_of
from fednet_emu.network.medium.medium import Medium
from fednet_emu.records.ledger import SERVER


class Paced(NamedTuple):
    """Rates of simultaneously active links.

    Attributes:
        per_ns: transmission work [links] of each link per ns, in the unit of `kernel.work`.
        power: transmit power [links] of each sender, as a fraction of its full power.
        until_ns: time in ns until which rates and powers are valid, as long as the same links are active.
    """

    per_ns: tuple[int, ...]
    power: tuple[float, ...]
    until_ns: int


class Pace(Protocol):
    """Source of the rates in one direction, uplink or downlink; the index of a link is the index of its device."""

    def rates(self, links: tuple[int, ...], now_ns: int) -> Paced:
        """Return the rates from `now_ns` on, if exactly the given links (at least one) are active."""

    def cell(self, link: int, now_ns: int) -> int:
        """Return the index of the cell of a link at `now_ns`."""


class RatedPace:
    """Source of the rates of active links, which follow from their SINRs and from their shares of the band.

    The access scheme of the medium determines the SINRs and the shares.

    Rates are computed for several fading blocks at once and cached, because the set of links that send only
    acknowledgements changes often.

    Args:
        medium: the medium of one direction, without transmissions; its access scheme must not plan transmissions.
        clock: the clock of the links in the medium.
    """

    def __init__(self, medium: Medium, clock: Clock, cells: int = 1) -> None:
        access = medium.settings.access
        assert isinstance(access, Sharing), "what has no rates is refused before"
        self._sharing, self._band, self._clock = access, medium.band, clock
        self._links: LinksOverTime = medium.links
        self._kind, self._upwards = medium.kind, medium.settings.DIRECTION == "uplink"
        self._moving = self._links.until_ns() < FOREVER_NS
        self._until_ns = self._links.until_ns()
        self._cells = cells
        self._clear()

    def _clear(self) -> None:
        self._on_air = ActiveSet(self._band, self._links, self._cells)
        self._there: list[int] = []
        self._known: dict[tuple[int, ...], list[Paced]] = {}  # rates of the next fading blocks, last block first

    def rates(self, links: tuple[int, ...], now_ns: int) -> Paced:
        """Return the rates of the links from `now_ns` on, for the positions of the current movement period."""
        self._look_at(now_ns)
        known = self._known.get(links)
        if known is None or known[0].until_ns <= now_ns:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[links] = self._rated(links, now_ns)
        while known[-1].until_ns <= now_ns:
            known.pop()
        return known[-1]

    def cell(self, link: int, now_ns: int) -> int:
        """Return the index of the cell that serves the device of a link."""
        self._look_at(now_ns)
        return cell_of(self._links.now().station_of(link))

    def _look_at(self, now_ns: int) -> None:
        """If devices move, advance their clock to `now_ns`, and discard cached rates in a new movement period."""
        if not self._moving:
            return
        if now_ns > self._clock.now:
            self._clock.run(until=now_ns)
        if self._links.until_ns() != self._until_ns:
            self._until_ns = self._links.until_ns()
            self._clear()

    def _rated(self, links: tuple[int, ...], now_ns: int) -> list[Paced]:
        """Return the rates of the links in each of the next fading blocks, last block first."""
        self._show(links, now_ns)
        edges_ns, numbers = self._band.blocks(now_ns, _BLOCKS)
        rated = rate_cells(self._on_air, self._sharing, self._band, numbers)
        places = [self._there.index(link) for link in links]
        rate_bps, power = rated.rate_bps[places], np.broadcast_to(rated.power, rated.rate_bps.shape)[places]
        blocks = [
            Paced(tuple(map(work_per_ns, its_bps)), tuple(its_power), min(until_ns, self._until_ns))
            for until_ns, its_bps, its_power in zip(
                edges_ns[1:].tolist(), rate_bps.T.tolist(), power.T.tolist(), strict=True
            )
        ]
        return blocks[::-1]

    def _show(self, links: tuple[int, ...], now_ns: int) -> None:
        """Make exactly the given links active, each with a transmission that does not end."""
        wanted, there = set(links), self._there
        gone = [place for place, link in enumerate(there) if link not in wanted]
        if gone:
            self._on_air.remove_legs(np.array(gone))
            self._there = [link for link in there if link in wanted]
        new = [link for link in links if link not in set(self._there)]
        if new:
            self._on_air.add([[self._endless(link, now_ns)] for link in new])
            self._there += new
        self._on_air.gather()

    def _endless(self, link: int, now_ns: int) -> Transfer:
        ends = (link, SERVER) if self._upwards else (SERVER, link)
        never_stopped = lambda _transfer, _reason: None  # noqa: E731
        burst = Transfer(self._clock, self._kind, never_stopped, *ends, Message(None, _ENDLESS_BIT))
        burst.cell = self.cell(link, now_ns)
        return burst


_ENDLESS_BIT = 1 << 40
_MOST_KNOWN = 64
_BLOCKS = 16
