"""Defaults: a scenario of two lines runs, and what it leaves out is printed and can be changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.document import load
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.schema import json_schema

THREE_LINES = {"data": "digits", "model": "mlp", "algorithm": "fedavg"}


def test_a_scenario_of_three_lines_runs() -> None:
    """Ten of twenty boards take part in each of fifty rounds, none of which is shorter than a board's 11.4 s."""
    run = fe.run(THREE_LINES, timing_only=True)

    assert run.summary["rounds"] == 50
    assert set(run.rounds["invited"]) == {10}
    assert (run.rounds["ended_s"] - run.rounds["started_s"]).min() > 11.4
    assert run.summary["uplink_bit"] == 50 * 10 * 32 * (64 * 200 + 200 + 200 * 10 + 10)
    assert run.summary["compute_j"] > 500 * 11.4 * (5.1 - 2.7)  # 500 computations at 5.1 W, 2.7 W of which are idling


def test_the_defaults_are_those_of_the_library() -> None:
    """The channel is the file urban-micro, and devices are those of the profile pi-4b, on a disc of 100 m."""
    scenario = fe.check(THREE_LINES)

    assert scenario.channel == validate(type(scenario.channel), load("urban-micro", "channels"))
    assert [profile.title for profile in scenario.devices.profiles] == ["Raspberry Pi 4 B"]
    assert scenario.devices.placement.radius_m == 100.0  # type: ignore[attr-defined]
    assert scenario.algorithm.model_dump(include={"lr", "batch_size", "local_epochs", "cohort"}) == {
        "lr": 0.1, "batch_size": 20, "local_epochs": 1, "cohort": 0.5
    }  # fmt: skip


def test_settings_change_the_default_channel_and_profile() -> None:
    """One key of the channel or of the profile is changed, and the others stay."""
    changed = fe.check(THREE_LINES, settings={"channel.bandwidth_hz": 1e6, "devices.profile.idle_w": 2.0})

    assert changed.channel == fe.check(THREE_LINES).channel.model_copy(update={"bandwidth_hz": 1e6})
    assert [(its.idle_w, its.compute.active_w) for its in changed.devices.profiles] == [(2.0, 5.1)]


@pytest.mark.parametrize("speed", [{"kind": "fixed", "flop_per_s": 1e6}, None])
def test_devices_whose_speed_is_given_have_no_profile(speed: dict[str, Any] | None) -> None:
    """A speed without power is not that of a Raspberry Pi; neither speed nor profile is the default profile."""
    devices = {"count": 3} | ({"speed": speed} if speed else {})

    assert len(fe.check(THREE_LINES | {"devices": devices}).devices.profiles) == (0 if speed else 1)


def test_a_channel_needs_its_path_loss_and_its_carrier_only() -> None:
    """The rest is that of a handset and a small cell; without one of the two the key is named."""
    own = {"carrier_hz": 2.4e9, "path_loss": "free-space"}
    channel = fe.check(THREE_LINES | {"channel": own}).channel

    assert (channel.device.tx_power_dbm, channel.device.noise_figure_db, channel.device.height_m) == (23, 9, 1.5)
    station = channel.base_station
    assert (station.tx_power_dbm, station.noise_figure_db, station.height_m) == (30, 5, 10)
    for key in own:
        with pytest.raises(ScenarioError, match=rf"channel\.{key}: is required"):
            fe.check(THREE_LINES | {"channel": {name: value for name, value in own.items() if name != key}})


def test_a_trace_that_has_places_needs_no_placement(tmp_path: Path) -> None:
    """Devices are where the recording says, 30 m and 40 m from the station: the placement has no say."""
    walk = np.array([[0.0, 30.0, 40.0], [100.0, 30.0, 40.0]])
    np.savez(tmp_path / "walks.npz", walk=walk)
    mobility = {"kind": "trace", "path": str(tmp_path / "walks.npz")}
    runs = [
        fe.run(
            THREE_LINES | {"devices": {"mobility": mobility, **more}, "stop": {"rounds": 1}}, timing_only=True
        ).digest
        for more in ({}, {"placement": {"kind": "disc", "radius_m": 5.0}})
    ]

    assert runs[0] == runs[1]


@pytest.mark.parametrize("left_out", ["model", "algorithm"])
def test_model_and_algorithm_are_the_users_choice(left_out: str) -> None:
    """They have no default, and the sentence lists what there is."""
    with pytest.raises(ScenarioError, match=f"{left_out}: is required; kinds of {left_out}: "):
        fe.check({key: value for key, value in THREE_LINES.items() if key != left_out})


def test_the_schema_requires_what_has_no_default() -> None:
    """An editor accepts the three lines, and asks for a model where it is missing."""
    schema = jsonschema.Draft202012Validator(json_schema(Scenario))

    assert schema.is_valid(THREE_LINES)
    assert not schema.is_valid({"data": "digits", "algorithm": "fedavg"})
