"""Arguments and options that several commands share, their shell completion, and the console of commands.

Each completion function returns completions of the typed text. It imports the modules that it needs when it is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fednet_emu.errors import FednetError
from fednet_emu.screen.console import PlainConsole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from matplotlib.figure import Figure

    from fednet_emu.scenario.library import Folder

Completion = list[str] | list[tuple[str, str]]
"""Possible completions: a list of strings, or of pairs of a string and its description."""


def names_in(folder: Folder) -> Callable[[str], Completion]:
    """Return the completion function for names of the files in a folder of the library, such as `channels`.

    Scenarios and studies can also be given as files. The function therefore returns file names if no name matches.
    """

    def completed(incomplete: str) -> Completion:
        from fednet_emu.scenario.library import names

        found = [name for name in names(folder) if name.startswith(incomplete)]
        return found or (_files(incomplete) if folder.startswith("scenarios") else [])

    return completed


def slot_names(incomplete: str) -> Completion:
    """Return the matching names of slots (settings with several kinds of component), each with its first key."""
    from fednet_emu.scenario.slots import slots

    return [(name, place.keys[0]) for name, place in slots().items() if name.startswith(incomplete)]


def settings(incomplete: str) -> Completion:
    """Return completions of `KEY=VALUE` in `--set`: keys of the next level or, after the `=`, possible values."""
    from fednet_emu.scenario.slots import choices, settings_below

    key, equals, value = incomplete.partition("=")
    *above, last = key.split(".")
    below = settings_below(above)
    if equals:
        return [f"{key}={choice}" for choice in choices(below.get(last, ())) if choice.startswith(value)]
    names = [".".join([*above, name]) for name in below if name.startswith(last)]
    return [f"{name}." if settings_below(name.split(".")) else f"{name}=" for name in names]


def _files(incomplete: str) -> list[str]:
    from fednet_emu.scenario.library import SUFFIXES

    folder, slash, start = incomplete.rpartition("/")
    places = Path(folder + slash or ".").iterdir() if Path(folder + slash or ".").is_dir() else ()
    return sorted(
        f"{folder}{slash}{place.name}{'/' if place.is_dir() else ''}"
        for place in places
        if place.name.startswith(start) and (place.is_dir() or place.suffix in SUFFIXES)
    )


OUTPUT = PlainConsole()

SCENARIO = typer.Argument(
    metavar="SCENARIO", help="A scenario file, or the name of one in scenarios/.", autocompletion=names_in("scenarios")
)
Force = Annotated[bool, typer.Option("--force", help="Replace a run, when the new one has ended.")]

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a setting, e.g. algorithm.lr=0.05.", autocompletion=settings
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed, instead of the scenario's.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", envvar="FEDNET_DATA", help="Folder with data sets.")]
Devices = Annotated[
    str | None, typer.Option("--devices", metavar="LIST", help="Only these devices, e.g. 0,3,10-19. [default: all]")
]
FromS = Annotated[float | None, typer.Option("--from", min=0, help="Begin of the timeline in simulated seconds.")]
UntilS = Annotated[float | None, typer.Option("--until", min=0, help="End of the timeline in simulated seconds.")]
Formats = Annotated[
    list[str] | None,
    typer.Option("--format", metavar="FORMAT", help="svg, pdf, png or pgf; may be given several times. [default: png]"),
]
Size = Annotated[str | None, typer.Option("--size", help="Width of the figures: one-column or two-column.")]
Title = Annotated[str | None, typer.Option("--title", help="A title above each figure.")]
Csv = Annotated[bool, typer.Option("--csv", help="Also write the numbers behind each figure.")]
Latex = Annotated[bool, typer.Option("--latex", help="Also write them as LaTeX tables.")]
Rename = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="KEY=TEXT",
        help="Of a study: another name for an axis, a level, AXIS=LEVEL or a metric; may be repeated.",
    ),
]
Accuracy = Annotated[
    float | None, typer.Option("--accuracy", min=0, max=1, help="Target accuracy, instead of the study's target.")
]
Loss = Annotated[float | None, typer.Option("--loss", min=0, help="Target loss, instead of the study's target.")]
StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study file, or the name of one in scenarios/studies/.",
        autocompletion=names_in("scenarios/studies"),
    ),
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Runs at a time. [default: one per core]")]
Ray = Annotated[bool, typer.Option("--ray", help="Run on a Ray cluster that is started here.")]
RayAddress = Annotated[
    str | None, typer.Option("--ray-address", metavar="ADDRESS", help="Run on this Ray cluster ('auto': here).")
]
Plots = Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the figures.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, no table.")]
TimingOnly = Annotated[bool, typer.Option("--timing-only", help="Time, bits and energy without training.")]
Reuse = Annotated[
    bool, typer.Option("--reuse/--no-reuse", help="Take from earlier runs what they have learnt by the same steps.")
]
Track = Annotated[
    list[str] | None,
    typer.Option("--track", metavar="NAME", help="Also log to tensorboard, mlflow or wandb; may be repeated."),
]


def with_seed(overrides: list[str] | None, seed: int | None) -> list[str]:
    """Return overrides `KEY=VALUE` of settings; an override of the seed is added if `seed` is not None."""
    return [*(overrides or ()), *(() if seed is None else (f"seed={seed}",))]


def with_reuse(overrides: list[str] | None, reuse: bool) -> list[str]:
    """Return overrides `KEY=VALUE` of settings; `training.reuse=false` is added unless `reuse` is True."""
    return [*(overrides or ()), *(() if reuse else ("training.reuse=false",))]


def print_files(paths: Iterable[Path]) -> None:
    """Print the paths of written files, one per line."""
    for path in paths:
        OUTPUT.out(str(path))


def print_rows(rows: Collection[tuple[str, str]]) -> None:
    """Print a table of titles and values."""
    width = max((len(what) for what, _ in rows), default=0) + 2
    for what, value in rows:
        OUTPUT.out(f"{what:<{width}}{value}".rstrip())


def device_numbers(text: str) -> list[int]:
    """Return the device indices in a list of indices and ranges, such as `0,3,10-19`.

    Raises:
        FednetError: the list is malformed.
    """
    numbers: list[int] = []
    for item in text.split(","):
        first, dash, last = (part.strip() for part in item.partition("-"))
        if not (first.isdecimal() and (last or first).isdecimal() and bool(last) == bool(dash)):
            raise FednetError(f"--devices: expected numbers and ranges, got '{text}'; for example 0,3,10-19")
        if int(last or first) < int(first):
            raise FednetError(f"--devices: a range must ascend, got '{item.strip()}'; give {last}-{first}")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def renamed(texts: list[str] | None) -> dict[str, str]:
    """Parse options `--rename KEY=TEXT`, and return the new names by old name. KEY may have the form `axis=level`.

    Raises:
        FednetError: an option is malformed.
    """
    pairs = [text.rpartition("=") for text in texts or ()]
    for key, _, text in pairs:
        if not key or not text:
            raise FednetError(f"--rename: expected KEY=TEXT, got '{key}{text}'; for example tdma=TDMA")
    return {key: text for key, _, text in pairs}


class Page(NamedTuple):
    """File formats, size and title of figures, as set by the options of the command `plot`."""

    formats: list[str] | None = None
    size: str | None = None
    title: str | None = None
    csv: bool = False
    latex: bool = False

    def write(self, figures: Mapping[str, Figure], folder: Path) -> list[Path]:
        """Write figures, and tables of plotted numbers if `csv` or `latex` is set; return the paths of all files."""
        from fednet_emu.draw.figures.page import fit_to_page
        from fednet_emu.draw.figures.run_figures import save

        for figure in figures.values():
            fit_to_page(figure, self.size, self.title)
        return save(figures, folder, self.formats or ["png"], csv=self.csv, latex=self.latex)
