"""SAFA against a loop of a few lines, the three classes of devices, its stories, and its synchronous limit."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from torch import Tensor

from fednet_emu.federation.federation import Federation
from fednet_emu.records.laws import verify
from fednet_emu.testing import run_small
from tests.algorithms.asynchronous.by_hand import FLOP, INSTANT_LINKS, LOCAL, close, descended, trained
from tests.algorithms.small import ENGINES

SLOW = (1.0e6, 0.71e6, 0.43e6, 0.13e6)
"""Three devices that need 0.7, 1.0 and 1.7 ms, and one that needs 5.5 ms."""
IDEAL = (f"devices.speed={{kind: list, flop_per_s: {list(SLOW)}}}", *INSTANT_LINKS)


def safa(fraction: float, lag_tolerance: int, **settings: Any) -> str:
    more = ", ".join(f"{key}: {value}" for key, value in settings.items())
    return f"algorithm={{kind: safa, {LOCAL}, selected_fraction: {fraction}, lag_tolerance: {lag_tolerance}, {more}}}"


def simulated(
    fed: Federation, fraction: float, tau: int, deadline_s: float, rounds: int
) -> tuple[Tensor, list[tuple[int, int, int]]]:
    """The rules of the authors' page, for devices that are always there: W, and (picked, undrafted, deprecated)."""
    n, now_s = len(SLOW), 0.0
    big_w = fed.task.model.initial().double()
    own, cache = [big_w] * n, [big_w] * n
    version, trips, ready_s, before, counts = [0] * n, [0] * n, [math.inf] * n, set(), []
    for t in range(1, rounds + 1):
        deprecated = [k for k in range(n) if version[k] < t - tau]
        for k in range(n):
            if k in deprecated or version[k] == t - 1:  # synchronises
                own[k] = big_w
                version[k] = max(version[k], t - 1)
                own[k] = descended(fed, k, trips[k], own[k])
                ready_s[k], trips[k] = now_s + FLOP / SLOW[k], trips[k] + 1
        quota, picked, others, end_s = math.ceil(fraction * n), [], [], now_s + deadline_s
        for k in sorted((k for k in range(n) if ready_s[k] <= end_s), key=lambda k: ready_s[k]):
            (others if k in before else picked).append(k)
            if len(picked) == quota:
                end_s = ready_s[k]
                break
        else:
            if not any(end_s < ready_s[k] < math.inf for k in range(n)):  # nobody is at work any more
                end_s = max(ready_s[k] for k in picked + others)
        missing = quota - len(picked)
        picked, undrafted = picked + others[:missing], others[missing:]
        for k in deprecated:
            cache[k] = big_w
        for k in picked:
            cache[k] = own[k]
        big_w = sum(fed.task.n_samples_of(k) * cache[k] for k in range(n)) / sum(fed.task.n_samples)
        for k in undrafted:
            cache[k] = own[k]
        for k in picked + undrafted:
            version[k], ready_s[k] = t, math.inf
        before, now_s = set(picked), end_s
        counts.append((len(picked), len(undrafted), len(deprecated)))
    return big_w, counts


CASES = {
    "half of them": (0.5, 3, 0.01),
    "one at a time": (0.25, 5, 0.01),
    "a short deadline": (1.0, 3, 0.002),
    "little tolerance": (0.75, 2, 0.0018),
    "no tolerance": (0.5, 1, 0.0015),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("fraction", "tau", "deadline_s"), CASES.values(), ids=CASES)
def test_it_is_the_protocol_of_the_paper(fraction: float, tau: int, deadline_s: float, engine: str) -> None:
    """Twelve rounds have the picked, undrafted and deprecated devices of the rules, and their model."""
    settings = (*IDEAL, safa(fraction, tau, deadline_s=deadline_s), "stop.rounds=12", f"training.engine={engine}")
    w, fed = trained(*settings, "evaluation.every_rounds=5")
    expected, counts = simulated(fed, fraction, tau, deadline_s, 12)

    assert [(row["picked"], row["undrafted"], row["deprecated"]) for row in fed.ledger.series["safa"]] == counts
    assert close(w, expected)


def test_the_cases_have_all_that_can_happen() -> None:
    """Between them, devices are undrafted, deprecated, and picked though they were picked before."""
    seen = [row for fraction, tau, s in CASES.values()
            for row in run_small(*IDEAL, safa(fraction, tau, deadline_s=s), "stop.rounds=12", timing_only=True)
            .ledger.series["safa"]]  # fmt: skip

    assert any(row["undrafted"] for row in seen)
    assert any(row["deprecated"] for row in seen)
    assert max(row["picked"] for row in seen) >= 3


def test_with_everybody_in_time_it_is_federated_averaging() -> None:
    """With C = 1 and no deadline all are picked in every round: models, times and bits are those of FedAvg."""
    more = ("data.n_samples=83", "stop.rounds=5")
    work = "lr: 0.1, batch_size: null, local_steps: 1"
    w, fed = trained(*more, f"algorithm={{kind: safa, {work}, selected_fraction: 1, lag_tolerance: 5}}")
    expected, synchronous = trained(*more, f"algorithm={{kind: fedavg, cohort: 4, {work}}}")

    assert fed.clock.now == synchronous.clock.now
    assert fed.ledger.sent_bit == synchronous.ledger.sent_bit
    assert [row["picked"] for row in fed.ledger.series["safa"]] == [4] * 5
    assert close(w, expected)


# ---- what happens when -----------------------------------------------------------------------------------------------

TWO = (
    "devices.count=2",
    "data.n_samples=40",
    "devices.speed={kind: list, flop_per_s: [1e6, 0.25e6]}",
    "algorithm={kind: safa, lr: 0.1, batch_size: null, local_steps: 1, selected_fraction: 0.5, lag_tolerance: 3}",
)


def test_the_story_of_a_slow_device() -> None:
    """Messages take 320 us, computing 720 of dev-0 and 2880 of dev-1, and one model makes a round.

    Dev-0 makes round 1 at 1.36 ms. In round 2 it comes at 2.72 ms, but it was picked before: the round waits for
    dev-1, which comes at 3.52 ms, is picked, and leaves dev-0's second model undrafted. Both are up to date then.
    """
    fed = run_small(*TWO, "stop.rounds=2", timing_only=True)
    frames = fed.ledger.frames()
    rounds = [(row["picked"], row["undrafted"], row["deprecated"]) for row in fed.ledger.series["safa"]]

    assert frames["rounds"]["ended_s"].tolist() == pytest.approx([1.36e-3, 3.52e-3], abs=1e-12)
    assert frames["rounds"][["invited", "arrived"]].values.tolist() == [[2, 1], [2, 2]]
    assert rounds == [(1, 0, 0), (1, 1, 0)]
    activations = fed.ledger.series["activations"]
    assert [(row["device"], row["staleness"]) for row in activations] == [(0, 0), (1, 1), (0, 0)]
    assert [row["arrived_s"] for row in activations] == pytest.approx([1.36e-3, 3.52e-3, 2.72e-3], abs=1e-12)


def test_the_story_of_a_deprecated_device() -> None:
    """Dev-1 needs minutes: after three rounds of 2 ms without it, it is cancelled, given W(3) and starts anew."""
    slow = "devices.speed={kind: list, flop_per_s: [1e6, 1]}"
    fed = run_small(*TWO, slow, "algorithm.deadline_s=0.002", "stop.rounds=7", timing_only=True)
    computes = fed.ledger.frame("computes").query("device == 1")
    deprecated = [row["deprecated"] for row in fed.ledger.series["safa"]]
    ended_s = fed.ledger.frame("rounds")["ended_s"].tolist()

    assert deprecated == [0, 0, 0, 1, 0, 0, 1]
    assert computes["stopped"].tolist() == ["deadline", "deadline", "end"]
    assert computes["ended_s"].tolist()[:2] == pytest.approx([ended_s[2], ended_s[5]], abs=1e-12)


def test_an_arrival_at_the_very_deadline_counts() -> None:
    """Dev-0's model comes at 1.36 ms: with that deadline it is in, a nanosecond earlier it is out."""
    arrived = [run_small(*TWO, f"algorithm.deadline_s={s}", "stop.rounds=1", timing_only=True)
               .ledger.rounds.column("arrived").tolist() for s in (1.36e-3, 1.359999e-3)]  # fmt: skip

    assert arrived == [[1], [0]]


def test_who_lost_its_upload_trains_on() -> None:
    """A tolerable device that is not at work gets nothing new: it starts to train from what it trained last."""
    loss = "network.uplink.message_loss={kind: random, probability: 0.5}"
    fed = run_small(safa(1.0, 4), loss, "stop.rounds=30", timing_only=True)
    frames = fed.ledger.frames()
    computes, downlinks = frames["computes"], frames["transfers"].query("direction == 'downlink'")
    trained_by = [list(own.itertuples()) for _, own in computes.groupby("device")]
    again = [(before.result, after.input) for own in trained_by for before, after in pairwise(own)]
    went_on = sum(before == after for before, after in again)

    assert went_on > 20
    assert downlinks["receivers"].sum() < len(computes) == 4 * 30
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())


def test_a_deprecated_device_that_is_away_is_not_heard_until_it_has_a_new_model() -> None:
    """Dev-1 is away when it is deprecated, and returns to send what is too old: it is refused, and given W.

    It would need 3.52 ms; it is there until 0.4 ms and from 3 ms on, and rounds of dev-0 end every 1.36 ms.
    """
    away = "devices.availability={kind: windows, devices: {1: [[0, 0.0004], [0.003, 1]]}}"
    deadline = "algorithm.deadline_s=0.00136"
    fed = run_small(*TWO, away, deadline, "algorithm.lag_tolerance=1", "stop.rounds=6", timing_only=True)
    uplinks = fed.ledger.frame("transfers").query("direction == 'uplink' and sender == 1")

    assert [row["deprecated"] for row in fed.ledger.series["safa"]] == [0, 1, 1, 1, 1, 1]
    assert uplinks[["ended_s", "loss_reason"]].values.tolist() == [[pytest.approx(3.52e-3), ""]]
    assert {row["device"] for row in fed.ledger.series["activations"]} == {0}
