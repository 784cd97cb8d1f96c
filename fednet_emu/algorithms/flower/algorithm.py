"""A Flower app as an algorithm.

Beutel, Topal, Mathur, Qiu, Fernandez-Marques, Gao, Sani, Li, Parcollet, de Gusmão, Lane: "Flower: A Friendly Federated
Learning Framework", 2020, https://arxiv.org/abs/2007.14390; the interface is that of https://flower.ai, 1.21 and later.

The app is not changed. What it sends travels over the emulated network, its clients compute at the speed of their
devices, and its `time.sleep` and `time.time` are simulated time.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from fednet_emu.algorithms.base import Algorithm
from fednet_emu.algorithms.flower.folder import AppFolder, NoApp
from fednet_emu.algorithms.flower.work import FlowerWork
from fednet_emu.federation import Federation, Process


class Flower(Algorithm):
    """An app of the framework Flower, as its own folder describes it; data, partition and model are the app's own."""

    kind: Literal["flower"] = "flower"
    own_learning: ClassVar[bool] = True
    app: str = Field(min_length=1)
    """The folder of the app, in which its `pyproject.toml` lies; a path from the current folder."""
    run_config: dict[str, Any] = Field(default_factory=dict)
    """Changes of the app's run configuration, as with `flwr run --run-config`."""
    work: FlowerWork = FlowerWork()
    """How much a client computes for a message, from which its computing time follows."""
    lost: Literal["error", "silence"] = "error"
    """What the server app learns of a message or a reply that is lost. error: Flower's `Error` as the reply, at once;
    silence: nothing, so that it waits until its timeout, or until the message expires."""
    deadline_s: float | None = Field(None, gt=0)
    """Longest time that the server waits for replies (simulated s), if the app itself does not give up earlier; late
    devices are cancelled. Null leaves it to the app."""

    def run(self, fed: Federation) -> Process:
        """The `ServerApp`, with the devices as its nodes."""
        from fednet_emu.algorithms.flower.running import played

        return played(self, fed)

    def files(self) -> list[Path]:
        """The files with the app's code and configuration, in order."""
        folder = AppFolder.read(self.app).path
        return sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".toml") and path.is_file())

    @property
    def events_depend_on_learning(self) -> bool:
        """An app may decide anything by what it has learnt."""
        return True

    def contradictions(self, count: int) -> Iterator[tuple[str, str]]:
        """An app that is not there, settings that it does not know, and Flower itself if it is missing."""
        try:
            folder = AppFolder.read(self.app)
        except NoApp as problem:
            yield "app", str(problem)
            return
        yield from (("run_config", what) for what in folder.problems(self.run_config))
        if find_spec("flwr") is None:
            what = "needs the package flwr, which is not installed, got flower"
            yield "kind", f"{what}; install it, for example with pip install 'fednet-emu[flower]'"
