"""Energy of a transmission and of a computation."""

from __future__ import annotations


def transmit_energy_j(tx_power_w: float, duration_s: float, amplifier_efficiency: float, circuit_w: float) -> float:
    """Energy that a transmission draws from the battery, (P / eta + P_c) T, in J.

    Most federated-learning papers count P T only: an efficiency of 1 and no circuit power.
    Ignored here: start-up and tail energy of the radio, and the fall of efficiency at low power.

    Args:
        tx_power_w: radiated power P.
        duration_s: time on the air T, waiting for the medium not included.
        amplifier_efficiency: eta, radiated over drawn power of the amplifier, in (0, 1]; 0.35 is typical.
        circuit_w: power P_c of the rest of the transmitter while it sends.
    """
    return (tx_power_w / amplifier_efficiency + circuit_w) * duration_s


def compute_energy_j(cycles: float, frequency_hz: float, kappa: float) -> float:
    """Dynamic energy of a computation on a CMOS processor, kappa x cycles x f^2, in J.

    Papers write it in two ways: Tran et al. (INFOCOM 2019) have (alpha / 2) C D f^2, so kappa = alpha / 2; others write
    kappa itself. Their `cycles` are C per sample (or per bit: check) times D samples, for every pass over the data.
    Ignored here: leakage, memory traffic, and everything else that draws power while the processor works.

    Args:
        cycles: clock cycles of the computation.
        frequency_hz: clock frequency f.
        kappa: effective switched capacitance in J s^2; 1e-28 in most papers, 1e-27 close to small boards.
    """
    return kappa * cycles * frequency_hz**2
