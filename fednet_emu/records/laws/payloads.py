"""The law that nothing is used before it is there: payloads at their makers, on their way, and where they are used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fednet_emu.arrays import IntArray
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.reasons import CODE
from fednet_emu.records.table import BLOCK_ROWS, Rows

if TYPE_CHECKING:
    import pandas as pd

_DELIVERED = CODE[""]
_FOREVER = np.iinfo(np.int64).max


def with_receptions(ledger: Ledger) -> Iterator[tuple[int, Rows, Rows]]:
    """Iterate over blocks of transfers: the number of the first, the transfers, and their receptions.

    Receptions are in the order of their transfers; one that is not is left out.
    """
    row, blocks = 0, ledger.receptions.blocks()
    left: Rows | None = next(blocks)
    for transfers in ledger.transfers.blocks():
        end, own = row + len(transfers), []
        while left is not None:
            mine = left["transfer"] < end
            own.append(left[mine & (left["transfer"] >= row)])
            left = left[~mine]
            if len(left):
                break
            left = next(blocks, None)
        yield row, transfers, np.concatenate(own) if own else ledger.receptions.none
        row = end


def used_before_there(ledger: Ledger) -> tuple[IntArray, IntArray]:
    """Rows of computations and of transfers that use a payload before it was made there, or has arrived.

    Payloads are looked at in ranges of their numbers, which grow with time, so that a range fits into memory.
    """
    computes, sends = [], []
    for first, end in _ranges(ledger):
        uses, made = _computed(ledger, first, end)
        sent, arrivals = _sent(ledger, first, end)
        computes.append(_too_early(uses, made, arrivals, ledger.given, must_arrive=False))
        sends.append(_too_early(sent, made, arrivals, ledger.given, must_arrive=True))
    return np.sort(np.concatenate(computes)), np.sort(np.concatenate(sends))


def _ranges(ledger: Ledger) -> list[tuple[int, int]]:
    """Ranges [first, end) of payload numbers, as many as there are blocks of rows."""
    rows = len(ledger.transfers) + len(ledger.receptions) + len(ledger.computes)
    sent = (int(block["payload"].max(initial=0)) for block in ledger.transfers.blocks())
    used = (int(max(block[name].max(initial=0) for name in ("input", "result"))) for block in ledger.computes.blocks())
    numbers = max(*sent, *used, 0) + 1
    edges = np.linspace(0, numbers, -(-rows // BLOCK_ROWS) + 1 if rows else 2).astype(np.int64).tolist()
    return list(pairwise(edges))


def _computed(ledger: Ledger, first: int, end: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Uses by computations (row, device, payload, used_ns), and who made which payload when, of a range of payloads."""
    uses, made, row = [], [], 0
    for block in ledger.computes.blocks():
        using = np.flatnonzero((block["input"] >= first) & (block["input"] < end))
        own = block[using]
        uses.append(
            {"row": row + using, "device": own["device"], "payload": own["input"], "used_ns": own["started_ns"]}
        )
        own = block[(block["result"] >= first) & (block["result"] < end)]
        made.append({"payload": own["result"], "device": own["device"], "ended_ns": own["ended_ns"]})
        row += len(block)
    return _frame(uses), _frame(made).groupby("payload").first()


def _sent(ledger: Ledger, first: int, end: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Uses by transfers (row, device, payload, used_ns), and first arrivals (receiver, payload, arrived_ns).

    What never arrived where it was sent to has arrived at `_FOREVER`.
    """
    uses, arrivals = [], []
    for row, block, receptions in with_receptions(ledger):
        among = (block["payload"] >= first) & (block["payload"] < end)
        using = np.flatnonzero(among)
        own = block[using]
        used = {"device": own["sender"], "payload": own["payload"], "used_ns": own["requested_ns"]}
        uses.append({"row": row + using, **used})
        single = own[own["receivers"] == 1]
        arrivals.append(_arrived(single, single))
        several = receptions[among[receptions["transfer"] - row]]
        arrivals.append(_arrived(several, block[several["transfer"] - row]))
    return _frame(uses), _frame(arrivals).groupby(["receiver", "payload"])["arrived_ns"].min().reset_index()


def _arrived(heard: Rows, transfers: Rows) -> dict[str, Any]:
    arrived_ns = np.where(heard["lost"] == _DELIVERED, transfers["ended_ns"], _FOREVER)
    return {"receiver": heard["receiver"], "payload": transfers["payload"], "arrived_ns": arrived_ns}


def _frame(parts: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Join columns [rows] that come in parts."""
    import pandas as pd

    parts = list(parts)
    return pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _too_early(
    uses: pd.DataFrame, made: pd.DataFrame, arrivals: pd.DataFrame, given: set[int], *, must_arrive: bool
) -> IntArray:
    """Rows of the uses (row, device, payload, used_ns) that come before the payload is available to the device.

    At its maker, a payload is available from the end of the computation. Elsewhere it is available from its first
    arrival; a use where it was never sent is too early only if `must_arrive` and another device's computation made it.
    """
    found = uses.merge(arrivals, how="left", left_on=["device", "payload"], right_on=["receiver", "payload"])
    origin = made.reindex(found["payload"])
    maker, ended_ns = origin["device"].to_numpy(), origin["ended_ns"].to_numpy()
    used_ns, arrived_ns = found["used_ns"].to_numpy(), found["arrived_ns"].to_numpy()
    device, free = found["device"].to_numpy(), found["payload"].isin(given).to_numpy()
    at_maker = maker == device
    elsewhere = ~at_maker & (used_ns < arrived_ns)
    unsent = ~at_maker & np.isnan(arrived_ns) & ~np.isnan(maker) & must_arrive
    early = ~free & ((at_maker & (used_ns < ended_ns)) | elsewhere | unsent)
    return np.asarray(found["row"].to_numpy()[early], np.int64)
