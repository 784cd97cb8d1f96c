"""Differential privacy, and its loss."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

import fednet_emu as fe
from fednet_emu.algorithms import privacy_loss
from fednet_emu.algorithms.accountant import epsilon, renyi
from fednet_emu.algorithms.private import AdaptiveClipping, CentralPrivacy, clipped, noised
from fednet_emu.emulation.hardware import notes
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import FednetError, ScenarioError
from fednet_emu.federation import accumulated, mean_update
from fednet_emu.kernel.streams import Streams
from fednet_emu.study.sweep import _totals
from fednet_emu.testing import run_small, small_scenario
from tests.quick import examples

KNOWN = [  # z, q, T, delta, the least over integer orders by another program; dp-accounting 0.6.0 with fractional ones
    (1.1, 256 / 60000, 14062, 1e-5, 2.596981, 2.596556),
    (1.3, 256 / 60000, 3515, 1e-5, 0.954430, 0.954430),
    (0.7, 256 / 60000, 10546, 1e-5, 6.372841, 6.319464),
    (1.0, 0.001, 1500, 1e-6, 0.875810, 0.875810),
]
EXACT = [(4.0, 1, 1e-5, 0.926342), (10.0, 100, 1e-5, 4.377178), (4.0, 100, 1e-3, 10.204769)]


@pytest.mark.parametrize(("z", "q", "rounds", "delta", "integer", "fractional"), KNOWN)
def test_sampled_rounds_have_the_known_epsilon(z, q, rounds, delta, integer, fractional):
    """The bound of another program over the same orders; fractional orders would gain less than one per cent."""
    found = epsilon(z, delta=delta, rounds=rounds, rate=q)
    assert found == pytest.approx(integer, abs=2e-6)
    assert fractional - 1e-6 <= found < 1.01 * fractional


def test_a_large_rate_comes_near_fractional_orders():
    """dp-accounting 0.6.0 has 1.076441 for a tenth of 1,000 devices in each of 200 rounds."""
    assert 1.076441 <= epsilon(4.0, delta=1e-3, rounds=200, rate=0.1) < 1.0767


@pytest.mark.parametrize(("z", "rounds", "delta", "known"), EXACT)
def test_rounds_with_everybody_are_exact(z, rounds, delta, known):
    """The closed form of the Gaussian mechanism, which dp-accounting's PLD accountant meets."""
    assert epsilon(z, delta=delta, rounds=rounds) == pytest.approx(known, abs=1e-6)


@examples(30)
@given(st.integers(2, 12), st.floats(0.7, 5.0), st.floats(0.01, 0.9))
def test_the_divergence_is_its_integral(order, z, q):
    """E over N(0, z^2) of ((1 - q) + q N(1, z^2) / N(0, z^2)) ** order, by quadrature."""

    def integrand(x):
        ratio = 1 - q + q * math.exp((2 * x - 1) / (2 * z * z))
        return norm.pdf(x, scale=z) * ratio**order

    whole, _ = quad(integrand, -12 * z, 12 * z + order, epsabs=0, epsrel=1e-10, limit=400)
    assert renyi(order, z, q) == pytest.approx(math.log(whole) / (order - 1), rel=1e-6, abs=1e-9)


@examples(10)
@given(st.floats(0.05, 50), st.integers(1, 3000), st.sampled_from([1.0, 0.5, 0.01]))
def test_the_noise_for_an_epsilon_is_the_least(target, rounds, rate):
    """It reaches the target, and a little less does not."""
    z = fe.noise_multiplier_for(target, delta=1e-5, rounds=rounds, rate=rate)

    assert epsilon(z, delta=1e-5, rounds=rounds, rate=rate) <= target * (1 + 1e-6)
    if z > 0.011:
        assert epsilon(z * 0.999, delta=1e-5, rounds=rounds, rate=rate) > target


def test_bounds_of_the_accountant():
    """No round reveals nothing, no noise everything; arguments out of range are named."""
    assert epsilon(1.0, delta=1e-5, rounds=0) == 0
    assert epsilon(0.0, delta=1e-5, rounds=1) == math.inf
    for wrong in ({"delta": 0.0}, {"rounds": 0}, {"rate": 1.5}, {"delta": 1e-10, "rate": 0.5, "accountant": "pld"}):
        with pytest.raises(FednetError, match=f"noise_multiplier_for: {next(iter(wrong))} is out of its range"):
            fe.noise_multiplier_for(1.0, **{"delta": 1e-5, "rounds": 10, **wrong})


def played(name="quickstart", *, timing_only=False, **changes):
    plain = {"stop.rounds": 4, "algorithm.cohort": 6, "model": "softmax", "algorithm.selection": "poisson"}
    return fe.run(name, settings={**plain, **changes}, timing_only=timing_only, progress=False)


def dp(**fields):
    return {"algorithm.aggregation": {"kind": "dp", **fields}}


def test_without_noise_or_limit_it_is_federated_averaging():
    """Everybody asked, no clipping, no noise: the model of FedAvg with uniform weights, and the same clock."""
    every = {"algorithm.selection": "all"}
    plain = played(**every, **{"algorithm.weighting": "uniform"})
    private = played(**every, **dp(clip_norm=1e9, noise_multiplier=0))

    assert private.digest == plain.digest
    assert private.summary["loss"] == pytest.approx(plain.summary["loss"], rel=1e-5)
    assert private.summary["epsilon"] is None


def vectors(fed_rounds, models, **fields):
    """What the aggregation makes of given models [n, P] around 0 out of 20 devices, 10 of whom are asked on average."""
    law = CentralPrivacy(**fields)
    w = torch.zeros(models.shape[1])
    found = []
    for t in range(fed_rounds):
        noisy = law.noisy(w, len(models), mean_update, 10.0, law.clip_norm, Streams(7), ("dp", t))
        found.append(accumulated(noisy, [clipped(model, w, law.clip_norm) for model in models]))
    return torch.stack(found)


def test_updates_are_clipped_as_a_whole_and_divided_by_the_expected_number():
    """(3, 4) and (0.3, 0.4) with a norm of 1 are (0.6, 0.8) and (0.3, 0.4): their sum over 10 is (0.09, 0.12)."""
    models = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    assert vectors(1, models, clip_norm=1.0, noise_multiplier=0)[0].tolist() == pytest.approx([0.09, 0.12])


@examples(50)
@given(st.integers(0, 10**6), st.floats(0.01, 10))
def test_leaving_one_device_out_moves_the_sum_by_at_most_the_norm(seed, clip_norm):
    """Whatever it sends: the sensitivity that the noise is made for."""
    rng = np.random.default_rng(seed)
    models = torch.from_numpy(rng.normal(size=(5, 7)) * 10 ** rng.uniform(-3, 4, (5, 1))).float()
    whole, without = (vectors(1, its, clip_norm=clip_norm, noise_multiplier=0)[0] for its in (models, models[1:]))
    assert float((10 * (whole - without)).norm()) <= clip_norm * (1 + 1e-4)


def test_the_noise_has_the_stated_size_and_is_new_in_every_round():
    """Its variance over 200 rounds and 50 entries is (z S / (q N))^2; chi-square at five standard deviations."""
    noise = vectors(200, torch.zeros(3, 50), clip_norm=2.0, noise_multiplier=1.5)
    n = noise.numel()
    assert float(noise.square().sum()) / (1.5 * 2.0 / 10) ** 2 == pytest.approx(n, abs=5 * math.sqrt(2 * n))
    assert abs(float((noise[1:] * noise[:-1]).mean())) < 5 * 0.09 / math.sqrt(n)
    assert not torch.equal(noise[0], noise[1])


def test_a_run_draws_everybody_by_itself_and_says_what_it_reveals():
    """The numbers asked are binomial, rounds with nobody included; the summary has the accountant's epsilon."""
    private = dp(clip_norm=1.0, noise_multiplier=2.0, delta=1e-3)
    run = played(timing_only=True, **{"stop.rounds": 150, "algorithm.cohort": 2}, **private)

    assert run.summary["rounds"] == 150
    assert run.summary["epsilon"] == pytest.approx(epsilon(2.0, delta=1e-3, rounds=150, rate=0.1))
    assert run.summary["delta"] == 1e-3
    counts = run.rounds["invited"].to_numpy()
    assert counts.min() == 0
    assert abs(counts.sum() - 300) < 5 * math.sqrt(150 * 20 * 0.1 * 0.9)
    assert np.var(counts) == pytest.approx(1.8, abs=5 * 1.8 * math.sqrt(2 / 150))


def test_nobody_is_no_cohort_to_plan(recwarn):
    """A round in which nobody is drawn needs no plan of its uplink, and no warning says that nobody may send."""
    planned = {"algorithm.cohort": 1, "network.uplink.access": "planned"}
    run = played(timing_only=True, **{"stop.rounds": 40}, **planned)

    assert (run.rounds["invited"] == 0).any()
    assert not [str(its.message) for its in recwarn if "lets none" in str(its.message)]


def test_devices_that_leave_take_the_gain_of_sampling_away():
    """With windows, who takes part is not decided by the draw alone."""
    away = {"devices.availability": {"kind": "periodic", "on_s": 5, "off_s": 5}}
    run = played(**away, **dp(clip_norm=1.0, noise_multiplier=2.0))
    assert run.summary["epsilon"] == pytest.approx(epsilon(2.0, delta=1e-5, rounds=run.summary["rounds"]))


@pytest.mark.parametrize(
    ("more", "rate"),
    [((), 0.5), (("devices.availability={kind: periodic, on_s: 0.004, off_s: 0.001}",), 1.0)],
    ids=["always there", "come and go"],
)
def test_the_series_has_what_the_rounds_so_far_reveal(more, rate):
    """After t rounds the epsilon of t rounds; half of four devices are asked, so that noise of 3 is 3 * 0.2 / 2."""
    rule = "algorithm.aggregation={kind: dp, clip_norm: 0.2, noise_multiplier: 3, delta: 1e-4}"
    fed = run_small(POISSON, rule, "stop.rounds=5", *more)
    rows = pd.DataFrame(fed.ledger.series["privacy"])

    assert rows["epsilon"].tolist() == [
        pytest.approx(epsilon(3.0, delta=1e-4, rounds=int(t), rate=rate)) for t in rows["round"]
    ]
    assert rows["round"].iloc[-1] == 5
    assert rows["noise_std"].tolist() == pytest.approx([0.3] * len(rows))


def test_what_a_run_will_reveal_is_said_before():
    """From `stop.rounds`, in the notes of `fednet check`."""
    settings = ["algorithm.selection=poisson", "algorithm.aggregation={kind: dp, clip_norm: 1, noise_multiplier: 4}"]
    told = list(notes(load_scenario("quickstart", [*settings, "stop.rounds=10"])))
    value = epsilon(4.0, delta=1e-5, rounds=10, rate=0.5)
    assert told[0] == f"10 rounds reveal at most epsilon = {value:.4g} of a device, at delta = 1e-05"


# ---- a limit that follows the norms ----------------------------------------------------------------------------------

POISSON = "algorithm={kind: fedavg, cohort: 2, lr: 0.1, local_steps: 2, batch_size: 8, selection: poisson}"
ADAPTIVE = "algorithm.aggregation={kind: dp, clip_norm: 0.1, noise_multiplier: 0.05, adaptive: {}}"
LOCAL = "algorithm.aggregation={kind: local-dp, clip_norm: 0.5, noise_multiplier: 0.1}"
"""Two kinds, in the small federation."""
NAME = ("dp", 0)


def test_the_first_step_of_the_limit_and_its_fixed_point():
    """1.117 % below 0.1 moves it to 0.1102705; norms of a lognormal law of median 1 draw it to the sample's median."""
    rule, norms = AdaptiveClipping(count_noise=1e-12), np.random.default_rng(0).lognormal(size=20_000)
    assert rule.moved(0.1, [1.0] * 1117, 100_000, Streams(0), NAME) == pytest.approx(0.1102705, abs=5e-8)

    limit = 0.1
    for _ in range(200):
        limit = rule.moved(limit, (norms <= limit).astype(float), len(norms), Streams(0), NAME)
    assert limit == pytest.approx(np.median(norms), rel=1e-3)


@pytest.mark.parametrize(
    ("z", "asked", "known"), [(1.0, 100, 1.005037815), (1.0, 1000, 1.000050004), (0.5, 50, 0.502518908)]
)
def test_the_noise_of_the_sum_leaves_room_for_that_of_the_count(z, asked, known):
    """Both together are a Gaussian mechanism of noise z."""
    law = CentralPrivacy(clip_norm=1.0, noise_multiplier=z, adaptive=AdaptiveClipping())
    assert law.sum_noise(asked) == pytest.approx(known, abs=5e-10)
    assert law.sum_noise(asked) ** -2 + (2 * asked / 20) ** -2 == pytest.approx(z**-2)


def test_the_noise_of_the_count_has_the_stated_size():
    """From the factor by which the limit moves: chi-square over 2,000 rounds at five standard deviations."""
    rule = AdaptiveClipping(count_noise=3.0)
    steps = [math.log(rule.moved(1.0, [1.0] * 5, 10.0, Streams(1), ("dp", t))) for t in range(2000)]
    assert np.mean(steps) == pytest.approx(0.0, abs=5 * 0.06 / math.sqrt(2000))
    assert np.var(steps) == pytest.approx(0.06**2, rel=5 * math.sqrt(2 / 2000))


@pytest.mark.parametrize("kind", ["fedavg", "fedprox"])
def test_the_limit_goes_down_and_a_number_comes_back(kind):
    """32 bit each way beside the 320 of the model; the clock of a run without training is the same."""
    settings = (POISSON, f"algorithm.kind={kind}", ADAPTIVE, "stop.rounds=6")
    fed, timed = run_small(*settings), run_small(*settings, timing_only=True)

    assert set(fed.ledger.transfers.column("size_bit")) == {352}
    assert timed.ledger.event_digest() == fed.ledger.event_digest()
    limits = [row["clip_norm"] for row in fed.ledger.series["privacy"]]
    assert limits[0] == 0.1
    assert len({round(limit, 9) for limit in limits}) == 6
    assert not timed.learner.nominal


def test_a_round_by_hand_with_a_moving_limit():
    """Two rounds with everybody: limit, share within it and model follow the formulas, noise included."""
    settings = (POISSON, ADAPTIVE, "algorithm.selection=all", "algorithm.local_steps=1", "algorithm.batch_size=null",
                "algorithm.aggregation.noise_multiplier=0.3", "stop.rounds=2")  # fmt: skip
    fed = run_small(*settings)
    model, data, law = fed.task.model, fed.task.data, small_scenario(*settings).algorithm.aggregation
    w, limit = model.initial().double(), 0.1
    for t in range(2):
        total, within = torch.zeros_like(w), 0
        for k in range(4):
            x, y = (part[fed.task.slice_of(k)].double() for part in (data.x, data.y))
            at = w.clone().requires_grad_()
            loss = model.sample_losses(x @ at[:9][:, None] + at[9], y).mean()
            update = -0.1 * torch.autograd.grad(loss, at)[0]
            within += float(update.norm()) <= limit
            total += update * min(1.0, limit / float(update.norm()))
        noise = torch.from_numpy(fed.streams("dp", t).standard_normal(10))
        w = w + (total + law.sum_noise(4.0) * limit * noise) / 4
        row = fed.ledger.series["privacy"][t]
        assert row["clip_norm"] == pytest.approx(limit, rel=1e-6)
        assert row["within_share"] == within / 4
        limit *= math.exp(-0.2 * ((within + 0.2 * fed.streams("dp", t, "count").standard_normal()) / 4 - 0.5))
    assert torch.allclose(fed.read(fed.latest).double(), w, atol=1e-5)


# ---- local privacy ---------------------------------------------------------------------------------------------------


ANALYTIC = [(0.5, 7.031826676), (1, 3.730631635), (2, 1.993812446), (4, 1.08116185), (8, 0.600229072)]


@pytest.mark.parametrize(("eps", "sigma"), ANALYTIC)
def test_the_noise_of_a_device_is_that_of_the_analytic_gaussian(eps, sigma):
    """For one round at delta 1e-5; rounds add up as those of one Gaussian mechanism, whatever the selection."""
    assert fe.noise_multiplier_for(eps, delta=1e-5, rounds=1) == pytest.approx(sigma, rel=1e-6)
    rule = f"algorithm.aggregation={{kind: local-dp, clip_norm: 1, noise_multiplier: {3 * sigma}}}"
    bound = small_scenario(POISSON, rule, "algorithm.selection=uniform").privacy(9)
    assert bound == pytest.approx((eps, 1e-5), rel=1e-5)


def test_noise_of_the_devices_is_their_own_and_n_times_dearer():
    """Of n devices that have not moved, the mean has d (z S)^2 / n; central noise has d (z S)^2 / n^2."""
    w = torch.zeros(4000)
    sent = torch.stack([noised(w, w, 2.0, 0.5, Streams(0), ("dp", k, 0)) for k in range(5)])
    assert float(sent.square().mean()) == pytest.approx(1.0, rel=5 * math.sqrt(2 / 20_000))
    assert float(sent.mean(0).square().mean()) == pytest.approx(1 / 5, rel=5 * math.sqrt(2 / 4000))
    fed = run_small(POISSON, LOCAL, "algorithm.selection=all", "algorithm.lr=0", "stop.rounds=60")
    moved = (fed.read(fed.latest) - fed.task.model.initial()).square().sum()  # 10 entries, (z S)^2 = 0.0025, 4 devices
    assert float(moved) / (60 * 0.0025 / 4) == pytest.approx(10, abs=5 * math.sqrt(20))
    far = noised(w + 1, w, 2.0, 0.0, Streams(0), ("dp", 0, 0))
    assert float(far.norm()) == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize("rule", [ADAPTIVE, LOCAL])
@pytest.mark.parametrize(
    "more",
    [
        (),
        ("network.uplink.message_loss={kind: random, probability: 0.3}",),
        ("devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 10]}", "algorithm.deadline_s=1"),
        ("devices.availability={kind: periodic, on_s: 0.002, off_s: 0.002}",),
    ],
)
def test_engines_and_no_training_have_one_clock_under_faults(rule, more):
    """Losses, a deadline, devices that come and go; both engines come to one model."""
    settings = (POISSON, rule, "stop.rounds=6", *more)
    serial, batched = run_small(*settings), run_small(*settings, "training.engine=batched")
    timed = run_small(*settings, timing_only=True)

    assert len({fed.ledger.event_digest() for fed in (serial, batched, timed)}) == 1
    assert torch.allclose(serial.read(serial.latest), batched.read(batched.latest), atol=1e-5)


def test_central_noise_does_not_fit_over_the_air_and_that_of_devices_does():
    """There, each update has a gain that is not known."""
    air = "network.uplink.access={kind: over-the-air, symbols_per_slot: 4, snr_db: 30}"
    fixed = "algorithm.aggregation={kind: dp, clip_norm: 0.1, noise_multiplier: 1}"
    [(_, what)] = small_scenario(POISSON, fixed, air).contradictions()
    assert "arrive with gains that change the norms" in what
    assert run_small(POISSON, LOCAL, air).round == 3


def test_tables_of_studies_have_epsilon_where_there_is_one():
    """Beside the totals; a run without a bound has no such column."""
    assert _totals({"epsilon": 1.5, "rounds": 3}, [])["epsilon"] == 1.5
    assert "epsilon" not in _totals({"rounds": 3}, [])


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
    least = fe.noise_multiplier_for(loose, delta=1e-5, rounds=10, rate=0.5, accountant="pld")
    assert least < 3.9
    assert epsilon(least, delta=1e-5, rounds=10, rate=0.5, accountant="pld") == pytest.approx(loose, rel=1e-5)
    with pytest.raises(ScenarioError, match="epsilon is exact if all devices are invited, got pld; leave it out"):
        load_scenario("quickstart", [*settings, "algorithm.selection=all", "algorithm.cohort=20"])
    with pytest.raises(ScenarioError, match="rounding hides probabilities below 1e-09, got delta 1e-10; leave it out"):
        load_scenario("quickstart", [*settings, "algorithm.aggregation.delta=1e-10"])
