"""Laws that are checked block by block find what they find in one piece, whatever is wrong and wherever blocks end."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.records.laws.verify import Busy, verify
from fednet_emu.records.ledger import TABLES, Ledger
from fednet_emu.testing import run_small
from tests.algorithms.small import ALGORITHM_SETTINGS, CONDITIONS, EVERYWHERE
from tests.quick import examples

BOTH, SIDE = frozenset({"uplink", "downlink"}), frozenset({"sidelink"})
BROADCAST = "a broadcast is the sum of its receptions"
MONOTONE = "records are written as time goes"
USED = "nothing is used before it is there"
OVERLAPS = {
    "airtime never overlaps in turns",
    "nobody receives while it sends",
    "one computation at a time",
}
CHANGED = {
    "transfers": ("kind", "sender", "receiver", "size_bit", "payload", "requested_ns", "started_ns", "delivered_bit"),
    "receptions": ("receiver", "lost"),
    "computes": ("device", "started_ns", "input", "result"),
    "backhaul": ("size_bit", "started_ns", "sent_bit"),
}


@cache
def played(kind: str) -> Ledger:
    """The ledger of a lossy run with broadcasts, and with sidelinks or edge servers."""
    return run_small(*EVERYWHERE, *ALGORITHM_SETTINGS[kind], *CONDITIONS["30 % loss"]).ledger


def in_blocks(ledger: Ledger, rows: int, changes: dict[tuple[str, int, str], int]) -> dict[str, str]:
    """What the laws say of a ledger whose blocks have so many rows, and in which some values are others."""
    with (
        patch("fednet_emu.records.table.CHUNK_ROWS", rows),
        patch("fednet_emu.records.table.BLOCK_ROWS", rows),
        patch("fednet_emu.records.laws.payloads.BLOCK_ROWS", rows),
    ):
        copy = Ledger()
        for name in TABLES:
            table = getattr(copy, name)
            whole = np.concatenate(list(getattr(ledger, name).blocks()))
            for (changed, row, column), value in changes.items():
                if changed == name:
                    whole[column][row] = value
            for row in whole.tolist():
                table.append(row)
        copy.given, copy.series = ledger.given, ledger.series
        copy.offered_bit, copy.energy_j = ledger.offered_bit, ledger.energy_j
        copy.backhaul_bit, copy.backhaul_j, copy.ended_ns = ledger.backhaul_bit, ledger.backhaul_j, ledger.ended_ns
        copy.idle, copy.stations_w = ledger.idle, ledger.stations_w
        return verify(copy, BOTH if not len(ledger.backhaul) else frozenset(), SIDE)


@pytest.mark.parametrize("kind", ["fedavg", "connectivity-aware", "hier-favg"])
@pytest.mark.parametrize("rows", [4, 15])
def test_a_lawful_run_is_lawful_in_blocks(kind: str, rows: int) -> None:
    """No law cries wolf where a block ends."""
    assert not any(in_blocks(played(kind), rows, {}).values())


@examples(30)
@given(st.data())
def test_blocks_find_what_one_piece_finds(data: st.DataObject) -> None:
    """The same laws are broken, in the same rows, after any change of any value."""
    ledger = played(data.draw(st.sampled_from(["fedavg", "connectivity-aware", "hier-favg"])))
    table = data.draw(st.sampled_from([name for name in CHANGED if len(getattr(ledger, name))]))
    column = data.draw(st.sampled_from(CHANGED[table]))
    values = getattr(ledger, table).column(column)
    row = data.draw(st.integers(0, len(values) - 1))
    value = data.draw(st.sampled_from(sorted({*values.tolist(), int(values[row]) + 1, max(int(values[row]) - 1, 0)})))
    changes = {(table, row, column): value}
    whole, blocks = in_blocks(ledger, 10**6, changes), in_blocks(ledger, data.draw(st.integers(3, 20)), changes)

    assert {law for law, text in whole.items() if text} == {law for law, text in blocks.items() if text}
    assert all(whole[law] == blocks[law] for law in whole.keys() - OVERLAPS)


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 12), st.integers(1, 5)), max_size=14),
    st.lists(st.integers(0, 14), max_size=4),
)
def test_overlaps_are_those_of_pairs(spans: list[tuple[int, int, int]], cuts: list[int]) -> None:
    """Intervals in the order of their ends, cut into blocks anywhere: one is marked exactly if two of an owner meet."""
    rows = sorted(((owner, start, start + length) for owner, start, length in spans), key=lambda row: row[2])
    busy, marked = Busy(), []
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for first, end in pairwise(edges):
        owner, started_ns, ended_ns = np.array(rows[first:end], np.int64).reshape(-1, 3).T
        marked += busy.overlaps(owner, started_ns, ended_ns).tolist()
    meet = any(
        one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
        for place, one in enumerate(rows)
        for other in rows[:place]
    )

    assert any(marked) == meet
