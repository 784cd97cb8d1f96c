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
    """An app of the framework Flower, which brings its own data, partition and model."""

    own_learning: ClassVar[bool] = True
    movable: ClassVar[bool] = True
    run_config: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the app's run configuration, like those of `flwr run --run-config`."""
    work: FlowerWork = FlowerWork()
    """Number of floating-point operations of a client per message. The computing time of the client is this number
    divided by its speed."""
    lost: Literal["error", "silence"] = "error"
    """Effect of a lost message or reply on the server app. With `error`, the server app immediately receives Flower's
    `Error` as the reply. With `silence`, it receives no reply, and waits until its timeout or until the message
    expires."""
    control: AnyControl = NoControl()
    """The polling loops by which the processes of a Flower deployment find messages; with `none`, messages are
    processed without delay."""
    deadline_s: float | None = Field(None, gt=0)
    """Maximum time in simulated s that the server waits for replies; a shorter timeout of the app takes precedence. The
    work of late devices is cancelled. With null, only the timeout of the app applies."""

    @abstractmethod
    def config(self) -> Config:
        """Return the run configuration of the app, with the overrides in `run_config`."""

    @abstractmethod
    def home(self) -> AbstractContextManager[None]:
        """Return a context manager that provides the modules of the app during a run."""

    @abstractmethod
    def load_server(self) -> Any:
        """Return the `ServerApp` of the app."""

    @abstractmethod
    def load_client(self) -> Any:
        """Return the `ClientApp` of the app."""

    def files(self) -> list[Path]:
        """Return the files with the app's code and configuration, in a fixed order."""
        return []

    def run(self, fed: Federation) -> Process:
        """Return the simulation process that runs the `ServerApp`, with the devices as nodes."""
        from fednet_emu.flower.running import played

        return played(self, fed)

    @property
    def events_depend_on_learning(self) -> bool:
        """Always True, because any decision of an app may depend on the models that it trains."""
        return True

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        """Yield an error if `lost` contradicts `control`, or if the package `flwr` or `greenlet` is not installed."""
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
    """An app of the framework Flower in the folder `app`; the app brings its own data, partition and model."""

    app: str = Field(min_length=1)
    """Path of the folder of the app, which contains `pyproject.toml`; relative paths start at the current folder."""

    def config(self) -> Config:
        """Return the default run configuration from the app's folder, with the overrides in `run_config`."""
        return AppFolder.read(self.app).fused(self.run_config)

    def home(self) -> AbstractContextManager[None]:
        """Return a context manager inside which the modules in the app's folder can be imported.

        On entry, loaded modules with the same names are hidden, so the app's modules are always imported again.
        On exit, the app's modules are removed, and the hidden modules are restored.
        """
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
        """Yield errors for a missing app, for unknown settings, and for missing packages of Flower."""
        try:
            folder = AppFolder.read(self.app)
        except NoApp as problem:
            yield "app", str(problem)
            return
        yield from (("run_config", what) for what in folder.problems(self.run_config))
        yield from super().conflicts(scenario)


class GivenFlower(FlowerApp):
    """A Flower app given as Python objects, for scenarios made in Python; a YAML file cannot contain such an app."""

    movable: ClassVar[bool] = False
    server_app: Any
    """A `flwr.serverapp.ServerApp`."""
    client_app: Any
    """A `flwr.clientapp.ClientApp`."""

    def config(self) -> Config:
        """Return `run_config`, which is the complete run configuration."""
        return dict(flat(self.run_config))

    def home(self) -> AbstractContextManager[None]:
        """Return a context manager without effect, because the modules of the app are already loaded."""
        return nullcontext()

    @override
    def load_server(self) -> Any:
        return self.server_app

    @override
    def load_client(self) -> Any:
        return self.client_app

    @field_serializer("server_app", "client_app")
    def _described(self, given: Any) -> str:
        return f"a {type(given).__name__}"


def flower(server_app: Any, client_app: Any, **settings: Any) -> GivenFlower:
    """Return a Flower app as an algorithm: `fe.run("quickstart", algorithm=fe.Flower(server_app, client_app))`.

    Args:
        server_app: a `flwr.serverapp.ServerApp`.
        client_app: a `flwr.clientapp.ClientApp`, which every device runs; its `partition-id` is the index of the
            device.
        settings: settings of the algorithm `flower` as in scenario files, except `app`. `run_config` must contain the
            whole run configuration.
    """
    return GivenFlower(server_app=server_app, client_app=client_app, **settings)
