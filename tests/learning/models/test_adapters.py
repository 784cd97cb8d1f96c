"""Adapters and the bases that they stand on."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fednet_emu as fe
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Process
from fednet_emu.federation.federation import Federation
from fednet_emu.learning.engines.parcels import pickled_without, unpickled_with
from fednet_emu.learning.engines.stacks.form import VmapForm
from fednet_emu.learning.models.adapters import Float32, Lora, Nf4, levels, shipped_bit
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import ADAPTED, local_sgd
from tests.federation.test_learning_task import SCENARIO
from tests.learning.models.gpt import DigitReader, Gpt


def gpt() -> Gpt:
    """Two layers of width 64 over windows of 64 of 96 tokens."""
    return seeded_module(lambda: Gpt(96, 64, 64, 2, 4), 1)


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
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
    both, ffa = (fe.add_lora_adapters(stack, rank, targets=["*"], freeze=freeze) for freeze in (None, "A"))

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
    model = FlatModel(fe.add_lora_adapters(gpt(), rank, targets=targets), "next-token", (64,), 96)
    whole = FlatModel(gpt(), "next-token", (64,), 96)

    assert (whole.forward_flop_per_sample, whole.flop_per_sample) == (15_466_496, 46_399_488)
    assert (model.size, model.forward_flop_per_sample, model.flop_per_sample) == (parameters, forward, both)
    assert model.batchable


# ---- function --------------------------------------------------------------------------------------------------------


def test_an_adapter_adds_its_product_to_the_weights():
    """W + alpha / rank B A, by a network with these weights; at the start it is the network, bit by bit."""
    plain, x = gpt().double(), torch.arange(128).view(2, 64) % 96
    module = fe.add_lora_adapters(plain, 2, targets=["h.1.*"], alpha=6)
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
    module = fe.add_lora_adapters(nn.Linear(10_000, 3), 4, targets=["*"])

    size = module.lora_A.detach().abs()
    assert size.max().item() == pytest.approx(0.01, rel=1e-3)
    assert size.square().mean().sqrt().item() == pytest.approx(0.01 / math.sqrt(3), rel=0.02)
    assert not module.lora_B.any()


def test_ffa_keeps_a_and_a_head_is_trained_beside():
    """What is trained: B of each target, and what `train` names."""
    module = fe.add_lora_adapters(gpt(), 2, targets=["c_attn"], freeze="A", train=["lm_head.*", "norm.weight"])

    assert list(trained(module)) == ["h.0.c_attn.lora_B", "h.1.c_attn.lora_B", "norm.weight", "lm_head.weight"]


def test_adapters_count_where_pytorch_has_a_fast_path():
    """A transformer layer gives the same in evaluation, where PyTorch would read the weights by itself."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double()
    module, x = fe.add_lora_adapters(layer, 2, targets=["linear1"]), torch.randn(3, 5, 8).double()
    nn.init.normal_(module.linear1.lora_B)

    with torch.no_grad():
        assert torch.allclose(module.eval()(x), module.train()(x), rtol=0, atol=1e-12)
        assert not torch.allclose(module(x), layer(x), atol=1e-2)


# ---- what exists once ------------------------------------------------------------------------------------------------


def test_frozen_weights_exist_once_for_all_threads():
    """In each life, and in each copy for a thread that stacks jobs; adapters are copies."""
    model = FlatModel(fe.add_lora_adapters(gpt(), 2, targets=["c_attn"]), "next-token", (64,), 96)
    frozen = {its.data_ptr() for its in model.constants}
    modules = [model.live().module, model.live().module, model.copied()._module]

    for module in modules:
        places = {name: its.data_ptr() for name, its in module.named_parameters()}
        assert {place for name, place in places.items() if "lora" not in name} <= frozen
        assert not frozen & {place for name, place in places.items() if "lora" in name}
    assert VmapForm(model).works


def test_a_model_travels_without_its_frozen_weights():
    """Its file has no room for them; read with others in their place, it computes with these."""
    model = FlatModel(fe.add_lora_adapters(gpt(), 2, targets=["c_attn"]), "next-token", (64,), 96)
    constants, x = model.constants, torch.arange(64)[None]
    text = pickled_without(model, constants)
    assert len(text) < 4 * model.size + 40_000 < 4 * sum(its.numel() for its in constants)

    other: list[Tensor] = [copy.deepcopy(its) for its in constants]
    again = unpickled_with(text, other)
    assert torch.equal(again.forward(again.initial(), x), model.forward(model.initial(), x))
    with torch.no_grad():
        other[0].zero_()
    assert not torch.equal(again.forward(again.initial(), x), model.forward(model.initial(), x))


LEVELS = [
    -1, -0.6961929, -0.525073, -0.3949175, -0.2844414, -0.1847734, -0.09105, 0,
    0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.562617, 0.7229567, 1,
]  # fmt: skip


def normal(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape)).float()


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_levels_are_those_of_nf4():
    """To the seven digits with which they are known."""
    assert levels().tolist() == pytest.approx(LEVELS, abs=6e-8)


@pytest.mark.parametrize(("double", "bit"), [(False, 4.5), (True, 4.126953125)])
def test_bits_of_a_weight(double, bit):
    """4 + 32 / 64, and 4 + 8 / 64 + 32 / (64 x 256), of whole blocks; a part of a block has a scale, too."""
    base = Nf4(double=double)
    n = 64 * 256 * 3

    assert base.bit(n) / n == bit
    assert base.bit(n + 1) - base.bit(n) == 4 + (8 + 32 if double else 32)
    assert Float32().bit(n) == 32 * n


@pytest.mark.parametrize("double", [False, True])
def test_the_error_on_normal_weights(double):
    """0.0920 of their norm in blocks of 64; with scales of 8 bits hardly more."""
    w = normal(4000, 160)
    error = ((Nf4(double=double).read(w) - w).norm() / w.norm()).item()
    assert error == pytest.approx(0.0920, abs=3e-4)
    if double:
        assert not torch.equal(Nf4(double=True).read(w), Nf4().read(w))


def test_each_weight_becomes_the_nearest_level_of_its_block():
    """By hand: two blocks of sizes 8 and 0.5, the second one of a single weight; zeros stay."""
    w = torch.zeros(65)
    w[:6] = torch.tensor([8.0, -8.0, 8 * 0.2, 8 * 0.21, -8 * 0.137, 8 * 0.039])
    w[64] = -0.5
    found = Nf4().read(w.view(5, 13))

    expected = torch.zeros(65)
    expected[:6] = 8 * torch.tensor([1, -1, LEVELS[9], LEVELS[10], LEVELS[6], 0])
    expected[64] = -0.5
    assert found.shape == (5, 13)
    assert torch.allclose(found.view(-1), expected, atol=1e-6)
    assert not Nf4(double=True).read(torch.zeros(3, 50)).any()


def test_scales_of_eight_bits_by_hand():
    """Blocks of sizes 255 and 100.6 in one group: the second one's is 101, so that its largest weight is, too."""
    w = torch.zeros(128)
    w[0], w[64], w[65] = 255.0, 100.6, -50
    found = Nf4(double=True).read(w)
    assert found[[0, 64, 65]].tolist() == pytest.approx([255, 101, 101 * LEVELS[2]], rel=1e-6)


# ---- networks --------------------------------------------------------------------------------------------------------


def test_only_frozen_weights_of_dense_layers_change():
    """Not the embeddings, norms and biases, nor a layer that is trained or has the weights of an embedding."""
    plain = Gpt(16, 8, 64, 2, 2)
    plain.lm_head.weight = plain.wte.weight
    module = fe.add_lora_adapters(plain, 2, targets=["c_attn"], train=["h.0.c_fc.*"], base="nf4")

    before = plain.state_dict()
    changed = {
        name for name, its in module.state_dict().items() if name in before and not torch.equal(its, before[name])
    }
    dense = {f"h.{n}.{layer}.weight" for n in (0, 1) for layer in ("c_attn", "c_proj", "c_fc", "c_back")}
    assert changed == dense - {"h.0.c_fc.weight"}
    name = "h.1.c_back.weight"
    assert torch.equal(module.get_parameter(name), Nf4().read(before[name]))
    assert torch.equal(
        fe.add_lora_adapters(module, 2, targets=["c_fc"]).get_parameter(name), module.get_parameter(name)
    )


def test_what_is_shipped_is_counted_before_there_are_adapters():
    """Frozen parameters of DigitReader with its head trained: dense weights at 4.5 bit, all else at 32; FFA alike.

    The last layer has 17 x 32 weights, so that half of its last block is empty: 16 bit more.
    """
    dense = 32 * 96 + 32 * 32 + 2 * 32 * 128 + 17 * 32
    other = 17 * 32 + 64 * 32 + 6 * 32 + 96 + 32 + 128 + 32
    for freeze in (None, "A"):
        for base, bit in (("nf4", dense * 4.5 + 16), ("float32", dense * 32)):
            settings: dict[str, Any] = {"targets": ["c_attn"], "train": ["score.*"], "freeze": freeze}
            module = fe.add_lora_adapters(DigitReader(), 2, base={"kind": base, "ship": True}, **settings)
            assert shipped_bit(module) == bit + 32 * other
            assert FlatModel(nn.Sequential(module), "cross-entropy", (1, 8, 8)).shipped_bit == shipped_bit(module)
            assert shipped_bit(fe.add_lora_adapters(DigitReader(), 2, base=base, **settings)) == 0
            assert shipped_bit(fe.add_lora_adapters(module, 2, targets=["c_fc"])) == 0


def test_a_network_without_memory_has_its_bits():
    """LLaMA-7B's attention on PyTorch's meta device: bits by arithmetic, no values."""
    stack = nn.ModuleList(nn.Linear(4096, 4096, bias=False, device="meta") for _ in range(128))
    module = Lora(targets=("*",), base=Nf4(double=True, ship=True)).on(stack)
    assert shipped_bit(module) == 128 * 4096**2 * 4.126953125


# ---- runs ------------------------------------------------------------------------------------------------------------

SHIPPED = (*ADAPTED, "model.args.base={kind: float32, ship: true}", local_sgd("fedavg"), "algorithm.cohort=3")
"""27 weights of a layer from 9 to 3 are frozen; 2 x 12 numbers of adapters and a bias of 3 are trained and sent."""
WEIGHTS, MODEL = 32 * 27, 32 * 27


def downlinks(fed: Federation) -> list[Any]:
    """The messages of the server, in the order of their requests."""
    table = fed.ledger.frame("transfers")
    return list(table[table["sender"] < 0].sort_values(["requested_s", "ended_s"], kind="stable").itertuples())


def test_each_device_is_sent_the_base_once():
    """With its first message that arrives, whatever was lost before; no upload has it."""
    lossy = ("network.downlink.message_loss={kind: random, probability: 0.4}", "network.downlink.mode=unicast")
    fed = run_small(*SHIPPED, *lossy, "stop.rounds=12")
    has, whole = set(), 0
    for message in downlinks(fed):
        assert message.size_bit == MODEL + (0 if message.receiver in has else WEIGHTS)
        whole += message.receiver not in has
        if not message.loss_reason:
            has.add(message.receiver)
    assert has == {0, 1, 2, 3}
    assert whole > 4
    table = fed.ledger.frame("transfers")
    assert set(table.loc[table["sender"] >= 0, "size_bit"]) == {MODEL}


def test_a_broadcast_brings_it_to_all_that_lack_it():
    """Three devices of four at once, in one message; later the fourth one has a message of its own."""
    fed = run_small(*SHIPPED, "network.downlink.mode=broadcast", "stop.rounds=6")
    sizes = [message.size_bit for message in downlinks(fed)]
    assert sizes[0] == MODEL + WEIGHTS
    assert sizes.count(MODEL + WEIGHTS) == 2
    assert sizes.count(MODEL) >= 5


def test_a_compressed_model_comes_with_a_whole_base():
    """To each device once; later it is sent updates. The clock needs no training."""
    compressed = ("network.downlink.compression={kind: top-k, share: 0.2}", "network.downlink.mode=unicast")
    settings = (*SHIPPED, *compressed, "stop.rounds=6")
    fed, timed = run_small(*settings), run_small(*settings, timing_only=True)
    assert timed.ledger.event_digest() == fed.ledger.event_digest()
    sizes = [message.size_bit for message in downlinks(fed)]
    assert sizes.count(MODEL + WEIGHTS) == 4
    assert min(sizes) < MODEL


def test_a_message_of_a_given_size_brings_it_too():
    """100 bit, with the base and without."""
    fed = small_federation(*SHIPPED)

    def server() -> Process:
        for _ in range(2):
            yield fed.downlink(fed.device(0), None, 100)

    fed.clock.run_process(server(), None)
    assert fed.ledger.transfers.column("size_bit").tolist() == [100 + WEIGHTS, 100]


def test_a_run_trains_on_what_was_stored():
    """The final model has the frozen weights as NF4 reads them, and no message of it if the base was there before."""
    plain = DigitReader()
    module = fe.add_lora_adapters(plain, 2, targets=["c_attn"], train=["score.*"], base="nf4")
    run = fe.run(SCENARIO, model=module, progress=False)

    name = "gpt.h.0.c_fc.weight"
    assert torch.equal(run.model.get_parameter(name), Nf4().read(plain.get_parameter(name).data))
    assert set(run.transfers["size_bit"]) == {32 * 436}


@pytest.mark.parametrize(("kind", "ships"), [("local", False), ("fedavg", True)])
def test_without_a_server_nothing_can_be_shipped(kind, ships, tmp_path):
    """It is said before the run."""
    (tmp_path / "text.txt").write_text("she sells sea shells\n" * 20, encoding="utf-8")
    config = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 8}
    adapters = {"kind": "lora", "targets": ["c_attn"], "base": {"kind": "nf4", "ship": True}}
    settings = {
        "data": {"kind": "text", "path": str(tmp_path / "text.txt"), "length": 8, "predict": "every"},
        "model": {"kind": "transformers", "config": config, "adapters": adapters},
    }
    own = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    scenario = small_scenario(f"algorithm={{kind: {kind}}}", *own)
    found = [(".".join(place), what) for place, what in scenario.contradictions()]
    told = [("model.adapters.base.ship", "with local no server sends anything, got true; leave it out")]
    assert found == ([] if ships else told)


@pytest.mark.parametrize("kind", ["local", "splitfed"])
def test_a_given_network_cannot_be_shipped_without_a_server(kind):
    """It is said when the run is built."""
    module = fe.add_lora_adapters(DigitReader(), 2, targets=["c_attn"], base={"kind": "nf4", "ship": True})
    split = {"cut": 1} if kind == "splitfed" else {}
    algorithm, server = {"kind": kind, "lr": 0.1, **split}, {"server": {"flop_per_s": 1e9}} if split else {}
    with pytest.raises(ScenarioError, match=rf"model: with {kind} .*got a base with ship"):
        fe.run({**SCENARIO, **server, "algorithm": algorithm}, model=module, progress=False)


# ---- scores of the next token ----------------------------------------------------------------------------------------


class Reader(nn.Module):
    """Scores at every position from its token, and from a small part of the next one."""

    def __init__(self, part: float) -> None:
        super().__init__()
        self.part, self.wte, self.head = part, nn.Embedding(80, 6), nn.Linear(6, 80)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The scores [n, length, 80]."""
        scores: torch.Tensor = self.head(self.wte(x.long()) + self.part * self.wte(x.long()).roll(-1, 1))
        return scores


def test_a_network_that_sees_the_next_token_is_refused(tmp_path):
    """Such a network would learn to copy. The refusal names it; a network that sees earlier tokens only is accepted."""
    (tmp_path / "text.txt").write_text("she sells sea shells\n" * 20, encoding="utf-8")
    data = {"kind": "text", "path": str(tmp_path / "text.txt"), "length": 8, "predict": "every", "owner": "file"}
    scenario = {**SCENARIO, "data": data}
    with pytest.raises(ScenarioError, match=r"positions of Reader see tokens after them, got scores that .* moves by"):
        fe.run(scenario, model=Reader(0.001), progress=False)
    fe.run(scenario, model=Reader(0), progress=False)
