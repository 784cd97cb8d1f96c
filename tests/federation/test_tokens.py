"""Runs on tokens and on several labels, from data to records."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import fednet_emu as fe
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.datasets.text import characters
from tests.federation.texts import TEXT, TWO_DEVICES, loss_of, plain_loop, two_owners

SCENARIO = {
    **TWO_DEVICES,
    "partition": "group",
    "model": {"kind": "char-lstm", "units": 12, "layers": 1},
    "algorithm": {"kind": "fedavg", "lr": 1.0, "local_steps": 2, "batch_size": None, "cohort": 2},
    "stop": {"rounds": 2},
}
SAMPLES = two_owners(250, "last")


def test_an_lstm_learns_more_than_how_frequent_characters_are(tmp_path):
    """From a text file, its loss falls far below the entropy of single characters."""
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    data = {"kind": "text", "path": str(tmp_path / "text.txt"), "owner": "file", "length": 8, "stride": 1}
    algorithm = {**SCENARIO["algorithm"], "batch_size": 16, "local_steps": 20, "lr": 2.0}
    changes = {"data": data, "partition": "iid", "algorithm": algorithm, "stop": {"rounds": 10}}
    run = fe.run({**SCENARIO, **changes, "evaluation": {"metrics": ["perplexity"]}}, progress=False)

    share = np.bincount(characters(TEXT)) / len(TEXT)
    entropy = -sum(part * math.log(part) for part in share if part)
    assert run.evaluations["loss"].iloc[-1] < 0.5 * entropy
    assert run.evaluations["perplexity"].to_numpy() == pytest.approx(np.exp(run.evaluations["loss"].to_numpy()))
    assert run.summary["perplexity"] == run.evaluations["perplexity"].iloc[-1]


@pytest.mark.parametrize("engine", ["serial", "batched", "by-rule"])
def test_fedavg_on_tokens_is_a_plain_loop(engine):
    """With full batches, two steps a round on each device, weighted by their samples; on every engine."""

    def network() -> nn.Module:
        torch.manual_seed(5)
        return nn.Sequential(nn.Embedding(80, 3), nn.Flatten(), nn.Linear(15, 80))

    run = fe.run({**SCENARIO, "training": {"engine": engine}}, data=SAMPLES, model=network(), progress=False)

    whole = plain_loop(network, SAMPLES, 1.0)
    loss = loss_of(whole, SAMPLES.test_x, SAMPLES.test_y).item()
    assert run.evaluations["loss"].iloc[-1] == pytest.approx(loss, abs=1e-5)
    for found, expected in zip(run.model.state_dict().values(), whole.state_dict().values(), strict=True):
        assert torch.allclose(found, expected, atol=1e-5)


def test_metrics_of_devices_stand_beside_their_losses_and_events_stay():
    """Without metrics there are no such columns, and the digest of the events is the same."""
    evaluation = {"per_device": True, "metrics": [{"kind": "top-k", "k": 3}, "macro-f1"]}
    run = fe.run({**SCENARIO, "evaluation": evaluation}, data=SAMPLES, progress=False)
    plain = fe.run({**SCENARIO, "evaluation": {"per_device": True}}, data=SAMPLES, progress=False)

    for with_, without in ((run.evaluations, plain.evaluations), (run.device_evaluations, plain.device_evaluations)):
        assert list(with_) == [*without, "top_3", "macro_f1"]
        assert with_[list(without)].equals(without)
    assert run.summary["event_digest"] == plain.summary["event_digest"]
    own = run.device_evaluations
    pooled = own.groupby("round").apply(lambda rows: np.average(rows["top_3"], weights=rows["samples"]))
    assert pooled.to_numpy() == pytest.approx(run.evaluations["top_3"].to_numpy())


def test_several_labels_are_learnt_by_their_mean_binary_cross_entropy():
    """The accuracy is the share of labels that are right; a regression's metrics are refused."""
    x = torch.randn(80, 3, generator=torch.Generator().manual_seed(1))
    y = (x[:, :2] > 0).float()
    samples = Samples(x[:60], y[:60], x[60:], y[60:], None, multi_label=True)
    changes = {"partition": "iid", "model": "softmax", "stop": {"rounds": 20}}
    run = fe.run(
        {**SCENARIO, **changes, "evaluation": {"metrics": ["exact-match", "micro-f1", "average-precision"]}},
        data=samples,
        progress=False,
    )

    outputs = run.model(samples.test_x).detach()
    right = (outputs > 0) == (samples.test_y > 0)
    last = run.evaluations.iloc[-1]
    probability = outputs.sigmoid()
    losses = -(samples.test_y * probability.log() + (1 - samples.test_y) * (1 - probability).log())
    assert last["loss"] == pytest.approx(losses.mean().item(), rel=1e-5)
    assert last["accuracy"] == pytest.approx(right.float().mean().item())
    assert last["accuracy"] > 0.8
    assert last["exact_match"] == pytest.approx(right.all(1).float().mean().item())
    with pytest.raises(ScenarioError, match=r"evaluation.metrics.0: rmse suits regression, got data for multi-label"):
        fe.run({**SCENARIO, **changes, "evaluation": {"metrics": ["rmse"]}}, data=samples, progress=False)


def test_targets_of_several_numbers_are_a_regression():
    """The squared error is the sum over the targets of a sample."""
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(2))
    y = x @ torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    changes = {"partition": "iid", "model": "linear", "stop": {"rounds": 30}}
    algorithm = {**SCENARIO["algorithm"], "lr": 0.1}
    run = fe.run(
        {**SCENARIO, **changes, "algorithm": algorithm, "evaluation": {"metrics": ["r2", "rmse"]}},
        data=Samples(x[:30], y[:30], x[30:], y[30:], None),
        progress=False,
    )
    last = run.evaluations.iloc[-1]
    assert last["r2"] > 0.99
    assert last["rmse"] == pytest.approx(math.sqrt(last["loss"] / 2), rel=1e-5)


def test_tokens_take_no_backdoor_and_metrics_have_their_own_columns():
    """Each refusal is one sentence."""
    with pytest.raises(ScenarioError, match="a backdoor needs real inputs to stamp"):
        fe.run({**SCENARIO, "attack": "backdoor"}, data=SAMPLES, progress=False)
    with pytest.raises(ScenarioError, match="two columns of one name, got top_5 again"):
        fe.run({**SCENARIO, "evaluation": {"metrics": ["top-k", "top-k"]}}, data=SAMPLES, progress=False)
