"""FedMD, FedDF and FedProto against loops of their own on NumPy and autograd, their bits, their work, their maths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fednet_emu.algorithms.distilled.fedproto import merged
from fednet_emu.algorithms.distilled.public import divergence
from fednet_emu.federation.federation import Federation
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.models.features import with_features
from fednet_emu.learning.models.feedforward import DigitModel
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import ENGINES

DATA = (
    "data={kind: synthetic, features: 9, classes: 3, n_samples: 110, n_test: 40}",
    "model={kind: mlp, hidden: [4]}",
    "network.downlink.mode=unicast",
)
"""A network 9-4-3 of 55 parameters."""
PUBLIC = (*DATA, "server={samples: 30, flop_per_s: 1e6}")
SGD = "lr: 0.2, batch_size: 8, local_epochs: 2"
FEDMD = f"algorithm={{kind: fedmd, cohort: 3, {SGD}, distil_epochs: 2, distil_lr: 0.5}}"
FEDDF = f"algorithm={{kind: feddf, cohort: 3, {SGD}, distil_epochs: 2, distil_lr: 0.5}}"
FEDPROTO = f"algorithm={{kind: fedproto, cohort: 3, {SGD}, pull: 0.7}}"
LOSSY = "network.uplink.message_loss={kind: random, probability: 0.3}"
ROUNDS = 4
Loss = Callable[[Tensor, Tensor, np.ndarray], Tensor]
"""From scores and features of a batch and its rows, the loss."""


def network(w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Scores [n, 3] and features [n, 4] of the network, from w [55]."""
    features = (x @ w[:36].reshape(4, 9).T + w[36:40]).relu()
    return features @ w[40:52].reshape(3, 4).T + w[52:], features


class Loop:
    """What the loops take from a run: samples, streams, the first model, and who trained and arrived in each round."""

    def __init__(self, fed: Federation) -> None:
        self.fed, self.n = fed, fed.n_devices
        self.x, self.y = fed.task.data.x.double(), fed.task.data.y
        self.w = fed.task.model.initial().double()
        frames = fed.ledger.frames()
        ups = frames["transfers"][frames["transfers"]["direction"] == "uplink"]
        self.trained, self.arrived = [], []
        for row in frames["rounds"].itertuples():
            own = ups[(ups["ended_s"] > row.started_s) & (ups["ended_s"] <= row.ended_s)]
            self.trained.append(sorted(own["sender"]))
            self.arrived.append(sorted(own[own["loss_reason"] == ""]["sender"]))
        assert any(a != b for a, b in zip(self.trained, self.arrived, strict=True))

    def rows(self, k: int) -> np.ndarray:
        """The rows of a device, or of the server (-1)."""
        own = self.fed.task.slice_of(k)
        return np.arange(own.start, own.stop)

    def steps(self, w: Tensor, k: int, rows: np.ndarray, lr: float, key: tuple[object, ...], loss: Loss) -> Tensor:
        """Two epochs of batches of eight, drawn from the stream of this name."""
        rng = self.fed.streams("batch", k, *key)
        for _ in range(2):
            order = rng.permutation(rows) if len(rows) > 8 else rows
            for start in range(0, len(rows), 8):
                batch, at = order[start : start + 8], w.clone().requires_grad_()
                scores, features = network(at, self.x[batch])
                w = w - lr * torch.autograd.grad(loss(scores, features, batch), at)[0]
        return w

    def local(self, w: Tensor, k: int, t: int) -> Tensor:
        return self.steps(w, k, self.rows(k), 0.2, (t,), lambda scores, _, rows: cross_entropy(scores, self.y[rows]))

    def distilled(self, w: Tensor, k: int, t: int, wanted: Tensor) -> Tensor:
        """Steps towards scores of the public samples: sum p log(p / q), by hand."""
        first = self.rows(-1)[0]

        def loss(scores: Tensor, _: Tensor, rows: np.ndarray) -> Tensor:
            p, q = wanted[rows - first].softmax(1), scores.softmax(1)
            return (p * (p / q).log()).sum(1).mean()

        return self.steps(w, k, self.rows(-1), 0.5, (t, "distil"), loss)


def fedmd(loop: Loop) -> list[Tensor]:
    """Digest the consensus, revisit, send scores; the server averages what arrives."""
    own, consensus = [loop.w] * loop.n, None
    for t, (trained, arrived) in enumerate(zip(loop.trained, loop.arrived, strict=True)):
        for k in trained:
            start = own[k] if consensus is None else loop.distilled(own[k], k, t, consensus)
            own[k] = loop.local(start, k, t)
        if arrived:
            consensus = torch.stack([network(own[k], loop.x[loop.rows(-1)])[0] for k in arrived]).mean(0)
    return own


def feddf(loop: Loop) -> list[Tensor]:
    """FedAvg, and the server's steps towards the mean scores of what has arrived."""
    w = loop.w
    for t, arrived in enumerate(loop.arrived):
        if arrived:
            models = [loop.local(w, k, t) for k in arrived]
            shares = torch.tensor([len(loop.rows(k)) for k in arrived]).double()
            mean = (shares / shares.sum()) @ torch.stack(models)
            scores = torch.stack([network(v, loop.x[loop.rows(-1)])[0] for v in models]).mean(0)
            w = loop.distilled(mean, -1, t, scores)
    return [w]


def fedproto(loop: Loop) -> list[Tensor]:
    """Local steps around the prototypes, class by class; the server averages those of each class."""
    own, prototypes = [loop.w] * loop.n, dict[int, Tensor]()
    for t, (trained, arrived) in enumerate(zip(loop.trained, loop.arrived, strict=True)):

        def loss(scores: Tensor, features: Tensor, rows: np.ndarray, known: dict[int, Tensor] = prototypes) -> Tensor:
            y = loop.y[rows]
            apart = [(features[y == c].mean(0) - p).square().sum() for c, p in known.items() if (y == c).any()]
            return cross_entropy(scores, y) + 0.7 * sum(apart) / max(len(apart), 1)

        for k in trained:
            own[k] = loop.steps(own[k], k, loop.rows(k), 0.2, (t,), loss)
        prototypes = dict(prototypes)
        for c in range(3):
            has = {k: loop.rows(k)[loop.y[loop.rows(k)].numpy() == c] for k in arrived}
            together = np.concatenate([np.empty(0, int), *has.values()])
            if len(together):
                parts = [network(own[k], loop.x[rows])[1].sum(0) for k, rows in has.items() if len(rows)]
                prototypes[c] = sum(parts) / len(together)
    return own


CASES = {
    "fedmd": ((*PUBLIC, FEDMD), fedmd),
    "feddf": ((*PUBLIC, FEDDF, "partition={kind: dirichlet, alpha: 0.3}"), feddf),
    "fedproto": ((*DATA, FEDPROTO, "partition={kind: dirichlet, alpha: 0.3}"), fedproto),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("settings", "loop"), CASES.values(), ids=CASES)
def test_four_rounds_are_those_of_the_loop(
    settings: tuple[str, ...], loop: Callable[[Loop], list[Tensor]], engine: str
) -> None:
    """Three of four devices a round, a third of the uploads lost: all models agree to 1e-5, in both engines."""
    settings = (*settings, LOSSY, f"stop.rounds={ROUNDS}", f"training.engine={engine}")
    fed = small_federation(*settings)
    final = fed.run(small_scenario(*settings).algorithm)
    models = [final] if isinstance(final, Deferred) else final
    its = Loop(fed)

    for mine, theirs in zip(loop(its), models, strict=True):
        assert (mine - its.w).abs().max() > 0.05
        torch.testing.assert_close(fed.read(theirs).double(), mine, rtol=0, atol=1e-5)


# ---- bits and work ---------------------------------------------------------------------------------------------------


def sizes(fed: Federation, kind: str) -> list[list[int]]:
    """The bits of the messages of each round, in the order of the devices."""
    frames = fed.ledger.frames()
    sent = frames["transfers"][frames["transfers"]["direction"] == kind]
    ends = "sender" if kind == "uplink" else "receiver"
    found = []
    for row in frames["rounds"].itertuples():
        own = sent[(sent["ended_s"] > row.started_s) | (sent["requested_s"] >= row.started_s)]
        own = own[own["ended_s"] <= row.ended_s]
        found.append(own.sort_values(ends)["size_bit"].tolist())
    return found


@pytest.mark.parametrize("hidden", [4, 50])
def test_scores_of_public_samples_whatever_the_model_is(hidden: int) -> None:
    """FedMD sends 32 M C bit up, and as much down but in the first round, which has no consensus yet."""
    fed = run_small(*PUBLIC, FEDMD.replace("cohort: 3", "cohort: 4"), f"model.hidden=[{hidden}]", timing_only=True)

    assert sizes(fed, "uplink") == [[32 * 30 * 3] * 4] * 3
    assert sizes(fed, "downlink") == [[0] * 4, [32 * 30 * 3] * 4, [32 * 30 * 3] * 4]


def test_prototypes_of_the_classes_that_a_device_has() -> None:
    """FedProto sends 32 d C_k bit up; down 32 d for each class that some device has sent a prototype of."""
    settings = (*DATA, FEDPROTO.replace("cohort: 3", "cohort: 4"), "partition={kind: shards, shards_per_device: 1}")
    fed = run_small(*settings, timing_only=True)
    own = [len(fed.task.data.y[fed.task.slice_of(k)].unique()) for k in range(4)]

    assert 1 in own
    assert sizes(fed, "uplink") == [[32 * 4 * count for count in own]] * 3
    assert sizes(fed, "downlink") == [[0] * 4, [32 * 4 * 3] * 4, [32 * 4 * 3] * 4]


def test_the_work_of_a_round() -> None:
    """Local steps, a forward pass of what is sent, and the steps towards the consensus where they are made."""

    def works(*settings: str) -> tuple[Federation, dict[int, list[float]]]:
        fed = run_small(*settings, "stop.rounds=2", timing_only=True)
        computes = fed.ledger.frame("computes").sort_values("started_s", kind="stable")
        return fed, computes.groupby("device")["flop"].apply(list).to_dict()

    fed, found = works(*PUBLIC, FEDMD.replace("cohort: 3", "cohort: 4"))
    step, ahead, n = fed.task.model.flop_per_sample, fed.task.model.forward_flop_per_sample, 20
    assert (ahead, step) == (2 * (9 * 4 + 4 * 3), 2 * ahead + 2 * 4 * 3)
    for k in range(4):
        assert found[k] == [2 * n * step, 30 * ahead, 2 * 30 * step, 2 * n * step, 30 * ahead]
    _, found = works(*PUBLIC, FEDDF.replace("cohort: 3", "cohort: 4"))
    assert found[0] == [2 * n * step] * 2
    assert found[-1] == [4 * 30 * ahead, 2 * 30 * step] * 2
    fed, found = works(*DATA, FEDPROTO.replace("cohort: 3", "cohort: 4"))
    n = fed.device(0).n_samples
    assert found[0] == [2 * n * step, n * ahead] * 2


# ---- maths -----------------------------------------------------------------------------------------------------------


def test_the_divergence_by_hand() -> None:
    """From (1/2, 1/2) to (1/4, 3/4): ln(2) / 2 + ln(2/3) / 2; scores may all be shifted."""
    wanted, found = torch.tensor([[7.0, 7.0], [1.0, 2.0]]), torch.tensor([[0.0, np.log(3.0)], [-4.0, -3.0]])
    assert divergence(found, wanted).tolist() == pytest.approx([np.log(4 / 3) / 2, 0.0], abs=1e-6)


def test_prototypes_are_weighted_by_the_samples_of_their_class() -> None:
    """Class 0 by 3 and 1 samples, class 2 by one device; class 1, of which nothing has come, stays."""
    before, sent = torch.tensor([[9.0], [8.0]]), [torch.tensor([[4.0], [5.0]]), torch.tensor([[8.0]])]
    found = merged(before, (0, 1), sent, [{0: 3, 2: 5}, {0: 1}], (0, 1, 2))

    assert found.tolist() == [[5.0], [8.0], [5.0]]


def test_features_are_what_the_last_layer_receives() -> None:
    """For a network with batch norm: the outputs are its own, and the last layer makes them of the features."""
    module = DigitModel(channels=(2, 2, 3), units=(5, 4)).build((1, 8, 8), 3)
    model = FlatModel(module, "cross-entropy", (1, 8, 8))
    featured, w = with_features(model, 3), model.initial() + 0.1
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    told, parts = featured.model.forward(w, x), model.unflatten(w)
    last = [name for name in parts if name.endswith(".weight")][-1]

    assert (featured.size, featured.model.size, featured.model.flop_per_sample) == (
        4,
        model.size,
        model.flop_per_sample,
    )
    torch.testing.assert_close(told[:, :3], model.forward(w, x))
    torch.testing.assert_close(told[:, 3:] @ parts[last].T + parts[last.replace("weight", "bias")], told[:, :3])


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        ((FEDMD,), ["distils on public samples, got none; give server.samples"]),
        (("server.flop_per_s=1e6", FEDDF), ["distils on public samples, got none; give server.samples"]),
        (("server.samples=30", FEDDF), ["computes on the server, got no speed of it; give server.flop_per_s"]),
        ((FEDDF,), ["distils on public samples", "computes on the server"]),
    ],
)
def test_what_they_need_of_the_server(settings: tuple[str, ...], problems: list[str]) -> None:
    """Samples, and a speed if it computes: told before anything is built."""
    found = list(small_scenario(*DATA, *settings).contradictions())

    assert [path for path, _ in found] == [("algorithm", "kind")] * len(problems)
    assert all(what.startswith(problem) for (_, what), problem in zip(found, problems, strict=True))
