"""Kinds: their names, their defaults, and how another kind keeps the settings that fit it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.component.component import Component
from fednet_emu.component.slot import kinds
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.scenario.document import apply_overrides, from_mapping, load
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.slots import slots
from fednet_emu.scenario.tree import Node, Place
from fednet_emu.scenario.yaml_text import parse_value
from tests.quick import validator


def test_a_table_names_its_classes() -> None:
    """By the words of the class, capitals within a word included, or as the class says itself."""

    class TwoWords(Component):
        """Two."""

    class HTTPLike3GCurve(TwoWords):
        """A word of capitals, and one with a digit."""

    class Other(TwoWords):
        """Says it itself; its heir does not inherit that."""

        kind = "none"

    class Heir(Other):
        """Of the class before."""

    for component in (TwoWords, HTTPLike3GCurve, Heir):
        del component.kind  # as in this package, whose classes have no kind before their table is made

    assert list(kinds(Other, TwoWords, HTTPLike3GCurve, Heir)) == ["none", "two-words", "http-like3-g-curve", "heir"]
    assert (Other.kind, TwoWords().kind, Heir.kind) == ("none", "two-words", "heir")


def test_every_class_of_a_table_has_its_kind() -> None:
    """So that a component can say what it is; nothing else of this package is a kind."""
    tables = [place.slot.table for place in slots().values()]

    assert all(component.kind == kind for table in tables for kind, component in table.items())
    assert fe.check("quickstart").devices.kind == ""


def test_a_class_from_elsewhere_has_its_own_name_and_no_field_of_that_name() -> None:
    """It may say another one; a field, which plug-ins had before, is refused with what to write."""

    class Mine(fe.Algorithm):
        """One of one's own."""

        kind = "my-own"

    class Yours(Mine):
        """Says nothing."""

    assert (Mine.kind, Yours.kind) == ("my-own", "Yours")
    with (
        pytest.warns(UserWarning, match="shadows"),
        pytest.raises(
            TypeError, match=r"^Old: kind is no setting, got a field; write kind = '\.\.\.', or leave it out"
        ),
    ):
        type("Old", (fe.Algorithm,), {"__annotations__": {"kind": str}, "kind": "old", "__module__": "elsewhere"})


THREE_LINES = {"data": "digits", "model": "mlp", "algorithm": "fedavg"}


def test_a_scenario_of_three_lines_runs() -> None:
    """Ten of twenty phones take part in each of fifty rounds, in which uploads of 112,810 numbers take longest.

    Computing takes under a tenth of it; 1.74 W of sending and 2.9 W of computing come on top of 0.1 W of each phone.
    """
    run = fe.run(THREE_LINES, timing_only=True)
    whole_s, columns = run.summary["simulated_s"], ["started_s", "ended_s"]
    taken_s = {name: table[columns].diff(axis=1)["ended_s"].sum() for name, table in (
        ("up", run.transfers.query("direction == 'uplink'")), ("computing", run.computes))}  # fmt: skip

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
    "network: {uplink: {message_loss: {probability: 0.1}}}": "network.uplink.message_loss",
    "network: {power_control: {target_snr_db: 10}}": "network.power_control",
    "devices: {count: 7}": "devices.count",
    "devices: {placement: {radius_m: 500}}": "devices.placement.radius_m",
    "devices: {straggler: {mean_factor: 2}}": "devices.straggler",
    "devices: {profile: {idle_w: 0.5}}": "devices.profile.idle_w",
    "devices: {profile: {compute: {active_w: 6}}}": "devices.profile.compute.active_w",
    "devices: {speed: {sigma: 0.5}}": "devices.speed",
    "devices: {slowdown: {0: 10, dev-3: 2}}": "devices.slowdown",
    "devices: {cpu_frequency: {part: 0.5}}": "devices.cpu_frequency.part",
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
    assert validator().is_valid(THREE_LINES | given)


def test_the_defaults_are_those_of_the_library() -> None:
    """The channel is the file urban-micro, and devices are those of the profile phone-2019-mid, on a disc of 100 m."""
    scenario = fe.check(THREE_LINES)

    assert scenario.channel == validate(type(scenario.channel), load("urban-micro", "channels"))
    assert [profile.title for profile in scenario.devices.profiles] == ["Mid-range phone of 2019"]
    assert scenario.devices.placement.radius_m == 100.0  # type: ignore[attr-defined]
    assert scenario.algorithm.model_dump(include={"lr", "batch_size", "local_epochs", "cohort"}) == {
        "lr": 0.1, "batch_size": 20, "local_epochs": 1, "cohort": 0.5
    }  # fmt: skip


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
    assert validator().is_valid(THREE_LINES)
    assert not validator().is_valid({"data": "digits", "algorithm": "fedavg"})


def swapped(*overrides: str | Setting, base: Any = None) -> tuple[Scenario, list[str]]:
    """A scenario after overrides, by default of the quickstart, and what is told of it."""
    told: list[str] = []
    document = load("quickstart") if base is None else from_mapping(base, "here")
    return validate(Scenario, apply_overrides(document, overrides), told.append), told


def refused(*overrides: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        swapped(*overrides)
    return str(caught.value)


@pytest.mark.parametrize("key", ["algorithm.kind", "algorithm"])
@pytest.mark.parametrize("kind", ["fedprox", "scaffold", "fednova", "feddyn"])
def test_another_algorithm_keeps_the_local_work_and_the_cohort(kind: str, key: str) -> None:
    """All four settings of the quickstart have the same meaning there, so nothing is left out."""
    scenario, told = swapped(f"{key}={kind}")

    algorithm: Any = scenario.algorithm
    assert algorithm.kind == kind
    assert (algorithm.cohort, algorithm.lr, algorithm.batch_size, algorithm.local_epochs) == (10, 0.1, 20, 2)
    assert told == []


def test_what_the_new_kind_lacks_is_told_in_one_line() -> None:
    """FedAsync invites nobody, so it has no cohort; the softmax regression has no hidden layers."""
    scenario, told = swapped("algorithm.kind=fedasync", "model=softmax")

    assert scenario.algorithm.lr == 0.1  # type: ignore[attr-defined]
    assert told == [
        "model: softmax in place of mlp, so these settings do not apply: hidden",
        "algorithm: fedasync in place of fedavg, so these settings do not apply: cohort",
    ]


@pytest.mark.parametrize(
    ("key", "before", "kind", "kept", "left_out"),
    [
        (
            "network.uplink.access",
            {"kind": "slotted-aloha", "slot_s": 1e-3, "sinr_threshold_db": -3},
            "full-reuse",
            1,
            ["slot_s"],
        ),
        ("partition", {"kind": "dirichlet", "alpha": 0.5, "min_samples": 7}, "quantity-skew", 1, ["alpha"]),
        ("channel.fading", {"kind": "rician", "k_db": 3, "coherence_s": 0.1}, "rayleigh", 1, ["k_db"]),
        ("devices.straggler", {"kind": "shifted-exponential", "mean_factor": 0.2}, "none", 0, ["mean_factor"]),
    ],
)
def test_every_slot_keeps_what_fits(
    key: str, before: dict[str, Any], kind: str, kept: int, left_out: list[str]
) -> None:
    """The same holds for access, partition, fading and stragglers."""
    setting = Setting(
        key, Node({name: Node(value, Place("file", 1)) for name, value in before.items()}, Place("file", 1))
    )
    scenario, told = swapped(setting, f"{key}={kind}")

    part: Any = scenario
    for name in key.split("."):
        part = getattr(part, name)
    same = [name for name in before if name != "kind" and getattr(part, name, None) == before[name]]
    assert (part.kind, len(same)) == (kind, kept)
    assert [line.rsplit(": ", 1)[1].split(", ") for line in told] == ([left_out] if left_out else [])


@pytest.mark.parametrize(
    ("straggler", "options", "kept", "line"),
    [
        ({"mean_factor": 2}, ["devices.straggler=pareto", "devices.straggler.alpha=3"], {"alpha": 3}, "mean_factor"),
        ({"mean_factor": 2}, ["devices.straggler.kind=none"], {}, "mean_factor"),
        ({"sigma": 2}, ["devices.straggler.kind=log-normal"], {"sigma": 2}, None),
        ({"mean_factor": 2}, ["devices.straggler.mean_factor=3"], {"mean_factor": 3}, None),
    ],
)
def test_settings_without_a_kind_were_written_for_the_default(
    straggler: dict[str, Any], options: list[str], kept: dict[str, Any], line: str | None
) -> None:
    """A kind that an option gives keeps those that fit it; the others are named, as for a kind that was written."""
    base = load("quickstart").data
    scenario, told = swapped(*options, base=base | {"devices": base["devices"] | {"straggler": straggler}})

    assert scenario.devices.straggler.model_dump() == kept
    kind = options[0].rpartition("=")[2]
    what = f"devices.straggler: {kind} in place of the default, so these settings do not apply: {line}"
    assert told == ([what] if line else [])


def test_text_in_place_of_settings_that_have_no_kind_is_refused_as_before() -> None:
    """The sentence is about the text, not about a kind."""
    assert refused("stop=soon") == "--set stop  stop: expected a mapping, got 'soon'"


def test_a_name_with_other_bounds_is_another_setting() -> None:
    """The alpha of FedAsync weighs an update, from 0 to 1; that of FedDyn is the strength of its regulariser."""
    base = {
        **load("quickstart").data,
        "algorithm": {"kind": "fedasync", "lr": 0.1, "batch_size": 20, "local_epochs": 1},
    }
    base["algorithm"]["alpha"] = 0.6

    scenario, told = swapped("algorithm.kind=feddyn", "algorithm.cohort=5", base=base)

    assert scenario.algorithm == ALGORITHMS["feddyn"](lr=0.1, batch_size=20, local_epochs=1, cohort=5)  # type: ignore[call-arg]
    assert told == ["algorithm: feddyn in place of fedasync, so these settings do not apply: alpha"]


def test_a_value_that_the_new_kind_cannot_have_is_left_out() -> None:
    """The speeds of a list are several numbers, where a fixed speed is one."""
    base = load("quickstart").data
    base["devices"] = {**base["devices"], "count": 2, "speed": {"kind": "list", "flop_per_s": [1e7, 2e7]}}
    base["algorithm"] = {**base["algorithm"], "cohort": 2}

    with pytest.raises(ScenarioError, match=r"devices\.speed\.flop_per_s: is required"):
        swapped("devices.speed=fixed", base=base)
    assert swapped("devices.speed=fixed", "devices.speed.flop_per_s=1e7", base=base)[1] == []


def test_there_and_back_is_where_it_was() -> None:
    """For every pair of the algorithms that train a cohort, the first one is what it was."""
    for first, second in itertools.permutations(["fedavg", "fedprox", "scaffold", "fednova"], 2):
        there = swapped(f"algorithm.kind={first}")[0]
        assert swapped(f"algorithm.kind={first}", f"algorithm.kind={second}", f"algorithm.kind={first}")[0] == there


@pytest.mark.parametrize("kind", ["fedprox", "scaffold", "q-ffl"])
def test_an_object_is_changed_and_swapped_like_a_mapping(kind: str) -> None:
    """An algorithm object can be changed field by field, and swapped, like the settings in a file."""
    base = {**load("quickstart").data, "algorithm": FedAvg(cohort=5, lr=0.2, batch_size=8, local_epochs=1)}

    changed = swapped("algorithm.lr=0.3", base=base)[0].algorithm
    other: Any = swapped(f"algorithm={kind}", base=base)[0].algorithm

    assert changed == FedAvg(cohort=5, lr=0.3, batch_size=8, local_epochs=1)
    assert (other.kind, other.cohort, other.lr, other.batch_size) == (kind, 5, 0.2, 8)
