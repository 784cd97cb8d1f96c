"""Claims about groups formed from the channel, from the admission to the air."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fednet_emu.algorithms.cyclic.admission import candidate_senders
from fednet_emu.algorithms.cyclic.structures import InterferenceGroups
from fednet_emu.errors import ScenarioError
from fednet_emu.testing import run_small, small_federation
from tests.quick import crossed

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
    "one receiver": (*SIXTEEN, RATE.format(-8), "network.uplink.access=shared"),
    "cancellation": (
        *SIXTEEN,
        RATE.format(2),
        "network.uplink.access={kind: noma, threshold_db: 2, residual: 0.001}",
        "devices.placement={kind: disc, radius_m: 150}",
    ),
    "seven cells": (*SIXTEEN, *CELLS, RATE.format(3), "network.uplink.access=shared"),
    "seven cells with cancellation": (
        *SIXTEEN,
        *CELLS,
        RATE.format(3),
        "network.uplink.access={kind: noma, threshold_db: 3, residual: 0}",
    ),
}
ALGORITHM = "algorithm={{kind: cyclic-fedavg, lr: 0.1, structure: {{kind: interference, {}}}}}"


def send_together(fed, powers):
    """Who is decoded when these devices send 100 kbit at once at these parts of their powers."""

    class Once:
        """Sends once."""

        def run(self, fed):
            """All uplinks of one instant."""
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
    seats, ups = frames["cyclic_groups"], frames["transfers"].query("kind == 'uplink'")

    assert (ups["lost"] == "").all()
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
    fed = small_federation(*SIXTEEN, RATE.format(1), "network.uplink.access={kind: shared, max_senders: 1}")

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
            "network.movement_s=0.001",
            f"algorithm={{kind: cyclic-fedavg, lr: 0.1, slot_s: 1, reform_cycles: {reform}, {margin}}}",
            "stop.rounds=40",
            "evaluation.every_rounds=40",
        )
        frames = fed.ledger.frames()
        lost[reform] = (frames["transfers"].query("kind == 'uplink'")["lost"] != "").mean()
        formed[reform] = {
            frozenset(frozenset(group["device"]) for _, group in rows.groupby("group"))
            for _, rows in frames["cyclic_groups"].groupby("cycle")
        }

    assert len(formed["null"]) == 1
    assert len(formed["1"]) > 2
    assert lost["1"] < lost["null"] / 2


@pytest.mark.parametrize(
    ("settings", "structure", "says"),
    [
        ((), "interference", "network.uplink.access: its senders are never on the air together, got tdma"),
        (("network.uplink.access=shared",), "interference", "nothing says which SINR is needed, got none"),
        (
            ("network.uplink.access=shared",),
            "{kind: interference, sinr_db: 150}",
            "no device is decoded even alone, got a best mean SNR of .* where 150.0 dB is needed",
        ),
    ],
)
def test_channels_that_form_no_groups_are_told(settings, structure, says):
    """An uplink in turns, an uplink without any threshold, and a threshold out of reach are refused."""
    with pytest.raises(ScenarioError, match=says):
        run_small(*settings, f"algorithm={{kind: cyclic-fedavg, lr: 0.1, structure: {structure}}}")


def test_members_of_a_group_can_be_together_in_pairs():
    """What the graph of conflicts rests on: no two members of a group are in conflict."""
    rivals = candidate_senders(small_federation(*PLACES["seven cells"]))
    groups = InterferenceGroups(method="colouring").form(small_federation(*PLACES["seven cells"]), 0)

    assert all(rivals.joint_powers(pair) is not None for group in groups for pair in combinations(group, 2))
