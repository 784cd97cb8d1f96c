"""Make pages of HTML that show results; what a page shows is decided here, by what the folders hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fednet_emu.errors import FednetError
from fednet_emu.records.files import told
from fednet_emu.records.store import SCENARIO
from fednet_emu.report.page.run import write_run_page
from fednet_emu.report.views.run import RunView, open_run
from fednet_emu.report.views.study import is_study
from fednet_emu.scenario.load import load_scenario
from fednet_emu.scenario.scene import Scene, scene

if TYPE_CHECKING:
    from fednet_emu.scenario.model import Scenario

PAGE = "report.html"


def report(paths: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write the page of a run and return its file.

    Args:
        paths: the folder of a run.
        out: the file; None for `report.html` in that folder.

    Raises:
        FednetError: the folders are not of a kind that there is a page for.
        DataError: a folder holds no run, a table is missing or unreadable, or the file cannot be written.
    """
    folders = [Path(path) for path in paths]
    if len(folders) == 1 and not is_study(folders[0]):
        (folder,) = folders
        path = None if out is None else Path(out)
        return report_run(open_run(folder), lambda: load_scenario(str(folder / SCENARIO)), path)
    raise FednetError(f"report: a page shows one run, got {', '.join(map(str, folders))}; give the folder of one run")


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
    with told(path.parent, "made"):
        path.parent.mkdir(parents=True, exist_ok=True)
    seen, missing = _scene(run, scenario)
    return write_run_page(run, path, _text(run, scenario), seen, missing)


def _scene(run: RunView, scenario: Callable[[], Scenario]) -> tuple[Scene | None, str]:
    """Where devices were, or why that cannot be known: recorded walks may not be here, or a plug-in."""
    try:
        return scene(scenario(), float(run.summary["simulated_s"])), ""
    except FednetError as error:
        return None, str(error)


def _text(run: RunView, scenario: Callable[[], Scenario]) -> str:
    if run.folder is not None:
        return (run.folder / SCENARIO).read_text(encoding="utf-8")
    from fednet_emu.scenario.document import dump

    return dump(scenario())
