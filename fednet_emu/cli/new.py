"""The command new: a scenario to start from, with a comment at every setting."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fednet_emu.cli.options import OUTPUT
from fednet_emu.cli.outcome import outcome
from fednet_emu.errors import FednetError

SCENARIO = """\
# {name}: say in a line what this scenario is about.
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
  uplink: {{access: tdma}}      # who sends when: tdma, ofdma, shared, ...
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
"""The text of a new scenario, with its name, its title and its path to fill in."""


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, or a path; `.yaml` is added.")],
) -> None:
    """Write a scenario with comments, to change and to run; no file is overwritten."""
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
