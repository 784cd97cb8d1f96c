"""FedCS: the greedy choice against the paper's pseudo-code in slow steps, and a round worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fednet_emu.algorithms.selection.fedcs import FedCs, greedy
from fednet_emu.testing import run_small
from tests.algorithms.selection.knowledge import known


def by_the_book(download_s, compute_s, upload_s, round_s, size):
    """Algorithm 3 of the paper, set by set: the whole time of a round is worked out anew for every candidate."""

    def distribution_s(devices):
        return max((download_s[k] for k in devices), default=0.0)

    def uploads_end_s(order):
        theta = 0.0
        for k in order:
            theta += upload_s[k] + max(0.0, compute_s[k] - theta)
        return theta

    left, order = list(range(len(upload_s))), []
    while left and len(order) < size:
        now = uploads_end_s(order)

        def adds_s(k, now=now):
            growth_s = distribution_s([*order, k]) - distribution_s(order)
            return growth_s + upload_s[k] + max(0.0, compute_s[k] - now)

        best = max(left, key=lambda k: 1.0 / adds_s(k))
        left.remove(best)
        if distribution_s([*order, best]) + uploads_end_s([*order, best]) < round_s:
            order.append(best)
    return order or [min(range(len(upload_s)), key=lambda k: download_s[k] + compute_s[k] + upload_s[k])]


def test_the_greedy_choice_is_the_pseudo_code() -> None:
    """On 300 random instances, of which some fit all, some a few and some nobody."""
    rng, sizes = np.random.default_rng(0), set()
    for _ in range(300):
        n = int(rng.integers(1, 13))
        times_s = rng.exponential(1.0, (3, n)) * rng.uniform(0.1, 3, (3, 1))
        round_s, size = float(rng.uniform(0.2, 12)), int(rng.integers(1, n + 1))
        found = greedy(*times_s, round_s, size)
        assert found == by_the_book(*times_s, round_s, size)
        sizes.add((len(found) == size, len(found) == 1))

    assert len(sizes) == 4


def test_a_round_by_hand() -> None:
    """Computing hides behind the uploads of others: the slow computer is cheap once two others have uploaded."""
    compute_s, upload_s = np.array([1.0, 4.0, 2.0, 0.5]), np.array([2.0, 1.0, 2.0, 9.0])
    # adds 3, 5, 4, 9.5; then Theta = 3: 9 is still most, device 1 adds 1 + 1 = 2, device 2 adds 2
    assert greedy(np.zeros(4), compute_s, upload_s, 8.0, 4) == [0, 1, 2]
    assert greedy(np.zeros(4), compute_s, upload_s, 7.0, 4) == [0, 1]
    assert greedy(np.zeros(4), compute_s, upload_s, 0.1, 4) == [0]


def test_it_reads_estimates_and_candidates() -> None:
    """Of given candidates, times follow from rates and sizes: 32 bit at 32 bit/s take a second."""
    view = known(4, 4, compute_s=[1, 1, 1, 50], rate_bps=[32, 16, 32, 320], downlink_rate_bps=[320] * 4)

    assert view.upload_s == pytest.approx([1, 2, 1, 0.1])
    assert list(FedCs(round_s=4.5).choose(view)) == [0, 2]
    assert len(FedCs(candidates=4, round_s=1e4).choose(view)) == 4


def test_estimates_are_the_times_of_an_undisturbed_run() -> None:
    """One device alone takes what the server expects: 320 us down, 720 us of work, 320 us up."""
    fed = run_small(
        "algorithm.cohort=1", "algorithm.selection={kind: fedcs, round_s: 0.001361}", "stop.rounds=1", timing_only=True
    )
    took_s = fed.ledger.frames()["selection"]["took_s"]

    assert took_s.tolist() == pytest.approx([0.00136])
