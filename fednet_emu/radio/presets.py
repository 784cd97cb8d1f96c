"""Energy constants of published work, by name, each with its source and how well it is known here."""

from __future__ import annotations

from typing import Literal, NamedTuple


class EnergyPreset(NamedTuple):
    """What a paper or its code uses; None where it gives no single number.

    Attributes:
        source: the publication, and the code when the numbers were read there.
        evidence: `read` in the authors' public code, or `recalled` from the paper: check before quoting.
        tx_power_w: radiated power of a device.
        bandwidth_hz: band, as the paper shares it out.
        kappa_j_s2: effective switched capacitance, in the convention E = kappa x cycles x f^2.
        cycles: clock cycles per unit of `cycles_per`; the middle where the paper draws them.
        cycles_per: what the cycles are counted per.
        frequency_hz: clock frequency of a device.
        remark: what differs between sources, or is easily mistaken.
    """

    source: str
    evidence: Literal["read", "recalled"]
    tx_power_w: float | None
    bandwidth_hz: float | None
    kappa_j_s2: float | None
    cycles: float | None
    cycles_per: Literal["bit", "sample", "MAC"] | None
    frequency_hz: float | None
    remark: str


PresetName = Literal["tran-2019", "chen-2021-code", "chen-2021-paper", "yang-2021", "ns3-fl-2022"]

ENERGY_PRESETS: dict[PresetName, EnergyPreset] = {
    "tran-2019": EnergyPreset(
        source="Tran et al., INFOCOM 2019; code nhatminh/FEDL-INFOCOM",
        evidence="read",
        tx_power_w=0.2,
        bandwidth_hz=1e6,
        kappa_j_s2=1e-28,
        cycles=20.0,
        cycles_per="bit",
        frequency_hz=1e9,
        remark="alpha = 2e-28 in E = (alpha / 2) c D f^2; powers U(0.2, 1) W; cycles U(10, 30); rates in nats; "
        "noise 1e-10 W over the whole band",
    ),
    "chen-2021-code": EnergyPreset(
        source="Chen et al., IEEE Trans. Wireless Commun. 2021; code mzchen0/Wireless-FL",
        evidence="read",
        tx_power_w=0.01,
        bandwidth_hz=1e6,
        kappa_j_s2=1e-27,
        cycles=40.0,
        cycles_per="bit",
        frequency_hz=1e9,
        remark="the code charges 40 cycles on the size of the model in Mbit, not on the data; noise 1e-14 W and "
        "interference; downlink 20 MHz",
    ),
    "chen-2021-paper": EnergyPreset(
        source="Chen et al., IEEE Trans. Wireless Commun. 2021 (arXiv 1909.07972), parameter table",
        evidence="recalled",
        tx_power_w=0.01,
        bandwidth_hz=150e3,
        kappa_j_s2=1e-27,
        cycles=40.0,
        cycles_per="bit",
        frequency_hz=1e9,
        remark="bandwidth per resource block; -174 dBm/Hz; base station 1 W",
    ),
    "yang-2021": EnergyPreset(
        source="Yang et al., IEEE Trans. Wireless Commun. 2021 (arXiv 1911.02417), parameter table",
        evidence="recalled",
        tx_power_w=0.01,
        bandwidth_hz=20e6,
        kappa_j_s2=1e-28,
        cycles=2e4,
        cycles_per="sample",
        frequency_hz=2e9,
        remark="cycles U(1e4, 3e4); 500 samples per device; model 28.1 kbit; -174 dBm/Hz",
    ),
    "ns3-fl-2022": EnergyPreset(
        source="Ekaireb et al., WNS3 2022; code eekaireb/ns3-fl-network, Raspberry Pi measurements",
        evidence="read",
        tx_power_w=None,
        bandwidth_hz=None,
        kappa_j_s2=None,
        cycles=None,
        cycles_per=None,
        frequency_hz=1.5e9,
        remark="power drawn, not radiated: 3.94 W while sending; while computing x = MAC (100 + 6 E) 600 / 1.5e9 gives "
        "T = 8.09e-4 x + 9.45 s and P = 6.49 - 1.32e-4 x W (MNIST, board type 4); use compute energy `measured`",
    ),
}
