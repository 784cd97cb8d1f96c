"""Robust aggregation: every rule against a second one written without tensors, few arrivals, and real attacks."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.algorithms.aggregation import Aggregation, Krum, Mean, Median, MultiKrum, TrimmedMean, krum_scores
from fednet_emu.algorithms.fedavg import AGGREGATIONS
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import final
from tests.quick import examples

KINDS = {
    "krum": "{kind: krum, byzantine: 0}",
    "mean": "mean",
    "median": "median",
    "multi-krum": "{kind: multi-krum, byzantine: 0, m: 2}",
    "trimmed-mean": "{kind: trimmed-mean, count: 1}",
}
"""Settings for three or more of the four devices."""

Rows = list[list[float]]


def rows(least: int, most: int = 9) -> st.SearchStrategy[Rows]:
    """Some updates of three parameters; small whole numbers, so that sums are exact and ties occur."""
    return st.lists(st.lists(st.integers(-20, 20).map(float), min_size=3, max_size=3), min_size=least, max_size=most)


def aggregated(rule: Aggregation, updates: Rows) -> list[float]:
    """What a rule makes of updates of a model that is not zero, in double precision."""
    w = torch.tensor([1.0, -2.0, 4.0], dtype=torch.float64)
    return rule.update(w, [w + torch.tensor(update, dtype=torch.float64) for update in updates]).tolist()


def test_no_kind_is_untested() -> None:
    """Every kind of the table has its settings here, under its own name."""
    assert {*KINDS, "dp", "local-dp"} == set(AGGREGATIONS)  # which have tests of their own
    assert all(AGGREGATIONS[kind].kind == kind for kind in KINDS)


# ---- the rules -------------------------------------------------------------------------------------------------------


@examples(100)
@given(rows(1))
def test_the_median_is_that_of_pythons_statistics(updates: Rows) -> None:
    """Of each parameter by itself, for odd and even numbers."""
    assert aggregated(Median(), updates) == [median(column) for column in zip(*updates, strict=True)]


@examples(100)
@given(rows(1), st.floats(0, 0.49))
def test_the_trimmed_mean_leaves_out_a_share_at_either_end(updates: Rows, share: float) -> None:
    """The smallest and the largest floor(share n) values are taken away one by one."""
    expected = []
    for column in zip(*updates, strict=True):
        left = list(column)
        for _ in range(int(share * len(updates) + 1e-9)):
            left.remove(min(left))
            left.remove(max(left))
        expected.append(sum(left) / len(left))

    assert aggregated(TrimmedMean(share=share), updates) == pytest.approx(expected, rel=1e-12)


@examples(50)
@given(rows(5))
def test_a_count_is_left_out_at_either_end(updates: Rows) -> None:
    """With two of n left out at either end, what is left is the middle of the sorted values."""
    expected = [np.mean(sorted(column)[2:-2]) for column in zip(*updates, strict=True)]

    assert aggregated(TrimmedMean(count=2), updates) == pytest.approx(expected, rel=1e-12)


def test_a_share_is_not_rounded_down_by_floats() -> None:
    """A share of 0.29 of a hundred is 29, although 0.29 times 100 is less in floats."""
    updates = [[float(i**2)] * 3 for i in range(100)]

    assert aggregated(TrimmedMean(share=0.29), updates) == aggregated(TrimmedMean(count=29), updates)


def scores_by_hand(updates: Rows, byzantine: int) -> list[float]:
    """The scores of Krum, written out: the sum over the n - f - 2 nearest others of squared distances."""
    scores = []
    for i, one in enumerate(updates):
        far = sorted(
            sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) for j, other in enumerate(updates) if j != i
        )
        scores.append(sum(far[: len(updates) - byzantine - 2]))
    return scores


@examples(200)
@given(st.integers(0, 2).flatmap(lambda f: st.tuples(st.just(f), rows(2 * f + 3))), st.integers(1, 12) | st.none())
def test_krum_is_its_definition(drawn: tuple[int, Rows], m: int | None) -> None:
    """Scores, the best update, and the mean of the m best; of equal scores the first counts."""
    byzantine, updates = drawn
    scores = scores_by_hand(updates, byzantine)
    ranked = sorted(range(len(updates)), key=lambda i: (scores[i], i))
    best = [updates[i] for i in ranked[: len(updates) - byzantine if m is None else m]]

    assert krum_scores(torch.tensor(updates), byzantine).tolist() == scores
    assert aggregated(Krum(byzantine=byzantine), updates) == updates[ranked[0]]
    assert aggregated(MultiKrum(byzantine=byzantine, m=m), updates) == pytest.approx(np.mean(best, axis=0), rel=1e-12)


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(count=2), Krum(byzantine=2), MultiKrum(byzantine=2, m=3)])
@pytest.mark.parametrize("lie", [1e9, -1e9])
def test_two_liars_of_seven_cannot_move_it_far(rule: Aggregation, lie: float) -> None:
    """What is made of five honest updates and two arbitrary ones stays among the honest; a mean does not."""
    honest = np.random.default_rng(0).normal(size=(5, 3))
    updates = [*honest.tolist(), [lie] * 3, [lie, -lie, lie]]

    found = np.array(aggregated(rule, updates))

    assert (honest.min(0) <= found).all()
    assert (found <= honest.max(0)).all()
    assert np.abs(aggregated(Mean(), updates)).max() > 1e7


# ---- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"mean"}))
def test_a_run_is_the_hand_written_loop(kind: str) -> None:
    """Five rounds on ideal links, FedAvgM on top: the final model is that of a loop in NumPy."""
    changes = ("data.n_samples=83", "partition=iid", "stop.rounds=5", "algorithm.local_steps=3",
               f"algorithm.aggregation={KINDS[kind]}",
               "algorithm.server_optimizer={kind: momentum, lr: 0.5, beta: 0.5}")  # fmt: skip
    fed, found = final(*changes)
    data = fed.task.data
    x, y = np.column_stack([data.x.double().numpy(), np.ones(83)]), data.y.double().numpy()
    w, m = fed.task.model.initial().double().numpy(), np.zeros(10)
    for _ in range(5):
        updates = []
        for k in range(4):
            own, w_k = fed.task.slice_of(k), w.copy()
            for _ in range(3):
                w_k -= 0.1 * 2 / len(y[own]) * x[own].T @ (x[own] @ w_k - y[own])
            updates.append((w_k - w).tolist())
        ranked = [updates[i] for i in np.argsort(scores_by_hand(updates, 0), kind="stable")]
        middle = np.sort(updates, axis=0)[1:3].mean(0)  # of four, median and trimmed mean are the same
        m = 0.5 * m + {"krum": np.array(ranked[0]), "multi-krum": np.mean(ranked[:2], axis=0)}.get(kind, middle)
        w = w + 0.5 * m

    assert found.double().numpy() == pytest.approx(w, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_how_training_is_run_changes_no_event(kind: str) -> None:
    """Serial, batched and timing-only runs have the digest of plain averaging; with lr = 0 nothing moves by a bit."""
    settings = ("algorithm.cohort=3", "network.uplink.message_loss={kind: random, probability: 0.2}", "stop.rounds=6",
                f"algorithm.aggregation={KINDS[kind]}")  # fmt: skip
    serial, w = final(*settings)
    batched, w_batched = final(*settings, "training.engine=batched")
    timed = run_small(*settings, timing_only=True)
    plain = run_small(*settings[:-1], timing_only=True)
    still = final(*settings, "algorithm.lr=0")[1]

    assert len({fed.ledger.event_digest() for fed in (serial, batched, timed, plain)}) == 1
    assert torch.allclose(w, w_batched, atol=1e-5)
    assert torch.equal(still, serial.task.model.initial())


def test_with_too_few_arrivals_the_model_stays() -> None:
    """Krum needs three updates for f = 0: in rounds with fewer nothing moves, in the others something does."""
    changes = ("algorithm.aggregation={kind: krum, byzantine: 0}", "stop.rounds=12",
               "network.uplink.message_loss={kind: random, probability: 0.4}")  # fmt: skip
    fed, models = small_federation(*changes), []
    fed.observers.append(lambda fed: models.append(fed.latest))
    start = fed.initial_model()
    fed.run(small_scenario(*changes).algorithm)
    arrived = fed.ledger.rounds.column("arrived").tolist()
    values = [fed.read(w) for w in (start, *models)]
    stayed = [torch.equal(before, after) for before, after in pairwise(values)]

    assert stayed == [count < 3 for count in arrived]
    assert 0 < sum(stayed) < 12


@pytest.mark.parametrize(
    ("rule", "least"), [("{kind: krum, byzantine: 1}", 5), ("{kind: trimmed-mean, count: 2}", 5), ("median", 1)]
)
def test_a_rule_that_can_never_act_is_a_contradiction(rule: str, least: int) -> None:
    """A cohort of four is too small for it, which the scenario says before anything runs."""
    found = list(small_scenario(f"algorithm.aggregation={rule}").contradictions())
    what = f"never has enough updates, got at most 4 a round; must be at least {least}"

    assert found == ([(("algorithm", "aggregation"), what)] if least > 4 else [])


def test_it_withstands_flipped_labels() -> None:
    """Three of ten devices call every digit a zero: averaging learns some of that, the robust rules less."""
    changes = ("data=digits", "model=softmax", "devices.count=10", "partition=iid", "algorithm.cohort=10",
               "algorithm.lr=0.5", "algorithm.local_steps=5", "stop.rounds=15", "evaluation.every_rounds=15",
               "attack={kind: label-flip, malicious: 3, target: 0}")  # fmt: skip
    three = ("{kind: krum, byzantine: 3}", "{kind: multi-krum, byzantine: 3}", "{kind: trimmed-mean, share: 0.3}")
    runs = (
        run_small(*changes, f"algorithm.aggregation={rule}").ledger.evaluations for rule in ("mean", "median", *three)
    )
    mean, *robust = [(run.column("accuracy")[-1], run.column("attack_success")[-1]) for run in runs]

    assert all(accuracy > mean[0] and success < mean[1] for accuracy, success in robust), (mean, robust)
