"""Edges of a graph from radio links: an edge for each link with a sufficient mean SINR at the present positions."""

from __future__ import annotations

from functools import partial

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.network.topology.edges import Edges, EdgeSource, Ends, TopologyInputs
from fednet_emu.units import db_to_linear


class Geometric(Edges):
    """An edge for every link whose mean SINR at the devices' present positions reaches a threshold.

    The SINR is averaged over fading. If `slots` is set, each draw of the graph assigns a random slot to every device. A
    device cannot receive in the slot in which it sends (half duplex), and signals of other senders in the slot of a
    link's sender count as noise. If `slots` is null, there is no interference. Links have the parameters of the
    sidelink, including `asymmetry`.
    Ignored here: fading, and interference from senders beyond `reach_m`.
    """

    min_sinr_db: float
    """Minimum SINR in dB, averaged over fading, at which a link is an edge."""

    reach_m: float = Field(gt=0)
    """Maximum length of an edge in m; senders farther away cause no interference."""

    slots: int | None = Field(None, ge=2)
    """Number of slots that devices share. null if each device has its own slot, so that there is no interference."""

    def source(self, inputs: TopologyInputs) -> EdgeSource:
        return partial(self._good, inputs)

    def _good(self, inputs: TopologyInputs, group: IntArray, at_s: float, name: tuple[int, ...]) -> Ends:
        from scipy.spatial import cKDTree

        xy_m = inputs.paths.positions_m(np.arange(inputs.count), at_s)
        pairs = cKDTree(xy_m).query_pairs(self.reach_m, output_type="ndarray").astype(np.int64)
        sender, receiver = (np.concatenate((pairs[:, end], pairs[:, 1 - end])) for end in (0, 1))
        sinr = inputs.links_at(at_s).snrs(sender, receiver)
        apart = np.ones(len(sender), np.bool_)
        if self.slots is not None:
            slot = inputs.streams("topology", "turns", *name).integers(self.slots, size=inputs.count)
            sinr = sinr_in_slots(sinr, receiver, slot[sender])
            apart = slot[sender] != slot[receiver]
        good = apart & (sinr >= db_to_linear(self.min_sinr_db))
        return sender[good], receiver[good]


def sinr_in_slots(snr: Array, receiver: IntArray, slot: IntArray) -> Array:
    """Return the SINR (linear) of each link [links]; links with the same receiver and slot interfere.

    Ignored here: senders without a link to the receiver.

    Args:
        snr: [links] SNR (linear) of each link without interference.
        receiver: [links] receiver of each link.
        slot: [links] slot of each link's sender.
    """
    if not len(snr):
        return snr
    place = receiver * (slot.max() + 1) + slot
    heard = np.bincount(place, snr)[place]
    return np.asarray(snr / (1.0 + np.maximum(heard - snr, 0.0)))
