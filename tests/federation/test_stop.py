"""When runs stop, plans of rounds, and tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import fednet_emu as fe
from fednet_emu.algorithms.selection.base import RoundWork
from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Samples
from fednet_emu.learning.data.datasets.text import characters
from fednet_emu.learning.graph.jobs import SgdPlan
from fednet_emu.records.laws import verify
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.federation.texts import TEXT, TWO_DEVICES, loss_of, plain_loop, two_owners

CLASSES = ("data={kind: synthetic, n_samples: 200, n_test: 200, features: 9, classes: 2}", "model=softmax")


def test_simulated_time_ends_the_run_in_mid_round() -> None:
    """The run ends at exactly that instant, and everything under way is on the books as cut off by the end."""
    fed = run_small("stop={simulated_s: 3.5e-3}")
    frames = fed.ledger.frames()
    cut = frames["transfers"].query("loss_reason == 'end'")

    assert fed.clock.now_s == 3.5e-3
    assert fed.round == 1
    assert cut[["sender", "transmitted_bit"]].values.tolist() == [[0, pytest.approx(140.0)], [1, 0], [2, 0], [3, 0]]
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())


def test_simulated_time_cuts_computations() -> None:
    """A computation that is under way at the end is recorded with the part that was done."""
    fed = run_small("stop={simulated_s: 0.5e-3}")
    computes = fed.ledger.frame("computes")

    assert set(computes["stopped"]) == {"end"}
    assert computes["flop"].tolist() == pytest.approx([180.0] * 4)


def test_a_round_that_ends_at_the_very_limit_counts() -> None:
    """The instant of the limit belongs to the run."""
    assert run_small("stop={simulated_s: 2.32e-3}").round == 1


def test_bits_end_the_run_at_the_end_of_a_round() -> None:
    """A round sends 5 x 320 bit; the run ends with the first round that reaches the limit."""
    assert [run_small(f"stop={{bits: {bits}}}").round for bits in (1, 1600, 1601, 3200)] == [1, 1, 2, 2]


def test_energy_ends_the_run_at_the_end_of_a_round() -> None:
    """The limit is reached with the last round and not before."""
    per_round_j = run_small("stop.rounds=1").ledger.energy_j

    fed = run_small(f"stop={{energy_j: {2.5 * per_round_j}}}")

    assert fed.round == 3


def test_accuracy_ends_the_run() -> None:
    """The last evaluation is the first that reaches the target."""
    fed = run_small(*CLASSES, "stop={accuracy: 0.9, rounds: 100}")
    accuracies = fed.ledger.evaluations.column("accuracy")

    assert fed.round < 100
    assert accuracies[-1] >= 0.9
    assert max(accuracies[:-1]) < 0.9


@pytest.mark.parametrize("other", ["", "rounds: 9, "])
@pytest.mark.parametrize(("key", "value"), [("accuracy", "0.9"), ("milestones", "[{rounds: 1, accuracy: 1}]")])
def test_an_accuracy_cannot_end_a_regression(other: str, key: str, value: str) -> None:
    """No accuracy is ever measured, so that it would be ignored, or the run would never end: it is refused."""
    if not other and key == "milestones":
        other = "bits: 9, "
    with pytest.raises(ScenarioError, match=f"stop.{key}: a regression has no accuracy, got one; leave it out"):
        small_federation(f"stop={{{other}{key}: {value}}}")


def test_an_accuracy_alone_cannot_end_a_timing_only_run() -> None:
    """Such a run would never end; with another limit it does."""
    with pytest.raises(ScenarioError) as caught:
        small_federation(*CLASSES, "stop={accuracy: 0.9}", timing_only=True)

    what = "cannot end a timing-only run, got no other limit; give rounds or simulated_s"
    assert str(caught.value) == f"stop.accuracy: {what}"
    assert run_small(*CLASSES, "stop={accuracy: 0.9, rounds: 2}", timing_only=True).round == 2


LEARNING = (*CLASSES, "stop.rounds=6", "algorithm.lr=0.01")


def test_a_run_that_misses_a_milestone_ends_there() -> None:
    """It ends at the end of the first round after the milestone at which it has less, as an uninterrupted run tells."""
    whole = run_small(*LEARNING)
    evaluations = whole.ledger.frame("evaluations")
    accuracies, times_s = evaluations["accuracy"].tolist(), evaluations["simulated_s"].tolist()
    assert len(accuracies) == 7
    assert max(accuracies) < 1

    for after in (1, 3, 6):
        for milestone in (f"rounds: {after}", f"simulated_s: {times_s[after]}"):
            fed = run_small(*LEARNING, f"stop.milestones=[{{{milestone}, accuracy: 1}}]")
            assert fed.round == after
            assert list(fed.ledger.evaluations.column("accuracy")) == accuracies[: after + 1]


def test_a_milestone_that_is_met_changes_nothing() -> None:
    """An accuracy that a run has is enough, the same number too; before its time a milestone counts for nothing."""
    whole = run_small(*LEARNING)
    least = float(min(whole.ledger.evaluations.column("accuracy")[1:]))

    assert run_small(*LEARNING, f"stop.milestones=[{{rounds: 1, accuracy: {least!r}}}]").round == 6
    assert run_small(*LEARNING, "stop.milestones=[{bits: 1e12, accuracy: 1}, {energy_j: 1e6, accuracy: 1}]").round == 6
    assert run_small(*LEARNING, "stop.milestones=[{bits: 1, accuracy: 1}]").round == 1
    assert run_small(*LEARNING, "stop.milestones=[{energy_j: 1e-30, accuracy: 1}]").round == 1


def test_a_milestone_counts_for_nothing_where_no_accuracy_is_measured() -> None:
    """A timing-only run has none."""
    assert run_small(*LEARNING, "stop.milestones=[{rounds: 1, accuracy: 1}]", timing_only=True).round == 6


# ---- patience --------------------------------------------------------------------------------------------------------

WAITING = (*CLASSES, "stop.rounds=60", "server.validation_samples=50", "algorithm.lr=0.3")


def test_a_run_ends_when_its_validation_loss_has_not_fallen_for_so_long() -> None:
    """At the first row at which the least loss is three evaluations old, as the uninterrupted run tells."""
    whole = run_small(*WAITING, "algorithm.lr=20", "stop.patience={evaluations: 60}")
    losses = whole.ledger.frame("validation")["loss"].tolist()
    best = [losses.index(min(losses[: n + 1])) for n in range(len(losses))]
    ends = next(n for n in range(len(losses)) if n - best[n] >= 3)

    fed = run_small(*WAITING, "algorithm.lr=20", "stop.patience={evaluations: 3}")

    assert fed.round == ends < 60
    assert fed.ledger.frame("validation")["without_gain"].tolist()[-1] == 3
    assert whole.task.n_validation == 50
    assert len(whole.task.data.y) == 150


def test_the_test_set_decides_nothing() -> None:
    """The accuracies are those of the models on the validation samples, and the run ends two after its best one."""
    fed = small_federation(*WAITING, "stop.patience={metric: accuracy, evaluations: 2, min_gain: 0.02}")
    seen = []
    fed.observers.append(lambda its: seen.append(1 - its.task.validation_error(its.read(its.latest))))
    fed.run(small_scenario(*WAITING).algorithm)
    found = fed.ledger.frame("validation")["accuracy"].tolist()

    assert found[1:] == pytest.approx(seen)
    best, without = found[0], 0
    for value in found[1:]:
        best, without = (value, 0) if value > best + 0.02 else (best, without + 1)
    assert without == 2


def test_models_of_devices_count_by_their_mean() -> None:
    """Where each device trains alone."""
    fed = run_small(*WAITING, "stop.rounds=2", "stop.patience={}", "algorithm={kind: local, cohort: 4, lr: 0.1}")
    models = [fed.read(model) for model in fed.latest]  # type: ignore[union-attr]
    mean = sum(1 - fed.task.validation_error(model) for model in models) / 4

    assert fed.ledger.frame("validation")["accuracy"].tolist()[-1] == pytest.approx(mean)


STEADY = (
    "channel={include: urban-micro, fading: none, bandwidth_hz: 3e5}",
    "devices.speed={kind: list, flop_per_s: [1e6, 2e6, 4e6, 8e6]}",
    "algorithm.local_steps=20",
)


def planned(planner: str, *more: str) -> tuple[str, ...]:
    return (*STEADY, f"network.uplink.access={{kind: planned, planner: {planner}}}", *more)


def plan_and_uploads(fed):
    """The rows of the plan and of the uploads, both by round and device."""
    frames = fed.ledger.frames()
    up = frames["transfers"][frames["transfers"]["direction"] == "uplink"].sort_values(["requested_s", "sender"])
    return frames["plan"], up, frames


@pytest.mark.parametrize("planner", ["least-time", "{kind: least-energy, stretch: 1.7}"])
def test_uploads_arrive_when_they_were_planned_to(planner):
    """Without fading and stragglers every upload ends at the planned end of the round, to a microsecond."""
    plan, up, frames = plan_and_uploads(run_small(*planned(planner)))
    rounds = frames["rounds"].set_index("round")
    ends_s = rounds.loc[plan["round"], "started_s"].to_numpy() + plan["ends_s"].to_numpy()

    assert len(up) == len(plan) == 12
    assert np.sort(up["ended_s"].to_numpy()) == pytest.approx(np.sort(ends_s), abs=1e-6)
    assert rounds["ended_s"].to_numpy() == pytest.approx(ends_s[3::4], abs=1e-6)


ONE_CELL = ("devices.placement={kind: list, xy_m: [[20, 0], [90, 0], [40, 30], [150, 0]]}",)
TWO_CELLS = (
    "devices.placement={kind: list, xy_m: [[20, 0], [4910, 0], [90, 0], [4980, 0]]}",
    "network.cells={kind: list, xy_m: [[0, 0], [5000, 0]]}",
)
"""Stations so far apart that they hardly hear each other, each with a near and a far device."""


@pytest.mark.parametrize("where", [ONE_CELL, TWO_CELLS], ids=["one cell", "two cells"])
@pytest.mark.parametrize(
    ("planner", "asked"),
    [
        ("least-time", 4),
        ("{kind: least-energy, stretch: 1.7}", 4),
        ("{kind: fedl, j_per_s: 0.1}", 4),
        ("{kind: fedl, j_per_s: 10}", 4),
        ("{kind: resource-blocks, blocks: 4}", 4),
        ("{kind: resource-blocks, blocks: 1}", None),
    ],
)
def test_each_upload_ends_when_the_plan_says(planner, asked, where):
    """By device, in turns or in parts, where the devices with slow downlinks are not asked, and in each cell."""
    more = (*where, "network.overhead={kind: header, header_bit: 400}", "stop.rounds=2")
    plan, up, frames = plan_and_uploads(run_small(*planned(planner, *more), timing_only=True))
    started_s = dict(zip(frames["rounds"]["round"], frames["rounds"]["started_s"], strict=True))
    ends_s = {(row.round, row.device): started_s[row.round] + row.ends_s for row in plan.itertuples()}
    ended_s = {(1 + (row.requested_s >= started_s[2]), row.sender): row.ended_s for row in up.itertuples()}

    assert len(ends_s) == 2 * (asked or (1 if where is ONE_CELL else 2))
    assert ended_s == pytest.approx(ends_s, abs=1e-6)


def test_least_energy_spends_what_clocks_and_powers_say():
    """Time goes by 1/x and energy by x^2 of a clock, power times time is what an upload takes."""
    plan, up, frames = plan_and_uploads(run_small(*planned("{kind: least-energy, stretch: 1.7}")))
    full = run_small(*planned("least-time")).ledger.frame("computes")
    computes = frames["computes"]
    clock = plan["clock_part"].to_numpy()
    order = np.argsort(computes["device"].to_numpy(), kind="stable")
    of_plan = np.argsort(plan["device"].to_numpy(), kind="stable")
    of_full = np.argsort(full["device"].to_numpy(), kind="stable")

    def took_s(rows):
        return (rows["ended_s"] - rows["started_s"]).to_numpy()

    assert took_s(computes)[order] * clock[of_plan] == pytest.approx(took_s(full)[of_full], rel=1e-6)
    assert computes["energy_j"].to_numpy()[order] == pytest.approx(
        full["energy_j"].to_numpy()[of_full] * clock[of_plan] ** 2
    )
    by_device = plan.set_index(["round", "device"])["power_part"]
    part = np.array([by_device[1 + place // 4, sender] for place, sender in enumerate(up["sender"])])
    full_w = 10 ** ((23 - 30) / 10)
    assert up["energy_j"].to_numpy() == pytest.approx(part * full_w * (up["ended_s"] - up["started_s"]).to_numpy())


def test_clocks_of_an_earlier_plan_are_forgotten():
    """Candidates compute their losses before a round is planned: at their full clocks in the second round, too."""
    ask = "algorithm.selection={kind: power-of-choice, candidates: 4}"
    cmos = "devices.compute_energy={kind: cmos, clock_hz: 1e9, flop_per_cycle: 8}"
    rows = run_small(*planned("{kind: least-energy, stretch: 5}", ask, cmos, "stop.rounds=2"), timing_only=True)
    forward = rows.task.model.forward_flop_per_sample * 20
    computes = rows.ledger.frame("computes").query(f"flop < {1.5 * forward}")
    took_s = (computes["ended_s"] - computes["started_s"]).to_numpy()

    assert min(row["clock_part"] for row in rows.ledger.series["plan"]) < 0.5
    assert took_s == pytest.approx(forward / np.array([1e6, 2e6, 4e6, 8e6])[computes["device"].to_numpy()], rel=1e-3)
    assert len(took_s) == 8


def test_less_energy_for_more_time():
    """Least energy takes longer than least time, and less energy; both hold every conservation law."""
    quick, slow = (run_small(*planned(planner)).ledger for planner in ("least-time", "least-energy"))

    def spent_j(ledger):
        up = ledger.frame("transfers").query("direction == 'uplink'")["energy_j"].sum()
        return up + ledger.frame("computes")["energy_j"].sum()

    assert spent_j(slow) < 0.5 * spent_j(quick)
    assert slow.frame("rounds")["ended_s"].max() == pytest.approx(2 * quick.frame("rounds")["ended_s"].max())
    assert not any(verify(slow, frozenset({"downlink"})).values())


def test_fedl_takes_turns():
    """No two uploads overlap, and all of them use the whole band."""
    plan, up, _ = plan_and_uploads(run_small(*planned("fedl")))
    up = up.sort_values("started_s")

    assert (up["started_s"].to_numpy()[1:] >= up["ended_s"].to_numpy()[:-1]).all()
    assert set(plan["share"]) == {1.0}


def test_uploads_are_lost_as_often_as_the_plan_says():
    """Blocks with an interference at which q = 1 - exp(-m / x) is about a third lose about a third."""
    noisy = "{kind: resource-blocks, blocks: 4, inr_db: [60, 60, 60, 60], waterfall_db: 10}"
    rate = "channel.rate={kind: shannon, min_efficiency_bps_hz: 0}"
    plan, up, _ = plan_and_uploads(run_small(*planned(noisy, rate, "stop.rounds=100"), timing_only=True))
    mean, n = plan["error"].mean(), len(up)

    assert 0.05 < mean < 0.95
    spread = np.sqrt((plan["error"] * (1 - plan["error"])).sum()) / n
    assert (up["loss_reason"] == "erased").mean() == pytest.approx(mean, abs=4 * spread)


def test_devices_without_a_block_are_not_asked():
    """With two blocks two of four devices are in each round, and the record of a round says so."""
    _, up, frames = plan_and_uploads(run_small(*planned("{kind: resource-blocks, blocks: 2}")))

    assert frames["rounds"]["invited"].tolist() == [2, 2, 2]
    assert len(up) == 6


def test_a_plan_that_nobody_fits_into_is_told_once():
    """No upload is short enough: nobody is asked in any round, and a warning says why, once."""
    with pytest.warns(UserWarning, match="the planner resource-blocks lets none of the 4 devices of round 1") as told:
        fed = run_small(*planned("{kind: resource-blocks, max_upload_s: 1.0e-9}"))

    assert fed.ledger.frame("rounds")["invited"].tolist() == [0, 0, 0]
    assert len(told) == 1


def test_spare_band_is_used_if_it_may_be():
    """With `unused_bandwidth: used` no round is longer than planned, and some upload is sooner."""
    idle, used = (
        run_small(
            *planned("least-time", "devices.straggler={kind: shifted-exponential, mean_factor: 1}", f"{SPARE}={w}")
        )
        for w in ("idle", "used")
    )

    assert used.now_s < idle.now_s


SPARE = "network.uplink.access.unused_bandwidth"


def test_clocks_scale_time_and_energy():
    """Half the clock takes twice the time and a quarter of the energy of every computation."""
    full, half = (run_small(f"devices.cpu_frequency.part={part}").ledger.frame("computes") for part in (1.0, 0.5))

    assert (half["ended_s"] - half["started_s"]).to_numpy() == pytest.approx(
        2 * (full["ended_s"] - full["started_s"]).to_numpy()
    )
    assert half["energy_j"].to_numpy() == pytest.approx(full["energy_j"].to_numpy() / 4)


def expected_s(setting):
    """What the server expects of 720 us of work on each device, as rules of selection see it."""
    fed = small_federation(setting)
    plan = SgdPlan(lr=0.1, batch_size=None, steps=1)
    return RoundWork(fed, plan, 1, 1).compute_s


def test_the_slowest_clock_in_time_is_chosen():
    """720 us of work within 1.8 ms runs at f = C D / T, 0.4 of the clock; within 1 s at the lowest."""
    full = run_small().ledger.frame("computes")["energy_j"].to_numpy()
    for within_s, part in ((0.0018, 0.4), (1.0, 0.1), (0.0001, 1.0)):
        computes = run_small(f"devices.cpu_frequency.within_s={within_s}").ledger.frame("computes")

        assert (computes["ended_s"] - computes["started_s"]).to_numpy() == pytest.approx(720e-6 / part)
        assert expected_s(f"devices.cpu_frequency.within_s={within_s}") == pytest.approx(720e-6 / part)
        assert computes["energy_j"].to_numpy() == pytest.approx(full * part**2)


SCENARIO = {
    **TWO_DEVICES,
    "partition": "group",
    "model": {"kind": "char-lstm", "units": 12, "layers": 1},
    "algorithm": {"kind": "fedavg", "lr": 1.0, "local_steps": 2, "batch_size": None, "cohort": 2},
    "stop": {"rounds": 2},
}
SAMPLES = two_owners(250, "last")


def test_an_lstm_learns_more_than_how_frequent_characters_are(tmp_path):
    """From a text file, its loss falls far below the entropy of single characters."""
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    data = {"kind": "text", "path": str(tmp_path / "text.txt"), "owner": "file", "length": 8, "stride": 1}
    algorithm = {**SCENARIO["algorithm"], "batch_size": 16, "local_steps": 20, "lr": 2.0}
    changes = {"data": data, "partition": "iid", "algorithm": algorithm, "stop": {"rounds": 10}}
    run = fe.run({**SCENARIO, **changes, "evaluation": {"metrics": ["perplexity"]}}, progress=False)

    share = np.bincount(characters(TEXT)) / len(TEXT)
    entropy = -sum(part * math.log(part) for part in share if part)
    assert run.evaluations["loss"].iloc[-1] < 0.5 * entropy
    assert run.evaluations["perplexity"].to_numpy() == pytest.approx(np.exp(run.evaluations["loss"].to_numpy()))
    assert run.summary["perplexity"] == run.evaluations["perplexity"].iloc[-1]


@pytest.mark.parametrize("engine", ["serial", "batched", "by-rule"])
def test_fedavg_on_tokens_is_a_plain_loop(engine):
    """With full batches, two steps a round on each device, weighted by their samples; on every engine."""

    def network() -> nn.Module:
        torch.manual_seed(5)
        return nn.Sequential(nn.Embedding(80, 3), nn.Flatten(), nn.Linear(15, 80))

    run = fe.run({**SCENARIO, "training": {"engine": engine}}, data=SAMPLES, model=network(), progress=False)

    whole = plain_loop(network, SAMPLES, 1.0)
    loss = loss_of(whole, SAMPLES.test_x, SAMPLES.test_y).item()
    assert run.evaluations["loss"].iloc[-1] == pytest.approx(loss, abs=1e-5)
    for found, expected in zip(run.model.state_dict().values(), whole.state_dict().values(), strict=True):
        assert torch.allclose(found, expected, atol=1e-5)


def test_metrics_of_devices_stand_beside_their_losses_and_events_stay():
    """Without metrics there are no such columns, and the digest of the events is the same."""
    evaluation = {"per_device": True, "metrics": [{"kind": "top-k", "k": 3}, "macro-f1"]}
    run = fe.run({**SCENARIO, "evaluation": evaluation}, data=SAMPLES, progress=False)
    plain = fe.run({**SCENARIO, "evaluation": {"per_device": True}}, data=SAMPLES, progress=False)

    for with_, without in ((run.evaluations, plain.evaluations), (run.device_evaluations, plain.device_evaluations)):
        assert list(with_) == [*without, "top_3", "macro_f1"]
        assert with_[list(without)].equals(without)
    assert run.summary["event_digest"] == plain.summary["event_digest"]
    own = run.device_evaluations
    pooled = own.groupby("round").apply(lambda rows: np.average(rows["top_3"], weights=rows["samples"]))
    assert pooled.to_numpy() == pytest.approx(run.evaluations["top_3"].to_numpy())


def test_several_labels_are_learnt_by_their_mean_binary_cross_entropy():
    """The accuracy is the share of labels that are right; a regression's metrics are refused."""
    x = torch.randn(80, 3, generator=torch.Generator().manual_seed(1))
    y = (x[:, :2] > 0).float()
    samples = Samples(x[:60], y[:60], x[60:], y[60:], None, multi_label=True)
    changes = {"partition": "iid", "model": "softmax", "stop": {"rounds": 20}}
    run = fe.run(
        {**SCENARIO, **changes, "evaluation": {"metrics": ["exact-match", "micro-f1", "average-precision"]}},
        data=samples,
        progress=False,
    )

    outputs = run.model(samples.test_x).detach()
    right = (outputs > 0) == (samples.test_y > 0)
    last = run.evaluations.iloc[-1]
    probability = outputs.sigmoid()
    losses = -(samples.test_y * probability.log() + (1 - samples.test_y) * (1 - probability).log())
    assert last["loss"] == pytest.approx(losses.mean().item(), rel=1e-5)
    assert last["accuracy"] == pytest.approx(right.float().mean().item())
    assert last["accuracy"] > 0.8
    assert last["exact_match"] == pytest.approx(right.all(1).float().mean().item())
    with pytest.raises(ScenarioError, match=r"evaluation.metrics.0: rmse suits regression, got data for multi-label"):
        fe.run({**SCENARIO, **changes, "evaluation": {"metrics": ["rmse"]}}, data=samples, progress=False)


def test_targets_of_several_numbers_are_a_regression():
    """The squared error is the sum over the targets of a sample."""
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(2))
    y = x @ torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    changes = {"partition": "iid", "model": "linear", "stop": {"rounds": 30}}
    algorithm = {**SCENARIO["algorithm"], "lr": 0.1}
    run = fe.run(
        {**SCENARIO, **changes, "algorithm": algorithm, "evaluation": {"metrics": ["r2", "rmse"]}},
        data=Samples(x[:30], y[:30], x[30:], y[30:], None),
        progress=False,
    )
    last = run.evaluations.iloc[-1]
    assert last["r2"] > 0.99
    assert last["rmse"] == pytest.approx(math.sqrt(last["loss"] / 2), rel=1e-5)
