"""Claims about power control, against worked optima, Sionna's vectors and linear programming."""

import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.optimize import linprog

from fednet_emu.network.settings import NetworkSettings
from fednet_emu.radio.receiver.power_control import (
    POWER_CONTROLS,
    FullPower,
    OpenLoop,
    TargetSnr,
    feasibility,
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
def test_closed_form_is_the_worked_optimum(name):
    """(I - D F)^-1 D u gives the published powers, where everybody has exactly the target, and its spectral radius."""
    gain, noise_w, target, cap_w = problem(name)

    verdict = feasibility(target, gain, noise_w, cap_w)

    assert verdict.feasible
    assert verdict.power_w == pytest.approx(WORKED[name]["p_opt"], abs=1e-7)
    assert verdict.power_w.sum() == pytest.approx(WORKED[name]["sum"], abs=1e-7)
    received_w = gain * verdict.power_w
    own_w = np.diagonal(received_w)
    assert own_w / (noise_w + received_w.sum(axis=1) - own_w) == pytest.approx(target, rel=1e-10)
    assert verdict.spectral_radius == pytest.approx(target[0] * WORKED[name]["rho_F"], abs=1e-9)


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
    gain = 10.0 ** -np.array([8.0, 10.0, 12.0, 14.0])
    cap_w = np.full(4, 10**2.3 / 1000)

    power_w = OpenLoop(target_dbm=p0, compensation=alpha).powers_w(cap_w, gain, 1e-13, 10 * 180e3)

    assert 10 * np.log10(power_w * 1000) == pytest.approx(TABLE["uplink_open_loop_power_control"][key], abs=1e-9)


def test_full_power_is_the_cap():
    """No control leaves everybody at the cap."""
    caps_w = np.array([0.1, 0.2])

    np.testing.assert_array_equal(FullPower().powers_w(caps_w, np.ones(2), 1.0, 1e6), caps_w)


def test_a_target_over_noise_is_met_up_to_the_cap():
    """At 3.01 dB over a noise of 1 pW, gains of 1e-10 and 1e-12 need 0.02 W and 2 W, of which there is 1 W."""
    power_w = TargetSnr(target_snr_db=10 * np.log10(2)).powers_w(np.ones(2), np.array([1e-10, 1e-12]), 1e-12, 1e6)

    assert power_w == pytest.approx([0.02, 1.0])


@pytest.mark.parametrize("given", ["foschini-miljanic", {"kind": "foschini-miljanic", "target_sinr_db": 15}])
def test_the_kind_that_never_iterated_is_refused_with_its_new_name(given):
    """What was called by the names of an iteration aims at an SNR over noise: the sentence says what to write."""
    with pytest.raises(ValidationError, match=r"got foschini-miljanic.*write \{kind: target-snr, target_snr_db"):
        NetworkSettings.model_validate({"power_control": given})


def test_every_kind_of_power_control_has_claims_here():
    """The table and this file name the same kinds."""
    assert set(POWER_CONTROLS) == {law.kind for law in (FullPower, OpenLoop, TargetSnr)}
