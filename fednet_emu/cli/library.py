"""The commands kinds, channels, profiles and schema: what there is, and how it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fednet_emu.cli.complete import channel_names, profile_names, slot_names
from fednet_emu.cli.options import OUTPUT
from fednet_emu.cli.outcome import outcome


def kinds(
    slot: Annotated[
        str | None,
        typer.Argument(
            metavar="[SLOT]", help="A slot, or a key that holds one; all by default.", autocompletion=slot_names
        ),
    ] = None,
) -> None:
    """List the kinds of every slot of a scenario, also those of plug-ins, each with what it is."""
    with outcome():
        from fednet_emu.scenario.slots import slot_of, slots

        for place in [slot_of(slot)] if slot is not None else slots().values():
            OUTPUT.out(f"{place.slot.name} ({', '.join(place.keys)})")
            told = place.described()
            width = max(map(len, told))
            for kind, sentence in told.items():
                OUTPUT.out(f"  {kind:<{width}}  {sentence}".rstrip())


def channels(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CHANNEL]...", help="Channel files; all by default.", autocompletion=channel_names),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Also draw rate against distance, into this folder.")
    ] = None,
) -> None:
    """List radio environments with the median uplink rate of a lone device at 50, 200 and 500 m."""
    with outcome():
        from fednet_emu.draw.figures.rates import rate_figure
        from fednet_emu.draw.figures.run_figures import save
        from fednet_emu.results.library import channel_rows, rate_curves

        OUTPUT.out("\n".join(channel_rows(names)))
        if out is not None:
            for path in save({"rate-distance": rate_figure(rate_curves(names))}, out):
                OUTPUT.out(str(path))


def profiles(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROFILE]...", help="Profile files; all by default.", autocompletion=profile_names),
    ] = None,
) -> None:
    """List devices, radios and base stations that exist with their powers, and how well each number is known."""
    with outcome():
        from fednet_emu.results.library import profile_rows

        OUTPUT.out("\n".join(profile_rows(names)))


def schema(study: Annotated[bool, typer.Option("--study", help="That of study files.")] = False) -> None:
    """Print the JSON schema of scenario files, for editors that complete and check them."""
    with outcome():
        import fednet_emu as fe

        OUTPUT.out(json.dumps(fe.schema(study=study), indent=2))
