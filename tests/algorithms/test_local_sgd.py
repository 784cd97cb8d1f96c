"""What all algorithms with local steps share: optimizer, schedule and clipping of the devices."""

from __future__ import annotations

from functools import cache
from itertools import chain, product
from typing import Any

import pytest
import torch

from fednet_emu.algorithms.base import LocalTraining
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Deferred
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.streams import Streams
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import ALGORITHM_SETTINGS, settings_of

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


def finals(*changes: str) -> tuple[Federation, torch.Tensor]:
    """The federation after a run, and its final models as rows."""
    fed = small_federation(*changes)
    final = fed.run(small_scenario(*changes).algorithm)
    return fed, torch.stack([fed.read(w) for w in ([final] if isinstance(final, Deferred) else final)])


@cache
def plain_final(*changes: str) -> torch.Tensor:
    """The final models after a run with plain steps, with which others are compared."""
    return finals(*changes)[1]


def refuses(kind: str, own: str) -> bool:
    """Whether an algorithm makes no such steps."""
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
    serial, w = finals(*settings, OWN[own])
    batched, w_batched = finals(*settings, OWN[own], "training.engine=batched")
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
    fed, w = finals(*ALGORITHM_SETTINGS["fedavg"], *every, "algorithm.lr=0")

    assert torch.equal(w[0], fed.task.model.initial())


def test_a_run_is_the_hand_written_loop() -> None:
    """Momentum, decay, clipping and a cosine over the rounds: `torch.optim.SGD` on each device's own batches."""
    changes = (
        *("data.n_samples=83", "partition=iid", "stop.rounds=4", "algorithm.local_steps=null"),
        *("algorithm.local_epochs=2", "algorithm.batch_size=8", "algorithm.clip_norm=0.8"),
        "algorithm.lr_schedule={kind: cosine, rounds: 4, final_share: 0.1}",
        "algorithm.local_optimizer={kind: momentum, beta: 0.7, nesterov: true, weight_decay: 0.05}",
    )
    fed, found = finals(*changes)
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
