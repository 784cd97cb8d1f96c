"""The commands kinds, channels, profiles, schema, new, upgrade and cache."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fednet_emu.cli.options import OUTPUT, names_in, print_files, print_rows, slot_names
from fednet_emu.cli.outcome import outcome
from fednet_emu.errors import FednetError


def kinds(
    slot: Annotated[
        str | None,
        typer.Argument(
            metavar="[SLOT]",
            help="A slot, or a key that holds one, all by default; or, for its settings, a kind of it such as "
            "path_loss.log-distance, or a key such as stop.",
            autocompletion=slot_names,
        ),
    ] = None,
) -> None:
    """List the kinds that each slot of a scenario accepts, including plug-ins, or the settings of one kind."""
    with outcome():
        from fednet_emu.scenario.slots import described, slots

        for name in slots() if slot is None else [slot]:
            heading, kinds_of = described(name)
            OUTPUT.out(heading)
            print_rows([(f"  {kind}", sentence) for kind, sentence in kinds_of.items()])


def channels(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CHANNEL]...", help="Channel files; all by default.", autocompletion=names_in("channels")
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Also draw rate against distance, into this folder.")
    ] = None,
) -> None:
    """List radio environments with the median uplink rate of a single device at distances of 50, 200 and 500 m."""
    with outcome():
        from fednet_emu.draw.figures.rates import rate_figure
        from fednet_emu.draw.figures.run_figures import save
        from fednet_emu.results.library import DRAWN_M, channel_rows, rate_curves

        OUTPUT.out("\n".join(channel_rows(names)))
        if out is not None:
            print_files(save({"rate-distance": rate_figure(DRAWN_M, rate_curves(names))}, out))


def profiles(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROFILE]...", help="Profile files; all by default.", autocompletion=names_in("profiles")
        ),
    ] = None,
) -> None:
    """List device, radio and station profiles with their powers and the evidence for each number."""
    with outcome():
        from fednet_emu.results.library import profile_rows

        OUTPUT.out("\n".join(profile_rows(names)))


def schema(study: Annotated[bool, typer.Option("--study", help="That of study files.")] = False) -> None:
    """Print the JSON schema of scenario files, with which editors can complete and check such files."""
    with outcome():
        import fednet_emu as fe

        OUTPUT.out(json.dumps(fe.schema(study=study), indent=2))


SCENARIO = """\
# {name}: describe this scenario in one line.
#
#   fednet check {path}     # every setting with its default, and what a run costs
#   fednet run {path}       # about five seconds; --set KEY=VALUE changes a setting
#   fednet kinds            # what else may stand at each `kind`
title: {title}
seed: 0                       # of all random numbers; --seed changes it

devices:
  count: 10                   # numbered from 0
  placement: {{kind: disc, radius_m: 200}}    # around the base station
  speed: {{kind: fixed, flop_per_s: 1.0e+8}}  # sustained, while training; log-normal for unequal devices
  # straggler: {{kind: shifted-exponential, mean_factor: 0.2}}    # computations that take longer now and then
  # availability: {{kind: periodic, on_s: 60, off_s: 20}}    # devices that come and go

channel:
  include: urban-micro        # a radio environment of the library; `fednet channels` lists them
  bandwidth_hz: 5.0e+6        # replaces that of the library

network:
  uplink: {{access: tdma}}      # who sends when: tdma, ofdma, full-reuse, ...
  downlink: {{mode: broadcast}} # one transmission for all devices of a round; or unicast

data: digits                  # 1,437 images of 8 x 8 pixels; {{kind: npz, path: mine.npz}} for your own
partition: {{kind: dirichlet, alpha: 0.5}}    # labels are unequal from device to device; iid for equal ones
model: {{kind: mlp, hidden: [32]}}

algorithm:
  kind: fedavg
  cohort: 5                   # devices in each round
  lr: 0.1                     # step size of local SGD
  batch_size: 20
  local_epochs: 2             # passes over a device's data in each round

stop: {{rounds: 20}}            # or accuracy: 0.9, or simulated_s: 60; the first that is reached ends the run
evaluation: {{every_rounds: 1}} # of the global model on the test data; takes no simulated time
"""
"""Template for a new scenario file, with placeholders for name, title and path."""


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, or a path; `.yaml` is added.")],
) -> None:
    """Write a commented scenario file as a starting point; an existing file is not overwritten."""
    with outcome():
        bare = name.removesuffix(".yaml").removesuffix(".yml")
        path = Path(name if bare != name else f"{name}.yaml")
        if not Path(bare).name.strip(". "):
            raise FednetError(f"new: a scenario needs a name, got '{name}'; for example mine")
        try:
            command = shlex.quote(str(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(SCENARIO.format(name=path.stem, title=json.dumps(path.stem), path=command))
        except FileExistsError:
            raise FednetError(f"{path}: is already there, got the same name; choose another, or remove it") from None
        except OSError as error:
            raise FednetError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
        OUTPUT.out(f"{path}: run it with `fednet run {command}`")


def upgrade(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenario and study files.")],
) -> None:
    """Replace former names of settings, kinds and values in scenario and study files by the present names.

    Comments and layout do not change.
    """
    with outcome():
        from fednet_emu.study.upgrade import upgrade as upgraded

        for file in files:
            changed = False
            for change in upgraded(file):
                OUTPUT.out(change)
                changed = True
            if not changed:
                OUTPUT.out(f"{file}: has no former names")


_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def cache(
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Another one, such as results/NAME/learning of a study.")
    ] = None,
    most: Annotated[
        str | None, typer.Option("--most", metavar="SIZE", help="Set the most that it may have, such as 500MB or 5GB.")
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Delete all of it.")] = False,
) -> None:
    """Print the size of the cache of training results; set the maximum size of this cache, or empty it."""
    with outcome():
        from fednet_emu.emulation.store import bound, cache_folder, entries_in, limit_of, set_limit, usable

        where = usable(folder or cache_folder())
        if where is None:
            raise FednetError("cache: there is none, got an empty FEDNET_CACHE or a folder of others; give --folder")
        if most is None and folder is not None and not folder.is_dir():
            raise FednetError(f"--folder: no such folder, got {folder}; give the folder of a cache")
        if most is not None:
            set_limit(where, _bytes(most))
        if empty or most is not None:
            bound(where, 0 if empty else limit_of(where))
        from fednet_emu.analysis.quantities import counted

        entries = list(entries_in(where))
        programs, size_mb = len({entry.path.parent for entry in entries}), sum(entry.byte for entry in entries) / 1e6
        OUTPUT.out(f"{where}: {counted(programs, 'group')} of learning programs, {len(entries)} files")
        OUTPUT.out(f"{size_mb:,.1f} MB of at most {limit_of(where) / 1e6:,.10g} MB")


def _bytes(text: str) -> int:
    number, unit = text[:-2].strip(), text[-2:]
    try:
        size_byte = int(float(number) * _UNITS[unit])
        if size_byte >= 0:
            return size_byte
        raise ValueError(text)  # noqa: TRY301
    except (KeyError, ValueError, OverflowError):
        raise FednetError(f"--most: expected a size, got '{text}'; for example 500MB or 5GB") from None
