"""Networks of the library transformers: sizes and costs that were counted elsewhere, peft as oracle, and runs."""

from __future__ import annotations

import copy
import socket
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn

import fednet_emu as fe
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.models.adapters import Lora, Nf4
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.transformers_model import TransformersModel
from tests.federation.texts import TEXT, TWO_DEVICES

if find_spec("transformers") is None:
    pytest.skip("needs transformers: pip install 'fednet-emu[transformers]'", allow_module_level=True)

GPT = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
SMALL = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 8}
BERT = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 30}
VIT = {"model_type": "vit", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 4}
SCENARIO: dict[str, Any] = {
    **TWO_DEVICES,
    "partition": "iid",
    "model": {"kind": "transformers", "config": SMALL, "adapters": {"kind": "lora", "rank": 2, "targets": ["c_attn"]}},
    "algorithm": {"kind": "fedavg", "lr": 0.5, "local_steps": 4, "batch_size": 8, "cohort": 2},
    "stop": {"rounds": 2},
}


@pytest.fixture(autouse=True)
def _no_connection(monkeypatch):
    def refused(*_):
        raise AssertionError("nothing may be downloaded")

    monkeypatch.setattr(socket.socket, "connect", refused)


@pytest.fixture
def text(tmp_path):
    """Data of a text with the next token at every position."""
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    path = str(tmp_path / "text.txt")
    return {"kind": "text", "path": path, "owner": "file", "length": 8, "stride": 2, "predict": "every"}


def counts(module: nn.Module) -> tuple[int, int]:
    """How many parameters are trained, and how many are frozen."""
    own = [sum(its.numel() for its in module.parameters() if its.requires_grad == train) for train in (True, False)]
    return own[0], own[1]


@pytest.mark.parametrize(
    ("config", "head", "base", "rank", "targets", "adapters"),
    [
        ({"model_type": "gpt2"}, "tokens", 124_439_808, 4, ("c_attn",), 147_456),
        (
            {"model_type": "llama", "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008},
            "tokens",
            6_738_415_616,
            8,
            ("q_proj", "v_proj"),
            4_194_304,
        ),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else None,
)
def test_large_networks_have_the_sizes_that_are_published(config, head, base, rank, targets, adapters):
    """GPT-2, LLaMA-7B and ViT-B/16, without memory for their weights."""
    model = TransformersModel(config=config, head=head, adapters=Lora(rank=rank, targets=targets))
    shape, outputs = ((1024,), config.get("vocab_size", 50_257)) if head == "tokens" else ((3, 224, 224), 1000)
    with torch.device("meta"):
        assert counts(model.build(shape, outputs)) == (adapters, base)


@pytest.mark.parametrize(
    ("rank", "targets", "forward", "both"),
    [
        (4, ("c_attn",), 15_728_640, 32_210_944),
        (8, ("c_attn",), 15_990_784, 32_964_608),
        (8, ("c_attn", "c_proj", "c_fc"), 17_563_648, 37_683_200),
    ],
)
def test_a_gpt_with_adapters_costs_what_peft_s_does(rank, targets, forward, both):
    """Counted for GPT-2 with adapters of peft; and devices can share a call."""
    model = TransformersModel(config=GPT, adapters=Lora(rank=rank, targets=targets))
    flat = FlatModel(seeded_module(lambda: model.build((64,), 96), 1), "next-token", (64,), 96)

    assert (flat.forward_flop_per_sample, flat.flop_per_sample) == (forward, both)
    assert flat.batchable
    assert flat.vectorises()


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to")
def test_adapters_are_those_of_peft():
    """Outputs and gradients of the same A and B are equal, of dense layers stored either way."""
    peft = pytest.importorskip("peft", reason="needs peft: make test-transformers")
    plain = seeded_module(lambda: TransformersModel(config=SMALL).build((8,), 30), 1)
    ours = fe.add_lora_adapters(plain, 2, targets=["c_attn", "lm_head"], alpha=6)
    settings = peft.LoraConfig(r=2, lora_alpha=6, lora_dropout=0.0, target_modules=["c_attn", "lm_head"])
    theirs = peft.inject_adapter_in_model(settings, copy.deepcopy(plain))
    named, x = dict(theirs.named_parameters()), torch.arange(16).view(2, 8)
    parts = {name: part for name, part in ours.named_parameters() if part.requires_grad}
    assert len(parts) == 4
    for name, part in parts.items():
        nn.init.normal_(part, generator=torch.Generator().manual_seed(len(name)))
        named[f"{name}.default.weight"].data.copy_(part)

    found, expected = ours(x), theirs(x)
    assert torch.allclose(found, expected, atol=1e-6)
    slopes = torch.autograd.grad(found.square().sum(), list(parts.values()))
    others = torch.autograd.grad(expected.square().sum(), [named[f"{name}.default.weight"] for name in parts])
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(slopes, others, strict=True))


def test_a_gpt_learns_a_text_by_its_adapters(text):
    """From random weights; the same on both engines, with 32 x 2 x (16 + 48) bit of adapters in each message."""
    settings = {**SCENARIO, "data": text, "stop": {"rounds": 10}}
    serial, batched = (
        fe.run({**settings, "training": {"engine": engine}}, progress=False) for engine in ("serial", "batched")
    )

    assert set(serial.transfers["size_bit"]) == {32 * 2 * 64}
    assert serial.evaluations["loss"].iloc[-1] < serial.evaluations["loss"].iloc[0] - 0.05
    for one, other in zip(serial.model.parameters(), batched.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert serial.digest == batched.digest == fe.run(settings, timing_only=True, progress=False).digest


def test_check_tells_what_is_trained_and_what_is_frozen(text):
    """Without a run, and without memory for the weights."""
    cost = Outlook(fe.check({**SCENARIO, "data": text})).cost
    frozen = 80 * 16 + 8 * 16 + 12 * 16 * 16 + 13 * 16 + 2 * 16  # tokens, places, a layer with its norms, the last norm

    assert (cost.parameters, cost.frozen) == (128, frozen)
    assert f"a model of 128 parameters and {frozen:,} frozen ones" in str(cost)


def test_weights_come_from_a_folder(tmp_path, text):
    """A network that was saved is the start of a run, and its head is kept; relative to the data folder."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(9)
    saved = AutoModelForCausalLM.from_config(AutoConfig.for_model(**{**SMALL, "vocab_size": 80}))
    saved.save_pretrained(tmp_path / "gpt")
    model = {"kind": "transformers", "path": "gpt", "adapters": SCENARIO["model"]["adapters"]}
    run = fe.run({**SCENARIO, "data": text, "model": model}, data_dir=tmp_path, progress=False)

    for name, part in saved.state_dict().items():
        assert torch.equal(run.model.state_dict()[f"network.{name}"], part)
    with pytest.raises(DataError, match=r"gpt: not found"):
        fe.run({**SCENARIO, "data": text, "model": model}, progress=False)
    (tmp_path / "gpt" / "config.json").unlink()
    with pytest.raises(ScenarioError, match=r"model.path: holds no configuration of transformers"):
        fe.run({**SCENARIO, "data": text, "model": model}, data_dir=tmp_path, progress=False)


@pytest.mark.parametrize("stored", [False, True], ids=["written", "stored"])
@pytest.mark.parametrize("name", ["gpt2", "bert", "roberta"])
def test_a_position_does_not_see_those_after_it(name, stored, tmp_path):
    """The last token alone changes: so do the scores at its position, and no others."""
    config = SMALL if name == "gpt2" else {**BERT, "model_type": name, "max_position_embeddings": 16}
    model = TransformersModel(config=config)
    if stored:
        from transformers import AutoConfig, AutoModelForCausalLM

        AutoModelForCausalLM.from_config(AutoConfig.for_model(**{**config, "vocab_size": 30})).save_pretrained(tmp_path)
        model = TransformersModel(path=str(tmp_path))
    module, x = seeded_module(lambda: model.build((8,), 30), 1).eval(), torch.arange(2, 18).view(2, 8)
    other = x.clone()
    other[:, -1] = 29
    apart = (module(x) - module(other)).abs().amax((0, 2))

    assert apart[:-1].max() < 1e-6
    assert apart[-1] > 1e-3


def test_an_architecture_that_sees_later_tokens_is_refused():
    """XLNet's mask of the library is not causal: a trial finds it, and names it."""
    config = {"model_type": "xlnet", "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32}
    with pytest.raises(ScenarioError, match=r"positions of xlnet see tokens after them, got scores that the last"):
        TransformersModel(config=config).build((8,), 30)


def test_a_base_in_four_bits(text):
    """Layers stored either way; the embedding, which is the last layer too, stays; its bits go once to each device."""
    base = {"kind": "nf4", "ship": True}
    model = {**SCENARIO["model"], "adapters": {**SCENARIO["model"]["adapters"], "base": base}}
    run = fe.run({**SCENARIO, "data": text, "model": model}, progress=False)
    plain = seeded_module(lambda: TransformersModel(config=SMALL).build((8,), 80), Streams(3).key("init") >> 1)

    for layer, changed in (("h.0.attn.c_attn", True), ("h.0.mlp.c_proj", True), ("wte", False)):
        name = f"network.transformer.{layer}.weight"
        found, before = run.model.get_parameter(name), plain.get_parameter(name).data
        assert torch.equal(found, Nf4().read(before) if changed else before)
    dense, other = 12 * 16 * 16, 80 * 16 + 8 * 16 + 13 * 16 + 2 * 16
    down = run.transfers.loc[run.transfers["sender"] < 0, "size_bit"]
    shipped = int(4.5 * dense) + 32 * other
    assert sorted(set(down)) == [32 * 128, 32 * 128 + shipped]
    cost = Outlook(fe.check({**SCENARIO, "data": text, "model": model})).cost
    assert f"{dense + other:,} frozen ones, which each device is sent once in {shipped:,} bits," in str(cost)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_every_token_of_the_data_is_learnt(name):
    """None is padding, whose embedding would stay as it is."""
    module = TransformersModel(config={**BERT, "model_type": name}).build((8,), 30)

    assert all(its.padding_idx is None for its in module.modules() if isinstance(its, nn.Embedding))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_classes_by_the_last_token_need_a_padding_token(name):
    """Which is refused before the network is made; with one they are built."""
    config = {"model_type": name, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 31}
    with pytest.raises(ScenarioError, match=rf"model.config.pad_token_id: {name} classifies by .*, got none; give"):
        TransformersModel(config=config, head="classes").build((6,), 5)

    TransformersModel(config={**config, "pad_token_id": 30}, head="classes").build((6,), 5)


@pytest.mark.parametrize(("config", "shape"), [(BERT, (6,)), (VIT, (1, 8, 8))], ids=["bert", "vit"])
def test_classes_of_windows_and_of_images(config, shape):
    """A head of transformers gives a score for each class; dropout is off unless it is asked for."""
    model = TransformersModel(config=config, head="classes", adapters=Lora(targets=("*",), train=("classifier.*",)))
    flat = FlatModel(model.build(shape, 5), "cross-entropy", shape, 30 if len(shape) == 1 else None)
    assert flat.batchable
    assert any(name.endswith("classifier.weight") for name in flat.unflatten(flat.initial()))

    noisy = model.model_copy(update={"dropout": 0.1}).build(shape, 5)
    assert FlatModel(noisy, "cross-entropy", shape, 30 if len(shape) == 1 else None).draws


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"config": {"model_type": "gtp2"}}, r"model_type: no such architecture, got 'gtp2'; did you mean 'gpt2'"),
        ({"config": {}}, r"model_type: no such architecture, got None; give model_type, such as gpt2"),
        ({"config": {**SMALL, "n_layers": 3}}, r"gpt2 has no such setting, got 'n_layers'; did you mean 'n_layer'"),
        ({"config": {**SMALL, "qqqqqq": 3}}, r"gpt2 has no such setting, got 'qqqqqq'; leave it out"),
        ({"config": {**SMALL, "n_layer": "x"}}, r"(gpt2 rejects it .*; correct these|cannot make gpt2 .*; give what)"),
        ({"config": {**SMALL, "attn_pdrop": 0.1}}, r"dropout has one rate, got attn_pdrop; write it as model.dropout"),
        ({"config": {**SMALL, "n_head": 3}}, r"the library cannot make gpt2 .*n_head.: 3"),
        ({"config": {**SMALL, "vocab_size": 7}}, r"gpt2 .*"),
        (
            {"config": SMALL, "adapters": Lora(targets=("q_proj",))},
            r"targets: no dense layer .*are c_attn, c_proj, c_fc",
        ),
    ],
)
def test_what_does_not_suit_is_told(settings, error):
    """With the name that was meant, or those that there are."""
    with pytest.raises(ScenarioError, match=error):
        TransformersModel(**settings).build((8,), 30)
