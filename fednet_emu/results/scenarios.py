"""Data split and references of a scenario, without a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednet_emu.analysis.data_split import DataSplit
from fednet_emu.component.component import Component
from fednet_emu.emulation.build import deal
from fednet_emu.emulation.given import ScenarioLike, Settings, scenario_of
from fednet_emu.errors import FednetError
from fednet_emu.files.data_folder import data_folder
from fednet_emu.records.folder.store import SCENARIO
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.slots import slots

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def data_split(scenario: Scenario, data_dir: Path | str | None = None) -> DataSplit:
    """Split the data of a scenario as a run does, and count the samples of each device.

    Samples are counted by their labels or targets after an attack and the transformations of groups have changed these.

    Raises:
        FednetError: the algorithm brings its own data.
        DataError: the data cannot be read.
    """
    if scenario.algorithm.own_learning:
        kind = scenario.algorithm.kind
        raise FednetError(f"data: the algorithm brings its own data, got {kind}; choose a scenario with a partition")
    return deal(scenario, scenario.streams, data_folder(data_dir)).counts()


def scenario_in(source: ScenarioLike, settings: Settings | None = None) -> Scenario:
    """Return the scenario of a run folder, or any other scenario, with the changes in `settings`."""
    folder = Path(source) if isinstance(source, str | Path) else None
    recorded = None if folder is None or not folder.is_dir() else folder / SCENARIO
    return scenario_of(source if recorded is None or not recorded.is_file() else recorded, settings)[1].scenario


def data_figures(
    source: ScenarioLike, settings: Settings | None = None, data_dir: Path | str | None = None
) -> dict[str, Figure]:
    """Plot the data split of a scenario as the figure `data`, and as `data-test` if devices have test samples."""
    from fednet_emu.draw.figures.data_split import split_figures

    return split_figures(data_split(scenario_in(source, settings), data_dir))


# ---- references ------------------------------------------------------------------------------------------------------

REFERENCES = Path(__file__).with_name("references.bib")
"""File with the BibTeX entries. A line above each entry names the kinds of components that cite the entry."""
OURSELVES = "fednet_emu"
_ENTRY = re.compile(r"^% (?P<sources>\S[^\n]*)\n(?P<entry>@\w+\{.*?^\})$", re.MULTILINE | re.DOTALL)


def bibtex(scenarios: Iterable[Scenario]) -> str:
    """Return the BibTeX entries of all components of the scenarios. The entry of the emulator is first.

    The entries of a component from a plug-in are in its class variable `bibtex`.
    """
    used: dict[str, None] = {OURSELVES: None}
    own: dict[str, None] = {}
    for scenario in scenarios:
        for component in _components(scenario):
            used |= dict.fromkeys(name for each in type(component).__mro__ for name in _kinds().get(each, ()))
            own |= dict.fromkeys([getattr(type(component), "bibtex", "").strip()])
    known = [entry for entry, sources in references().items() if not used.keys().isdisjoint(sources)]
    return "\n\n".join([*known, *filter(None, own)])


@cache
def references() -> Mapping[str, tuple[str, ...]]:
    """Return each BibTeX entry with the names `slot.kind` of the components that cite the entry."""
    text = REFERENCES.read_text(encoding="utf-8")
    return {found["entry"]: tuple(found["sources"].split()) for found in _ENTRY.finditer(text)}


@cache
def _kinds() -> Mapping[type, tuple[str, ...]]:
    """Return each component class with its names, as `slot.kind`."""
    found: dict[type, tuple[str, ...]] = {}
    for name, place in slots().items():
        for kind, component in place.slot.table.items():
            found[component] = (*found.get(component, ()), f"{name}.{kind}")
    return found


def _components(value: Any) -> Iterator[Component]:
    """Yield the value if it is a component, and all components inside the value."""
    if isinstance(value, Component):
        yield value
        value = [getattr(value, name) for name in type(value).model_fields]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        yield from _components(part)
