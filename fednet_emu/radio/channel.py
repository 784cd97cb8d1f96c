"""The channel component: one choice of every radio law, and the two kinds of terminal that use it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from fednet_emu.arrays import Array
from fednet_emu.component.component import Component
from fednet_emu.errors import ScenarioError
from fednet_emu.radio.ageing import AgedRate, ages
from fednet_emu.radio.energy import Transmitter
from fednet_emu.radio.fading import AnyFading, BlockFading, Fading, NoFading, Rician, independent_parts
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.nr.numerology import SUBCARRIERS_PER_BLOCK, occupied_hz, resource_blocks
from fednet_emu.radio.profiles import RadioProfile, StationProfile, TransmitterProfile
from fednet_emu.radio.propagation.base import Propagation
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.radio.propagation.path_loss import AnyPathLoss
from fednet_emu.radio.propagation.shadowing import AnyShadowing, NoShadowing, ShadowingOfPathLoss
from fednet_emu.radio.propagation.tr38901.delay_spread import KINDS, median_delay_spread_s
from fednet_emu.radio.rate_laws import AnyRateLaw
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.radio.rates.ergodic import averaged, require_mean
from fednet_emu.radio.rates.narrowing import narrowed
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.units import THERMAL_NOISE_DBM_HZ, dbm_to_watt

HANDSET_DBM = 23.0
"""Largest radiated power in dBm of a handset of power class 3 (3GPP TS 38.101-1, from memory)."""
_TRIAL_M = 50.0
_LTE_SPACING_KHZ = 15


class Terminal(Component):
    """The radio of a device or of a base station."""

    tx_power_dbm: float
    """Radiated power in dBm."""

    noise_figure_db: float = Field(ge=0)
    """Noise figure of the receiver in dB."""

    height_m: float = Field(ge=0)
    """Height of the antenna above ground in m."""

    profile: TransmitterProfile | None = None
    """A radio that exists, by the name of a file in profiles/. It states what it draws; a setting beside it wins."""

    amplifier_efficiency: float | None = Field(default=None, gt=0, le=1)
    """Radiated over drawn power of the amplifier; null takes that of `profile`, of devices else that of
    `devices.profile`, and 1, as in most papers, where nothing states what sending draws; 0.35 in hardware. Beside a
    profile that states the power while sending only, it splits that power, at 23 dBm."""

    circuit_w: float | None = Field(default=None, ge=0)
    """Power in W that the rest of the transmitter draws while it sends, beside `idle_w`; null takes that of `profile`,
    else what is left of the power that `devices.profile` states for sending, and 0, as in most papers, without."""

    @property
    def tx_power_w(self) -> float:
        """Radiated power in W."""
        return dbm_to_watt(self.tx_power_dbm)

    def stated(self, name: str) -> float | None:
        """A number of this radio, its own or that of its profile; None where neither states it."""
        own: float | None = getattr(self, name)
        return own if own is not None or self.profile is None else self.profile.numbers.get(name)

    @property
    def whole_w(self) -> float | None:
        """Power in W while it sends at the power `most_dbm` of its profile, as that states it; None if it does not."""
        return None if self.profile is None else self.profile.numbers.get("transmit_w")

    def transmitter(
        self, whole_w: float | None = None, at_dbm: float | None = None, efficiency: float | None = None
    ) -> Transmitter:
        """What the transmitter draws, by this radio, and where it says nothing, by the device around it.

        Args:
            whole_w: power in W of the device while it sends, beside its idle power; None for unknown.
            at_dbm: radiated power in dBm for which that holds; None for that of a handset, `HANDSET_DBM`.
            efficiency: radiated over drawn power of its amplifier; None for unknown.
        """
        if self.profile is not None and self.whole_w is not None:
            whole_w, at_dbm, efficiency = self.whole_w, self.profile.most_dbm, None
        circuit_w, efficiency = self.stated("circuit_w"), self.stated("amplifier_efficiency") or efficiency
        if circuit_w is not None or whole_w is None:
            return Transmitter(efficiency or 1.0, circuit_w or 0.0)
        at_w = self.tx_power_w if efficiency is None else dbm_to_watt(HANDSET_DBM if at_dbm is None else at_dbm)
        return Transmitter.of_whole(whole_w, at_w, efficiency)


class DeviceRadio(Terminal):
    """The radio of a device; by default that of a handset."""

    tx_power_dbm: float = HANDSET_DBM
    """Radiated power in dBm."""

    noise_figure_db: float = Field(default=9.0, ge=0)
    """Noise figure of the receiver in dB."""

    height_m: float = Field(default=1.5, ge=0)
    """Height of the antenna above ground in m."""

    profile: RadioProfile | None = None
    """A radio that exists, by the name of a file in profiles/. It states what it draws; a setting beside it wins, and
    it wins over what `devices.profile` states for sending and receiving."""

    receive_w: float | None = Field(default=None, ge=0)
    """Power in W that the receiver draws while it receives, beside `idle_w`; null takes that of `profile`, else that of
    `devices.profile`, and 0, as in most papers, where none is stated; 0.1 to 1 in hardware."""

    transmit_j_per_bit: float | None = Field(default=None, ge=0, le=1)
    """Energy in J of each bit that it sends, beside the power while it sends: the slope of a power that grows with the
    rate; null takes that of `profile`, and 0 where it states none; 8e-8 for LTE."""

    receive_j_per_bit: float | None = Field(default=None, ge=0, le=1)
    """Energy in J of each bit that it receives, beside `receive_w`; null takes that of `profile`, and 0 where it states
    none; 1.5e-8 for LTE."""

    idle_w: float | None = Field(default=None, ge=0)
    """Power in W that the whole device draws all the time, whatever it does; null takes that of `devices.profile`, and
    0, as in most papers, where it states none."""


class StationRadio(Terminal):
    """The radio of a base station, which draws `idle_w` and what it sends; by default that of a small cell."""

    profile: StationProfile | None = None
    """A base station that exists, by the name of a file in profiles/. It states what it draws; a setting beside it
    wins."""

    idle_w: float | None = Field(default=None, ge=0)
    """Power in W that each base station draws all the time, whatever it does; null takes that of `profile`, and 0, as
    in most papers, where it states none."""

    tx_power_dbm: float = 30.0
    """Radiated power in dBm; 30 for a small cell, 46 for a macro cell."""

    noise_figure_db: float = Field(default=5.0, ge=0)
    """Noise figure of the receiver in dB."""

    height_m: float = Field(default=10.0, ge=0)
    """Height of the antenna above ground in m; 10 to 35 outdoors, 3 in offices."""


class Channel(Component):
    """A radio environment: a band, its propagation and rate laws, and the terminals in it.

    Ignored here: antenna gains and patterns, body losses; without `fading.delay_spread_s` frequency selectivity inside
    the band.
    """

    title: str = ""
    """A readable name of the environment."""

    use: str = ""
    """What the environment is suitable for, and what not."""

    source: str = ""
    """Where its numbers come from."""

    carrier_hz: float = Field(gt=0)
    """Centre frequency in Hz."""

    bandwidth_hz: float = Field(default=20e6, gt=0)
    """Nominal width in Hz of the whole band, which the access scheme divides among transmissions."""

    numerology_khz: Literal[15, 30, 60, 120] | None = None
    """Subcarrier spacing of 5G NR in kHz; its resource blocks leave part of the band unused; null uses all of it."""

    path_loss: AnyPathLoss
    """Mean loss over distance."""

    shadowing: AnyShadowing = NoShadowing()
    """Slow random loss, one value per pair of positions."""

    fading: AnyFading = NoFading()
    """Fast fluctuation per coherence block."""

    rate: AnyRateLaw = Shannon()
    """From SINR to bit/s."""

    narrowing: Literal["on", "off"] = "on"
    """Whether a sender that is too weak for its whole band sends on a part of it, with all its power, as schedulers
    let it: devices and base stations, alone and beside others. It holds for rate laws with a least efficiency. Who
    shares the band with others is heard by them as if spread evenly over it (random hopping)."""

    narrowest_hz: float | None = Field(default=None, gt=0)
    """Narrowest part in Hz that a sender uses; null for a resource block, which has 12 subcarriers: 180 kHz, or
    12 times `numerology_khz`."""

    long_transfers: Literal["walk", "ergodic"] = "walk"
    """`walk` computes every fading block of a transmission; `ergodic` uses the rate averaged over fading throughout."""

    noise_density_dbm_hz: float = THERMAL_NOISE_DBM_HZ
    """Power density of the noise in dBm/Hz, before the receiver's noise figure."""

    device: DeviceRadio = DeviceRadio()
    """The radio of every device that has none of its own."""

    base_station: StationRadio = StationRadio()
    """The radio of the base station."""

    @field_validator("bandwidth_hz")
    @classmethod
    def _below_carrier(cls, bandwidth_hz: float, info: ValidationInfo) -> float:
        carrier_hz = info.data.get("carrier_hz")
        if carrier_hz is not None and bandwidth_hz > carrier_hz:
            raise ValueError(
                f"is wider than the carrier frequency, got {bandwidth_hz:g} Hz around {carrier_hz:g} Hz; "
                "both are in hertz, not MHz or GHz"
            )
        return bandwidth_hz

    @field_validator("fading")
    @classmethod
    def _at_its_carrier(cls, fading: Fading, info: ValidationInfo) -> Fading:
        carrier_hz = info.data.get("carrier_hz")
        return fading.at_carrier(carrier_hz) if carrier_hz and isinstance(fading, BlockFading) else fading

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if isinstance(self.shadowing, ShadowingOfPathLoss) and not self.path_loss.STATES_SIGMA:
            kind = self.path_loss.kind
            raise ValueError(
                f"path_loss states no standard deviation of shadowing, got {kind} with shadowing: of-path-loss; "
                "use kind: log-normal with its own sigma_db"
            )
        if self.numerology_khz is not None:
            occupied_hz(self.bandwidth_hz, self.numerology_khz, self.carrier_hz)
        if self.long_transfers == "ergodic":
            require_mean(self.rate, self.fading)
        for conflict in (self._feedback_conflict(), self._selective_conflict()):
            if conflict:
                raise ValueError(conflict)
        if self.narrowing == "off" and self.narrowest_hz is not None:
            raise ValueError(
                f"narrowest_hz says nothing with narrowing: off, got {self.narrowest_hz:g} Hz; leave one of the two out"
            )
        try:
            if not self.path_loss.PLACED:
                self.path_loss.loss_db(self._trial_hop(), self.carrier_hz)
        except ScenarioError as problem:
            raise ValueError(str(problem)) from problem
        return self

    def _feedback_conflict(self) -> str:
        """Why link adaptation cannot have the feedback that it has; empty if it can."""
        if isinstance(self.rate, NrBlocks) and self.rate.climbs and not isinstance(self.fading, NoFading):
            got = f"got rate.feedback: climbing with fading {self.fading.kind}"
            return f"a climb is known on links that do not change, {got}; set fading: none, or rate.feedback: aged"
        if not self._aged or (self.long_transfers == "ergodic" and ages(self.fading)):
            return ""
        got = f"rate.feedback: aged with fading {self.fading.kind} and long_transfers: {self.long_transfers}"
        remedy = "set long_transfers: ergodic and fading rayleigh, rician or nakagami, or rate.feedback: ideal"
        return f"a rate by aged reports is a mean over fading whose course is known, got {got}; {remedy}"

    def _selective_conflict(self) -> str:
        """Why the band cannot be selective; empty if it can, or is not."""
        spread_s = getattr(self.fading, "delay_spread_s", None)
        if spread_s is None:
            return ""
        got = f"got fading.delay_spread_s: {spread_s}"
        if self.long_transfers == "ergodic":
            return f"the mean over fading is the same in any band, {got} with long_transfers: ergodic; leave one out"
        if self.rate.outage_sinr > 0:
            return f"a rate that loses in outage has no mean over a band, {got} with on_outage: lose; set stall"
        if spread_s == "from-scenario" and self.path_loss.kind not in KINDS:
            return f"path_loss {self.path_loss.kind} states none, {got}; give it in s, or choose {', '.join(KINDS)}"
        return ""

    @property
    def parts(self) -> float:
        """Parts of the band that fade independently; 1 where one gain holds for all of it.

        In a selective band the gain of a block is the mean over its parts, and its rate is the mean rate of parts with
        that mean gain, exactly right in the mean over blocks. Its variance is at most 1 / `parts` of that of one gain:
        80 to 98 % of it up to an SNR of 10 dB, a half at 20 dB, where rates hardly vary.
        Ignored here: that a narrowed device sees fewer parts, so that its rate varies as that of one; parts of a band
        that share it are spread over all of it.
        """
        spread_s = getattr(self.fading, "delay_spread_s", None)
        if spread_s is None:
            return 1.0
        if spread_s == "from-scenario":
            los = isinstance(self.fading, Rician)
            spread_s = median_delay_spread_s(self.path_loss.kind, self.carrier_hz, los=los)
        return independent_parts(self.usable_hz, spread_s)

    def on_site(self, stations_m: Array, data_dir: Path | None) -> Channel:
        """The channel around stations at these coordinates [stations, 2 or 3], with the files of its path loss read.

        Raises:
            DataError: a file cannot be used, or is of other stations.
        """
        heights_m = self.device.height_m, self.base_station.height_m
        path_loss = self.path_loss.on_site(self.carrier_hz, heights_m, stations_m, data_dir)
        return self if path_loss is self.path_loss else self.model_copy(update={"path_loss": path_loss})

    def _trial_hop(self) -> Hop:
        """A link that every law can serve, if its carrier and heights are right."""
        return Hop(np.array([_TRIAL_M]), np.array(self.device.height_m), np.array(self.base_station.height_m))

    @property
    def usable_hz(self) -> float:
        """The part of the band that carries anything: all of it, or its resource blocks."""
        if self.numerology_khz is None:
            return self.bandwidth_hz
        return occupied_hz(self.bandwidth_hz, self.numerology_khz, self.carrier_hz)

    @property
    def _aged(self) -> bool:
        return isinstance(self.rate, NrBlocks) and self.rate.feedback == "aged"

    @property
    def _law(self) -> RateLaw:
        """The rate law in this band."""
        if not isinstance(self.rate, NrBlocks) or self.numerology_khz is None:
            return self.rate
        return self.rate.in_blocks(resource_blocks(self.bandwidth_hz, self.numerology_khz, self.carrier_hz))

    @property
    def block_rate(self) -> RateLaw:
        """The rate law of a block, for a sender that may use part of its band (`narrowing`)."""
        return self._on_parts(self._law)

    def _on_parts(self, law: RateLaw) -> RateLaw:
        if self.narrowing == "off":
            return law
        spacing_khz = self.numerology_khz or _LTE_SPACING_KHZ
        return narrowed(law, self.narrowest_hz or SUBCARRIERS_PER_BLOCK * spacing_khz * 1e3)

    def medium_rate(self, branches: int = 1) -> RateLaw:
        """That law, or its mean over a selective band, or over the fading of combined antennas (`long_transfers`)."""
        if self.long_transfers == "walk" or isinstance(self.fading, NoFading):
            law, parts = self.block_rate, self.parts
            if parts == 1.0 or not isinstance(self.fading, BlockFading):
                return law
            return averaged(law, self.fading.in_band(parts, branches))
        fading = self.fading.combined(branches)
        if self._aged:
            return self._on_parts(AgedRate(law=self._law, fading=fading))
        return averaged(self.block_rate, fading)

    @property
    def medium_fading(self) -> Fading:
        """The fading that `medium_rate` leaves: all of it, that of the mean gain over a selective band, or none."""
        if self.long_transfers == "ergodic":
            return NoFading()
        parts = self.parts
        return self.fading if parts == 1.0 or not isinstance(self.fading, BlockFading) else self.fading.over_band(parts)

    def large_scale(self, hop: Hop, draws: Array | LinkDraws) -> Propagation:
        """The state of each link as long as nobody moves: its loss with shadowing, in the broadcast shape.

        Ignored here: fading, which multiplies the gain block by block.

        Args:
            hop: geometry of the links.
            draws: the random numbers of each link, or only one standard normal of shadowing for each: then every link
                is in its likelier state. Draw one per pair of places to keep links reciprocal.
        """
        draws = draws if isinstance(draws, LinkDraws) else LinkDraws.typical(draws)
        state = self.path_loss.propagate(hop, self.carrier_hz, draws)
        loss_db = state.loss_db + self.shadowing.loss_db(draws.shadowing, state.sigma_db)
        return Propagation.of(loss_db, state.los, state.sigma_db, self.shadowing.correlation_m(state.correlation_m))

    def noise_w(self, receiver: Terminal, bandwidth_hz: float) -> float:
        """Noise power in W at a receiver over the part of the band that a transmission uses.

        Ignored here: interference, which the medium adds.
        """
        return thermal_noise_w(bandwidth_hz, receiver.noise_figure_db, self.noise_density_dbm_hz)


def thermal_noise_w(bandwidth_hz: float, noise_figure_db: float, density_dbm_hz: float = THERMAL_NOISE_DBM_HZ) -> float:
    """Noise power over a whole band, in W (not W/Hz): density times bandwidth times noise figure.

    Papers quote either the density (-174 dBm/Hz) or the power over their band (say 1e-10 W): only the former goes here.
    Ignored here: interference, man-made noise, and the temperature of the antenna (290 K assumed by the default).

    Args:
        bandwidth_hz: the part of the band that the transmission uses, not the whole channel.
        noise_figure_db: noise that the receiver's electronics add; 5 for base stations, 9 for handsets.
        density_dbm_hz: power density at the antenna, in dBm per Hz.
    """
    return bandwidth_hz * dbm_to_watt(density_dbm_hz + noise_figure_db)
