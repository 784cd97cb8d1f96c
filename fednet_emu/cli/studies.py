"""The commands about studies: sweep, compare, reproduce."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fednet_emu.cli.options import OUTPUT, DataDir, Overrides, TimingOnly
from fednet_emu.cli.outcome import ERRORS, FAILED, outcome

StudyName = Annotated[
    str, typer.Argument(metavar="STUDY", help="A study file, or the name of one in scenarios/studies/.")
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Cells at a time. [default: one per core]")]


def sweep(
    study: StudyName,
    out: Annotated[Path | None, typer.Option("--out", help="The study's folder. [default: results/NAME]")] = None,
    workers: Workers = None,
    ray: Annotated[bool, typer.Option("--ray", help="Run the cells on a Ray cluster that is started here.")] = False,
    ray_address: Annotated[
        str | None, typer.Option("--ray-address", metavar="ADDRESS", help="Run them on this Ray cluster ('auto': here).")
    ] = None,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    timing_only: TimingOnly = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no table.")] = False,
) -> None:
    """Run the cells of a study that are not finished; leave its tables in a folder."""
    with outcome(lambda: "interrupted; the same command goes on from here"):
        from fednet_emu.cli.sweeping import Display, results
        from fednet_emu.study.cells import load_study
        from fednet_emu.study.sweep import Runner, sweep

        loaded = load_study(study, overrides or [], timing_only=timing_only)
        folder = out or Path("results") / loaded.name
        run: Runner
        if ray or ray_address:
            from fednet_emu.study.on_ray import run_on_ray

            run = lambda tasks: run_on_ray(tasks, ray_address, workers)  # noqa: E731
        else:
            from fednet_emu.study.local import run_locally

            run = lambda tasks: run_locally(tasks, workers or os.cpu_count() or 1)  # noqa: E731
        with Display(quiet=quiet) as show:
            progress = sweep(loaded, folder, run, data_dir=data_dir, on_news=show)
        if not quiet:
            for line in results(progress, folder):
                OUTPUT.out(line)
        for place, reason in sorted(progress.failures.items()):
            cell = progress.cells[place]
            ERRORS.print(f"failed: {cell.label}: {reason}\n  replay: {cell.replay}")
        if progress.failures:
            raise typer.Exit(FAILED)
