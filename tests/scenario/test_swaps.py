"""Swaps: another kind of a component keeps the settings that fit it."""

import itertools
from typing import Any

import pytest

from fednet_emu.algorithms.fedavg import FedAvg
from fednet_emu.errors import ScenarioError
from fednet_emu.scenario.algorithms import ALGORITHMS
from fednet_emu.scenario.document import apply_overrides, from_mapping, load
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.tree import Node, Place


def swapped(*overrides: str | Setting, base: Any = None) -> tuple[Scenario, list[str]]:
    """A scenario after overrides, by default of the quickstart, and what is told of it."""
    told: list[str] = []
    document = load("quickstart") if base is None else from_mapping(base, "here")
    return validate(Scenario, apply_overrides(document, overrides), told.append), told


def refused(*overrides: str) -> str:
    """The text of the error."""
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
            {"kind": "slotted-aloha", "slot_s": 1e-3, "threshold_db": -3},
            "shared",
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
