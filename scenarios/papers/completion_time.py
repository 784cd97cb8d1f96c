"""Completion time and energy of Yang et al. (IEEE TWC 20(3), 2021) for the path losses of public scripts.

BrokenBunny/Energy-efficient-federated-learning at 26fd8dc, folder `github`, contains scripts that draw the paper's
figures, and the path losses of 50 users. The uploader is not named, and there is no licence. The arrays are read from
the user's clone. Not reproduced: the scripts' energies of EB-FDMA and FE-FDMA, which belong to no scheme.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import scipy

from fednet_emu.arrays import Array
from fednet_emu.network.planning import EqualBand, LeastTime, Turns
from fednet_emu.network.planning.base import Round
from fednet_emu.network.planning.local_accuracy import Convergence
from fednet_emu.radio.rates.shannon import Shannon
from fednet_emu.results.published import Sources
from fednet_emu.units import dbm_to_watt

PATH_LOSSES = "github/SystemData_50.mat"
CAPACITY = Shannon(gap_db=0, max_efficiency_bps_hz=None, min_efficiency_bps_hz=0)
USERS, CYCLES, CLOCK_HZ, KAPPA, NOISE_DBM_HZ = 20, 20 * 5e6, 2e9, 1e-28, -174.0
NEEDS = Convergence(rounds=160, steps=4)
EB_ETA, FE_ETA = 0.5, 0.6
"""Local accuracies of the baselines EB-FDMA and FE-FDMA."""
LIMITS_S = (100.0, 150.0, 200.0, 250.0, 300.0)


class Setting(NamedTuple):
    """Point of a figure: transmit power, bandwidth, and size of an upload."""

    power_dbm: float = 10.0
    bandwidth_hz: float = 20e6
    size_bit: float = 28.1e3


FIGURES: Mapping[str, list[Setting]] = {
    "power": [Setting(power_dbm=float(p)) for p in range(2, 21)],
    "bandwidth": [Setting(bandwidth_hz=1e6 * b, size_bit=100e3) for b in range(2, 21)],
    "size": [Setting(size_bit=1e3 * s) for s in range(50, 951, 50)],
}


def step(setting: Setting, path_loss_db: Array) -> Round:
    """Return a round with one local step of each user, at full power and clock."""
    n, power_w = len(path_loss_db), dbm_to_watt(setting.power_dbm)
    noise_w = dbm_to_watt(NOISE_DBM_HZ) * setting.bandwidth_hz
    return Round(
        ready_s=np.zeros(n),
        compute_s=np.full(n, CYCLES / CLOCK_HZ),
        compute_j=np.full(n, KAPPA * CYCLES * CLOCK_HZ**2),
        min_clock=np.full(n, 1e-9),
        size_bit=setting.size_bit,
        snr=power_w * 10 ** (-path_loss_db / 10) / noise_w,
        power_w=np.full(n, power_w),
        amplifier_efficiency=1.0,
        circuit_w=0.0,
        weight=np.ones(n),
        bandwidth_hz=setting.bandwidth_hz,
        law=CAPACITY,
    )


def times_s(setting: Setting, path_loss_db: Array) -> dict[str, float]:
    """Return the completion times in s of the proposed scheme and of the three baselines."""
    own = step(setting, path_loss_db)
    return {
        "proposed": NEEDS.shortest(own, LeastTime())[1],
        "eb": NEEDS.completion_s(own, EB_ETA, EqualBand()),
        "fe": NEEDS.completion_s(own, FE_ETA, LeastTime()),
        "tdma": NEEDS.shortest(own, Turns())[1],
    }


def _savings(path_loss_db: Array) -> Iterator[tuple[str, float]]:
    """Yield the largest time saving against each baseline in each figure, and the smallest saving of all."""
    smallest = 1.0
    for figure, settings in FIGURES.items():
        found = [times_s(setting, path_loss_db) for setting in settings]
        for baseline in ("eb", "fe", "tdma"):
            saved = [1 - times["proposed"] / times[baseline] for times in found]
            smallest = min(smallest, *saved)
            yield f"{figure}_{baseline}", 100 * max(saved)
        if figure == "power":
            yield "proposed_2dbm_s", found[0]["proposed"]
    yield "smallest", 100 * smallest


def ours(sources: Sources) -> dict[str, float]:
    """Return the largest time savings, and the energy savings within limits of the completion time, in percent."""
    clone = sources.need("BrokenBunny/Energy-efficient-federated-learning", PATH_LOSSES)
    arrays = scipy.io.loadmat(clone / PATH_LOSSES)
    path_loss_db = np.ravel(arrays["PathLoss_User_BS"]).astype(np.float64)[-USERS:]
    values = dict(_savings(path_loss_db))
    own = step(Setting(), path_loss_db)
    saved = []
    for limit_s in LIMITS_S:
        proposed_j, tdma_j = (NEEDS.cheapest(own, limit_s, in_turns=turns)[1] for turns in (False, True))
        saved.append(100 * (1 - proposed_j / tdma_j))
    return values | {"energy_tdma": max(saved), "energy_smallest": min(saved)}
