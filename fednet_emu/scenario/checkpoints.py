"""Checkpoints in the run folder: how a run that was interrupted or killed goes on when it is started again."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import torch

from fednet_emu import __version__
from fednet_emu.federation.federation import Federation
from fednet_emu.federation.readings import Checkpoint
from fednet_emu.learning.graph.graph import Snapshot
from fednet_emu.records.store import RunFolder

NAME = "checkpoint.pt"
LOG = logging.getLogger("fednet_emu")


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint that an unfinished run has left in a folder; None when there is none that can be used."""
    if not (folder / NAME).is_file():
        return None
    try:
        saved: dict[str, Any] = torch.load(folder / NAME, weights_only=False)
        usable = saved["version"] == __version__
        checkpoint = Checkpoint(Snapshot(saved["created"], dict(saved["values"])), list(saved["readings"]))
    except Exception as error:
        LOG.warning("%s: cannot be read (%s); the run starts anew", folder / NAME, error)
        return None
    return checkpoint if usable else None


class Saver:
    """Saves a checkpoint every so often in host time, as an observer at the end of rounds."""

    def __init__(self, folder: RunFolder, every_s: float | None) -> None:
        self._folder = folder
        self._every_s = every_s
        self._saved = time.monotonic()

    def __call__(self, fed: Federation) -> None:
        """Save if it is time."""
        if self._every_s is not None and time.monotonic() - self._saved >= self._every_s:
            self.save(fed)

    def save(self, fed: Federation) -> None:
        """Save now, unless the run has nothing to learn or still plays what the checkpoint before it knows."""
        if fed.timing_only or self._every_s is None or not fed.graph.caught_up:
            return
        with fed.graph.host.part("records"):
            self.write(fed.checkpoint())
        self._saved = time.monotonic()

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint at once or not at all."""
        (created, values), readings = checkpoint
        content = {"version": __version__, "created": created, "values": values, "readings": readings}
        self._folder.write_bytes(NAME, lambda part: torch.save(content, part))

    def discard(self) -> None:
        """A run that is done needs no checkpoint."""
        (self._folder.path / NAME).unlink(missing_ok=True)
