"""Adapters on PyTorch modules: what they add, what is trained, what it costs, and what exists once."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import fednet_emu as fe
from fednet_emu.learning.engines.parcels import with_constants, without_constants
from fednet_emu.learning.engines.stacks.form import VmapForm
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel
from tests.learning.models.gpt import Gpt


def gpt() -> Gpt:
    """Two layers of width 64 over windows of 64 of 96 tokens."""
    return seeded_module(lambda: Gpt(96, 64, 64, 2, 4), 1)


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """What is trained, by name."""
    return {name: its for name, its in module.named_parameters() if its.requires_grad}


# ---- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "m", "n", "rank", "a", "b"),
    [
        (24, 768, 768, 8, 147_456, 147_456),  # RoBERTa-base: query and value of 12 layers
        (48, 1024, 1024, 8, 393_216, 393_216),  # RoBERTa-large
        (12, 2304, 768, 4, 36_864, 110_592),  # GPT-2 small: c_attn
        (64, 4096, 4096, 8, 2_097_152, 2_097_152),  # LLaMA-7B: q_proj and v_proj
        (128, 4096, 4096, 16, 8_388_608, 8_388_608),  # all of its attention
        (24, 768, 768, 16, 294_912, 294_912),  # ViT-B/16
        (12, 384, 384, 8, 36_864, 36_864),  # MiniLM-L6
    ],
)
def test_adapters_have_the_sizes_that_the_library_peft_counts(layers, m, n, rank, a, b):
    """Without memory for any weight; FFA-LoRA trains B alone."""
    stack = nn.ModuleList(nn.Linear(n, m, bias=False, device="meta") for _ in range(layers))
    both, ffa = (fe.Lora(stack, rank, targets=["*"], freeze=freeze) for freeze in (None, "A"))

    sizes = {part: sum(its.numel() for name, its in trained(both).items() if part in name) for part in ("_A", "_B")}
    assert sizes == {"_A": a, "_B": b}
    assert sum(its.numel() for its in trained(ffa).values()) == b


@pytest.mark.parametrize(
    ("rank", "targets", "parameters", "forward", "both"),
    [
        (4, ["c_attn"], 2_048, 15_728_640, 32_210_944),
        (8, ["c_attn"], 4_096, 15_990_784, 32_964_608),
        (8, ["c_attn", "c_proj", "c_fc", "c_back"], 16_384, 17_563_648, 37_683_200),
    ],
)
def test_adapters_cost_what_their_gradients_need(rank, targets, parameters, forward, both):
    """As GPT-2 of transformers with peft: 31 % less than training all, since gradients still pass through W."""
    model = FlatModel(fe.Lora(gpt(), rank, targets=targets), "next-token", (64,), 96)
    whole = FlatModel(gpt(), "next-token", (64,), 96)

    assert (whole.forward_flop_per_sample, whole.flop_per_sample) == (15_466_496, 46_399_488)
    assert (model.size, model.forward_flop_per_sample, model.flop_per_sample) == (parameters, forward, both)
    assert model.batchable


# ---- function --------------------------------------------------------------------------------------------------------


def test_an_adapter_adds_its_product_to_the_weights():
    """W + alpha / rank B A, by a network with these weights; at the start it is the network, bit by bit."""
    plain, x = gpt().double(), torch.arange(128).view(2, 64) % 96
    module = fe.Lora(plain, 2, targets=["h.1.*"], alpha=6)
    assert torch.equal(module(x), plain(x))
    assert all("lora" in name for name in trained(module))

    merged = copy.deepcopy(plain)
    for name, part in trained(module).items():
        nn.init.normal_(part, generator=torch.Generator().manual_seed(len(name)))
    for name, layer in module.named_modules():
        if hasattr(layer, "lora_A"):
            merged.get_submodule(name).weight.data += 6 / 2 * layer.lora_B.data @ layer.lora_A.data
    assert not torch.allclose(module(x), plain(x), atol=0.1)
    assert torch.allclose(module(x), merged(x), rtol=0, atol=1e-10)


def test_a_is_drawn_from_its_range_and_b_is_zero():
    """Uniform within 1 / sqrt(n), as the layers of PyTorch are."""
    module = fe.Lora(nn.Linear(10_000, 3), 4, targets=["*"])

    size = module.lora_A.detach().abs()
    assert size.max().item() == pytest.approx(0.01, rel=1e-3)
    assert size.square().mean().sqrt().item() == pytest.approx(0.01 / math.sqrt(3), rel=0.02)
    assert not module.lora_B.any()


def test_ffa_keeps_a_and_a_head_is_trained_beside():
    """What is trained: B of each target, and what `train` names."""
    module = fe.Lora(gpt(), 2, targets=["c_attn"], freeze="A", train=["lm_head.*", "norm.weight"])

    assert list(trained(module)) == ["h.0.c_attn.lora_B", "h.1.c_attn.lora_B", "norm.weight", "lm_head.weight"]


def test_adapters_count_where_pytorch_has_a_fast_path():
    """A transformer layer gives the same in evaluation, where PyTorch would read the weights by itself."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double()
    module, x = fe.Lora(layer, 2, targets=["linear1"]), torch.randn(3, 5, 8).double()
    nn.init.normal_(module.linear1.lora_B)

    with torch.no_grad():
        assert torch.allclose(module.eval()(x), module.train()(x), rtol=0, atol=1e-12)
        assert not torch.allclose(module(x), layer(x), atol=1e-2)


# ---- what exists once ------------------------------------------------------------------------------------------------


def test_frozen_weights_exist_once_for_all_threads():
    """In each life, and in each copy for a thread that stacks jobs; adapters are copies."""
    model = FlatModel(fe.Lora(gpt(), 2, targets=["c_attn"]), "next-token", (64,), 96)
    frozen = {its.data_ptr() for its in model.constants}
    modules = [model.live().module, model.live().module, model.copied()._module]

    for module in modules:
        places = {name: its.data_ptr() for name, its in module.named_parameters()}
        assert {place for name, place in places.items() if "lora" not in name} <= frozen
        assert not frozen & {place for name, place in places.items() if "lora" in name}
    assert VmapForm(model).works


def test_a_model_travels_without_its_frozen_weights():
    """Its file has no room for them; read with others in their place, it computes with these."""
    model = FlatModel(fe.Lora(gpt(), 2, targets=["c_attn"]), "next-token", (64,), 96)
    constants, x = model.constants, torch.arange(64)[None]
    text = without_constants(model, constants)
    assert len(text) < 4 * model.size + 40_000 < 4 * sum(its.numel() for its in constants)

    other: list[Tensor] = [copy.deepcopy(its) for its in constants]
    again = with_constants(text, other)
    assert torch.equal(again.forward(again.initial(), x), model.forward(model.initial(), x))
    with torch.no_grad():
        other[0].zero_()
    assert not torch.equal(again.forward(again.initial(), x), model.forward(model.initial(), x))
