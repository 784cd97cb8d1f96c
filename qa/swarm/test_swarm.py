"""A few seeds of the swarm, and the swarm itself: it finds faults that are there, and makes them small."""

from __future__ import annotations

import sys
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fednet_emu.records.ledger import Ledger
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL, small_scenario
from qa.swarm import __main__ as swarm
from qa.swarm import metamorphic
from qa.swarm.draw import drawn
from qa.swarm.faults import FAULTS
from qa.swarm.judge import LAWS, Case, judged
from qa.swarm.killed import killed_and_resumed
from qa.swarm.metamorphic import METAMORPHIC, Uploads
from qa.swarm.pairs import pairs_of, places, possible
from qa.swarm.plays import played, scenario_of
from qa.swarm.report import Report
from qa.swarm.shrink import shrunk, told
from qa.swarm.trial import trials, tried
from tests.commands import Forked

FEW = [5, 6, 7, 9, 12, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 8, 10, 11, 13))]
"""Seeds, of which the quick ones take less than a second."""


CHANNEL = {
    "carrier_hz": 3.5e9,
    "bandwidth_hz": 1e6,
    "path_loss": {"kind": "log-distance", "exponent": 3},
    "device": {"tx_power_dbm": 20, "noise_figure_db": 5, "height_m": 1.5},
    "base_station": {"tx_power_dbm": 30, "noise_figure_db": 5, "height_m": 10},
}


def small() -> dict[str, Any]:
    """The settings of the small federation."""
    return {**from_text(SMALL).data, "seed": 7}


@pytest.mark.parametrize("seed", FEW)
def test_a_seed_keeps_every_law(seed: int) -> None:
    """Nothing breaks, whatever components meet."""
    trial = tried(seed)

    assert not trial.failures
    assert trial.checked["conservation"] == 1


def test_a_seed_draws_the_same_scenario_every_time() -> None:
    """A failure can be replayed; another seed is another scenario."""
    assert drawn(1) == drawn(1)
    assert drawn(1).settings != drawn(5).settings


def test_a_mixture_has_what_it_must_and_keeps_every_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mixtures differ from the plain draws; one with a planner in several cells is sound."""
    wanted = {"algorithm": "fedavg", "network.cells": "list", "network.uplink.access": "planned"}
    monkeypatch.setattr("qa.swarm.draw.mixture", lambda rng: wanted)
    mixed = drawn(5, mixed=True).settings

    assert mixed == drawn(5, mixed=True).settings
    assert mixed["network"]["uplink"]["access"]["kind"] == "planned"
    assert mixed["network"]["cells"]["kind"] == "list"
    assert mixed["algorithm"]["kind"] == "fedavg"
    assert mixed != drawn(5).settings
    assert not tried(5, mixed=True).failures


def test_every_fourth_seed_has_a_mixture_which_the_report_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trials of seed 4, one of seed 5; a mixture is no further seed. One law judges it: the count is the claim."""
    monkeypatch.setattr("qa.swarm.trial.LAWS", ["conservation"])
    report = Report()
    for trial in [*trials(4), *trials(5)]:
        report.add(4, trial)

    assert (report.seeds, report.mixtures["played"]) == (2, 1)
    assert "mixtures of newer kinds: " in str(report)


def test_pairs_are_those_that_can_meet() -> None:
    """A kind inside one algorithm never meets another algorithm, and what is drawn is among what is possible."""
    inside, aspire, fedavg = ("algorithm.uncertainty", "kl"), ("algorithm", "aspire"), ("algorithm", "fedavg")

    assert places()[inside] == {"algorithm": "aspire"}
    assert (aspire, inside) in possible()
    assert (fedavg, inside) not in possible()
    assert set(pairs_of(drawn(1).picks)) <= possible()


def test_a_broken_law_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a law that no scenario with header bits keeps, the header stays, and what may go is gone."""
    monkeypatch.setitem(LAWS, "bare", lambda case: "seen" if case.scenario.network.overhead.wire_bit(1) > 1 else "")
    header = {"overhead": {"kind": "header", "header_bit": 8}}
    settings = {**small(), "network": {**header, "position_update_s": 2.0}}
    (failure,) = judged(settings, "bare").failures
    least = shrunk(settings, failure.law)

    assert least["network"] == header
    assert least["seed"] == 0
    assert least["stop"] == {"rounds": 1}
    assert "title" not in least
    assert "partition" in least
    assert "--seeds 1 --first 7" in told(7, failure, least)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_disturbs_the_run(fault: str) -> None:
    """In some of a few draws what is written differs from what was without it; a device may leave unnoticed."""
    settings = {**small(), "channel": CHANNEL, "network": {"cells": {"kind": "list", "xy_m": [[0, 0], [50, 0]]}}}
    calm = played(scenario_of(settings))
    drawn_faults = [FAULTS[fault](settings, calm.ledger, Random(f"{fault} {number}")) for number in range(6)]
    found = [played(scenario_of(each)) for each in drawn_faults if each is not None]

    assert len(found) == 6
    assert {play.books for play in found} != {calm.books}


@pytest.mark.parametrize("law", ["the same seed", "timing-only", "engines and threads", "resumed", "known learning"])
def test_a_law_of_agreement_can_fail(law: str) -> None:
    """A run with other events than the plain one is noticed."""
    scenario = scenario_of(small())
    whole = played(scenario)

    assert LAWS[law](Case(small(), scenario, whole, Random(0))) == ""
    assert "events" in str(LAWS[law](Case(small(), scenario, replace(whole, events="other"), Random(0))))


@pytest.mark.parametrize("share", [0, None])
def test_a_deadlock_is_none_of_the_emulators_where_nothing_charges_an_empty_battery(share: float | None) -> None:
    """All batteries are empty at the start: the law does not apply. Without batteries, a run that waits breaks it."""
    devices = {**small()["devices"], "battery": {"capacity_j": 1.0, "initial_share": share} if share == 0 else None}
    settings = {**small(), "devices": devices}
    waits = replace(played(scenario_of(settings)), ended="deadlock", why="waits")

    seen = LAWS["no deadlock without a loss"](Case(settings, scenario_of(settings), waits, Random(0)))
    assert seen == (None if share == 0 else "waits")


def test_a_run_that_is_killed_elsewhere_is_noticed() -> None:
    """Other books than those of the plain run break the law, and a row that never comes is an error."""
    scenario = scenario_of(small())
    whole = played(scenario)
    other = played(scenario_of({**small(), "seed": 8}))

    assert LAWS["killed"](Case(small(), scenario, whole, Random(0))) == ""
    assert "books" in str(LAWS["killed"](Case(small(), scenario, other, Random(0))))
    with pytest.raises(RuntimeError, match="ended by itself"):
        killed_and_resumed(scenario, 10**6)


HANGS = """
from threading import Lock
from qa.swarm import trial

def waits_for_ever(seed):
    lock = Lock()
    lock.acquire()
    lock.acquire()

trial.LONGEST_S, trial.trials = 0.2, waits_for_ever
trial.watched_trials(3)
"""


def test_a_process_whose_seed_hangs_ends_and_shows_its_stack() -> None:
    """Even one that waits for a lock that nobody gives back."""
    ended = Forked("-c", HANGS).ended()

    assert ended.returncode == 1
    assert "waits_for_ever" in ended.stderr


def test_a_seed_that_ends_its_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The swarm fails with one sentence."""

    class Pool:
        def __init__(self, *_: Any) -> None: ...
        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None: ...
        def map(self, function: Any, seeds: range) -> Any:
            yield from ([] for _ in seeds[:-2])
            raise BrokenProcessPool

    monkeypatch.setattr(swarm, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(sys, "argv", ["swarm", "--first", "10", "--seeds", "5"])
    with pytest.raises(SystemExit, match="seed 13 has hung"):
        swarm.main()


NUMBERS = count()
BREAKERS = {
    "twice the time": ("_times", lambda play: [play.events]),
    "renumbered": ("_transfers", lambda scenario, sizes_bit: ends_at(1e6 * np.arange(4) @ sizes_bit)),
    "half the bandwidth": ("_transfers", lambda scenario, *_: ends_at(scenario.channel.bandwidth_hz)),
    "half the power": ("_transfers", lambda scenario, *_: ends_at(1e9 * scenario.channel.device.tx_power_w)),
    "a later deadline": ("played", lambda scenario, **_: Invited(-scenario.algorithm.deadline_s)),
    "no foresight": ("_before", lambda play, end_ns: [play.rounds]),
    "one by one": ("played", lambda scenario, **_: SimpleNamespace(as_arrays=1, ended="done", books=next(NUMBERS))),
    "one more device": ("scenario_of", lambda settings: small_scenario(f"seed={settings['devices']['count']}")),
}
"""For each metamorphic law a part of it, and what in its place breaks the law."""


def ends_at(end_ns: float) -> Uploads:
    """One upload that ends then."""
    return Uploads(np.zeros(1), np.array([end_ns]), np.zeros(1, np.bool_))


class Invited:
    """A play in whose first round so many arrived."""

    rounds = 1

    def __init__(self, arrived: float) -> None:
        self.ledger = Ledger()
        self.ledger.rounds.append((1, 0, 1, 100, 100 + int(1000 * arrived)))


@pytest.mark.parametrize("law", METAMORPHIC)
def test_a_metamorphic_law_can_fail(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law holds for the small federation, and not where the emulator does otherwise."""
    settings = {**small(), "channel": CHANNEL}
    settings["algorithm"]["deadline_s"] = 0.1

    assert METAMORPHIC[law](settings) == ""
    monkeypatch.setattr(metamorphic, *BREAKERS[law])
    assert METAMORPHIC[law](settings)
