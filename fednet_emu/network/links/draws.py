"""Random numbers for large-scale propagation, keyed by device, or by device and position."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import scipy

from fednet_emu.arrays import Array, IntArray
from fednet_emu.kernel.streams import Streams, mixes, uniforms
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.radio.propagation.shadowing import WAVES, shadow_normals

PER_DEVICE = ("indoor", "building", "depth")
"""Names of random numbers that depend only on the device, not on the base station."""


def still_draws(streams: Streams, numbers: IntArray, cell: int = 0) -> LinkDraws:
    """Random numbers for the links between a cell's base station and devices that do not move, keyed by `numbers`."""

    def uniform(what: str) -> Array:
        return uniforms(streams.key(what, *_name(what, cell)), numbers)

    return LinkDraws.of(uniform)


def moving_draws(
    channel: Channel, hop: Hop, xy_m: Array, streams: Streams, numbers: IntArray, cell: int = 0
) -> LinkDraws:
    """Random numbers for the links of moving devices; line of sight and shadowing are random functions of position.

    Both functions have the spatial correlation exp(-d / d_corr) at the distance d. For shadowing, d_corr depends on
    whether the link has line of sight (Gudmundson, Electronics Letters 1991; TR 38.901 Table 7.5-6). For line of sight,
    d_corr is a parameter of the path loss (Table 7.6.3.1-2). Both change smoothly along a path, and depend only on the
    position.

    Args:
        xy_m: [devices, 2] coordinates in m.
        numbers: [devices] numbers used as keys of the random numbers.
        cell: index of the base station's cell.
    """
    still = still_draws(streams, numbers, cell)
    los_waves = _waves(streams, "los", numbers, cell)
    los = scipy.special.ndtr(shadow_normals(xy_m, channel.path_loss.los_correlation_m, los_waves))
    seen = replace(still, los=np.asarray(los))
    correlation_m = np.maximum(channel.large_scale(hop, seen).correlation_m, 1e-3)
    shadowing = shadow_normals(xy_m, correlation_m, _waves(streams, "shadowing", numbers, cell))
    return replace(seen, shadowing=shadowing)


def _name(what: str, cell: int) -> tuple[str, *tuple[int, ...]]:
    return ("cell", cell) if cell and what not in PER_DEVICE else ("cell",)


def _waves(streams: Streams, what: str, numbers: IntArray, cell: int) -> Array:
    return _wave_uniforms(streams.key("waves", what, cell), numbers.tobytes())


@lru_cache(maxsize=8)
def _wave_uniforms(key: int, numbers: bytes) -> Array:
    device = mixes(key, np.frombuffer(numbers, np.int64))[:, None]
    return uniforms(device, np.arange(WAVES * 3)[None, :]).reshape(-1, WAVES, 3)
