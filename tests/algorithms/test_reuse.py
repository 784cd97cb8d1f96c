"""Every algorithm learns the same, to the last bit, whatever is known of its learning program."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from fednet_emu.federation.federation import Federation
from fednet_emu.learning.graph import graph as graph_module
from fednet_emu.learning.graph import work as work_module
from fednet_emu.learning.graph.accumulation import Accumulate, _Running, accumulated
from fednet_emu.learning.graph.deferred import Deferred, values_of
from fednet_emu.learning.graph.spelling import Speller
from fednet_emu.testing import small_federation, small_scenario
from tests.algorithms.small import ALGORITHM_SETTINGS, CONDITIONS, settings_of
from tests.learning.graph.memory import Memory
from tests.quick import crossed

WAYS = {
    "qsgd": ("network.uplink.compression=qsgd",),
    "top-k": ("network.uplink.compression={kind: top-k, share: 0.2}",),
    "random-k": ("network.uplink.compression={kind: random-k, share: 0.2}",),
    "dp": (
        "algorithm.selection=poisson",
        "algorithm.aggregation={kind: dp, clip_norm: 1, noise_multiplier: 0.1, adaptive: {}}",
    ),
    "local-dp": ("algorithm.aggregation={kind: local-dp, clip_norm: 1.0, noise_multiplier: 0.1}",),
    "private-sgd": ("algorithm.dp_sgd={clip_norm: 1, noise_multiplier: 1}",),
    "over-the-air": ("network.uplink.access={kind: over-the-air, symbols_per_slot: 4, snr_db: 30}",),
    "secure": ("network.uplink.secure_aggregation={kind: bonawitz}",),
    "by loss": ("algorithm.selection=power-of-choice",),
}
"""Ways of FedAvg's messages to the server that change what is learnt, with random numbers of their own."""
CASES = [*crossed(ALGORITHM_SETTINGS, ["ideal", "30 % loss"]), *(("fedavg", way) for way in WAYS)]


def settings_in(algorithm: str, condition: str) -> tuple[str, ...]:
    """The scenario of one case."""
    return settings_of(algorithm, condition if condition in CONDITIONS else "ideal", *WAYS.get(condition, ()))


def played(settings: tuple[str, ...], memory: Memory | None, *, keeps: bool = False) -> tuple[Federation, list[Any]]:
    """A federation after its run, and everything that it has learnt."""
    fed = small_federation(*settings)
    if memory is not None:
        fed.graph.use(memory.program())
        if keeps:
            fed.observers.append(lambda its: memory.keep(its.graph) if its.graph.at_rest() else None)
    final = fed.run(small_scenario(*settings).algorithm)
    models = [] if final is None else [final] if isinstance(final, Deferred) else list(final)
    return fed, [fed.graph.read(w) for w in models]


def assert_same(one: tuple[Federation, list[Any]], other: tuple[Federation, list[Any]]) -> None:
    """Equal tables, counts and final models, to the last bit."""
    (fed, models), (again, models_again) = one, other
    for name in ("evaluations", "device_evaluations", "rounds"):
        assert getattr(again.ledger, name).digest() == getattr(fed.ledger, name).digest(), name
    assert again.ledger.event_digest() == fed.ledger.event_digest()
    assert len(models_again) == len(models)
    assert all(map(torch.equal, models_again, models))
    counts, counts_again = fed.graph.statistics, again.graph.statistics
    assert (counts_again.wavefronts, counts_again.jobs) == (counts.wavefronts, counts.jobs)


@pytest.mark.parametrize(("algorithm", "condition"), CASES)
def test_what_is_known_changes_no_bit(algorithm: str, condition: str) -> None:
    """Nothing known, all known, a random half of it, and no snapshots: the same; what is all known trains nothing."""
    settings, memory, rng = settings_in(algorithm, condition), Memory(), random.Random(algorithm)
    whole = played(settings, None)
    first = played(settings, memory, keeps=True)
    full, half, bare = memory.again(), memory.again(), memory.again()
    bare.snapshots = {}
    for known in (half.entries, half.snapshots):
        for key in [key for key in known if rng.random() < 0.5]:
            del known[key]
    half.passed -= {rolling for rolling in half.passed if rng.random() < 0.1} - {b"head"}

    plays = [first, played(settings, full), played(settings, half), played(settings, bare)]
    for play in plays:
        assert_same(whole, play)
    trained = [fed.graph.statistics.trained for fed, _ in plays]
    assert trained[0] == whole[0].graph.statistics.trained
    assert trained[1] == 0
    assert trained[3] <= trained[0]


class Recorded:
    """A sum under way that notes its parts and, at its end, how to compute it again."""

    def __init__(self, function: Any, args: list[Any], made: list[tuple[Any, Any]]) -> None:
        self._running, self._again, self._made = _Running(function(*args)), partial(function, *args), made
        self._parts: list[Any] = []

    def add(self, part: Any) -> None:
        """Add a part."""
        self._parts.append(part)
        self._running.add(part)

    def result(self) -> Any:
        """The sum."""
        value = self._running.result()
        self._made.append((lambda: accumulated(self._again(), self._parts), value))
        return value


@pytest.mark.parametrize(("algorithm", "condition"), CASES)
def test_what_a_graph_calls_is_pure(algorithm: str, condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function and sum, called again after the run and after other random numbers, returns the same bits."""
    made: list[tuple[Any, Any]] = []

    def evaluated(node: Deferred) -> Any:
        work, value = node._work, work_module.evaluated(node)
        if type(work) is not Accumulate:
            made.append((partial(work.function, *values_of(work.args)), value))
        return value

    def run(self: Accumulate) -> Any:
        self._running = self._running or Recorded(self.function, values_of(self.args), made)  # type: ignore[assignment]
        return self._running

    monkeypatch.setattr(graph_module, "evaluated", evaluated)
    monkeypatch.setattr(Accumulate, "_run", run)
    fed, _ = played(settings_in(algorithm, condition), None)
    fed.close()
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    for again, value in reversed(made):
        assert Speller().spelled(again()) == Speller().spelled(value), again
    assert made or condition != "ideal" or algorithm in ("individual", "local")


NETWORKS = {
    "slow": ("channel.rate.bit_rate_bps=1e5",),
    "unicast": ("network.downlink.mode=unicast",),
    "losses": ("network.uplink.message_loss={kind: random, probability: 0.3}",),
    "deadline": ("algorithm.deadline_s=0.006",),
    "asynchronous": ("algorithm={kind: fedbuff, buffer_size: 3, lr: 0.1, local_steps: 2, batch_size: 8}",),
    "fast and asynchronous": (
        "channel.rate.bit_rate_bps=1e9",
        "algorithm={kind: fedbuff, buffer_size: 3, lr: 0.1, local_steps: 2, batch_size: 8}",
    ),
}


@pytest.mark.parametrize(("before", "network"), crossed(NETWORKS, [*list(NETWORKS)[1:], "slow"]))
def test_networks_share_as_much_as_they_have_in_common(before: str, network: str) -> None:
    """A run after one in another network: the same as alone; where the same arrives, nothing is trained."""
    base = ("stop.rounds=6", "algorithm.batch_size=8", "devices.straggler={kind: shifted-exponential, mean_factor: 2}")
    memory = Memory()
    played((*base, *NETWORKS[before]), memory, keeps=True)
    alone = played((*base, *NETWORKS[network]), None)
    after = played((*base, *NETWORKS[network]), memory.again())

    assert_same(alone, after)
    if before == network or {before, network} <= {"slow", "unicast"}:
        assert after[0].graph.statistics.trained == 0
