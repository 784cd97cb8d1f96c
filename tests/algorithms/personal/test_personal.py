"""Personal models, and baselines."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fednet_emu.algorithms.clustered.cfl import halves, lengths
from fednet_emu.algorithms.clustered.ifca import averaged, best, shuffled
from fednet_emu.federation import SgdPlan, accumulated
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.models.layers import Layers
from fednet_emu.records.summaries import spread
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import ENGINES

SGD = "cohort: 4, lr: 0.05, local_steps: 3, batch_size: 8"
PFEDME = f"algorithm={{kind: pfedme, {SGD}, pull: 2, local_model_lr: 0.3, local_model_steps: 2, server_lr: 0.7}}"
PER_FEDAVG = f"algorithm={{kind: per-fedavg, {SGD}, adapt_lr: 0.2, order: ORDER}}"


def finals(*settings: str) -> tuple[Federation, list[torch.Tensor]]:
    """The federation after a run of two rounds, and every device's final model."""
    fed = small_federation(*settings, "stop.rounds=2")
    final = fed.run(small_scenario(*settings).algorithm)
    return fed, [fed.read(w).double() for w in final]


def gradient(fed: Federation, k: int, w: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
    """The gradient of the squared error of the linear model on some rows."""
    x, y = fed.task.data.x[rows].double(), fed.task.data.y[rows]
    at = w.clone().requires_grad_()
    loss = fed.task.model.sample_losses(x @ at[:9][:, None] + at[9], y.double()).mean()
    return torch.autograd.grad(loss, at)[0]


def batches(fed: Federation, k: int, steps: int, *key: object) -> list[np.ndarray]:
    """The rows of each step, drawn from the stream of this name."""
    rng, own = fed.streams("batch", k, *key), fed.task.slice_of(k)
    rows = np.arange(own.start, own.stop)
    order = np.concatenate([rng.permutation(rows)[:20] for _ in range(-(-steps // 3))])
    return [order[8 * step : 8 * step + 8] if step % 3 < 2 else order[16:20] for step in range(steps)]


@pytest.mark.parametrize("engine", ENGINES)
def test_pfedme_is_its_loop(engine: str) -> None:
    """Two rounds of Algorithm 1, batch by batch; personal models are what is evaluated."""
    fed, found = finals(PFEDME, f"training.engine={engine}")
    w = fed.task.model.initial().double()
    personal = [w] * 4
    for t in range(2):
        local = []
        for k in range(4):
            own = w
            for step in range(2):
                theta = own
                for rows in batches(fed, k, 3, t, step):
                    theta = theta - 0.05 * (gradient(fed, k, theta, rows) + 2 * (theta - own))
                personal[k], own = theta, own - 0.3 * 2 * (own - theta)
            local.append(own)
        w = 0.3 * w + 0.7 * torch.stack(local).mean(0)
    for mine, theirs in zip(personal, found, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", ["first", "hessian-free"])
def test_per_fedavg_is_its_loop(order: str, engine: str) -> None:
    """Two rounds, three batches a step, the exact Hessian of a quadratic; evaluated after one step of alpha."""
    fed, found = finals(PER_FEDAVG.replace("ORDER", order), f"training.engine={engine}")
    w = fed.task.model.initial().double()
    for t in range(2):
        local = []
        for k in range(4):
            own = w
            for step in range(3):
                one, two, three = (batches(fed, k, 1, t, step, name)[0] for name in ("adapt", "outer", "hessian"))
                g = gradient(fed, k, own - 0.2 * gradient(fed, k, own, one), two)
                if order == "hessian-free":
                    g = g - 0.2 * (gradient(fed, k, own + g, three) - gradient(fed, k, own, three))
                own = own - 0.05 * g
            local.append(own)
        w = torch.stack(local).mean(0)
    for k, theirs in enumerate(found):
        mine = w - 0.2 * gradient(fed, k, w, batches(fed, k, 1, 1, "own")[0])
        assert torch.allclose(mine, theirs, atol=1e-4 if order == "hessian-free" else 1e-5)


@pytest.mark.parametrize(("order", "gradients"), [("first", 2), ("hessian-free", 4)])
def test_work_and_bits(order: str, gradients: int) -> None:
    """A step of Per-FedAvg costs two or four gradients; 32 bit an entry each way, as for pFedMe."""
    fed = run_small(PER_FEDAVG.replace("ORDER", order), "stop.rounds=1")
    per_step = fed.task.model.flop_per_sample * 8
    work = fed.ledger.frame("computes").groupby("device")["flop"].sum()
    assert work.tolist() == pytest.approx([3 * gradients * per_step] * 4)
    for run in (fed, run_small(PFEDME, "stop.rounds=1")):
        sent = run.ledger.frame("transfers")
        assert sent[sent["direction"] == "uplink"]["size_bit"].tolist() == [320] * 4


MLP = ("data={kind: synthetic, features: 9, classes: 3, n_samples: 80, n_test: 40}", "model={kind: mlp, hidden: [4]}")
"""9-4-3: 40 parameters and 15."""


@pytest.mark.parametrize(("personal", "shared"), [("[0]", 15), ("[-1]", 40), ("['*.bias']", 48)])
def test_recipes_of_fedper_send_what_is_not_personal(personal: str, shared: int) -> None:
    """LG-FedAvg keeps the first layers, FedPer the last ones; patterns name parts, as FedBN its norm layers."""
    fed = run_small(*MLP, f"algorithm={{kind: fedper, {SGD}, personal_layers: {personal}}}", "stop.rounds=1")
    assert set(fed.ledger.transfers.column("size_bit")) == {32 * shared}


def test_fedbn_keeps_batch_norm_on_its_device() -> None:
    """Norm layers of 2 + 2 + 3 + 5 + 4 channels, each with four numbers, stay: all else is sent, and is the same."""
    norms = "['2.*', '6.*', '10.*', '14.*', '17.*']"
    settings = (
        "data=digits",
        "model={kind: digit-model, channels: [2, 2, 3], units: [5, 4]}",
        "partition={kind: dirichlet, alpha: 0.5}",
        f"algorithm={{kind: fedper, cohort: 4, lr: 0.05, local_steps: 2, batch_size: 16, personal_layers: {norms}}}",
    )
    fed, found = finals(*settings)
    parts = [fed.task.model.unflatten(w) for w in found]
    own = {name for name, one in parts[0].items() if any(not torch.equal(one, its[name]) for its in parts[1:])}
    layers = {name.partition(".")[0] for name in own}

    assert set(fed.ledger.transfers.column("size_bit")) == {32 * (fed.task.model.size - 4 * 16)}
    assert layers == {"2", "6", "10", "14", "17"}
    assert {name for name in parts[0] if name.partition(".")[0] in layers} == own
    assert sum(parts[0][name].numel() for name in own) == 4 * 16


def test_the_spread_over_devices_by_hand() -> None:
    """Nineteen accuracies 0.05, 0.10, ..., 0.95: the two lowest, quantiles by straight lines, Jain's index."""
    found = spread(np.append(np.arange(19, 0, -1) / 20, np.nan))
    assert found["worst_tenth_accuracy"] == pytest.approx(0.075)
    assert (found["accuracy_q05"], found["accuracy_q50"], found["accuracy_q95"]) == pytest.approx((0.095, 0.5, 0.905))
    assert found["accuracy_jain"] == pytest.approx(190**2 / (19 * 2470))
    assert spread(np.array([np.nan])) == {}


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
    "fedper without personal layers is fedavg": (algorithm("fedper", personal_layers="[]"), algorithm("fedavg")),
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
        "fedper": (algorithm("fedper", personal_layers="['*.bias']"), 3, 3),
        "fedrep": (algorithm("fedrep", personal_layers="['*.bias']", head_epochs=1), 3, 3),
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
    last = fed.ledger.frame("agreement").iloc[-1]
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

    assert fed.ledger.frame("agreement")["n_clusters"].tolist() == [2, 2]


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
        algorithm("fedper", personal_layers="['*.bias']"),
        algorithm("fedrep", personal_layers="['*.bias']", head_epochs=1),
    ):
        _, found = models(*TOY, setting)
        assert all(torch.equal(w[:3], found[0][:3]) for w in found)
        assert len({float(w[3]) for w in found}) == 8


def test_fedrep_fits_the_head_with_the_body_frozen() -> None:
    """One round by hand on full batches: the head's step at the old body, then the body's step at the new head."""
    work = "cohort: 1, lr: 0.05, batch_size: null, local_steps: 1"
    setting = f"algorithm={{kind: fedrep, {work}, personal_layers: ['*.bias'], head_epochs: 1}}"
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
                "algorithm.personal_layers=['*.bias']")  # fmt: skip
    _, (found, *_) = models(*settings)
    fed = small_federation(*settings)
    k, w, layers = fed.device(0), fed.graph.constant(fed.task.model.initial()), Layers(fed.task.model, ("*.bias",))
    for t in range(2):
        head, body = (SgdPlan(lr=0.05, batch_size=5, **steps) for steps in ({"epochs": 1}, {"steps": 2}))
        w = k.training(w, head, t, "head", mask=layers.personal).result.params
        w = k.training(w, body, t, mask=layers.shared).result.params

    assert torch.allclose(found, fed.read(w), atol=1e-6)


# ---- maths -----------------------------------------------------------------------------------------------------------


def test_a_device_chooses_the_model_that_fits() -> None:
    """The index of the smallest loss, also beside a model that diverged; without samples the first."""
    fed = small_federation()
    x, y = fed.task.data.x[:20], fed.task.data.y[:20]
    good = torch.linalg.lstsq(torch.cat([x, torch.ones(20, 1)], 1), y[:, None]).solution.squeeze(1)

    assert best(fed.task.model, [torch.zeros(10), good, -good], x, y) == 1
    assert best(fed.task.model, [torch.full([10], torch.nan), torch.zeros(10), good], x, y) == 2
    assert best(fed.task.model, [torch.full([10], torch.nan)] * 2, x, y) == 0
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
    other = shuffled(fed.task.model, w, Streams(0), 1)

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
