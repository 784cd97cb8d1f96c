"""Claims about whom the master of ASPIRE waits for: the first reports, the stale, all, or as many as the pace says."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fednet_emu.algorithms.robust.aspire.algorithm import Adaptive, Aspire, Pace
from fednet_emu.algorithms.robust.aspire.master import Master, Worker
from fednet_emu.algorithms.robust.aspire.updates import Planes
from fednet_emu.errors import Deadlock, ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.testing import run_small, small_federation, small_scenario

ASPIRE = "algorithm={kind: aspire, active: null, lr: 0.1, uncertainty: {kind: cd-norm, budget: 1}}"


def series(fed: Federation, name: str, column: str) -> list[Any]:
    """A column of a series."""
    return [row[column] for row in fed.ledger.series[name]]


def straggling(*settings: str) -> Federation:
    """Eight workers of which one is four times slower; computing takes far longer than sending."""
    slow = "devices.straggler={kind: slow-window, devices: [7], factor: 4, from_s: 0, to_s: 1e6}"
    speed = "devices.speed={kind: fixed, flop_per_s: 1e4}"
    return run_small(ASPIRE, "devices.count=8", "data.n_samples=160", slow, speed, *settings, timing_only=True)


def test_one_straggler_costs_a_synchronous_master_far_more() -> None:
    """With one of eight workers four times slower, S = 1 needs at most a fifth of the time for as many iterations."""
    fast, slow = (straggling(f"algorithm.active={s}", "stop.rounds=300") for s in ("1", "null"))

    assert fast.round == slow.round == 300
    assert fast.clock.now_s <= slow.clock.now_s / 5


def test_the_longest_delay_is_kept() -> None:
    """With max_delay 10 no report is older than 10 iterations; without it the straggler's are."""
    bounded, free = (straggling("algorithm.active=1", f"algorithm.max_delay={d}", "stop.rounds=200")
                     for d in ("10", "null"))  # fmt: skip

    assert max(series(bounded, "activations", "staleness")) == 10
    assert max(series(free, "activations", "staleness")) > 20


def test_the_words_of_the_paper_hear_everybody_in_any_tau_iterations() -> None:
    """Exclusively, no report is older than 9 iterations, and any 10 of them in a row have heard all eight workers."""
    fed = straggling("algorithm.active=1", "algorithm.max_delay=10", "algorithm.max_delay_inclusive=false",
                     "stop.rounds=200")  # fmt: skip
    heard = list(zip(series(fed, "activations", "step"), series(fed, "activations", "device"), strict=True))

    assert max(series(fed, "activations", "staleness")) == 9
    for first in range(1, 192):
        assert {device for step, device in heard if first <= step < first + 10} == set(range(8))


def test_waiting_for_all_needs_all() -> None:
    """S = N hears everybody in every iteration, and nobody is stale."""
    fed = run_small(ASPIRE, "stop.rounds=5")

    assert series(fed, "aspire", "arrived") == [4] * 5
    assert set(series(fed, "activations", "staleness")) == {0}


def test_the_adaptive_master_says_so_when_a_worker_is_gone_for_good() -> None:
    """Its timer stops when only a report can change anything, so that a wait for ever is a deadlock, not a loop."""
    gone = "devices.availability={kind: windows, devices: {0: [[0, 0.005]]}}"
    adaptive = "algorithm.adaptive={threshold_s: 60, tick_s: 1}"
    with pytest.raises(Deadlock, match="dev-0 must be among them"):
        run_small(ASPIRE, "algorithm.active=1", "algorithm.max_delay=4", adaptive, gone, "stop.rounds=60")


def test_an_adaptive_threshold_of_twice_the_mean_does_not_tick_for_ever() -> None:
    """With three of four workers gone the longest delay does not exceed twice the mean: a deadlock, not a loop."""
    gone = "devices.availability={kind: windows, devices: {0: [[0, 0.005]], 1: [[0, 0.005]], 2: [[0, 0.005]]}}"
    adaptive = "algorithm.adaptive={threshold_s: null, tick_s: 1}"
    with pytest.raises(Deadlock, match="waits for"):
        run_small(ASPIRE, "algorithm.active=1", adaptive, gone, "stop.rounds=60")


def test_time_alone_eases_the_pace_while_few_are_awaited() -> None:
    """Of four workers one or two awaited: after 2 s at the first, and before the second's delay grows, S falls to 1.

    The first grows from 0 s on, the second from 4 s on; twice the mean of (3, 2, 0, 0) is 2.5. At 9 s both grow.
    """
    pace = Pace(4, 1, Adaptive(threshold_s=None))
    pace.replied(0, 0.0)
    assert pace.may_ease(0.0)
    pace.heard(0, 2.0)
    for worker, told_s in ((0, 2.0), (1, 3.0)):
        pace.replied(worker, told_s)
    assert pace.active(3.0) == 1
    assert not pace.may_ease(3.0)
    pace.heard(0, 4.0)
    pace.heard(1, 5.0)
    for worker in range(4):
        pace.replied(worker, 5.0)
    assert pace.active(5.5) == 4
    assert not pace.may_ease(8.0)


def test_the_adaptive_master_follows_a_straggler() -> None:
    """S falls from N to 1 within a tick of the moment at which the delay passes the threshold, and comes back.

    Four workers answer within 30 ms; the last is ten times slower from 1 s to 2 s, and the threshold is 60 ms.
    """
    slow = "devices.straggler={kind: slow-window, devices: [3], factor: 10, from_s: 1, to_s: 2}"
    speed, adaptive = "devices.speed={kind: fixed, flop_per_s: 3.6e4}", "{threshold_s: 0.06, tick_s: 0.001}"
    fed = run_small(ASPIRE, "algorithm.active=1", f"algorithm.adaptive={adaptive}", slow, speed,
                    "stop={simulated_s: 3}",
                    "algorithm.loss_of=steps", timing_only=True)  # fmt: skip
    times, active = (np.array(series(fed, "aspire", column)) for column in ("simulated_s", "active"))
    reports = [row for row in fed.ledger.series["activations"] if row["device"] == 3]
    back_s = next(row["arrived_s"] for row in reports if row["arrived_s"] > 2)

    assert set(active[times < 1]) == {4}
    down = int(np.flatnonzero(active == 1)[0])  # the iteration before it ended with the reply to the straggler
    assert 0.06 - 1e-9 <= times[down] - times[down - 1] <= 0.06 + 0.001
    assert 1 < times[down] < 1.1
    assert set(active[(times > times[down]) & (times < 2)]) == {1}
    assert set(active[times > back_s + 0.06 + 0.001]) == {4}


@pytest.mark.parametrize(
    ("threshold_s", "tick_s", "least"), [("10", "1e-9", "0.001"), ("0.06", "1e-6", "6e-06"), ("null", "1e-9", "0.001")]
)
def test_looks_at_the_delays_are_bounded(threshold_s: str, tick_s: str, least: str) -> None:
    """A tick of less than a ten-thousandth of the threshold is refused with its name, its value and the least one."""
    adaptive = f"algorithm.adaptive={{threshold_s: {threshold_s}, tick_s: {tick_s}}}"
    expected = f"tick_s: too fine, got {tick_s} s; give {least} s or more"

    with pytest.raises(ScenarioError, match=re.escape(expected.replace("1e-9", "1e-09").replace("1e-6", "1e-06"))):
        small_scenario(ASPIRE, "algorithm.active=1", adaptive)


def test_the_adaptive_master_looks_at_its_ticks() -> None:
    """A report at 10.5 s with a threshold of 10 s and ticks of 4 s: S falls at 12 s, not when the report comes."""
    speed = f"devices.speed={{kind: list, flop_per_s: [{720 / 10.5}, 7.2, 7.2, 7.2]}}"
    fed = run_small(ASPIRE, "algorithm.active=1", "algorithm.loss_of=steps", speed, "stop.rounds=1",
                    "algorithm.adaptive={threshold_s: 10, tick_s: 4}", timing_only=True)  # fmt: skip

    assert series(fed, "activations", "device") == [0]
    assert series(fed, "activations", "arrived_s") == [pytest.approx(10.5, abs=0.01)]
    assert series(fed, "aspire", "simulated_s") == [pytest.approx(12.0)]


@pytest.mark.parametrize(("loss_of", "extra"), [("steps", 0), ("result", 1)])
def test_the_loss_of_the_result_costs_a_forward_pass(loss_of: str, extra: int) -> None:
    """Over all twenty samples of a worker, beside the one step."""
    fed = run_small(ASPIRE, f"algorithm.loss_of={loss_of}", "stop.rounds=2", timing_only=True)
    model = fed.task.model

    assert set(fed.ledger.computes.column("flop")) == {
        20 * (model.flop_per_sample + extra * model.forward_flop_per_sample)
    }


@pytest.mark.parametrize(("wire", "told"), [("paper", 0), ("reduced", 5)])
def test_a_share_needs_no_planes(wire: Any, told: int) -> None:
    """A reply with multipliers of planes that have not come teaches nothing; one with the worker's share does."""
    fed = small_federation(ASPIRE)
    aspire = Aspire(active=1, lr=0.1, planes="fixed", batch_size=None, loss_of="steps", wire=wire, patience_s=1.0)
    master = Master(fed, np.full(4, 0.25), aspire.steps(4))
    first, terms = master.message(0, wire), master.terms(0)
    worker = Worker(fed.device(0), 0, master.z, master.planes, terms.share)
    newer = first._replace(t=5, planes=Planes(1, np.full((1, 4), 0.5)))
    fed.clock.run_process(aspire.activation(fed, worker, newer, terms, fed.inbox()))

    assert worker.told == told
