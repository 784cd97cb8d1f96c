"""Runs that train adapters: what travels, what the server makes of it, and what stays as it was."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fednet_emu as fe
from fednet_emu.learning.models.base import seeded_module
from tests.federation.texts import TWO_DEVICES, loss_of, plain_loop, two_owners
from tests.learning.models.gpt import DigitReader, Gpt

SCENARIO: dict[str, Any] = {
    **TWO_DEVICES,
    "data": {"kind": "digits"},
    "partition": "iid",
    "algorithm": {"kind": "fedavg", "lr": 0.1, "local_steps": 1, "batch_size": 8, "cohort": 2},
    "stop": {"rounds": 1},
}


def adapted(freeze: str | None = None) -> nn.Module:
    """A small GPT with adapters that are no longer zero."""
    names = ["c_attn", "c_fc"]
    module = seeded_module(lambda: fe.Lora(Gpt(80, 5, 8, 1, 2), 2, targets=names, freeze=freeze), 5)
    for name, part in module.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(part, std=0.3, generator=torch.Generator().manual_seed(7))
    return module


def digest(module: nn.Module) -> str:
    """The hash of all parameters that are no adapters."""
    whole = hashlib.sha256()
    for name, part in module.state_dict().items():
        if "lora" not in name:
            whole.update(name.encode() + part.numpy().tobytes())
    return whole.hexdigest()


@pytest.mark.parametrize(
    ("algorithm", "sent"),
    [
        ("fedavg", 32 * 436),  # rank 2 x (32 + 96), and the head 17 x 10 + 10
        ({"kind": "fedper", "private": ["*lora_B*"]}, 32 * 244),  # FedSA-LoRA: without B, 96 x 2
    ],
)
def test_only_adapters_and_the_head_travel(algorithm, sent):
    """A network of 64 tokens reads the digits; the frozen weights are in no message, and timing needs no training."""
    module = fe.Lora(DigitReader(), 2, targets=["c_attn"], train=["score.*"])
    kind = {"kind": algorithm} if isinstance(algorithm, str) else algorithm
    scenario = {**SCENARIO, "algorithm": {**SCENARIO["algorithm"], **kind}}
    run = fe.run(scenario, model=module, progress=False)

    assert set(run.transfers["size_bit"]) == {sent}
    timed = fe.run(scenario, model=module, progress=False, timing_only=True)
    assert timed.summary["event_digest"] == run.summary["event_digest"]


@pytest.mark.parametrize("engine", ["serial", "batched"])
@pytest.mark.parametrize("freeze", [None, "A"])
def test_federated_adapters_are_a_plain_loop(engine, freeze):
    """FedIT averages A and B, FFA-LoRA B alone: two rounds of two full-batch steps on the mean loss over positions."""
    samples, start = two_owners(), adapted(freeze)
    algorithm = {"kind": "fedavg", "lr": 0.5, "local_steps": 2, "batch_size": None, "cohort": 2}
    changes = {"partition": "group", "algorithm": algorithm, "stop": {"rounds": 2}, "training": {"engine": engine}}
    scenario = {**SCENARIO, **changes, "evaluation": {"metrics": ["perplexity"]}}
    run = fe.run(scenario, data=samples, model=start, progress=False)

    learnt = [name for name, part in start.named_parameters() if part.requires_grad]
    assert len(learnt) == (4 if freeze is None else 2)
    whole = plain_loop(lambda: adapted(freeze), samples, 0.5, learnt)
    scores, y = whole(samples.test_x), samples.test_y
    last = run.evaluations.iloc[-1]
    assert last["loss"] == pytest.approx(loss_of(whole, samples.test_x, y).item(), abs=1e-5)
    assert last["perplexity"] == pytest.approx(np.exp(last["loss"]))
    assert last["accuracy"] == pytest.approx((scores.argmax(2) == y).double().mean().item())
    for name, part in whole.named_parameters():
        assert torch.allclose(run.model.get_parameter(name), part, atol=1e-5)
    assert digest(run.model) == digest(start)
