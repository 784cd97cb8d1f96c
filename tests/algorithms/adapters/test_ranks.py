"""Adapters of several ranks: what each device has, and what the server makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.func import grad
from torch.nn.functional import cross_entropy

import fednet_emu as fe
from fednet_emu.algorithms.adapters.flexlora import split
from fednet_emu.algorithms.adapters.hetlora import HetLora, norms
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.learning.models.low_rank import Adapters, Factors
from tests.algorithms.adapters.networks import Adapted, two_steps
from tests.algorithms.small import ENGINES
from tests.federation.test_learning_task import SCENARIO, adapted
from tests.federation.texts import two_owners
from tests.learning.models.gpt import DigitReader


def linear(rank: int = 2) -> FlatModel:
    """A layer from 3 to 2 with an adapter and a trained bias."""
    return FlatModel(Adapted(3, 2, rank), "cross-entropy", (3,))


def vector(model: FlatModel, b: Any, a: Any, bias: Any) -> torch.Tensor:
    parts = {"layer.lora_B": b, "layer.lora_A": a, "layer.bias": bias}
    return torch.cat([torch.tensor(parts[name], dtype=torch.float32).reshape(-1) for name in model._names])


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_a_device_has_rows_up_to_its_rank_and_all_the_rest():
    """Rank 1 of 2: a column of B [2, 2], a row of A [2, 3], the bias [2]; what it lacks is zero."""
    model = linear()
    part = Adapters(model).part(1)
    whole = vector(model, [[1, 2], [3, 4]], [[5, 6, 7], [8, 9, 10]], [11, 12])

    assert sorted(part.take(whole).tolist()) == [1, 3, 5, 6, 7, 11, 12]
    expected = vector(model, [[1, 0], [3, 0]], [[5, 6, 7], [0, 0, 0]], [11, 12])
    assert torch.equal(part.padded(part.take(whole), model.size), expected)
    assert Adapters(model).part(2).size == model.size == 12


def test_rows_that_are_zero_in_both_factors_have_no_gradient():
    """So devices of several ranks train in one stack; a row that is zero in B alone is alive."""
    model, x, y = linear(), torch.randn(8, 3), torch.arange(8) % 2
    w = vector(model, [[1, 0], [3, 0]], [[5, 6, 7], [0, 0, 0]], [1, 2])
    slope = model.unflatten(grad(model.loss)(w, x, y))
    assert slope["layer.lora_A"][0].any()
    assert not slope["layer.lora_A"][1].any()
    assert not slope["layer.lora_B"][:, 1].any()

    alive = vector(model, [[1, 0], [3, 0]], [[5, 6, 7], [1, 1, 1]], [1, 2])
    assert model.unflatten(grad(model.loss)(alive, x, y))["layer.lora_B"][:, 1].any()


# ---- servers ---------------------------------------------------------------------------------------------------------


def test_flexlora_is_the_best_approximation_of_each_rank():
    """Five devices of rank 2 with integer factors [6, 2] and [2, 7]: errors as NumPy has them of the whole sum."""
    rng = np.random.default_rng(0)
    every_b, every_a = (torch.from_numpy(rng.integers(-2, 3, (5, *shape))).double() for shape in ((6, 2), (2, 7)))
    own, weights = list(zip(every_b, every_a, strict=True)), [0.1, 0.2, 0.3, 0.2, 0.2]
    mean = sum(p * b @ a for p, (b, a) in zip(weights, own, strict=True))
    assert mean.norm().item() == pytest.approx(7.478636239)

    factors = [Factors(b, a) for b, a in own]
    for rank, error in ((1, 4.160764949), (2, 2.97178604), (4, 1.207778854)):
        b, a = split(factors, weights, rank)
        assert (b.shape, a.shape) == ((6, rank), (rank, 7))
        assert (mean - b @ a).norm().item() == pytest.approx(error)
        first = [6.214341079, 2.912121682, 2.295647809, 1.450097806][:rank]
        assert b.norm(dim=0).tolist() == pytest.approx(first)
    b, a = split(factors, weights, 8)
    assert torch.allclose(b @ a, mean)
    assert not b[:, 6:].any()
    assert not a[6:].any()


def test_hetlora_weighs_devices_by_the_norms_of_their_products():
    """Norms 3 and 1 by hand, of ranks 2 and 1: three quarters and a quarter, with zeros for the row that is lacking."""
    model = linear()
    adapters = Adapters(model)
    parts = [adapters.part(2), adapters.part(1)]
    full = vector(model, [[0, 2], [1, 0]], [[1, 2, 2], [0, 0, 0]], [4, 8])  # B A has one row, (1, 2, 2)
    small = vector(model, [[0, 0], [1, 0]], [[1, 0, 0], [0, 0, 0]], [0, 4])
    assert norms(adapters, torch.stack([full, small])).tolist() == [3, 1]

    w, models = torch.full_like(full, 9.0), [parts[0].take(full), parts[1].take(small)]
    found = HetLora(ranks=(1, 2)).merged(adapters, w, parts, models, [50, 1])
    assert torch.allclose(found, vector(model, [[0, 1.5], [1, 0]], [[1, 1.5, 1.5], [0, 0, 0]], [3, 7]), atol=1e-5)
    kept = HetLora(ranks=(1, 2), per_row=True).merged(adapters, w, parts, models, [50, 1])
    assert torch.allclose(kept, vector(model, [[0, 2], [1, 0]], [[1, 1.5, 1.5], [0, 0, 0]], [3, 7]), atol=1e-5)


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("factor", [1.0, 1e-3, 1e-6])
def test_hetlora_weighs_devices_by_the_ratio_of_norms_however_small(factor, per_row):
    """Norms of 3 and 1 times 1, 1e-6 or 1e-12: three quarters and a quarter of the biases 4 and 0."""
    model = linear(1)
    adapters = Adapters(model)
    models = [vector(model, [[0], [b * factor]], [[factor, 0, 0]], bias) for b, bias in ((3, [4, 8]), (1, [0, 4]))]
    found = HetLora(ranks=(1,), per_row=per_row).merged(
        adapters, torch.ones(model.size), [adapters.part(1)] * 2, models, [1, 1]
    )

    assert model.unflatten(found)["layer.bias"].tolist() == pytest.approx([3, 7], rel=1e-5)


def test_rows_that_nobody_has_stay_with_per_row():
    """Where only devices of rank 1 have come; models of products that are all zero count alike."""
    model = linear()
    adapters, w = Adapters(model), torch.arange(12.0)
    part = adapters.part(1)
    models = [torch.zeros(part.size), torch.full((part.size,), 0.0)]
    found = HetLora(ranks=(1,), per_row=True).merged(adapters, w, [part, part], models, [1, 1])

    has = part.padded(torch.ones(part.size), 12) > 0
    assert torch.allclose(found[has], torch.zeros(7), atol=1e-6)
    assert torch.equal(found[~has], w[~has])


# ---- runs ------------------------------------------------------------------------------------------------------------


def ranked(kind: str, **more: Any) -> dict[str, Any]:
    """An algorithm in which device 0 has rank 1, device 1 rank 2."""
    return {**SCENARIO["algorithm"], "kind": kind, "ranks": [1, 2], "rank_assignment": "in-turn", **more}


@pytest.mark.parametrize("kind", ["hetlora", "flexlora"])
def test_each_device_sends_its_rank(kind):
    """Both ways, r x (32 + 96) numbers and the head of 180; by speed, the slower device has the lower rank."""
    module = fe.add_lora_adapters(DigitReader(), 2, targets=["c_attn"], train=["score.*"])
    sizes = {1: 32 * (128 + 180), 2: 32 * (256 + 180)}
    devices = {**SCENARIO["devices"], "speed": {"kind": "list", "flop_per_s": [2e9, 1e9]}}
    for dealt, given, ranks in (
        ("in-turn", [1, 2], [1, 2]),
        ("in-turn", [2, 1], [2, 1]),
        ("by-speed", [1, 2], [2, 1]),
        ("by-speed", [2, 1], [2, 1]),
    ):
        scenario = {**SCENARIO, "devices": devices, "algorithm": ranked(kind, ranks=given, rank_assignment=dealt)}
        run = fe.run(scenario, model=module, progress=False, timing_only=True)
        sent = run.transfers.assign(device=run.transfers[["sender", "receiver"]].max(axis=1))
        assert sent.groupby("device")["size_bit"].unique().map(list).tolist() == [[sizes[rank]] for rank in ranks]

    with pytest.raises(ScenarioError, match=r"algorithm.ranks: larger than that of the adapters, 2, got 3"):
        fe.run({**SCENARIO, "algorithm": ranked(kind, ranks=[3])}, model=module, progress=False)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("kind", "more"), [("hetlora", {}), ("hetlora", {"per_row": True}), ("flexlora", {})])
def test_a_run_is_a_plain_loop(kind, more, engine):
    """Two rounds of two full-batch steps on whole matrices, with one for-loop over devices, layers and rows."""
    samples, start = two_owners(), adapted()
    algorithm = ranked(kind, lr=0.5, local_steps=2, batch_size=None, **more)
    changes = {"partition": "group", "algorithm": algorithm, "stop": {"rounds": 2}, "training": {"engine": engine}}
    run = fe.run({**SCENARIO, **changes}, data=samples, model=start, progress=False)

    whole, sizes = adapted(), np.bincount(samples.train_group).tolist()
    layers = [name for name, layer in whole.named_modules() if hasattr(layer, "lora_A")]
    for _ in range(2):
        ends = []
        for owner in (0, 1):
            own = adapted()
            own.load_state_dict(whole.state_dict())
            for name in layers:
                own.get_submodule(name).lora_A.data[owner + 1 :] = 0
                own.get_submodule(name).lora_B.data[:, owner + 1 :] = 0
            two_steps(own, samples, owner)
            ends.append([(own.get_submodule(n).lora_B.data, own.get_submodule(n).lora_A.data) for n in layers])
        length = [sum((b @ a).square().sum() for b, a in end).sqrt() for end in ends]
        for place, name in enumerate(layers):
            (b_0, a_0), (b_1, a_1) = (end[place] for end in ends)
            layer = whole.get_submodule(name)
            if kind == "flexlora":
                mean = (sizes[0] * b_0 @ a_0 + sizes[1] * b_1 @ a_1) / sum(sizes)
                u, s, v = torch.linalg.svd(mean)
                layer.lora_B.data, layer.lora_A.data = u[:, :2] * s[:2], v[:2]
            else:
                p = length[0] / (length[0] + length[1])
                layer.lora_B.data, layer.lora_A.data = p * b_0 + (1 - p) * b_1, p * a_0 + (1 - p) * a_1
                if more:
                    layer.lora_B.data[:, 1], layer.lora_A.data[1] = b_1[:, 1], a_1[1]
    scores = whole(samples.test_x).reshape(-1, 80)
    assert run.evaluations["loss"].iloc[-1] == pytest.approx(
        cross_entropy(scores, samples.test_y.reshape(-1)).item(), abs=1e-5
    )
    for name in layers:
        found, expected = (its.get_submodule(name) for its in (run.model, whole))
        assert torch.allclose(found.lora_B @ found.lora_A, expected.lora_B @ expected.lora_A, atol=1e-5)
