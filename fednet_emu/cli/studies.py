"""The commands that run studies: sweep, search and reproduce."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fednet_emu.cli.options import (
    OUTPUT,
    DataDir,
    Overrides,
    Page,
    Plots,
    Quiet,
    Ray,
    RayAddress,
    Reuse,
    StudyName,
    TimingOnly,
    Track,
    Workers,
    print_files,
    with_reuse,
)
from fednet_emu.cli.outcome import ERRORS, FAILED, outcome
from fednet_emu.errors import FednetError

if TYPE_CHECKING:
    from fednet_emu.results.study import Study
    from fednet_emu.study.runners import Runner
    from fednet_emu.study.runs import StudyRun


def sweep(
    study: StudyName,
    out: Annotated[Path | None, typer.Option("--out", help="The study's folder. [default: results/NAME]")] = None,
    workers: Workers = None,
    ray: Ray = False,
    ray_address: RayAddress = None,
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
    reuse: Reuse = True,
    quiet: Quiet = False,
    plots: Plots = True,
) -> None:
    """Run the unfinished runs of a study; write tables, figures and a CSV file to a folder."""
    with outcome(lambda: "interrupted; the same command continues from here"):
        from fednet_emu.emulation.record import APPROXIMATE
        from fednet_emu.study.runners import runner_of
        from fednet_emu.study.runs import runs_of
        from fednet_emu.study.slurm import collected

        overrides = with_reuse(overrides, reuse)
        runs = runs_of(study, overrides, data_dir=data_dir, timing_only=timing_only)
        if timing_only and any(run.scenario.events_depend_on_learning for run in runs):
            ERRORS.print(APPROXIMATE)
        cluster, folder = ray_address or ray, out or Path("results") / runs[0].study.name
        if slurm + collect + bool(cluster) > 1:
            raise FednetError("sweep: a study runs in one place, got several of --ray, --slurm, --collect; give one")
        if slurm:
            again = _options(study, folder, overrides, data_dir, timing_only, track, plots)
            _to_slurm(runs, folder, again, data_dir, track)
            return
        scenarios = [run.scenario for run in runs]
        runner = partial(collected, out=folder) if collect else runner_of(scenarios, workers, cluster)
        done = _swept(runs, folder, runner, data_dir, quiet, track)
        print_files(path for path in _written(folder, plots=plots) if not quiet)
        if not done:
            raise typer.Exit(FAILED)


def search(
    study: StudyName,
    out: Annotated[Path | None, typer.Option("--out", help="The search's folder. [default: results/NAME]")] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="How many settings are tried. [default: the study's]")
    ] = None,
    workers: Workers = None,
    ray: Ray = False,
    ray_address: RayAddress = None,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    timing_only: TimingOnly = False,
    track: Track = None,
    reuse: Reuse = True,
    quiet: Quiet = False,
    plots: Plots = True,
) -> None:
    """Find the settings that reach a study's target at the lowest cost; write them as scenario files to a folder."""
    with outcome(lambda: "interrupted; the same command continues from here"):
        from fednet_emu.results.running import searched
        from fednet_emu.study.file import StudyFile
        from fednet_emu.study.runners import runner_of
        from fednet_emu.study.search.search import load_search

        maker = load_search(
            StudyFile.read(study),
            with_reuse(overrides, reuse),
            trials=trials,
            data_dir=data_dir,
            timing_only=timing_only,
        )
        folder = out or Path("results") / maker.study.name
        runner = runner_of([maker.example], workers, ray_address or ray)
        found, ended = searched(maker, folder, runner, data_dir=data_dir, track=track or (), progress=not quiet)
        if not quiet:
            OUTPUT.out(str(found))
        written = Page().write({"search": found.plot()}, folder / "figures") if plots else []
        if found.best:
            written.append(found.study.report())
        print_files(() if quiet else written)
        for place, reason in sorted(ended.failures.items()):
            ERRORS.print(f"failed: {ended.runs[place].label}: {reason}\n  replay: {ended.replay(place)}")
        if ended.failures:
            raise typer.Exit(FAILED)


def reproduce(
    paper: Annotated[
        str | None,
        typer.Argument(
            help="Paper to compare: adaptive-tau, analog-aggregation, completion-time, fedl or joint-learning; leave "
            "it out to run studies."
        ),
    ] = None,
    clone: Annotated[
        Path | None, typer.Option("--clone", help="Your clone of the repository with the paper's public arrays.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where the small tables and figures go.")] = Path(
        "results/reference"
    ),
    minutes: Annotated[float, typer.Option("--minutes", min=0, help="Host time for all studies together.")] = 60.0,
    workers: Workers = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Compare the published numbers of a paper with results of this package, or rerun studies of the library.

    Studies are run in ascending order of host time, as many as fit into --minutes, and their reference results are
    written.
    """
    if paper is not None:
        _compare(paper, clone, data_dir, out, quiet)
        return
    with outcome(lambda: "interrupted; the same command continues from here"):
        from fednet_emu.analysis.quantities import counted
        from fednet_emu.analysis.study import StudyRecords
        from fednet_emu.draw.figures.study_figures import study_figures
        from fednet_emu.study.reproduce import fitting_studies, write_reference
        from fednet_emu.study.runners import runner_of
        from fednet_emu.study.runs import runs_of

        whole = True
        for name, cost in fitting_studies(minutes).items():
            runs, folder = runs_of(name), Path("results") / name
            if not quiet:
                ERRORS.print(f"{name}: {counted(len(runs), 'run')}, about {cost:g} min on two cores")
            runner = runner_of([run.scenario for run in runs], workers, ray=False)
            done = _swept(runs, folder, runner, data_dir, quiet)
            if done:
                view = StudyRecords.opened(folder)
                print_files(write_reference(view, study_figures(view), out / name, runs[0].study.figures))
            whole = whole and done
        if not whole:
            raise typer.Exit(FAILED)


def _compare(paper: str, clone: Path | None, data_dir: Path | None, out: Path, quiet: bool) -> None:
    with outcome(lambda: "interrupted; nothing was written"):
        from fednet_emu.results.published import NOT_MET, VERDICTS, Sources, write_compared

        path, table = write_compared(paper, Sources(clone, data_dir), out)
        if quiet:
            return
        for row in table.to_dict("records"):
            if row["verdict"] == NOT_MET:
                OUTPUT.out(f"not met: {row['setting']}: {row['ours']}, {row['tolerance']}")
        OUTPUT.out(", ".join(f"{int((table['verdict'] == verdict).sum())} {verdict}" for verdict in VERDICTS))
        print_files([path])


def _written(folder: Path, *, plots: bool) -> list[Path]:
    from fednet_emu.analysis.study import StudyRecords
    from fednet_emu.draw.figures.study_figures import study_figures
    from fednet_emu.study.reproduce import write_runs

    view = StudyRecords.opened(folder)
    written = [write_runs(view, folder)] if len(view.runs) else []
    if plots and len(view.evaluations):
        written += Page().write(study_figures(view), folder / "figures")
    return written


def _to_slurm(
    runs: Sequence[StudyRun], folder: Path, collect: list[str], data_dir: Path | None, track: list[str] | None
) -> None:
    """Write the unfinished runs as a SLURM job array and submit it; print the commands if `sbatch` does not exist."""
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
    from fednet_emu.analysis.quantities import counted
    from fednet_emu.results.running import swept

    programs = len({run.program for run in runs} - {""})
    if programs < len(runs) and all(run.program for run in runs) and not quiet:
        ERRORS.print(f"{counted(len(runs), 'run')}, {counted(programs, 'learning program')} by their settings")
    study = swept(runs, folder, runner, data_dir=data_dir, track=track or (), progress=not quiet)
    if not quiet:
        OUTPUT.out(f"{len(study.runs)} of {counted(len(runs), 'run')} done; tables in {folder}")
    _report(study, folder, quiet)
    for failure in study.failures:
        ERRORS.print(f"failed: {failure.label}: {failure.reason}\n  replay: {failure.replay}")
    for run in study.diverged:
        ERRORS.print(f"diverged: {run}")
    return not study.failures


def _report(study: Study, folder: Path, quiet: bool) -> None:
    """Write the HTML page of a study. If this fails, the error is only printed, because the tables are complete."""
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
