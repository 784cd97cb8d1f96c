"""Cyclic participation: admission and interference."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fednet_emu.algorithms.cyclic.structures import (
    CandidateSenders,
    InterferenceGroups,
    candidate_senders,
    coloured_groups,
    greedy_group,
    greedy_groups,
    with_further_seats,
)
from fednet_emu.radio.receiver.interference import successive_cancellation
from fednet_emu.testing import run_small, small_federation
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
    """On 60 random instances with up to 12 senders the largest greedy group averages at least 85 % of the optimum."""
    ratios = []
    for seed in range(60):
        rivals = instance(seed, "cells" if seed % 2 else "one")
        size = len(greedy_group(rivals, range(len(rivals.snr))))
        best = largest(rivals, size)
        if best:
            ratios.append(size / best)

    assert len(ratios) > 45
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


def test_each_further_seat_counts_once():
    """Three devices that never disturb each other, with three seats each, all sit in all three groups."""
    rivals = CandidateSenders(np.diag([5.0, 6.0, 7.0]), [0, 1, 2], 1.0)

    assert with_further_seats(rivals, [[0], [1], [2]], 3) == [[0, 1, 2]] * 3
    assert with_further_seats(rivals, [[0], [1], [2]], 2) == [[0, 2], [0, 1], [1, 2]]


RATE = "channel.rate={{kind: fixed, bit_rate_bps: 1e6, threshold_db: {}}}"
SIXTEEN = (
    "devices.count=16",
    "data={kind: synthetic-regression, n_samples: 160, n_test: 8, features: 4}",
    "channel.path_loss=3gpp-umi",
)
CELLS = (
    "network.cells={kind: hexagonal, rings: 1, inter_site_distance_m: 200}",
    "devices.placement={kind: disc, radius_m: 250}",
    "channel.shadowing=of-path-loss",
)
PLACES = {
    "one receiver": (*SIXTEEN, RATE.format(-8), "network.uplink.access=full-reuse"),
    "cancellation": (
        *SIXTEEN,
        RATE.format(2),
        "network.uplink.access={kind: noma, sinr_threshold_db: 2, residual: 0.001}",
        "devices.placement={kind: disc, radius_m: 150}",
    ),
    "seven cells": (*SIXTEEN, *CELLS, RATE.format(3), "network.uplink.access=full-reuse"),
    "seven cells with cancellation": (
        *SIXTEEN,
        *CELLS,
        RATE.format(3),
        "network.uplink.access={kind: noma, sinr_threshold_db: 3, residual: 0}",
    ),
}
ALGORITHM = "algorithm={{kind: cyclic-fedavg, lr: 0.1, structure: {{kind: interference, {}}}}}"


def send_together(fed, powers):
    """Who is decoded when these devices send 100 kbit at once at these parts of their powers."""

    class Once:
        def run(self, fed):
            fed.initial_model()
            sent = [fed.uplink(fed.device(m), "x", 10**5, power_part=part) for m, part in powers.items()]
            yield fed.clock.all_of(sent)
            self.lost = [transfer.value.lost for transfer in sent]

    once = Once()
    fed.run(once)
    return [not lost for lost in once.lost]


@pytest.mark.parametrize(
    ("place", "settings"), crossed(PLACES, ["method: greedy", "method: colouring", "method: greedy, seats: 2"])
)
def test_the_air_delivers_what_the_check_promised(place, settings):
    """Every member of every group is decoded when the group sends at once at the fixed rate, and so in a whole run."""
    fed = run_small(*PLACES[place], ALGORITHM.format(settings), "stop.rounds=24", "evaluation.every_rounds=24")
    frames = fed.ledger.frames()
    seats, ups = frames["cyclic_groups"], frames["transfers"].query("direction == 'uplink'")

    assert (ups["loss_reason"] == "").all()
    assert len(ups) > 24
    assert seats["power_part"].max() <= 1
    for _, group in seats.groupby("group"):
        powers = dict(zip(group["device"].tolist(), group["power_part"].tolist(), strict=True))
        assert send_together(small_federation(*PLACES[place]), powers) == [True] * len(group)


@pytest.mark.parametrize("place", ["one receiver", "seven cells"])
def test_one_more_member_loses_somebody(place):
    """A full group joined by another that admission refuses loses at least one, even at the best powers there are."""
    groups = InterferenceGroups().form(small_federation(*PLACES[place]), 0)
    fed = small_federation(*PLACES[place])
    rivals = candidate_senders(fed)
    first = [*groups[0]]
    other = next(i for i in range(16) if i not in first and rivals.snr[i, i] > rivals.target)
    members = [*first, other]
    gain, powers = rivals.snr[np.ix_(members, members)], np.ones(len(members))
    own = np.diagonal(gain)
    for _ in range(1000):  # Foschini and Miljanic 1993: towards the least powers that serve all, up to the full ones
        powers = np.minimum(1.0, rivals.target * (gain @ powers - own * powers + 1.0) / own)

    assert send_together(small_federation(*PLACES[place]), groups[0]) == [True] * len(first)
    assert not all(send_together(fed, dict(zip(members, powers.tolist(), strict=True))))
    assert not all(send_together(small_federation(*PLACES[place]), dict.fromkeys(members, 1.0)))


def test_full_power_is_not_enough():
    """The largest group needs its joint powers: all of its members at full power lose somebody."""
    groups = InterferenceGroups().form(small_federation(*PLACES["one receiver"]), 0)
    powers = max(groups, key=len)

    assert all(send_together(small_federation(*PLACES["one receiver"]), powers))
    assert not all(send_together(small_federation(*PLACES["one receiver"]), dict.fromkeys(powers, 1.0)))


def test_one_receiver_above_0_db_serves_one_at_a_time():
    """At a threshold of 1 dB every group of a single receiver without cancellation is one device."""
    fed = small_federation(*SIXTEEN, RATE.format(1), "network.uplink.access={kind: full-reuse, max_senders: 1}")

    assert [len(group) for group in InterferenceGroups().form(fed, 0)] == [1] * 16


def test_a_margin_makes_groups_smaller():
    """Aiming 3 dB above -8 dB leaves room for 3 + 1 instead of 6 + 1 at one receiver."""
    fed = small_federation(*PLACES["one receiver"])

    assert max(map(len, InterferenceGroups().form(fed, 0))) == 7
    assert max(map(len, InterferenceGroups(margin_db=3).form(fed, 0))) == 4
    assert max(map(len, InterferenceGroups(sinr_db=-10, most=9).form(fed, 0))) == 9


def test_groups_follow_devices_that_move():
    """Groups formed anew in every cycle differ, and lose fewer uplinks than groups that stay as they were."""
    lost, formed, margin = {}, {}, "structure: {kind: interference, margin_db: 3}"
    for reform in ("1", "null"):
        fed = run_small(
            *PLACES["seven cells"],
            "devices.mobility={kind: random-direction, min_speed_m_s: 5, max_speed_m_s: 15, mean_leg_s: 20}",
            "network.position_update_s=0.001",
            f"algorithm={{kind: cyclic-fedavg, lr: 0.1, slot_s: 1, reform_cycles: {reform}, {margin}}}",
            "stop.rounds=25",
            "evaluation.every_rounds=25",
        )
        frames = fed.ledger.frames()
        lost[reform] = (frames["transfers"].query("direction == 'uplink'")["loss_reason"] != "").mean()
        formed[reform] = {
            frozenset(frozenset(group["device"]) for _, group in rows.groupby("group"))
            for _, rows in frames["cyclic_groups"].groupby("cycle")
        }

    assert len(formed["null"]) == 1
    assert len(formed["1"]) > 2
    assert lost["1"] < lost["null"] / 2
