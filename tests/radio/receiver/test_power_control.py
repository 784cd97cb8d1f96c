"""Claims about power control, against worked optima, Sionna's vectors and linear programming."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

from fednet_emu.radio.receiver.interference import sinr_of_pairs
from fednet_emu.radio.receiver.power_control import (
    POWER_CONTROLS,
    FoschiniMiljanic,
    FullPower,
    OpenLoop,
    best_common_sinr,
    feasibility,
    foschini_miljanic,
)

TABLE = json.loads((Path(__file__).parents[1] / "reference" / "analytic_checkpoints.json").read_text())
WORKED = TABLE["foschini_miljanic"]
BOTH = pytest.mark.parametrize("name", ["ggplab_data", "cvxpy_data"])


def problem(name):
    """Gain, noise, targets and caps of a worked example."""
    case = WORKED[name]
    count = len(case["G"])
    return np.array(case["G"], float), np.full(count, case["sigma"]), np.full(count, case["gamma"]), case["p_max"]


@BOTH
def test_iteration_converges_to_the_worked_optimum(name):
    """Within 1e-7 of the published powers, where everybody has exactly the target."""
    gain, noise_w, target, cap_w = problem(name)

    power_w = foschini_miljanic(target, gain, noise_w, np.full(5, cap_w))

    assert power_w == pytest.approx(WORKED[name]["p_opt"], abs=1e-7)
    assert power_w.sum() == pytest.approx(WORKED[name]["sum"], abs=1e-7)
    assert sinr_of_pairs(power_w, gain, noise_w) == pytest.approx(target, rel=1e-10)


@BOTH
def test_closed_form_is_the_worked_optimum(name):
    """(I - D F)^-1 D u gives the same powers, and the spectral radius of F that of the table."""
    gain, noise_w, target, cap_w = problem(name)

    verdict = feasibility(target, gain, noise_w, cap_w)

    assert verdict.feasible
    assert verdict.power_w == pytest.approx(WORKED[name]["p_opt"], abs=1e-7)
    assert verdict.spectral_radius == pytest.approx(target[0] * WORKED[name]["rho_F"], abs=1e-9)
    assert best_common_sinr(gain) == pytest.approx(1 / WORKED[name]["rho_F"], rel=1e-8)


def test_error_shrinks_with_the_spectral_radius():
    """The iteration of the first example loses a factor of 2 x 0.376 per step."""
    gain, noise_w, target, cap_w = problem("ggplab_data")
    optimum = np.array(WORKED["ggplab_data"]["p_opt"])
    errors = [
        np.abs(foschini_miljanic(target, gain, noise_w, np.full(5, cap_w), steps) - optimum).max() for steps in (20, 30)
    ]

    assert (errors[1] / errors[0]) ** 0.1 == pytest.approx(0.75225, rel=2e-3)


def test_those_who_cannot_reach_the_target_end_at_their_caps():
    """Beyond the best common SINR nobody rests below the cap with the target met."""
    gain, noise_w, _, cap_w = problem("ggplab_data")
    target = np.full(5, 1.2 * best_common_sinr(gain))

    power_w = foschini_miljanic(target, gain, noise_w, np.full(5, cap_w))
    short = sinr_of_pairs(power_w, gain, noise_w) < target * (1 - 1e-9)

    assert short.any()
    assert power_w[short] == pytest.approx(np.full(short.sum(), cap_w))


def test_verdicts_agree_with_linear_programming():
    """On 200 random instances with caps, about half of them feasible, and with the same least powers."""
    rng = np.random.default_rng(11)
    verdicts = []
    for _ in range(200):
        count = int(rng.integers(2, 8))
        gain = rng.uniform(0.01, 0.3, (count, count)) + np.diag(rng.uniform(0.5, 1.5, count))
        target, noise_w = rng.uniform(0.5, 3.0, count), rng.uniform(0.05, 0.5, count)
        cap_w = float(rng.uniform(0.5, 4.0))
        needs = target[:, None] * (gain - np.diag(np.diagonal(gain))) - np.diag(np.diagonal(gain))

        program = linprog(np.ones(count), A_ub=needs, b_ub=-target * noise_w, bounds=(0, cap_w))
        verdict = feasibility(target, gain, noise_w, cap_w)

        assert verdict.feasible == (program.status == 0)
        if verdict.feasible:
            assert verdict.power_w == pytest.approx(program.x, rel=1e-6, abs=1e-9)
        verdicts.append(verdict.feasible)

    assert 60 <= sum(verdicts) <= 140


def test_beyond_the_spectral_radius_no_power_is_enough():
    """Two symmetric pairs with cross gain a reach at most 1 / a."""
    gain, noise_w = np.array([[1.0, 0.25], [0.25, 1.0]]), np.full(2, 0.1)

    below, above = (feasibility(np.full(2, target), gain, noise_w) for target in (3.99, 4.01))

    assert below.feasible
    assert not above.feasible
    assert np.all(np.isinf(above.power_w))


@pytest.mark.parametrize(("alpha", "p0", "key"), [(1.0, -90, "alpha1_p0_-90_dbm"), (0.8, -80, "alpha0.8_p0_-80_dbm")])
def test_open_loop_powers_of_sionna(alpha, p0, key):
    """Ten resource blocks and a cap of 23 dBm at 80, 100, 120 and 140 dB of path loss."""
    gain = np.diag(10.0 ** -np.array([8.0, 10.0, 12.0, 14.0]))
    cap_w = np.full(4, 10**2.3 / 1000)

    power_w = OpenLoop(target_dbm=p0, compensation=alpha).powers_w(cap_w, gain, np.full(4, 1e-13), 10 * 180e3)

    assert 10 * np.log10(power_w * 1000) == pytest.approx(TABLE["uplink_open_loop_power_control"][key], abs=1e-9)


def test_full_power_is_the_cap():
    """No control leaves everybody at the cap."""
    caps_w = np.array([0.1, 0.2])

    np.testing.assert_array_equal(FullPower().powers_w(caps_w, np.eye(2), np.ones(2), 1e6), caps_w)


def test_component_runs_the_iteration():
    """A target of 3.01 dB is a factor of 2: the worked optimum again."""
    gain, noise_w, _, cap_w = problem("ggplab_data")
    law = FoschiniMiljanic(target_sinr_db=10 * np.log10(2))

    assert law.powers_w(np.full(5, cap_w), gain, noise_w, 1e6) == pytest.approx(
        WORKED["ggplab_data"]["p_opt"], abs=1e-7
    )


def test_every_kind_of_power_control_has_claims_here():
    """The table and this file name the same kinds."""
    assert set(POWER_CONTROLS) == {law.kind for law in (FullPower, OpenLoop, FoschiniMiljanic)}
