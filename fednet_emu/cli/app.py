"""The command `fednet`: its subcommands run, flower and check, and the table and help texts of all subcommands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import click
import typer
from click import Context
from typer.core import TyperCommand
from typing_extensions import override

from fednet_emu import __version__
from fednet_emu.cli import library, results, studies
from fednet_emu.cli.live import live
from fednet_emu.cli.options import (
    OUTPUT,
    SCENARIO,
    DataDir,
    Force,
    Overrides,
    Page,
    Plots,
    Quiet,
    Reuse,
    Seed,
    TimingOnly,
    Track,
    names_in,
    print_rows,
    with_reuse,
    with_seed,
)
from fednet_emu.cli.outcome import ERRORS, outcome

if TYPE_CHECKING:
    from fednet_emu.emulation.given import ScenarioLike
    from fednet_emu.emulation.outlook import Outlook

MORE: dict[str, tuple[str, str]] = {
    "run": ("fednet run quickstart --seed 1 --set algorithm.lr=0.05", "reference/command-line"),
    "flower": ("fednet flower examples/flower_quickstart", "guides/flower"),
    "live": ("fednet live quickstart --server 'python server.py' -- python client.py {server} {device}", "guides/live"),
    "sweep": ("fednet sweep quickstart_access --workers 2", "guides/studies"),
    "search": ("fednet search quickstart_search", "guides/search"),
    "compare": ("fednet compare results/quickstart_access --between access=tdma access=ofdma", "guides/studies"),
    "best": ("fednet best results/quickstart_access --accuracy 0.9 --within energy=12", "guides/best"),
    "explain": ("fednet explain results/quickstart/seed-0", "guides/best"),
    "reproduce": ("fednet reproduce --minutes 5", "guides/studies"),
    "check": ("fednet check quickstart --set devices.count=100", "reference/command-line"),
    "plot": ("fednet plot results/quickstart_access --metric loss --against bits", "guides/reading-results"),
    "trace": ("fednet trace results/quickstart/seed-0 --until 10", "guides/traces"),
    "report": ("fednet report results/quickstart/seed-0", "guides/report"),
    "channels": ("fednet channels urban-micro rural --out figures", "concepts/radio"),
    "profiles": ("fednet profiles pi-4b cortex-m4", "guides/devices"),
    "schema": ("fednet schema > scenario.schema.json", "start/first-run"),
    "kinds": ("fednet kinds network.uplink.access", "guides/plug-ins"),
    "new": ("fednet new mine", "start/first-run"),
    "upgrade": ("fednet upgrade mine.yaml", "project/versioning"),
    "cache": ("fednet cache --most 5GB", "guides/reuse"),
    "cite": ("fednet cite results/quickstart/seed-0 > methods.bib", "reference/command-line"),
}
"""An example and the path of a documentation page for each command, by the name of the command."""

app = typer.Typer(
    help="Discrete-event network emulator for wireless federated learning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.suggest_commands = not hasattr(click.exceptions, "NoSuchCommand")  # click 8.4 suggests commands itself

RunOut = Annotated[Path | None, typer.Option("--out", help="The run folder. [default: results/NAME/seed-N]")]
Profile = Annotated[bool, typer.Option("--profile", help="Also print the host time by part.")]
Engine = Annotated[
    str | None,
    typer.Option("--engine", help="How training is run on this host: by-rule, serial, batched or ray."),
]


@app.command()
def run(
    scenario: Annotated[str, SCENARIO],
    out: RunOut = None,
    seed: Seed = None,
    overrides: Overrides = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="AXIS=LEVEL", help="Of a study: the level of each axis, for one of its runs."),
    ] = None,
    data_dir: DataDir = None,
    timing_only: TimingOnly = False,
    engine: Engine = None,
    reuse: Reuse = True,
    quiet: Quiet = False,
    profile: Profile = False,
    force: Force = False,
    plots: Plots = True,
    track: Track = None,
) -> None:
    """Run a scenario, or one run of a study; write tables, figures and a summary to a run folder."""
    options = RunOptions(out, data_dir, timing_only, quiet, profile, force, plots, track)
    changes = with_reuse(overrides, reuse) + ([] if engine is None else [f"training.engine={engine}"])
    if not where:
        _run(scenario, None, with_seed(changes, seed), options)
        return
    with outcome():
        from fednet_emu.analysis.study import conditions
        from fednet_emu.study.runs import run_of

        levels = conditions(where, "--where")
        chosen = run_of(scenario, levels, changes, seed=seed, data_dir=data_dir, timing_only=timing_only)
    _run(
        chosen.scenario, None, [], options._replace(out=out or Path("results") / f"{chosen.study.name}__{chosen.name}")
    )


@app.command()
def flower(
    folder: Annotated[str, typer.Argument(metavar="APP", help="The folder of a Flower app.")],
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO]",
            help="A scenario, of which network and devices are used. [default: a street]",
        ),
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
    """Run a Flower app on an emulated network; the default network has ten devices in a street."""
    with outcome():
        from fednet_emu.emulation.given import app_in

        meant, name, changes = app_in(folder, scenario)
    options = RunOptions(out, None, False, quiet, profile, force, plots, track)
    _run(meant, name, [*changes, *with_seed(overrides, seed)], options)


class RunOptions(NamedTuple):
    """Options that the commands `run` and `flower` share."""

    out: Path | None
    data_dir: Path | None
    timing_only: bool
    quiet: bool
    profile: bool
    force: bool
    plots: bool
    track: list[str] | None


def _run(scenario: ScenarioLike, name: str | None, changes: list[str], options: RunOptions) -> None:
    """Run a scenario, write the run folder and the figures, and print the progress and the totals of the run.

    `changes` are overrides `KEY=VALUE` of settings.
    """
    out, data_dir, timing_only, quiet, profile, force, plots, track = options
    folder, saves = out, True

    def interrupted() -> str:
        from fednet_emu.records.folder import RunFolder

        latest = RunFolder.latest(folder) if folder is not None else None
        if latest is None or RunFolder.status(latest) != "interrupted":
            return "interrupted before it began"
        again = "continues from there" if saves else "starts again, because no training results were saved"
        return f"interrupted; the records so far are in {latest}, the same command {again}"

    with outcome(interrupted):
        from fednet_emu.analysis.summary import profile_rows, summary_rows
        from fednet_emu.emulation.given import scenario_of
        from fednet_emu.emulation.load import warn
        from fednet_emu.emulation.record import APPROXIMATE
        from fednet_emu.errors import Diverged
        from fednet_emu.files.data_folder import folder_to_write
        from fednet_emu.results.run import figures
        from fednet_emu.results.running import ran
        from fednet_emu.tracking.tracker import trackers_of

        known, outlook = scenario_of(scenario, changes, data_dir=data_dir)
        saves = not timing_only and outlook.scenario.training.checkpoint_s is not None
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
            Page().write(figures([folder]), folder / "figures")
        rows = [] if quiet else [*summary_rows(ended.summary), ("run folder", str(folder))]
        rows += profile_rows(ended.summary) if profile else []
        print_rows(rows)
        if not ended.summary["verified"]:
            raise RuntimeError(ended.verdict)
        if ended.summary["status"] == "diverged":
            raise Diverged(f"diverged: {ended.summary['diverged']}")


@app.command()
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A scenario or study: a file, or a name of the library.",
            autocompletion=names_in("scenarios"),
        ),
    ],
    seed: Seed = None,
    overrides: Overrides = None,
    data_dir: DataDir = None,
) -> None:
    """Validate a scenario, or the runs of a study or search; print the file with all defaults."""
    with outcome():
        from fednet_emu.emulation.given import scenario_of
        from fednet_emu.emulation.load import warn
        from fednet_emu.emulation.play import tried
        from fednet_emu.scenario.yaml_text import dump
        from fednet_emu.study.file import StudyFile, opened
        from fednet_emu.study.runs import runs_of, try_levels

        changes, found = with_seed(overrides, seed), opened(name)
        if not isinstance(found, StudyFile):
            _, outlook = scenario_of(found, changes, data_dir=data_dir)
            warn(outlook)
            not_tried = tried(outlook)
            OUTPUT.out(dump(outlook.scenario), end="")
            _print_outlook(outlook)
            if not_tried:
                ERRORS.print(f"note: the first round was not tried: {not_tried}")
            return
        if found.search is None:
            try_levels(runs_of(found, changes, data_dir=data_dir), data_dir)
        else:
            from fednet_emu.study.search.search import load_search

            load_search(found, changes, data_dir=data_dir)
        OUTPUT.out(f"{dump(found)}# {found.extent}")


def _print_outlook(outlook: Outlook) -> None:
    from fednet_emu.emulation.hardware import notes

    ERRORS.print(str(outlook.cost))
    algorithm, count = outlook.scenario.algorithm, outlook.scenario.devices.count
    if (cohort := getattr(algorithm, "cohort", None)) is not None:
        most, mean = algorithm.participants(count), algorithm.answers(count)
        ERRORS.print(f"cohort: {cohort} ({mean} of {count} devices{', on average' if mean < most else ''})")
    for sentence in filter(None, (outlook.secrecy, outlook.company)):
        ERRORS.print(sentence)
    for note in notes(outlook.scenario):
        ERRORS.print(f"note: {note}")


OTHERS: tuple[Callable[..., None], ...] = (
    live,
    *(studies.sweep, studies.search, results.compare, results.best, results.explain, studies.reproduce),
    *(library.kinds, library.channels, library.profiles, library.schema, library.new, library.upgrade, library.cache),
    *(results.cite, results.plot, results.trace, results.report),
)
for _command in OTHERS:
    app.command()(_command)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False) -> None:
    """Discrete-event network emulator for wireless federated learning."""
    if show:
        OUTPUT.out(f"fednet_emu {__version__}")
        raise typer.Exit


class PlainHelp(TyperCommand):
    """Command in whose help text brackets are not preceded by the backslashes with which Typer escapes them."""

    @override
    def get_help(self, ctx: Context) -> str:
        return super().get_help(ctx).replace("\\[", "[")


def with_examples(app: typer.Typer) -> None:
    """Add an example and a link to the documentation to the help of each command.

    In the list of commands, the first line of each description is shown in full.
    """
    for command in app.registered_commands:
        function = command.callback
        if function is not None:
            command.short_help = (function.__doc__ or "").strip().splitlines()[0]
            example, page = MORE.get(command.name or function.__name__, ("", ""))
            command.epilog = f"\b\nExample: {example}\nMore:    docs/{page}.md" if example else None
            command.cls = PlainHelp


with_examples(app)
