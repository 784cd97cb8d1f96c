"""Make the page of HTML that shows what some folders hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.study import is_one_study, is_study
from fednet_emu.draw.page.overlay_page import write_overlay_page
from fednet_emu.errors import FednetError
from fednet_emu.results.run import PAGE, Run
from fednet_emu.results.study import Study

SUMMARY = "summary.json"


def report(paths: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write the page of a run, of a study, or of several runs overlaid, and return its file.

    Args:
        paths: the folder of a run, that of a study, or those of several runs.
        out: the file; None for `report.html` in the folder, of several runs in the current folder.

    Raises:
        FednetError: there is a study among several folders, or a folder holds neither a run nor a study.
        DataError: a table is missing or unreadable, or the file cannot be written.
    """
    folders = [Path(each) for each in paths]
    for folder in folders:
        if folder.is_dir() and not is_study(folder) and not (folder / SUMMARY).is_file():
            raise FednetError(
                f"{folder}: holds neither a run nor a study, got no {SUMMARY}; "
                "give a folder that `fednet run` or `fednet sweep` wrote"
            )
    if is_one_study(folders, "report"):
        return Study.opened(folders[0]).report(out)
    if len(folders) == 1:
        return Run.opened(folders[0]).report(out)
    return write_overlay_page([RunRecords.opened(folder) for folder in folders], Path(out or PAGE))
