"""FedAvg and local SGD."""

from __future__ import annotations

from functools import cache
from itertools import chain, groupby, product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from fednet_emu.algorithms.base import LocalTraining
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import accumulated, average
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.streams import Streams
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import ALGORITHM_SETTINGS, settings_of, stacked
from tests.quick import examples

RAGGED = ("data.n_samples=83", "partition=iid")


def trained(*changes: str) -> tuple[Tensor, Federation]:
    """The final model of a run, and the federation."""
    fed = small_federation(*changes)
    final = fed.run(small_scenario(*changes).algorithm)
    assert final is not None
    return fed.read(final), fed


def design(fed: Federation, device: int | None = None) -> tuple[Tensor, Tensor]:
    """Inputs with a column of ones, and targets, of one device or of all, in double precision."""
    rows = slice(None) if device is None else fed.task.slice_of(device)
    x, y = fed.task.data.x[rows].double(), fed.task.data.y[rows].double()
    return torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1), y


def descended(w: Tensor, x: Tensor, y: Tensor, lr: float) -> Tensor:
    """One step of gradient descent on the mean squared error."""
    return w - lr * 2 / len(y) * x.T @ (x @ w - y)


# ---- the average -----------------------------------------------------------------------------------------------------


@examples(30)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6), st.floats(0, 2), st.integers(0, 99))
def test_equal_models_are_left_bit_for_bit(weights: list[int], server_lr: float, seed: int) -> None:
    """When nobody has moved, the average is the model itself, whatever the weights."""
    w = torch.randn(20, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(accumulated(average(w, weights, server_lr), [w.clone() for _ in weights]), w)


# ---- known limits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_weighting_counts_samples_or_devices(weighting: str) -> None:
    """Two devices with unequal numbers of samples make a step each; their models are averaged as asked for."""
    class_data = "data={kind: synthetic, n_samples: 83, n_test: 20, features: 9, classes: 2}"
    changes = ("devices.count=2", "algorithm.cohort=2", class_data, "partition={kind: dirichlet, alpha: 1}",
               "model=softmax", "seed=3", "stop.rounds=1", f"algorithm.weighting={weighting}")  # fmt: skip
    w, fed = trained(*changes)
    n = fed.task.n_samples
    weights = n.tolist() if weighting == "samples" else [1, 1]
    start = fed.task.model.initial()
    models = []
    for device in range(2):
        rows = fed.task.slice_of(device)
        point = start.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(
            fed.task.model.loss(point, fed.task.data.x[rows], fed.task.data.y[rows]), point
        )
        models.append((start - 0.1 * gradient).double())

    assert n[0] > 1.5 * n[1] or n[1] > 1.5 * n[0]
    assert torch.allclose(w.double(), (weights[0] * models[0] + weights[1] * models[1]) / sum(weights), atol=1e-6)


# ---- who takes part --------------------------------------------------------------------------------------------------


def invited(fed: Federation) -> list[tuple[int, ...]]:
    """The devices that received the model, round by round."""
    frames = fed.ledger.frames()
    return [tuple(group["receiver"]) for _, group in frames["receptions"].groupby("transfer")]


def test_more_devices_than_there_are_is_a_contradiction() -> None:
    """The scenario is refused with the setting and both numbers."""
    [(path, what)] = small_scenario("algorithm.cohort=5").contradictions()

    assert path == ("algorithm", "cohort")
    assert what == "invites more devices than there are, got 5; must be at most devices.count, 4"


# ---- loss ------------------------------------------------------------------------------------------------------------


def test_what_is_lost_is_left_out_of_the_mean() -> None:
    """A round's model is the weighted mean over just those whose uploads arrived."""
    changes = (*RAGGED, "network.uplink.message_loss={kind: random, probability: 0.5}", "stop.rounds=1", "seed=1")
    w, fed = trained(*changes)
    uplinks = fed.ledger.frame("transfers").query("direction == 'uplink'")
    arrived = uplinks.query("loss_reason == ''")["sender"].tolist()
    assert 0 < len(arrived) < 4
    start, n = fed.task.model.initial().double(), fed.task.n_samples
    expected = sum(n[k] * descended(start, *design(fed, k), 0.1) for k in arrived) / n[arrived].sum()

    assert torch.allclose(w.double(), expected, atol=1e-6)


def test_lost_uploads_are_sent_again_up_to_the_limit() -> None:
    """A device sends until its model has arrived, at most 1 + retries times a round; only then it is missing."""
    changes = ("network.uplink.message_loss={kind: random, probability: 0.5}", "algorithm.retries=2", "stop.rounds=20")
    fed = run_small(*changes, timing_only=True)
    frames = fed.ledger.frames()
    uplinks = frames["transfers"].query("direction == 'uplink'").sort_values(["value_id", "ended_s"])
    fates = [[row.loss_reason for row in rows] for _, rows in groupby(uplinks.itertuples(), lambda row: row.value_id)]

    assert all(set(fate[:-1]) <= {"erased"} and (fate[-1] == "" or len(fate) == 3) for fate in fates)
    assert {len(fate) for fate in fates} == {1, 2, 3}
    assert frames["rounds"]["arrived"].sum() == sum(fate[-1] == "" for fate in fates) < len(fates)


def test_an_arrival_at_the_very_deadline_counts() -> None:
    """The first upload ends at 1.36 ms: with that deadline it is in, a nanosecond earlier it is out."""
    arrived = [run_small(f"algorithm.deadline_s={s}", "stop.rounds=1").ledger.rounds.column("arrived").tolist()
               for s in (1.36e-3, 1.359999e-3)]  # fmt: skip

    assert arrived == [[1], [0]]


# ---- bits and energy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "copies"), [("broadcast", 1), ("unicast", 3)])
def test_bits_are_the_closed_form(mode: str, copies: int) -> None:
    """32 P bit down once per round or once per cohort member, and 32 P bit up per member, over 5 rounds."""
    fed = run_small(f"network.downlink.mode={mode}", "algorithm.cohort=3", "stop.rounds=5", timing_only=True)

    assert fed.ledger.sent_bit == [5 * 3 * 32 * 10, 5 * copies * 32 * 10, 0]


def test_a_rounds_energy_is_the_sum_of_its_parts() -> None:
    """Four uploads and a broadcast at drawn power for 320 us each, and kappa C f^2 for four steps of 720 FLOP."""
    fed = run_small("channel.device.amplifier_efficiency=0.35", "channel.device.circuit_w=0.1",
                    "devices.compute_energy={kind: cmos, clock_hz: 5.0e+5, kappa: 1e-20, flop_per_cycle: 2}",
                    "stop.rounds=1")  # fmt: skip
    radio_j = 4 * (10 ** (23 / 10 - 3) / 0.35 + 0.1) * 320e-6 + 10 ** (30 / 10 - 3) * 320e-6
    compute_j = 4 * 1e-20 * (720 / 2) * (1e6 / 2) ** 2
    frames = fed.ledger.frames()

    assert frames["computes"]["energy_j"].sum() == pytest.approx(compute_j)
    assert frames["transfers"]["energy_j"].sum() == pytest.approx(radio_j)
    assert fed.ledger.energy_j == pytest.approx(radio_j + compute_j)


@pytest.mark.parametrize(
    ("cohort", "invited"), [(3, 3), (1, 1), (0.5, 2), (0.6, 2), (0.7, 3), (0.01, 1), (1.0, 4), (0.999, 4)]
)
def test_a_cohort_is_a_number_of_devices_or_a_share_of_them(cohort: float, invited: int) -> None:
    """Of four devices a share of 0.6 is 2.4, rounded to 2, and 1.0 is all; 1 is one; a selection rule gets as many."""
    for selection in ("uniform", "round-robin"):
        fed = run_small(f"algorithm.cohort={cohort}", f"algorithm.selection={selection}", "stop.rounds=2")

        assert fed.ledger.frame("rounds")["invited"].tolist() == [invited, invited]


@pytest.mark.parametrize("kind", [kind for kind, its in ALGORITHMS.items() if "cohort" in its.model_fields])
def test_cohort_means_the_same_in_every_algorithm(kind: str) -> None:
    """An int is a count and a float up to 1.0 a share: 1 is one of twenty, 1.0 all, 1.5 and 10.0 are refused."""
    algorithm = ALGORITHMS[kind]

    def problems(cohort: float) -> list[str]:
        with pytest.raises(ValidationError) as caught:
            algorithm.model_validate({"cohort": cohort, "unknown": 0})
        return [problem["msg"] for problem in caught.value.errors() if problem["loc"] == ("cohort",)]

    for cohort, size in ((1, 1), (0.25, 5), (1.0, 20)):
        assert problems(cohort) == []
        assert algorithm.model_construct(cohort=cohort).participants(20) == size
    assert ["write 10" in problem for problem in problems(10.0)] == [True]
    assert ["got 1.5" in problem for problem in problems(1.5)] == [True]


def test_the_order_of_arrivals_changes_no_bit() -> None:
    """Fast devices first or last: sums are taken in the order of devices, and the model is the same to the last bit."""
    models, arrivals = [], []
    for speeds in ("[1e6, 2e6, 3e6, 4e6]", "[4e6, 3e6, 2e6, 1e6]"):
        changes = (f"devices.speed={{kind: list, flop_per_s: {speeds}}}", "partition={kind: iid}")
        fed = small_federation(*changes)
        model = fed.run(small_scenario(*changes).algorithm)
        assert model is not None
        models.append(fed.graph.read(model))
        uplinks = fed.ledger.frame("transfers").query("direction == 'uplink'")
        arrivals.append(uplinks["sender"].tolist())

    assert arrivals[0] != arrivals[1]
    assert torch.equal(models[0], models[1])


TRAINED = sorted(kind for kind, found in ALGORITHMS.items() if issubclass(found, LocalTraining))
OWN = {
    "momentum": "algorithm.local_optimizer={kind: momentum, beta: 0.5, nesterov: true, weight_decay: 0.01}",
    "adam": "algorithm.local_optimizer=adam",
    "decay": "algorithm.local_optimizer={kind: sgd, weight_decay: 0.1}",
    "schedule": "algorithm.lr_schedule={kind: step, every_rounds: 2, gamma: 0.5}",
    "clipping": "algorithm.clip_norm=0.3",
}
REFUSED = {
    "fednova": ("momentum", "adam", "decay", "clipping"),
    "scaffold": ("adam", "clipping"),
    "splitfed": ("clipping",),
}
"""What an algorithm refuses that does allow other steps than plain ones; FedNova allows momentum without decay."""


@cache
def plain_final(*changes: str) -> torch.Tensor:
    """The final models after a run with plain steps, with which others are compared."""
    return stacked(*changes)[1]


def refuses(kind: str, own: str) -> bool:
    return bool(ALGORITHMS[kind].plain_steps) or own in REFUSED.get(kind, ())


def one_of_each() -> list[Any]:
    """All that algorithms make; in `make test` each algorithm makes one of them, in turns."""
    makes = [[(kind, own) for own in OWN if not refuses(kind, own)] for kind in TRAINED]
    quick = [cases[place % len(cases)] for place, cases in enumerate(makes) if cases]
    return [pytest.param(*case, marks=[] if case in quick else pytest.mark.slow) for case in chain(*makes)]


@pytest.mark.parametrize(("kind", "own"), [case for case in product(TRAINED, OWN) if refuses(*case)])
def test_an_algorithm_that_cannot_make_them_says_why(kind: str, own: str) -> None:
    """Before anything runs."""
    refusal = (
        r"plain steps of one size, got|a weighted sum of gradients, got|steps along gradients, got"
        r"|neither end has the whole gradient, got"
    )
    with pytest.raises(ScenarioError, match=refusal):
        small_scenario(*settings_of(kind, "ideal"), OWN[own])


@pytest.mark.parametrize(("kind", "own"), one_of_each())
def test_every_algorithm_with_local_steps_has_them(kind: str, own: str) -> None:
    """Each changes what is learnt, and no event; both engines agree."""
    settings = settings_of(kind, "ideal", "stop.rounds=6")
    serial, w = stacked(*settings, OWN[own])
    batched, w_batched = stacked(*settings, OWN[own], "training.engine=batched")
    timed = run_small(*settings, OWN[own], timing_only=True)

    assert not torch.allclose(w, plain_final(*settings), atol=1e-5)
    assert torch.allclose(w, w_batched, atol=1e-4)
    assert serial.ledger.event_digest() == batched.ledger.event_digest()
    assert small_scenario(*settings).events_depend_on_learning or (
        timed.ledger.event_digest() == serial.ledger.event_digest()
    )


def test_a_learning_rate_of_zero_still_changes_nothing() -> None:
    """With momentum, decay, clipping and a schedule at once, lr = 0 leaves the model bit for bit."""
    every = [own for name, own in OWN.items() if name not in ("adam", "decay")]
    fed, w = stacked(*ALGORITHM_SETTINGS["fedavg"], *every, "algorithm.lr=0")

    assert torch.equal(w[0], fed.task.model.initial())


def test_a_run_is_the_hand_written_loop() -> None:
    """Momentum, decay, clipping and a cosine over the rounds: `torch.optim.SGD` on each device's own batches."""
    changes = (
        *("data.n_samples=83", "partition=iid", "stop.rounds=4", "algorithm.local_steps=null"),
        *("algorithm.local_epochs=2", "algorithm.batch_size=8", "algorithm.clip_norm=0.8"),
        "algorithm.lr_schedule={kind: cosine, rounds: 4, final_share: 0.1}",
        "algorithm.local_optimizer={kind: momentum, beta: 0.7, nesterov: true, weight_decay: 0.05}",
    )
    fed, found = stacked(*changes)
    streams, data, n = Streams(0), fed.task.data, fed.task.n_samples
    w = fed.task.model.initial()
    for t in range(4):
        lr = 0.1 * (0.1 + 0.9 * (1 + float(torch.cos(torch.tensor(torch.pi * t / 4)))) / 2)
        update = torch.zeros_like(w)
        for k in range(4):
            own = torch.arange(len(data.y))[fed.task.slice_of(k)]
            point, rng = torch.nn.Parameter(w.clone()), streams("batch", k, t)
            sgd = torch.optim.SGD([point], lr, momentum=0.7, nesterov=True, weight_decay=0.05)
            for _ in range(2):
                for rows in torch.from_numpy(rng.permutation(own.numpy())).split(8):
                    sgd.zero_grad()
                    fed.task.model.loss(point, data.x[rows], data.y[rows]).backward()
                    torch.nn.utils.clip_grad_norm_([point], 0.8)
                    sgd.step()
            update += n[k] / n.sum() * (point.detach() - w)
        w = w + update

    assert torch.allclose(found[0], w, atol=1e-5)
