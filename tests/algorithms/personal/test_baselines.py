"""Baselines of clustered and personalised learning: their limits as known algorithms, their maths, their bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fednet_emu.algorithms.clustered.cfl import halves, lengths
from fednet_emu.algorithms.clustered.ifca import averaged, best, shuffled
from fednet_emu.federation import SgdPlan, accumulated
from fednet_emu.federation.federation import Federation
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.models.layers import Layers
from fednet_emu.testing import run_small, small_federation, small_scenario

TOY = (
    "devices.count=8",
    "data={kind: synthetic-regression, n_samples: 400, n_test: 40, features: 3, noise_std: 0.05}",
    "groups={kind: tilted-targets, count: 2, distance: 2.0}",
    "stop.rounds=40",
    "evaluation.every_rounds=40",
    "training.engine=batched",
)


def algorithm(kind: str, **more: object) -> str:
    """The setting of an algorithm with two mini-batch steps per round on all eight devices, unless changed."""
    settings = {"cohort": 8, "lr": 0.05, "batch_size": 10, "local_steps": 2, **more}
    return f"algorithm={{kind: {kind}, {', '.join(f'{key}: {value}' for key, value in settings.items())}}}"


def models(*settings: str) -> tuple[Federation, list[torch.Tensor]]:
    """The federation and all devices' final models; the global one for each where there is one."""
    fed = small_federation(*settings)
    final = fed.run(small_scenario(*settings).algorithm)
    assert final is not None
    return fed, [fed.read(w) for w in ([final] * 8 if isinstance(final, Deferred) else final)]


LIMITS = {
    "ditto without pull is training alone": (algorithm("ditto", pull=0.0), None),
    "fedper without personal layers is fedavg": (algorithm("fedper", private="[]"), algorithm("fedavg")),
    "ifca with one model is fedavg": (algorithm("ifca", clusters=1), algorithm("fedavg")),
    "cfl that never splits is fedavg": (algorithm("cfl", stationary=1e-9, split=1e9), algorithm("fedavg")),
}


@pytest.mark.parametrize(("one", "other"), LIMITS.values(), ids=LIMITS)
def test_limits(one: str, other: str | None) -> None:
    """In a limit of its settings, each baseline is another algorithm, model by model."""
    _, first = models(*TOY, one, "stop.rounds=5")
    if other is None:
        steps = local_steps_alone()
        assert all(not torch.equal(a, first[0]) for a in first[1:])
        assert all((a - b).norm() < 1e-6 for a, b in zip(first, steps, strict=True))
        return
    _, second = models(*TOY, other, "stop.rounds=5")

    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def local_steps_alone() -> list[torch.Tensor]:
    """Models after five rounds alone, with the batches that Ditto draws for its own models."""
    fed = small_federation(*TOY)
    plan = small_scenario(*TOY, algorithm("local")).algorithm.plan  # type: ignore[attr-defined]
    own = [fed.graph.constant(fed.task.model.initial()) for _ in range(8)]
    for t in range(5):
        own = [k.training(own[k.index], plan, t, "own").result.params for k in fed.devices()]
    return [fed.read(w) for w in own]


def test_sent_bits() -> None:
    """Per round and device, with 4 parameters of which 3 are shared: what each algorithm sends up and down."""
    sent = {
        "local": (algorithm("local"), 0, 0),
        "fedavg": (algorithm("fedavg"), 4, 4),
        "ditto": (algorithm("ditto", pull=1.0), 4, 4),
        "fedper": (algorithm("fedper", private="['*.bias']"), 3, 3),
        "fedrep": (algorithm("fedrep", private="['*.bias']", head_epochs=1), 3, 3),
        "ifca": (algorithm("ifca", clusters=3), 5, 12),
        "cfl": (algorithm("cfl", stationary=1.0, split=1.0), 4, 4),
    }
    common = (*TOY, "stop.rounds=2", "network.downlink.mode=unicast")
    found = {kind: run_small(*common, setting).ledger.sent_bit for kind, (setting, _, _) in sent.items()}

    assert found == {kind: [32 * 8 * 2 * up, 32 * 8 * 2 * down, 0] for kind, (_, up, down) in sent.items()}


@pytest.mark.parametrize(
    "setting",
    [algorithm("ifca", clusters=2, record_every=5), algorithm("cfl", stationary=0.03, split=0.12, record_every=5)],
)
def test_clusters_are_found(setting: str) -> None:
    """IFCA, from a start that suits it, and CFL recover the two groups of regressions, and fit both of them."""
    fed, found = models(*TOY, "stop.rounds=60", "seed=3", setting)
    last = fed.ledger.frames()["agreement"].iloc[-1]
    rows = [fed.task.slice_of(d) for d in range(8)]
    losses = [
        float(fed.task.model.loss(w, fed.task.data.x[r], fed.task.data.y[r])) for w, r in zip(found, rows, strict=True)
    ]

    assert (last["n_clusters"], last["rand_index"]) == (2, 1.0)
    assert max(losses) < 0.01


@pytest.mark.parametrize("kind", ["ifca", "cfl"])
def test_clusters_are_recorded_every_so_many_rounds(kind: str) -> None:
    """Every third of seven rounds: after the third and the sixth, with each of the eight devices once."""
    own = {"ifca": {"clusters": 2}, "cfl": {"stationary": 1e-9, "split": 1e9}}[kind]
    frames = run_small(*TOY, "stop.rounds=7", algorithm(kind, **own, record_every=3)).ledger.frames()

    assert frames["agreement"]["round"].tolist() == [3, 6]
    assert frames["clusters"].groupby("round")["device"].apply(list).to_dict() == {3: [*range(8)], 6: [*range(8)]}


def test_two_who_disagree_part() -> None:
    """A cluster of two devices is split, too; a cluster of one cannot be."""
    thresholds = {"stationary": 1e9, "split": 1e-9, "record_every": 1}
    fed = run_small(*TOY, "devices.count=2", "stop.rounds=2", algorithm("cfl", **thresholds, cohort=2))

    assert fed.ledger.frames()["agreement"]["n_clusters"].tolist() == [2, 2]


def test_ditto_stays_between_alone_and_global() -> None:
    """The stronger the pull, the nearer the own models are to the global one."""
    spread = []
    for pull in (0.0, 1.0, 5.0):
        _, found = models(*TOY, algorithm("ditto", pull=pull))
        spread.append(float(torch.stack(found).std(0).norm()))

    assert spread[0] > 1.2 * spread[1] > 1.44 * spread[2]


def test_heads_differ_and_bodies_agree() -> None:
    """Under FedPer and FedRep all models have one body, and each device a head of its own."""
    for setting in (
        algorithm("fedper", private="['*.bias']"),
        algorithm("fedrep", private="['*.bias']", head_epochs=1),
    ):
        _, found = models(*TOY, setting)
        assert all(torch.equal(w[:3], found[0][:3]) for w in found)
        assert len({float(w[3]) for w in found}) == 8


def test_fedrep_fits_the_head_with_the_body_frozen() -> None:
    """One round by hand on full batches: the head's step at the old body, then the body's step at the new head."""
    work = "cohort: 1, lr: 0.05, batch_size: null, local_steps: 1"
    setting = f"algorithm={{kind: fedrep, {work}, private: ['*.bias'], head_epochs: 1}}"
    fed, (w, *_) = models(*TOY, "devices.count=1", "stop.rounds=1", "groups=null", setting)
    x, y, at = fed.task.data.x.double(), fed.task.data.y.double(), fed.task.model.initial().double()
    body, head = at[:3].clone(), at[3].clone()
    head = head - 0.05 * 2 * (x @ body + head - y).mean()
    body = body - 0.05 * 2 / len(y) * x.T @ (x @ body + head - y)

    torch.testing.assert_close(w.double(), torch.cat([body, head[None]]), rtol=1e-5, atol=1e-6)


def test_fedrep_alone_is_training_by_turns() -> None:
    """One device, two rounds, batches of five: an epoch on the head, then two steps on the body, drawn anew."""
    work = "cohort: 1, lr: 0.05, batch_size: 5, local_steps: 2"
    settings = ("devices.count=1", "stop.rounds=2", f"algorithm={{kind: fedrep, {work}, head_epochs: 1}}",
                "algorithm.private=['*.bias']")  # fmt: skip
    _, (found, *_) = models(*settings)
    fed = small_federation(*settings)
    k, w, layers = fed.device(0), fed.graph.constant(fed.task.model.initial()), Layers(fed.task.model, ("*.bias",))
    for t in range(2):
        head, body = (SgdPlan(lr=0.05, batch_size=5, **steps) for steps in ({"epochs": 1}, {"steps": 2}))
        w = k.training(w, head, t, "head", mask=layers.private).result.params
        w = k.training(w, body, t, mask=layers.shared).result.params

    assert torch.allclose(found, fed.read(w), atol=1e-6)


# ---- maths -----------------------------------------------------------------------------------------------------------


def test_a_device_chooses_the_model_that_fits() -> None:
    """The number of the smallest loss; without samples the first."""
    fed = small_federation()
    x, y = fed.task.data.x[:20], fed.task.data.y[:20]
    good = torch.linalg.lstsq(torch.cat([x, torch.ones(20, 1)], 1), y[:, None]).solution.squeeze(1)

    assert best(fed.task.model, [torch.zeros(10), good, -good], x, y) == 1
    assert best(fed.task.model, [torch.zeros(10), good], x[:0], y[:0]) == 0


def test_each_model_is_the_mean_of_those_who_chose_it() -> None:
    """Two of three chose number 1; number 0 has one, and number 2 stays what it was."""
    w = torch.tensor([1.0])
    choices, models = (1, 0, 1), [torch.tensor([2.0]), torch.tensor([7.0]), torch.tensor([4.0])]

    means = [accumulated(averaged(w, j, choices), models) for j in range(3)]

    assert [mean.tolist() for mean in means] == [[7.0], [3.0], [1.0]]


def test_other_models_start_as_shuffles() -> None:
    """Every parameter keeps its entries, in another order."""
    fed = small_federation("data={kind: synthetic, features: 9}", "model={kind: mlp, hidden: [20]}")
    w = fed.task.model.initial()
    other = shuffled(fed.task.model, w, np.random.default_rng(0))

    assert not torch.equal(other, w)
    for a, b in zip(fed.task.model.pieces(other), fed.task.model.pieces(w), strict=True):
        assert torch.equal(a.reshape(-1).sort().values, b.reshape(-1).sort().values)


def test_lengths_by_hand() -> None:
    """Updates (3, 4) and (-3, 4) with weights 1 and 3: the mean (-1.5, 4), the longest 5."""
    w = torch.tensor([1.0, 1.0])
    mean, longest = lengths(w, [w + torch.tensor([3.0, 4.0]), w + torch.tensor([-3.0, 4.0])], [1, 3])

    assert (mean, longest) == (pytest.approx(np.hypot(1.5, 4.0)), pytest.approx(5.0))


def test_the_bipartition_is_the_best_of_all() -> None:
    """No other cut of seven random updates has a smaller largest similarity across."""
    for seed in range(20):
        updates = torch.randn(7, 3, generator=torch.Generator().manual_seed(seed))
        unit = updates / updates.norm(dim=1, keepdim=True)
        similarity = (unit @ unit.T).numpy()

        def across(second: np.ndarray, similarity: np.ndarray = similarity) -> float:
            return float(similarity[np.ix_(second, ~second)].max())

        cuts = [np.array([code >> bit & 1 for bit in range(7)], dtype=bool) for code in range(1, 2**7 - 1)]
        found = halves(torch.zeros(3), list(updates))

        assert found.any()
        assert not found.all()
        assert across(found) == pytest.approx(min(map(across, cuts)), abs=1e-6)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_equally_different_updates_part_too(count: int) -> None:
    """Orthogonal ones have one distance from each other: some cut is made, with nobody left out."""
    found = halves(torch.zeros(count), list(torch.eye(count)))

    assert 0 < found.sum() < count
