"""One run, as Python sees it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednet_emu.errors import DataError
from fednet_emu.records.ledger import TABLES
from fednet_emu.report.quantities import format_seconds
from fednet_emu.report.views.run import RunView, open_run
from fednet_emu.report.views.summary import summary_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import nn

    from fednet_emu.scenario.final_model import FinalModel
    from fednet_emu.scenario.model import Scenario
    from fednet_emu.scenario.run import Ended


class Run:
    """What a run has left: its summary, its tables and its model, in memory or in a run folder.

    Tables are pandas frames, read each time when they are asked for: times in seconds, sizes in bits, energies in
    joules. A frame is the caller's own to change.
    """

    def __init__(self, view: RunView, scenario: Scenario | None = None, model: FinalModel | None = None) -> None:
        self.view, self._scenario, self._model = view, scenario, model

    @classmethod
    def opened(cls, folder: Path) -> Run:
        """The run in a folder.

        Raises:
            DataError: there is none, or it cannot be read.
        """
        return cls(open_run(folder))

    @classmethod
    def ended(cls, ended: Ended, scenario: Scenario, folder: Path | None) -> Run:
        """A run of this process."""
        if folder is not None:
            return cls(open_run(folder), scenario, ended.model)
        plain = scenario.model_dump(mode="json")
        view = RunView(ended.summary["name"], ended.summary, plain, None, cache(ended.ledger.frames))
        return cls(view, scenario, ended.model)

    # ---- what was measured -------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the scenario."""
        return self.view.label

    @property
    def folder(self) -> Path | None:
        """The run folder; None for a run in memory."""
        return self.view.folder

    @property
    def summary(self) -> Mapping[str, Any]:
        """Totals and last scores, as in summary.json."""
        return dict(self.view.summary)

    @property
    def digest(self) -> str:
        """Fingerprint of the event log, equal for equal scenario and seed on any machine."""
        return str(self.view.summary["event_digest"])

    @property
    def verdict(self) -> str:
        """Whether the records obey the conservation laws, in words."""
        broken = self.view.summary["broken_laws"]
        told = "; ".join(f"{law}: {problem}" for law, problem in broken.items())
        return f"records are not consistent: {told}" if broken else "all records consistent"

    @property
    def rounds(self) -> pd.DataFrame:
        """One row for each round: when, how many were invited, how many arrived."""
        return self.view.table("rounds")

    @property
    def transfers(self) -> pd.DataFrame:
        """One row for each transfer: who, to whom, when, how much, lost or not."""
        return self.view.table("transfers")

    @property
    def receptions(self) -> pd.DataFrame:
        """One row for each receiver of a transfer to several."""
        return self.view.table("receptions")

    @property
    def computes(self) -> pd.DataFrame:
        """One row for each computation."""
        return self.view.table("computes")

    @property
    def evaluations(self) -> pd.DataFrame:
        """One row for each evaluation of the global model, with what the run had spent by then."""
        return self.view.table("evaluations")

    @property
    def device_evaluations(self) -> pd.DataFrame:
        """One row for each device and evaluation, with `evaluation.per_device: true`."""
        return self.view.table("device_evaluations")

    def series(self, name: str) -> pd.DataFrame:
        """A table that the algorithm has recorded of itself, for example `staleness`.

        Raises:
            DataError: the run has none of that name.
        """
        if not self.view.has(name):
            own = ", ".join(sorted(set(self.view.names()) - set(TABLES))) or "none"
            raise DataError(f"{self.name}: {name}", "no such series in this run", f"its series are: {own}")
        return self.view.table(name)

    # ---- what was run ------------------------------------------------------------------------------------------------

    @cached_property
    def scenario(self) -> Scenario:
        """What was run, with every default.

        Raises:
            ScenarioError: the scenario in the run folder cannot be read any more, say because a plug-in is missing.
        """
        if self._scenario is not None:
            return self._scenario
        from fednet_emu.scenario.load import load_scenario

        return load_scenario(f"{self.folder}/scenario.yaml")

    @cached_property
    def model(self) -> nn.Module | list[nn.Module]:
        """The final model, ready to predict; a list where each device has one of its own.

        Raises:
            DataError: there is none: the run did not learn, or its folder does not keep it.
        """
        from fednet_emu.scenario.final_model import load_model

        found = self._model
        if found is None and self.folder is not None:
            found = load_model(self.folder)
        if found is None:
            raise DataError(f"{self.name}: model", "there is none, the run did not learn", "run it with training")
        return found.modules(self.scenario)

    # ---- how it looks ------------------------------------------------------------------------------------------------

    def plot(self, what: str | None = None, *, against: str | None = None, until_s: float | None = None) -> Figure:
        """A figure: a measure (accuracy by default) against a cost (time by default), or the one called so.

        Args:
            what: `accuracy`, `loss`, `worst_accuracy`, ...; or `timeline`, `round-latency`, or that of a series.
            against: `time`, `bits`, `energy` or `rounds`.
            until_s: where the timeline ends, in simulated seconds.

        Raises:
            FednetError: there is no such figure, or it was not measured.
        """
        return plot(self, what=what, against=against, until_s=until_s)

    def figures(self, *, until_s: float | None = None) -> dict[str, Figure]:
        """All figures that the run has data for, by name."""
        return figures([self], until_s=until_s)

    def __repr__(self) -> str:
        summary = self.view.summary
        accuracy = summary.get("accuracy")
        score = "" if accuracy is None else f", accuracy {accuracy:.3f}"
        when = format_seconds(summary["simulated_s"])
        ended = "" if summary["status"] == "done" else f", {summary['status']}"
        return f"<Run {self.name}, seed {summary['seed']}: {summary['rounds']} rounds in {when}{score}{ended}>"

    def _repr_html_(self) -> str:
        rows = summary_rows(self.view.summary)
        cells = "".join(f"<tr><th>{html.escape(what)}</th><td>{html.escape(value)}</td></tr>" for what, value in rows)
        return f"<table>{cells}</table>"


def views(runs: Sequence[Run | str | Path], labels: Sequence[str] = ()) -> list[RunView]:
    """The views of runs, open or in folders, under other names where labels are given."""
    opened = [run.view if isinstance(run, Run) else open_run(Path(run)) for run in runs]
    if not labels:
        return opened
    return [replace(view, label=label) for view, label in zip(opened, labels, strict=True)]


def plot(
    *runs: Run | str | Path,
    what: str | None = None,
    against: str | None = None,
    labels: Sequence[str] = (),
    until_s: float | None = None,
) -> Figure:
    """One figure with several runs overlaid; see `Run.plot`."""
    from fednet_emu.report.figures.run_figures import one_figure

    return one_figure(views(runs, labels), what, against=against, until_s=until_s)


def figures(
    runs: Sequence[Run | str | Path], labels: Sequence[str] = (), *, until_s: float | None = None
) -> dict[str, Figure]:
    """All figures of several runs overlaid, by name."""
    from fednet_emu.report.figures.run_figures import figures as drawn

    return drawn(views(runs, labels), until_s=until_s)
