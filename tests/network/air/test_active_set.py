"""Claims about the bursts on the air: who listens, and who does no longer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.work import BIT, SCALE, work_per_ns
from fednet_emu.network.access.contention import Shared
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.air.active_set import ActiveSet
from fednet_emu.network.air.transfer import Message, Transfer


def test_who_has_left_listens_no_longer(cell):
    """Of 0 to 1 and 2 to 3 the first ends: one row and one column remain, and the second leg has row 0."""
    medium, clock = cell(Ofdma()).medium, Clock()
    first, second = ([Transfer(clock, 2, print, *ends, Message(None, 8))] for ends in ((0, 1), (2, 3)))
    on_air = ActiveSet(medium.band, medium.links, 1)
    on_air.add([first, second])
    assert on_air.gains.receivers.tolist() == [1, 3]

    assert on_air.remove_legs(np.array([0])) == [first]

    assert (on_air.gains.senders.tolist(), on_air.gains.receivers.tolist()) == ([2], [3])
    assert (on_air.leg["row"].tolist(), on_air.burst["column"].tolist()) == ([0], [0])
    assert on_air.gains.mean.shape == (1, 1)


def test_senders_in_any_order_of_their_columns_may_leave_at_once(cell):
    """0, 1 and 2 send, then 2 and 0 once more; the bursts of 0 and of 2 leave together, and 1 has the only column."""
    medium, clock = cell(Shared()).medium, Clock()
    bursts = [[Transfer(clock, 0, print, sender, -1, Message(None, 8))] for sender in (2, 1, 0, 0, 2)]
    on_air = ActiveSet(medium.band, medium.links, 1)
    for burst in bursts:
        on_air.add([burst])

    on_air.remove_legs(np.array([0, 2]))
    assert (on_air.gains.senders.tolist(), on_air.burst["column"].tolist()) == ([2, 1, 0], [1, 2, 0])
    assert on_air.remove_legs(np.array([1, 2])) == [bursts[3], bursts[4]]

    assert (on_air.gains.senders.tolist(), on_air.burst["column"].tolist()) == ([1], [0])
    assert on_air.gains.lowest <= on_air.gains.mean.min()


@given(
    sizes_bit=st.lists(st.integers(0, 10**12), min_size=1, max_size=5),
    rates_bps=st.lists(st.floats(0, 1e9), min_size=5, max_size=5),
    spans_ns=st.lists(st.integers(1, 10**10), min_size=1, max_size=3),
)
def test_what_is_carried_is_exact_and_never_more_than_there_was(cell, sizes_bit, rates_bps, spans_ns):
    """Whole units of work, block by block; the float beside them is the nearest one."""
    medium, clock = cell(Shared(), snr=[1.0] * 5).medium, Clock()
    on_air = ActiveSet(medium.band, medium.links, 1)
    on_air.add([[Transfer(clock, 0, print, k, -1, Message(None, bit))] for k, bit in enumerate(sizes_bit)])
    rates_bps = rates_bps[: len(sizes_bit)]

    on_air.carry([(np.array(rates_bps) / (1 + block), span_ns) for block, span_ns in enumerate(spans_ns)])

    done = [sum(work_per_ns(bps / (1 + block)) * ns for block, ns in enumerate(spans_ns)) for bps in rates_bps]
    left = [max(bit * BIT - work, 0) for bit, work in zip(sizes_bit, done, strict=True)]
    assert on_air.work == left
    assert on_air.leg["left_nbit"].tolist() == [float(work) / SCALE for work in left]
