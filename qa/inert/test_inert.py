"""The sweep over all keys finds those that change nothing, and those that act."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest

from fednet_emu.network.network import Network
from fednet_emu.scenario.model import Scenario
from fednet_emu.testing import small_scenario
from qa.inert import sweep as sweeps
from qa.inert.changes import changed, changes
from qa.inert.keys import Key, keys_of, labels
from qa.inert.sweep import Sweep, known, outcome, unexplained

LABELS = frozenset(labels())


def key(label: str, scenario: Scenario) -> Key:
    """The key of this label."""
    (found,) = (its for its in keys_of(scenario) if its.label == label)
    return found


def looked_at(scenario: Scenario, *only: str, times: int = 1) -> Sweep:
    """A sweep that has met one scenario so many times, and has changed these keys."""
    sweep, settings = Sweep(enough=2), scenario.model_dump(mode="json")
    chosen = [key(label, scenario) for label in only]
    with (
        patch.object(sweeps, "keys_of", lambda _: chosen),
        patch.object(sweeps, "drawn", lambda _: type("Drawn", (), {"settings": settings})),
    ):
        for seed in range(times):
            sweep.look_at([seed])
    return sweep


def test_keys_act_are_refused_or_change_nothing() -> None:
    """A step size acts, a title does not, and a single device is as many as there can be of a list of one."""
    scenario = small_scenario("stop.rounds=1", "devices.placement={kind: list, xy_m: [[9, 0]]}", "devices.count=1")
    scenario = scenario.model_copy(update={"algorithm": scenario.algorithm.model_copy(update={"cohort": 1})})
    sweep = looked_at(scenario, "algorithm.fedavg.lr", "title", "devices.count", times=2)

    assert (list(sweep.acting), sweep.inert, sweep.always_refused) == (
        ["algorithm.fedavg.lr"],
        ["title"],
        ["devices.count"],
    )
    assert sweep.undecided == sweep.broken == sweep.left_out == []


def test_a_key_that_is_cut_off_from_what_it_did_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices whose power while receiving nobody counts any longer: the key was alive, and is inert."""
    label = "channel.device.rx_consumption_w"
    scenario = small_scenario("stop.rounds=1", f"{label}=0.1")
    assert list(looked_at(scenario, label).acting) == [label]

    whole = Network._medium

    def without(self, settings, channel, *rest):
        deaf = channel.model_copy(update={"device": channel.device.model_copy(update={"rx_consumption_w": 0.0})})
        return whole(self, settings, deaf, *rest)

    monkeypatch.setattr(Network, "_medium", without)
    sweep = looked_at(scenario, label, times=2)
    assert unexplained(sweep.inert, known()) == [label]


def test_a_few_changes_have_not_decided_anything() -> None:
    """One scenario in which a key changes nothing is no proof."""
    sweep = looked_at(small_scenario("stop.rounds=1"), "network.uplink.timeout_s")

    assert (sweep.inert, sweep.undecided) == ([], ["network.uplink.timeout_s"])


def test_every_key_of_a_drawn_scenario_has_a_label_of_the_list() -> None:
    """What is met is part of what can be met, so that the count is one of all keys."""
    topology = "{edges: {kind: random-regular, degree: 1}, clusters: {kind: equal, count: 1}}"
    side = f"network.sidelink={{channel: {{include: d2d-sidelink}}, topology: {topology}}}"
    battery = "devices.battery={capacity_j: 3}"
    met = {its.label for its in keys_of(small_scenario(side, battery, "channel={include: urban-micro}"))}

    assert met <= LABELS
    assert {"network.sidelink.channel.path_loss", "network.sidelink.channel.device.idle_w", "devices.battery"} <= met
    assert "channel" not in met | LABELS
    assert len(LABELS) > 1000


def test_a_change_is_another_value_at_its_place_alone() -> None:
    """Nothing else is touched, the original neither, and the same value never comes twice."""
    scenario = small_scenario("network.uplink.message_loss={kind: random, probability: 0.25}")
    settings = scenario.model_dump(mode="json")
    its = key("network.uplink.message_loss.random.probability", scenario)
    values = list(changes(its, Random(0), 4))
    other = changed(settings, its.path, values[0])

    assert len(values) == len(set(values)) > 4
    assert 0.25 not in values
    assert other["network"]["uplink"]["message_loss"].pop("probability") == values[0]
    assert settings["network"]["uplink"]["message_loss"].pop("probability") == 0.25
    assert other == settings


def test_equal_scenarios_have_equal_outcomes() -> None:
    """The host's time is no part of what comes out; the seed is."""
    one, again = (outcome(small_scenario("stop.rounds=1")) for _ in range(2))

    assert one == again != outcome(small_scenario("stop.rounds=1", "seed=1"))


def test_exceptions_are_keys_and_have_reasons() -> None:
    """Each pattern names keys that there are, and says why they may change nothing."""
    for pattern, reason in known().items():
        assert len(unexplained(LABELS, [pattern])) < len(LABELS), pattern
        assert len(reason) > 10


def test_a_drawn_scenario_has_keys_that_act(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest part of the nightly sweep: every twelfth key of one scenario, of which at least a third act."""
    monkeypatch.setattr(sweeps, "LONGEST_S", 600)  # s; no scenario is left out on a slow processor
    monkeypatch.setattr(sweeps, "keys_of", lambda scenario: list(keys_of(scenario))[1::12])
    sweep = Sweep()
    sweep.look_at([7])

    assert sweep.broken == sweep.left_out == []
    assert 2 * len(sweep.acting) >= len(sweep.nothing)
