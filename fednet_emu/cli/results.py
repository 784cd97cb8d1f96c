"""The commands that read results: plot, trace, report, compare, best, explain and cite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fednet_emu.cli.options import (
    OUTPUT,
    Accuracy,
    Csv,
    DataDir,
    Devices,
    Formats,
    FromS,
    Latex,
    Loss,
    Overrides,
    Page,
    Rename,
    Seed,
    Size,
    Title,
    UntilS,
    device_numbers,
    print_files,
    renamed,
    with_seed,
)
from fednet_emu.cli.outcome import ERRORS, outcome
from fednet_emu.errors import FednetError

if TYPE_CHECKING:
    from fednet_emu.analysis.study import StudyRecords
    from fednet_emu.results.run import Run

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="Run folders, several are overlaid; or the folder of a study; with --data also a scenario.",
    ),
]
Label = Annotated[list[str] | None, typer.Option("--label", help="Name of a run in the legends, one per run.")]
Sort = Annotated[
    str | None, typer.Option("--sort", help="Rows of the timeline: device, waiting, computing, busy or lost.")
]
Metric = Annotated[str | None, typer.Option("--metric", help="Of a study: accuracy, loss, worst_accuracy, ...")]
Against = Annotated[
    str | None, typer.Option("--against", help="Of a study: time, bits, energy or rounds. [default: all]")
]
Panels = Annotated[
    list[str] | None,
    typer.Option("--panels", metavar="AXIS", help="Of a study: an axis for small multiples; may be given twice."),
]
OneRun = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def plot(
    runs: Runs,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where the figures go. [default: RUN/figures or figures]")
    ] = None,
    data: Annotated[
        bool,
        typer.Option("--data", help="Draw the data split instead: labels and sizes of all devices, without a run."),
    ] = False,
    seed: Seed = None,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    label: Label = None,
    from_s: FromS = None,
    until_s: UntilS = None,
    devices: Devices = None,
    sort: Sort = None,
    metric: Metric = None,
    against: Against = None,
    panels: Panels = None,
    rename: Rename = None,
    title: Title = None,
    size: Size = None,
    picture: Formats = None,
    csv: Csv = False,
    latex: Latex = False,
    animate: Annotated[
        bool, typer.Option("--animate", help="Also animate what an algorithm recorded over time, e.g. its graph.")
    ] = False,
) -> None:
    """Plot runs (progress, timeline of every device, latencies) or a study (means over seeds with 95 % intervals).

    With --data, plot the data split of a scenario or run: the labels and the number of samples of each device.
    """
    page, changes = Page(picture, size, title, csv, latex), with_seed(overrides, seed)
    of_runs = label or animate or any(each is not None for each in (from_s, until_s, devices, sort))
    of_studies = metric or against or panels or rename
    with outcome():
        from fednet_emu.analysis.run import RunRecords
        from fednet_emu.analysis.study import StudyRecords, is_one_study

        folder = out or (runs[0] / "figures" if len(runs) == 1 and runs[0].is_dir() else Path("figures"))
        if data:
            if of_runs or of_studies:
                options = "--out, --seed, --set, --data-dir, --title, --size, --format, --csv and --latex"
                raise FednetError(f"--data: draws no run, got options that only runs have; leave all out but {options}")
            if len(runs) != 1:
                raise FednetError(f"--data: shows the data of one run or scenario, got {len(runs)}; give one")
            from fednet_emu.results.library import data_figures

            print_files(page.write(data_figures(str(runs[0]), changes, data_dir), folder))
        elif changes:
            raise FednetError(
                "--seed and --set are for --data, got runs that have ended; leave them out, or add --data"
            )
        elif is_one_study(runs):
            if of_runs:
                options = "--label, --from, --until, --devices, --sort and --animate"
                raise FednetError(f"{options} are for runs, got the folder of a study; leave them out")
            from fednet_emu.draw.figures.study_figures import study_figures

            study = StudyRecords.opened(runs[0])
            _warn_unfinished(study, "drawn")
            drawn = study_figures(study, metric=metric, against=against, panels=panels, rename=renamed(rename))
            print_files(page.write(drawn, folder))
        elif of_studies:
            options = "--metric, --against, --panels and --rename"
            raise FednetError(f"{options} are for studies, got run folders; leave them out, --label names runs")
        else:
            from fednet_emu.draw.figures.series import save_animations
            from fednet_emu.results.run import figures

            chosen = None if devices is None else device_numbers(devices)
            drawn = figures(runs, label or [], from_s=from_s, until_s=until_s, devices=chosen, sort=sort)
            print_files(page.write(drawn, folder))
            print_files(save_animations([RunRecords.opened(run) for run in runs], folder) if animate else ())


def trace(
    run: OneRun,
    out: Annotated[Path | None, typer.Option("--out", help="The trace. [default: RUN/run.pftrace]")] = None,
    from_s: FromS = None,
    until_s: UntilS = None,
    devices: Devices = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Write a run as a Perfetto trace; open the trace in ui.perfetto.dev to zoom, search and follow a model."""
    with outcome():
        chosen = None if devices is None else device_numbers(devices)
        path, window = out or run / "run.pftrace", {"from_s": from_s, "until_s": until_s}
        OUTPUT.out(str(_one_run(run).trace(path, **window, devices=chosen, progress=not quiet)))


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="A run folder; several are overlaid; or the folder of a study."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The page. [default: report.html in the folder; of several, here]")
    ] = None,
) -> None:
    """Write an HTML page about a run or a study, with tables and zoomable figures; the page works offline."""
    with outcome():
        from fednet_emu.results.study import report as written

        OUTPUT.out(str(written(runs, out)))


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="A [B]", help="Two runs or two studies; or one study.")],
    between: Annotated[
        tuple[str, str] | None,
        typer.Option("--between", metavar="A B", help="Two settings of one study, e.g. access=tdma access=ofdma."),
    ] = None,
    accuracy: Accuracy = None,
    loss: Loss = None,
    within: Annotated[
        list[str] | None,
        typer.Option(
            "--within",
            metavar="COST=AMOUNT",
            help="Scores after so much time (s), bits, energy (J), device-energy (J each), rounds; may be repeated.",
        ),
    ] = None,
) -> None:
    """Compare two settings, chosen before the runs, by their differences for equal seeds, with 95 % intervals."""
    with outcome():
        import fednet_emu as fe

        if len(folders) != (1 if between else 2):
            raise FednetError(f"compare: two folders, or one with --between, are needed, got {len(folders)}")
        for side in [fe.Study.opened(folders[0])] if between else map(fe.open, folders):
            if isinstance(side, fe.Study):
                _warn_unfinished(side, "compared")
        if between:
            found = fe.Study.opened(folders[0]).compare(*between, accuracy=accuracy, loss=loss, within=within or ())
        else:
            found = fe.compare(folders[0], folders[1], accuracy=accuracy, loss=loss, within=within or ())
        OUTPUT.out(str(found))


def best(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="The folder of a study.")],
    accuracy: Accuracy = None,
    loss: Loss = None,
    within: Annotated[
        list[str] | None,
        typer.Option(
            "--within",
            metavar="COST=AMOUNT",
            help="What a run may spend: time (s), bits, energy (J, of all), device-energy (J, per device), rounds.",
        ),
    ] = None,
    minimise: Annotated[
        str,
        typer.Option(
            "--minimise",
            help="What to rank by: time, bits, energy, device-energy, rounds, neighbours or carbon.",
        ),
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
    """Rank the settings of a study by the cost to reach the target, and list those that may be the best."""
    with outcome():
        from fednet_emu.analysis.study import conditions
        from fednet_emu.results.study import Study

        opened, page = Study.opened(study), Page(picture, size, title, csv, latex)
        _warn_unfinished(opened, "ranked")
        levels = conditions(where or (), "--where", opened.axes)
        found = opened.best(accuracy=accuracy, loss=loss, within=within or (), minimise=minimise, where=levels)
        OUTPUT.out(str(found))
        if out is not None or rename or page != Page():
            print_files(page.write({"best": found.plot(rename=renamed(rename))}, out or study / "figures"))


def explain(
    run: OneRun,
    replay: Annotated[bool, typer.Option("--replay/--no-replay", help="Also replay remedies.")] = True,
) -> None:
    """Print the critical path of each round, the devices on this path, and the estimated gain of remedies."""
    with outcome():
        OUTPUT.out(str(_one_run(run).explain(replay=replay)))


def cite(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs or studies, or scenarios.")],
) -> None:
    """Print BibTeX entries for the methods, models, data and standards that runs use, and for the emulator."""
    with outcome():
        from fednet_emu.analysis.study import is_study, run_folders
        from fednet_emu.results.library import bibtex, scenario_in

        sources = [path for run in runs for path in (run_folders(run) if is_study(run) else [run])]
        OUTPUT.out(bibtex(scenario_in(str(path)) for path in sources))


def _one_run(folder: Path) -> Run:
    from fednet_emu.analysis.study import is_one_study
    from fednet_emu.results.run import Run

    if is_one_study([folder]):
        raise FednetError(f"{folder}: is the folder of a study, got no single run; give the folder of one of its runs")
    return Run.opened(folder)


def _warn_unfinished(study: StudyRecords, use: str) -> None:
    if study.unfinished:
        are = "run is" if len(study.unfinished) == 1 else "runs are"
        ERRORS.print(f"{len(study.unfinished)} {are} not finished and not {use}, {study.unfinished[0]} first")
    if study.diverged:
        ERRORS.print(f"diverged, so that no target is reached: {', '.join(study.diverged)}")
