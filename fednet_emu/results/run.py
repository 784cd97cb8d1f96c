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
from fednet_emu.records.folder.store import SCENARIO
from fednet_emu.records.ledger import DATA_SPLIT, DESCRIBED, TABLES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import nn

    from fednet_emu.analysis.explanation import Explanation
    from fednet_emu.emulation.final_model import FinalModel
    from fednet_emu.emulation.given import ScenarioLike, Settings
    from fednet_emu.emulation.play import Ended
    from fednet_emu.scenario.model import Scenario


PAGE = "report.html"
"""The file of a page in its folder."""
DATA_FIGURES = ("data", "data-test")
"""Names of the figures that show the data split; they need no run."""


class Timeline(TypedDict, total=False):
    """Window and devices of a timeline; see `Run.plot`."""

    from_s: float | None
    until_s: float | None
    devices: Iterable[int] | None
    sort: str | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Run(RunRecords):
    """The results of a run: its summary, its tables and its model, in memory or in a run folder.

    Tables are pandas data frames with times in seconds, sizes in bits and energies in joules. Each access reads the
    table again and returns a new frame, which the caller may change. Every entry of the summary that is no table is an
    attribute, too: `run.accuracy`, `run.simulated_s`, `run.energy_j`, `run.seed`, `run.status`.

    Attributes:
        given: its scenario, if this process has run it.
        trained: its final model, if this process has run it and there is one.
    """

    given: Scenario | None = None
    trained: FinalModel | None = None

    @classmethod
    def ended(cls, ended: Ended, scenario: Scenario, folder: Path | None) -> Run:
        """Return a run that this process has just finished; `folder` is None for a run in memory."""
        if folder is not None:
            return replace(cls.opened(folder), given=scenario, trained=ended.model)
        settings, tables = scenario.model_dump(mode="json"), cache(ended.ledger.frames)
        name = ended.summary["name"]
        return cls(name, ended.summary, settings, None, tables, given=scenario, trained=ended.model)

    # ---- records -----------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Return an entry of the summary."""
        summary = self.__dict__.get("summary", {})
        if name in summary:
            return summary[name]
        hint = "" if name.startswith("_") else did_you_mean(name, dir(self)) or "; see its summary"
        raise AttributeError(f"a run has no attribute '{name}'{hint}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.summary})

    @property
    def digest(self) -> str:
        """Fingerprint of the event log; it is the same on every machine for the same scenario and seed."""
        return str(self.summary["event_digest"])

    @property
    def verdict(self) -> str:
        """A sentence that states whether the records obey the conservation laws, and which are broken."""
        broken = self.summary["broken_laws"]
        problems = "; ".join(f"{law}: {problem}" for law, problem in broken.items())
        return f"records are not consistent: {problems}" if broken else "all records consistent"

    @property
    def rounds(self) -> pd.DataFrame:
        """One row for each round: start and end, number of invited devices, number of arrived updates."""
        return self.table("rounds")

    @property
    def transfers(self) -> pd.DataFrame:
        """One row for each transfer: sender, receiver, times, size, and reason of loss."""
        return self.table("transfers")

    @property
    def receptions(self) -> pd.DataFrame:
        """One row for each receiver of a transfer that has several receivers."""
        return self.table("receptions")

    @property
    def computes(self) -> pd.DataFrame:
        """One row for each computation on a device or on the server."""
        return self.table("computes")

    @property
    def evaluations(self) -> pd.DataFrame:
        """One row for each evaluation of the global model, with time, bits and energy so far."""
        return self.table("evaluations")

    @property
    def device_evaluations(self) -> pd.DataFrame:
        """One row for each device and evaluation; needs the setting `evaluation.per_device: true`."""
        return self.table("device_evaluations")

    @property
    def energies(self) -> pd.DataFrame:
        """One row for each device: energy of computing, sending, receiving, idling; the last row is the stations."""
        return self.table("energies")

    def series(self, name: str) -> pd.DataFrame:
        """Return a table that the algorithm recorded in addition to the standard ones, for example `staleness`.

        Raises:
            DataError: the run has no table of that name.
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
        """The final model in evaluation mode, or a list with one model for each device if the algorithm trains those.

        Raises:
            DataError: there is no model, because the run did not learn or because its folder does not keep it.
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
        """Draw a measure (accuracy by default) against a cost (time by default), or the figure of a given name.

        Args:
            what: a measure: `accuracy`, `loss`, `worst_accuracy`, ...; or a figure: `timeline`, `round-latency`, or the
                name of a series that the algorithm recorded; or `data` and `data-test`: the data split of the training
                and of the test samples.
            against: for a measure, the cost: `time`, `bits`, `energy` or `rounds`.
            timeline: window and devices of the timeline: `from_s` and `until_s` in simulated seconds (by default the
                first three rounds), `devices` (by default all), and their order `sort`: `device`, `waiting`,
                `computing`, `busy` or `lost`.

        Raises:
            FednetError: the figure does not exist, or the run did not measure it.
        """
        return plot(self, what, against=against, **timeline)

    def figures(self, **timeline: Unpack[Timeline]) -> dict[str, Figure]:
        """Draw all figures of the run, by name; see `plot` for the arguments."""
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

        There is one process per cell, with a track for each device, on which downlinks, computing, waiting and uplinks
        are nested in the turns of the device; tracks and counters of the medium; rounds, scores and energy; and flows
        from the broadcast of a model over the training with it to the average. Devices are in their initial cells.
        Slices that overlap the window are written whole, and counters count all devices.

        Args:
            path: the file; the usual ending is `.pftrace`.
            from_s: start of the window in simulated seconds; None for the start of the run.
            until_s: its end; None for the end of the run.
            devices: the devices whose slices are written; None for all.
            progress: whether to show progress; None shows it only in a terminal or a notebook.

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
        """Return the critical paths of the rounds, and the gains of remedies.

        The critical path of a round is the chain of transfers, computations, waits and messages on the backhaul that
        determines its end; its parts add up to the length of the round. A remedy is the same run with one change,
        replayed without training and with the same random numbers for as many rounds.

        Args:
            replay: whether to replay the run with remedies; this needs its scenario, and takes some host time.

        Raises:
            DataError: the run has no rounds, or a table of the run is missing or unreadable.
        """
        from fednet_emu.results.explanation import explained

        return explained(self, lambda: self.scenario, replay=replay)

    def cite(self) -> str:
        """Return BibTeX entries of the methods, models, data and standards that the run uses, and of the emulator."""
        from fednet_emu.results.scenarios import bibtex

        return bibtex([self.scenario])

    def report(self, path: str | Path | None = None) -> Path:
        """Write a page of the run: a single HTML file for any browser, without network access.

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
    """Return runs, open or in folders, with the given labels instead of their names if any.

    Raises:
        FednetError: the numbers of labels and runs differ.
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
    """Draw one figure of a run, or of several runs overlaid.

    Args:
        runs: a run or its folder, or a list of several; for the figures of the data, which need no run, a scenario too.
        what: the measure or figure, as for `Run.plot`.
        against: the cost, as for `Run.plot`.
        labels: one for each run in the legend; by default the names of the scenarios.
        settings: for the figures of the data, changes of the scenario, for example `{"partition": "iid"}`.
        timeline: window and devices of the timeline, as for `Run.plot`.

    Raises:
        FednetError: the figure does not exist, the runs did not measure it, they are not in a list, or an argument has
            no effect on the figure.
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
    """The figure of the data split of one run or scenario; `settings` changes settings of the scenario."""
    if len(sources) != 1:
        raise FednetError(f"plot: '{what}' shows the data of one run or scenario, got {len(sources)}; give one")
    from fednet_emu.draw.figures.data_split import split_figures
    from fednet_emu.results.scenarios import data_figures

    (source,) = sources
    if isinstance(source, Run) and settings is None and source.has(DATA_SPLIT):
        found = split_figures(DataSplit.of(source))
    else:
        found = data_figures(source.scenario if isinstance(source, Run) else source, settings)
    if what not in found:
        raise FednetError(f"plot: '{what}' has nothing to show, got no test samples at any device; choose 'data'")
    return found[what]


def _refuse_unused(what: str | None, given: Mapping[str, Any]) -> None:
    """Raise a FednetError for an argument of `plot` that has no effect on the figure."""
    used = {"settings"} if what in DATA_FIGURES else {"against", "labels"}
    used |= Timeline.__optional_keys__ if what == "timeline" else set()
    for name, value in given.items():
        if value is not None and name not in used:
            figure = "a measure" if what is None else f"'{what}'"
            raise FednetError(f"plot: {name} has no effect on {figure}, got {value!r}; leave it out")


def figures(
    runs: Sequence[Run | str | Path], labels: Sequence[str] = (), **timeline: Unpack[Timeline]
) -> dict[str, Figure]:
    """Draw all figures of several runs, overlaid, by name; `plot` describes the arguments."""
    from fednet_emu.draw.figures.run_figures import figures as drawn

    return drawn(opened(runs, labels), Window.of(**timeline))
