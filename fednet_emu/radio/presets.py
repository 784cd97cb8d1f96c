"""Effective switched capacitance of published work, by name, with its source and how well it is known here."""

from __future__ import annotations

from typing import Literal, NamedTuple


class EnergyPreset(NamedTuple):
    """What a paper or its code uses.

    Attributes:
        kappa_j_s2: effective switched capacitance, in the convention E = kappa x cycles x f^2.
        source: the publication, and the code when the numbers were read there.
        evidence: `read` in the authors' public code, or `recalled` from the paper: check before quoting.
        remark: their cycles and clocks, and what is easily mistaken.
    """

    kappa_j_s2: float
    source: str
    evidence: Literal["read", "recalled"]
    remark: str


PresetName = Literal["tran-2019", "chen-2021-code", "chen-2021-paper", "yang-2021"]

ENERGY_PRESETS: dict[PresetName, EnergyPreset] = {
    "tran-2019": EnergyPreset(
        1e-28,
        "Tran et al., INFOCOM 2019; code nhatminh/FEDL-INFOCOM",
        "read",
        "alpha = 2e-28 in E = (alpha / 2) c D f^2; cycles per bit U(10, 30); clock 1 GHz",
    ),
    "chen-2021-code": EnergyPreset(
        1e-27,
        "Chen et al., IEEE Trans. Wireless Commun. 2021; code mzchen0/Wireless-FL",
        "read",
        "the code charges 40 cycles per bit on the size of the model in Mbit, not on the data; clock 1 GHz",
    ),
    "chen-2021-paper": EnergyPreset(
        1e-27,
        "Chen et al., IEEE Trans. Wireless Commun. 2021 (arXiv 1909.07972), parameter table",
        "recalled",
        "40 cycles per bit; clock 1 GHz",
    ),
    "yang-2021": EnergyPreset(
        1e-28,
        "Yang et al., IEEE Trans. Wireless Commun. 2021 (arXiv 1911.02417), parameter table",
        "recalled",
        "cycles per sample U(1e4, 3e4); clock 2 GHz",
    ),
}
