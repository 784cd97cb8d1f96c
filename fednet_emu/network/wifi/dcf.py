"""Wi-Fi: stations contend for a channel (distributed coordination function, DCF, of IEEE 802.11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator
from typing_extensions import override

from fednet_emu.arrays import Array
from fednet_emu.network.access.base import RatedAccess, Use
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.patience import Patience
from fednet_emu.network.air.queue import TurnQueue
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.sharing import Allocation, RateInputs
from fednet_emu.network.links.links import LinksOverTime
from fednet_emu.network.wifi.contention import Mode, Shares, contend
from fednet_emu.network.wifi.standards import FAMILIES, WifiStandard, schemes
from fednet_emu.radio.fading import NoFading
from fednet_emu.radio.rates.base import Staircase
from fednet_emu.units import db_to_linear


class Uncontended(Staircase):
    """Rate law of a Wi-Fi station that is alone on the channel, in bit/s of IP packets of 1500 bytes.

    The station uses the fastest scheme whose frame error rate at the SINR is at most 10 % (ideal rate control). The
    rate assumes that no frame is lost.
    """

    mode: Mode
    """Transmission mode of all stations on the channel."""

    @override
    def narrowest_part(self, bandwidth_hz: Array | float) -> Array | float:
        """Return the share of the band that the Wi-Fi channel covers; a station sends on it with its whole power."""
        return np.minimum(self.mode.width_mhz * 1e6 / bandwidth_hz, 1.0)

    @cached_property
    def stairs(self) -> tuple[list[float], list[float]]:
        """Return the SINR thresholds (linear) of the schemes in increasing order, and the rates of the schemes.

        Rates are in bit/s per Hz of channel width.
        """
        mode = self.mode
        known = schemes(mode.standard, mode.width_mhz, mode.streams)
        alone = contend(mode, np.arange(len(known))[None, :], np.zeros(1, np.int64)).rate_bps[0]
        thresholds = [mode.streams * db_to_linear(scheme.snr_db) for scheme in known]
        return thresholds, (alone / (mode.width_mhz * 1e6)).tolist()


class Dcf(RatedAccess):
    """Wi-Fi: all stations contend for one channel, each with the fastest scheme that its SNR allows in a fading block.

    Rates are computed whenever a transmission starts or ends, and assume backlogged stations (Bianchi, IEEE JSAC 18,
    2000). All stations send the same number of frames, so that slow stations slow down all others. Single frames and
    RTS/CTS use the correction for frozen backoff by Tinnirello, Bianchi and Xiao (IEEE TVT 59, 2010). A station that
    misses a block acknowledgement requests this acknowledgement before it sends again (`block_ack_request`). Rates are
    within 5 % of ns-3 3.44 for 1 to 20 stations (10 % if one of them is slow). With aggregation, more than 20 stations
    are not validated, because some stations get hardly any airtime in ns-3. A base station counts as one station, which
    sends to its receivers in turn.

    Rates are in bit/s of IP packets of 1500 bytes, and do not depend on `channel.rate` and `channel.narrowing`. The
    model has best-effort traffic, 5 GHz timing, the shortest guard interval, and aggregates of at most 65,535 bytes, 64
    frames (256 in ax) and 5.484 ms. A station whose SNR is too low for all schemes sends nothing. A sender uses power
    only while it sends.
    Ignored here: contention between uplink and downlink, which share a channel in Wi-Fi; TCP's acknowledgements on the
    air (2 to 3 % with aggregation, 20 % in 802.11a); hidden stations, capture, packet errors, beacons, delayed rate
    control, and random advantages of some stations for several seconds.
    """

    DIRECTIONS: ClassVar[frozenset[str]] = frozenset({"uplink", "downlink"})
    multicasts: ClassVar[bool] = False

    standard: WifiStandard = "ac"
    """Version of IEEE 802.11: a, n (Wi-Fi 4), ac (Wi-Fi 5) or ax (Wi-Fi 6, one user at a time)."""

    width_mhz: Literal[20, 40, 80, 160] | None = None
    """Width of the Wi-Fi channel in MHz, which may be a part of the band; null for the whole band."""

    streams: Literal[1, 2] = 1
    """Number of spatial streams, which divide the power of the sender and do not interfere with each other."""

    aggregation: bool | None = None
    """Whether frames are aggregated (A-MPDU); null means true for all standards except `a`."""

    rts: bool = False
    """Whether a request to send (RTS) and its answer (CTS) precede each frame, which shortens collisions."""

    block_ack_request: bool | None = None
    """Whether a station sends a block-ack request after an aggregate without acknowledgement; null means true if frames
    are aggregated and `rts` is false. With false, rates are 3 to 10 % higher than in ns-3."""

    @model_validator(mode="after")
    def _standard_has_it(self) -> Self:
        widths = FAMILIES[self.standard].subcarriers
        if self.width_mhz is not None and self.width_mhz not in widths:
            known = ", ".join(map(str, widths))
            raise ValueError(f"802.11{self.standard} has channels of {known} MHz, got width_mhz {self.width_mhz}")
        if self.standard == "a" and (self.streams > 1 or self.aggregation):
            got = "aggregation: true" if self.aggregation else f"streams: {self.streams}"
            raise ValueError(
                f"802.11a has one stream and single frames, got {got}; leave it out, or choose n, ac or ax"
            )
        if self.block_ack_request is not None and (self.rts or not self._aggregates):
            got = "rts: true" if self.rts else "single frames"
            raise ValueError(
                f"block-ack requests follow aggregates that collided, got block_ack_request with {got}; leave it out"
            )
        return self

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        channel, widths = scenario.channel, FAMILIES[self.standard].subcarriers
        wide_mhz, got = channel.bandwidth_hz / 1e6, f"got channel.bandwidth_hz {channel.bandwidth_hz:g}"
        if self.width_mhz is None and wide_mhz not in widths:
            known = ", ".join(map(str, widths))
            yield "width_mhz", f"802.11{self.standard} has channels of {known} MHz, {got}; set that, or width_mhz too"
        if self.width_mhz is not None and self.width_mhz > wide_mhz:
            what = f"is wider than the band, got {self.width_mhz} MHz in {wide_mhz:g}"
            yield "width_mhz", f"{what}; set channel.bandwidth_hz: {self.width_mhz}e6"
        if channel.subcarrier_spacing_khz is not None:
            what = (
                f"resource blocks belong to 5G NR, got channel.subcarrier_spacing_khz {channel.subcarrier_spacing_khz}"
            )
            yield "", f"{what} with {self.kind}; set it to null, or choose another access"
        if channel.fading_model == "ergodic" and not isinstance(channel.fading, NoFading):
            what = "stations share the channel per fading block, got channel.fading_model ergodic"
            yield "", f"{what} with {self.kind}; set walk, or channel.fading: none"
        if (count := scenario.network.cells.count) > 1:
            what = f"base stations on one channel contend with each other, got {count} of them with {self.kind}"
            yield "", f"{what}; set network.cells: single, or choose another access"

    @property
    def _aggregates(self) -> bool:
        return self.standard != "a" if self.aggregation is None else self.aggregation

    def mode(self, bandwidth_hz: float) -> Mode:
        aggregates, width_mhz = self._aggregates, float(self.width_mhz or bandwidth_hz / 1e6)
        requests = aggregates and not self.rts and self.block_ack_request is not False
        return Mode(self.standard, round(width_mhz), self.streams, aggregates, self.rts, requests)

    @override
    def law(self, bandwidth_hz: float) -> Uncontended:
        return Uncontended(mode=self.mode(bandwidth_hz))

    @override
    def use(self, band: Band, links: LinksOverTime, cells: int, devices: int) -> Use:
        law = self.law(band.bandwidth_hz)
        own = replace(band, law=law, share=law.mode.width_mhz * 1e6 / band.bandwidth_hz)
        air = SharedAir(self, own, links, cells)
        return Use(own, TurnQueue(self.capacity, cells), air, patience=Patience(own, disturbed=True))

    def power(self, inputs: RateInputs) -> Array:
        """Return the share of the time for which each burst is on the air, in each block [bursts, blocks]."""
        return self._contend(inputs).airtime

    def allocate(self, inputs: RateInputs, power: Array | None) -> Allocation:
        """Return each leg's SINR on the Wi-Fi channel, and the band share at which this SINR gives the leg's rate."""
        band, sinr = inputs.band, inputs.own / inputs.band.share
        alone_bps = band.rates_bps(sinr, band.share)
        part = np.divide(self._contend(inputs).rate_bps, alone_bps, out=np.zeros_like(sinr), where=alone_bps > 0)
        return Allocation(sinr, part * band.share, sinr)

    def _contend(self, inputs: RateInputs) -> Shares:
        law, active = inputs.band.law, inputs.active
        assert isinstance(law, Uncontended), "a band as this scheme uses it has this law"
        return contend(law.mode, law.scheme(inputs.own / inputs.band.share), active.sender[active.burst])
