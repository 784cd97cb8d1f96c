"""Scenarios specified in Python by a name, a path, a mapping or a `Scenario`; settings may be Python objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from fednet_emu.algorithms.base import Algorithm
from fednet_emu.component.component import Component, is_ours
from fednet_emu.emulation.load import UNNAMED, examined
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.errors import FednetError, ScenarioError
from fednet_emu.flower.algorithm import GivenFlower
from fednet_emu.flower.folder import AppFolder, NoApp
from fednet_emu.learning.data.datasets.base import Dataset, Samples
from fednet_emu.learning.data.datasets.npz import GivenSamples
from fednet_emu.learning.models.base import Model
from fednet_emu.learning.models.user_module import GivenModule
from fednet_emu.scenario.algorithms import brings_own_learning
from fednet_emu.scenario.document import Document, apply_overrides, filled, from_mapping, load
from fednet_emu.scenario.library import run_name
from fednet_emu.scenario.model import LEARNING, Scenario
from fednet_emu.scenario.overrides import Setting
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.tree import Place, node_of

ScenarioLike = str | Path | Mapping[str, Any] | Scenario
"""Ways to specify a scenario: name in the library, path, mapping with the keys of a scenario file, or `Scenario`."""
Settings = Mapping[str, Any] | Iterable[str | Setting]
"""Changed settings: a mapping such as `{"algorithm.lr": 0.05}`, or strings `key.path=value` as in the option
`--set`."""
Network = Model | nn.Module | Callable[..., nn.Module]
"""A model component, a PyTorch module, or a function or class that returns a module."""


def named(scenario: ScenarioLike | Document) -> tuple[str, Document]:
    """Return a scenario's name for records, and its settings as a `Document`; raise `FednetError` for other types."""
    if isinstance(scenario, Scenario):
        return scenario.title or UNNAMED, filled(from_mapping(_plain(scenario), UNNAMED))
    if isinstance(scenario, Mapping):
        settings = {key: _component(key, value) for key, value in scenario.items()}
        return str(scenario.get("title") or UNNAMED), filled(from_mapping(settings, UNNAMED))
    document = filled(load(scenario)) if isinstance(scenario, str | Path) else scenario
    if isinstance(document, Document):
        return run_name(document.path) if document.path else UNNAMED, document
    wanted = "give a name, a path, a mapping or a Scenario"
    raise FednetError(f"scenario: expected what describes one, got {type(scenario).__name__}; {wanted}")


def changes(
    settings: Settings | None,
    *,
    seed: int | None = None,
    algorithm: Algorithm | str | None = None,
    model: Network | str | None = None,
    data: Dataset | Samples | str | None = None,
) -> Iterator[str | Setting]:
    """Yield overrides of settings in the order in which they apply: first `settings`, then arguments such as `seed`."""
    if isinstance(settings, str):
        raise FednetError(f"settings: expected a mapping, got '{settings}'; for example {{'algorithm.lr': 0.05}}")
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield Setting(str(key), node_of(_component(key, value), Place(f"settings[{str(key)!r}]")))
    else:
        yield from settings or ()
    given: dict[str, Any] = {"seed": seed, "algorithm": algorithm, "model": model, "data": data}
    replaced = LEARNING if brings_own_learning(algorithm) else ()
    meant = {key: _component(key, value) for key, value in given.items() if value is not None}
    for key, value in {**meant, **dict.fromkeys(replaced)}.items():
        yield Setting(key, node_of(value, Place(f"{key}=")))


def scenario_of(
    scenario: ScenarioLike | Document,
    settings: Settings | None = None,
    *,
    data_dir: str | Path | None = None,
    **given: Any,
) -> tuple[str, Outlook]:
    """Apply overrides to a scenario and check it; return its name and its `Outlook`, which has estimates of the run.

    An unchanged `Scenario` object is already valid, so only the compatibility of its settings is checked. `given` are
    the arguments `seed`, `algorithm`, `model` and `data` of `changes`. A `ScenarioError` lists all problems.
    """
    changed = list(changes(settings, **given))
    if isinstance(scenario, Scenario) and not changed:
        return scenario.title or UNNAMED, examined(Outlook(scenario, data_dir))
    name, document = named(scenario)
    document = apply_overrides(document, changed)
    return name, examined(Outlook(validate(Scenario, document), data_dir), document)


def _component(key: Any, value: Any) -> Any:
    if key == "data" and isinstance(value, Samples):
        return GivenSamples(given=value)
    if key == "data" and (isinstance(value, list | tuple) or hasattr(value, "__array__")):
        what = f"expected training and test samples, got a {type(value).__name__}"
        raise FednetError(f"data: {what}; give fe.Samples(train_x, train_y, test_x, test_y, classes) of tensors")
    is_part = isinstance(value, Model) or (isinstance(value, type) and issubclass(value, Component))
    if key == "model" and not is_part and (isinstance(value, nn.Module) or callable(value)):
        return GivenModule(given=value)
    return value


def _plain(value: Any) -> Any:
    """Return `value` with components of this package as mappings of settings; other components stay objects."""
    if isinstance(value, Component):
        if not is_ours(type(value)) or isinstance(value, GivenModule | GivenSamples | GivenFlower):
            return value
        own = {name: _plain(getattr(value, name)) for name in type(value).model_fields}
        return {"kind": value.kind, **own} if value.kind else own
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


NODES = 10
"""Default number of devices for a Flower app that states no number; the same as in Flower's simulation."""
WEEK_S = 604_800.0

URBAN_CELL: dict[str, Any] = {
    "devices": {
        "placement": {"kind": "disc", "radius_m": 150, "inner_radius_m": 10},
        "speed": {"kind": "log-normal", "median_flop_per_s": 1e10, "sigma": 0.6},
    },
    "channel": "urban-micro",
    "network": {"uplink": {"access": "ofdma"}, "downlink": {"mode": "broadcast"}},
    "stop": {"simulated_s": WEEK_S},
}
"""Default scenario of Flower apps: phones near a small urban base station share the uplink. The run ends when the app
ends, or after a week of simulated time."""


def app_in(app: str, scenario: ScenarioLike | None) -> tuple[ScenarioLike, str, list[str]]:
    """Return the scenario of a Flower app, the name of the run, and the overrides that add the app to the scenario.

    The app replaces data, partition, model and algorithm of a given scenario. The attack, groups, server, edge servers
    and sidelink of the scenario are removed. A `ScenarioError` is raised if the folder `app` contains no Flower app.
    """
    try:
        folder = AppFolder.read(app)
    except NoApp as problem:
        raise ScenarioError(f"APP: {problem}") from None
    algorithm = f"algorithm={json.dumps({'kind': 'flower', 'app': app})}"
    name = folder.path.name
    if scenario is None:
        devices = {**URBAN_CELL["devices"], "count": folder.nodes or NODES}
        title = f"The Flower app {name} in an urban cell"
        return {"title": title, **URBAN_CELL, "devices": devices}, name, [algorithm]
    nothing = [f"{key}=null" for key in LEARNING]
    never_used = ["server={}", "network.edge_servers=null", "network.sidelink=null"]
    of_scenario = run_name(Path(scenario)) if isinstance(scenario, str | Path) else named(scenario)[0]
    return scenario, f"{name}-{of_scenario}", [algorithm, *nothing, *never_used]
