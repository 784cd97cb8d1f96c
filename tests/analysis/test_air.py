"""Claims about the use of the air."""

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.activity import FEWEST_BINS, MOST_BINS, air_use


def sent(*rows):
    """Transfers as (kind, cell, begin, end)."""
    return pd.DataFrame(list(rows), columns=["kind", "cell", "started_s", "ended_s"])


def test_one_sender_and_several_are_told_apart():
    """From 0 to 4 s one sends, from 2 to 6 s another, a third follows at once until 8 s; the last never starts."""
    told = sent(("uplink", 0, 0, 4), ("uplink", 0, 2, 6), ("uplink", 0, 6, 8), ("uplink", 0, np.nan, 9))

    edges_s, (use,) = air_use(told, 10.0)
    width_s = edges_s[1] - edges_s[0]

    assert (use.kind, use.cell) == ("uplink", 0)
    assert use.one.sum() * width_s == pytest.approx(6.0)
    assert use.several.sum() * width_s == pytest.approx(2.0)
    assert use.several[(edges_s[:-1] >= 2) & (edges_s[1:] <= 4)].min() == pytest.approx(1.0)


def test_bands_are_apart():
    """Cells and kinds do not share their air, and what never ended lasts until the end of the run."""
    told = sent(("uplink", 0, 0, 5), ("uplink", 1, 0, 5), ("downlink", 0, 5, np.nan))

    _, uses = air_use(told, 10.0)

    assert {(use.kind, use.cell): use.one.mean() for use in uses} == pytest.approx(
        {("uplink", 0): 0.5, ("uplink", 1): 0.5, ("downlink", 0): 0.5}
    )
    assert not any(use.several.any() for use in uses)


def test_many_bands_have_fewer_stretches():
    """The numbers of a page stay few, however many cells there are."""
    few, _ = air_use(sent(("uplink", 0, 0, 1)), 1.0)
    many, _ = air_use(sent(*(("uplink", cell, 0, 1) for cell in range(3000))), 1.0)

    assert (len(few) - 1, len(many) - 1) == (MOST_BINS, FEWEST_BINS)


def test_a_run_without_transfers_uses_no_air():
    """There is nothing to show, and no error."""
    assert air_use(sent(), 0.0)[1] == []
