"""Run one scenario from Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fednet_emu.emulation.given import Network, ScenarioLike, Settings, scenario_of
from fednet_emu.emulation.guard import none_left_behind
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.emulation.play import play
from fednet_emu.emulation.warnings import warn
from fednet_emu.files.data_folder import folder_to_write
from fednet_emu.results.run import Run
from fednet_emu.screen.progress import run_shown
from fednet_emu.tracking.table import trackers_of
from fednet_emu.tracking.tracker import Tracker

if TYPE_CHECKING:
    from fednet_emu.algorithms.base import Algorithm
    from fednet_emu.learning.data.datasets.base import Dataset, Samples


def run(
    scenario: ScenarioLike,
    *,
    seed: int | None = None,
    settings: Settings | None = None,
    out: str | Path | None = None,
    algorithm: Algorithm | str | None = None,
    model: Network | str | None = None,
    data: Dataset | Samples | str | None = None,
    data_dir: str | Path | None = None,
    timing_only: bool = False,
    force: bool = False,
    track: str | Tracker | Iterable[str | Tracker] = (),
    progress: bool | None = None,
) -> Run:
    """Run a scenario and return its results.

    Args:
        scenario: a name of the library, a path, a mapping with the keys of a scenario file, or a `Scenario`.
        seed: a seed that replaces the scenario's.
        settings: changes, for example `{"algorithm.lr": 0.05, "network.uplink.access": "ofdma"}`.
        out: the run folder, as `fednet run` makes it; None writes nothing and keeps everything in memory. If the folder
            holds an unfinished run of the same scenario, that run continues from its last checkpoint.
        algorithm: an algorithm object that replaces the scenario's algorithm; or another kind, such as `"fedprox"`,
            which keeps those of its settings that fit.
        model: a model that replaces the scenario's: a component, or another kind; a `torch.nn.Module`, whose parameters
            are the initial model; or a function or class that makes one (called with `input_shape` and `outputs` if it
            has such parameters), whose initial parameters follow from the seed.
        data: samples that replace the scenario's data, or another kind of data set.
        data_dir: the folder with data sets; None takes it from the environment variable FEDNET_DATA.
        timing_only: whether to leave out training; time, bits and energy stay the same.
        force: whether to replace a run that the folder already holds, once the new one has ended.
        track: `tensorboard`, `mlflow`, `wandb`, or objects with their three methods: what hears of the run while it
            runs.
        progress: whether to show the progress of the run; None shows it only in a terminal or a notebook.

    Warns:
        ScenarioWarning: something in the scenario is suspicious, for example devices that are out of reach.

    Raises:
        ScenarioError: lists every problem of the scenario with its place.
        FednetError: there is no such tracker, or its library is not installed.
        DataError: data are missing, or the folder cannot be used.
        Deadlock: the algorithm waits for an event that can never happen.
    """
    with none_left_behind():  # reading a scenario loads libraries, too
        trackers = trackers_of(track)
        given = {"seed": seed, "algorithm": algorithm, "model": model, "data": data}
        name, outlook = scenario_of(scenario, settings, data_dir=data_dir, **given)
    warn(outlook)
    folder = None if out is None else folder_to_write(out, "out")
    return ran(outlook, name, folder, timing_only=timing_only, force=force, track=trackers, progress=progress)


def ran(
    outlook: Outlook,
    name: str,
    folder: Path | None,
    *,
    timing_only: bool = False,
    force: bool = False,
    track: Sequence[Tracker] = (),
    progress: bool | None = None,
) -> Run:
    """Run a scenario that has been checked, showing its progress, and return its results; see `run`."""
    scenario = outlook.scenario
    with run_shown(scenario.stop, progress) as on_round:
        ended = play(
            scenario,
            name,
            folder,
            data_dir=outlook.data_dir,
            timing_only=timing_only,
            force=force,
            keep_model=True,
            on_round=on_round,
            track=track,
        )
    return Run.ended(ended, scenario, folder)
