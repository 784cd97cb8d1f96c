"""The command that searches the settings of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fednet_emu.cli.options import OUTPUT, DataDir, Overrides, Page, Quiet, TimingOnly, Track
from fednet_emu.cli.outcome import ERRORS, FAILED, outcome
from fednet_emu.cli.studies import StudyName, Workers


def search(
    study: StudyName,
    out: Annotated[Path | None, typer.Option("--out", help="The search's folder. [default: results/NAME]")] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="How many settings are tried. [default: the study's]")
    ] = None,
    workers: Workers = None,
    ray: Annotated[bool, typer.Option("--ray", help="Run on a Ray cluster that is started here.")] = False,
    ray_address: Annotated[
        str | None, typer.Option("--ray-address", metavar="ADDRESS", help="Run on this Ray cluster ('auto': here).")
    ] = None,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    timing_only: TimingOnly = False,
    track: Track = None,
    quiet: Quiet = False,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the figures of the search.")] = True,
) -> None:
    """Find the settings that reach a study's target at the least cost; leave them as scenario files in a folder."""
    with outcome(lambda: "interrupted; the same command goes on from here"):
        from fednet_emu.results.search import searched
        from fednet_emu.study.file import StudyFile
        from fednet_emu.study.runners import runner_of
        from fednet_emu.study.search.search import load_search

        maker = load_search(StudyFile.read(study), overrides or [], trials=trials, timing_only=timing_only)
        folder = out or Path("results") / maker.study.name
        runner = runner_of([maker.example], workers, ray_address or ray)
        found, ended = searched(maker, folder, runner, data_dir=data_dir, track=track or (), progress=not quiet)
        if not quiet:
            for line in found.lines():
                OUTPUT.out(line)
        written = Page().write({"search": found.plot()}, folder / "figures") if plots else []
        if found.best:
            written.append(found.study.report())
        for path in written if not quiet else ():
            OUTPUT.out(str(path))
        for place, reason in sorted(ended.failures.items()):
            ERRORS.print(f"failed: {ended.runs[place].label}: {reason}\n  replay: {ended.replay(place)}")
        if ended.failures:
            raise typer.Exit(FAILED)
