"""Analogue uplinks whose signals add up in the air (over-the-air computation), with truncated channel inversion.

Zhu, Wang, Huang: "Broadband Analog Aggregation for Low-Latency Federated Edge Learning", IEEE Transactions on Wireless
Communications 19(1), 2020, https://arxiv.org/abs/1812.11494. Also Yang, Jiang, Shi, Ding: "Federated Learning via
Over-the-Air Computation", same journal 19(3), 2020, https://arxiv.org/abs/1812.11750; Amiri, Gündüz: "Machine Learning
at the Wireless Edge", IEEE Transactions on Signal Processing 68, 2020, https://arxiv.org/abs/1901.00844; Cao, Zhu, Xu,
Huang: "Optimized Power Control for Over-the-Air Computation in Fading Channels", IEEE TWC 19(11), 2020,
https://arxiv.org/abs/1906.06858.

Symbols: device k has the channel h_k and sends b_k s_k, where s_k has unit power. If |h_k|^2 >= g, then b_k = sqrt(eta)
/ h_k; otherwise b_k = 0. The server receives the sum of all h_k b_k s_k plus noise n of power sigma^2. From K devices
that send, the server computes the mean (sum of s_k) / K + n / (K sqrt(eta)).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from pydantic import Field
from typing_extensions import override

from fednet_emu.arrays import Array, IntArray
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.errors import ScenarioError
from fednet_emu.kernel.clock import to_ns
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.access.base import Access, Use
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.queue import TurnQueue
from fednet_emu.network.air.separate import SeparateAir
from fednet_emu.network.air.transfer import Burst
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.fading import Fading
from fednet_emu.records.ledger import SERVER
from fednet_emu.units import db_to_linear

_STEPS = 1 << 14
_NEVER = 1e-300
"""Lower bound for the probability that the fading gain is below the cutoff, which avoids the logarithm of 0."""


@cache
def mean_inverse(fading: Fading, cutoff: float, *, los: bool = False) -> float:
    """Return the mean over the fading of 1 / |h|^2, where values with |h|^2 < `cutoff` are replaced by 0.

    This is the mean transmit power divided by the received power eta. For Rayleigh fading, it is the exponential
    integral E1(`cutoff`).
    """
    if math.isinf(fading.coherence_s):
        gain = fading.gain(0.5, los)
        return 1.0 / gain if gain >= cutoff else 0.0
    silent = max(float(fading.cdf(np.array([cutoff]), los)[0]), _NEVER)
    middles = silent ** ((np.arange(_STEPS) + 0.5) / _STEPS)  # evenly in the logarithm, as 1 / |h|^2 is steep near 0
    return -math.log(silent) * float(np.mean(middles / np.maximum(fading.gains(middles, los), cutoff)))


def misalignment(gain: Array, csi_error: float, normal: Array) -> Array:
    """Return the factors Re(h_k / h'_k) [K] of received signals if devices invert measured channels h'_k, not h_k.

    The channel has changed since its measurement: h = sqrt(1 - e) h' + sqrt(e) z with complex normal z of unit power,
    so that h and h' have the same distribution for Rayleigh fading. The factor has the mean sqrt(1 - e) and the
    variance e / (2 |h'|^2).

    Args:
        gain: [K] measured gains |h'_k|^2.
        csi_error: e in [0, 1), the part of the channel's power that has changed since the measurement.
        normal: [K] standard normal random numbers.
    """
    return np.asarray(math.sqrt(1.0 - csi_error) + np.sqrt(csi_error / (2.0 * gain)) * normal)


def relative_error(snr: float, devices: int) -> float:
    """Return the mean square error, per entry, of the received mean of K unit-power vectors: sigma^2 / (eta K^2).

    Args:
        snr: eta / sigma^2 (linear): received power of each signal divided by the noise power.
        devices: K, the number of devices that send.
    """
    return 1.0 / (snr * devices**2)


class OverTheAir(Access):
    """All devices send analogue signals simultaneously, one vector entry per symbol, and the server receives the sum.

    A device divides its signal by its channel, so that all signals arrive with the same power eta. A device whose
    fading gain is below `cutoff` at the start of a burst sends nothing (truncated channel inversion, as in Zhu, Wang,
    Huang, TWC 2020). A burst takes ceil(entries / symbols per slot) slots, for any number of devices.
    Ignored here: synchronisation, how devices learn their channels and the common scale of the signals, peak powers of
    the signals, and changes of the channel during a burst.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink"})
    overlapping: ClassVar[bool] = True
    only_sums: ClassVar[bool] = True

    slot_s: float = Field(1e-3, gt=0)
    """Duration of a slot in s."""

    symbols_per_slot: int | None = Field(None, gt=0)
    """Number of symbols in a slot, each of which carries one vector entry. null means the bandwidth times `slot_s`, but
    at least 1."""

    cutoff: float = Field(0.2, gt=0)
    """Fading gain |h|^2 below which a device sends nothing (g); the mean gain is 1."""

    budget: Literal["mean", "peak"] = "mean"
    """Power that is limited to the transmit power of the device's radio. mean: the mean power over all bursts,
    including those in which the device sends nothing; the power in a single burst may be higher. peak: the power in
    each burst."""

    snr_db: float | None = None
    """SNR eta / sigma^2 in dB at which each signal arrives; devices that would exceed their power limit send nothing.
    null for the highest SNR that all devices of a burst can reach, which depends on the weakest link."""

    csi_error: float = Field(0.0, ge=0, lt=1)
    """Fraction of the channel's power that has changed since the devices measured the channel; devices do not know the
    change."""

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        kind = scenario.algorithm.kind
        for key, what in scenario.algorithm.conflicts_with_sums():
            where = kind if key == "kind" else f"algorithm.{key}"
            yield (
                "",
                f"the server receives nothing but sums of uploads, which is not enough for {where}: {what}; "
                f"got {self.kind}, choose ofdma or tdma, or change the algorithm",
            )

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        def walk(burst: Burst, start_ns: int, _horizon_ns: int) -> int:
            last_ns = start_ns
            for leg in burst:
                needed_ns = to_ns(self.burst_s(leg.size_bit // FLOAT_BIT, band.bandwidth_hz))
                end_ns, leg.transmitted_bit = start_ns + needed_ns, float(leg.size_bit)
                if end_ns > leg.until_ns:
                    end_ns, leg.lost = leg.until_ns, leg.until_reason
                    leg.transmitted_bit *= (end_ns - start_ns) / needed_ns
                last_ns = max(last_ns, end_ns)
            return last_ns

        return Use(band, TurnQueue(None, cells), SeparateAir(walk))

    def burst_s(self, entries: int, bandwidth_hz: float) -> float:
        """Return the duration in s of a burst of vectors with `entries` entries, rounded up to whole slots."""
        symbols = self.symbols_per_slot or max(1, int(bandwidth_hz * self.slot_s * (1 + 1e-12)))
        return -(-entries // symbols) * self.slot_s


_TIE = 1 + 1e-12


class Sending(NamedTuple):
    """States of the devices in a burst (one simultaneous transmission of all devices).

    Attributes:
        silent: [devices] reason why the device sends nothing: "outage" in a deep fade, "unreachable" if its power never
            suffices; empty for a device that sends.
        power_part: [devices] transmit power of each device relative to the full power of its radio; 0 if it is silent.
        factor: [devices] error factor of each received signal; 1 if devices know their channels exactly.
        snr: SNR eta / sigma^2 (linear) at which each signal should arrive.
    """

    silent: list[str]
    power_part: Array
    factor: Array
    snr: float


@final
class Superposition:
    """The uplink of one cell in which the signals of all devices add up.

    Raises:
        ScenarioError: no link can reach the fading gain `cutoff`.
    """

    def __init__(self, access: OverTheAir, channel: Channel, links: LinksOverTime, streams: Streams) -> None:
        self._access, self._links, self._streams = access, links, streams
        self._band = Band.of(channel.usable_hz, channel.rate, channel.fading)
        self._inverse = np.array([mean_inverse(channel.fading, access.cutoff, los=los) for los in (False, True)])
        if not self._inverse.any():
            raise ScenarioError(
                f"network.uplink.access.cutoff: no link ever has that gain, got {access.cutoff:g} with links that do "
                "not fade; must be at most 1"
            )

    def burst_s(self, entries: int) -> float:
        return self._access.burst_s(entries, self._band.bandwidth_hz)

    def sending(self, devices: IntArray, now_ns: int, burst: int) -> Sending:
        """Return the states of `devices` [n] in the burst with the number `burst`, which starts at `now_ns`."""
        access, server = self._access, np.full(len(devices), SERVER)
        links = self._links.now()
        keys = links.fading_keys(devices, server)
        mean_snr, los = links.snrs(devices, server), (keys & np.uint64(1)).astype(np.int64)
        gain = self._band.gains(keys, np.array([now_ns // self._band.coherence_ns]))
        drawn = self._inverse[los]  # mean transmit power divided by eta; 0 for links that never reach the cutoff
        bound = np.full(len(drawn), 1.0 / access.cutoff) if access.budget == "peak" else drawn
        most = np.divide(mean_snr, bound, out=np.zeros(len(drawn)), where=drawn > 0)
        within = most > 0
        snr = float(most[within].min(initial=np.inf)) if access.snr_db is None else db_to_linear(access.snr_db)
        within &= most * _TIE >= snr
        sends = within & (gain >= access.cutoff)
        silent = np.where(sends, "", np.where(within, "outage", "unreachable")).tolist()
        power = np.divide(snr, mean_snr * gain, out=np.zeros(len(gain)), where=sends)
        factor = np.ones(len(gain))
        if access.csi_error:
            own = self._streams.many([("over-the-air", "csi", device, burst) for device in devices.tolist()])
            factor = misalignment(gain, access.csi_error, np.array([rng.standard_normal() for rng in own]))
        return Sending(silent, power, factor, snr)
