"""Claims about the quantiles of the normal distribution."""

import subprocess
import sys

import numpy as np
from scipy.special import ndtri

from fednet_emu.radio.normal import normal_quantile


def test_quantiles_are_those_of_scipy_bit_for_bit():
    """In the middle, in both tails and far out in them, and for arrays of any shape."""
    rng = np.random.default_rng(0)
    middle, low = rng.random((4, 25_000)), 10.0 ** -rng.uniform(0.5, 300, 20_000)
    high = 1 - rng.random(20_000) * 0.2
    edges = np.array([0.13533528323661269189, 1 - 0.13533528323661269189, 0.5, 5e-324, 1 - 2**-53])
    for uniform in (middle, low, high, edges, np.asarray(0.3), np.asarray(0.01)):
        np.testing.assert_array_equal(normal_quantile(uniform), ndtri(uniform), strict=True)


def test_a_common_scenario_does_without_scipys_special_functions():
    """They take 13 MB and a fifth of a second, which a run with shadowing and Rayleigh fading need not pay."""
    program = (
        "import sys, fednet_emu.scenario.emulation as emulation, fednet_emu.scenario.load as load;"
        "emulation.build(load.load_scenario('quickstart', ['data=synthetic']));"
        "sys.exit('scipy.special' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
