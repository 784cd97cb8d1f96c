"""A Flower app as an algorithm.

Beutel, Topal, Mathur, Qiu, Fernandez-Marques, Gao, Sani, Li, Parcollet, de Gusmão, Lane: "Flower: A Friendly Federated
Learning Framework", 2020, https://arxiv.org/abs/2007.14390; interface of https://flower.ai, version 1.26 and later.

The app runs without changes. Its messages travel over the emulated network, its clients compute at the speed of their
devices, and its `time.sleep` and `time.time` are simulated time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_serializer
from typing_extensions import override

from fednet_emu.algorithms.base import Algorithm
from fednet_emu.federation import Federation, Process
from fednet_emu.flower.control import AnyControl, NoControl
from fednet_emu.flower.folder import AppFolder, Config, NoApp, flat
from fednet_emu.flower.work import FlowerWork


class FlowerApp(Algorithm):
    """An app of the framework Flower with its own data, partition and model."""

    own_learning: ClassVar[bool] = True
    movable: ClassVar[bool] = True
    run_config: dict[str, Any] = Field(default_factory=dict)
    """Changes of the app's run configuration, as with `flwr run --run-config`."""
    work: FlowerWork = FlowerWork()
    """Operations of a client per message, which determine its computing time."""
    lost: Literal["error", "silence"] = "error"
    """Effect of a lost message or reply on the server app. error: Flower's `Error` as the reply, at once;
    silence: no reply, so it waits until its timeout, or until the message expires.
    """
    control: AnyControl = NoControl()
    """The polling loops of a deployment, in which its processes find messages; none omits them."""
    deadline_s: float | None = Field(None, gt=0)
    """Longest time that the server waits for replies (simulated s), if the app has no shorter timeout; late devices are
    cancelled. Null leaves it to the app.
    """

    @abstractmethod
    def config(self) -> Config:
        """The run configuration of the app, with the changes."""

    @abstractmethod
    def home(self) -> AbstractContextManager[None]:
        """Context of the app's modules while it runs."""

    @abstractmethod
    def load_server(self) -> Any:
        """The `ServerApp`."""

    @abstractmethod
    def load_client(self) -> Any:
        """The `ClientApp`."""

    def files(self) -> list[Path]:
        """The files with the app's code and configuration, in order."""
        return []

    def run(self, fed: Federation) -> Process:
        """The `ServerApp`, with the devices as its nodes."""
        from fednet_emu.flower.running import played

        return played(self, fed)

    @property
    def events_depend_on_learning(self) -> bool:
        """Always true: any decision of an app may depend on learning."""
        return True

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        """An error if Flower is missing."""
        yield from super().conflicts(scenario)
        if self.lost == "silence" and not isinstance(self.control, NoControl):
            what = f"{self.control.kind} defines when the server learns of a loss, got silence"
            yield "lost", f"{what}; leave it out, or take no control"
        for package in ("flwr", "greenlet"):
            if find_spec(package) is None:
                what = f"needs the package {package}, which is not installed, got flower"
                yield "kind", f"{what}; install it, for example with pip install 'fednet-emu[flower]'"
                return


class Flower(FlowerApp):
    """An app of the framework Flower in its own folder, with its own data, partition and model."""

    app: str = Field(min_length=1)
    """The folder of the app with its `pyproject.toml`; a path from the current folder."""

    def config(self) -> Config:
        """The run configuration of the folder, with the changes."""
        return AppFolder.read(self.app).fused(self.run_config)

    def home(self) -> AbstractContextManager[None]:
        """Modules are imported from the folder again in each run."""
        from fednet_emu.flower.loading import importable

        return importable(AppFolder.read(self.app).path)

    def load_server(self) -> Any:
        """The `ServerApp` of `pyproject.toml`."""
        from fednet_emu.flower.loading import part_of

        return part_of(AppFolder.read(self.app), "server")

    def load_client(self) -> Any:
        """The `ClientApp` of `pyproject.toml`."""
        from fednet_emu.flower.loading import part_of

        return part_of(AppFolder.read(self.app), "client")

    @override
    def files(self) -> list[Path]:
        return AppFolder.read(self.app).sources()

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        """Errors for a missing app, unknown settings, and missing Flower."""
        try:
            folder = AppFolder.read(self.app)
        except NoApp as problem:
            yield "app", str(problem)
            return
        yield from (("run_config", what) for what in folder.problems(self.run_config))
        yield from super().conflicts(scenario)


class GivenFlower(FlowerApp):
    """An app as Python objects; a YAML scenario cannot name it."""

    movable: ClassVar[bool] = False
    server_app: Any
    """A `flwr.serverapp.ServerApp`."""
    client_app: Any
    """A `flwr.clientapp.ClientApp`."""

    def config(self) -> Config:
        """The complete run configuration."""
        return dict(flat(self.run_config))

    def home(self) -> AbstractContextManager[None]:
        """Empty: the modules are loaded."""
        return nullcontext()

    @override
    def load_server(self) -> Any:
        return self.server_app

    @override
    def load_client(self) -> Any:
        return self.client_app

    @field_serializer("server_app", "client_app")
    def _described(self, given: Any) -> str:
        """Description for the records of a run, since a scenario file cannot name a Python object."""
        return f"a {type(given).__name__}"


def flower(server_app: Any, client_app: Any, **settings: Any) -> GivenFlower:
    """Return a Flower app as an algorithm: `fe.run("quickstart", algorithm=fe.Flower(server_app, client_app))`.

    Args:
        server_app: a `flwr.serverapp.ServerApp`.
        client_app: a `flwr.clientapp.ClientApp`; it trains on the device whose number is the `partition-id`.
        settings: the settings of the algorithm `flower` in scenario files except `app`; `run_config` is complete.
    """
    return GivenFlower(server_app=server_app, client_app=client_app, **settings)
