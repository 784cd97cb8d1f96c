"""Run a Flower app: its `ServerApp` as a program of simulated time, its `ClientApp` on the devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from flwr.app import Context, RecordDict

from fednet_emu.algorithms.flower.classic import CLASSIC
from fednet_emu.algorithms.flower.clients import Clients
from fednet_emu.algorithms.flower.failures import app_code
from fednet_emu.algorithms.flower.generators import Generators
from fednet_emu.algorithms.flower.grid import EmulatedGrid
from fednet_emu.algorithms.flower.host_clock import CLOCKS, SimulatedTime, simulated
from fednet_emu.algorithms.flower.post import Post
from fednet_emu.algorithms.flower.program import Program
from fednet_emu.algorithms.flower.scores import STRATEGIES, Scores
from fednet_emu.algorithms.flower.turns import Over, Turns
from fednet_emu.algorithms.flower.versions import RUN_ID, SERVER_NODE, identity, logged
from fednet_emu.federation import Federation, Process

if TYPE_CHECKING:
    from fednet_emu.algorithms.flower.algorithm import FlowerApp


def played(settings: FlowerApp, fed: Federation) -> Process:
    """The app as a process: it ends when the `ServerApp` returns, or when a stop rule ends the run."""
    config = settings.config()
    turns = Turns(fed)
    clients = Clients(fed, config, settings.work)
    post = Post(fed, clients, turns, settings.lost, settings.deadline_s)
    grid = EmulatedGrid(fed, post, Scores(fed, turns))
    generators = Generators(fed.streams.key("flower server"))
    time = SimulatedTime(lambda: fed.clock.now, grid.sleep)

    def main() -> None:
        with app_code("the import of its modules"):
            server_app, clients.app = settings.load()
        with app_code("the ServerApp"):
            server_app(grid, Context(RUN_ID, SERVER_NODE, {}, RecordDict(), dict(config)))

    @contextmanager
    def inside() -> Iterator[None]:
        with generators.active(), identity(SERVER_NODE), simulated(time):
            yield

    grid.program = Program(main, inside)
    with _at_home(settings):
        try:
            yield from grid.program.process()
        except Over:
            return
        turns.end()


@contextmanager
def _at_home(settings: FlowerApp) -> Iterator[None]:
    """What lasts for the whole run: the app's modules, the stand-ins for the host's clock, and Flower's log."""
    with ExitStack() as stack:
        stack.enter_context(settings.home())
        stack.enter_context(CLOCKS.installed())
        stack.enter_context(STRATEGIES.installed())
        stack.enter_context(CLASSIC.installed())
        stack.enter_context(logged())
        yield
