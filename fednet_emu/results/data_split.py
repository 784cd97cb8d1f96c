"""How samples are split among devices, of a run or of a scenario that need not have run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fednet_emu.analysis.data_split import DataSplit
from fednet_emu.emulation.build import deal
from fednet_emu.emulation.given import ScenarioLike, Settings, scenario_of
from fednet_emu.errors import FednetError
from fednet_emu.files.data_folder import data_folder
from fednet_emu.kernel.streams import Streams
from fednet_emu.records.folder.store import SCENARIO
from fednet_emu.scenario.model import Scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def data_split(scenario: Scenario, data_dir: Path | str | None = None) -> DataSplit:
    """Split the data of a scenario, as a run of it does, and count what each device has.

    Labels and targets are those that devices see: after an attack, and as their groups have them.

    Raises:
        FednetError: the algorithm brings its own data.
        DataError: the data cannot be read.
    """
    if scenario.algorithm.own_learning:
        kind = scenario.algorithm.kind
        raise FednetError(f"data: the algorithm brings its own data, got {kind}; choose a scenario with a partition")
    return deal(scenario, Streams(scenario.seed), data_folder(data_dir)).counts()


def scenario_in(source: ScenarioLike, settings: Settings | None = None) -> Scenario:
    """The scenario of a run folder, or any other that is meant, with some of its settings changed."""
    folder = Path(source) if isinstance(source, str | Path) else None
    recorded = None if folder is None or not folder.is_dir() else folder / SCENARIO
    return scenario_of(source if recorded is None or not recorded.is_file() else recorded, settings)[1].scenario


def data_figures(
    source: ScenarioLike, settings: Settings | None = None, data_dir: Path | str | None = None
) -> dict[str, Figure]:
    """Draw the figures `data` and, if devices have test samples, `data-test` of a scenario; see `data_split`."""
    from fednet_emu.draw.figures.data_split import split_figures

    return split_figures(data_split(scenario_in(source, settings), data_dir))
