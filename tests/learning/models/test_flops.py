"""Counting floating-point operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.backends import mha
from torch.utils.flop_counter import FlopCounterMode

from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.flops import FlopCount

MODULES = {
    "dense": (nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)), (2, 1, 4, 4)),
    "convolution": (nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(3, 2, 3)), (2, 1, 8, 8)),
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


# ---- attention -------------------------------------------------------------------------------------------------------


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as two matrix products."""
    return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v


@pytest.mark.parametrize("backward", [False, True])
def test_attention_costs_its_products_whoever_computes_them(backward: bool) -> None:
    """3 samples, 4 heads, 5 queries, 7 keys, all of width 6: 2 x 3 x 4 x 5 x 7 x 12, and thrice that with backward."""
    totals = []
    for attention in (by_hand, nn.functional.scaled_dot_product_attention):
        q, k, v = (torch.randn(3, 4, n, 6, requires_grad=True) for n in (5, 7, 7))
        with FlopCount() as count:
            outputs = attention(q, k, v)
            if backward:
                outputs.sum().backward()
        totals.append(count.total)

    assert totals == [10_080 * (3 if backward else 1)] * 2


class Encoder(nn.Module):
    """A transformer layer of width 64 between two dense layers; 64 tokens of 8 numbers give ten scores."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.head = nn.Linear(8, 64), nn.Linear(64, 10)
        self.layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """The scores [B, 10]."""
        scores: Tensor = self.head(self.layer(self.front(x)).mean(1))
        return scores


def test_a_transformer_costs_the_same_in_evaluation_and_in_training() -> None:
    """64 tokens of width d = 64: 24 T d^2 + 4 T^2 d, and the dense layers; backward is twice that, less the input."""
    model = FlatModel(Encoder(), "cross-entropy", (64, 8))
    dense, layer, head = 2 * 64 * 8 * 64, 24 * 64 * 64**2 + 4 * 64**2 * 64, 2 * 64 * 10
    forward = dense + layer + head

    assert model.forward_flop_per_sample == forward == 7_406_848
    assert model.flop_per_sample == 3 * forward - dense == 22_155_008


def test_counting_leaves_the_fast_path_as_it_was() -> None:
    """It is off inside, also inside another count, and back afterwards, also after an error."""
    with FlopCount(), pytest.raises(ZeroDivisionError), FlopCount():
        raise ZeroDivisionError
    assert mha.get_fastpath_enabled()

    with FlopCount(), FlopCount():
        assert not mha.get_fastpath_enabled()
    assert mha.get_fastpath_enabled()
