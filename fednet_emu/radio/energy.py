"""Energy of transmissions and computations."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds


class Transmitter(NamedTuple):
    """Power P / eta + P_c of a transmitter with radiated power P, amplifier efficiency eta and circuit power P_c.

    Most federated-learning papers count only the radiated power: an efficiency of 1 and no circuit power. If sources
    give only the total power while sending, the efficiency is infinite, and the transmitter draws `circuit_w` at any
    radiated power. Ignored here: start-up and tail energy of the radio, and lower efficiency at low power.
    """

    efficiency: float  # radiated / consumed power of the amplifier (eta)
    circuit_w: float  # power in W without the amplifier (P_c)

    @classmethod
    def of_whole(cls, whole_w: float, at_w: float, efficiency: float | None) -> Self:
        """Return a transmitter that draws `whole_w` in W while it radiates `at_w` in W.

        If `efficiency` is None, it draws max(`whole_w`, `at_w`) at any radiated power. Otherwise, the amplifier draws
        the radiated power divided by `efficiency`, and the circuits draw the constant remainder of `whole_w`, which is
        `whole_w` - `at_w` / `efficiency`, or 0 if this is negative.
        """
        if efficiency is None:
            return cls(math.inf, max(whole_w, at_w))
        return cls(efficiency, max(whole_w - at_w / efficiency, 0.0))

    def drawn_w(self, radiated_w: float) -> float:
        return radiated_w / self.efficiency + self.circuit_w


def compute_energy_j(cycles: float, frequency_hz: float, kappa: float) -> float:
    """Return the dynamic energy in J of a computation in CMOS: `kappa` (in J s^2) x `cycles` x `frequency_hz`^2.

    Papers have two notations: Tran et al. (INFOCOM 2019) write (alpha / 2) C D f^2, so kappa = alpha / 2; others write
    kappa itself. In papers, `cycles` is C cycles per sample (in some papers per bit) times D samples, for each pass
    over the data. Ignored here: leakage, memory traffic, and all other parts that draw power while the processor works.
    """
    return kappa * cycles * frequency_hz**2


class ComputeEnergy(Component):
    """Model of the energy of a computation, in addition to the idle energy of the device."""

    @abstractmethod
    def energy_j(self, flop: float, duration_s: float, clock: float = 1.0) -> float:
        """Return the energy in J of `flop` operations in `duration_s`, at `clock` times the nominal frequency."""

    def beside(self, idle_w: float) -> ComputeEnergy:
        """Return the model of the energy beyond the idle power `idle_w` in W; by default, the model itself."""
        return self


class CmosEnergy(ComputeEnergy):
    """Dynamic energy kappa x cycles x f^2 of a processor with the given clock frequency f; see `compute_energy_j`.

    Ignored here: the duration, leakage, memory, and all other parts that draw power while the processor works.
    """

    kind = "cmos"
    clock_hz: float = Field(ge=1e3, le=1e11)
    """Clock frequency f in Hz at which a device has the speed `devices.speed`; 1e9 in most papers."""
    flop_per_cycle: float = Field(gt=0)
    """Floating-point operations per clock cycle: FLOP per sample divided by a paper's number C of cycles per sample."""
    kappa: float = Field(default=1e-28, ge=0)
    """Effective switched capacitance in J s^2; 1e-28 in most papers, 1e-27 is realistic for small boards."""

    def energy_j(self, flop: float, duration_s: float, clock: float = 1.0) -> float:
        return compute_energy_j(flop / self.flop_per_cycle, self.clock_hz * clock, self.kappa)


KAPPA = {
    "tran-2019": 1e-28,  # INFOCOM 2019, read in nhatminh/FEDL-INFOCOM: E = (alpha / 2) c D f^2, alpha = 2e-28, 1 GHz
    "chen-2021-code": 1e-27,  # IEEE TWC 2021, read in mzchen0/Wireless-FL: 40 cycles per bit of the model, not the data
    "chen-2021-paper": 1e-27,  # arXiv 1909.07972, parameter table, recalled: check before quoting
    "yang-2021": 1e-28,  # arXiv 1911.02417, parameter table, recalled: 1e4 to 3e4 cycles per sample, 2 GHz
}
"""Effective switched capacitance kappa in J s^2 by publication, in the notation E = kappa x cycles x f^2."""


class PublishedEnergy(ComputeEnergy):
    """Dynamic energy with the constant kappa of a publication (see `KAPPA`).

    Ignored here: the same effects as in `cmos`.
    """

    kind = "published"
    preset: Literal["tran-2019", "chen-2021-code", "chen-2021-paper", "yang-2021"]
    """Name of the publication whose constant kappa is used."""
    clock_hz: float = Field(ge=1e3, le=1e11)
    """Clock frequency f in Hz at which a device has the speed `devices.speed`."""
    flop_per_cycle: float = Field(gt=0)
    """Floating-point operations per clock cycle."""

    def energy_j(self, flop: float, duration_s: float, clock: float = 1.0) -> float:
        return compute_energy_j(flop / self.flop_per_cycle, self.clock_hz * clock, KAPPA[self.preset])


class MeasuredEnergy(ComputeEnergy):
    """Energy from measurements: power times the duration of a computation, including straggler delays.

    A Raspberry Pi 4 draws 4 to 6 W while it trains (Ekaireb et al., WNS3 2022).
    Ignored here: how the power varies with the kind of work.
    """

    kind = "measured"
    active_w: float = Field(ge=0)
    """Power in W that the whole device draws while it computes, including idle power."""

    def energy_j(self, flop: float, duration_s: float, clock: float = 1.0) -> float:
        return self.active_w * duration_s

    def beside(self, idle_w: float) -> MeasuredEnergy:
        return MeasuredEnergy(active_w=max(self.active_w - idle_w, 0.0))


COMPUTE_ENERGIES: dict[str, type[ComputeEnergy]] = kinds(CmosEnergy, PublishedEnergy, MeasuredEnergy)

AnyComputeEnergy = Annotated[ComputeEnergy, Slot("compute_energy", COMPUTE_ENERGIES)]
