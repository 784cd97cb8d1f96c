"""Defaults: a scenario of two lines runs, and what it leaves out is printed and can be changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.document import load
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.schema import json_schema
from fednet_emu.scenario.tree import Place
from fednet_emu.scenario.yaml_text import parse_value

THREE_LINES = {"data": "digits", "model": "mlp", "algorithm": "fedavg"}
WHOLE = jsonschema.Draft202012Validator(json_schema(Scenario))


def test_a_scenario_of_three_lines_runs() -> None:
    """Ten of twenty phones take part in each of fifty rounds, in which uploads of 112,810 numbers take longest.

    Computing takes under a tenth of it; 1.74 W of sending and 2.9 W of computing come on top of 0.1 W of each phone.
    """
    run = fe.run(THREE_LINES, timing_only=True)
    whole_s, columns = run.summary["simulated_s"], ["started_s", "ended_s"]
    taken_s = {name: table[columns].diff(axis=1)["ended_s"].sum() for name, table in (
        ("up", run.transfers.query("kind == 'uplink'")), ("computing", run.computes))}  # fmt: skip

    assert run.summary["rounds"] == 50
    assert set(run.rounds["invited"]) == {10}
    assert run.summary["uplink_bit"] == 50 * 10 * 32 * (65 * 300 + 301 * 300 + 301 * 10)
    assert 20 < whole_s < 120
    assert taken_s["up"] > 0.6 * whole_s  # one at a time
    assert taken_s["computing"] / 10 < 0.1 * whole_s  # ten at a time
    assert run.summary["idle_j"] == pytest.approx(20 * 0.1 * whole_s)
    assert run.summary["transmit_j"] == pytest.approx(1.74 * taken_s["up"])
    assert run.summary["compute_j"] == pytest.approx(2.9 * taken_s["computing"])


VARIANTS = {
    "channel: {bandwidth_hz: 10e6}": "channel.bandwidth_hz",
    "channel: {carrier_hz: 2.4e9}": "channel",  # the coherence time follows
    "channel: {rate: {min_efficiency_bps_hz: 0.1}}": "channel.rate.min_efficiency_bps_hz",
    "channel: {fading: {coherence_s: 0.01}}": "channel.fading.coherence_s",
    "channel: {path_loss: {los: always}}": "channel.path_loss.los",
    "channel: {device: {tx_power_dbm: 13}}": "channel.device.tx_power_dbm",
    "network: {uplink: {timeout_s: 3}}": "network.uplink.timeout_s",
    "network: {uplink: {access: {residual: 0.1}}}": "network.uplink.access",
    "network: {uplink: {loss: {probability: 0.1}}}": "network.uplink.loss",
    "network: {power_control: {target_snr_db: 10}}": "network.power_control",
    "devices: {count: 7}": "devices.count",
    "devices: {placement: {radius_m: 500}}": "devices.placement.radius_m",
    "devices: {straggler: {mean_factor: 2}}": "devices.straggler",
    "devices: {profile: {idle_w: 0.5}}": "devices.profile.idle_w",
    "devices: {profile: {compute: {active_w: 6}}}": "devices.profile.compute.active_w",
    "devices: {speed: {sigma: 0.5}}": "devices.speed",
    "devices: {slowdown: {0: 10, dev-3: 2}}": "devices.slowdown",
    "devices: {frequency: {part: 0.5}}": "devices.frequency.part",
    "data: {kind: synthetic, separation: 2}": "data",
    "partition: {per_device: 3}": "partition.per_device",
    "model: {kind: mlp, hidden: [64]}": "model.hidden",
    "algorithm: {kind: fedavg, cohort: 1.0}": "algorithm.cohort",
    "algorithm: {kind: fedavg, local_optimizer: {weight_decay: 0.1}}": "algorithm.local_optimizer.weight_decay",
    "stop: {rounds: 3}": "stop.rounds",
    "evaluation: {every_rounds: 2}": "evaluation.every_rounds",
}
"""A line of a scenario of three lines, and the setting that it changes, with all below it."""


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The values of nested mappings by key path."""
    if not isinstance(value, dict):
        return {path: value}
    return {key: one for name, part in value.items() for key, one in flat(part, f"{path}.{name}".strip(".")).items()}


@pytest.mark.parametrize("line", VARIANTS)
def test_a_key_beside_a_default_changes_that_default(line: str, tmp_path: Path) -> None:
    """In a file, as an option and in Python: that setting alone differs from the default; the schema agrees."""
    key, text = line.split(": ", 1)
    given = {key: parse_value(text, Place("")).plain()}
    options = [f"{path}={json.dumps(value)}" for path, value in flat(given).items()]
    three = [f"{name}: {kind}\n" for name, kind in THREE_LINES.items()]
    (tmp_path / "three.yaml").write_text("".join(three))
    (tmp_path / "mine.yaml").write_text("".join([*(its for its in three if not its.startswith(key)), line]))

    mine = load_scenario(tmp_path / "mine.yaml")
    assert mine == load_scenario(tmp_path / "three.yaml", options) == fe.check(THREE_LINES | given)
    before, after = (flat(its.model_dump(mode="json")) for its in (fe.check(THREE_LINES), mine))
    differing = {name for name in before.keys() | after.keys() if before.get(name, ...) != after.get(name, ...)}
    assert {VARIANTS[line] if f"{name}.".startswith(f"{VARIANTS[line]}.") else name for name in differing} == {
        VARIANTS[line]
    }
    assert WHOLE.is_valid(THREE_LINES | given)


def test_the_defaults_are_those_of_the_library() -> None:
    """The channel is the file urban-micro, and devices are those of the profile phone-2019-mid, on a disc of 100 m."""
    scenario = fe.check(THREE_LINES)

    assert scenario.channel == validate(type(scenario.channel), load("urban-micro", "channels"))
    assert [profile.title for profile in scenario.devices.profiles] == ["Mid-range phone of 2019"]
    assert scenario.devices.placement.radius_m == 100.0  # type: ignore[attr-defined]
    assert scenario.algorithm.model_dump(include={"lr", "batch_size", "local_epochs", "cohort"}) == {
        "lr": 0.1, "batch_size": 20, "local_epochs": 1, "cohort": 0.5
    }  # fmt: skip


def test_settings_change_the_default_channel_and_profile() -> None:
    """One key of the channel or of the profile is changed, and the others stay."""
    changed = fe.check(THREE_LINES, settings={"channel.bandwidth_hz": 1e6, "devices.profile.idle_w": 0.2})

    assert changed.channel == fe.check(THREE_LINES).channel.model_copy(update={"bandwidth_hz": 1e6})
    assert [(its.idle_w, its.compute.active_w) for its in changed.devices.profiles] == [(0.2, 3.0)]


@pytest.mark.parametrize("speed", [{"kind": "fixed", "flop_per_s": 1e6}, None])
def test_devices_whose_speed_is_given_have_no_profile(speed: dict[str, Any] | None) -> None:
    """A speed without power is not that of a Raspberry Pi; neither speed nor profile is the default profile."""
    devices = {"count": 3} | ({"speed": speed} if speed else {})

    assert len(fe.check(THREE_LINES | {"devices": devices}).devices.profiles) == (0 if speed else 1)


def test_a_channel_needs_its_path_loss_and_its_carrier_only() -> None:
    """With both the rest is that of a handset and a small cell; with one of them the default channel is changed."""
    own = {"carrier_hz": 2.4e9, "path_loss": "free-space"}
    channel = fe.check(THREE_LINES | {"channel": own}).channel

    assert (channel.device.tx_power_dbm, channel.device.noise_figure_db, channel.device.height_m) == (23, 9, 1.5)
    station = channel.base_station
    assert (station.tx_power_dbm, station.noise_figure_db, station.height_m) == (30, 5, 10)
    default, changed = (fe.check(THREE_LINES | its).channel for its in ({}, {"channel": {"carrier_hz": 2.4e9}}))
    assert changed == default.model_copy(update={"carrier_hz": 2.4e9, "fading": changed.fading})
    assert changed.fading.coherence_s == pytest.approx(
        default.fading.coherence_s * default.carrier_hz / 2.4e9, rel=5e-3
    )
    with pytest.raises(ScenarioError, match="no standard deviation of shadowing, got free-space with shadowing: of-p"):
        fe.check(THREE_LINES | {"channel": {"path_loss": "free-space"}})


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
    assert WHOLE.is_valid(THREE_LINES)
    assert not WHOLE.is_valid({"data": "digits", "algorithm": "fedavg"})
