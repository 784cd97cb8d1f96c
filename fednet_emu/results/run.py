"""The results of one run: summary, tables, model and figures."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from fednet_emu.analysis.activity import Window
from fednet_emu.analysis.data_split import DataSplit
from fednet_emu.analysis.quantities import format_seconds
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.summary import summary_rows
from fednet_emu.errors import DataError, FednetError, did_you_mean
from fednet_emu.records.folder import SCENARIO
from fednet_emu.records.ledger import DATA_SPLIT, DESCRIBED, TABLES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import nn

    from fednet_emu.analysis.critical_path import Explanation
    from fednet_emu.emulation.final_model import FinalModel
    from fednet_emu.emulation.given import ScenarioLike, Settings
    from fednet_emu.emulation.play import Ended
    from fednet_emu.scenario.model import Scenario


PAGE = "report.html"
"""Default file name of a report page, in the folder of its run or study."""
DATA_FIGURES = ("data", "data-test")
"""Names of the figures that show the distribution of samples over devices, which need only a scenario and no run."""


class Timeline(TypedDict, total=False):
    """Time window and devices of a timeline; see `Run.plot`."""

    from_s: float | None
    until_s: float | None
    devices: Iterable[int] | None
    sort: str | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Run(RunRecords):
    """The results of a run: its summary, its tables and its model. They are in memory or in a run folder.

    Tables are pandas data frames with times in seconds, sizes in bits and energies in joules. Each access reads the
    table again and returns a new frame, which the caller may change. The entries of the summary, except tables, are
    also attributes: `run.accuracy`, `run.simulated_s`, `run.energy_j`, `run.seed`, `run.status`.

    Attributes:
        given: the scenario, if this process has run it.
        trained: the final model, if this process has run the scenario and the run has a model.
    """

    given: Scenario | None = None
    trained: FinalModel | None = None

    @classmethod
    def ended(cls, ended: Ended, scenario: Scenario, folder: Path | None) -> Run:
        """Return a run that this process has just finished. `folder` is None for a run in memory."""
        if folder is not None:
            return replace(cls.opened(folder), given=scenario, trained=ended.model)
        settings, tables = scenario.model_dump(mode="json"), cache(ended.ledger.frames)
        name = ended.summary["name"]
        return cls(name, ended.summary, settings, None, tables, given=scenario, trained=ended.model)

    # ---- records -----------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        summary = self.__dict__.get("summary", {})
        if name in summary:
            return summary[name]
        hint = "" if name.startswith("_") else did_you_mean(name, dir(self)) or "; see its summary"
        raise AttributeError(f"a run has no attribute '{name}'{hint}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.summary})

    @property
    def digest(self) -> str:
        """Digest of all events of the run. The same scenario and seed give the same digest on every machine."""
        return str(self.summary["event_digest"])

    @property
    def verdict(self) -> str:
        """A sentence that states whether the records obey the conservation laws, and which laws are violated."""
        broken = self.summary["broken_laws"]
        problems = "; ".join(f"{law}: {problem}" for law, problem in broken.items())
        return f"records are not consistent: {problems}" if broken else "all records consistent"

    @property
    def rounds(self) -> pd.DataFrame:
        """One row for each round, with its start and end, and the numbers of invited devices and arrived updates."""
        return self.table("rounds")

    @property
    def transfers(self) -> pd.DataFrame:
        """One row for each transfer, with its sender, receiver, times, size, and reason of loss."""
        return self.table("transfers")

    @property
    def receptions(self) -> pd.DataFrame:
        """One row for each receiver of the transfers that have several receivers."""
        return self.table("receptions")

    @property
    def computes(self) -> pd.DataFrame:
        """One row for each computation on a device or on the server."""
        return self.table("computes")

    @property
    def evaluations(self) -> pd.DataFrame:
        """One row for each evaluation of the global model, or of the devices' models, with the costs so far."""
        return self.table("evaluations")

    @property
    def device_evaluations(self) -> pd.DataFrame:
        """One row for each device and evaluation.

        The table is empty unless `evaluation.per_device` is set, or a Flower app reports scores of clients.
        """
        return self.table("device_evaluations")

    @property
    def energies(self) -> pd.DataFrame:
        """One row for each device, with its energies in J for computing, sending and receiving and its idle energy.

        The last row is for all base stations together.
        """
        return self.table("energies")

    def series(self, name: str) -> pd.DataFrame:
        """Return a table that the algorithm recorded in addition to the standard tables, for example `staleness`.

        Raises:
            DataError: the run has no table with the name `name`.
        """
        if not self.has(name):
            own = ", ".join(sorted({*self.names()} - {*TABLES, *DESCRIBED})) or "none"
            raise DataError(f"{self.name}: {name}", "no such series in this run", f"its series are: {own}")
        return self.table(name)

    # ---- scenario and model ------------------------------------------------------------------------------------------

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario of the run, with every default filled in.

        Raises:
            ScenarioError: the scenario in the run folder cannot be read, for example because a plug-in is missing.
        """
        if self.given is not None:
            return self.given
        from fednet_emu.emulation.load import load_scenario

        cohort = self.settings.get("algorithm", {}).get("cohort")
        is_count = isinstance(cohort, float) and "slowdown" not in self.settings.get("devices", {})
        # version 1.0, which had no `devices.slowdown`, wrote numbers of devices as floats
        count = [f"algorithm.cohort={int(cohort)}"] if is_count and cohort >= 1 else []
        return load_scenario(f"{self.folder}/scenario.yaml", count)

    @cached_property
    def model(self) -> nn.Module | list[nn.Module]:
        """The final model in evaluation mode.

        If the algorithm trains personal models, this is a list with one model per device.

        Raises:
            DataError: no model exists, because the run did not train or because its folder does not store the model.
        """
        from fednet_emu.emulation.final_model import load_model

        found = self.trained
        if found is None and self.folder is not None:
            found = load_model(self.folder)
        if found is None:
            raise DataError(f"{self.name}: model", "there is none, the run did not learn", "run it with training")
        return found.modules(self.scenario)

    # ---- figures -----------------------------------------------------------------------------------------------------

    def plot(self, what: str | None = None, *, against: str | None = None, **timeline: Unpack[Timeline]) -> Figure:
        """Plot a score against a cost, by default the accuracy against the time, or plot the figure `what`.

        Args:
            what: a score (`accuracy`, `loss`, `worst_accuracy`, ...) or a figure. Figures are `timeline`,
                `round-latency`, the name of a series that the algorithm recorded, and `data` and `data-test` for the
                split of training and test samples.
            against: the cost on the horizontal axis if `what` is a score: `time`, `bits`, `energy` or `rounds`.
            timeline: settings of the timeline. `from_s` and `until_s` are its window in simulated seconds (by default
                the first three rounds), `devices` are the shown devices (by default all), and `sort` is the order of
                the devices: `device`, `waiting`, `computing`, `busy` or `lost`.

        Raises:
            FednetError: the figure does not exist, or the run did not measure the quantity.
        """
        return plot(self, what, against=against, **timeline)

    def figures(self, **timeline: Unpack[Timeline]) -> dict[str, Figure]:
        """Plot all figures of the run, and return the figures by name. See `plot` for the arguments."""
        return figures([self], **timeline)

    def trace(
        self,
        path: str | Path,
        *,
        from_s: float | None = None,
        until_s: float | None = None,
        devices: Iterable[int] | None = None,
        progress: bool | None = None,
    ) -> Path:
        """Write the run as a Perfetto trace, a zoomable and searchable timeline for ui.perfetto.dev.

        The trace has one process per cell. Each device has a track with its downlinks, computations, waits and uplinks.
        Activities that follow each other without a gap are grouped. The radio medium of a cell has tracks and counters.
        Rounds, scores and energy have tracks for the whole run. Flows (arrows) lead from the broadcast of a model to
        the training with this model, and on to the model average. Each device is shown in its initial cell. Activities
        that overlap the window are written in full, and counters include all devices.

        Args:
            path: the file. The usual suffix is `.pftrace`.
            from_s: start of the window in simulated seconds; None for the start of the run.
            until_s: end of the window in simulated seconds; None for the end of the run.
            devices: the devices whose activities are written; None for all devices.
            progress: True to show progress, False to hide it; None shows progress only in a terminal or a notebook.

        Returns:
            The file.

        Raises:
            FednetError: a device does not exist, or the window is empty.
            DataError: a table of the run is missing or unreadable, or the file cannot be written.
        """
        from fednet_emu.draw.trace.trace import write_trace
        from fednet_emu.screen.progress import trace_shown

        window, simulated_s = Window.of(from_s, until_s, devices), self.summary["simulated_s"]
        window.check([self])
        if window.from_s > simulated_s:
            problem = f"the run ends at {simulated_s:g} s, got {window.from_s:g} s"
            raise FednetError(f"from_s: {problem}; give an earlier time")
        with trace_shown(min(window.until_ns, simulated_s * 1e9), progress) as show:
            write_trace(self, Path(path), window, show)
        return Path(path)

    def explain(self, *, replay: bool = True) -> Explanation:
        """Return the critical paths of the rounds, and the time that remedies would save.

        The critical path of a round is the chain of transfers, computations, waits and backhaul messages that
        determines the end of the round. The durations of its parts add up to the duration of the round. A remedy is a
        change to settings that may shorten the run. To find its effect, the run is replayed with this change, without
        training and with the same random numbers, until as many updates have arrived as in the run.

        Args:
            replay: True to replay the run with remedies, which requires the scenario of the run and some host time.

        Raises:
            DataError: the run has no rounds, or a table of the run is missing or unreadable.
        """
        from fednet_emu.results.explanation import explained

        return explained(self, lambda: self.scenario, replay=replay)

    def cite(self) -> str:
        """Return BibTeX entries of the methods, models, data and standards that the run uses, and of the emulator."""
        from fednet_emu.results.library import bibtex

        return bibtex([self.scenario])

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page of the run, a single HTML file that any browser can show without network access.

        Args:
            path: the file; None for `report.html` in the run folder.

        Returns:
            The file.

        Raises:
            FednetError: the run is in memory, and no file is given.
            DataError: a table of the run is missing or unreadable, or the file cannot be written.
        """
        from fednet_emu.draw.page.run import write_run_page
        from fednet_emu.scenario.yaml_text import dump

        if path is None and self.folder is None:
            raise FednetError("path: is missing for a run in memory; give the file of the page")
        kept = None if self.folder is None else self.folder / SCENARIO
        text = dump(self.scenario) if kept is None else kept.read_text(encoding="utf-8")
        return write_run_page(self, Path(path or f"{self.folder}/{PAGE}"), text)

    def __repr__(self) -> str:
        summary = self.summary
        accuracy = summary.get("accuracy")
        score = "" if accuracy is None else f", accuracy {accuracy:.3f}"
        when = format_seconds(summary["simulated_s"])
        ended = "" if summary["status"] == "done" else f", {summary['status']}"
        return f"<Run {self.name}, seed {summary['seed']}: {summary['rounds']} rounds in {when}{score}{ended}>"

    def _repr_html_(self) -> str:
        rows = summary_rows(self.summary)
        cells = "".join(f"<tr><th>{html.escape(what)}</th><td>{html.escape(value)}</td></tr>" for what, value in rows)
        return f"<table>{cells}</table>"


def opened(runs: Sequence[Run | str | Path], labels: Sequence[str] = ()) -> list[RunRecords]:
    """Return the records of several runs, each given as an object or folder. If `labels` are given, they are the names.

    Raises:
        FednetError: the number of labels differs from the number of runs.
    """
    if labels and len(labels) != len(runs):
        raise FednetError(f"labels: one per run is needed, got {len(labels)} for {len(runs)} runs; give each a label")
    found = [run if isinstance(run, Run) else RunRecords.opened(Path(run)) for run in runs]
    return [replace(run, name=label) for run, label in zip(found, labels, strict=True)] if labels else found


def plot(
    runs: Run | ScenarioLike | Sequence[Run | ScenarioLike],
    what: str | None = None,
    *,
    against: str | None = None,
    labels: Sequence[str] = (),
    settings: Settings | None = None,
    **timeline: Unpack[Timeline],
) -> Figure:
    """Plot one figure of a run, or of several runs overlaid.

    Args:
        runs: a run or its folder, or a list of several. The figures of the data split also accept a scenario.
        what: the score or figure; see `Run.plot`.
        against: the cost; see `Run.plot`.
        labels: a legend label for each run; by default the names of the scenarios.
        settings: changes to the scenario for the figures of the data split, for example `{"partition": "iid"}`.
        timeline: window and devices of the timeline; see `Run.plot`.

    Raises:
        FednetError: the figure does not exist, the runs did not measure the quantity, several runs are not in a list,
            or an argument has no effect on the figure.
    """
    given: list[Run | ScenarioLike] = [*runs] if isinstance(runs, list | tuple) else [runs]  # type: ignore[list-item]
    if not isinstance(what, str | None):
        got = type(what).__name__
        raise FednetError(f"plot: the second argument names the figure, got a {got}; give several runs as a list")
    shown = Window.of(**timeline)
    _refuse_unused(what, {"against": against, "labels": labels or None, "settings": settings, **timeline})
    if what in DATA_FIGURES:
        return _data_figure(given, what, settings)
    from fednet_emu.draw.figures.run_figures import one_figure

    have_run = [run for run in given if isinstance(run, Run | str | Path)]
    if len(have_run) < len(given):
        raise FednetError(f"plot: a scenario that has not run shows only {' and '.join(DATA_FIGURES)}, got '{what}'")
    return one_figure(opened(have_run, labels), what, against=against, shown=shown)


def _data_figure(sources: Sequence[Run | ScenarioLike], what: str, settings: Settings | None) -> Figure:
    if len(sources) != 1:
        raise FednetError(f"plot: '{what}' shows the data of one run or scenario, got {len(sources)}; give one")
    from fednet_emu.draw.figures.data_split import split_figures
    from fednet_emu.results.library import data_figures

    (source,) = sources
    if isinstance(source, Run) and settings is None and source.has(DATA_SPLIT):
        found = split_figures(DataSplit.of(source))
    else:
        found = data_figures(source.scenario if isinstance(source, Run) else source, settings)
    if what not in found:
        raise FednetError(f"plot: '{what}' has nothing to show, got no test samples at any device; choose 'data'")
    return found[what]


def _refuse_unused(what: str | None, given: Mapping[str, Any]) -> None:
    used = {"settings"} if what in DATA_FIGURES else {"against", "labels"}
    used |= Timeline.__optional_keys__ if what == "timeline" else set()
    for name, value in given.items():
        if value is not None and name not in used:
            figure = "a measure" if what is None else f"'{what}'"
            raise FednetError(f"plot: {name} has no effect on {figure}, got {value!r}; leave it out")


def figures(
    runs: Sequence[Run | str | Path], labels: Sequence[str] = (), **timeline: Unpack[Timeline]
) -> dict[str, Figure]:
    """Plot all figures of several runs, overlaid, and return the figures by name. See `plot` for the arguments."""
    from fednet_emu.draw.figures.run_figures import figures as drawn

    return drawn(opened(runs, labels), Window.of(**timeline))
