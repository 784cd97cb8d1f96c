"""The console on which commands print, and the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fednet_emu.api.console import PlainConsole

OUTPUT = PlainConsole()

Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. algorithm.lr=0.05.")
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", envvar="FEDNET_DATA", help="Folder with data sets.")]
TimingOnly = Annotated[bool, typer.Option("--timing-only", help="Time, bits and energy without training.")]
