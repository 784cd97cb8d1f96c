"""Checkpoints in the run folder, from which an interrupted or killed run continues when it is started again."""

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
    """Read the checkpoint of an unfinished run from its folder.

    Returns:
        None if the folder has no checkpoint, or one that cannot be read or comes from another version.
    """
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
    """Observer that saves a checkpoint at the end of a round when `every_s` seconds of host time have passed."""

    def __init__(self, folder: RunFolder, every_s: float | None) -> None:
        self._folder = folder
        self._every_s = every_s
        self._saved = time.monotonic()

    def __call__(self, fed: Federation) -> None:
        """Save a checkpoint if the last one is at least `every_s` seconds of host time old."""
        if self._every_s is not None and time.monotonic() - self._saved >= self._every_s:
            self.save(fed)

    def save(self, fed: Federation) -> None:
        """Save a checkpoint now.

        Nothing is saved in a timing-only run, without a checkpoint interval, or while a resumed run has not yet caught
        up with the checkpoint that it started from.
        """
        if fed.timing_only or self._every_s is None or not fed.graph.caught_up:
            return
        with fed.graph.host.part("records"):
            self.write(fed.checkpoint())
        self._saved = time.monotonic()

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint atomically: the file is either complete or unchanged."""
        (created, values), readings = checkpoint
        content = {"version": __version__, "created": created, "values": values, "readings": readings}
        self._folder.write_bytes(NAME, lambda part: torch.save(content, part))

    def discard(self) -> None:
        """Delete the checkpoint, which a finished run no longer needs."""
        (self._folder.path / NAME).unlink(missing_ok=True)
