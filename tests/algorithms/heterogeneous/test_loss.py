"""Memories of devices and server when uploads are lost, late or cut off; bits, times and memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from fednet_emu.algorithms.heterogeneous.feddyn import corrected
from fednet_emu.federation.federation import Federation
from fednet_emu.records.laws.verify import verify
from fednet_emu.testing import run_small
from tests.algorithms.heterogeneous.oracle import algorithm
from tests.algorithms.heterogeneous.test_limits import Memories, WatchedFedDyn, WatchedScaffold, watched
from tests.quick import crossed

WORK = {"lr": 0.05, "batch_size": 8, "local_epochs": "null", "local_steps": 3}
TROUBLES = {
    "loss": "network.uplink.loss={{kind: random, probability: 0.4}}",
    "loss of both": "network={{uplink: {{loss: {some}}}, downlink: {{loss: {some}}}}}",
    "deadline": "algorithm.deadline_s={deadline_s}",
    "departures": (
        "devices.availability={{kind: windows, devices: "
        "{{0: [[0, 2e-3], [1.2e-2, 9]], 1: [[0, 7e-3], [1.3e-2, 9]], 2: [[0, 9]], 3: [[0, 9]]}}}}"
    ),
}
METHODS = {
    "scaffold, I": (WatchedScaffold, algorithm("scaffold", **WORK, cohort=4, option="I")),
    "scaffold, II": (WatchedScaffold, algorithm("scaffold", **WORK, cohort=4)),
    "feddyn": (WatchedFedDyn, algorithm("feddyn", **WORK, cohort=4, alpha=0.5, evaluated="server")),
}
DEADLINES_S = {"scaffold, I": 4.8e-3, "scaffold, II": 3.4e-3, "feddyn": 2.0e-3}
"""With these, about half of the uploads of a round are in time."""
STRAGGLERS = "devices.straggler={kind: shifted-exponential, mean_factor: 0.5}"


def troubled(method: str, trouble: str) -> tuple[Federation, Memories]:
    """Twelve rounds of four devices under some trouble, and what they held."""
    watch, setting = METHODS[method]
    what = TROUBLES[trouble].format(deadline_s=DEADLINES_S[method], some="{kind: random, probability: 0.2}")
    return watched(watch, "devices.count=4", "stop.rounds=12", STRAGGLERS, setting, what)


def arrivals(fed: Federation) -> list[set[int]]:
    """The devices whose uploads arrived, round by round."""
    frames = fed.ledger.frames()
    uplinks = frames["transfers"].query("kind == 'uplink' and lost == ''")
    rounds = [uplinks[(uplinks["ended_s"] > row.started_s) & (uplinks["ended_s"] <= row.ended_s)]
              for row in frames["rounds"].itertuples()]  # fmt: skip
    return [set(own["sender"]) for own in rounds]


@pytest.mark.parametrize(("trouble", "method"), crossed(TROUBLES, METHODS))
def test_a_device_remembers_what_arrived(method: str, trouble: str) -> None:
    """A memory is a new one when the device is asked again if and only if its last upload arrived."""
    fed, seen = troubled(method, trouble)
    arrived = arrivals(fed)
    changed = {}
    for k in range(4):
        asked = [t for t, device in seen.by_round if device == k]
        changed |= {(t, k): seen.by_round[t, k] is not seen.by_round[later, k] for t, later in pairwise(asked)}

    assert 3 < sum(changed.values()) < len(changed)
    assert changed == {(t, k): k in arrived[t] for t, k in changed}
    assert not any(verify(fed.ledger, frozenset({"uplink", "downlink"})).values())


@pytest.mark.parametrize(("trouble", "method"), crossed(TROUBLES, ["scaffold, I", "scaffold, II"]))
def test_the_servers_control_variate_stays_the_mean(method: str, trouble: str) -> None:
    """Whatever does not arrive, c is the mean of all c_i, here in the last round, in which all are there."""
    fed, seen = troubled(method, trouble)
    held = torch.stack([fed.read(seen.held[k]) for k in range(4)])
    _, c = seen.sent

    assert {k for t, k in seen.by_round if t == 11} == {0, 1, 2, 3}
    assert held.norm(dim=1).min() > 0.1
    torch.testing.assert_close(fed.read(c), held.mean(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_servers_h_stays_the_mean(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever does not arrive, the h behind the model of the last round is the mean of all remembered gradients."""
    used: list[Tensor] = []

    def noted(mean: Tensor, h: Tensor, alpha: float) -> Tensor:
        used.append(h)
        return corrected(mean, h, alpha)

    monkeypatch.setattr("fednet_emu.algorithms.heterogeneous.feddyn.corrected", noted)
    fed, seen = troubled("feddyn", trouble)
    came = [bool(devices) for devices in arrivals(fed)]
    remembered = -torch.stack([fed.read(seen.held[k]) for k in range(4)])

    assert {k for t, k in seen.by_round if t == 11} == {0, 1, 2, 3}
    assert len(used) == sum(came)
    torch.testing.assert_close(used[sum(came[:11]) - 1], remembered.mean(0), rtol=1e-4, atol=1e-5)


def test_nothing_arrives_and_nothing_changes() -> None:
    """When every upload is lost, memories stay the shared zero and the model is bit for bit the initial one."""
    lost = "network.uplink.loss={kind: random, probability: 0.999999}"
    for watch, setting in METHODS.values():
        fed, seen = watched(watch, "devices.count=4", "stop.rounds=3", setting, lost)
        assert len({id(memory) for memory in seen.by_round.values()}) == 1
        assert fed.latest is not None
        assert torch.equal(fed.read(fed.latest), fed.task.model.initial())  # type: ignore[arg-type]


# ---- bits, times, memory ---------------------------------------------------------------------------------------------

SENT = {
    "scaffold": (algorithm("scaffold", **WORK), 20, 20),
    "scaffold, option I": (algorithm("scaffold", **WORK, option="I"), 20, 20),
    "fednova": (algorithm("fednova", **WORK), 11, 10),
    "feddyn": (algorithm("feddyn", **WORK, alpha=1.0), 10, 10),
    "q-ffl": (algorithm("q-ffl", **WORK, q=1.0), 11, 10),
}


@pytest.mark.parametrize(("setting", "up", "down"), SENT.values(), ids=SENT)
@pytest.mark.parametrize(("mode", "copies"), [("broadcast", 1), ("unicast", 3)])
def test_sent_bits(setting: str, up: int, down: int, mode: str, copies: int) -> None:
    """Scalars up and down per device and round, of 10 parameters; control variates are sent, memories are not."""
    fed = run_small(f"network.downlink.mode={mode}", setting, "stop.rounds=5", timing_only=True)

    assert fed.ledger.sent_bit == [5 * 3 * 32 * up, 5 * copies * 32 * down, 0]


TIMES = {
    "feddyn": ("feddyn", {"alpha": 1.0}, 320 + 720 + 4 * 320),
    "fednova": ("fednova", {}, 320 + 720 + 4 * 352),
    "scaffold, option I": ("scaffold", {"option": "I"}, 640 + 2 * 720 + 4 * 640),
    "scaffold": ("scaffold", {}, 640 + 720 + 4 * 640),
    "q-ffl": ("q-ffl", {"q": 1.0}, 320 + 360 + 720 + 4 * 352),
}


@pytest.mark.parametrize("timing_only", [False, True])
@pytest.mark.parametrize(("kind", "more", "took_us"), TIMES.values(), ids=TIMES)
def test_a_round_takes_the_closed_form(kind: str, more: dict[str, object], took_us: int, timing_only: bool) -> None:
    """Broadcast, one full step of all samples, four uploads; option I adds a step, q-FFL a forward pass."""
    step = {"batch_size": "null", "local_epochs": "null", "local_steps": 1, "cohort": 4}
    fed = run_small("stop.rounds=1", algorithm(kind, **step, **more), timing_only=timing_only)

    assert fed.clock.now == took_us * 1000


@pytest.mark.parametrize("method", METHODS)
def test_who_never_took_part_has_no_memory_of_its_own(method: str) -> None:
    """Of 200 devices 10 are asked: the memories of all others are one vector of zeros."""
    watch, setting = METHODS[method]
    many = ("devices.count=200", "data.n_samples=4000", "stop.rounds=5", "algorithm.cohort=2")
    fed, seen = watched(watch, setting, *many)
    first = [seen.by_round[t, k] for t, k in seen.by_round if not any((s, k) in seen.by_round for s in range(t))]

    assert len(first) > 5
    assert len({id(zero) for zero in first}) == 1
    assert torch.equal(fed.read(first[0]), torch.zeros(10))
    assert fed.graph.known_byte() < 30 * 10 * 4


def test_q_ffl_draws_devices_by_their_samples() -> None:
    """A device with most samples is in most cohorts of one; drawn uniformly it is in about a sixth of them."""
    many = ("devices.count=6", "data={kind: synthetic, n_samples: 300, n_test: 20, features: 9, classes: 3}",
            "partition={kind: dirichlet, alpha: 0.3}", "model=softmax", "stop.rounds=200")  # fmt: skip
    for sampling in ("samples", "uniform"):
        setting = algorithm("q-ffl", q=1.0, cohort=1, sampling=sampling)
        fed = run_small(*many, setting, timing_only=True)
        uplinks = fed.ledger.frames()["transfers"].query("kind == 'uplink'")
        drawn = np.bincount(uplinks["sender"], minlength=6) / 200
        share = fed.task.n_samples / 300 if sampling == "samples" else np.full(6, 1 / 6)
        assert np.abs(drawn - share).max() < 0.11  # three standard deviations of 200 draws, at most
    assert fed.task.n_samples.max() > 2 * fed.task.n_samples.min()
