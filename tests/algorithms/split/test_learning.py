"""What split learning learns: identities to the bit, and loops that really cut the network."""

from __future__ import annotations

import copy
from itertools import islice

import pytest
import torch
from torch import nn

from fednet_emu.algorithms.split.splitfed import DeviceBatches, JointSteps
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import SgdPlan
from fednet_emu.learning.models.base import torch_seed
from fednet_emu.learning.models.cuts import cuts_of
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import small_federation, small_scenario
from tests.algorithms.small import resumed_every_round
from tests.algorithms.split.oracle import BATCH, EPOCHS, LOSSY, LR, UNEVEN, Oracle, splitfed, timed, trained
from tests.quick import crossed

VARIANTS = ("sl", "v1", "v2", "psl")
LOCAL = f"lr: {LR}, batch_size: {BATCH}, local_epochs: {EPOCHS}"


@pytest.mark.parametrize(("engine", "cut", "variant"), crossed(["serial", "batched"], [1, 2], VARIANTS))
def test_a_network_that_is_really_cut_learns_the_same(variant: str, cut: int, engine: str) -> None:
    """After five rounds in which messages and devices are lost, the model is that of the loop to 1e-5."""
    settings = (*UNEVEN, *LOSSY, splitfed(variant, cut=cut), f"training.engine={engine}")
    fed, found = trained(*settings)
    its = Oracle(fed, cut)
    rounds = fed.ledger.frames()["rounds"]

    assert rounds["arrived"].sum() < rounds["invited"].sum() == 15
    assert (fed.ledger.frames()["transfers"]["lost"] == "erased").any()
    assert (found.double() - its.w).norm() > 0.5
    torch.testing.assert_close(found.double(), getattr(its, variant)(), rtol=0, atol=1e-5)


def test_the_order_of_service_matters_in_v2_only() -> None:
    """Served in reverse, the same batches make another model; both are far from the one of v1."""
    fed, found = trained(*UNEVEN, splitfed("v2", cohort=5))
    its = Oracle(fed)
    its.cohorts = [list(range(5))] * 5

    torch.testing.assert_close(found.double(), its.v2(), rtol=0, atol=1e-5)
    assert (its.v2() - its.v2(reverse=True)).norm() > 1e-2
    assert (its.v2() - its.v1()).norm() > 1e-1


def test_a_step_of_psl_whose_parts_are_all_lost_is_the_server_s_alone() -> None:
    """One device at a time, many of whose uploads are lost: its part stays what it was, the server's has moved."""
    lossy = "network.uplink.loss={kind: random, probability: 0.3}"
    fed, found = trained(*UNEVEN, lossy, splitfed("psl", cohort=1, retries=0))
    its = Oracle(fed)
    its.cohorts = [list(range(5))] * 5

    assert any(messages and messages[-1].bit != 32 * its.size for messages in its.arrived)
    torch.testing.assert_close(found.double(), its.psl(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_follow_the_schedule(variant: str) -> None:
    """With steps of next to nothing from the second round on, the model is that of the first, to the last bit."""
    schedule = "lr_schedule: {kind: step, every_rounds: 1, gamma: 1e-30}"
    _, first = trained(*UNEVEN, "stop.rounds=1", splitfed(variant))
    fed, found = trained(*UNEVEN, "stop.rounds=3", f"{splitfed(variant)[:-1]}, {schedule}}}")

    assert not torch.equal(first, fed.task.model.initial())
    assert torch.equal(found, first)


def test_who_has_lost_a_message_of_psl_sends_no_more_in_the_round() -> None:
    """Without retries a device's lost activations or part are the last that it sends until the next round."""
    lossy = "network.uplink.loss={kind: random, probability: 0.2}"
    frames = timed(*UNEVEN, lossy, splitfed("psl", retries=0), "stop.rounds=12").ledger.frames()
    ups = frames["transfers"][frames["transfers"]["receiver"] == -1].sort_values("requested_s", kind="stable")
    ups = ups.assign(round=frames["rounds"]["ended_s"].searchsorted(ups["requested_s"], side="right"))

    assert (ups["lost"] == "erased").sum() > 12
    for _, own in ups.groupby(["round", "sender"]):
        assert (own["lost"].iloc[:-1] == "").all()


def test_the_server_of_psl_computes_the_batches_that_have_come() -> None:
    """Its work in each step is a whole number of samples: the labels and activations that arrived for the step."""
    lossy = "network.uplink.loss={kind: random, probability: 0.3}"
    fed = timed(*UNEVEN, lossy, splitfed("psl", cohort=5, retries=0))
    frames = fed.ledger.frames()
    cut = cuts_of(fed.task.model)[0]
    ups = frames["transfers"].query("receiver == -1 and lost == ''")
    batches = ups[ups["size_bit"] != 32 * cut.device.n_shared]
    samples = batches["size_bit"].sum() / (32 * (cut.width + 1))

    assert (frames["transfers"]["lost"] == "erased").sum() > 10
    assert frames["computes"].query("device == -1")["flop"].sum() == pytest.approx(samples * cut.server_flop)


def test_parts_of_psl_have_a_deadline_of_their_own() -> None:
    """Activations that are there in time, and parts of the model that are not: the latter are lost for the deadline."""
    fed = timed(*UNEVEN, splitfed("psl", cut=2, deadline_s=0.013))
    ups = fed.ledger.frames()["transfers"].query("receiver == -1 and lost == 'deadline'")

    assert (ups["size_bit"] == 32 * Oracle(fed, 2).size).any()


def test_a_batch_that_waits_at_the_server_has_not_been_served() -> None:
    """The server of v2 is amid the first batch when the round ends: it has made no step, though all have arrived."""
    fed, found = trained(*UNEVEN, "stop.rounds=2", "server.flop_per_s=100", splitfed("v2", deadline_s=1))

    assert any(message.bit > 0 for message in Oracle(fed).arrived[0])
    assert torch.equal(found, fed.task.model.initial())


@pytest.mark.parametrize(
    ("own", "engine"), crossed(["{kind: sgd}", "{kind: momentum, beta: 0.5}", "adam"], ["serial", "batched", "by-rule"])
)
def test_v1_is_federated_averaging(engine: str, own: str) -> None:
    """Whatever the cut, the final model is that of `fedavg`, to the last bit: only time and bits differ."""
    more = f"local_optimizer: {own}, lr_schedule: {{kind: step, every_rounds: 2, gamma: 0.5}}"
    bare = [setting for setting in UNEVEN if "server" not in setting]
    fedavg, expected = trained(
        *bare, f"training.engine={engine}", f"algorithm={{kind: fedavg, cohort: 3, {LOCAL}, {more}}}"
    )

    assert not torch.equal(expected, fedavg.task.model.initial())
    for cut in (1, 2, "least-time"):
        fed, found = trained(*UNEVEN, f"training.engine={engine}", f"{splitfed('v1', cut=cut)[:-1]}, {more}}}")
        assert torch.equal(found, expected)
        assert len(fed.ledger.transfers) > len(fedavg.ledger.transfers)


def test_v1_with_batch_norm_is_federated_averaging() -> None:
    """Running statistics are averaged with the part that they belong to."""
    images = ("data={kind: synthetic, features: [1, 8, 8], classes: 3, n_samples: 96, n_test: 20}", "partition=iid")
    model = "model={kind: digit-model, channels: [2, 2, 2], units: [8, 4]}"
    _, expected = trained(*images, model, f"algorithm={{kind: fedavg, cohort: 4, {LOCAL}}}")
    for cut in (1, 2, 5):
        _, found = trained(*images, model, "server.flop_per_s=1e7", splitfed("v1", cohort=4, cut=cut))
        assert torch.equal(found, expected)


def test_sl_is_training_in_one_place() -> None:
    """Plain PyTorch on the whole network, devices' batches one after the other: equal to the last bit."""
    fed, found = trained(*UNEVEN, splitfed("sl", cohort=5))
    network, its = copy.deepcopy(nn.Sequential(*fed.task.model.layers)), Oracle(fed)
    sgd = torch.optim.SGD(network.parameters(), LR)
    for t in range(5):
        for k in range(5):
            for rows in its.batches(k, t):
                sgd.zero_grad()
                nn.functional.cross_entropy(network(fed.task.data.x[rows]), fed.task.data.y[rows]).backward()
                sgd.step()

    assert torch.equal(found, torch.nn.utils.parameters_to_vector(network.parameters()))


def test_one_device_learns_the_same_in_all_variants() -> None:
    """Alone, order and means are of no matter: four times the same model, up to the rounding of means of one."""
    found = {variant: trained(*UNEVEN, splitfed(variant, cohort=1))[1] for variant in VARIANTS}

    for variant in ("v1", "v2", "psl"):
        torch.testing.assert_close(found[variant], found["sl"], rtol=0, atol=1e-6)


def test_psl_is_training_on_unions() -> None:
    """Equal devices: a step on the union of their batches at a time, by PyTorch on the whole network, to 1e-6."""
    even = ("data.n_samples=150", "partition=iid", "devices.count=5")
    fed, found = trained(*UNEVEN, *even, splitfed("psl", cohort=5))
    network, its = copy.deepcopy(nn.Sequential(*fed.task.model.layers)), Oracle(fed)
    sgd = torch.optim.SGD(network.parameters(), LR)
    for t in range(5):
        for rows in zip(*(its.batches(k, t) for k in range(5)), strict=True):
            own = torch.cat(rows)
            sgd.zero_grad()
            nn.functional.cross_entropy(network(fed.task.data.x[own]), fed.task.data.y[own]).backward()
            sgd.step()

    torch.testing.assert_close(found, torch.nn.utils.parameters_to_vector(network.parameters()), rtol=0, atol=1e-6)


@pytest.mark.parametrize("variant", ["v2", "psl"])
def test_dropout_is_that_of_the_run(variant: str) -> None:
    """A network with dropout learns the same twice, something else with another seed, and without dropout."""
    model = "model={kind: mlp, hidden: [7], dropout: [0.3, 0.3]}"
    settings = (*UNEVEN, splitfed(variant), "stop.rounds=2")
    again, other = trained(*settings, model)[1], trained(*settings, model, "seed=1")[1]
    without = trained(*settings, "model={kind: mlp, hidden: [7]}")[1]

    assert torch.equal(trained(*settings, model)[1], again)
    assert not torch.allclose(other, again, atol=1e-3)
    assert not torch.allclose(without, again, atol=1e-3)


def test_a_step_of_psl_with_a_lost_part_has_one_set_of_masks() -> None:
    """Server and devices step along gradients of one forward pass of PyTorch: of all samples, and of those left."""
    model = "model={kind: mlp, hidden: [7], dropout: [0.3, 0.3]}"
    fed, _ = trained(*UNEVEN, model, "stop.rounds=1", splitfed("psl"))
    task, w = fed.task, fed.task.model.initial()
    [cut, *_] = cuts_of(task.model)
    size, joint = cut.device.n_shared, JointSteps(task.model, task.data, cut.device.n_shared, fed.streams)
    start = fed.initial_model()
    jobs = [fed.learner.job(k, start, SgdPlan(LR, BATCH, epochs=1), (0,), 0) for k in islice(fed.devices(), 3)]
    own = [DeviceBatches(job) for job in jobs]
    rows = [batches[0] for batches in own]

    network = copy.deepcopy(nn.Sequential(*task.model.layers)).train()
    parameters = list(network.parameters())
    x, y = task.data.x[torch.cat(rows)], task.data.y[torch.cat(rows)]
    with torch_seed(int(fed.streams("split", 0, 0).integers(2**63))):
        losses = nn.functional.cross_entropy(network(x), y, reduction="none")
    parts = losses.split([len(its) for its in rows])

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, parameters, retain_graph=True)])

    for there in ([0, 1, 2], [2, 0], [1]):
        found = (w - joint.together(w, LR, own, there, 0, (0, 0))) / LR
        expected = gradient(torch.cat([parts[place] for place in there]).mean())
        torch.testing.assert_close(found[:size], expected[:size], rtol=0, atol=1e-5)
        torch.testing.assert_close(found[size:], gradient(losses.mean())[size:], rtol=0, atol=1e-5)
        assert len(there) == 3 or (expected - gradient(losses.mean()))[:size].norm() > 1e-2


@pytest.mark.parametrize("optimizer", ["{kind: momentum, beta: 0.5}", "adam"])
def test_each_end_of_v2_has_a_state_of_its_own(optimizer: str) -> None:
    """Momentum or Adam of PyTorch for the server's part, and another for each device's, make the same model."""
    settings = (*UNEVEN, "stop.rounds=1", f"{splitfed('v2', cohort=5, lr=0.02)[:-1]}, local_optimizer: {optimizer}}}")
    fed, found = trained(*settings)
    its, makes = Oracle(fed), torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
    how = {"lr": 0.02} if optimizer == "adam" else {"lr": 0.02, "momentum": 0.5}
    back = nn.Parameter(its.w[its.size :].clone())
    fronts = {k: nn.Parameter(its.w[: its.size].clone()) for k in range(5)}
    server, devices = makes([back], **how), {k: makes([front], **how) for k, front in fronts.items()}
    left = {k: its.batches(k, 0) for k in fronts}
    for k, bit in its.arrived[0]:
        if bit != 32 * its.size:
            fronts[k].grad, back.grad = its.gradients(fronts[k].detach(), back.detach(), left[k].pop(0))
            server.step()
            devices[k].step()
    front = its.mean({k: fronts[k].detach() for k in its.whole_parts(0)})

    torch.testing.assert_close(found.double(), torch.cat([front, back.detach()]), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("variant", "when"), [("v2", "round 1"), ("psl", "round 1, step 2")])
def test_training_that_diverges_says_so(variant: str, when: str) -> None:
    """Steps far too large end the run with when it was, and with what to change."""
    said = f"splitfed, {when}: training diverges, got parameters that are not finite with lr=1e"
    with pytest.raises(ScenarioError, match=said):
        trained(*UNEVEN, splitfed(variant, lr=1e30))


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_is_trained_for_the_clock(variant: str) -> None:
    """With losses, deadlines, departures and stragglers, a run without training has the same events, and keeps laws."""
    trouble = (
        *LOSSY,
        "devices.straggler={kind: shifted-exponential, mean_factor: 0.5}",
        "devices.availability={kind: periodic, on_s: 0.2, off_s: 0.05}",
    )
    settings = (*UNEVEN, *trouble, "stop.rounds=8", splitfed(variant, deadline_s=0.01 if variant == "psl" else 0.05))
    fed, _ = trained(*settings)
    frames = fed.ledger.frames()
    lost = {*frames["transfers"]["lost"], *frames["computes"]["stopped"]}

    assert fed.ledger.event_digest() == timed(*settings).ledger.event_digest()
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())
    assert {"erased", "deadline"} <= lost
    assert lost & {"away", "left"}
    assert not small_scenario(*settings).events_depend_on_learning


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_goes_on_from_a_checkpoint(variant: str) -> None:
    """Cut after each of its rounds and resumed, a run with losses has the same events, and the same model to a bit."""
    settings = (*UNEVEN, *LOSSY, splitfed(variant))
    fed, expected = trained(*settings)
    last, final = resumed_every_round(5, *settings)

    assert torch.equal(last.read(final), expected)
    assert last.ledger.event_digest() == fed.ledger.event_digest()


def test_a_timing_only_run_has_no_values() -> None:
    """Its final model cannot be read."""
    settings = (*UNEVEN, splitfed("v2"))
    fed = small_federation(*settings, timing_only=True)
    final = fed.run(small_scenario(*settings).algorithm)

    with pytest.raises(ScenarioError, match="timing-only run"):
        fed.read(final)
