"""FLoRA: exact sums of products, weights that grow on every device, and stacks that go to whoever lacks them."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fednet_emu as fe
from fednet_emu.algorithms.adapters.flora import grown
from fednet_emu.emulation.final_model import load_model
from fednet_emu.emulation.play import play
from fednet_emu.errors import AlgorithmError
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.low_rank import Adapters
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.adapters.networks import Adapted, two_steps
from tests.algorithms.small import ADAPTED, local_sgd
from tests.emulation.test_resume import Interruption
from tests.federation.test_learning_task import SCENARIO, adapted, two_owners
from tests.learning.models.gpt import DigitReader


def of_five() -> tuple[FlatModel, list[Any], list[Any], np.ndarray]:
    """A layer from 7 to 6, the factors B [6, 2] and A [2, 7] of five devices, and the mean of their products."""
    rng = np.random.default_rng(0)
    b, a = (rng.integers(-2, 3, (5, *shape)) for shape in ((6, 2), (2, 7)))
    mean = sum(p * own_b @ own_a for p, own_b, own_a in zip((0.1, 0.2, 0.3, 0.2, 0.2), b, a, strict=True))
    return FlatModel(Adapted(7, 6, 2), "cross-entropy", (7,)), list(b), list(a), mean


def vector(model: FlatModel, b: Any, a: Any) -> torch.Tensor:
    """The flat vector with these factors, and a bias of zeros."""
    w = model.initial().zero_()
    parts = model.unflatten(w)
    parts["layer.lora_B"][:, : np.shape(b)[1]] = torch.as_tensor(b)
    parts["layer.lora_A"][: np.shape(a)[0]] = torch.as_tensor(a)
    return w


# ---- what is added ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_product_of_a_stack_is_the_mean_of_the_products(dtype):
    """Five devices with integers: W grows by alpha / rank = 2 times M, whose norm NumPy has found; W itself stays."""
    model, b, a, mean = of_five()
    adapters, weights = Adapters(model), [1, 2, 3, 2, 2]
    parts = [adapters.part(2)] * 5
    models = [parts[0].take(vector(model, *own)) for own in zip(b, a, strict=True)]
    base = adapters.base().to(dtype)
    before = base.clone()

    moved = (grown(adapters, base, parts, models, weights) - base).view(6, 7)
    assert np.allclose(moved, 2 * mean, atol=1e-5)
    assert moved.norm().item() == pytest.approx(2 * 7.478636239, rel=1e-5)
    assert torch.equal(base, before)


def test_ranks_differ():
    """A device of rank 1 sends one column and one row: B_1 A_1 / 4 + 3 B_2 A_2 / 4, by hand."""
    model = FlatModel(Adapted(3, 2, 2), "cross-entropy", (3,))
    adapters = Adapters(model)
    parts = [adapters.part(1), adapters.part(2)]
    one, two = vector(model, [[4], [0]], [[1, 2, 3]]), vector(model, [[0, 4], [4, 0]], [[1, 0, 0], [0, 0, 1]])
    models = [parts[0].take(one), parts[1].take(two)]

    after = grown(adapters, torch.zeros(6), parts, models, [10, 30]).view(2, 3)
    assert (after / 2).tolist() == [[1, 2, 3 + 3], [3, 0, 0]]


def test_a_transposed_layer_grows_by_the_transposed_product():
    """Weights [n, m], as in GPT-2 of the library, square ones too."""

    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.arange(9.0).view(3, 3) / 9)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    model = FlatModel(nn.Sequential(fe.add_lora_adapters(Conv1D(), 1, targets=["*"])), "cross-entropy", (3,))
    adapters, x = Adapters(model), torch.eye(3)
    w = torch.arange(6.0)
    own = adapters.part(1)
    base = grown(adapters, adapters.base(), [own], [own.take(w)], [5])

    assert torch.allclose(model.forward(torch.zeros(6), x, base=base), model.forward(w, x))


def test_new_adapters_have_one_a_for_all_and_leave_the_rest():
    """B is zero, A uniform within 1 / sqrt(n) and another one each round."""
    model = FlatModel(Adapted(10_000, 3, 4), "cross-entropy", (10_000,))
    adapters, streams = Adapters(model), small_federation().streams
    w = torch.full((model.size,), 7.0)
    first, again, later = (adapters.drawn(w, streams, "adapters", t) for t in (0, 0, 1))
    parts = model.unflatten(first)

    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    assert not parts["layer.lora_B"].any()
    assert parts["layer.bias"].tolist() == [7, 7, 7]
    assert parts["layer.lora_A"].abs().max().item() == pytest.approx(0.01, rel=1e-3)
    assert parts["layer.lora_A"].std().item() == pytest.approx(0.01 / 3**0.5, rel=0.02)


# ---- what is sent ----------------------------------------------------------------------------------------------------

ALL_FOUR = (*ADAPTED, local_sgd("flora", "ranks: [1, 2], rank_assignment: in-turn"), "algorithm.cohort=4")
"""Devices of ranks 1, 2, 1, 2 of a layer from 9 to 3: 12 numbers a rank, beside a bias of 3."""
ONE_BY_ONE = "network.downlink.mode=unicast"


def messages(fed: Federation) -> list[list[Any]]:
    """The transfers of each round, in the order of their ends, which no two of these settings have in common."""
    transfers, rounds = fed.ledger.frame("transfers"), fed.ledger.frame("rounds")
    of_round = np.searchsorted(rounds["ended_s"].to_numpy(), transfers["ended_s"].to_numpy())
    in_order = transfers.assign(of=of_round).sort_values("ended_s")
    return [list(in_order[in_order["of"] == t].itertuples()) for t in range(len(rounds))]


def test_everybody_is_sent_the_stack_of_the_round_before() -> None:
    """12 r numbers and the bias up; the bias and W, which is smaller than 6 ranks, down; at first the bias alone."""
    for part in messages(run_small(*ALL_FOUR, ONE_BY_ONE))[1:]:
        assert sorted(m.size_bit for m in part if m.sender >= 0) == [32 * 15] * 2 + [32 * 27] * 2
        assert [m.size_bit for m in part if m.sender < 0] == [32 * 30] * 4
    (first, *_) = messages(run_small(*ALL_FOUR, ONE_BY_ONE))
    assert [m.size_bit for m in first if m.sender < 0] == [32 * 3] * 4


def test_a_broadcast_is_one_transmission_to_all_that_lack_the_same() -> None:
    """Three transmissions to four devices, in as many rounds."""
    table = run_small(*ALL_FOUR, "network.downlink.mode=broadcast").ledger.frame("transfers")
    assert table.loc[table["sender"] < 0, "size_bit"].tolist() == [32 * 3, 32 * 30, 32 * 30]


@pytest.mark.parametrize(
    "more",
    [
        (
            "network.uplink.message_loss={kind: random, probability: 0.4}",
            "network.downlink.message_loss={kind: random, probability: 0.4}",
        ),
        ("algorithm.cohort=2",),
        ("devices.availability={kind: windows, devices: {3: [[0, 0.02], [0.06, 1000]]}}",),
    ],
)
def test_whoever_was_away_is_sent_all_that_it_lacks(more: tuple[str, ...]) -> None:
    """A recount by the log: what the uplink delivers in a round is sent to each device once, in later rounds."""
    fed = run_small(*ALL_FOUR, ONE_BY_ONE, "stop.rounds=12", *more)
    sent, has, gaps = [0], dict.fromkeys(range(4), 0), set()
    for part in messages(fed):
        for m in (m for m in part if m.sender < 0):
            assert m.size_bit == 32 * (3 + min(27, sum(sent[has[m.receiver] :])))
            gaps.add(len(sent) - has[m.receiver])
            if not m.loss_reason:
                has[m.receiver] = len(sent)
        sent.append(sum(m.size_bit // 32 - 3 for m in part if m.sender >= 0 and not m.loss_reason))
    assert max(gaps) > 2


def test_error_feedback_is_refused() -> None:
    """What was left out of a B would be added to a later one, whose A is another."""
    told = "adapters restart in each round, .*got top-k with error feedback.*; give error_feedback: false"
    scenario = small_scenario(*ALL_FOUR, "network.uplink.compression={kind: top-k, share: 0.2}")
    ((place, what),) = scenario.contradictions()
    assert place == ("algorithm", "kind")
    assert re.match(told, what)


def test_a_compressed_upload_is_a_change_since_the_new_adapters() -> None:
    """The largest of 15 or 27 numbers: with lr = 0 it is zero, so that nothing moves; sent whole, the others would."""
    fed = run_small(
        *ALL_FOUR, "network.uplink.compression={kind: top-k, share: 0.01, error_feedback: false}", "algorithm.lr=0"
    )
    scheme, table = fed.network.settings.uplink.compression, fed.ledger.frame("transfers")

    assert set(table.loc[table["sender"] >= 0, "size_bit"]) == {scheme.bit(15), scheme.bit(27)}
    model, w = fed.task.model, fed.read(fed.latest)
    found, start = model.unflatten(w), model.unflatten(model.initial())
    assert torch.equal(found["layer.bias"], start["layer.bias"])
    assert torch.equal(found["layer.weight"], model.base_weights()["layer.weight"])


# ---- runs ------------------------------------------------------------------------------------------------------------


def flora(**more: Any) -> dict[str, Any]:
    """An algorithm in which device 0 has rank 1, device 1 rank 2."""
    return {**SCENARIO["algorithm"], "kind": "flora", "ranks": [1, 2], "rank_assignment": "in-turn", **more}


def after(rounds: int, samples: Samples) -> nn.Module:
    """The plain loop: rounds of two full-batch steps on whole matrices; the products of each are added to W."""
    whole, n = adapted(), np.bincount(samples.train_group).tolist()
    layers = [name for name, layer in whole.named_modules() if hasattr(layer, "lora_A")]
    for layer in map(whole.get_submodule, layers):
        layer.weight.data += 16 / 2 * layer.lora_B.data @ layer.lora_A.data
        layer.lora_B.data.zero_()
    for t in range(rounds):
        grow = dict.fromkeys(layers, 0.0)
        for owner in (0, 1):
            own = copy.deepcopy(whole)
            for layer in map(own.get_submodule, layers):
                layer.lora_A.data[owner + 1 :] = 0
                layer.lora_B.data[:, owner + 1 :] = 0
            two_steps(own, samples, owner)
            for name in layers:
                layer = own.get_submodule(name)
                grow[name] += n[owner] / sum(n) * 16 / 2 * layer.lora_B.data @ layer.lora_A.data
        rng = Streams(SCENARIO["seed"])("adapters", t)
        for name in layers:
            layer = whole.get_submodule(name)
            layer.weight.data += grow[name]
            layer.lora_B.data.zero_()
            layer.lora_A.data = torch.from_numpy(rng.uniform(-1, 1, layer.lora_A.shape) / 8**0.5).float()
    return whole


@pytest.mark.parametrize("engine", ["serial", "batched"])
def test_a_run_is_a_plain_loop(engine: str, tmp_path: Path) -> None:
    """Three rounds: the scores, the model of the run in memory and in its folder, with every weight."""
    samples = two_owners()
    algorithm = flora(lr=0.5, local_steps=2, batch_size=None)
    changes = {"partition": "group", "algorithm": algorithm, "stop": {"rounds": 3}, "training": {"engine": engine}}
    run = fe.run({**SCENARIO, **changes}, data=samples, model=adapted(), progress=False)

    for t in (0, 1, 3):
        scores = after(t, samples)(samples.test_x).reshape(-1, 80)
        found = run.evaluations["loss"].iloc[t]
        assert found == pytest.approx(cross_entropy(scores, samples.test_y.reshape(-1)).item(), abs=1e-5)
    expected = after(3, samples).state_dict()
    assert run.model.state_dict().keys() == expected.keys()
    for name, part in run.model.state_dict().items():
        assert torch.allclose(part, expected[name], atol=1e-5), name
    assert not torch.allclose(expected["h.0.c_fc.weight"], adapted().state_dict()["h.0.c_fc.weight"], atol=1e-2)


def test_alone_it_is_fedavg() -> None:
    """One device, one round: the same function as FedIT, though its weights have moved and its adapters have not."""
    one = {**SCENARIO, "devices": {**SCENARIO["devices"], "count": 1}}
    module = fe.add_lora_adapters(DigitReader(), 2, targets=["c_attn"], train=["score.*"])
    own = {"lr": 1.0, "local_steps": 4, "cohort": 1}
    runs = [
        fe.run({**one, "algorithm": algorithm}, model=module, progress=False)
        for algorithm in ({**SCENARIO["algorithm"], **own}, flora(**own, ranks=[2]))
    ]
    x = torch.rand(5, 1, 8, 8)
    fedit, found = (run.model for run in runs)
    assert torch.allclose(fedit(x), found(x), atol=1e-5)
    assert not torch.allclose(found(x), module(x), atol=1e-3)
    moved = found.get_parameter("gpt.h.0.c_attn.weight") - module.get_parameter("gpt.h.0.c_attn.weight")
    assert torch.linalg.matrix_rank(moved, atol=1e-5) == 2
    assert not found.get_parameter("gpt.h.0.c_attn.lora_B").any()


def test_a_resumed_run_goes_on_with_the_weights_that_it_had(tmp_path: Path) -> None:
    """The last model of a run that was cut off after the second of four rounds is that of the whole run, to the bit."""
    scenario = small_scenario(*ALL_FOUR, "stop.rounds=4", "algorithm.cohort=2")
    whole = play(scenario, "flora", tmp_path / "whole", keep_model=True)
    with pytest.raises(KeyboardInterrupt):
        play(scenario, "flora", tmp_path / "cut", on_round=Interruption(2))
    play(scenario, "flora", tmp_path / "cut", keep_model=True)

    (expected, found) = (load_model(tmp_path / name).states[0] for name in ("whole", "cut"))
    assert whole.summary["rounds"] == 4
    assert list(found) == ["layer.bias", "layer.lora_A", "layer.lora_B", "layer.weight"]
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_trained_adapters_are_kept_where_nothing_arrives() -> None:
    """Their B is added to W, beyond the ranks of the devices too; the function stays."""
    module, lossy = adapted(), {"uplink": {"message_loss": {"kind": "random", "probability": 0.999999}}}
    run = fe.run(
        {**SCENARIO, "algorithm": flora(ranks=[1]), "network": lossy},
        data=two_owners(), model=module, progress=False,
    )  # fmt: skip
    x = two_owners().test_x
    assert torch.allclose(run.model(x), module(x), atol=1e-5)
    assert not run.model.get_parameter("h.0.c_fc.lora_B").any()


def test_training_starts_from_adapters_alone() -> None:
    """What else the model has is the job's base."""
    fed, plan = small_federation(*ALL_FOUR), small_scenario(*ALL_FOUR).algorithm.plan
    whole = fed.task.model.size + fed.task.model.base_size
    w = fed.defer(torch.clone, fed.initial_model(), size=whole)

    with pytest.raises(AlgorithmError, match=rf"k.train: got a value of {whole} numbers, the model .* 27 par"):
        fed.device(0).train(w, plan, 0)
