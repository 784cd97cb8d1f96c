"""Scenarios of papers, played: rounds and energies against the closed forms of their planners."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fednet_emu as fe
from fednet_emu.network.planning.local_accuracy import Convergence, RoundCost, fedl_cost
from fednet_emu.results.published import program

ONE = {"stop.rounds": 1, "evaluation.every_rounds": None}
FIVE = {"devices.placement": {"kind": "list", "xy_m": [[5, 0], [9, 0], [14, 0], [20, 0], [28, 0]]}}


def played(scenario: str, settings: dict[str, object]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The uploads and the computations of one round, without training."""
    run = fe.run(scenario, settings={**ONE, **settings}, timing_only=True, progress=False)
    transfers = run.transfers
    return transfers[transfers["direction"] == "uplink"], run.computes


def costs_of_fedl(uploads: pd.DataFrame, computes: pd.DataFrame, kappa: float) -> RoundCost:
    """The costs of SUB1 and SUB2 for the phones of `FIVE` with this work, by the paper's numbers."""
    cycles = computes.sort_values("device")["flop"].to_numpy() / 0.01
    gain = 1e-4 * np.array([5, 9, 14, 20, 28]) ** -4.0
    round_ = program("fedl").fedl_round(cycles, np.full(5, 2e9), 1e-10 / gain)
    return fedl_cost(replace(round_, size_bit=float(uploads["size_bit"].iloc[0])), kappa, 0.2)


@pytest.mark.parametrize("kappa", [1e-3, 0.05, 0.5, 1.0, 10.0, 1000.0])
def test_a_played_round_of_fedl_spends_what_its_closed_forms_say(kappa: float) -> None:
    """Six values of kappa: energies to 1e-6, powers within their limits, and no later than T_cmp + T_com."""
    uploads, computes = played("fedl", {**FIVE, "network.uplink.access.planner.j_per_s": kappa})
    cost = costs_of_fedl(uploads, computes, kappa)
    began_s = computes["started_s"].min()

    assert computes["energy_j"].sum() == pytest.approx(cost.compute_j, rel=1e-6)
    assert uploads["energy_j"].sum() == pytest.approx(cost.send_j, rel=1e-6)
    power_w = uploads["energy_j"] / (uploads["ended_s"] - uploads["started_s"])
    assert power_w.between(0.2 * (1 - 1e-4), 1 + 1e-4).all()
    assert uploads["ended_s"].max() - began_s <= cost.compute_s + cost.send_s + 1e-6


def test_a_round_of_fedl_whose_devices_are_ready_together_lasts_as_long_as_both_parts() -> None:
    """With equal samples all compute for exactly T_cmp, so the round is T_cmp + T_com to 10 ns."""
    settings = {**FIVE, "data": {"kind": "synthetic", "n_samples": 100, "n_test": 10}, "partition": "iid"}
    uploads, computes = played("fedl", settings)
    cost = costs_of_fedl(uploads, computes, 1.0)

    assert uploads["ended_s"].max() - computes["started_s"].min() == pytest.approx(
        cost.compute_s + cost.send_s, abs=1e-8
    )


YANG = {
    "devices.count": 5,
    "devices.speed": {"kind": "fixed", "flop_per_s": 1e9},
    "channel.path_loss": {"kind": "macro-classic"},
    "channel.noise_density_dbm_hz": -174,
    "channel.base_station.tx_power_dbm": 60,
    "data": {"kind": "synthetic", "n_samples": 100, "n_test": 10},
    "partition": "iid",
    "devices.placement": {"kind": "list", "xy_m": [[50, 0], [90, 0], [140, 0], [200, 0], [280, 0]]},
}


@pytest.mark.parametrize("power_dbm", [2, 10, 20])
@pytest.mark.parametrize("planner", ["least-time", "equal-band", "turns"])
def test_a_played_round_ends_when_its_planner_says(planner: str, power_dbm: int) -> None:
    """Three schemes of Yang et al. at three powers: the last upload ends at the planned time, to 2 ns."""
    uploads, computes = played(
        "fedl",
        {
            **YANG,
            "channel.device.tx_power_dbm": power_dbm,
            "network.uplink.access": {"kind": "planned", "planner": planner},
        },
    )
    paper, size_bit = program("completion-time"), float(uploads["size_bit"].iloc[0])
    distance_km = np.array([50, 90, 140, 200, 280]) / 1e3
    step = paper.step(paper.Setting(float(power_dbm), 1e6, size_bit), 128.1 + 37.6 * np.log10(distance_km))
    compute_s = computes["flop"].to_numpy()[0] / 1e9
    round_ = replace(step, compute_s=np.full(5, compute_s))
    planners = {"least-time": paper.LeastTime(), "equal-band": paper.EqualBand(), "turns": paper.Turns()}

    end_s = float(planners[planner].plan(round_).ends_s.max())
    assert uploads["ended_s"].max() - computes["started_s"].min() == pytest.approx(end_s, abs=7e-9)
    assert Convergence(1.0, 1.0).completion_s(round_, 0.5, planners[planner]) == pytest.approx(2 * end_s, rel=1e-12)


def test_adaptive_tau_plays_its_scenario() -> None:
    """The first rounds of even against odd digits: one step, one step, then more, at most ten times as many."""
    run = fe.run("adaptive_tau", settings={"algorithm.budget_s": 0.6}, progress=False)
    taus = run.table("adaptive_tau")["tau"].tolist()

    assert taus[:2] == [1, 1]
    assert 1 < taus[2] <= 10
    assert taus[-1] == 1
