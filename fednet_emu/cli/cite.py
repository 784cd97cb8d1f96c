"""The command cite: what to cite for a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fednet_emu.cli.options import OUTPUT
from fednet_emu.cli.outcome import outcome


def cite(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs or studies, or scenarios.")],
) -> None:
    """Print BibTeX entries of the methods, models, data and standards that runs use, and of the emulator."""
    with outcome():
        from fednet_emu.analysis.study import is_study
        from fednet_emu.results.citing import bibtex
        from fednet_emu.results.data_split import scenario_in

        sources = [path for run in runs for path in (sorted((run / "cells").iterdir()) if is_study(run) else [run])]
        OUTPUT.out(bibtex(scenario_in(str(path)) for path in sources))
