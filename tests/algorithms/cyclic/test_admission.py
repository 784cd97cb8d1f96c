"""Claims about which senders may be on the air together."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fednet_emu.algorithms.cyclic.admission import (
    CandidateSenders,
    coloured_groups,
    greedy_group,
    greedy_groups,
    with_further_seats,
)
from fednet_emu.radio.receiver.interference import successive_cancellation
from tests.quick import crossed

STATIONS = np.array([[0, 0], [200, 0], [100, 173], [-200, 0], [-100, -173]])


def instance(seed, kind):
    """Up to 12 senders at random places: five cells as noise to each other, or one receiver, or one that cancels."""
    rng = np.random.default_rng([seed, len(kind)])
    count, stations = int(rng.integers(4, 13)), STATIONS if kind == "cells" else STATIONS[:1]
    xy_m = rng.uniform(-300, 300, (count, 2))
    distance_m = np.maximum(np.linalg.norm(stations[:, None] - xy_m[None], axis=2), 10)
    snr = 10 ** ((80 - 36.7 * np.log10(distance_m) + rng.normal(0, 6, distance_m.shape)) / 10)
    receiver = snr.argmax(axis=0)
    target_db = rng.uniform(-6, 10) if kind == "cells" else rng.uniform(-12, -1)
    return CandidateSenders(snr[receiver], receiver.tolist(), 10 ** (target_db / 10), 0.01 if kind == "cancel" else 1.0)


def decoded(rivals, members, power):
    """Whether each member is decoded when all send at once with these parts of their full powers, fading aside.

    It computes the SINR at each receiver, and shares no code with the search for powers.
    """
    gain, passed = rivals.snr[np.ix_(members, members)], np.zeros(len(members), bool)
    receiver = np.array([rivals.receiver[i] for i in members])
    for station in np.unique(receiver):
        (own,) = np.nonzero(receiver == station)
        heard = gain[own[0]] * power
        noise = 1.0 + heard[receiver != station].sum()
        passed[own] = successive_cancellation(heard[own], noise, rivals.target, rivals.residual).decoded
    return list(passed)


def any_together(rivals, sets):
    """Whether some powers serve all members of one of the sets [sets, size], without cancellation.

    The lowest powers solve p_i g_ii = target (1 + sum over j of p_j g_ij) and must be positive and at most 1.
    """
    gain = rivals.snr[sets[:, :, None], sets[:, None, :]]
    own = np.einsum("sii->si", gain)
    system = np.where(np.eye(sets.shape[1], dtype=bool), gain, -rivals.target * gain)
    power = np.linalg.solve(system, np.full((*own.shape, 1), rivals.target))
    return bool(np.any(np.all((power > 0) & (power <= 1), axis=(1, 2))))


def largest(rivals, at_least):
    """Size of the largest set that can be together, by brute force from a size that is known to be possible."""
    everybody = range(len(rivals.snr))
    for size in range(at_least + 1, len(rivals.snr) + 1):
        if not any_together(rivals, np.array([*combinations(everybody, size)])):
            return size - 1
    return len(rivals.snr)


def test_greedy_comes_close_to_brute_force():
    """On 200 random instances with up to 12 senders the largest greedy group averages at least 85 % of the optimum."""
    ratios = []
    for seed in range(200):
        rivals = instance(seed, "cells" if seed % 2 else "one")
        size = len(greedy_group(rivals, range(len(rivals.snr))))
        best = largest(rivals, size)
        if best:
            ratios.append(size / best)

    assert len(ratios) > 150
    assert np.mean(ratios) >= 0.85


@pytest.mark.parametrize(("kind", "grouping"), crossed(["cells", "one", "cancel"], [greedy_groups, coloured_groups]))
def test_every_group_passes_the_full_check(kind, grouping):
    """Each member is decoded at the group's powers, none above the cap, and who can be decoded at all is in a group."""
    for seed in range(40):
        rivals = instance(seed, kind)
        everybody = range(len(rivals.snr))
        groups = grouping(rivals, everybody)

        for group in groups:
            power = rivals.joint_powers(group)
            assert power is not None
            assert power.max() <= 1
            assert all(decoded(rivals, group, power))
        able = [i for i in everybody if rivals.snr[i, i] >= rivals.target * (1 + 1e-9)]
        assert sorted(i for group in groups for i in group) == able


def test_further_seats_leave_everybody_decoded():
    """Groups grow by devices that sit elsewhere already, up to their seats, and still pass the full check."""
    grown = 0
    for seed in range(40):
        rivals = instance(seed, "cells")
        groups = greedy_groups(rivals, range(len(rivals.snr)))
        wider = with_further_seats(rivals, groups, 2)
        grown += sum(map(len, wider)) - sum(map(len, groups))

        for before, after in zip(groups, wider, strict=True):
            power = rivals.joint_powers(after)
            assert set(before) <= set(after)
            assert power is not None
            assert all(decoded(rivals, after, power))
        seats = np.bincount([i for group in wider for i in group])
        assert seats.max(initial=0) <= 2

    assert grown > 10


def test_one_receiver_decodes_as_many_as_the_closed_form_says():
    """Equal links at -6 dB: floor(1 + 1 / threshold - 1 / SNR) together without cancellation, one from 0 dB on."""
    for target_db, snr, most in ((-6.0, 100.0, 4), (-6.0, 0.6, 3), (-10.0, 50.0, 10), (0.0, 100.0, 1), (3.0, 100.0, 1)):
        rivals = CandidateSenders(np.full((16, 16), snr), [-1] * 16, 10 ** (target_db / 10))

        assert len(greedy_group(rivals, range(16))) == most


def test_cancellation_makes_room():
    """With SNRs 7, 4, 2, 1 and a target of 1, cancellation serves 7, 4 and 1 or 2: powers 4, 2, 1 from the last."""
    rivals = CandidateSenders(
        np.broadcast_to(np.array([7.0, 4.0, 2.0, 1.0]), (4, 4)).copy(), [-1] * 4, 1.0, residual=0.0
    )
    power = rivals.joint_powers([0, 1, 2])

    assert power is not None
    np.testing.assert_allclose(power * [7, 4, 2], [4, 2, 1], rtol=1e-8)
    assert rivals.joint_powers([0, 1, 2, 3]) is None
    assert len(greedy_group(CandidateSenders(rivals.snr, rivals.receiver, 1.0), range(4))) == 1


def test_the_full_check_sees_who_is_left_out():
    """At full power the stronger of two drowns the weaker one, which is told apart; order of members is kept."""
    rivals = CandidateSenders(np.array([[100.0, 10.0], [100.0, 10.0]]), [-1, -1], 2.0)

    assert decoded(rivals, [0, 1], np.ones(2)) == [True, False]
    assert decoded(rivals, [1, 0], np.ones(2)) == [False, True]
    assert decoded(CandidateSenders(rivals.snr, [-1, -1], 2.0, residual=0.0), [1, 0], np.ones(2)) == [True, True]


def test_a_weak_interferer_is_counted_behind_a_strong_signal():
    """At 170 dB of own signal a foreign 4.8 dB still takes the SINR to a quarter, which misses a target of a half."""
    rivals = CandidateSenders(np.array([[1e17, 3.0], [0.0, 1e17]]), [-1, -2], 5e16, residual=0.0)

    assert decoded(rivals, [0, 1], np.ones(2)) == [False, True]


def test_sizes_can_be_limited():
    """With `most` of 2 there are more groups, none larger."""
    rivals = CandidateSenders(np.full((6, 6), 100.0), [-1] * 6, 0.2)

    assert [len(group) for group in greedy_groups(rivals, range(6))] == [5, 1]
    assert [len(group) for group in greedy_groups(rivals, range(6), most=2)] == [2, 2, 2]
    assert [len(group) for group in coloured_groups(rivals, range(6), most=4)] == [4, 2]


def test_an_infeasible_colour_is_split():
    """Three that pair up but not all at once are one colour, which is split."""
    rivals = CandidateSenders(np.full((3, 3), 100.0), [-1] * 3, 0.7)

    assert [len(group) for group in coloured_groups(rivals, range(3))] == [2, 1]


def test_the_full_check_hears_what_cancellation_leaves():
    """Of SNRs 100 and 4, a tenth of the stronger remains: the weaker has 4 / 11, and 4 with perfect cancellation."""
    snr, full = np.broadcast_to(np.array([100.0, 4.0]), (2, 2)).copy(), np.ones(2)

    assert decoded(CandidateSenders(snr, [-1, -1], 2.0, residual=0.1), [0, 1], full) == [True, False]
    assert decoded(CandidateSenders(snr, [-1, -1], 2.0, residual=0.0), [0, 1], full) == [True, True]


def test_each_further_seat_counts_once():
    """Three devices that never disturb each other, with three seats each, all sit in all three groups."""
    rivals = CandidateSenders(np.diag([5.0, 6.0, 7.0]), [0, 1, 2], 1.0)

    assert with_further_seats(rivals, [[0], [1], [2]], 3) == [[0, 1, 2]] * 3
    assert with_further_seats(rivals, [[0], [1], [2]], 2) == [[0, 2], [0, 1], [1, 2]]
