"""Claims about the bursts of over-the-air sums: who sends, with which power, at which SNR, against closed forms."""

import math

import numpy as np
import pytest
from scipy.special import exp1

from fednet_emu.errors import ScenarioError
from fednet_emu.testing import small_federation

MANY = ("devices.count=100", "data.n_samples=200", "algorithm.cohort=100")
FADING = ("channel.fading={kind: rayleigh, coherence_s: 0.01}", *MANY)
BLOCKS = 300


def bursts(*settings, access="", blocks=BLOCKS):
    """What a hundred devices do in bursts of many fading blocks, and their mean SNRs."""
    fed = small_federation(f"network.uplink.access={{kind: over-the-air, {access}}}", *settings)
    everybody = np.arange(fed.n_devices)
    sent = [fed.network.superposition.sending(everybody, block * 10_000_000, block) for block in range(blocks)]
    return sent, fed.network.up_links.mean_snr


@pytest.mark.parametrize("cutoff", [0.2, 0.7])
def test_the_active_share_and_the_mean_power_are_the_closed_forms(cutoff):
    """Rayleigh fading: exp(-g) of all bursts are sent, with a mean power of eta E1(g) over the channel's gain."""
    sent, mean_snr = bursts(*FADING, access=f"cutoff: {cutoff}")
    active = np.array([[not why for why in burst.silent] for burst in sent])
    power = np.array([burst.power_part for burst in sent]) * mean_snr / sent[0].snr
    n = active.size

    assert active.mean() == pytest.approx(math.exp(-cutoff), abs=5 * math.sqrt(0.25 / n))
    assert power.mean() == pytest.approx(exp1(cutoff), abs=5 * power.std() / math.sqrt(n))
    assert {why for burst in sent for why in burst.silent} == {"", "outage"}


def test_the_weakest_link_spends_its_budget_and_the_others_less():
    """Eta is such that the mean power of the weakest link is the full power of its radio."""
    sent, mean_snr = bursts(*FADING)

    assert sent[0].snr == pytest.approx(mean_snr.min() / exp1(0.2), rel=1e-4)
    assert len({burst.snr for burst in sent}) == 1


def test_a_peak_budget_is_never_exceeded():
    """The weakest link sends with full power at the cutoff, and with less above it."""
    sent, mean_snr = bursts(*FADING, access="budget: peak")
    most = max(burst.power_part.max() for burst in sent)

    assert sent[0].snr == pytest.approx(0.2 * mean_snr.min())
    assert 0.8 < most <= 1.0


def test_devices_beyond_the_given_snr_are_silent():
    """At the SNR that the median link can reach, the worse half never sends, and the better half arrives at it."""
    _, mean_snr = bursts(*MANY, blocks=1)
    level = float(np.median(mean_snr))
    (burst,), _ = bursts(*MANY, access=f"snr_db: {10 * math.log10(level)}", blocks=1)
    reached = burst.power_part * mean_snr

    assert [why == "unreachable" for why in burst.silent] == (mean_snr < level).tolist()
    assert burst.snr == pytest.approx(level)
    assert reached[mean_snr >= level] == pytest.approx(level)
    assert (reached[mean_snr < level] == 0).all()


def test_nobody_knows_the_whole_channel():
    """Factors differ from burst to burst and between devices, with the closed mean; without error all are 1."""
    sent, _ = bursts(*FADING, access="csi_error: 0.04")
    factor = np.array([burst.factor for burst in sent])

    assert factor.mean() == pytest.approx(math.sqrt(0.96), abs=0.02)
    assert len(np.unique(factor)) == factor.size
    assert (np.array([burst.factor for burst in bursts(*FADING, blocks=2)[0]]) == 1.0).all()


def test_a_cutoff_that_no_link_reaches_is_refused():
    """Links that do not fade have gain 1."""
    with pytest.raises(ScenarioError, match=r"network\.uplink\.access\.cutoff: no link ever has that gain, got 1\.5"):
        bursts(*MANY, access="cutoff: 1.5", blocks=1)
