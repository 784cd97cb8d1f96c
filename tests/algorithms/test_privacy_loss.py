"""Claims about privacy loss distributions: the digits of another program, closed forms, and what a run says."""

import math

import pytest
from scipy.integrate import quad
from scipy.stats import norm

import fednet_emu as fe
from fednet_emu.algorithms import privacy_loss
from fednet_emu.algorithms.accountant import epsilon
from fednet_emu.emulation.hardware import notes
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import ScenarioError
from tests.algorithms.test_privacy import EXACT, KNOWN

TIGHT = [2.381686, 0.864459, 5.639447, 0.221348]
"""What dp-accounting 0.6.0 has for `KNOWN` by privacy loss distributions."""


@pytest.mark.parametrize(("known", "tight"), list(zip(KNOWN, TIGHT, strict=True)))
def test_the_distribution_of_losses_has_the_known_epsilon(known, tight):
    """Six digits of another program on a grid of the same step."""
    z, q, rounds, delta, *_ = known
    assert epsilon(z, delta=delta, rounds=rounds, rate=q, accountant="pld") == pytest.approx(tight, abs=1e-6)


@pytest.mark.parametrize(("z", "rounds", "delta", "known"), EXACT)
def test_losses_of_nearly_everybody_come_to_the_closed_form(z, rounds, delta, known):
    """At a rate of 1 - 1e-9 the sum of losses is that of Gaussian noise without sampling."""
    found = privacy_loss.epsilon(z, delta=delta, rounds=rounds, rate=1 - 1e-9)
    assert found == pytest.approx(known, abs=3e-6)


@pytest.mark.parametrize(("z", "q", "delta"), [(0.6, 0.3, 1e-5), (2.0, 0.9, 1e-3), (1.0, 0.01, 1e-6)])
def test_one_round_has_the_delta_of_its_densities(z, q, delta):
    """Max of p(L > eps) - e^eps q(L > eps) with a device and without, and the reverse, by quadrature over the sum."""
    eps = privacy_loss.epsilon(z, delta=delta, rounds=1, rate=q)

    def density(x, with_it):
        own = norm.pdf(x, scale=z)
        return (1 - q) * own + q * norm.pdf(x - 1, scale=z) if with_it else own

    def excess(x, first):
        return max(density(x, first) - math.exp(eps) * density(x, not first), 0.0)

    ends = (-12 * z, 1 + 12 * z)
    both = [quad(excess, *ends, args=(first,), epsabs=1e-13, limit=2000)[0] for first in (True, False)]
    assert max(both) == pytest.approx(delta, rel=1e-3)


def test_a_coarser_grid_claims_less(monkeypatch):
    """With few points epsilon is larger, a little; with next to no noise there are few of them, too."""
    fine = privacy_loss.epsilon(1.0, delta=1e-5, rounds=20, rate=0.2)
    monkeypatch.setattr(privacy_loss, "_MOST", 2**11)
    coarse = privacy_loss.epsilon(1.0, delta=1e-5, rounds=20, rate=0.2)
    assert fine < coarse < 1.02 * fine
    loud = privacy_loss.epsilon(0.01, delta=1e-5, rounds=1, rate=1e-3)
    assert loud == pytest.approx(epsilon(0.01, delta=1e-5, rounds=1), rel=0.1)


def test_the_accountant_of_a_run():
    """In the notes of `fednet check`, below the bound by divergences; noise for the same epsilon is less."""
    settings = ["algorithm.selection=poisson", "stop.rounds=10"]
    settings += ["algorithm.aggregation={kind: dp, clip_norm: 1, noise_multiplier: 4, accountant: pld}"]
    told = list(notes(load_scenario("quickstart", settings)))
    tight, loose = (epsilon(4.0, delta=1e-5, rounds=10, rate=0.5, accountant=how) for how in ("pld", "rdp"))
    assert told[0].startswith(f"10 rounds reveal at most epsilon = {tight:.4g} of a device")
    assert tight < 0.95 * loose
    least = fe.noise_for(loose, delta=1e-5, rounds=10, rate=0.5, accountant="pld")
    assert least < 3.9
    assert epsilon(least, delta=1e-5, rounds=10, rate=0.5, accountant="pld") == pytest.approx(loose, rel=1e-5)
    with pytest.raises(ScenarioError, match="epsilon is exact if all devices are invited, got pld; leave it out"):
        load_scenario("quickstart", [*settings, "algorithm.selection=all", "algorithm.cohort=20"])
    with pytest.raises(ScenarioError, match="rounding hides probabilities below 1e-09, got delta 1e-10; leave it out"):
        load_scenario("quickstart", [*settings, "algorithm.aggregation.delta=1e-10"])
