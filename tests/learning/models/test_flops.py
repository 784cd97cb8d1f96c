"""Counting floating-point operations."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fednet_emu.learning.models.flops import FlopCount

MODULES = {
    "dense": (nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)), (2, 1, 4, 4)),
    "convolution": (nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(3, 2, 3)), (2, 1, 8, 8)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 5, 8)),
    "recurrent": (nn.LSTMCell(4, 3), (2, 4)),
}


@pytest.mark.parametrize(("module", "shape"), MODULES.values(), ids=MODULES)
def test_the_count_is_that_of_pytorch_itself(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Forward and backward passes count as in PyTorch's own counter."""
    x = torch.randn(shape)

    def work() -> None:
        outputs = module(x)
        (outputs[0] if isinstance(outputs, tuple) else outputs).sum().backward()

    with FlopCount() as ours:
        work()
    with FlopCounterMode(display=False) as theirs:
        work()

    assert ours.total == theirs.get_total_flops() > 0


def test_a_linear_layer_is_two_operations_per_weight_and_sample() -> None:
    """4 samples, 3 inputs, 2 outputs: 48 operations forward."""
    with FlopCount() as count, torch.no_grad():
        nn.Linear(3, 2)(torch.ones(4, 3))

    assert count.total == 48


def test_counting_does_not_load_the_compiler() -> None:
    """In a fresh interpreter a count leaves torch._dynamo, and with it 75 MB, where they are."""
    program = """
import sys, torch
from fednet_emu.learning.models.flops import FlopCount
with FlopCount() as count:
    torch.nn.Linear(3, 2)(torch.ones(4, 3)).sum().backward()
print(count.total, "torch._dynamo" in sys.modules)
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    assert said.split() == ["96", "False"]
