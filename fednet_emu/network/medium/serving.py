"""The cells of the transfers of a medium with several: which base station serves a device, and until when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import final

from fednet_emu.network.air.transfer import Burst, Transfer
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.rows import HandoverRow


@final
class Serving:
    """Chooses the cell of each transfer; all of a device are in one.

    Args:
        links: the links.
        ledger: records.
        during: whether a device takes its transfers to another cell on the way; if not, it changes cells only when it
            has none waiting or on the air.
    """

    def __init__(self, links: LinksOverTime, ledger: Ledger, *, during: bool) -> None:
        self._links, self._ledger, self._during = links, ledger, during
        self._under_way: dict[int, dict[Transfer, int]] = defaultdict(dict)  # by device, with their cells

    def serve(self, transfer: Transfer) -> None:
        """Choose the cell of a transfer that is asked for."""
        device = max(transfer.sender, transfer.receiver)
        under_way = self._under_way[device]
        if under_way:
            transfer.cell = next(iter(under_way.values()))
        else:
            transfer.cell = -1 - self._links.now().station_of(device)
        if not transfer.cancelled:
            under_way[transfer] = transfer.cell

    def release(self, transfer: Transfer) -> None:
        """Note that a transfer has ended, so that it no longer keeps its device in the cell."""
        self._under_way[max(transfer.sender, transfer.receiver)].pop(transfer, None)

    def hand_over(self, on_air: Mapping[Transfer, Burst], now_ns: int) -> None:
        """Give the transfers on the air the cells that serve their devices now, but for devices in a broadcast."""
        if not self._during:
            return
        links, held = self._links.now(), {leg.receiver for leg, burst in on_air.items() if len(burst) > 1}
        for transfer in on_air:
            device, old = max(transfer.sender, transfer.receiver), transfer.cell
            new = -1 - links.station_of(device)
            if device not in held and new != old:
                self._ledger.handovers.append(HandoverRow(transfer.kind, device, now_ns, transfer.number, old, new))
                transfer.cell = self._under_way[device][transfer] = new
