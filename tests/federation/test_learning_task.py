"""Learning tasks: learner, payload, observers, batches, adapters."""

from __future__ import annotations

import gc
import hashlib
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fednet_emu as fe
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.federation.updates import n_scalars, whole_bit
from fednet_emu.kernel.clock import Process
from fednet_emu.learning.data.attacks import Attack
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.partitions.base import Held, Partitioned, hold_out
from fednet_emu.learning.graph.jobs import SgdPlan
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.testing import small_federation, small_scenario
from tests.federation.texts import TWO_DEVICES, loss_of, plain_loop, two_owners
from tests.learning.models.gpt import DigitReader, Gpt
from tests.quick import crossed

OWNERS = {"in order": [0, 0, 1, 1], "mixed": [1, 0, 1, 0], "one is nobody's": [0, 0, 1, -1]}


@pytest.mark.parametrize("owners", OWNERS.values(), ids=OWNERS)
def test_samples_are_copied_only_to_put_them_in_order(owners: list[int]) -> None:
    """Every device's slice holds its own samples; where all lie device by device already, they are used in place."""
    x, y = torch.arange(8.0).reshape(4, 2), torch.arange(4.0)
    split = Partitioned.from_owners(np.array(owners), 2)
    model = FlatModel(torch.nn.Linear(2, 1), "squared-error", (2,))

    task = LearningTask(model, Samples(x, y, x, y, None), (split, split), torch.device("cpu"), timing_only=False)

    for device in (0, 1):
        mine = [sample for sample, owner in enumerate(owners) if owner == device]
        assert task.data.y[task.slice_of(device)].tolist() == mine
        assert task.data.x[task.slice_of(device)].tolist() == x[mine].tolist()
    assert (task.data.x.data_ptr() == x.data_ptr()) == (owners == [0, 0, 1, 1])


@pytest.mark.parametrize("drawn", [True, False])
def test_samples_that_move_elsewhere_are_kept_by_nothing_else(drawn: bool) -> None:
    """Workers share the training samples by moving them; their former memory is free then, also without validation."""
    x, y = torch.ones(4, 2), torch.ones(4)
    samples, split = Samples(x, y, x.clone(), y.clone(), None), Partitioned.from_owners(np.array([0, 0, 1, 1]), 2)
    held = hold_out(samples, 0, 0, np.random.default_rng(0))[1:] if drawn else None
    model, former = FlatModel(torch.nn.Linear(2, 1), "squared-error", (2,)), x.untyped_storage().data_ptr()

    task = LearningTask(model, samples, (split, split), torch.device("cpu"), timing_only=False, held=held)
    others = [part for part in gc.get_objects() if type(part) is torch.Tensor and part is not x]

    assert task.data.x is x
    assert [part.shape for part in others if part.untyped_storage().data_ptr() == former] == []


def test_the_validation_error_is_the_share_that_a_classifier_gets_wrong() -> None:
    """Three of four held-out samples lie on the side of their class; a regression has no classes to get wrong."""
    x, y = torch.tensor([[1.0], [2.0], [-1.0], [-2.0]]), torch.tensor([0, 0, 1, 0])
    split = Partitioned.from_owners(np.array([0, 0, 0, 0]), 1)
    sides = torch.tensor([1.0, -1.0, 0.0, 0.0])  # class 0 to the right, class 1 to the left, no bias

    errors = []
    for model, targets in (
        (FlatModel(torch.nn.Linear(1, 2), "cross-entropy", (1,)), y),
        (FlatModel(torch.nn.Linear(1, 1), "squared-error", (1,)), y.float()),
    ):
        samples, held = Samples(x, targets, x, targets, None), (Held(x[:0], targets[:0]), Held(x, targets))
        task = LearningTask(model, samples, (split, split), torch.device("cpu"), timing_only=False, held=held)
        errors.append(task.validation_error(sides[: len(model.initial())]))

    assert errors[0] == 0.25
    assert math.isnan(errors[1])


class Loud(Attack):
    """Test inputs of other classes are shouted."""

    def poisoned(self, x, y, samples):
        return x, y

    def trial(self, samples):
        """Test inputs of other classes, ten times as large."""
        return samples.test_x[samples.test_y != self.target] * 10


def test_an_attack_succeeds_where_its_inputs_count_as_the_target() -> None:
    """Two of three inputs of other classes lie on the side of the target; without an attack there is no share."""
    x, y = torch.tensor([[1.0], [2.0], [-1.0], [-2.0]]), torch.tensor([1, 1, 1, 0])
    split = Partitioned.from_owners(np.array([0, 0, 0, 0]), 1)
    model, sides = FlatModel(torch.nn.Linear(1, 2), "cross-entropy", (1,)), torch.tensor([1.0, -1.0, 0.0, 0.0])
    samples = Samples(x, y, x, y, 2)

    shares = []
    for attack in (Loud(target=0), None):
        task = LearningTask(model, samples, (split, split), torch.device("cpu"), timing_only=False, attack=attack)
        shares.append(task.score(sides, per_device=False).attack_success)

    assert shares[0] == pytest.approx(2 / 3)
    assert math.isnan(shares[1])


def test_the_worst_training_loss_is_that_of_the_device_it_fits_least() -> None:
    """The model 0 has on targets (0, 1) and (2, 4) mean squares of 1/2 and 10; without asking it is not a number."""
    x, y = torch.ones(4, 1), torch.tensor([0.0, 1.0, 2.0, 4.0])
    split = Partitioned.from_owners(np.array([0, 0, 1, 1]), 2)
    model = FlatModel(torch.nn.Linear(1, 1), "squared-error", (1,))
    task = LearningTask(model, Samples(x, y, x, y, None), (split, split), torch.device("cpu"), timing_only=False)
    nothing = torch.zeros(2)

    own = [task.train_loss(nothing, device) for device in (0, 1)]

    assert own[1] == 20 * own[0]
    assert task.score(nothing, per_device=False, train_loss=True).worst_train_loss == own[1] > 0
    assert math.isnan(task.score(nothing, per_device=False).worst_train_loss)


def test_a_run_without_training_keeps_targets_but_no_inputs() -> None:
    """Of 4 samples the rows are counted, with 0 scalars each."""
    x, y = torch.ones(4, 3), torch.arange(4.0)
    split = Partitioned.from_owners(np.array([0, 0, 1, 1]), 2)
    model = FlatModel(torch.nn.Linear(3, 1), "squared-error", (3,))

    task = LearningTask(model, Samples(x, y, x, y, None), (split, split), torch.device("cpu"), timing_only=True)

    assert (task.data.x.shape, task.data.y.tolist()) == ((4, 0), [0, 1, 2, 3])


def test_everything_of_the_task_lies_where_it_is_trained() -> None:
    """Training data, sets and test samples move to the device asked for; torch's "meta" device needs no hardware."""
    x, y = torch.ones(4, 3), torch.tensor([0, 1, 0, 1])
    split = replace(Partitioned.from_owners(np.array([0, 0, 1, 1]), 2), sets=np.array([0, 1, 0, 1]))
    model = FlatModel(torch.nn.Linear(3, 2), "cross-entropy", (3,))

    task = LearningTask(model, Samples(x, y, x, y, 2), (split, split), torch.device("meta"), timing_only=False)

    placed = [task.data.x, task.data.y, task.sets, task._test_x, task._test_y, task._test_order]
    assert [tensor.device.type for tensor in placed] == ["meta"] * 6


def test_the_target_of_an_attack_lies_where_its_inputs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of the attack and the class that they should count as are compared on one device."""
    x, y = torch.ones(4, 3), torch.tensor([0, 1, 0, 1])
    split = Partitioned.from_owners(np.array([0, 0, 1, 1]), 2)
    model, samples = FlatModel(torch.nn.Linear(3, 2), "cross-entropy", (3,)), Samples(x, y, x, y, 2)
    task = LearningTask(model, samples, (split, split), torch.device("meta"), timing_only=False, attack=Loud(target=0))
    asked = []

    def scored(_model: FlatModel, _vector: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor) -> Any:
        asked.append([(part.device.type, len(part)) for part in (inputs, targets)])
        return SimpleNamespace(pooled=lambda: SimpleNamespace(accuracy=0.5))

    monkeypatch.setattr("fednet_emu.federation.learning_task.score_samples", scored)

    assert task._attack_success(torch.zeros(8)) == 0.5
    assert asked == [[("meta", 2), ("meta", 2)]]


def test_without_training_no_weight_is_ever_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that only measures times needs the size of the model, 10 parameters, and not its weights."""
    fed, trained = small_federation(timing_only=True), small_federation()
    monkeypatch.setattr(FlatModel, "initial", lambda _model: pytest.fail("weights were made"))

    assert fed.learner.initial().size == 10
    with pytest.raises(pytest.fail.Exception, match="weights were made"):
        trained.learner.initial()


def test_whoever_trains_first_is_named_first() -> None:
    """The error names the one that was about to train, the server say, and then all devices with such a batch."""
    fed = small_federation("devices.count=4", "data=digits", "model=digit-model", timing_only=True)
    odd = [f"dev-{device}" for device, n in enumerate(fed.task.n_samples.tolist()) if n % 2]
    plan = SgdPlan(lr=0.1, batch_size=2, epochs=1)

    with pytest.raises(ScenarioError, match=f"remain for {', '.join(['server', *odd][:3])}"):
        fed.learner._check_batches(plan, {"server": 3}, everybody=True)


def test_nothing_is_a_size_too() -> None:
    """An empty message has 0 bits, as an integer or as a float; the smallest other one has 1."""
    assert [whole_bit(size_bit) for size_bit in (0, 0.0, 1, 1.0)] == [0, 0, 1, 1]
    assert all(type(whole_bit(size_bit)) is int for size_bit in (0.0, 1.0))


def test_scalars_of_payloads_are_counted() -> None:
    """Numbers count one, arrays and deferred values their length, tuples and lists the sum, nothing counts zero."""
    model = small_federation().initial_model()

    assert n_scalars(model) == 10
    assert n_scalars((model, 3, [0.5, np.float32(1)], np.zeros((2, 3)), None)) == 10 + 1 + 2 + 6
    assert n_scalars(None) == n_scalars(()) == 0


@pytest.mark.parametrize("size_bit", [0.5, -1, math.inf, math.nan])
def test_a_size_is_a_whole_number_of_bits(size_bit: float) -> None:
    """What cannot be a size is an error where it is given, not where it is written down."""
    with pytest.raises(ValueError, match="no whole number of bits, got "):
        small_federation().uplink(small_federation().device(0), None, size_bit)  # type: ignore[arg-type]


class Reports:
    """Trains elsewhere, and tells (loss, accuracy) after each round of 1 s."""

    own_learning = True

    def __init__(self, *scores: tuple[float | None, float | None]) -> None:
        self.scores, self.seen = scores, []

    def run(self, fed: Federation) -> Process:
        """Tell them, and note what the federation then knows."""
        for loss, accuracy in self.scores:
            yield fed.clock.sleep(1.0)
            fed.end_of_round(None, invited=0, arrived=0)
            fed.report(fed.round, loss=loss, accuracy=accuracy)
            self.seen.append((fed._observer.accuracy, bool(fed.divergence())))


def told(*scores: tuple[float | None, float | None]) -> tuple[Reports, Federation]:
    reports, fed = Reports(*scores), small_federation(timing_only=True)
    fed.run(reports)
    return reports, fed


def test_what_is_told_is_recorded_at_its_time() -> None:
    """Rounds, times, losses and accuracies are those told; what is unknown is not a number."""
    reports, fed = told((2.0, 0.25), (None, 0.5), (1.0, None))
    rows = fed.ledger.frame("evaluations")

    assert rows["round"].tolist() == [1, 2, 3]
    assert rows["simulated_s"].tolist() == [1.0, 2.0, 3.0]
    assert rows["loss"].tolist() == pytest.approx([2.0, math.nan, 1.0], nan_ok=True)
    assert rows["accuracy"].tolist() == pytest.approx([0.25, 0.5, math.nan], nan_ok=True)
    assert reports.seen == [(0.25, False), (0.5, False), (None, False)]


def test_a_loss_that_is_no_number_shows_divergence_and_its_accuracy_counts_for_nothing() -> None:
    """An unknown loss is no divergence, an infinite one is."""
    reports, _ = told((None, 0.5), (math.inf, 0.75))

    assert reports.seen == [(0.5, False), (None, True)]


@pytest.mark.parametrize("timing_only", [False, True])
def test_batches_of_one_are_refused_where_the_model_has_batch_norm(timing_only):
    """Before any device trains, with or without training, all devices with such a batch are named."""
    model = "model={kind: digit-model, channels: [4, 4, 4], units: [8, 8]}"
    settings = ("devices.count=5", "data=digits", model, "algorithm.batch_size=2")
    fed = small_federation(*settings, timing_only=timing_only)
    odd = [f"dev-{device}" for device, n in enumerate(fed.task.n_samples) if n % 2]
    algorithm = small_scenario(*settings, "algorithm.local_epochs=1", "algorithm.local_steps=null").algorithm
    assert len(odd) > 0

    with pytest.raises(ScenarioError, match=rf"got 2, with which batches of 1 remain for {', '.join(odd[:3])}"):
        fed.run(algorithm)
    assert len(fed.ledger.computes) == 0


def test_beyond_three_devices_are_counted():
    """Batches of one on four devices: three are named, and one more is said to be."""
    settings = ("devices.count=4", "data=digits", "model=digit-model", "algorithm.batch_size=2")
    fed = small_federation(*settings, timing_only=True)
    plan = SgdPlan(lr=0.1, batch_size=2, epochs=1)
    small = {f"dev-{device}": 3 for device in range(4)}

    with pytest.raises(ScenarioError, match="remain for dev-0, dev-1, dev-2 and 1 more; "):
        fed.learner._check_batches(plan, small, everybody=False)
    with pytest.raises(ScenarioError, match="remain for dev-0, dev-1, dev-2; "):
        fed.learner._check_batches(plan, dict([*small.items()][:3]), everybody=False)


def test_batches_of_one_that_are_never_reached_are_allowed():
    """With one step of two samples the odd one at the end of an epoch is not used."""
    fed = small_federation("data=digits", "model=digit-model", "devices.count=5", timing_only=True)

    fed.run(small_scenario("algorithm.batch_size=2", "algorithm.cohort=5", "devices.count=5").algorithm)

    assert len(fed.ledger.computes) == 15


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
    module = seeded_module(lambda: fe.add_lora_adapters(Gpt(80, 5, 8, 1, 2), 2, targets=names, freeze=freeze), 5)
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
        ({"kind": "fedper", "personal_layers": ["*lora_B*"]}, 32 * 244),  # FedSA-LoRA: without B, 96 x 2
    ],
)
def test_only_adapters_and_the_head_travel(algorithm, sent):
    """A network of 64 tokens reads the digits; the frozen weights are in no message, and timing needs no training."""
    module = fe.add_lora_adapters(DigitReader(), 2, targets=["c_attn"], train=["score.*"])
    kind = {"kind": algorithm} if isinstance(algorithm, str) else algorithm
    scenario = {**SCENARIO, "algorithm": {**SCENARIO["algorithm"], **kind}}
    run = fe.run(scenario, model=module, progress=False)

    assert set(run.transfers["size_bit"]) == {sent}
    timed = fe.run(scenario, model=module, progress=False, timing_only=True)
    assert timed.summary["event_digest"] == run.summary["event_digest"]


@pytest.mark.parametrize(("engine", "freeze"), crossed(["serial", "batched"], [None, "A"]))
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
