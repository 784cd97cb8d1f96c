"""Runs of a Flower app, in which the `ServerApp` runs in simulated time and the `ClientApp` runs for each device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing import parent_process

from flwr.app import Context, RecordDict

from fednet_emu.federation import Federation, Process
from fednet_emu.flower.classic import CLASSIC
from fednet_emu.flower.control import Flower141, Loops
from fednet_emu.flower.executors import App, InProcess, WorkerProcesses
from fednet_emu.flower.grid import EmulatedGrid, Program
from fednet_emu.flower.host import CLOCKS, CurrentFolder, Generators, SimulatedTime, app_code, simulated
from fednet_emu.flower.post import Clients, Over, Post, Turns
from fednet_emu.flower.scores import STRATEGIES, Scores
from fednet_emu.flower.versions import RUN_ID, SERVER_NODE, identity, logged
from fednet_emu.host import frozen_before


def played(app: App, fed: Federation) -> Process:
    """Run the app as a simulation process, until the `ServerApp` returns or a stop rule applies."""
    config, turns = app.config(), Turns(fed)
    here = InProcess()
    alone = fed.workers == 1 or parent_process() is not None  # a run of a sweep has a process of its own
    executor = here if alone else WorkerProcesses(app, fed.workers)
    clients = Clients(fed, config, app.work, executor)
    loops = Loops(app.control, fed) if isinstance(app.control, Flower141) else None
    post = Post(fed, clients, turns, app.lost, app.deadline_s, loops)
    grid = EmulatedGrid(fed, post, Scores(fed, turns))
    generators, folder = Generators(fed.streams.key("flower server")), CurrentFolder()
    time = SimulatedTime(lambda: fed.clock.now, grid.sleep)

    def main() -> None:
        with app_code("the import of its modules"):
            server_app, here.app = app.load_server(), app.load_client()
        with app_code("the ServerApp"):
            server_app(grid, Context(RUN_ID, SERVER_NODE, {}, RecordDict(), dict(config)))

    @contextmanager
    def inside() -> Iterator[None]:
        with generators.active(), folder.active(), identity(SERVER_NODE), simulated(time):
            yield

    grid.program = Program(main, inside)
    with (
        app.home(),
        CLOCKS.installed(),
        STRATEGIES.installed(),
        CLASSIC.installed(),
        logged(),
        frozen_before(),
        closing(executor),
    ):
        try:
            yield from grid.program.process()
        except Over:
            return
        turns.end()
