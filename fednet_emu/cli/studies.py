"""The commands about studies: sweep, compare, reproduce, and what plot does with a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fednet_emu.cli.options import OUTPUT, DataDir, Overrides, Page, TimingOnly, Track
from fednet_emu.cli.outcome import ERRORS, FAILED, MISTAKE, outcome
from fednet_emu.errors import FednetError

if TYPE_CHECKING:
    from fednet_emu.api.study import Study
    from fednet_emu.report.views.study import StudyView
    from fednet_emu.study.cells import LoadedStudy

StudyName = Annotated[
    str, typer.Argument(metavar="STUDY", help="A study file, or the name of one in scenarios/studies/.")
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Cells at a time. [default: one per core]")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, no table.")]
Metric = Annotated[str | None, typer.Option("--metric", help="Of a study: accuracy, loss, worst_accuracy, ...")]
Against = Annotated[
    str | None, typer.Option("--against", help="Of a study: time, bits, energy or rounds. [default: all]")
]
Panels = Annotated[
    list[str] | None,
    typer.Option("--panels", metavar="AXIS", help="Of a study: an axis for small multiples; may be given twice."),
]


def sweep(
    study: StudyName,
    out: Annotated[Path | None, typer.Option("--out", help="The study's folder. [default: results/NAME]")] = None,
    workers: Workers = None,
    ray: Annotated[bool, typer.Option("--ray", help="Run the cells on a Ray cluster that is started here.")] = False,
    ray_address: Annotated[
        str | None,
        typer.Option("--ray-address", metavar="ADDRESS", help="Run them on this Ray cluster ('auto': here)."),
    ] = None,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    timing_only: TimingOnly = False,
    track: Track = None,
    quiet: Quiet = False,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the figures of the study.")] = True,
) -> None:
    """Run the cells of a study that are not finished; leave its tables, figures and a CSV in a folder."""
    with outcome(lambda: "interrupted; the same command goes on from here"):
        from fednet_emu.scenario.recorded import APPROXIMATE
        from fednet_emu.study.cells import load_study

        loaded = load_study(study, overrides or [], timing_only=timing_only)
        if timing_only and any(cell.scenario.events_depend_on_learning for cell in loaded.cells):
            ERRORS.print(APPROXIMATE)
        cluster, folder = ray_address or ray, out or Path("results") / loaded.name
        done = _swept(loaded, folder, workers, cluster, data_dir, quiet, track)
        if plots:
            for path in _drawn(folder, Page()):
                if not quiet:
                    OUTPUT.out(str(path))
        if not done:
            raise typer.Exit(FAILED)


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="A [B]", help="Two runs or two studies; or one study.")],
    between: Annotated[
        tuple[str, str] | None,
        typer.Option("--between", metavar="A B", help="Two settings of one study, e.g. access=tdma access=ofdma."),
    ] = None,
    accuracy: Annotated[
        float | None, typer.Option("--accuracy", min=0, max=1, help="Target accuracy, instead of the study's.")
    ] = None,
    within: Annotated[
        list[str] | None,
        typer.Option(
            "--within",
            metavar="COST=AMOUNT",
            help="Scores after so much time (s), bits, energy (J), rounds; several limits hold together.",
        ),
    ] = None,
) -> None:
    """Print the differences between two settings, paired by seed, and whether they are more than noise."""
    with outcome():
        import fednet_emu as fe

        if len(folders) != (1 if between else 2):
            ERRORS.print(f"compare: two folders, or one with --between, are needed, got {len(folders)}")
            raise typer.Exit(MISTAKE)
        for side in [fe.Study.opened(folders[0])] if between else map(fe.open, folders):
            if isinstance(side, fe.Study):
                _tell_unfinished(side.view, "compared")
        if between:
            told = fe.Study.opened(folders[0]).compare(*between, accuracy=accuracy, within=within or ())
        else:
            told = fe.compare(folders[0], folders[1], accuracy=accuracy, within=within or ())
        for line in told.lines():
            OUTPUT.out(line)


def reproduce(
    out: Annotated[Path, typer.Option("--out", help="Where the small tables and figures go.")] = Path(
        "results/reference"
    ),
    minutes: Annotated[float, typer.Option("--minutes", min=0, help="Host time for all studies together.")] = 60.0,
    workers: Workers = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Run the studies of the library that fit into an hour, the shortest first, and refresh their reference results."""
    with outcome(lambda: "interrupted; the same command goes on from here"):
        from fednet_emu.report.figures.study_figures import study_figures
        from fednet_emu.report.quantities import counted
        from fednet_emu.report.views.study import open_study
        from fednet_emu.study.cells import load_study
        from fednet_emu.study.reproduce import fitting_studies, write_reference

        whole = True
        for name, cost in fitting_studies(minutes).items():
            loaded, folder = load_study(name), Path("results") / name
            if not quiet:
                ERRORS.print(f"{name}: {counted(len(loaded.cells), 'cell')}, about {cost:g} min on two cores")
            done = _swept(loaded, folder, workers, False, data_dir, quiet)
            if done:
                view = open_study(folder)
                for path in write_reference(view, study_figures(view), out / name, loaded.study.figures):
                    OUTPUT.out(str(path))
            whole = whole and done
        if not whole:
            raise typer.Exit(FAILED)


def is_one_study(folders: list[Path]) -> bool:
    """Whether folders given to `plot` are that of one study; a study among others is a mistake."""
    from fednet_emu.report.views.study import is_one_study

    return is_one_study(folders)


def plot(
    folder: Path, out: Path, metric: str | None, against: str | None, panels: list[str] | None, page: Page
) -> None:
    """Draw the figures of a study, and say which cells are not in them."""
    from fednet_emu.report.figures.study_figures import study_figures
    from fednet_emu.report.views.study import open_study

    view = open_study(folder)
    _tell_unfinished(view, "drawn")
    for path in page.write(study_figures(view, metric=metric, against=against, panels=panels), out):
        OUTPUT.out(str(path))


def _drawn(folder: Path, page: Page) -> list[Path]:
    """Write `cells.csv`, one row for each finished cell, and all figures of a study, and return the files."""
    from fednet_emu.report.figures.study_figures import study_figures
    from fednet_emu.report.views.study import open_study
    from fednet_emu.study.reproduce import write_cells

    view = open_study(folder)
    written = [write_cells(view, folder)] if len(view.cells) else []
    if len(view.evaluations):
        written += page.write(study_figures(view), folder / "figures")
    return written


def _tell_unfinished(view: StudyView, use: str) -> None:
    if view.unfinished:
        are = "cell is" if len(view.unfinished) == 1 else "cells are"
        ERRORS.print(f"{len(view.unfinished)} {are} not finished and not {use}, {view.unfinished[0]} first")
    if view.diverged:
        ERRORS.print(f"diverged, so that no target is reached: {', '.join(view.diverged)}")


def _swept(
    loaded: LoadedStudy,
    folder: Path,
    workers: int | None,
    ray: bool | str,
    data_dir: Path | None,
    quiet: bool,
    track: list[str] | None = None,
) -> bool:
    """Sweep a study, show how it goes, and say whether all cells are done."""
    from fednet_emu.api.sweeping import runner_of, swept
    from fednet_emu.report.quantities import counted

    runner = runner_of(loaded, workers, ray)
    study = swept(loaded, folder, runner, data_dir=data_dir, track=track or (), progress=not quiet)
    if not quiet:
        OUTPUT.out(f"{len(study.view.cells)} of {counted(len(loaded.cells), 'cell')} done; tables in {folder}")
    _report(study, folder, quiet)
    for failure in study.failures:
        ERRORS.print(f"failed: {failure.label}: {failure.reason}\n  replay: {failure.replay}")
    for cell in study.view.diverged:
        ERRORS.print(f"diverged: {cell}")
    return not study.failures


def _report(study: Study, folder: Path, quiet: bool) -> None:
    """Write the page of a study that was swept; its tables are there, whatever goes wrong with the page."""
    if not quiet:
        ERRORS.print("writing the report")
    try:
        page = study.report()
    except Exception as error:
        kind = "" if isinstance(error, FednetError | OSError) else f"{type(error).__name__}: "
        ERRORS.print(f"no report, the tables are complete: {kind}{error}\n  again: fednet report {folder}")
        return
    if not quiet:
        OUTPUT.out(f"report: {page}")
