"""A Flower app as an algorithm.

Beutel, Topal, Mathur, Qiu, Fernandez-Marques, Gao, Sani, Li, Parcollet, de Gusmão, Lane: "Flower: A Friendly Federated
Learning Framework", 2020, https://arxiv.org/abs/2007.14390; interface of https://flower.ai, version 1.26 and later.

The app runs without changes. Messages of the app travel over the emulated network, clients compute at the speed of
their devices, and `time.sleep` and `time.time` in the app use simulated time.
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
    """Overrides of the app's run configuration, as with `flwr run --run-config`."""
    work: FlowerWork = FlowerWork()
    """Operations of a client per message, which determine the computing time of the client."""
    lost: Literal["error", "silence"] = "error"
    """Effect of a lost message or reply on the server app. error: the server app gets Flower's `Error` as reply at
    once; silence: the server app gets no reply, and waits until its timeout, or until the message expires."""
    control: AnyControl = NoControl()
    """The polling loops with which the processes of a deployment find messages; none omits these loops."""
    deadline_s: float | None = Field(None, gt=0)
    """Maximum time that the server waits for replies, in simulated s, if the app has no shorter timeout; late devices
    are cancelled. Null means that only the timeout of the app applies."""

    @abstractmethod
    def config(self) -> Config:
        """Return the run configuration of the app, with the overrides in `run_config`."""

    @abstractmethod
    def home(self) -> AbstractContextManager[None]:
        """Return a context manager that provides the modules of the app during a run."""

    @abstractmethod
    def load_server(self) -> Any:
        """Return the `ServerApp`."""

    @abstractmethod
    def load_client(self) -> Any:
        """Return the `ClientApp`."""

    def files(self) -> list[Path]:
        """Return the files with the app's code and configuration, in order."""
        return []

    def run(self, fed: Federation) -> Process:
        """Return the process that runs the `ServerApp`, with the devices as nodes."""
        from fednet_emu.flower.running import played

        return played(self, fed)

    @property
    def events_depend_on_learning(self) -> bool:
        """Always true, because any decision of an app may depend on learning."""
        return True

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        """Yield an error if `lost` contradicts `control`, or if Flower is missing."""
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
    """An app of the framework Flower, given by its folder, with its own data, partition and model."""

    app: str = Field(min_length=1)
    """The folder of the app, which contains `pyproject.toml`; a path relative to the current folder."""

    def config(self) -> Config:
        """Return the run configuration in the folder, with the overrides in `run_config`."""
        return AppFolder.read(self.app).fused(self.run_config)

    def home(self) -> AbstractContextManager[None]:
        """Return a context manager with which each run imports the modules of the folder again."""
        from fednet_emu.flower.loading import importable

        return importable(AppFolder.read(self.app).path)

    def load_server(self) -> Any:
        """Return the `ServerApp` that `pyproject.toml` names."""
        from fednet_emu.flower.loading import part_of

        return part_of(AppFolder.read(self.app), "server")

    def load_client(self) -> Any:
        """Return the `ClientApp` that `pyproject.toml` names."""
        from fednet_emu.flower.loading import part_of

        return part_of(AppFolder.read(self.app), "client")

    @override
    def files(self) -> list[Path]:
        return AppFolder.read(self.app).sources()

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        """Yield errors for a missing app, for unknown settings, and for a missing Flower package."""
        try:
            folder = AppFolder.read(self.app)
        except NoApp as problem:
            yield "app", str(problem)
            return
        yield from (("run_config", what) for what in folder.problems(self.run_config))
        yield from super().conflicts(scenario)


class GivenFlower(FlowerApp):
    """A Flower app given as Python objects, which a YAML scenario cannot name."""

    movable: ClassVar[bool] = False
    server_app: Any
    """A `flwr.serverapp.ServerApp`."""
    client_app: Any
    """A `flwr.clientapp.ClientApp`."""

    def config(self) -> Config:
        """Return `run_config`, which is the complete run configuration."""
        return dict(flat(self.run_config))

    def home(self) -> AbstractContextManager[None]:
        """Return an empty context manager, because the modules are already loaded."""
        return nullcontext()

    @override
    def load_server(self) -> Any:
        return self.server_app

    @override
    def load_client(self) -> Any:
        return self.client_app

    @field_serializer("server_app", "client_app")
    def _described(self, given: Any) -> str:
        """Return a description of the object for the records of a run."""
        return f"a {type(given).__name__}"


def flower(server_app: Any, client_app: Any, **settings: Any) -> GivenFlower:
    """Return a Flower app as an algorithm: `fe.run("quickstart", algorithm=fe.Flower(server_app, client_app))`.

    Args:
        server_app: a `flwr.serverapp.ServerApp`.
        client_app: a `flwr.clientapp.ClientApp`, which trains on the device whose index is the `partition-id`.
        settings: settings of the algorithm `flower` in scenario files, except `app`. `run_config` must be complete.
    """
    return GivenFlower(server_app=server_app, client_app=client_app, **settings)
