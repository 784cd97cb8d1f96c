"""Who has what, of a run or of a scenario that need not have run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fednet_emu.analysis.holdings import Holdings, Part
from fednet_emu.emulation.dealing import deal
from fednet_emu.emulation.given import ScenarioLike, Settings, scenario_of
from fednet_emu.errors import FednetError
from fednet_emu.files.data_folder import data_folder
from fednet_emu.kernel.streams import Streams
from fednet_emu.records.folder.store import SCENARIO
from fednet_emu.scenario.model import Scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def holdings(scenario: Scenario, data_dir: Path | str | None = None) -> Holdings:
    """Deal out the data of a scenario, as a run of it does, and count what each device has.

    Labels and targets are those that devices see: after an attack, and as their groups have them.

    Args:
        scenario: the scenario.
        data_dir: the folder with data sets; None takes it from the environment variable FEDNET_DATA.

    Raises:
        FednetError: the algorithm brings its own data.
        DataError: the data cannot be read.
    """
    if scenario.algorithm.own_learning:
        kind = scenario.algorithm.kind
        raise FednetError(f"data: the algorithm brings its own data, got {kind}; choose a scenario with a partition")
    samples, splits, *_ = deal(scenario, Streams(scenario.seed), data_folder(data_dir))
    ys = samples.train_y.cpu().numpy(), samples.test_y.cpu().numpy()
    return Holdings(*(Part.of(y, its.order, its.offsets, samples.classes) for y, its in zip(ys, splits, strict=True)))


def scenario_in(source: ScenarioLike, settings: Settings | None = None) -> Scenario:
    """The scenario of a run folder, or any other that is meant, with some of its settings changed."""
    folder = Path(source) if isinstance(source, str | Path) else None
    kept = None if folder is None or not folder.is_dir() else folder / SCENARIO
    return scenario_of(source if kept is None or not kept.is_file() else kept, settings)[1].scenario


def data_figures(scenario: Scenario, data_dir: Path | str | None = None) -> dict[str, Figure]:
    """Draw who has what: the figures `data` and, if devices have test samples, `data-test`; see `holdings`."""
    from fednet_emu.draw.figures.holdings import holdings_figures

    return holdings_figures(holdings(scenario, data_dir))
