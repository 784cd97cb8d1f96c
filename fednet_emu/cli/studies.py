"""The commands about studies: sweep, compare, best, reproduce, and what plot does with a study."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fednet_emu.cli.complete import study_names
from fednet_emu.cli.options import (
    OUTPUT,
    Csv,
    DataDir,
    Formats,
    Latex,
    Overrides,
    Page,
    Quiet,
    Rename,
    Size,
    TimingOnly,
    Title,
    Track,
    renamed,
)
from fednet_emu.cli.outcome import ERRORS, FAILED, outcome
from fednet_emu.errors import FednetError

if TYPE_CHECKING:
    from fednet_emu.analysis.study import StudyRecords
    from fednet_emu.results.study import Study
    from fednet_emu.study.runners import Runner
    from fednet_emu.study.runs import StudyRun

StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study file, or the name of one in scenarios/studies/.",
        autocompletion=study_names,
    ),
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Runs at a time. [default: one per core]")]
Accuracy = Annotated[
    float | None, typer.Option("--accuracy", min=0, max=1, help="Target accuracy, instead of the study's.")
]
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
    ray: Annotated[bool, typer.Option("--ray", help="Run it on a Ray cluster that is started here.")] = False,
    ray_address: Annotated[
        str | None,
        typer.Option("--ray-address", metavar="ADDRESS", help="Run them on this Ray cluster ('auto': here)."),
    ] = None,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Write them as a job array of SLURM, and submit it where sbatch is.")
    ] = False,
    collect: Annotated[
        bool, typer.Option("--collect", help="Run nothing; write the tables of what SLURM's jobs have left.")
    ] = False,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    timing_only: TimingOnly = False,
    track: Track = None,
    quiet: Quiet = False,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the figures of the study.")] = True,
) -> None:
    """Run what a study has not finished; leave its tables, figures and a CSV in a folder."""
    with outcome(lambda: "interrupted; the same command goes on from here"):
        from fednet_emu.emulation.record import APPROXIMATE
        from fednet_emu.study.runs import runs_of

        runs = runs_of(study, overrides or [], timing_only=timing_only)
        if timing_only and any(run.scenario.events_depend_on_learning for run in runs):
            ERRORS.print(APPROXIMATE)
        cluster, folder = ray_address or ray, out or Path("results") / runs[0].study.name
        if slurm + collect + bool(cluster) > 1:
            raise FednetError("sweep: a study runs in one place, got several of --ray, --slurm, --collect; give one")
        if slurm:
            again = _options(study, folder, overrides, data_dir, timing_only, track, plots)
            _to_slurm(runs, folder, again, data_dir, track)
            return
        done = _swept(runs, folder, _runner(runs, folder, workers, cluster, collect), data_dir, quiet, track)
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
    accuracy: Accuracy = None,
    within: Annotated[
        list[str] | None,
        typer.Option(
            "--within",
            metavar="COST=AMOUNT",
            help="Scores after so much time (s), bits, energy (J), rounds; several limits hold together.",
        ),
    ] = None,
) -> None:
    """Print how much two settings differ, chosen before the runs: differences paired by seed, with 95 % intervals."""
    with outcome():
        import fednet_emu as fe

        if len(folders) != (1 if between else 2):
            raise FednetError(f"compare: two folders, or one with --between, are needed, got {len(folders)}")
        for side in [fe.Study.opened(folders[0])] if between else map(fe.open, folders):
            if isinstance(side, fe.Study):
                _tell_unfinished(side, "compared")
        if between:
            told = fe.Study.opened(folders[0]).compare(*between, accuracy=accuracy, within=within or ())
        else:
            told = fe.compare(folders[0], folders[1], accuracy=accuracy, within=within or ())
        for line in told.lines():
            OUTPUT.out(line)


def best(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="The folder of a study.")],
    accuracy: Accuracy = None,
    within: Annotated[
        list[str] | None,
        typer.Option(
            "--within",
            metavar="COST=AMOUNT",
            help="What a run may spend: time (s), bits, energy (J, of all), device-energy (J, per device), rounds.",
        ),
    ] = None,
    minimise: Annotated[
        str, typer.Option("--minimise", help="What to rank by: time, bits, energy, device-energy or rounds.")
    ] = "time",
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="AXIS=LEVEL", help="Rank only settings with this level.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Also draw it, into this folder. [default with --csv...: STUDY/figures]"),
    ] = None,
    rename: Rename = None,
    title: Title = None,
    size: Size = None,
    picture: Formats = None,
    csv: Csv = False,
    latex: Latex = False,
) -> None:
    """Rank the settings of a study by what the target costs, and say which of all may be the best."""
    with outcome():
        from fednet_emu.analysis.study import conditions
        from fednet_emu.results.study import Study

        opened, page = Study.opened(study), Page(picture, size, title, csv, latex)
        _tell_unfinished(opened, "ranked")
        levels = {axis: level for text in where or () for axis, level in conditions(text, "--where").items()}
        told = opened.best(accuracy=accuracy, within=within or (), minimise=minimise, where=levels)
        for line in told.lines():
            OUTPUT.out(line)
        if out is not None or rename or page != Page():
            for path in page.write({"best": told.plot(rename=renamed(rename))}, out or study / "figures"):
                OUTPUT.out(str(path))


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
        from fednet_emu.analysis.quantities import counted
        from fednet_emu.analysis.study import StudyRecords
        from fednet_emu.draw.figures.study_figures import study_figures
        from fednet_emu.study.reproduce import fitting_studies, write_reference
        from fednet_emu.study.runs import runs_of

        whole = True
        for name, cost in fitting_studies(minutes).items():
            runs, folder = runs_of(name), Path("results") / name
            if not quiet:
                ERRORS.print(f"{name}: {counted(len(runs), 'run')}, about {cost:g} min on two cores")
            done = _swept(runs, folder, _runner(runs, folder, workers), data_dir, quiet)
            if done:
                view = StudyRecords.opened(folder)
                for path in write_reference(view, study_figures(view), out / name, runs[0].study.figures):
                    OUTPUT.out(str(path))
            whole = whole and done
        if not whole:
            raise typer.Exit(FAILED)


def is_one_study(folders: list[Path]) -> bool:
    """Whether folders given to `plot` are that of one study; a study among others is a mistake."""
    from fednet_emu.analysis.study import is_one_study

    return is_one_study(folders)


def plot(
    folder: Path,
    out: Path,
    metric: str | None,
    against: str | None,
    panels: list[str] | None,
    rename: list[str] | None,
    page: Page,
) -> None:
    """Draw the figures of a study, and say which runs are not in them."""
    from fednet_emu.analysis.study import StudyRecords
    from fednet_emu.draw.figures.study_figures import study_figures

    view = StudyRecords.opened(folder)
    _tell_unfinished(view, "drawn")
    drawn = study_figures(view, metric=metric, against=against, panels=panels, rename=renamed(rename))
    for path in page.write(drawn, out):
        OUTPUT.out(str(path))


def _drawn(folder: Path, page: Page) -> list[Path]:
    """Write `cells.csv`, one row for each finished run, and all figures of a study, and return the files."""
    from fednet_emu.analysis.study import StudyRecords
    from fednet_emu.draw.figures.study_figures import study_figures
    from fednet_emu.study.reproduce import write_cells

    view = StudyRecords.opened(folder)
    written = [write_cells(view, folder)] if len(view.cells) else []
    if len(view.evaluations):
        written += page.write(study_figures(view), folder / "figures")
    return written


def _tell_unfinished(view: StudyRecords, use: str) -> None:
    if view.unfinished:
        are = "run is" if len(view.unfinished) == 1 else "runs are"
        ERRORS.print(f"{len(view.unfinished)} {are} not finished and not {use}, {view.unfinished[0]} first")
    if view.diverged:
        ERRORS.print(f"diverged, so that no target is reached: {', '.join(view.diverged)}")


def _runner(
    runs: Sequence[StudyRun], folder: Path, workers: int | None, ray: bool | str = False, collect: bool = False
) -> Runner:
    """What runs the jobs of a study."""
    from fednet_emu.study.runners import runner_of
    from fednet_emu.study.slurm import collected

    return partial(collected, out=folder) if collect else runner_of([run.scenario for run in runs], workers, ray)


def _to_slurm(
    runs: Sequence[StudyRun], folder: Path, collect: list[str], data_dir: Path | None, track: list[str] | None
) -> None:
    """Write the runs that are left as a job array, submit it, and say what to do where that is impossible."""
    from fednet_emu.analysis.quantities import counted
    from fednet_emu.study.slurm import Slurm, submit
    from fednet_emu.study.sweep import sweep as run_sweep

    slurm = Slurm(folder, collect)
    run_sweep(runs, folder, slurm, data_dir=data_dir, track=tuple(track or ()))
    if slurm.jobs is None:
        OUTPUT.out(f"all {counted(len(runs), 'run')} are finished; tables in {folder}")
        return
    OUTPUT.out(f"{counted(slurm.jobs.runs, 'run')} to run: {slurm.jobs.array}")
    numbers = submit(slurm.jobs)
    if numbers is not None:
        OUTPUT.out(f"submitted as {numbers[0]}; {numbers[1]} writes the tables after it")
    else:
        last = f"sbatch --dependency=afterany:NUMBER {slurm.jobs.last}"
        ERRORS.print(f"there is no sbatch here; on the cluster:\n  sbatch {slurm.jobs.array}\n  {last}")


def _options(
    study: str,
    folder: Path,
    overrides: list[str] | None,
    data_dir: Path | None,
    timing_only: bool,
    track: list[str] | None,
    plots: bool,
) -> list[str]:
    """The command that takes in what the jobs of a sweep have left."""
    command = [sys.executable, "-P", "-m", "fednet_emu", "sweep", study, "--out", str(folder), "--collect", "--quiet"]
    command += [word for setting in overrides or () for word in ("--set", setting)]
    command += [word for tracker in track or () for word in ("--track", tracker)]
    command += ["--data-dir", str(data_dir)] if data_dir else []
    return [*command, *(["--timing-only"] if timing_only else []), *([] if plots else ["--no-plots"])]


def _swept(
    runs: Sequence[StudyRun],
    folder: Path,
    runner: Runner,
    data_dir: Path | None,
    quiet: bool,
    track: list[str] | None = None,
) -> bool:
    """Sweep a study, show how it goes, and say whether all runs are done."""
    from fednet_emu.analysis.quantities import counted
    from fednet_emu.results.sweeping import swept

    study = swept(runs, folder, runner, data_dir=data_dir, track=track or (), progress=not quiet)
    if not quiet:
        OUTPUT.out(f"{len(study.cells)} of {counted(len(runs), 'run')} done; tables in {folder}")
    _report(study, folder, quiet)
    for failure in study.failures:
        ERRORS.print(f"failed: {failure.label}: {failure.reason}\n  replay: {failure.replay}")
    for run in study.diverged:
        ERRORS.print(f"diverged: {run}")
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
