"""The commands of `fednet`; those with a file of their own are put together with the others here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fednet_emu import __version__
from fednet_emu.cli import data as pictures
from fednet_emu.cli import library, studies
from fednet_emu.cli.cite import cite
from fednet_emu.cli.complete import scenario_names
from fednet_emu.cli.explain import explain
from fednet_emu.cli.help import with_examples
from fednet_emu.cli.new import new
from fednet_emu.cli.options import (
    OUTPUT,
    Csv,
    DataDir,
    Devices,
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
    device_numbers,
)
from fednet_emu.cli.outcome import ERRORS, outcome
from fednet_emu.cli.search import search
from fednet_emu.errors import FednetError

if TYPE_CHECKING:
    from fednet_emu.emulation.given import ScenarioLike
    from fednet_emu.emulation.outlook import Outlook
    from fednet_emu.results.run import Timeline

app = typer.Typer(
    help="Discrete-event network emulator for wireless federated learning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


ScenarioName = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO", help="A scenario file, or the name of one in scenarios/.", autocompletion=scenario_names
    ),
]
RunOut = Annotated[Path | None, typer.Option("--out", help="The run folder. [default: results/NAME/seed-N]")]
Profile = Annotated[bool, typer.Option("--profile", help="Also say where the host's time went.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a run, when the new one has ended.")]
Plots = Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the figures of the run.")]
Engine = Annotated[
    str | None,
    typer.Option("--engine", help="How training is run on this host: by-rule, serial, batched or ray."),
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed, instead of the scenario's.")]


@app.command()
def run(
    scenario: ScenarioName,
    out: RunOut = None,
    seed: Seed = None,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    timing_only: TimingOnly = False,
    engine: Engine = None,
    quiet: Quiet = False,
    profile: Profile = False,
    force: Force = False,
    plots: Plots = True,
    track: Track = None,
) -> None:
    """Run a scenario; leave tables, figures and a summary in a run folder."""
    options = RunOptions(out, data_dir, timing_only, quiet, profile, force, plots, track)
    _run(scenario, None, _all_overrides(overrides, seed, engine), options)


@app.command()
def flower(
    folder: Annotated[str, typer.Argument(metavar="APP", help="The folder of a Flower app.")],
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="[SCENARIO]", help="A scenario, whose network and devices are used. [default: a cell]"),
    ] = None,
    out: RunOut = None,
    seed: Seed = None,
    overrides: Overrides = None,
    quiet: Quiet = False,
    profile: Profile = False,
    force: Force = False,
    plots: Plots = True,
    track: Track = None,
) -> None:
    """Run a Flower app on the emulated network; by default ten devices in an urban cell."""
    with outcome():
        from fednet_emu.emulation.given import app_in

        meant, name, changes = app_in(folder, scenario)
    options = RunOptions(out, None, False, quiet, profile, force, plots, track)
    _run(meant, name, [*changes, *_all_overrides(overrides, seed, None)], options)


class RunOptions(NamedTuple):
    """The options of a command that runs a scenario."""

    out: Path | None
    data_dir: Path | None
    timing_only: bool
    quiet: bool
    profile: bool
    force: bool
    plots: bool
    track: list[str] | None


def _run(scenario: ScenarioLike, name: str | None, changes: list[str], options: RunOptions) -> None:
    """Run a scenario into a run folder, with progress, figures and the table of its totals."""
    out, data_dir, timing_only, quiet, profile, force, plots, track = options
    folder = out

    def interrupted() -> str:
        from fednet_emu.records.folder.store import RunFolder

        latest = RunFolder.latest(folder) if folder is not None else None
        if latest is None or RunFolder.status(latest) != "interrupted":
            return "interrupted before it began"
        return f"interrupted; what was measured so far is in {latest}, the same command goes on from there"

    with outcome(interrupted):
        from fednet_emu.analysis.summary import profile_rows, summary_rows
        from fednet_emu.emulation.given import scenario_of
        from fednet_emu.emulation.record import APPROXIMATE
        from fednet_emu.emulation.warnings import warn
        from fednet_emu.errors import Diverged
        from fednet_emu.files.data_folder import folder_to_write
        from fednet_emu.results.running import ran
        from fednet_emu.tracking.table import trackers_of

        known, outlook = scenario_of(scenario, changes, data_dir=data_dir)
        warn(outlook)
        if timing_only and outlook.scenario.events_depend_on_learning:
            ERRORS.print(APPROXIMATE)
        if not quiet:
            _print_outlook(outlook)
        default = Path("results") / (name or known) / f"seed-{outlook.scenario.seed}"
        folder = default if out is None else folder_to_write(out, "--out")
        trackers = trackers_of(track or ())
        ended = ran(outlook, known, folder, timing_only=timing_only, force=force, track=trackers, progress=not quiet)
        if plots:
            _draw([folder], [], folder / "figures", {}, Page())
        rows = [] if quiet else [*summary_rows(ended.summary), ("run folder", str(folder))]
        _print_rows([*rows, *(profile_rows(ended.summary) if profile else ())])
        if not ended.summary["verified"]:
            raise RuntimeError(ended.verdict)
        if ended.summary["status"] == "diverged":
            raise Diverged(f"diverged: {ended.summary['diverged']}")


app.command()(studies.sweep)
app.command()(search)
app.command()(studies.compare)
app.command()(studies.best)
app.command()(explain)
app.command()(studies.reproduce)
app.command()(library.kinds)
app.command()(library.channels)
app.command()(library.profiles)
app.command()(library.schema)
app.command()(new)
app.command()(cite)


@app.command()
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A scenario or study: a file, or a name of the library.",
            autocompletion=scenario_names,
        ),
    ],
    seed: Seed = None,
    overrides: Overrides = None,
) -> None:
    """Validate a scenario, every run of a study, or the ends of a search, and print it with every default."""
    with outcome():
        from fednet_emu.emulation.given import scenario_of
        from fednet_emu.emulation.warnings import warn
        from fednet_emu.scenario.document import dump
        from fednet_emu.study.runs import Sources, load_study, opened

        changes, sources = _all_overrides(overrides, seed, None), opened(name)
        if not isinstance(sources, Sources):
            _, outlook = scenario_of(sources, changes)
            warn(outlook)
            OUTPUT.out(dump(outlook.scenario), end="")
            _print_outlook(outlook)
            return
        if sources.study.search is None:
            extent = load_study(sources, changes).extent
        else:
            from fednet_emu.study.search.search import load_search

            extent = load_search(sources, changes).extent
        OUTPUT.out(f"{dump(sources.study)}# {extent}")


@app.command()
def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run folders, several are overlaid; or the folder of a study; with --data also a scenario.",
        ),
    ],
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
    label: Annotated[
        list[str] | None, typer.Option("--label", help="Name of a run in the legends, one per run.")
    ] = None,
    from_s: Annotated[
        float | None, typer.Option("--from", min=0, help="Begin of the timeline in simulated seconds.")
    ] = None,
    until_s: Annotated[
        float | None, typer.Option("--until", min=0, help="End of the timeline in simulated seconds.")
    ] = None,
    devices: Devices = None,
    sort: Annotated[
        str | None, typer.Option("--sort", help="Rows of the timeline: device, waiting, computing, busy or lost.")
    ] = None,
    metric: studies.Metric = None,
    against: studies.Against = None,
    panels: studies.Panels = None,
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
    """Draw runs: progress, the timeline of every device, latencies. Draw a study: means and bands over seeds.

    With --data, draw the data split of a scenario or run: the labels and the number of samples of each device.
    """
    page = Page(picture, size, title, csv, latex)
    changes, of_runs = _all_overrides(overrides, seed, None), (from_s, until_s, devices, sort)
    with outcome():
        if data:
            if label or animate or metric or against or panels or rename or any(each is not None for each in of_runs):
                options = "--out, --seed, --set, --data-dir, --title, --size, --format, --csv and --latex"
                raise FednetError(f"--data: draws no run, got options that only runs have; leave all out but {options}")
            pictures.plot(runs, out, changes, data_dir, page)
            return
        if changes:
            raise FednetError(
                "--seed and --set are for --data, got runs that have ended; leave them out, or add --data"
            )
        if studies.is_one_study(runs):
            if label or animate or any(each is not None for each in of_runs):
                options = "--label, --from, --until, --devices, --sort and --animate"
                raise FednetError(f"{options} are for runs, got the folder of a study; leave them out")
            studies.plot(runs[0], out or runs[0] / "figures", metric, against, panels, rename, page)
            return
        if metric or against or panels or rename:
            options = "--metric, --against, --panels and --rename"
            raise FednetError(f"{options} are for studies, got run folders; leave them out, --label names runs")
        if label and len(label) != len(runs):
            raise FednetError(f"--label: one per run is needed, got {len(label)} for {len(runs)} runs")
        folder = out or (runs[0] / "figures" if len(runs) == 1 else Path("figures"))
        timeline: Timeline = {"from_s": from_s, "until_s": until_s, "sort": sort}
        timeline["devices"] = None if devices is None else device_numbers(devices)
        for path in [*_draw(runs, label or [], folder, timeline, page), *(_animate(runs, folder) if animate else ())]:
            OUTPUT.out(str(path))


@app.command()
def trace(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="The trace. [default: RUN/run.pftrace]")] = None,
    from_s: Annotated[float | None, typer.Option("--from", min=0, help="Begin in simulated seconds.")] = None,
    until_s: Annotated[float | None, typer.Option("--until", min=0, help="End in simulated seconds.")] = None,
    devices: Devices = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Write a run as a trace for Perfetto: open it in ui.perfetto.dev, zoom in, search, follow a model."""
    with outcome():
        if studies.is_one_study([run]):
            raise FednetError(f"{run}: is the folder of a study, got no single run; give the folder of one of its runs")
        from fednet_emu.results.run import Run

        window = {"from_s": from_s, "until_s": until_s}
        chosen = None if devices is None else device_numbers(devices)
        path = Run.opened(run).trace(out or run / "run.pftrace", **window, devices=chosen, progress=not quiet)
        OUTPUT.out(str(path))


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="A run folder; several are overlaid; or the folder of a study."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The page. [default: report.html in the folder; of several, here]")
    ] = None,
) -> None:
    """Write a page that shows a run or a study in any browser, without a network: figures to zoom into, tables."""
    with outcome():
        from fednet_emu.results.report import report as written

        OUTPUT.out(str(written(runs, out)))


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False) -> None:
    """Discrete-event network emulator for wireless federated learning."""
    if show:
        OUTPUT.out(f"fednet_emu {__version__}")
        raise typer.Exit


with_examples(app)


def _all_overrides(overrides: list[str] | None, seed: int | None, engine: str | None) -> list[str]:
    changes = list(overrides or [])
    if seed is not None:
        changes.append(f"seed={seed}")
    if engine is not None:
        changes.append(f"training.engine={engine}")
    return changes


def _print_outlook(outlook: Outlook) -> None:
    """Print the cost of a run, what is not known of its devices, and how well the rest is known."""
    from fednet_emu.emulation.hardware import notes

    ERRORS.print(str(outlook.cost))
    for note in notes(outlook.scenario):
        ERRORS.print(f"note: {note}")


def _draw(runs: list[Path], labels: list[str], folder: Path, timeline: Timeline, page: Page) -> list[Path]:
    from fednet_emu.results.run import figures

    return page.write(figures(runs, labels, **timeline), folder)


def _animate(runs: list[Path], folder: Path) -> list[Path]:
    from fednet_emu.analysis.run import RunRecords
    from fednet_emu.draw.figures.papers.series import save_animations

    return save_animations([RunRecords.opened(run) for run in runs], folder)


def _print_rows(rows: list[tuple[str, str]]) -> None:
    width = max((len(what) for what, _ in rows), default=0) + 2
    for what, value in rows:
        OUTPUT.out(f"{what:<{width}}{value}")
