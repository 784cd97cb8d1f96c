"""The commands that list the library: channels, profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fednet_emu.cli.options import OUTPUT
from fednet_emu.cli.outcome import outcome


def channels(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[CHANNEL]...", help="Channel files; all by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Also draw rate against distance, into this folder.")
    ] = None,
) -> None:
    """List radio environments with the median uplink rate of a lone device at 50, 200 and 500 m."""
    with outcome():
        from fednet_emu.api.channels import rate_curves, rows
        from fednet_emu.report.figures.rates import rate_figure
        from fednet_emu.report.figures.run_figures import save

        OUTPUT.out("\n".join(rows(names)))
        if out is not None:
            for path in save({"rate-distance": rate_figure(rate_curves(names))}, out):
                OUTPUT.out(str(path))


def profiles(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PROFILE]...", help="Profile files; all by default.")
    ] = None,
) -> None:
    """List devices that exist with their speed and powers, and how well each number is known."""
    with outcome():
        from fednet_emu.api.profiles import rows

        OUTPUT.out("\n".join(rows(names)))
