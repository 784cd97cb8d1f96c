"""The channel component, which combines the models of a radio link with the radios of devices and base stations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from fednet_emu.arrays import Array
from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.errors import ScenarioError
from fednet_emu.radio.ageing import AgedRate, ages
from fednet_emu.radio.energy import Transmitter
from fednet_emu.radio.fading import AnyFading, BlockFading, Fading, NoFading, Rician, independent_parts
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.radio.nr.mcs import NrMcs
from fednet_emu.radio.nr.numerology import SUBCARRIERS_PER_BLOCK, occupied_hz, resource_blocks
from fednet_emu.radio.profiles import RadioProfile, StationProfile, TransmitterProfile
from fednet_emu.radio.propagation.base import Propagation
from fednet_emu.radio.propagation.link import Hop, LinkDraws
from fednet_emu.radio.propagation.path_loss import AnyPathLoss
from fednet_emu.radio.propagation.shadowing import AnyShadowing, NoShadowing, ShadowingOfPathLoss
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.radio.rates.ergodic import averaged, require_mean
from fednet_emu.radio.rates.narrowing import narrowed
from fednet_emu.radio.rates.shannon import FiniteBlocklength, FixedRate, Shannon
from fednet_emu.units import THERMAL_NOISE_DBM_HZ, dbm_to_watt

HANDSET_DBM = 23.0
"""Maximum radiated power in dBm of a handset of power class 3 (3GPP TS 38.101-1, from memory)."""
_TRIAL_M = 50.0
_LTE_SPACING_KHZ = 15
_DELAY_SPREAD_LOG10_S = {
    ("3gpp-uma", True): (-6.955, -0.0963, 0.0, 6.0),
    ("3gpp-uma", False): (-6.28, -0.204, 0.0, 6.0),
    ("3gpp-umi", True): (-7.14, -0.24, 1.0, 2.0),
    ("3gpp-umi", False): (-6.83, -0.24, 1.0, 2.0),
    ("3gpp-rma", True): (-7.49, 0.0, 0.0, 0.5),
    ("3gpp-rma", False): (-7.43, 0.0, 0.0, 0.5),
    ("3gpp-inh", True): (-7.692, -0.01, 1.0, 6.0),
    ("3gpp-inh", False): (-7.173, -0.28, 1.0, 6.0),
}
"""Coefficients of the median delay spread, by path-loss model and line of sight (TR 38.901 Table 7.5-6). The first
three are a, b and c in log10(s) = a + b log10(c + f), with the delay spread s in s and the frequency f in GHz. The
fourth is the minimum frequency in GHz."""

RATE_LAWS: dict[str, type[RateLaw]] = kinds(Shannon, FixedRate, NrMcs, NrBlocks, FiniteBlocklength)

AnyRateLaw = Annotated[RateLaw, Slot("rate", RATE_LAWS)]


class Terminal(Component):
    """The radio of a device or of a base station."""

    tx_power_dbm: float
    """Radiated power in dBm, without antenna gain (no EIRP)."""
    noise_figure_db: float = Field(ge=0)
    """Noise figure of the receiver in dB."""
    height_m: float = Field(ge=0)
    """Height of the antenna above ground in m."""
    profile: TransmitterProfile | None = None
    """Profile of a real radio, given by the name of a file in profiles/. A power that is set here overrides the value
    of the profile."""
    amplifier_efficiency: float | None = Field(default=None, gt=0, le=1)
    """Efficiency of the amplifier (radiated / consumed power); 0.35 in hardware. Null takes the value of `profile` or,
    for devices without `profile`, of `devices.profile`; if no profile gives a power for sending, null means 1, as in
    most papers. If a profile gives only the total power while sending, the efficiency determines the share of this
    power that the amplifier draws at 23 dBm."""
    circuit_w: float | None = Field(default=None, ge=0)
    """Power in W of the transmitter without its amplifier while it sends, in addition to `idle_w`. Null takes the value
    of `profile`, else the remainder of the sending power in `devices.profile`, else 0, as in most papers."""

    @property
    def tx_power_w(self) -> float:
        return dbm_to_watt(self.tx_power_dbm)

    def stated(self, name: str) -> float | None:
        """Return the value of the field `name` from the settings, else from the profile, else None."""
        own: float | None = getattr(self, name)
        return own if own is not None or self.profile is None else self.profile.numbers.get(name)

    @property
    def whole_w(self) -> float | None:
        """Total power in W while sending at `max_dbm`, from the profile; None if the profile gives no such power."""
        return None if self.profile is None else self.profile.numbers.get("tx_consumption_w")

    def transmitter(
        self, whole_w: float | None = None, at_dbm: float | None = None, efficiency: float | None = None
    ) -> Transmitter:
        """Return the power model of the transmitter; the arguments are defaults for values that the radio lacks.

        `whole_w` is the power in W that the device draws in addition to its idle power while it sends at the radiated
        power `at_dbm` in dBm (None for `HANDSET_DBM`). `efficiency` is the efficiency of the device's amplifier. An
        argument is None if its value is unknown.
        """
        if self.profile is not None and self.whole_w is not None:
            whole_w, at_dbm, efficiency = self.whole_w, self.profile.max_dbm, None
        circuit_w, efficiency = self.stated("circuit_w"), self.stated("amplifier_efficiency") or efficiency
        if circuit_w is not None or whole_w is None:
            return Transmitter(efficiency or 1.0, circuit_w or 0.0)
        at_w = self.tx_power_w if efficiency is None else dbm_to_watt(HANDSET_DBM if at_dbm is None else at_dbm)
        return Transmitter.of_whole(whole_w, at_w, efficiency)


class DeviceRadio(Terminal):
    """The radio of a device, by default a handset."""

    tx_power_dbm: float = HANDSET_DBM
    noise_figure_db: float = Field(default=9.0, ge=0)
    height_m: float = Field(default=1.5, ge=0)
    profile: RadioProfile | None = None
    """Profile of a real radio, given by the name of a file in profiles/. Its powers for sending and receiving replace
    the powers of `devices.profile`; a power that is set here overrides the value of the profile."""
    rx_consumption_w: float | None = Field(default=None, ge=0)
    """Power in W of the receiver while it receives, in addition to `idle_w`; 0.1 to 1 in hardware. Null takes the value
    of `profile`, else of `devices.profile`, else 0, as in most papers."""
    tx_j_per_bit: float | None = Field(default=None, ge=0, le=1)
    """Energy in J per sent bit, in addition to the power while sending; 8e-8 for LTE. It models a power that grows with
    the rate. Null takes the value of `profile`, else 0."""
    rx_j_per_bit: float | None = Field(default=None, ge=0, le=1)
    """Energy in J per received bit, in addition to `rx_consumption_w`; 1.5e-8 for LTE. Null takes the value of
    `profile`, else 0."""
    idle_w: float | None = Field(default=None, ge=0)
    """Power in W that the whole device draws all the time, idle or busy. Null takes the value of `devices.profile`,
    else 0, as in most papers."""


class StationRadio(Terminal):
    """The radio of a base station, by default a small cell. The station draws `idle_w` plus the transmitter's power."""

    profile: StationProfile | None = None
    """Profile of a real base station with its powers, given by the name of a file in profiles/. A power that is set
    here overrides the value of the profile."""
    idle_w: float | None = Field(default=None, ge=0)
    """Power in W that each base station draws all the time, idle or busy. Null takes the value of `profile`, else 0, as
    in most papers."""
    tx_power_dbm: float = 30.0
    """Radiated power in dBm, without antenna gain (no EIRP); 30 for a small cell, 46 for a macro cell."""
    noise_figure_db: float = Field(default=5.0, ge=0)
    height_m: float = Field(default=10.0, ge=0)
    """Height of the antenna above ground in m; 10 to 35 outdoors, 3 in offices."""


class Channel(Component):
    """A radio environment: a band, the propagation and rate models, and the radios of devices and base stations.

    Ignored here: antenna gains and patterns, and body losses. If `fading.delay_spread_s` is null, frequency selectivity
    inside the band is also ignored.
    """

    title: str = ""
    """A readable name of the environment."""
    use: str = ""
    """Purposes for which the environment is suitable, and purposes for which it is not."""
    source: str = ""
    """Source of the environment's numbers."""
    carrier_hz: float = Field(gt=0)
    """Centre frequency in Hz."""
    bandwidth_hz: float = Field(default=20e6, gt=0)
    """Nominal width in Hz of the whole band, which the access scheme divides among transmissions."""
    subcarrier_spacing_khz: Literal[15, 30, 60, 120] | None = None
    """Subcarrier spacing of 5G NR in kHz. If a spacing is set, data use only the resource blocks of 5G NR, which leave
    part of the band unused; if null, data use the whole band."""
    path_loss: AnyPathLoss
    """Model of the mean loss as a function of distance."""
    shadowing: AnyShadowing = NoShadowing()
    """Model of the slowly varying random loss due to obstacles, with one value per pair of positions."""
    fading: AnyFading = NoFading()
    """Model of the fast fluctuation of the power gain, with one value per coherence block."""
    rate: AnyRateLaw = Shannon()
    """Model of the rate in bit/s as a function of the SINR."""
    narrowing: Literal["on", "off"] = "on"
    """With `on`, a sender that is too weak for its whole band puts all its power on part of the band, as schedulers
    allow. With `off`, every sender uses its whole band. Narrowing applies to devices and base stations, alone or
    sharing the band, with rate models that have a minimum efficiency. The interference of a narrowed sender to other
    transmissions counts as spread evenly over the band, as with random hopping."""
    narrowest_hz: float | None = Field(default=None, gt=0)
    """Minimum bandwidth in Hz of a sender that concentrates its power on a part of the band. Null means a resource
    block of 12 subcarriers, which is 180 kHz or 12 times `subcarrier_spacing_khz`."""
    fading_model: Literal["per-block", "ergodic"] = "per-block"
    """With `per-block`, every fading block of a transmission is simulated. With `ergodic`, the rate averaged over
    fading is used."""
    noise_density_dbm_hz: float = THERMAL_NOISE_DBM_HZ
    """Power density of the noise in dBm/Hz, before the receiver's noise figure."""
    device: DeviceRadio = DeviceRadio()
    """The radio of every device."""
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

    def _check(self) -> None:
        if isinstance(self.shadowing, ShadowingOfPathLoss) and not self.path_loss.STATES_SIGMA:
            kind = self.path_loss.kind
            raise ValueError(
                f"path_loss states no standard deviation of shadowing, got {kind} with shadowing: of-path-loss; "
                "use kind: log-normal with its own sigma_db"
            )
        if self.subcarrier_spacing_khz is not None:
            occupied_hz(self.bandwidth_hz, self.subcarrier_spacing_khz, self.carrier_hz)
        if self.fading_model == "ergodic":
            require_mean(self.rate, self.fading)
        for conflict in (self._feedback_conflict(), self._selective_conflict()):
            if conflict:
                raise ValueError(conflict)
        if self.narrowing == "off" and self.narrowest_hz is not None:
            raise ValueError(
                f"narrowest_hz has no effect with narrowing: off, got {self.narrowest_hz:g} Hz; leave one out"
            )
        try:
            if not self.path_loss.PLACED:
                # every path-loss model is valid at this distance, unless the carrier or a height is wrong
                trial = Hop(np.array([_TRIAL_M]), np.array(self.device.height_m), np.array(self.base_station.height_m))
                self.path_loss.loss_db(trial, self.carrier_hz)
        except ScenarioError as problem:
            raise ValueError(str(problem)) from problem

    def _feedback_conflict(self) -> str:
        """Return the reason why other settings are incompatible with `rate.feedback`; empty if there is none."""
        if isinstance(self.rate, NrBlocks) and self.rate.climbs and not isinstance(self.fading, NoFading):
            got = f"got rate.feedback: olla with fading {self.fading.kind}"
            return f"a climb is known on links that do not change, {got}; set fading: none, or rate.feedback: aged"
        if not self._aged or (self.fading_model == "ergodic" and ages(self.fading)):
            return ""
        got = f"rate.feedback: aged with fading {self.fading.kind} and fading_model: {self.fading_model}"
        remedy = "set fading_model: ergodic and fading rayleigh, rician or nakagami, or rate.feedback: ideal"
        return f"a rate by aged reports is a mean over fading whose course is known, got {got}; {remedy}"

    def _selective_conflict(self) -> str:
        """Return the reason why other settings are incompatible with a delay spread; empty if there is none."""
        spread_s = getattr(self.fading, "delay_spread_s", None)
        if spread_s is None:
            return ""
        got = f"got fading.delay_spread_s: {spread_s}"
        if self.fading_model == "ergodic":
            return f"the mean over fading is the same in any band, {got} with fading_model: ergodic; leave one out"
        if self.rate.outage_sinr > 0:
            return f"a rate that loses in outage has no mean over a band, {got} with on_outage: lose; set stall"
        known = dict.fromkeys(kind for kind, _ in _DELAY_SPREAD_LOG10_S)
        if spread_s == "from-scenario" and self.path_loss.kind not in known:
            return f"path_loss {self.path_loss.kind} states none, {got}; give it in s, or choose {', '.join(known)}"
        return ""

    @property
    def parts(self) -> float:
        """Number of parts (sub-bands) of the band that fade independently; 1 if the whole band has one gain.

        In a selective band, the gain of a block is the mean gain of its parts, and the rate of a block is the mean rate
        of parts whose gains have this mean. The mean rate over blocks is exact. The variance of the rate is at most 1 /
        `parts` of the variance in a flat band. It is 80 to 98 % of this bound up to an SNR of 10 dB, and half of the
        bound at 20 dB, where rates hardly vary.
        Ignored here: a narrowed device covers fewer parts, so its rate varies more. Devices that share a band use parts
        spread over the whole band.
        """
        spread_s = getattr(self.fading, "delay_spread_s", None)
        if spread_s is None:
            return 1.0
        if spread_s == "from-scenario":
            los = isinstance(self.fading, Rician)
            spread_s = median_delay_spread_s(self.path_loss.kind, self.carrier_hz, los=los)
        return independent_parts(self.usable_hz, spread_s)

    def on_site(self, stations_m: Array, data_dir: Path | None) -> Channel:
        """Return the channel for base stations at the coordinates `stations_m` [stations, 2 or 3] in m.

        A path-loss model that needs a data file reads the file in this call.

        Raises:
            DataError: the file cannot be used, or it describes other base stations.
        """
        heights_m = self.device.height_m, self.base_station.height_m
        path_loss = self.path_loss.on_site(self.carrier_hz, heights_m, stations_m, data_dir)
        return self if path_loss is self.path_loss else self.model_copy(update={"path_loss": path_loss})

    @property
    def usable_hz(self) -> float:
        """Bandwidth in Hz for data: that of the resource blocks if `subcarrier_spacing_khz` is set, else all."""
        if self.subcarrier_spacing_khz is None:
            return self.bandwidth_hz
        return occupied_hz(self.bandwidth_hz, self.subcarrier_spacing_khz, self.carrier_hz)

    @property
    def _aged(self) -> bool:
        return isinstance(self.rate, NrBlocks) and self.rate.feedback == "aged"

    @property
    def _law(self) -> RateLaw:
        if not isinstance(self.rate, NrBlocks) or self.subcarrier_spacing_khz is None:
            return self.rate
        return self.rate.in_blocks(resource_blocks(self.bandwidth_hz, self.subcarrier_spacing_khz, self.carrier_hz))

    @property
    def block_rate(self) -> RateLaw:
        return self._on_parts(self._law)

    def _on_parts(self, law: RateLaw) -> RateLaw:
        if self.narrowing == "off":
            return law
        subcarrier_spacing_khz = self.subcarrier_spacing_khz or _LTE_SPACING_KHZ
        return narrowed(law, self.narrowest_hz or SUBCARRIERS_PER_BLOCK * subcarrier_spacing_khz * 1e3)

    def medium_rate(self, branches: int = 1) -> RateLaw:
        """Return the rate model for transmissions: `block_rate`, or its mean over a selective band or over fading.

        `branches` is the number of receiving antennas whose gains are combined before the rate is averaged.
        """
        if self.fading_model == "per-block" or isinstance(self.fading, NoFading):
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
        """Fading that is simulated per block: none if `fading_model` is ergodic, else that of the band's mean gain."""
        if self.fading_model == "ergodic":
            return NoFading()
        parts = self.parts
        return self.fading if parts == 1.0 or not isinstance(self.fading, BlockFading) else self.fading.over_band(parts)

    def large_scale(self, hop: Hop, draws: Array | LinkDraws) -> Propagation:
        """Return the large-scale state of each link, including shadowing; `hop` and `draws` are broadcast.

        `draws` are the random numbers of each link. If `draws` is an array, it has one standard normal number per link
        for the shadowing, and every link has its more likely state (line of sight or not). The caller must draw once
        per pair of positions, so that links are reciprocal.
        """
        draws = draws if isinstance(draws, LinkDraws) else LinkDraws.typical(draws)
        state = self.path_loss.propagate(hop, self.carrier_hz, draws)
        loss_db = state.loss_db + self.shadowing.loss_db(draws.shadowing, state.sigma_db)
        return Propagation.of(loss_db, state.los, state.sigma_db, self.shadowing.correlation_m(state.correlation_m))

    def noise_w(self, receiver: Terminal, bandwidth_hz: float) -> float:
        """Return the noise power in W, without interference, at a receiver over `bandwidth_hz` in Hz."""
        return thermal_noise_w(bandwidth_hz, receiver.noise_figure_db, self.noise_density_dbm_hz)


def median_delay_spread_s(path_loss: str, carrier_hz: float, *, los: bool) -> float:
    """Return the median over positions of the root-mean-square delay spread in s (TR 38.901 Table 7.5-6).

    Below the minimum frequency of the table (6 GHz for `3gpp-uma`), the value at the minimum frequency is used.
    `path_loss` is the kind of the path-loss model; `los` is True for line of sight. The standard deviation over
    positions is a factor of 1.5 to 4.6.
    """
    constant, slope, offset, min_ghz = _DELAY_SPREAD_LOG10_S[path_loss, los]
    return math.pow(10.0, constant + slope * math.log10(offset + max(carrier_hz / 1e9, min_ghz)))


def thermal_noise_w(bandwidth_hz: float, noise_figure_db: float, density_dbm_hz: float = THERMAL_NOISE_DBM_HZ) -> float:
    """Return the noise power in W over the bandwidth of a transmission: density times bandwidth times noise figure.

    Papers quote either the density (-174 dBm/Hz) or the power over their band (for example 1e-10 W); `density_dbm_hz`
    is the density.
    """
    return bandwidth_hz * dbm_to_watt(density_dbm_hz + noise_figure_db)
