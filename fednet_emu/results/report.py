"""Make pages of HTML that show results; what a page shows is decided here, by what the folders hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fednet_emu.analysis.run import RunView, open_run
from fednet_emu.analysis.searched import search_in
from fednet_emu.analysis.study import is_one_study, is_study, open_study
from fednet_emu.draw.page.overlay_page import write_overlay_page
from fednet_emu.draw.page.run import Played, write_run_page
from fednet_emu.draw.page.study_page import write_study_page
from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.scene import scene
from fednet_emu.errors import FednetError
from fednet_emu.records.folder.store import SCENARIO
from fednet_emu.results.data_split import holdings

if TYPE_CHECKING:
    from fednet_emu.scenario.model import Scenario

T = TypeVar("T")
PAGE, SUMMARY = "report.html", "summary.json"


def report(paths: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write the page of a run, of a study, or of several runs overlaid, and return its file.

    Args:
        paths: the folder of a run, that of a study, or those of several runs.
        out: the file; None for `report.html` in the folder, of several runs in the current folder.

    Raises:
        FednetError: there is a study among several folders, or a folder holds neither a run nor a study.
        DataError: a table is missing or unreadable, or the file cannot be written.
    """
    folders, path = [Path(each) for each in paths], None if out is None else Path(out)
    for folder in folders:
        if folder.is_dir() and not is_study(folder) and not (folder / SUMMARY).is_file():
            raise FednetError(
                f"{folder}: holds neither a run nor a study, got no {SUMMARY}; "
                "give a folder that `fednet run` or `fednet sweep` wrote"
            )
    if is_one_study(folders, "report"):
        return write_study_page(open_study(folders[0]), path or folders[0] / PAGE, search_in(folders[0]))
    runs = [open_run(folder) for folder in folders]
    if len(runs) > 1:
        return write_overlay_page(runs, path or Path(PAGE))
    return report_run(runs[0], lambda: load_scenario(str(folders[0] / SCENARIO)), path)


def report_run(run: RunView, scenario: Callable[[], Scenario], path: Path | None) -> Path:
    """Write the page of a run; see `Run.report`.

    Args:
        run: the run.
        scenario: returns its scenario.
        path: the file; None for `report.html` in the run folder.
    """
    if path is None:
        if run.folder is None:
            raise FednetError("path: is required for a run in memory, got none; say where the page should go")
        path = run.folder / PAGE
    seen, no_scene = _known(lambda: scene(scenario(), float(run.summary["simulated_s"])))
    had, no_holdings = _known(lambda: holdings(scenario()))
    return write_run_page(run, path, _text(run, scenario), Played(seen, had, no_scene, no_holdings))


def _known(look: Callable[[], T]) -> tuple[T | None, str]:
    """What is found, or why that cannot be known: recorded walks or data may not be here, or a plug-in."""
    try:
        return look(), ""
    except FednetError as error:
        return None, str(error)


def _text(run: RunView, scenario: Callable[[], Scenario]) -> str:
    if run.folder is not None:
        return (run.folder / SCENARIO).read_text(encoding="utf-8")
    from fednet_emu.scenario.document import dump

    return dump(scenario())
