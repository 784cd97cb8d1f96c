"""The console on which commands print, and the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fednet_emu.api.console import PlainConsole
from fednet_emu.errors import FednetError

OUTPUT = PlainConsole()

Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. algorithm.lr=0.05.")
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", envvar="FEDNET_DATA", help="Folder with data sets.")]
Devices = Annotated[
    str | None, typer.Option("--devices", metavar="LIST", help="Only these devices, e.g. 0,3,10-19. [default: all]")
]
TimingOnly = Annotated[bool, typer.Option("--timing-only", help="Time, bits and energy without training.")]
Track = Annotated[
    list[str] | None,
    typer.Option("--track", metavar="NAME", help="Also tell tensorboard, mlflow or wandb; may be repeated."),
]


def device_numbers(text: str) -> list[int]:
    """Numbers of devices from a list of numbers and ranges, such as `0,3,10-19`.

    Raises:
        FednetError: it is no such list.
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
