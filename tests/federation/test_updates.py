"""Updates and their evaluation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from fednet_emu.algorithms.base import Algorithm
from fednet_emu.compression import COMPRESSIONS
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.learning_task import LearningTask
from fednet_emu.kernel.clock import Process
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.data.partitions.base import Partitioned
from fednet_emu.network.air.transfer import Delivery
from fednet_emu.records.laws import verify
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import ALGORITHM_SETTINGS, assert_it_goes_on, settings_of, stacked

UP, DOWN = "network.uplink.compression=", "network.downlink.compression="
LOSSY = "network.uplink.message_loss={kind: random, probability: 0.4}"
SCHEMES = {
    "qsgd": "{kind: qsgd, levels: 3}",
    "elias": "{kind: qsgd, levels: 1, coding: elias}",
    "top-k": "{kind: top-k, share: 0.3}",
    "sign": "sign",
    "chain": "{kind: chain, stages: [{kind: top-k, share: 0.5}, {kind: qsgd, levels: 7}]}",
}


def compressed(kind: str) -> set[str]:
    """The links on which an algorithm sends models that can be compressed."""
    return {link for link in ("uplink", "downlink") if f"{link}-compression" in ALGORITHMS[kind].uses}


def gradient(fed: Federation, w: torch.Tensor, k: int) -> torch.Tensor:
    """The gradient of the mean squared error of a linear model [10] on a device's samples, by hand."""
    rows, data = fed.task.slice_of(k), fed.task.data
    x = torch.cat([data.x[rows], torch.ones(len(data.x[rows]), 1)], 1)
    point = w.clone().requires_grad_()
    loss = torch.nn.functional.mse_loss(x @ point, data.y[rows].reshape(-1))
    (found,) = torch.autograd.grad(loss, point)
    return found


@pytest.mark.parametrize("scheme", ["top-k", "sign", "qsgd", "chain"])
def test_a_run_is_the_hand_written_loop(scheme: str) -> None:
    """FedAvg with both links compressed, eight rounds: the loop by hand has the same model to 1e-5."""
    fed, [found] = stacked("stop.rounds=8", UP + SCHEMES[scheme], DOWN + SCHEMES["sign"])
    chosen = small_scenario(UP + SCHEMES[scheme]).network.uplink.compression
    streams, w, n = Streams(0), fed.task.model.initial(), len(found)
    known, left, server_left = w, [torch.zeros(n)] * 4, torch.zeros(n)
    for t in range(8):
        if t:  # signs of the update of the server's model, with the server's memory
            p = w - known + server_left
            size = p.abs().mean()
            delta = torch.where(p >= 0, size, -size)
            known, server_left = known + delta, p - delta
        total = torch.zeros(n)
        for k in range(4):
            p = -0.1 * gradient(fed, known, k) + left[k]
            if scheme == "top-k":
                read = p * (p.abs() >= p.abs().sort().values[-3])
            elif scheme == "sign":
                read = torch.where(p >= 0, p.abs().mean(), -p.abs().mean())
            else:
                read = chosen.compress(p, streams("compression", k, 0, t)).read / (
                    1 + min(5 / 49, 5**0.5 / 7) if scheme == "chain" else 1
                )
            left[k] = left[k] if scheme == "qsgd" else p - read
            total += read / 4
        w = known + total

    assert (w - found).norm() <= 1e-5 * (found - fed.task.model.initial()).norm()
    assert (found - fed.task.model.initial()).norm() > 0.05


def test_bits_are_those_of_the_scheme() -> None:
    """Ten parameters: the first model goes whole, then signs; uploads are three entries of 32 + 4 bits, and headers."""
    fed = run_small(UP + SCHEMES["top-k"], DOWN + "sign", "network.overhead={kind: header, header_bit: 8}")
    sizes = fed.ledger.frame("transfers").groupby("direction")["size_bit"].apply(list)

    assert sizes["uplink"] == [3 * 36 + 8] * 12
    assert sizes["downlink"] == [320 + 8, 10 + 32 + 8, 10 + 32 + 8]


def test_a_message_sent_again_is_the_same() -> None:
    """A device compresses once: the draws and the memory of a second attempt are those of the first."""
    seen: list[Any] = []

    def server(fed: Federation) -> Process:
        w = fed.initial_model()
        x = fed.defer(torch.add, w, 1.0)
        for loss in (True, False, False):
            transfer = fed.uplink(fed.device(0), x, since=w)
            if loss:
                yield fed.sleep(1e-6)
                transfer.cancel(Delivery.given_up(fed.now_s))
            else:
                yield transfer
            seen.append((transfer.lost or transfer.cancelled, transfer.content))

    fed = small_federation(UP + "{kind: random-k, share: 0.3, error_feedback: true}")
    fed.run(type("Own", (), {"run": staticmethod(server)}))
    (first, lost), (second, again), (_, new) = seen

    assert (first, second) == ("deadline", "")
    assert again is lost
    assert new is not again
    assert torch.equal(fed.read(again), fed.read(lost))
    assert not torch.equal(fed.read(new), fed.read(again))


def test_what_was_left_out_survives_a_loss() -> None:
    """A device is told of no loss: its memory goes on from what it compressed, and what was lost is lost."""
    fed, [w] = stacked(UP + "{kind: top-k, share: 0.3}", "stop.rounds=1", "algorithm.cohort=1", LOSSY, "seed=2")
    sender = fed.ledger.frame("transfers").query("direction == 'uplink'").iloc[0]
    left = fed.links._uploads._compressor._left[int(sender["sender"]), 0]
    initial = fed.task.model.initial()
    p = -0.1 * gradient(fed, initial, int(sender["sender"]))

    assert sender["loss_reason"] == "erased"
    assert torch.equal(w, initial)
    assert torch.allclose(fed.read(left), p * (p.abs() < p.abs().sort().values[-3]), atol=1e-6)


def test_who_missed_a_model_is_sent_it_whole() -> None:
    """Three devices get the update; one that was away in the second round gets the third model whole."""
    away = "devices.availability={kind: windows, devices: {3: [[0, 0.00232], [0.0039, 1000]]}}"
    fed = run_small(DOWN + "sign", away, "stop.rounds=4")
    frames = fed.ledger.frames()
    sizes = (
        frames["transfers"].query("direction == 'downlink'").groupby("requested_s")["size_bit"].apply(sorted).tolist()
    )

    assert frames["rounds"]["invited"].tolist()[:3] == [4, 3, 4]
    assert sizes == [[320], [42], [42, 320], [42]]


@pytest.mark.parametrize("condition", ["ideal", pytest.param("30 % loss", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", sorted(kind for kind in ALGORITHM_SETTINGS if compressed(kind)))
def test_every_algorithm_that_says_so_sends_fewer_bits(kind: str, condition: str) -> None:
    """Fewer on the links that it names; serial, batched and no training have the same events; every law holds."""
    way = {"uplink": UP, "downlink": DOWN}
    settings = settings_of(kind, condition)
    small = [way[link] + SCHEMES["chain" if link == "uplink" else "sign"] for link in sorted(compressed(kind))]
    plain, (fed, w) = run_small(*settings, timing_only=True), stacked(*settings, *small)
    batched, w_batched = stacked(*settings, *small, "training.engine=batched")
    timed = run_small(*settings, *small, timing_only=True)

    runs = plain.ledger.transfers, fed.ledger.transfers
    if condition == "ideal":
        for code, link in enumerate(("uplink", "downlink")):
            sizes = [run.column("size_bit")[run.column("direction") == code] for run in runs]
            least = [min(size[size > 32]) for size in sizes]  # a number alone is no model
            assert (least[1] < least[0]) == (link in compressed(kind))
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())
    assert fed.ledger.event_digest() == batched.ledger.event_digest()
    assert torch.allclose(w, w_batched, atol=1e-4)
    assert small_scenario(*settings).events_depend_on_learning or (
        timed.ledger.event_digest() == fed.ledger.event_digest()
    )


@pytest.mark.parametrize("kind", sorted(set(ALGORITHM_SETTINGS)))
def test_an_algorithm_that_sends_no_update_refuses(kind: str) -> None:
    """It says so before the run, for each link; one that does send updates has nothing to say."""
    for link in ("uplink", "downlink"):
        scenario = small_scenario(*ALGORITHM_SETTINGS[kind], f"network.{link}.compression=qsgd")
        found = [f"{'.'.join(path)}: {what}" for path, what in scenario.contradictions() if "compress" in what]
        refused = f"network.{link}.compression: the algorithm {kind} has nothing to compress on the {link}, no upd"

        assert [text.startswith(refused) for text in found] == ([] if link in compressed(kind) else [True])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_goes_on_from_a_checkpoint_file(scheme: str) -> None:
    """Memories of devices are saved."""
    settings = settings_of("fedavg", "30 % loss", UP + SCHEMES[scheme], DOWN + "sign", "evaluation.every_rounds=3")
    assert_it_goes_on(*settings)


def test_elias_codes_are_counted_and_bounded() -> None:
    """Each message takes what its values need; without training it takes the bound, and the scenario says so."""
    settings = (UP + "{kind: qsgd, levels: 1, coding: elias}", "stop.rounds=6")
    full, timed = run_small(*settings), run_small(*settings, timing_only=True)
    bits = full.ledger.frame("transfers").query("direction == 'uplink'")["size_bit"]

    assert small_scenario(*settings).events_depend_on_learning
    assert not small_scenario().events_depend_on_learning
    assert bits.nunique() > 1
    assert bits.max() <= 1 + 32 + 10 * 2
    assert set(timed.ledger.frame("transfers").query("direction == 'uplink'")["size_bit"]) == {1 + 32 + 10 * 2}
    assert timed.learner.nominal


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_the_cost_counts_bits(kind: str) -> None:
    """A model's upload, as the run then sends it."""
    fed = run_small(UP + kind, "data.features=19")
    uploads = fed.ledger.frame("transfers").query("direction == 'uplink'")["size_bit"]

    assert set(uploads) == {Outlook(small_scenario(UP + kind, "data.features=19")).cost.upload_bit}


def test_none_is_as_if_there_were_no_setting() -> None:
    """With `none` nothing is made or remembered, and the events are the same."""
    plain, none = run_small(), run_small(UP + "none", DOWN + "none")

    assert none.ledger.event_digest() == plain.ledger.event_digest()
    assert none.graph._created == plain.graph._created
    assert none.links._uploads is None
    assert none.links._publications is None


def test_since_has_an_entry_for_each_part() -> None:
    """A payload of two parts with one model for them is a mistake in the algorithm, and says so."""

    def server(fed: Federation) -> Process:
        w = fed.initial_model()
        yield fed.uplink(fed.device(0), (w, 3), since=w)

    fed = small_federation(UP + "sign")
    with pytest.raises(ValueError, match="since: not one for each part, got 1 for 2; give None for the rest"):
        fed.run(type("Own", (), {"run": staticmethod(server)}))


CLASSES = (
    "data={kind: synthetic, n_samples: 200, n_test: 203, features: 9, classes: 3, separation: 2}",
    "partition={kind: dirichlet, alpha: 0.5}",
    "model=softmax",
)


def test_the_initial_and_the_last_model_are_evaluated_in_any_case() -> None:
    """With one evaluation every 2 rounds, a run of 5 rounds has rounds 0, 2, 4 and 5, each at its own end."""
    fed = run_small("evaluation.every_rounds=2", "stop.rounds=5")
    evaluations = fed.ledger.frame("evaluations")

    assert evaluations["round"].tolist() == [0, 2, 4, 5]
    assert evaluations["simulated_s"].tolist() == pytest.approx([0, 4.64e-3, 9.28e-3, 11.6e-3], abs=1e-12)
    assert evaluations["uplink_bit"].tolist() == [0, 2 * 1280, 4 * 1280, 5 * 1280]


@pytest.mark.parametrize(
    "settings",
    [
        ("evaluation.every_rounds=5",),
        ("evaluation.per_device=true",),
        ("evaluation={every_rounds: null, every_s: 0.001, per_device: true}",),
    ],
)
def test_evaluation_only_observes(settings: tuple[str, ...]) -> None:
    """However often and whatever is evaluated, events, final model, bits, energy and time are the same."""
    varied = (*CLASSES, "algorithm.cohort=2", "devices.straggler={kind: pareto, alpha: 2}", "stop.rounds=6")
    often, seldom = run_small(*varied), run_small(*varied, *settings)

    assert often.ledger.event_digest() == seldom.ledger.event_digest()
    assert often.ledger.evaluations.column("loss")[-1] == seldom.ledger.evaluations.column("loss")[-1]
    assert often.ledger.energy_j == seldom.ledger.energy_j


def test_metrics_are_those_of_a_second_implementation() -> None:
    """Pooled loss and accuracy, worst device and spread, recomputed in numpy from the model's numbers."""
    scenario = small_scenario(*CLASSES, "evaluation.per_device=true", "stop.rounds=3")
    fed = small_federation(*CLASSES, "evaluation.per_device=true", "stop.rounds=3")
    final = fed.run(scenario.algorithm)
    assert final is not None
    streams = Streams(scenario.seed)
    samples = scenario.data.load(None, streams("data"))
    _, test = scenario.partition.split(samples, 4, streams("partition"))

    weight, bias = np.split(fed.read(final).double().numpy(), [27])
    scores = samples.test_x.double().numpy() @ weight.reshape(3, 9).T + bias
    labels = samples.test_y.numpy()
    losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(len(labels)), labels]
    hits = scores.argmax(1) == labels
    by_device = [hits[test.of(device)].mean() for device in range(4) if len(test.of(device))]
    last = fed.ledger.frame("evaluations").iloc[-1]

    assert last["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert last["accuracy"] == pytest.approx(hits.mean())
    assert last["worst_accuracy"] == pytest.approx(min(by_device))
    assert last["std_accuracy"] == pytest.approx(np.std(by_device))
    assert fed.accuracy == last["accuracy"]


def test_a_regression_has_a_loss_and_no_accuracy() -> None:
    """What does not apply is not a number, also per device."""
    fed = run_small("evaluation.per_device=true")
    last = fed.ledger.frame("evaluations").iloc[-1]

    assert last["loss"] > 0
    assert all(math.isnan(last[name]) for name in ("accuracy", "worst_accuracy", "std_accuracy"))
    assert fed.accuracy is None


def test_test_samples_that_nobody_owns_leave_the_spread_open() -> None:
    """Without test samples on devices there is a pooled accuracy and no worst device; own models have no score."""
    scenario, fed = small_scenario(*CLASSES), small_federation(*CLASSES)
    samples = scenario.data.load(None, Streams(0)("data"))
    train, _ = scenario.partition.split(samples, 4, Streams(0)("partition"))
    nobody = Partitioned.from_owners(np.full(len(samples.test_y), -1), 4)
    task = LearningTask(fed.task.model, samples, (train, nobody), torch.device("cpu"), timing_only=False)

    scores = task.score(fed.task.model.initial(), per_device=True)

    assert 0 <= scores.pooled.accuracy <= 1
    assert len(scores.accuracies) == 0
    with pytest.raises(ScenarioError, match=r"^partition: no device has one of the .* test samples, .*; give .*group"):
        task.score_own([fed.task.model.initial()] * 4, per_device=True)


def test_devices_have_a_table_of_their_own() -> None:
    """Evaluated per device, the mean over devices weighted by test samples is the pooled accuracy."""
    frames = run_small(*CLASSES, "evaluation.per_device=true", "stop.rounds=2").ledger.frames()
    own = frames["device_evaluations"]
    weighted = (own["accuracy"] * own["samples"]).groupby(own["round"]).sum() / own["samples"].groupby(
        own["round"]
    ).sum()

    assert weighted.to_numpy() == pytest.approx(frames["evaluations"]["accuracy"].to_numpy())


def test_a_timing_only_run_evaluates_nothing() -> None:
    """Without training there is nothing to measure."""
    assert len(run_small(timing_only=True).ledger.evaluations) == 0


EVERY_MS = "evaluation={every_rounds: null, every_s: 0.001, per_device: true}"


def test_evaluation_every_so_many_seconds() -> None:
    """Rounds end at 2.32, 4.64 and 6.96 ms: each millisecond has the model that was the global one then."""
    timed, by_round = run_small(EVERY_MS), run_small("evaluation.per_device=true")
    rows, rounds = timed.ledger.frame("evaluations"), by_round.ledger.frame("evaluations").set_index("round")

    assert rows["simulated_s"].tolist() == pytest.approx([0, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 6.96e-3], abs=1e-12)
    assert rows["round"].tolist() == [0, 0, 0, 1, 1, 2, 2, 3]
    assert rows["loss"].tolist() == rounds.loc[rows["round"], "loss"].tolist()
    assert rows["uplink_bit"].tolist() == [0, 0, 3 * 320, 1280, 1280 + 2 * 320, 2560, 2560 + 320, 3840]
    assert timed.ledger.frame("device_evaluations")["round"].tolist() == [t for t in range(4) for _ in range(4)]


def test_what_ends_at_an_instant_is_in_its_evaluation() -> None:
    """A round that ends at the very instant is evaluated with its own model, once, whatever else is evaluated."""
    for more in ("", ", every_rounds: null"):
        fed = run_small(f"evaluation={{every_s: 0.00232{more}}}")
        assert fed.ledger.evaluations.column("round").tolist() == [0, 1, 2, 3]


def test_timed_evaluation_does_not_lengthen_a_run() -> None:
    """It ends when it would have, at its last round or at its limit, with nothing evaluated later."""
    for limit in ("stop={rounds: 3}", "stop={simulated_s: 0.005}"):
        timed, plain = run_small(EVERY_MS, limit), run_small(limit)
        assert timed.clock.now == plain.clock.now
        assert timed.round == plain.round
        assert timed.ledger.evaluations.column("simulated_ns").max() <= timed.clock.now


def test_timed_evaluation_ignores_runs_without_training() -> None:
    """There is nothing to measure, and the events are the same."""
    timed = run_small(EVERY_MS, timing_only=True)

    assert len(timed.ledger.evaluations) == 0
    assert timed.ledger.event_digest() == run_small().ledger.event_digest()


class OwnModels(Algorithm):
    """Device d's own model is d times the vector of ones."""

    def run(self, fed: Federation) -> Process:
        fed.initial_model()
        own = [fed.graph.constant(float(d) * torch.ones(fed.task.model.size)) for d in range(fed.n_devices)]
        fed.end_of_round(own, invited=0, arrived=1)
        yield fed.clock.sleep(0)


def test_own_models_are_scored_on_the_samples_of_their_devices() -> None:
    """Each device's loss is that of its own model on its own test samples; the pooled one weighs all samples alike."""
    fed = small_federation("evaluation.per_device=true", "stop.rounds=1")
    fed.run(OwnModels())
    frames, scenario = fed.ledger.frames(), small_scenario()
    streams = Streams(scenario.seed)
    samples = scenario.data.load(None, streams("data"))
    _, test = scenario.partition.split(samples, 4, streams("partition"))

    def errors(device: int) -> np.ndarray:
        own = test.of(device)
        return ((device * (samples.test_x[own].sum(1) + 1) - samples.test_y[own]) ** 2).double().numpy()

    last = frames["device_evaluations"].query("round == 1")
    assert last["loss"].tolist() == pytest.approx([errors(d).mean() for d in range(4)], rel=1e-5)
    assert last["samples"].sum() == 40
    pooled = np.concatenate([errors(d) for d in range(4)]).mean()
    assert frames["evaluations"].iloc[-1]["loss"] == pytest.approx(pooled, rel=1e-5)


def test_the_largest_training_loss_of_own_models_is_measured_too() -> None:
    """It is the maximum over devices of the mean loss of a device's own model on its own training samples."""
    fed = small_federation("evaluation.worst_train_loss=true", "stop.rounds=1")
    fed.run(OwnModels())
    data = fed.task.data
    losses = [
        float(((d * (data.x[rows].sum(1) + 1) - data.y[rows]) ** 2).mean())
        for d, rows in enumerate(map(fed.task.slice_of, range(4)))
    ]

    assert fed.ledger.evaluations.column("worst_train_loss")[-1] == pytest.approx(max(losses), rel=1e-5)
