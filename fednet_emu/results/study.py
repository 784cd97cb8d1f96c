"""The results of a study: tables, comparisons and figures."""

from __future__ import annotations

import html
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import pandas as pd
from typing_extensions import override

from fednet_emu.analysis.comparison import Comparison, between, side_by_side
from fednet_emu.analysis.fronts import front
from fednet_emu.analysis.ranked import RankedSettings
from fednet_emu.analysis.ranking import positive_limits, rank
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.searched import SearchRecords
from fednet_emu.analysis.study import (
    Condition,
    Levels,
    StudyRecords,
    Within,
    conditions,
    is_one_study,
    is_study,
    require_finished,
)
from fednet_emu.errors import FednetError
from fednet_emu.records.folder import SUMMARY
from fednet_emu.results.run import PAGE, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = ("accuracy", "loss", "simulated_s", "total_bit", "energy_j")


class Failure(NamedTuple):
    """A failed run of a study. `label` contains its levels and seed, and `replay` is the command that repeats it."""

    label: str
    reason: str
    replay: str


class Home:
    """A folder of results. A temporary folder is deleted when no object refers to it any more."""

    def __init__(self, path: Path, *, temporary: bool = False) -> None:
        self.path, self.temporary = path, temporary
        if temporary:
            weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)


class Ranking(RankedSettings):
    """The settings of a study in ascending order of the cost to reach the target, to be printed or plotted."""

    def plot(self, *, rename: Mapping[str, str] | None = None) -> Figure:
        """Plot the costs of all runs, with the mean and the 95 % interval of each setting.

        Args:
            rename: display names for axes and levels; see `Study.plot`.
        """
        from fednet_emu.draw.figures.study_rows import best_figure
        from fednet_emu.draw.style import paper_style

        with paper_style():
            return best_figure(self, rename)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Study(StudyRecords):
    """The results of a sweep: a table with one row for each run, all evaluations, comparisons and figures.

    A study is a sequence of its finished runs: `len(study)`, `study[0]`, `for run in study`. Selecting levels returns a
    subset, which is also a study: `study["network.uplink.access=tdma"]`, `study[{"devices.count": 20}]`.

    Attributes:
        home: the folder that contains the runs.
        failures: the runs that failed in this sweep.
        is_part: True if the object contains only a subset of the study in `home`.
    """

    home: Home
    failures: Sequence[Failure] = ()
    is_part: bool = False

    @classmethod
    @override
    def opened(cls, folder: Path, *, temporary: bool = False, failures: Sequence[Failure] = ()) -> Self:
        return cls.at(Home(folder, temporary=temporary), failures)

    @classmethod
    def at(cls, home: Home, failures: Sequence[Failure] = ()) -> Self:
        """Open the study in the folder `home`, which several objects can share."""
        return cls(**vars(StudyRecords.opened(home.path)), home=home, failures=tuple(failures))

    @property
    def folder(self) -> Path | None:
        """The folder of the study. None if the folder is temporary, or if the object is only a subset of a study."""
        return None if self.home.temporary or self.is_part else self.home.path

    @override
    def where(self, levels: Levels) -> Self:
        return replace(super().where(levels), is_part=True)

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        return (self[place] for place in range(len(self)))

    @overload
    def __getitem__(self, which: int) -> Run: ...
    @overload
    def __getitem__(self, which: Condition) -> Study: ...
    def __getitem__(self, which: int | Condition) -> Run | Study:
        """Return the run with the given index (row of `runs`), or the subset of the study with the given levels.

        Raises:
            IndexError: the row does not exist.
            FednetError: an axis or level does not exist.
        """
        if isinstance(which, str | Mapping):
            return self.where(conditions(which, self.name, self.axes))
        if not -len(self) <= which < len(self):
            raise IndexError(f"{self.name}: no such run, got {which}; there are {len(self)}, counted from 0")
        return Run.opened(self.home.path / "runs" / str(self.runs["run"].iloc[which]))

    def run(self, seed: int | None = None, **levels: Any) -> Run:
        """Return the run with the given seed and levels.

        Args:
            seed: the seed; may be omitted if there is only one seed.
            levels: the level of each axis, by the name of the axis; an axis with only one level may be omitted.

        Raises:
            FednetError: no run, or more than one run, has this seed and these levels.
        """
        rows = self.where(conditions(levels, self.name)).runs
        if seed is not None:
            rows = rows[rows["seed"] == seed]
        if len(rows) != 1:
            raise FednetError(f"{self.name}: one run is needed, got {len(rows)} of these levels; name seed and levels")
        return Run.opened(self.home.path / "runs" / str(rows["run"].iloc[0]))

    def compare(
        self,
        first: Condition,
        second: Condition,
        *,
        accuracy: float | None = None,
        loss: float | None = None,
        within: Within = (),
    ) -> Comparison:
        """Compare two settings by the differences between their runs with the same seed.

        If there are at least six seeds, differences have 95 % intervals. The test is valid only if the two settings are
        chosen before their results are known. To find which of all settings may be the best, use `best`.

        Args:
            first: the setting A: `axis=level`, several of these separated by commas, or a mapping from axes to levels.
            second: the setting B, in the same form as `first`.
            accuracy: a target accuracy that replaces the study's target.
            loss: a target loss that replaces the study's target; a perplexity p is a loss of ln p.
            within: upper limits of the costs of both settings, for example `{"time": 60}` in seconds.

        Raises:
            FednetError: an axis, level or cost does not exist.
        """
        return between(self.aiming_at(accuracy, loss), (first, second), within)

    def best(
        self,
        *,
        accuracy: float | None = None,
        loss: float | None = None,
        within: Within = (),
        minimise: str = "time",
        where: Condition | None = None,
    ) -> Ranking:
        """Rank the settings by the cost to reach the target, and name the settings that may be the best.

        If one of two runs with the same seed ended without reaching the target, the runs are compared up to this end.
        The cost of a run that diverged or exceeded a limit is the limit of the compared cost. If there is no such
        limit, it is twice the highest cost of any run. Settings that are not the best are found by a permutation test,
        which exchanges costs within seeds and accounts for the number of settings. Settings whose runs do not allow a
        comparison are not ranked.

        Args:
            accuracy: a target accuracy that replaces the study's target.
            loss: a target loss that replaces the study's target; a perplexity p is a loss of ln p.
            within: upper limits of the costs to reach the target, for example `{"energy": 4, "bits": 20e6}`. Costs are
                `time` in seconds, `bits` on all links, `energy` of all devices and base stations in joules,
                `device-energy` (`energy` divided by the number of devices), and `rounds`.
            minimise: the cost by which settings are ranked, one of the costs of `within`.
            where: the levels of some axes, as for `compare`; only settings with these levels are ranked.

        Raises:
            FednetError: a cost, axis or level does not exist, there is no target, or no run reaches the target within
                the limits.
        """
        limits = positive_limits(within)
        part = self.where(conditions(where or {}, "where", self.axes))
        require_finished(part, self.name)
        return Ranking(**vars(rank(part.aiming_at(accuracy, loss), minimise, limits)))

    def front(self, one: str = "time", other: str = "accuracy") -> pd.DataFrame:
        """Return the Pareto front of two quantities, the points that no other point dominates.

        If one quantity is the accuracy, points are rounds that every seed has evaluated. A model whose accuracy gain
        over an untrained model is less than a tenth of the largest gain is then on no front. If both quantities are
        costs, each point is a setting with its costs to reach the target, or with the costs of whole runs if there is
        no target. Each data set has its own front. The figure `pareto` and the page of the study show the same points.

        Args:
            one: `time`, `bits`, `energy` or `accuracy`.
            other: another of these quantities.

        Returns:
            One row for each point: `setting`, the levels of the setting, `data_set`, `round` (-1 for whole runs), and
            the means over seeds of `simulated_s`, `total_bit`, `energy_j` and `accuracy`.

        Raises:
            FednetError: a quantity does not exist, or both quantities are the same.
        """
        return front(self, one, other)

    def plot(
        self,
        metric: str | None = None,
        *,
        against: str = "time",
        panels: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
    ) -> Figure:
        """Plot a metric against a cost, with the mean over seeds and a 95 % band for each setting.

        Args:
            metric: `accuracy`, `loss`, `worst_accuracy`, ...; by default the metric of the target, or the accuracy.
            against: the cost: `time`, `bits`, `energy` or `rounds`.
            panels: the axes whose levels have a panel each, at most two; by default the second and third axis.
            rename: display names for axes, levels and metrics, for example `{"tdma": "TDMA", "devices.count=20":
                "few"}`.

        Raises:
            FednetError: a metric, cost, axis or level does not exist, or the metric was not measured.
        """
        (figure,) = self.figures(metric=metric, against=against, panels=panels, rename=rename).values()
        return figure

    def figures(
        self,
        *,
        metric: str | None = None,
        against: str | None = None,
        panels: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
    ) -> dict[str, Figure]:
        """Plot all figures of the study, and return the figures by name. See `plot` for the arguments.

        If `against` is given, only the figure with the metric against this cost is plotted.
        """
        from fednet_emu.draw.figures.study_figures import study_figures

        return study_figures(self, metric=metric, against=against, panels=panels, rename=rename)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page of the study, a single HTML file that any browser can show without network access.

        The page has learning curves with bands over seeds, costs to reach the target, paired differences in words,
        Pareto fronts, and tables.

        Args:
            path: the file; None for `report.html` in the folder of the study.

        Returns:
            The file.

        Raises:
            FednetError: the study is in a temporary folder, and no file is given.
            DataError: the file cannot be written.
        """
        from fednet_emu.draw.page.study_page import write_study_page

        if path is None and self.folder is None:
            raise FednetError("path: is missing for a study without a folder; give the file of the page")
        return write_study_page(self, Path(path or self.home.path / PAGE), SearchRecords.found(self.home.path))

    def __repr__(self) -> str:
        axes = ", ".join(f"{len(levels)} {name}" for name, levels in self.axes.items()) or "no axis"
        left = f", {len(self.unfinished)} unfinished" if self.unfinished else ""
        lost = f", {len(self.diverged)} diverged" if self.diverged else ""
        return f"<Study {self.name}: {axes}; {len(self.runs)} runs done{lost}{left}>"

    def _repr_html_(self) -> str:
        keys = list(self.axes)
        known = self.runs.dropna(axis="columns", how="all")
        shown = [name for name in SHOWN if name in known]
        if not len(known) or not shown:
            return f"<p>{html.escape(repr(self))}</p>"
        means = known.groupby(keys, sort=False)[shown].mean() if keys else known[shown].mean().to_frame("mean").T
        return f"<p>{html.escape(repr(self))}</p>{means.to_html(float_format='{:.4g}'.format)}"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Search(SearchRecords):
    """The results of a search: all trials, the settings that may be the best, and the importance of each parameter.

    Attributes:
        home: the folder of the search.
        failures: number of runs that failed in this search.
    """

    home: Home
    failures: int = 0

    @classmethod
    @override
    def opened(cls, folder: Path, *, temporary: bool = False, failures: int = 0) -> Self:
        home = Home(folder, temporary=temporary)
        return cls(**vars(SearchRecords.opened(folder)), home=home, failures=failures)

    @property
    def folder(self) -> Path | None:
        """The folder of the search; None for a temporary folder."""
        return None if self.home.temporary else self.home.path

    @property
    def best(self) -> list[dict[str, Any]]:
        """The settings of the finalists, best first. Each is a mapping from the varied parameters to their values."""
        rows = self.trials.set_index("trial")
        values = [{name: rows[name][number] for name in self.parameters} for number in self.finalists]
        return [{name: value for name, value in each.items() if not pd.isna(value)} for each in values]

    @property
    def study(self) -> Study:
        """The finalists, as a study whose only axis is `setting`."""
        return Study.at(self.home)

    def plot(self) -> Figure:
        """Plot the cost of every trial in order, and the finalists."""
        from fednet_emu.draw.figures.study_search import search_figure
        from fednet_emu.draw.style import paper_style

        with paper_style():
            return search_figure(self)


def opened(path: str | Path) -> Run | Study:
    """Open the folder of a run or of a study, as written by `fednet run` or `fednet sweep`.

    Raises:
        DataError: the folder contains neither a run nor a study, or cannot be read.
    """
    folder = Path(path)
    return Study.opened(folder) if is_study(folder) else Run.opened(folder)


def compared(
    first: Run | Study | str | Path,
    second: Run | Study | str | Path,
    *,
    accuracy: float | None = None,
    loss: float | None = None,
    within: Within = (),
) -> Comparison:
    """Compare two runs or studies by their differences, paired by seed; see `Study.compare`.

    Raises:
        FednetError: the two have no seed in common, so that no runs can be paired.
        DataError: a folder contains neither a run nor a study.
    """
    (name_a, a), (name_b, b) = _side(first), _side(second)
    return side_by_side((a.aiming_at(accuracy, loss), b.aiming_at(accuracy, loss)), (name_a, name_b), within)


def _side(given: Run | Study | str | Path) -> tuple[str, StudyRecords]:
    its = given if isinstance(given, Run | Study) else opened(given)
    return str(its.folder or its.name), its if isinstance(its, Study) else StudyRecords.of_run(its)


def report(paths: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write the page of a run, of a study, or of several runs overlaid, and return the file of the page.

    Args:
        paths: the folder of a run or of a study, or the folders of several runs.
        out: the file; None for `report.html` in the folder, or in the current folder for several runs.

    Raises:
        FednetError: a study is among several folders, or a folder contains neither a run nor a study.
        DataError: a table is missing or unreadable, or the file cannot be written.
    """
    folders = [Path(each) for each in paths]
    for folder in folders:
        if folder.is_dir() and not is_study(folder) and not (folder / SUMMARY).is_file():
            raise FednetError(
                f"{folder}: holds neither a run nor a study, got no summary.json; "
                "give a folder that `fednet run` or `fednet sweep` wrote"
            )
    if is_one_study(folders, "report") or len(folders) == 1:
        return opened(folders[0]).report(out)
    from fednet_emu.draw.page.run import write_overlay_page

    return write_overlay_page([RunRecords.opened(folder) for folder in folders], Path(out or PAGE))
