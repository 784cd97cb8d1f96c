"""The channel component: one choice of every radio law, and the two kinds of terminal that use it."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from fednet_emu.component import Component
from fednet_emu.radio.fading import AnyFading, NoFading
from fednet_emu.radio.geometry import Hop
from fednet_emu.radio.noise import thermal_noise_w
from fednet_emu.radio.path_loss import AnyPathLoss
from fednet_emu.radio.rate import AnyRateLaw, Shannon
from fednet_emu.radio.shadowing import AnyShadowing, NoShadowing
from fednet_emu.units import THERMAL_NOISE_DBM_HZ, Array, db_to_linear, dbm_to_watt


class Terminal(Component):
    """The radio of a device or of a base station."""

    tx_power_dbm: float
    """Radiated power; 23 for handsets, 30 (small cell) to 46 (macro) for base stations."""

    noise_figure_db: float = Field(ge=0)
    """Noise that the receiver adds; 9 for handsets, 5 for base stations."""

    height_m: float = Field(ge=0)
    """Height of the antenna above ground; 1.5 for handsets, 10 to 35 for base stations."""

    amplifier_efficiency: float = Field(default=1.0, gt=0, le=1)
    """Radiated over drawn power of the amplifier; 1 as in most papers, 0.35 in hardware."""

    circuit_w: float = Field(default=0.0, ge=0)
    """Power that the rest of the transmitter draws while it sends."""

    @property
    def tx_power_w(self) -> float:
        """Radiated power in W."""
        return dbm_to_watt(self.tx_power_dbm)


class Channel(Component):
    """A radio environment: a band, its propagation and rate laws, and the terminals in it.

    Ignored here: antenna gains and arrays, body and wall losses, and frequency selectivity inside the band.
    """

    title: str = ""
    """A name for people."""

    use: str = ""
    """What the environment is meant for, and what not."""

    source: str = ""
    """Where its numbers come from."""

    carrier_hz: float = Field(gt=0)
    """Centre frequency."""

    bandwidth_hz: float = Field(gt=0)
    """Width of the whole band that the access scheme shares out."""

    path_loss: AnyPathLoss
    """Mean loss over distance."""

    shadowing: AnyShadowing = NoShadowing()
    """Slow random loss per pair of places."""

    fading: AnyFading = NoFading()
    """Fast fluctuation per coherence block."""

    rate: AnyRateLaw = Shannon()
    """From SINR to bit/s."""

    noise_density_dbm_hz: float = THERMAL_NOISE_DBM_HZ
    """Power density of the noise before the receiver's noise figure."""

    device: Terminal
    """The radio of every device that sets none of its own."""

    base_station: Terminal
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

    def mean_gain(self, hop: Hop, standard_normal: Array) -> Array:
        """Power gain of each link (received over sent, linear), averaged over fading, in the broadcast shape.

        Ignored here: fading, which multiplies this gain block by block.

        Args:
            hop: geometry of the links.
            standard_normal: one shadowing draw per link; draw one per pair of places to keep links reciprocal.
        """
        loss_db = self.path_loss.loss_db(hop, self.carrier_hz) + self.shadowing.loss_db(standard_normal)
        return db_to_linear(-loss_db)

    def noise_w(self, receiver: Terminal, bandwidth_hz: float) -> float:
        """Noise power in W at a receiver over the part of the band that a transmission uses.

        Ignored here: interference, which the medium adds.
        """
        return thermal_noise_w(bandwidth_hz, receiver.noise_figure_db, self.noise_density_dbm_hz)
