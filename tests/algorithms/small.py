"""Each algorithm of the table on four devices, in runs of milliseconds, and the conditions in which it is played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
import torch

from fednet_emu.emulation.store import Head, Saver, Shelf
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.observer import Models
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.program import Program
from fednet_emu.testing import small_federation, small_scenario

CLUSTER = (
    "network.sidelink={channel: {include: ideal}, access: spatial-reuse, "
    "message_loss: {kind: random, probability: 0.1}, "
    "topology: {edges: {kind: random-regular, degree: 3}, clusters: {kind: equal, count: 1}}}"
)


def local_sgd(kind: str, more: str = "") -> str:
    """The setting of an algorithm whose devices make local steps, three at a time."""
    return f"algorithm={{kind: {kind}, cohort: 3, lr: 0.1, local_steps: 2, batch_size: 8, {more}}}"


def peers(kind: str, more: str = "") -> str:
    """The setting of an algorithm without a server, whose devices make local steps."""
    return f"algorithm={{kind: {kind}, lr: 0.1, local_steps: 2, batch_size: 8, {more}}}"


TWO_STATIONS = (
    "channel=urban-micro",
    "network.cells={kind: list, xy_m: [[-20, 0], [20, 0]]}",
    "network.edge_servers.backhaul={energy_j_per_bit: 1e-8, message_loss: {kind: random, probability: 0.1}}",
)

WITH_CLASSES = ("data={kind: synthetic, features: 9, classes: 3, n_samples: 320, n_test: 60}", "model=softmax")
ADAPTED = (
    "data={kind: synthetic, features: 9, classes: 3, n_samples: 320, n_test: 60}",
    'model={kind: module, path: "tests.algorithms.adapters.networks:Adapted"}',
    "model.args={features: 9, outputs: 3, rank: 2}",
)

ALGORITHM_SETTINGS = {
    "adaptive-tau": ("algorithm={kind: adaptive-tau, lr: 0.05, batch_size: 8, budget_s: 30, tau_max: 6}",),
    "afl": ("algorithm={kind: afl, lr: 0.2, lr_lambda: 0.1, batch_size: null, averaged: false}",),
    "aspire": (
        "algorithm={kind: aspire, active: 2, max_delay: 8, lr: 0.5, local_steps: 5, prox: 0.2, rho_dual: 0.02}",
        "algorithm.uncertainty={kind: cd-norm, budget: 1}",
    ),
    "cfl": (local_sgd("cfl", "stationary: 1.0, split: 0.1, record_every: 1"),),
    "colrel": (CLUSTER, local_sgd("colrel")),
    "ad-psgd": (CLUSTER, peers("ad-psgd")),
    "d-psgd": (CLUSTER, peers("d-psgd")),
    "gossip": (CLUSTER, peers("gossip")),
    "matcha": (CLUSTER, peers("matcha", "budget: 0.6")),
    "sgp": (CLUSTER, peers("sgp")),
    "connectivity-aware": (CLUSTER, local_sgd("connectivity-aware", "phi_max: 0.06")),
    "ditto": (local_sgd("ditto", "pull: 0.1"),),
    "drfa": ("algorithm={kind: drfa, cohort: 3, local_steps: 3, lr: 0.1, lr_lambda: 0.02, batch_size: 8}",),
    "fedasync": ("algorithm={kind: fedasync, alpha: 0.6, lr: 0.2, local_steps: 4, batch_size: 8, concurrency: 3}",),
    "fedavg": (local_sgd("fedavg"),),
    "feddf": (*WITH_CLASSES, "server={samples: 40, flop_per_s: 1e6}", local_sgd("feddf")),
    "feddyn": (local_sgd("feddyn", "alpha: 0.5"),),
    "fedmd": (*WITH_CLASSES, "server={samples: 40}", local_sgd("fedmd")),
    "fednova": (local_sgd("fednova", "prox: 0.01"),),
    "fedbuff": ("algorithm={kind: fedbuff, buffer_size: 3, lr: 0.1, local_steps: 2, batch_size: 8, concurrency: 3}",),
    "fedper": (local_sgd("fedper", "personal_layers: ['*.bias']"),),
    "fedproto": (
        *WITH_CLASSES,
        "model={kind: mlp, hidden: [8]}",
        local_sgd("fedproto", "pull: 0.1"),
        "data.separation=6",
        "algorithm.local_steps=4",
    ),
    "fedprox": (local_sgd("fedprox", "mu: 0.1, adaptive: true, partial_work: {kind: random, share: 0.5}"),),
    "fedrep": (local_sgd("fedrep", "personal_layers: ['*.bias'], head_epochs: 1"),),
    "fedul": (
        *WITH_CLASSES,
        "partition={kind: surrogate-sets, skew: iid, sets: 3}",
        "server={samples: 40, validation_samples: 40, flop_per_s: 1e6}",
        "algorithm={kind: fedul, cohort: 3, lr: 0.1, batch_size: 8, supervision: M2}",
    ),
    "flexlora": (*ADAPTED, local_sgd("flexlora", "ranks: [2], clip_norm: 1.0"), "algorithm.lr=0.15"),
    "hetlora": (*ADAPTED, local_sgd("hetlora", "ranks: [1, 2], per_row: true")),
    "flora": (*ADAPTED, local_sgd("flora", "ranks: [1, 2]")),
    "frank-wolfe-clustering": (local_sgd("frank-wolfe-clustering", "alpha: 1.0, dual_lr: 0.01, tolerance: 1e-9"),),
    "cyclic-fedavg": (
        "algorithm={kind: cyclic-fedavg, lr: 0.1, structure: {kind: scenario-2, groups: 2}}",
        "algorithm.local_steps=4",
        "algorithm.batch_size=8",
    ),
    "hier-favg": (local_sgd("hier-favg", "edge_rounds: 2"), *TWO_STATIONS),
    "ifca": (local_sgd("ifca", "clusters: 2, record_every: 1"),),
    "individual": ("algorithm={kind: individual, device: 0, lr: 0.1, local_steps: 2, batch_size: null}",),
    "local": (local_sgd("local"),),
    "per-fedavg": (local_sgd("per-fedavg", "order: hessian-free"),),
    "pfedme": (local_sgd("pfedme", "pull: 1, local_model_lr: 1, local_model_steps: 2"),),
    "q-ffl": (local_sgd("q-ffl", "q: 0.5"),),
    "scaffold": (local_sgd("scaffold"),),
    "splitfed": (
        "data={kind: synthetic, features: 9, classes: 3, n_samples: 80, n_test: 60}",
        "model={kind: mlp, hidden: [8]}",
        "server.flop_per_s=1e7",
        local_sgd("splitfed"),
    ),
    "safa": (
        "algorithm={kind: safa, selected_fraction: 0.5, lag_tolerance: 3, lr: 0.1, local_steps: 2, batch_size: 8}",
    ),
}
"""Settings with which each algorithm runs on four devices; each keeps its learning rate in `algorithm.lr`."""

LONELY = {
    "aspire": ("algorithm.active=1",),
    "cyclic-fedavg": ("algorithm.structure.groups=1",),
    "drfa": ("algorithm.cohort=1",),
    "fedavg": ("algorithm.cohort=1",),
}
"""What each algorithm needs beside `devices.count=1`."""

CONDITIONS = {
    "ideal": (),
    "30 % loss": (
        "network.uplink.message_loss={kind: random, probability: 0.3}",
        "network.downlink.message_loss={kind: random, probability: 0.3}",
    ),
    "one device": ("devices.count=1",),
    "small batteries": (
        "devices.compute_energy={kind: measured, active_w: 1.0}",
        "devices.battery={capacity_j: 1e-3, harvesting: {kind: poisson, arrival_j: 5e-4, mean_interval_s: 1e-3}}",
    ),
}
ROUNDS = 3
ENGINES = ["serial", pytest.param("batched", marks=pytest.mark.slow)]
"""Engines that agree: that they do is the claim of others, for each algorithm and in `tests/learning/engines`."""
EVERYWHERE = ("devices.straggler={kind: shifted-exponential, mean_factor: 0.5}", f"stop.rounds={ROUNDS}")


def settings_of(algorithm: str, condition: str, *more: str) -> tuple[str, ...]:
    lonely = LONELY.get(algorithm, ()) if condition == "one device" else ()
    return (*EVERYWHERE, *ALGORITHM_SETTINGS[algorithm], *CONDITIONS[condition], *lonely, *more)


def finals(*settings: str) -> tuple[Federation, list[torch.Tensor]]:
    """The federation after a run, and its final model, or those of all devices."""
    fed = small_federation(*settings)
    final = fed.run(small_scenario(*settings).algorithm)
    assert final is not None
    return fed, [fed.read(w) for w in ([final] if isinstance(final, Deferred) else final)]


def stacked(*settings: str) -> tuple[Federation, torch.Tensor]:
    """The same, with the models as rows."""
    fed, models = finals(*settings)
    return fed, torch.stack(models)


def final(*settings: str) -> tuple[Federation, torch.Tensor]:
    """The federation after a run, and its final model."""
    fed, [model] = finals(*settings)
    return fed, model


def in_turns(fed: Federation) -> frozenset[str]:
    """The links that carry one transmission at a time: with several base stations none does."""
    return frozenset({"uplink", "downlink"} if fed.network.settings.cells.count == 1 else ())


def digest_of(fed: Federation) -> str:
    return fed.ledger.event_digest()


def resumed_every_round(rounds: int, *settings: str) -> tuple[Federation, Models | None]:
    """A run cut after each of its rounds, every part resumed from the file of the one before; and its final model."""

    def cut(after_round: int) -> Callable[[Federation], None]:
        def observe(fed: Federation) -> None:
            if fed.round == after_round:
                raise KeyboardInterrupt

        return observe

    with TemporaryDirectory() as folder:
        for after_round in range(1, rounds + 1):
            part = small_federation(*settings)
            saver = remembering(part, Path(folder))
            part.observers.append(cut(after_round))
            with pytest.raises(KeyboardInterrupt):
                part.run(small_scenario(*settings).algorithm)
            saver.save(part)
        last = small_federation(*settings)
        remembering(last, Path(folder))
        return last, last.run(small_scenario(*settings).algorithm)


def assert_it_goes_on(*settings: str) -> tuple[Federation, Federation]:
    """Cut after each of its rounds, each part resumed from the one before, no bit differs, nothing is trained twice."""
    whole, models = finals(*settings)
    statistics = whole.graph.statistics
    last, final = resumed_every_round(whole.round, *settings)

    frames = whole.ledger.frames()
    assert last.ledger.frames().keys() == frames.keys()
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(last.ledger.frame(name), frame, check_exact=True)
    assert last.graph.statistics == replace(statistics, trained=0)
    found = [last.read(w) for w in ([final] if isinstance(final, Deferred) else final or [])]
    assert all(torch.equal(*pair) for pair in zip(found, models, strict=True))
    return whole, last


def remembering(fed: Federation, own: Path | None, shared: Path | None = None) -> Saver:
    """Let a federation take what it learns from folders, and keep it there with what this returns."""
    shelf = Shelf(own, shared, Head({"test": "1"}))
    fed.graph.use(Program(shelf.head.digest, shelf, b"own"))
    return Saver(shelf, 1.0)
