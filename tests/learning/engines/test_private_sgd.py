"""DP-SGD: gradients of single samples limited one by one, noise of a stream, the same in both engines."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import fednet_emu as fe
from fednet_emu.algorithms.accountant import epsilon
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.engines.batched import BatchedEngine
from fednet_emu.learning.engines.serial import SerialEngine
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.learning.graph.jobs import SgdPlan, TrainData, TrainJob
from fednet_emu.learning.graph.optimizers import Momentum
from fednet_emu.learning.graph.private_sgd import PrivateSgd
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.testing import run_small, small_scenario

SIZES, FEATURES = (5, 9, 8), 6
PRIVATE = PrivateSgd(clip_norm=0.5, noise_multiplier=0.8)
PLANS = {
    "epochs": SgdPlan(lr=0.3, batch_size=4, epochs=2, private=PRIVATE),
    "full": SgdPlan(lr=0.3, steps=3, private=PRIVATE),
    "momentum": SgdPlan(lr=0.3, batch_size=3, steps=4, optimizer=Momentum(), clip_norm=0.4, private=PRIVATE),
}


def mlp() -> nn.Module:
    """An MLP 6-5-3."""
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, 3))


def jobs(plan: SgdPlan, **terms) -> list[TrainJob]:
    """A job of each of three devices, and the graph that knows where they start."""
    rng = np.random.default_rng(1)
    data = TrainData(
        torch.from_numpy(rng.normal(size=(sum(SIZES), FEATURES))),
        torch.from_numpy(rng.integers(0, 3, sum(SIZES))),
    )
    model = FlatModel(seeded_module(mlp, 5).double(), "cross-entropy", (FEATURES,))
    graph, ends = Graph(None), np.cumsum(SIZES)
    w = graph.constant(model.initial())
    return [
        TrainJob(model, data, slice(int(end - n), int(end)), w, plan, Streams(3), ("batch", k, 0), f"dev-{k}", **terms)
        for k, (end, n) in enumerate(zip(ends, SIZES, strict=True))
    ]


def by_hand(job: TrainJob) -> torch.Tensor:
    """Batch by batch, sample by sample, in double precision; the noise from the job's own stream."""
    model, plan, private = job.model, job.plan, job.plan.private
    w, velocity = job.params.value, 0.0
    noise = job.streams(*job.rng_key, "dp")
    batches = job.batches()
    module = seeded_module(mlp, 5).double()
    for rows, count in zip(batches.index, batches.count, strict=True):
        total = torch.zeros_like(w)
        for row in rows[:count]:
            at = w.clone().requires_grad_()
            out = torch.func.functional_call(module, model.unflatten(at), (job.data.x[row][None],))
            g = torch.autograd.grad(nn.functional.cross_entropy(out, job.data.y[row][None]), at)[0]
            total += g * min(1.0, private.clip_norm / float(g.norm()))
        drawn = torch.from_numpy(noise.standard_normal(len(w)))
        g = (total + private.noise_multiplier * private.clip_norm * drawn) / int(count)
        g = g * min(1.0, plan.clip_norm / (float(g.norm()) + 1e-6)) if plan.clip_norm else g
        velocity = 0.9 * velocity + g if isinstance(plan.optimizer, Momentum) else g
        w = w - plan.lr * velocity
    return w


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("engine", [SerialEngine(), BatchedEngine()], ids=["serial", "batched"])
def test_both_engines_make_the_steps_by_hand(plan, engine):
    """To 1e-11, over ragged batches, with momentum and a limit for the whole gradient after the noise."""
    mine = jobs(PLANS[plan])
    found = {resolved.job.label: result.params for resolved, result in engine.run([job.resolve() for job in mine])}
    for job in mine:
        assert torch.allclose(found[job.label], by_hand(job), rtol=1e-11, atol=1e-12), job.label


def test_factors_by_hand():
    """(3, 4) and (0.3, 0.4) with a limit of 1 are (0.6, 0.8) and (0.3, 0.4)."""
    g = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    limited = g * PrivateSgd(clip_norm=1.0, noise_multiplier=1.0).factors(g)[:, None]
    assert limited.flatten().tolist() == pytest.approx([0.6, 0.8, 0.3, 0.4])


SGD = "algorithm={kind: fedavg, cohort: 3, lr: 0.1, local_epochs: 2, batch_size: 8}"


@pytest.mark.parametrize("engine", ["serial", "batched"])
def test_without_noise_or_limit_it_is_plain_sgd(engine):
    """The same events, and the same models to rounding."""
    unlimited = "algorithm.private_sgd={clip_norm: 1e9, noise_multiplier: 0}"
    plain, private = (run_small(SGD, f"training.engine={engine}", *more) for more in ((), (unlimited,)))
    assert plain.ledger.event_digest() == private.ledger.event_digest()
    assert torch.allclose(plain.read(plain.latest), private.read(private.latest), atol=1e-5)


@pytest.mark.parametrize("kind", ["fedavg", "fedprox", "ditto", "fedper", "fedrep"])
def test_a_run_has_one_clock_and_the_same_model_in_both_engines(kind):
    """With losses and noise."""
    more = {
        "ditto": ", pull: 0.1",
        "fedper": ", private: ['*.bias']",
        "fedrep": ", private: ['*.bias'], head_epochs: 1",
    }
    settings = (f"algorithm={{kind: {kind}, cohort: 3, lr: 0.05, local_epochs: 1, batch_size: 8{more.get(kind, '')}, "
                "private_sgd: {clip_norm: 0.5, noise_multiplier: 1}}",
                "network.uplink.loss={kind: random, probability: 0.2}")  # fmt: skip
    serial, batched = run_small(*settings), run_small(*settings, "training.engine=batched")
    assert len({fed.ledger.event_digest() for fed in (serial, batched, run_small(*settings, timing_only=True))}) == 1
    ones, others = ([fed.latest] if not isinstance(fed.latest, list) else fed.latest for fed in (serial, batched))
    for one, other in zip(ones, others, strict=True):
        assert torch.allclose(serial.read(one), batched.read(other), atol=1e-5)


def test_the_summary_says_what_is_revealed_of_a_sample():
    """Two rounds of one pass, at most, by any device."""
    private = {"clip_norm": 1, "noise_multiplier": 2}
    changes = {"stop.rounds": 2, "algorithm.local_epochs": 1, "model": "softmax", "algorithm.private_sgd": private}
    run = fe.run("quickstart", settings=changes, progress=False)
    assert run.summary["sample_epsilon"] == pytest.approx(epsilon(2.0, delta=1e-5, rounds=2))
    assert run.summary["sample_epsilon_as_poisson"] > 0
    assert run.summary["sample_delta"] == 1e-5


def test_accounts_of_a_device_by_hand():
    """20 samples in batches of 8: 3 steps a pass, 2 passes a round, 5 rounds."""
    algorithm = small_scenario(SGD, "algorithm.private_sgd={clip_norm: 1, noise_multiplier: 2}").algorithm
    found = algorithm.sample_privacy(5, [20, 40, 0])
    assert found["sample_epsilon"] == pytest.approx(epsilon(2.0, delta=1e-5, rounds=10))
    assert found["sample_epsilon_as_poisson"] == pytest.approx(epsilon(2.0, delta=1e-5, rounds=30, rate=0.4))
    silent = algorithm.model_copy(update={"private_sgd": PrivateSgd(clip_norm=1, noise_multiplier=0)})
    assert math.isinf(silent.sample_privacy(1, [20])["sample_epsilon"])
