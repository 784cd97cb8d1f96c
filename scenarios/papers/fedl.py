"""FEDL compared with the result arrays committed by its authors: nhatminh/FEDL-INFOCOM at 0508507, without a licence.

The arrays are read with h5py from the user's clone: five sets of drawn devices and seven sets of results (INFOCOM 2019
and ToN 2021). The subproblems SUB1, SUB2 and SUB3 are solved by `network/planning`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.errors import FednetError
from fednet_emu.network.planning.base import Round
from fednet_emu.network.planning.fedl import Fedl
from fednet_emu.network.planning.local_accuracy import RoundCost, fedl_cost, infocom_accuracy, ton_accuracy
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.results.published import Sources

CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
UPLOAD_NAT, BANDWIDTH_HZ, NOISE_W, ALPHA = 25e3, 1e6, 1e-10, 2e-28
LEAST_HZ, LEAST_W, MOST_W = 0.3e9, 0.2, 1.0
_ONE_TO_NINE = [*map(float, range(2, 10))]
KAPPAS_62 = [
    5e-5, 8e-5, 9e-5, 1e-4, 1.3e-4, 1.7e-4, 2e-4, 2.3e-4, 2.7e-4, 3e-4, 3.5e-4, 4e-4, 4.5e-4, 5e-4, 5.5e-4, 6e-4,
    6.5e-4, 7e-4, 7.5e-4, 8e-4, 8.5e-4, 9e-4, 9.5e-4, 1e-3, 1.5e-3, 2e-3, 2.5e-3, 3e-3, 4e-3, 6e-3, 8e-3, 1e-2, 3e-2,
    5e-2, 7e-2, 1e-1, 0.3, 0.5, 0.7, 0.85, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 30.0,
    50.0, 70.0, 100.0, 300.0, 500.0, 700.0, 1000.0,
]  # fmt: skip
"""Values of kappa with five devices. This list and the next two are from the repository's `Setting.jl`."""
KAPPAS_75 = [
    5e-5, 8e-5, 9e-5, 1e-4, 1.3e-4, 1.7e-4, 2e-4, 2.3e-4, 2.7e-4, 3e-4, 4e-4, 5e-4, 6e-4, 7e-4, 8e-4, 9e-4, 1e-3,
    1.5e-3, 2e-3, 2.5e-3, 3e-3, 3.5e-3, 4e-3, 4.5e-3, 5e-3, 5.5e-3, 6e-3, 6.5e-3, 7e-3, 7.5e-3, 8e-3, 8.5e-3, 9e-3,
    9.5e-3, 1e-2, 3e-2, 5e-2, 7e-2, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.25, 1.5, 1.75, 2.0,
    2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 30.0, 50.0, 70.0, 100.0, 300.0, 500.0, 700.0,
    1000.0,
]  # fmt: skip
KAPPAS_35 = [
    1e-4, 5e-4, 1e-3, 3e-3, 5e-3, 7e-3, 1e-2, 3e-2, 5e-2, 7e-2, 1e-1, 0.5, 1.0, *_ONE_TO_NINE, 10.0, 20.0, 30.0, 50.0,
    70.0, 100.0, 300.0, 500.0, 700.0, 1e3, 3e3, 5e3, 7e3, 1e4,
]  # fmt: skip


class Set(NamedTuple):
    """Committed set: files of devices, clocks and results, the values of kappa, and the paper (`ton`: ToN 2021)."""

    devices: str
    clocks: str
    results: str
    kappas: list[float]
    ton: bool = False


_HETERO = "figs/Heterogeneous1"
_FIFTY = "figs/Level50/setting.h5"
SETS = {
    "infocom5": Set("julia-INFOCOM/data.h5", "julia-INFOCOM/setting.h5", "julia-INFOCOM/result5.h5", KAPPAS_62),
    "hetero5": Set(f"{_HETERO}/data.h5", f"{_HETERO}/setting.h5", f"{_HETERO}/result5.h5", KAPPAS_75),
    "ton5": Set("julia-new/data.h5", "julia-INFOCOM/setting.h5", "julia-new/result5.h5", KAPPAS_62, ton=True),
    "data50": Set("julia-INFOCOM/data_sub1.h5", _FIFTY, "julia-INFOCOM/result50_sub1.h5", KAPPAS_35),
    "distance50": Set("julia-INFOCOM/data_sub2.h5", _FIFTY, "julia-INFOCOM/result50_sub2.h5", KAPPAS_35),
    "ton_data50": Set("julia-new/data_sub1.h5", _FIFTY, "julia-new/result50_sub1.h5", KAPPAS_35, ton=True),
    "ton_distance50": Set("julia-new/data_sub2.h5", _FIFTY, "julia-new/result50_sub2.h5", KAPPAS_35, ton=True),
}


class Case(NamedTuple):
    """Round, kappa, and the committed numbers by their names in the file; numbers per device are arrays [n]."""

    round_: Round
    kappa: float
    committed: dict[str, Any]


def fedl_round(cycles: Array, clock_hz: Array, noise_over_gain: Array) -> Round:
    """Return a round of devices from their work in cycles [n], highest clocks [n], and noise over gain in W [n]."""
    n = len(cycles)
    return Round(
        ready_s=np.zeros(n),
        compute_s=cycles / clock_hz,
        compute_j=ALPHA / 2 * cycles * clock_hz**2,
        min_clock=LEAST_HZ / clock_hz,
        size_bit=UPLOAD_NAT / math.log(2),
        snr=MOST_W / noise_over_gain,
        power_w=np.full(n, MOST_W),
        amplifier_efficiency=1.0,
        circuit_w=0.0,
        weight=np.ones(n),
        bandwidth_hz=BANDWIDTH_HZ,
        law=CAPACITY,
    )


def cases(clone: Path, own: Set) -> Iterator[Case]:
    """Yield the cases of a committed set, for all levels and values of kappa."""
    devices, clocks, results = (_arrays(clone / name) for name in (own.devices, own.clocks, own.results))
    levels = 5 if len(own.kappas) == len(KAPPAS_35) else 1
    fifty = levels > 1
    for level in range(levels):
        bits = devices["D_n"][..., level] if devices["D_n"].ndim == 2 else devices["D_n"]
        ratio = devices["ratios"][..., level] if devices["ratios"].ndim == 2 else devices["ratios"]
        round_ = fedl_round(clocks["C_n"] * bits, clocks["f_max"], ratio)
        for place, kappa in enumerate(own.kappas):
            at = (place, level) if fifty else (place,)
            yield Case(round_, kappa, {key: its[(..., *at)] for key, its in results.items() if its.ndim >= len(at)})


def _arrays(path: Path) -> dict[str, Array]:
    """Return all arrays of an HDF5 file.

    Raises:
        FednetError: h5py is missing.
    """
    try:
        import h5py  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise FednetError("reproduce: fedl reads HDF5 files, got no h5py; pip install h5py") from error
    with h5py.File(path) as file:
        return {key: np.asarray(file[key]) for key in file}


def differences(case: Case, *, ton: bool) -> dict[str, float]:
    """Return the largest relative differences of our solution from the committed numbers, by kind of number."""
    round_, kappa, known = case
    cost, plan = fedl_cost(round_, kappa, LEAST_W), Fedl(j_per_s=kappa, min_power_w=LEAST_W).plan(round_)
    air_s = round_.need_s / np.log1p(plan.power_part * round_.gamma)
    found = {
        "times": _apart([cost.compute_s, cost.send_s, *air_s], [known["T_cmp1"], known["T_com1"], *known["tau1"]]),
        "sending": _apart([cost.send_j, *plan.power_part * round_.power_w], [known["E_com1"], *known["p1"]]),
        "computing": _apart([cost.compute_j], [known["E_cmp1"]]),
        "low_clocks": float(np.sum(known["f1"] < LEAST_HZ / 1e9 * (1 - 1e-9))),
    }
    committed = RoundCost(known["T_cmp1"], known["E_cmp1"], known["T_com1"], known["E_com1"])
    if ton:
        best = ton_accuracy(cost, kappa)
        return found | {
            "theta": _apart([best.theta, best.eta], [known["theta"], known["eta"]]),
            "cost": _apart([best.cost], [known.get("Obj", known["Obj1"])]),
            "cost_of_committed": _apart([ton_accuracy(committed, kappa).cost], [known.get("Obj", known["Obj1"])]),
        }
    sub3 = infocom_accuracy(cost, kappa)
    return found | {
        "theta": _apart([sub3.theta], [known["Theta1"]]),
        "cost": _apart([sub3.cost], [known["Obj1"]]),
        "cost_of_committed": _apart([infocom_accuracy(committed, kappa).cost], [known["Obj1"]]),
    }


def _apart(ours: Any, known: Any) -> float:
    return float(np.max(np.abs(np.asarray(ours, np.float64) / np.asarray(known, np.float64) - 1)))


def ours(sources: Sources) -> dict[str, float]:
    """Return for each set the number of cases, the largest differences, and the number of clocks below their limit."""
    files = (file for own in SETS.values() for file in (own.devices, own.clocks, own.results))
    clone, values = sources.need("nhatminh/FEDL-INFOCOM", *files), dict[str, float]()
    for name, own in SETS.items():
        found = [differences(case, ton=own.ton) for case in cases(clone, own)]
        values[f"{name}_cases"] = float(len(found))
        for key in found[0]:
            every = [each[key] for each in found]
            values[f"{name}_{key}"] = sum(every) if key == "low_clocks" else max(every)
    return values
