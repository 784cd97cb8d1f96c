"""Running statistics, as of batch norm, are no parameters: whatever acts on parameters leaves them to a mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fednet_emu as fe
from fednet_emu.algorithms.clustered.cfl import halves, lengths
from fednet_emu.algorithms.clustered.ifca import shuffled
from fednet_emu.algorithms.cyclic.algorithm import part_of_the_way, server_step
from fednet_emu.algorithms.d2d.round import mixed_update
from fednet_emu.algorithms.decentralised.ad_psgd import added, halfway
from fednet_emu.algorithms.decentralised.rounds import moved
from fednet_emu.algorithms.decentralised.sgp import moved_part
from fednet_emu.algorithms.personal.per_fedavg import moved as meta_moved
from fednet_emu.compression import COMPRESSIONS
from fednet_emu.federation import accumulated, moved_by_sum
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.observer import Models
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.models.flat import FlatModel
from fednet_emu.testing import small_federation, small_scenario
from tests.algorithms.heterogeneous.oracle import SKEWED, algorithm
from tests.algorithms.small import CLUSTER, TWO_STATIONS


class Normed(nn.Module):
    """A linear classifier of normalised features, which are small, so that running variances fall from 1 to 0.09."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(9), nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [n, 3]."""
        scores: Tensor = self.out(self.norm(0.3 * x))
        return scores


MODEL = f"model={{kind: module, path: '{Normed.__module__}:Normed'}}"
EQUAL = ("data={kind: synthetic, n_samples: 80, n_test: 20, features: 9, classes: 3}", MODEL, "stop.rounds=6")


def averaging(kind: str = "fedavg", **more: object) -> str:
    """The setting of an algorithm in which all four devices make the same local steps in each round."""
    return algorithm(kind, **({"cohort": 4, "batch_size": 10} | more))


def statistics(*settings: str) -> tuple[Federation, Tensor]:
    """The federation after a run, and the running means and variances [models, 18] at its end."""
    fed = small_federation(*settings)
    final: Models = fed.run(small_scenario(*settings).algorithm)  # type: ignore[assignment]
    models = final if isinstance(final, list) else [final]
    return fed, torch.stack([fed.read(model)[fed.task.model.n_trainable :][:18] for model in models])  # type: ignore


@pytest.fixture(scope="module")
def plain() -> Tensor:
    return statistics(*EQUAL, averaging())[1]


SERVERS = {
    "momentum": averaging(server_optimizer="{kind: momentum, lr: 1.0, beta: 0.9}"),
    "adam": averaging(server_optimizer="{kind: adam, lr: 0.1}"),
    "yogi": averaging(server_optimizer="{kind: yogi, lr: 0.1}"),
    "adagrad": averaging(server_optimizer="{kind: adagrad, lr: 0.1}"),
    "server_lr above 1": averaging(server_lr=3.0),
    "server_lr below 1": averaging(server_lr=0.1),
    "fedprox": averaging("fedprox", server_optimizer="{kind: momentum}"),
    "scaffold": averaging("scaffold", server_lr=3.0),
    "fednova": averaging("fednova"),
    "feddyn": averaging("feddyn", alpha=0.1, evaluated="server"),
    "q-ffl": averaging("q-ffl", q=0.0),
    "cyclic": algorithm(
        "cyclic-fedavg", cohort=None, structure="{kind: scenario-2, groups: 1}", agg="sum", batch_size=10
    ).replace("cohort: None, ", ""),
}


@pytest.mark.parametrize("setting", SERVERS.values(), ids=SERVERS)
def test_no_step_of_a_server_acts_on_them(plain: Tensor, setting: str) -> None:
    """The features do not depend on parameters: all steps of the server leave the statistics of plain averaging."""
    found = statistics(*EQUAL, setting)[1]

    assert torch.allclose(found.mean(0), plain[0], rtol=1e-4, atol=1e-6)


SCHEMES = {
    **{kind: f"{{kind: {kind}}}" for kind in COMPRESSIONS if kind not in ("none", "chain")},
    "qsgd of one level": "{kind: qsgd, levels: 1}",
    "uniform of 2 bits": "{kind: uniform, bits: 2}",
    "error feedback": "{kind: random-k, error_feedback: true}",
    "chain": "{kind: chain, stages: [{kind: top-k, share: 0.1}, {kind: sign}]}",
}


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_no_compression_acts_on_them(plain: Tensor, scheme: str) -> None:
    """In both directions they travel as they are, 32 bits for each of the 18, beside the compressed parameters."""
    both = [f"network.{way}.compression={scheme}" for way in ("uplink", "downlink")]
    fed, found = statistics(*EQUAL, averaging(), *both)
    bits = small_scenario(*both).network.uplink.compression.bit(fed.task.model.n_trainable) + 32 * 18

    assert torch.allclose(found, plain, rtol=1e-4, atol=1e-6)
    sent = fed.ledger.frame("transfers")
    assert set(sent[sent["sender"] >= 0]["size_bit"]) == {bits}


def test_only_the_shared_ones_are_sent_beside_a_compressed_base() -> None:
    """FedPer, which keeps the last layer: 18 parameters of the norm layer by one bit each, and 18 statistics whole."""
    setting = averaging("fedper"), "network.uplink.compression={kind: sign}"
    fed, found = statistics(*EQUAL, *setting)
    sent = fed.ledger.frame("transfers")

    assert set(sent[sent["sender"] >= 0]["size_bit"]) == {18 + 32 + 18 * 32}
    assert found[:, 9:].min() > 0.04


def test_secure_sums_carry_them_as_masked_entries(plain: Tensor) -> None:
    """Each is one more entry of the masked vector: as many bits as a parameter, and rounded as finely."""
    secure = "network.uplink.secure_aggregation={kind: bonawitz, clip: 8}"
    fed, found = statistics(*EQUAL, averaging(weighting="uniform"), secure)
    rule = small_scenario(secure).network.uplink.secure_aggregation
    sent = fed.ledger.frame("transfers")

    assert rule is not None
    assert fed.task.model.size * rule.entry_bit(4) in set(sent[sent["sender"] >= 0]["size_bit"])
    assert torch.allclose(found, plain, atol=6 * rule.clip / rule.largest)


OTHERS = {
    "fedbuff": (
        "algorithm={kind: fedbuff, buffer_size: 3, server_lr: 2, lr: 0.1, local_steps: 9, batch_size: 8, "
        "concurrency: 4}",
        "devices.straggler={kind: shifted-exponential, mean_factor: 9}",
    ),
    "fedasync": ("algorithm={kind: fedasync, lr: 0.1, local_steps: 9, batch_size: 8, concurrency: 4}",),
    "safa": ("algorithm={kind: safa, lr: 0.1, local_steps: 9, batch_size: 8}",),
    "hier-favg": (*TWO_STATIONS, averaging("hier-favg")),
    "colrel": (CLUSTER, "algorithm={kind: colrel, cohort: 1, lr: 0.1, local_steps: 9, batch_size: 8}"),
    "connectivity-aware": (
        CLUSTER,
        "algorithm={kind: connectivity-aware, cohort: 1, phi_max: 9, lr: 0.1, local_steps: 9, batch_size: 8}",
    ),
    "sgp": (CLUSTER, "algorithm={kind: sgp, lr: 0.1, local_steps: 9, batch_size: 8}"),
    "d-psgd": (CLUSTER, "algorithm={kind: d-psgd, order: paper, lr: 0.1, local_steps: 9, batch_size: 8}"),
    "ad-psgd": (CLUSTER, "algorithm={kind: ad-psgd, lr: 0.1, local_steps: 9, batch_size: 8}"),
    "pfedme": (averaging("pfedme", pull=1, local_model_lr=3, server_lr=3.0),),
    "per-fedavg": (averaging("per-fedavg", order="hessian-free", lr=1.5),),
    "q-ffl": (averaging("q-ffl", q=2.0),),
    "afl": ("algorithm={kind: afl, lr: 0.2, lr_lambda: 0.1, batch_size: 8}",),
    "drfa": ("algorithm={kind: drfa, cohort: 3, local_steps: 9, lr: 0.1, lr_lambda: 0.02, batch_size: 8}",),
    "cfl": (averaging("cfl", stationary=1.0, split=0.1),),
    "ifca": (averaging("ifca", clusters=2),),
    "ditto": (averaging("ditto", pull=0.1),),
    "fedrep": (averaging("fedrep", personal_layers="[-1]", head_epochs=1),),
    **{kind: (f"algorithm.aggregation={kind}",) for kind in ("median", "trimmed-mean")},
    "krum": ("algorithm.aggregation={kind: krum, byzantine: 0}",),
}


@pytest.mark.parametrize("settings", OTHERS.values(), ids=OTHERS)
def test_variances_stay_variances(settings: tuple[str, ...]) -> None:
    """They fall from 1 towards 0.09 and never leave the range between the least of a batch and 1; nothing is nan."""
    base = averaging().replace("cohort", "server_optimizer: {kind: momentum}, cohort")
    fed, found = statistics(*EQUAL, "stop.rounds=8", *((base, *settings) if "aggregation" in settings[0] else settings))

    assert found[:, 9:].min() > 0.005
    assert found[:, 9:].max() < 1.01
    assert found[:, 9:].mean() < 0.9
    assert torch.isfinite(torch.tensor(fed.ledger.evaluations.column("loss"))).all()


UNEQUAL = {
    "scaffold": algorithm("scaffold", local_epochs=3, batch_size=7),
    "fednova": algorithm("fednova", local_epochs=3, batch_size=7),
    "feddyn": algorithm("feddyn", local_epochs=3, batch_size=7, alpha=0.1, evaluated="server"),
    "q-ffl": algorithm("q-ffl", local_epochs=3, batch_size=7, q=1.0),
}


@pytest.mark.parametrize("setting", UNEQUAL.values(), ids=UNEQUAL)
def test_unequal_work_leaves_them_in_their_range(setting: str) -> None:
    """However unequal the work of devices, running variances stay within what the features have, and it learns."""
    unequal = (*SKEWED, "stop.rounds=15", "partition={kind: dirichlet, alpha: 0.3}", setting, MODEL)
    fed, found = statistics(*unequal)

    assert fed.task.model.n_statistics == 18
    assert float(found[0, 9:].min()) > 0.2 * 0.09
    assert float(found[0, 9:].max()) < 1
    assert fed.ledger.evaluations.column("loss")[-1] < 0.9 * fed.ledger.evaluations.column("loss")[0]


REFUSED = {
    "dp": ("algorithm.aggregation={kind: dp, clip_norm: 1, noise_multiplier: 1}", "algorithm.selection=poisson"),
    "local-dp": ("algorithm.aggregation={kind: local-dp, clip_norm: 1, noise_multiplier: 1}",),
    "dp_sgd": ("algorithm.dp_sgd={clip_norm: 1, noise_multiplier: 1}",),
    "over-the-air": ("network.uplink.access=over-the-air",),
    "aspire": ("algorithm={kind: aspire, planes: fixed, active: 2, lr: 0.1, batch_size: null}",),
}


@pytest.mark.parametrize("settings", REFUSED.values(), ids=REFUSED)
def test_what_cannot_leave_them_alone_is_refused(settings: tuple[str, ...]) -> None:
    """Before the run, with the remedy: noise on a variance is no variance, and a mean without noise leaks data."""
    with pytest.raises(fe.ScenarioError, match=r"got a model with 18 running statistics.*group norm"):
        small_federation(*EQUAL, *settings)


def test_pairs_of_clients_are_not_coupled_by_them() -> None:
    """Frank-Wolfe clustering runs where the norm layer stays on the device, and is refused where it is shared."""
    setting = averaging("frank-wolfe-clustering", alpha=1.0, dual_lr=0.01)
    personal = setting.replace("alpha", "personal_layers: ['norm.*'], alpha")

    with pytest.raises(
        fe.ScenarioError, match=r"algorithm.personal_layers: running statistics .* got 18 that are shared"
    ):
        statistics(*EQUAL, setting)
    assert statistics(*EQUAL, personal)[1].shape == (4, 18)


# ---- functions of vectors whose last two entries are statistics ------------------------------------------------------


def test_clusters_are_found_by_parameters_alone() -> None:
    """Two updates that point one way and two that point the other, under statistics that say otherwise."""
    w = torch.zeros(4)
    updates = [torch.tensor([sign, 0.1 * sign, far, far]) for sign, far in ((1.0, 9), (1.0, -9), (-1.0, 9), (-1.0, -9))]

    assert halves(w, updates, 2).tolist() == [False, False, True, True]
    mean, longest = lengths(w, updates[:2], [1, 1], 2)
    assert mean == longest == pytest.approx(1.01**0.5)


def test_sums_with_weights_that_add_up_to_more_than_one_move_them_by_the_mean() -> None:
    """Of two models with variances 0.2 and 0.4 after one of 1: the mean, where the parameters go three times as far."""
    w, models = torch.tensor([0.0, 1.0]), [torch.tensor([1.0, 0.2]), torch.tensor([1.0, 0.4])]
    mixed = mixed_update(w, models, np.array([2.0, 1.0]), 1)
    summed = accumulated(moved_by_sum(w, [2.0, 1.0], 1.0, 1), [model - w for model in models])
    turn = accumulated(server_step(w, 2, 1.5, 1), models)

    assert mixed.tolist() == pytest.approx([3.0, (2 * 0.2 + 0.4) / 3 - 1])
    assert summed.tolist() == pytest.approx([3.0, (2 * 0.2 + 0.4) / 3])
    assert turn.tolist() == pytest.approx([3.0, 0.3])
    assert part_of_the_way(w, models[0], 0.5, 1).tolist() == pytest.approx([0.5, 0.2])


def test_mixing_in_the_order_of_the_paper_does_not_extrapolate_them() -> None:
    """A device whose steps led from variance 4 to 0.5 hears of 0.1: between the two, not 0.5 + (0.1 - 4) / 2."""
    stepped, sent, other = (torch.tensor([w, variance]) for w, variance in ((2.0, 0.5), (1.0, 4.0), (3.0, 0.1)))

    assert moved(stepped, sent, [other], np.array([0.5]), 1).tolist() == pytest.approx([3.0, 0.3])
    assert moved_part(sent, stepped, 4.0, 1).tolist() == pytest.approx([5.0, 0.5])


def test_a_meta_step_takes_those_of_its_last_pass() -> None:
    """Per-FedAvg: no gradient of a variance; what the passes have seen, whatever the step size."""
    w, gradient, seen = (torch.tensor([w, variance]) for w, variance in ((1.0, 1.0), (2.0, 0.9), (7.0, 0.1)))

    assert meta_moved(w, gradient, -2.0, seen, 1).tolist() == pytest.approx([-3.0, 0.1])


def test_a_late_step_does_not_extrapolate_them() -> None:
    """A model that was averaged from variance 4 to 1 during steps that went from 4 to 0.5: 0.5, not 1 - 3.5."""
    x, trained, start = (torch.tensor([w, variance]) for w, variance in ((1.0, 1.0), (5.0, 0.5), (3.0, 4.0)))

    assert added(x, trained, start, 1).tolist() == [3.0, 0.5]
    assert halfway(x, start, torch.tensor([5.0, 0.2]), 1).tolist() == [2.0, pytest.approx(0.6)]


def test_further_models_of_ifca_keep_them() -> None:
    """The entries of parameters are shuffled; means and variances stay where they are."""
    model = FlatModel(Normed(), "cross-entropy", (9,))
    w = torch.arange(float(model.size))
    found = shuffled(model, w, Streams(1), 1)

    assert torch.equal(found[-18:], w[-18:])
    assert not torch.equal(found[:-18], w[:-18])
