"""Admission control: sets of senders that can all be decoded when they send together, and the powers that they need.

Finding the largest set of such senders is NP-hard, so sets are grown greedily, or taken from a colouring of the graph
of pairs that cannot send together. Powers are the lowest at which all members of a set are decoded (see
`power_control`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Federation
from fednet_emu.radio.receiver.power_control import feasibility
from fednet_emu.units import db_to_linear

SLACK = 1e-9
"""Relative margin of the powers above the SINR target, so that rounding does not put a sender below the target."""


@dataclass(frozen=True, slots=True, eq=False)
class CandidateSenders:
    """Senders that compete for the same band at the same time."""

    snr: Array  # [n, n] SNR, at the receiver of sender i (row), of sender j (column) at full power
    receiver: Sequence[int]  # [n] the receiver of each sender
    target: float  # SINR (linear) for decoding
    residual: float = 1.0  # fraction of a decoded signal that still interferes; 1 without cancellation

    def joint_powers(self, members: Sequence[int]) -> Array | None:
        """Lowest powers [members], as fractions of full power, at which all members are decoded; None if impossible.

        With interference cancellation, the stronger of two senders at one receiver is decoded first. The stronger
        sender is decoded against the full signal of the weaker sender, the weaker sender only against the residual of
        the stronger. Ignored here: fading.
        """
        gain = self.snr[np.ix_(members, members)]
        receiver, own = np.array([self.receiver[i] for i in members]), np.diagonal(gain)
        rank = np.argsort(np.argsort(-own, kind="stable"))
        before = (receiver[:, None] == receiver[None, :]) & (rank[None, :] < rank[:, None])
        gain = np.where(before, self.residual * gain, gain)
        target = np.full(len(gain), self.target * (1.0 + SLACK))
        found = feasibility(target, gain, np.ones(len(gain)), 1.0)
        return found.power_w if found.feasible else None


def candidate_senders(fed: Federation, sinr_db: float | None = None, margin_db: float = 0.0) -> CandidateSenders:
    """Return the uplinks of all devices at full power, from which admission decides who may send together now.

    `sinr_db` is the SINR in dB that each sender needs; None stands for the lowest SINR at which the whole band carries
    bits. `margin_db` is a margin in dB that is added to the SINR needed.
    """
    uplink = fed.network.uplink
    band, links, access = uplink.band, uplink.links.now(), uplink.settings.access
    if access.residual_share is None or uplink.rates is not None:
        got = access.kind if uplink.rates is None else "recorded rates"
        raise ScenarioError(
            f"network.uplink.access: its senders are never on the air together, got {got}; choose shared or noma"
        )
    devices = np.arange(fed.n_devices)
    receiver = np.array([links.station_of(device) for device in devices.tolist()])
    lowest = max(band.law.min_sinr, band.threshold)
    target = lowest if sinr_db is None else db_to_linear(sinr_db)
    if target == 0:
        raise ScenarioError(
            "network.uplink.access.threshold_db: the required SINR is missing here and in channel.rate; "
            "give it here, or sinr_db to the groups"
        )
    gain = links.snrs(devices[None, :], receiver[:, None])
    gain = band.reception.of_pairs(gain, receiver, access.capacity or len(receiver))
    return CandidateSenders(gain, receiver.tolist(), target * db_to_linear(margin_db), access.residual_share)


def greedy_group(rivals: CandidateSenders, candidates: Iterable[int], most: int | None = None) -> list[int]:
    """Return a large set of candidates that can send together, grown greedily one candidate at a time.

    Each step adds the candidate that leaves the most spare power, which is the full power minus the highest power of a
    member. The set is empty if no candidate can be decoded even alone.
    """
    group: list[int] = []
    room = list(candidates)
    while room and (most is None or len(group) < most):
        powers = {i: rivals.joint_powers([*group, i]) for i in room}
        loads = {i: float(power.max()) for i, power in powers.items() if power is not None}
        if not loads:
            break
        group.append(min(loads, key=loads.__getitem__))
        room = [i for i in loads if i != group[-1]]  # a sender that does not fit now cannot fit a larger group
    return sorted(group)


def greedy_groups(rivals: CandidateSenders, candidates: Iterable[int], most: int | None = None) -> list[list[int]]:
    """Split the decodable candidates into groups that can send together, one greedy group after the other."""
    left, groups = list(candidates), []
    while group := greedy_group(rivals, left, most):
        groups.append(group)
        left = [i for i in left if i not in group]
    return groups


def coloured_groups(rivals: CandidateSenders, candidates: Iterable[int], most: int | None = None) -> list[list[int]]:
    """Return groups from a DSATUR colouring of the graph whose edges are the pairs that cannot send together.

    The interference of several senders adds up, so the senders of one colour may not all be decoded; such a colour is
    split greedily.
    """
    import networkx as nx

    able = [i for i in candidates if rivals.joint_powers([i]) is not None]
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(able)
    pairs = ((i, j) for place, i in enumerate(able) for j in able[place + 1 :])
    graph.add_edges_from(pair for pair in pairs if rivals.joint_powers(pair) is None)
    colour = nx.greedy_color(graph, strategy="saturation_largest_first")
    classes = [[i for i in able if colour[i] == shade] for shade in range(max(colour.values(), default=-1) + 1)]
    return [group for members in classes for group in greedy_groups(rivals, members, most)]


def with_further_seats(
    rivals: CandidateSenders, groups: Sequence[Sequence[int]], seats: int, most: int | None = None
) -> list[list[int]]:
    """Add devices to more groups, up to `seats` groups per device, as long as all members are still decoded.

    Devices are added in descending order of link quality, and each device joins the smallest groups first.
    """
    formed = [list(group) for group in groups]
    own = np.diagonal(rivals.snr)
    for device in sorted({i for group in formed for i in group}, key=lambda i: -own[i]):
        taken = sum(device in group for group in formed)
        for group in sorted(formed, key=len):
            possible = taken < seats and device not in group and (most is None or len(group) < most)
            if possible and rivals.joint_powers([*group, device]) is not None:
                group.append(device)
                taken += 1
    return [sorted(group) for group in formed]
