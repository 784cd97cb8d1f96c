"""Live runs of scenarios: programs run in namespaces, and their packets pass through the emulated air."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fednet_emu.analysis.quantities import counted
from fednet_emu.emulation.build import available_cores, build
from fednet_emu.emulation.guard import none_left_behind
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.emulation.provenance import provenance
from fednet_emu.emulation.record import recorded
from fednet_emu.errors import AppFailed, FednetError, ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.files.data_folder import noting
from fednet_emu.host import GRACE_S, ending, rare_garbage_collection
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, to_ns
from fednet_emu.network.medium.medium import Medium
from fednet_emu.realtime import linux
from fednet_emu.realtime.air import LiveAir
from fednet_emu.realtime.books import Ran, doubts, predicted, write_host, write_messages
from fednet_emu.realtime.flower import FlowerPrograms
from fednet_emu.realtime.hub import Hub
from fednet_emu.realtime.options import Commands, LiveOptions, beneath, unfit
from fednet_emu.realtime.pace import RatedPace
from fednet_emu.realtime.packets import SERVER_NODE
from fednet_emu.realtime.programs import Ended, Programs
from fednet_emu.records.folder import RunFolder
from fednet_emu.records.ledger import device_label
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.tree import path_text
from fednet_emu.scenario.yaml_text import dump

_GLANCE_S = 0.1
_TAIL_BYTE = 2000


def play_live(
    outlook: Outlook,
    name: str,
    out: Path,
    commands: Commands | None,
    options: LiveOptions,
    *,
    force: bool = False,
    on_start: Callable[[str], None] = lambda _what: None,
) -> dict[str, Any]:
    """Run a scenario live, write records to a run folder, and return the summary of the run, as in summary.json.

    Args:
        commands: the commands that start the programs; None to run the Flower app that is the scenario's algorithm.
        on_start: function that receives progress messages while the run starts.

    Raises:
        ScenarioError: a setting of the scenario is not supported in live runs.
        Missing: this machine does not meet a requirement of live runs.
        AppFailed: a program has ended with an error.
        DataError: the run folder cannot be used.
    """
    scenario, started = outlook.scenario, time.perf_counter()
    if problems := [f"{path_text(path)}: {what}" for path, what in unfit(scenario)]:
        raise ScenarioError(*problems)
    facts = {"name": name, "seed": scenario.seed, "timing_only": False, "kind": "live"}
    with none_left_behind(), ExitStack() as open_now:
        text = dump(scenario)
        RunFolder.check(out, text, force=force)
        with noting() as read:
            fed = build(beneath(scenario), data_dir=outlook.data_dir, learning=False)
        programs = open_now.enter_context(Programs(scenario.devices.count + 1, options.tcp))
        folder = RunFolder.create(out, text, force=force, **facts, **provenance(scenario, read))
        open_now.callback(folder.release)
        fed.ledger.keep_in(folder.path)
        if commands is None:
            app = FlowerPrograms(fed, scenario, folder.path)
            run: _Live = _LiveFlower(fed, scenario, programs, folder, app, options, on_start)
        else:
            run = _Live(fed, scenario, programs, folder, commands, options, on_start)
        summary = open_now.enter_context(recorded(fed, folder, scenario, (), facts, started, measured=True))
        try:
            run.play()
        finally:
            summary.update(run.account(outlook.data_dir))
    return summary


def able() -> list[str]:
    """Return sentences for the user about the conditions under which this machine runs scenarios live.

    Raises:
        Missing: this machine cannot run scenarios live.
    """
    with Programs(2) as programs, exactly() as first:
        before = "runs before all other processes" if first else "has no priority here, root would give it"
        return [
            "this machine can play scenarios live",
            f"TCP uses {programs.congestion}, the host's congestion control; --tcp chooses another",
            f"the hub {before}",
            f"{available_cores()} cores are shared by the hub and the programs",
        ]


class _Live:
    def __init__(
        self,
        fed: Federation,
        scenario: Scenario,
        programs: Programs,
        folder: RunFolder,
        commands: Commands | FlowerPrograms,
        options: LiveOptions,
        on_start: Callable[[str], None],
    ) -> None:
        self._fed, self._scenario, self._programs, self._folder = fed, scenario, programs, folder
        self._commands, self._options, self._tell = commands, options, on_start
        self._origin_ns: int | None = None  # start of scenario time on the host's clock
        self._begun_ns: dict[int, int] = {}  # start of each program on the host's clock
        self._ran: dict[int, Ran] = {}
        self._busy_s = 0.0
        self._way_s = options.way_s(scenario.network.transport)
        airs = [self._air(medium) for medium in (fed.network.uplink, fed.network.downlink)]
        there = None if fed.presence.always else lambda device, now_ns: fed.presence.until_ns(device, now_ns) > now_ns
        self._hub = Hub(self._now_ns, programs.ports, airs[0], airs[1], to_ns(self._way_s), there)
        self._outputs = {node: f"{device_label(node - 1)}.txt" for node in programs.ports}
        folder.announce(self._outputs.values())

    def _air(self, medium: Medium) -> LiveAir:
        pace = RatedPace(medium, self._fed.clock, self._scenario.network.cells.count)
        places, options = medium.settings.access.capacity, self._options
        return LiveAir(pace, places=places, queue_byte=options.queue_byte, hold_ns=to_ns(options.hold_s))

    def _now_ns(self) -> int:
        assert self._origin_ns is not None
        return time.monotonic_ns() - self._origin_ns

    # ---- phases of a run ---------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Start the server, start the clients once the server listens, and handle packets until the run is over.

        Raises:
            AppFailed: a program has ended with an error.
            FednetError: the server does not listen at a TCP port in time.
        """
        self._start(SERVER_NODE)
        self._await_server()
        for device in range(self._fed.n_devices):
            self._start(device + 1)
        self._tell(f"{counted(self._fed.n_devices, 'client')} started; output is in {self._folder.path}")
        self._origin_ns = self._zero_ns()
        limit_s = self._scenario.stop.simulated_s
        until_ns = FOREVER_NS if limit_s is None else to_ns(limit_s)
        self._busy_s = -time.thread_time()
        with exactly(), rare_garbage_collection():
            while (more_ns := until_ns - self._now_ns()) > 0:
                if self._fed.clock.stopping:
                    raise KeyboardInterrupt
                glance_s = min(_GLANCE_S, more_ns / NS_PER_S)
                if self._hub.play(glance_s, self._programs.fileno()) and (left_s := self._look()) is not None:
                    until_ns = min(until_ns, self._now_ns() + to_ns(left_s))

    def _zero_ns(self) -> int:
        return time.monotonic_ns()

    def _await_server(self) -> None:
        end_ns = time.monotonic_ns() + to_ns(self._options.boot_s)
        while not self._programs.listening:
            if self._fed.clock.stopping:
                raise KeyboardInterrupt
            if time.monotonic_ns() > end_ns:
                what = f"the server listens at no TCP port, got none for {self._options.boot_s:g} s"
                raise FednetError(
                    f"live: {what}; look at its output in {self._folder.path}, or give it longer by --boot"
                )
            select.select([self._programs.fileno()], [], [], _GLANCE_S)
            self._look()
            if not self._server_runs():
                raise FednetError("live: the server has ended before it listened; it has to listen at a TCP port")

    def _start(self, node: int) -> None:
        command, more = self._commands.filled(node - 1, self._fed.n_devices)
        self._begun_ns[node] = time.monotonic_ns()
        self._programs.start(node, command, more, self._output(node), watch=node == SERVER_NODE)

    def _output(self, program: int) -> Path:
        return (self._folder.path / self._outputs[program]).resolve()

    def _look(self) -> float | None:
        for ended in self._programs.news():
            self._end(ended)
        if not self._server_runs():
            return 0.0
        return GRACE_S if len(self._ran) >= self._fed.n_devices else None

    def _server_runs(self) -> bool:
        return SERVER_NODE not in self._ran

    def _end(self, ended: Ended) -> None:
        self._close(ended.program, ended.code)
        if ended.code != 0:
            label = device_label(ended.program - 1)
            raise AppFailed(f"the program of {label} {ending(ended.code)}", self._tail(self._outputs[ended.program]))

    def _close(self, node: int, code: int = 0) -> None:
        ran_ns = time.monotonic_ns() - self._begun_ns[node]
        self._ran[node] = Ran(node, ran_ns, self._programs.waited_ns.get(node, 0), code)

    def _tail(self, name: str) -> str:
        path = self._folder.path / name
        content = path.read_bytes() if path.exists() else b""
        return content[-_TAIL_BYTE:].decode(errors="replace")

    # ---- records -----------------------------------------------------------------------------------------------------

    def account(self, data_dir: Path | str | None) -> dict[str, Any]:
        fed, hub, options = self._fed, self._hub, self._options
        if self._origin_ns is not None and (now_ns := self._now_ns()) > fed.clock.now:
            fed.clock.run(until=now_ns)
        for node in self._begun_ns.keys() - self._ran.keys():
            self._close(node)
        programs = [self._ran[node] for node in sorted(self._ran)]
        busy_s = self._busy_s + time.thread_time() if self._busy_s else 0.0
        hub.traffic.close()
        messages = hub.traffic.messages
        errors = write_messages(fed, messages, predicted(self._scenario, messages, data_dir, self._way_s))
        host = write_host(fed.ledger, hub.late_ns, programs)
        for name in self._outputs.values():
            path = self._folder.path / name
            self._folder.write_bytes(name, path.read_bytes() if path.exists() else b"")
        way = {"latency_s": self._way_s, "queue_byte": options.queue_byte, "hold_s": options.hold_s}
        return {
            "doubtful": doubts(host, programs) or None,
            "live": {
                **way,
                "congestion_control": self._programs.congestion,
                **host,
                "hub_s": busy_s,
                "air_byte": hub.traffic.air_byte,
                "dropped": hub.traffic.dropped,
                "vanished": hub.vanished,
                "strays": hub.strays,
                "compared": len(errors),
                "starved": len(messages) - len(errors),
                "errors": sorted(errors, key=abs),
            },
        }


class _LiveFlower(_Live):
    """A live run of a Flower app; scenario time begins with the `ServerApp`, after all SuperNodes have registered.

    If a SuperNode ends early, its end is recorded, and the app continues without this SuperNode.
    """

    def __init__(
        self, fed: Federation, scenario: Scenario, programs: Programs, folder: RunFolder, app: FlowerPrograms, *how: Any
    ) -> None:
        super().__init__(fed, scenario, programs, folder, app, *how)
        self._app, self._submits, self._over = app, len(programs.ports), False
        self._outputs[self._submits] = "run.txt"
        folder.announce(self._outputs.values())
        app.prepare()

    def _zero_ns(self) -> int:
        end_ns, submitted = time.monotonic_ns() + to_ns(self._options.boot_s), False
        nodes = [self._output(device + 1) for device in range(self._fed.n_devices)]
        with exactly():
            while self._app.began_ns is None:
                if self._fed.clock.stopping:
                    raise KeyboardInterrupt
                if time.monotonic_ns() > end_ns:
                    what = f"the ServerApp has not begun within {self._options.boot_s:g} s"
                    raise AppFailed(what, self._tail(self._outputs[self._submits if submitted else SERVER_NODE]))
                if self._hub.relay(_GLANCE_S / 10, self._programs.fileno()):
                    self._look()
                if not submitted and (submitted := self._app.registered(nodes)):
                    command, more = self._app.run()
                    output = self._output(self._submits)
                    self._programs.start(self._submits, command, more, output, watch=False, node=SERVER_NODE)
                self._app.look()
        return self._app.began_ns

    def _look(self) -> float | None:
        left_s = super()._look()
        self._app.look()
        if self._app.error or (self._over and self._app.error is None):
            raise AppFailed("the ServerApp has failed", self._app.error or self._tail(self._outputs[self._submits]))
        return left_s if self._app.error is None else 0.0

    def _end(self, ended: Ended) -> None:
        if ended.program == self._submits:
            self._over = True
        elif ended.program == SERVER_NODE or self._origin_ns is None:
            super()._end(ended)
        else:
            self._close(ended.program, ended.code)
            self._hub.traffic.died_ns[ended.program - 1] = self._now_ns()

    def account(self, data_dir: Path | str | None) -> dict[str, Any]:
        """Write the recorded traffic and the actions of the app to the ledger; return entries for the summary."""
        try:
            entries = super().account(data_dir)
            self._programs.end()
            if self._origin_ns is not None:
                entries["live"]["start_s"] = self._app.write(self._origin_ns)
        finally:
            self._app.close()
        return entries


@contextmanager
def exactly() -> Iterator[bool]:
    """Inside the `with` block, use exact timers and, if permitted, real-time priority; yield True if permitted."""
    linux.wake_exactly()
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, *before)
