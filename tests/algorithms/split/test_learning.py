"""Split learning: learning and messages."""

from __future__ import annotations

import copy
from itertools import islice

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fednet_emu as fe
from fednet_emu.algorithms.split.splitfed import CutLink, DeviceBatches, JointSteps
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.federation import SgdPlan
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.learning.models.base import torch_seed
from fednet_emu.learning.models.cuts import Cut, cuts_of
from fednet_emu.records.laws import verify
from fednet_emu.testing import small_federation, small_scenario
from tests.algorithms.small import assert_it_goes_on
from tests.algorithms.small import final as trained
from tests.algorithms.split.oracle import BATCH, EPOCHS, LOSSY, LR, UNEVEN, Oracle, splitfed, timed
from tests.quick import crossed

VARIANTS = ("sl", "v1", "v2", "psl")
LOCAL = f"lr: {LR}, batch_size: {BATCH}, local_epochs: {EPOCHS}"


@pytest.mark.parametrize(("engine", "cut", "variant"), crossed(["serial", "batched"], [1, 2], VARIANTS))
def test_a_network_that_is_really_cut_learns_the_same(variant: str, cut: int, engine: str) -> None:
    """After five rounds in which messages and devices are lost, the model is that of the loop to 1e-5."""
    settings = (*UNEVEN, *LOSSY, splitfed(variant, cut=cut), f"training.engine={engine}")
    fed, found = trained(*settings)
    its = Oracle(fed, cut)
    rounds = fed.ledger.frame("rounds")

    assert rounds["arrived"].sum() < rounds["invited"].sum() == 15
    assert (fed.ledger.frame("transfers")["loss_reason"] == "erased").any()
    assert (found.double() - its.w).norm() > 0.5
    torch.testing.assert_close(found.double(), getattr(its, variant)(), rtol=0, atol=1e-5)


def test_the_order_of_service_matters_in_v2_only() -> None:
    """Served in reverse, the same batches make another model; both are far from the one of v1."""
    fed, found = trained(*UNEVEN, "stop.rounds=3", splitfed("v2", cohort=5))
    its = Oracle(fed)
    its.cohorts = [list(range(5))] * 3

    torch.testing.assert_close(found.double(), its.v2(), rtol=0, atol=1e-5)
    assert (its.v2() - its.v2(reverse=True)).norm() > 1e-2
    assert (its.v2() - its.v1()).norm() > 1e-1


def test_a_step_of_psl_whose_parts_are_all_lost_is_the_server_s_alone() -> None:
    """One device at a time, many of whose uploads are lost: its part stays what it was, the server's has moved."""
    lossy = "network.uplink.message_loss={kind: random, probability: 0.3}"
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
    lossy = "network.uplink.message_loss={kind: random, probability: 0.2}"
    frames = timed(*UNEVEN, lossy, splitfed("psl", retries=0), "stop.rounds=12").ledger.frames()
    ups = frames["transfers"][frames["transfers"]["receiver"] == -1].sort_values("requested_s", kind="stable")
    ups = ups.assign(round=frames["rounds"]["ended_s"].searchsorted(ups["requested_s"], side="right"))

    assert (ups["loss_reason"] == "erased").sum() > 12
    for _, own in ups.groupby(["round", "sender"]):
        assert (own["loss_reason"].iloc[:-1] == "").all()


def test_the_server_of_psl_computes_the_batches_that_have_come() -> None:
    """Its work in each step is a whole number of samples: the labels and activations that arrived for the step."""
    lossy = "network.uplink.message_loss={kind: random, probability: 0.3}"
    fed = timed(*UNEVEN, lossy, splitfed("psl", cohort=5, retries=0))
    frames = fed.ledger.frames()
    cut = cuts_of(fed.task.model)[0]
    ups = frames["transfers"].query("receiver == -1 and loss_reason == ''")
    batches = ups[ups["size_bit"] != 32 * cut.device.n_shared]
    samples = batches["size_bit"].sum() / (32 * (cut.width + 1))

    assert (frames["transfers"]["loss_reason"] == "erased").sum() > 10
    assert frames["computes"].query("device == -1")["flop"].sum() == pytest.approx(samples * cut.server_flop)


def test_parts_of_psl_have_a_deadline_of_their_own() -> None:
    """Activations that are there in time, and parts of the model that are not: the latter are lost for the deadline."""
    fed = timed(*UNEVEN, splitfed("psl", cut=2, deadline_s=0.013))
    ups = fed.ledger.frame("transfers").query("receiver == -1 and loss_reason == 'deadline'")

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
    short = (*UNEVEN, "stop.rounds=3")
    bare = [setting for setting in short if "server" not in setting]
    fedavg, expected = trained(
        *bare, f"training.engine={engine}", f"algorithm={{kind: fedavg, cohort: 3, {LOCAL}, {more}}}"
    )

    assert not torch.equal(expected, fedavg.task.model.initial())
    for cut in (1, 2, "least-time"):
        fed, found = trained(*short, f"training.engine={engine}", f"{splitfed('v1', cut=cut)[:-1]}, {more}}}")
        assert torch.equal(found, expected)
        assert len(fed.ledger.transfers) > len(fedavg.ledger.transfers)


def test_v1_with_batch_norm_is_federated_averaging() -> None:
    """Running statistics are averaged with the part that they belong to."""
    images = ("data={kind: synthetic, features: [1, 8, 8], classes: 3, n_samples: 96, n_test: 20}", "partition=iid")
    model = ("model={kind: digit-model, channels: [2, 2, 2], units: [8, 4]}", "stop.rounds=2")
    _, expected = trained(*images, *model, f"algorithm={{kind: fedavg, cohort: 4, {LOCAL}}}")
    for cut in (1, 2, 5):
        _, found = trained(*images, *model, "server.flop_per_s=1e7", splitfed("v1", cohort=4, cut=cut))
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
    lost = {*frames["transfers"]["loss_reason"], *frames["computes"]["stopped"]}

    assert fed.ledger.event_digest() == timed(*settings).ledger.event_digest()
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())
    assert {"erased", "deadline"} <= lost
    assert lost & {"away", "left"}
    assert not small_scenario(*settings).events_depend_on_learning


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_goes_on_from_a_checkpoint(variant: str) -> None:
    """Whose part was lost is known again."""
    assert_it_goes_on(*UNEVEN, *LOSSY, splitfed(variant), "stop.rounds=3")


BPS = 1e6
TURNS = frozenset({"uplink", "downlink"})


def sent(fed: Federation) -> pd.DataFrame:
    return fed.ledger.frame("transfers")


# ---- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "model", "cut", "up", "down"),
    [
        ("64", "{kind: mlp, hidden: [32, 16]}", 1, 1_689_600, 1_638_400),
        ("64", "{kind: mlp, hidden: [32, 16]}", 2, 870_400, 819_200),
        ("[1, 8, 8]", "{kind: digit-model, channels: [8, 8, 8], units: [16, 8]}", 2, 6_604_800, 6_553_600),
    ],
)
def test_bits_of_eighty_batches_of_twenty(sample: str, model: str, cut: int, up: int, down: int) -> None:
    """1,600 samples and a network of widths 64-32-16-10, or of eight channels pooled to 4 x 4: 160 messages."""
    fed = timed(
        f"data={{kind: synthetic, features: {sample}, classes: 10, n_samples: 1600, n_test: 10}}",
        *("devices.count=1", f"model={model}", "server.flop_per_s=1e9", "stop.rounds=1"),
        splitfed("v1", cohort=1, cut=cut, batch_size=20, local_epochs=1),
    )
    batches = sent(fed).iloc[1:-1]
    ways = [batches[batches["receiver"] == end] for end in (-1, 0)]

    assert len(batches) == 160
    assert [int(way["size_bit"].sum()) for way in ways] == [up, down]
    for ends in (sent(fed).iloc[0], sent(fed).iloc[-1]):
        assert ends["size_bit"] == 32 * cuts_of(fed.task.model)[cut - 1].device.n_shared


def test_where_it_breaks_even_with_fedavg() -> None:
    """McMahan's CNN: behind its first, second and third layer splitting saves bits below 266, 514 and 11 samples."""

    def bits(n_samples: int, algorithm: str, *more: str) -> int:
        data = f"data={{kind: synthetic, features: [1, 28, 28], classes: 10, n_samples: {n_samples}, n_test: 10}}"
        settings = ("devices.count=1", "model=mcmahan-cnn", "stop.rounds=1", data, *more, algorithm)
        return int(sent(timed(*settings))["size_bit"].sum())

    local = "cohort: 1, lr: 0.1, batch_size: 20, local_epochs: 1"
    whole = bits(1, f"algorithm={{kind: fedavg, {local}}}")
    for cut, most in enumerate((265, 513, 10), start=1):
        for n_samples, pays in ((most, True), (most + 1, False)):
            split = f"algorithm={{kind: splitfed, cut: {cut}, {local}}}"
            assert (bits(n_samples, split, "server.flop_per_s=1e12") < whole) == pays


def test_parts_of_the_model_go_once_a_round_or_once_a_step() -> None:
    """The device's part goes down and up once for each turn in sl, v1 and v2, and once for each step in psl."""
    for variant, times in (("sl", 1), ("v1", 1), ("v2", 1), ("psl", 4)):
        settings = (*UNEVEN, "partition=iid", "devices.count=3", "network.downlink.mode=unicast")
        fed = timed(*settings, "data.n_samples=48", splitfed(variant), "stop.rounds=1")
        size_bit = 32 * cuts_of(fed.task.model)[0].device.n_shared
        parts = sent(fed)[sent(fed)["size_bit"] == size_bit]
        assert [int((parts["receiver"] == end).sum()) for end in (-1, 0, 1, 2)] == [3 * times] + [times] * 3


@given(
    n_samples=st.integers(1, 60),
    batch_size=st.none() | st.integers(1, 70),
    length=st.sampled_from([{"epochs": 1}, {"epochs": 3}, {"steps": 1}, {"steps": 7}]),
    drop_last=st.booleans(),
)
def test_sizes_of_batches_add_up(
    n_samples: int, batch_size: int | None, length: dict[str, int], drop_last: bool
) -> None:
    """As many as there are steps, as many samples as are processed; the smallest is that of `min_batch`."""
    plan = SgdPlan(0.1, batch_size, drop_last=drop_last, **length)
    sizes = plan.batch_sizes(n_samples)

    assert len(sizes) == plan.n_steps(n_samples)
    assert sum(sizes) == plan.n_samples_processed(n_samples)
    assert min(sizes) == plan.min_batch(n_samples)


# ---- times -----------------------------------------------------------------------------------------------------------

UNIT_S = 32e-6
"""Time of a number on a link of 1 Mbit/s."""
LAW = [
    *(
        (k, (4.5, 5, 2, 4, 4.5), n, t)
        for k, n, t in ((1, 1, 20), (1, 50, 1000), (4, 1, 35), (4, 50, 1015), (8, 50, 2015))
    ),
    *((3, (10, 5, 2, 4, 10), n, t) for n, t in ((1, 41), (50, 1560))),
    *((10, (100, 5, 2, 4, 100), n, t) for n, t in ((1, 256), (50, 10595))),
    *((30, (100, 5, 2, 4, 100), n, t) for n, t in ((1, 356), (50, 10695))),
]
"""Devices, times of forward, uplink, server, downlink and backward, steps, and the time that an independent model has
found for them: forward and backward are equal here, since a first layer needs no gradient of its input."""


def ping_pong(count: int, parts: tuple[float, ...], steps: int, queue: str = "fifo") -> int:
    """Simulated ns until equal devices have made all their steps, with links of 1 Mbit/s in turns.

    Four numbers and a label of each sample go up, and four come back.
    """
    forward, _, server, _, _ = (part * UNIT_S for part in parts)
    settings = (
        f"data={{kind: synthetic, features: 3, classes: 2, n_samples: {count * steps}, n_test: 2}}",
        *(f"devices.count={count}", "partition=iid", "model={kind: mlp, hidden: [4]}"),
        *(f"devices.speed.flop_per_s={2 * 3 * 4 / forward!r}", f"server.flop_per_s={3 * 2 * 4 * 2 / server!r}"),
    )
    fed = small_federation(*settings, timing_only=True)
    cut, link = cuts_of(fed.task.model)[0], CutLink(fed, SgdPlan(0.1, 1, epochs=1), queue, 0)
    fed.clock.run_process(all_steps(fed, link, cut), None)
    assert not any(verify(fed.ledger, TURNS).values())
    return int(fed.clock.now)


def all_steps(fed: Federation, link: CutLink, cut: Cut) -> fe.Process:
    """All devices at once, without the model at both ends of a round."""
    yield fed.gather(link.steps(k, cut, []) for k in fed.devices())


@pytest.mark.parametrize(("count", "parts", "steps", "units"), LAW)
def test_the_closed_form_to_the_nanosecond(count: int, parts: tuple[float, ...], steps: int, units: int) -> None:
    """T = T0 + (K - 1) m + (n - 1) max(T0, K m) for the sum T0 of the parts and the longest shared one, m."""
    t_0, m = sum(parts), max(parts[1:4])

    assert units == t_0 + (count - 1) * m + (steps - 1) * max(t_0, count * m)
    assert ping_pong(count, parts, steps) == units * 32_000


def test_the_server_is_the_bottleneck() -> None:
    """With 7 units for a batch it is m; computing them side by side leaves the uplink as m, and 7 in T0."""
    parts = (4.5, 5.0, 7.0, 4.0, 4.5)

    assert ping_pong(8, parts, 50) == (25 + 7 * 7 + 49 * 56) * 32_000
    assert ping_pong(8, parts, 50, "parallel") == (25 + 7 * 5 + 49 * 40) * 32_000


def test_the_relay_and_a_lone_device_by_hand() -> None:
    """N T0 for each device, and its part of the model there and back: sl of three, and v1 of one three times."""
    settings = (*UNEVEN, "devices.count=3", "partition=iid", "data.n_samples=48", "devices.speed={kind: fixed}")
    speed = ("devices.speed.flop_per_s=1e6", "stop.rounds=1")
    fed = timed(*settings, *speed, splitfed("sl"))
    cut = cuts_of(fed.task.model)[0]
    step_s = 8 * ((cut.forward_flop + cut.backward_flop) / 1e6 + cut.server_flop / 2e6 + 32 * (2 * cut.width + 1) / BPS)
    turn_s = 4 * step_s + 2 * 32 * cut.device.n_shared / BPS

    assert fed.clock.now == 3 * round(turn_s * NS_PER_S)
    for variant in ("v1", "v2"):
        assert timed(*settings, *speed, splitfed(variant, cohort=1)).clock.now == round(turn_s * NS_PER_S)


@pytest.mark.parametrize("variant", ["sl", "v1", "v2", "psl"])
def test_no_round_is_shorter_than_what_is_done_in_it(variant: str) -> None:
    """At least as long as any device needs by itself, and as each link and the server are busy; one batch at a time."""
    fed = timed(*UNEVEN, "devices.straggler={kind: shifted-exponential, mean_factor: 1.0}", splitfed(variant))
    frames = fed.ledger.frames()
    computes, rounds, links = frames["computes"], frames["rounds"], frames["transfers"]
    assert not any(verify(fed.ledger, TURNS).values())
    for start, end in zip(rounds["started_s"], rounds["ended_s"], strict=True):
        mine = computes[(computes["started_s"] >= start) & (computes["ended_s"] <= end)]
        busy_s = (mine["ended_s"] - mine["started_s"]).groupby(mine["device"]).sum()
        now = links[(links["started_s"] >= start) & (links["ended_s"] <= end)]
        on_air_s = (now["ended_s"] - now["started_s"]).groupby(now["receiver"] == -1).sum()
        assert max(busy_s.max(), on_air_s.max()) <= end - start + 1e-9


# ---- the cut that takes the least time -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speed", "server", "hidden"),
    [
        (1e8, 1e4, [2, 30]),
        (1e4, 1e9, [9, 3]),
        (1e8, 1e5, [9, 3]),
        (1e7, 1e7, [30, 2]),
        (1e6, 1e6, [2, 30]),
        (3e5, 1e6, [12, 6, 3]),
    ],
)
def test_least_time_is_the_best_of_all_cuts(speed: float, server: float, hidden: list[int]) -> None:
    """A lone device: of the rounds that are played with each cut, the shortest is the one with `least-time`."""
    settings = (*UNEVEN, "devices.count=1", f"devices.speed={{kind: fixed, flop_per_s: {speed}}}")
    settings = (*settings, f"server.flop_per_s={server}", f"model={{kind: mlp, hidden: {hidden}}}", "stop.rounds=1")
    each = [timed(*settings, splitfed("sl", cut=cut)).clock.now for cut in range(1, len(hidden) + 1)]

    assert len(set(each)) == len(each)
    assert timed(*settings, splitfed("sl", cut="least-time")).clock.now == min(each)


def test_least_time_goes_by_the_device() -> None:
    """A slow device keeps little, a fast one with a slow server much; what they learn is the same."""
    speed = "devices.speed={kind: list, flop_per_s: [1e4, 1e9, 1e4, 1e9, 1e4]}"
    settings = (*UNEVEN, speed, "server.flop_per_s=1e5", "stop.rounds=1")
    fed = timed(*settings, splitfed("v1", cohort=5, cut="least-time"))
    first = sent(fed)[sent(fed)["value_id"] >= 0].groupby("receiver")["size_bit"]
    sizes = [32 * cut.device.n_shared for cut in cuts_of(fed.task.model)]
    ups = sent(fed)[(sent(fed)["receiver"] == -1) & (sent(fed)["value_id"] >= 0)].set_index("sender")["size_bit"]

    assert len(first) > 0
    assert ups.sort_index().tolist() == [sizes[0], sizes[1], sizes[0], sizes[1], sizes[0]]


# ---- losses and cost -------------------------------------------------------------------------------------------------


def test_a_late_device_is_left_out_on_both_sides() -> None:
    """A device a hundred times slower is cancelled amid its steps; the model is that of the others."""
    even = (*UNEVEN, "partition=iid", "devices.count=4", "data.n_samples=64", "stop.rounds=2")
    slow = "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e4, 1e6]}"
    fed, found = trained(*even, slow, splitfed("v1", cohort=4, deadline_s=0.1))
    computes, rounds = fed.ledger.frame("computes"), fed.ledger.frame("rounds")
    bare = [setting for setting in even if "server" not in setting]
    _, expected = trained(
        *(*bare, "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1, 1e6]}"),
        "algorithm={kind: fedavg, cohort: 4, lr: 0.3, batch_size: 8, local_epochs: 2, deadline_s: 1}",
    )

    assert rounds["arrived"].tolist() == [3, 3]
    np.testing.assert_allclose(rounds["ended_s"] - rounds["started_s"], 0.1, rtol=1e-12)
    assert (computes[computes["device"] == 2]["stopped"] == "deadline").sum() == 2
    assert found.equal(expected)


def test_a_lost_gradient_ends_the_round_of_its_device() -> None:
    """Without retries nobody sends anything after a loss until the next round; with retries the message goes again."""
    lossy = ("network.downlink.message_loss={kind: random, probability: 0.1}", "network.downlink.mode=unicast")
    for retries in (0, 1):
        fed = timed(*UNEVEN, *lossy, "stop.rounds=4", splitfed("v1", cohort=5, retries=retries))
        rounds = fed.ledger.frame("rounds")
        own = sent(fed)[["sender", "receiver", "size_bit", "requested_s", "ended_s", "loss_reason"]]
        n_after = 0
        for start, end in zip(rounds["started_s"], rounds["ended_s"], strict=True):
            for k in range(5):
                mine = own[((own["sender"] == k) | (own["receiver"] == k)) & (own["requested_s"] >= start)]
                mine = mine[mine["requested_s"] < end].sort_values("requested_s", kind="stable")
                lost = mine[(mine["loss_reason"] != "") & (mine["size_bit"] != mine["size_bit"].iloc[0])]
                if len(lost):
                    after = mine[mine["requested_s"] >= lost["ended_s"].iloc[0]]
                    n_after += len(after)
                    assert retries == 0 or after["size_bit"].iloc[0] == lost["size_bit"].iloc[0]
        assert (n_after > 0) == (retries > 0)


@pytest.mark.parametrize(("variant", "each"), [("sl", 2 + 5 * 4), ("v1", 2 + 5 * 4), ("v2", 2 + 5 * 4), ("psl", 7 * 4)])
def test_check_tells_the_events(variant: str, each: int) -> None:
    """Transfers and computations of three devices with four batches each, for which psl shares those of the server."""
    data = "data={kind: synthetic, features: 9, classes: 3, n_samples: 42, n_test: 3}"
    settings = (*UNEVEN, "devices.count=3", "partition=iid", data, splitfed(variant), "network.downlink.mode=unicast")
    told = Outlook(small_scenario(*settings)).cost.events
    fed = timed(*settings)
    shared = 5 * 4 * 2 if variant == "psl" else 0

    assert told == 5 * 3 * each
    assert len(fed.ledger.transfers) + len(fed.ledger.computes) == told - shared


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_a_server_that_does_not_compute_is_refused() -> None:
    """Its speed is asked for before the run."""
    told = [what for _, what in small_scenario(*UNEVEN, "server.flop_per_s=null", splitfed("v1")).contradictions()]

    assert told == ["computes on the server, got no speed of it; give server.flop_per_s"]
