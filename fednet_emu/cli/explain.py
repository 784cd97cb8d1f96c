"""The command explain: what decided when the rounds of a run ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fednet_emu.cli.options import OUTPUT
from fednet_emu.cli.outcome import outcome
from fednet_emu.cli.studies import is_one_study
from fednet_emu.errors import FednetError


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    replay: Annotated[bool, typer.Option("--replay/--no-replay", help="Also say what remedies could give.")] = True,
) -> None:
    """Say what decided when each round ended, whom it waited for, and what remedies could give."""
    with outcome():
        if is_one_study([run]):
            raise FednetError(
                f"{run}: is the folder of a study, got no single run; give one of the folders in its cells/"
            )
        from fednet_emu.results.run import Run

        for line in Run.opened(run).explain(replay=replay).lines():
            OUTPUT.out(line)
