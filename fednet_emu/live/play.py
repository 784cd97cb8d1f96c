"""Play a scenario live: programs in namespaces, their packets on the scenario's air, and the records of it."""

from __future__ import annotations

import os
import select
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fednet_emu.devices.availability import Always
from fednet_emu.emulation.build import available_cores, build
from fednet_emu.emulation.guard import none_left_behind
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.emulation.provenance import provenance
from fednet_emu.emulation.record import recorded
from fednet_emu.errors import AppFailed, FednetError, ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.files.data_folder import noting
from fednet_emu.host import GRACE_S, ending
from fednet_emu.kernel.clock import FOREVER_NS, to_ns
from fednet_emu.live import linux
from fednet_emu.live.air import LiveAir
from fednet_emu.live.books import Ran, doubts, write_host, write_messages
from fednet_emu.live.hub import Hub
from fednet_emu.live.pace import RatedPace
from fednet_emu.live.packets import SERVER_NODE, address
from fednet_emu.live.prediction import predicted
from fednet_emu.live.programs import Ended, Programs
from fednet_emu.network.access.contention import SlottedAloha
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.access.over_the_air import OverTheAir
from fednet_emu.network.access.planned import Planned
from fednet_emu.network.faults import NoLoss
from fednet_emu.network.medium.medium import Medium
from fednet_emu.network.settings import Uplink
from fednet_emu.records.folder.store import RunFolder
from fednet_emu.records.ledger import SERVER, device_label
from fednet_emu.scenario.model import Problem, Scenario
from fednet_emu.scenario.tree import path_text
from fednet_emu.scenario.yaml_text import dump

MOST_DEVICES = 250
_GLANCE_S = 0.1
_TAIL_BYTE = 2000


@dataclass(frozen=True)
class Commands:
    """What is run: the command of the server and that of the clients, as lists of arguments.

    In both, `{server}` becomes the server's address, `{device}` the number of the device (-1 for the server),
    `{devices}` their count and `{role}` `server` or `client`. The environment has the same: FEDNET_SERVER,
    FEDNET_DEVICE, FEDNET_DEVICES and FEDNET_ROLE.
    """

    server: tuple[str, ...]
    client: tuple[str, ...]

    @classmethod
    def of(cls, server: str | None, client: Sequence[str]) -> Commands:
        """The commands as they are typed; without one for the server that of the clients is for all.

        Raises:
            FednetError: there is none for the clients, or that of the server cannot be read.
        """
        if not client:
            raise FednetError("live: takes the command of the clients, got none; add -- COMMAND at the end")
        if server is None:
            return cls(tuple(client), tuple(client))
        try:
            words = tuple(shlex.split(server))
        except ValueError as problem:
            raise FednetError(f"--server: cannot be read ({problem}), got '{server}'; quote it as in a shell") from None
        if not words:
            raise FednetError("--server: is a command, got an empty text; leave it out, or name a program")
        return cls(words, tuple(client))

    def filled(self, device: int, devices: int) -> tuple[list[str], dict[str, str]]:
        """The command of a device, or of the server, and the variables of its environment."""
        role, command = ("server", self.server) if device == SERVER else ("client", self.client)
        known = {"server": address(SERVER_NODE), "device": str(device), "devices": str(devices), "role": role}
        words = list(command)
        for name, value in known.items():
            words = [word.replace(f"{{{name}}}", value) for word in words]
        return words, {f"FEDNET_{name.upper()}": value for name, value in known.items()}


@dataclass(frozen=True)
class LiveOptions:
    """How a scenario is played live, beside what it says itself.

    Attributes:
        latency_s: time one way beside the air, for the core network.
        queue_byte: room in the queue of each link.
        hold_s: how long a link counts as on the air after its queue ran dry.
        tcp: congestion control; None takes the host's.
        boot_s: longest wait for the server to listen.
    """

    latency_s: float = 0.0005
    queue_byte: int = 262_144
    hold_s: float = 0.005
    tcp: str | None = None
    boot_s: float = 60.0


def unfit(scenario: Scenario) -> Iterator[Problem]:
    """Find what cannot be played live; yield its key path and what is wrong."""
    if scenario.devices.count > MOST_DEVICES:
        what = f"each device is a namespace of this machine, got {scenario.devices.count}; {MOST_DEVICES} are the most"
        yield ("devices", "count"), what
    if not isinstance(scenario.devices.availability, Always):
        kind = scenario.devices.availability.kind
        yield ("devices", "availability"), f"live devices are always there, got {kind}; leave it out"
    if scenario.devices.battery is not None:
        yield ("devices", "battery"), "live devices have no batteries, got one; leave it out"
    if scenario.channel.rate.outage_sinr > 0:
        what = f"a rate law that loses whole messages in outage has no packets, got {scenario.channel.rate.kind}"
        yield ("channel", "rate"), f"{what}; choose one that adapts"
    for way in (scenario.network.uplink, scenario.network.downlink):
        for key, what in _unfit(way):
            yield ("network", way.DIRECTION, key), what


def _unfit(way: Uplink) -> Iterator[tuple[str, str]]:
    access = way.access
    why = {
        OverTheAir: "sums over the air have no packets",
        Planned: "plans take whole messages in advance",
        SlottedAloha: "slots are decided for whole messages",
    }
    if type(access) in why:
        yield "access", f"{why[type(access)]}, got {access.kind}; choose tdma, ofdma, noma or shared"
    if isinstance(access, Ofdma) and access.scheduler == "equal-finish":
        what = "parts that finish together take whole messages in advance, got equal-finish"
        yield "access", f"{what}; choose equal or proportional-fair"
    if way.trace is not None:
        yield "trace", f"recorded rates cannot be played live yet, got {way.trace.kind}; leave it out"
    if type(way.loss) is not NoLoss:
        yield "loss", f"TCP repairs what is lost, got {way.loss.kind}; leave it out"


def play_live(
    outlook: Outlook,
    name: str,
    out: Path,
    commands: Commands,
    options: LiveOptions,
    *,
    force: bool = False,
    on_start: Callable[[str], None] = lambda _what: None,
) -> dict[str, Any]:
    """Play a scenario live into a run folder; return its summary, as in summary.json.

    Args:
        outlook: the scenario, and where its data are.
        name: its name, for the records.
        out: the run folder.
        commands: the programs.
        options: how it is played.
        force: whether to replace a run that the folder already holds, once the new one is done.
        on_start: receives a sentence for each step of the start.

    Raises:
        ScenarioError: something in the scenario cannot be played live.
        Missing: this machine lacks something.
        AppFailed: a program has ended with an error.
        DataError: the folder cannot be used.
    """
    scenario, started = outlook.scenario, time.perf_counter()
    if problems := [f"{path_text(path)}: {what}" for path, what in unfit(scenario)]:
        raise ScenarioError(*problems)
    facts = {"name": name, "seed": scenario.seed, "timing_only": False, "kind": "live"}
    with none_left_behind(), ExitStack() as open_now:
        text = dump(scenario)
        RunFolder.check(out, text, force=force)
        with noting() as read:
            fed = build(scenario, data_dir=outlook.data_dir, learning=False)
        programs = open_now.enter_context(Programs(scenario.devices.count + 1, options.tcp))
        folder = RunFolder.create(out, text, force=force, **facts, **provenance(scenario, read))
        open_now.callback(folder.release)
        fed.ledger.keep_in(folder.path)
        run = _Live(fed, scenario, programs, folder, commands, options, on_start)
        summary = open_now.enter_context(recorded(fed, folder, scenario, None, facts, started, measured=True))
        try:
            run.play()
        finally:
            summary.update(run.account(outlook.data_dir))
    return summary


def able() -> list[str]:
    """Say what this machine gives a live run, in sentences.

    Raises:
        Missing: it cannot play scenarios live.
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
    """A live run under way."""

    def __init__(
        self,
        fed: Federation,
        scenario: Scenario,
        programs: Programs,
        folder: RunFolder,
        commands: Commands,
        options: LiveOptions,
        on_start: Callable[[str], None],
    ) -> None:
        self._fed, self._scenario, self._programs, self._folder = fed, scenario, programs, folder
        self._commands, self._options, self._tell = commands, options, on_start
        self._origin_ns: int | None = None  # of scenario time, on the host's clock
        self._begun_ns: dict[int, int] = {}  # on the host's clock
        self._ran: dict[int, Ran] = {}
        self._busy_s = 0.0
        airs = [self._air(medium) for medium in (fed.network.uplink, fed.network.downlink)]
        self._hub = Hub(self._now_ns, programs.ports, airs[0], airs[1], to_ns(options.latency_s))
        self._outputs = {node: f"{device_label(node - 1)}.txt" for node in programs.ports}
        folder.announce(self._outputs.values())

    def _air(self, medium: Medium) -> LiveAir:
        pace = RatedPace(medium, self._fed.clock, self._scenario.network.cells.count)
        places, options = medium.settings.access.capacity, self._options
        return LiveAir(pace, places=places, queue_byte=options.queue_byte, hold_ns=to_ns(options.hold_s))

    def _now_ns(self) -> int:
        assert self._origin_ns is not None
        return time.monotonic_ns() - self._origin_ns

    # ---- the course of a run -----------------------------------------------------------------------------------------

    def play(self) -> None:
        """Start the server, the clients when it listens, and pass packets until the run is over.

        Raises:
            AppFailed: a program has ended with an error.
            FednetError: the server does not listen.
        """
        self._start(SERVER_NODE)
        self._await_server()
        for node in self._outputs:
            if node != SERVER_NODE:
                self._start(node)
        self._tell(f"{self._fed.n_devices} clients started; output is in {self._folder.path}")
        self._origin_ns = time.monotonic_ns()
        limit_s = self._scenario.stop.simulated_s
        until_ns = FOREVER_NS if limit_s is None else to_ns(limit_s)
        self._busy_s = -time.thread_time()
        with exactly():
            while until_ns > self._now_ns():
                if self._fed.clock.stopping:
                    raise KeyboardInterrupt
                if self._hub.turn(_GLANCE_S, self._programs.fileno()) and self._look():
                    until_ns = min(until_ns, self._now_ns() + to_ns(GRACE_S) if self._server_runs() else 0)

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
        output = self._folder.path / self._outputs[node]
        self._begun_ns[node] = time.monotonic_ns()
        self._programs.start(node, command, more, output.resolve(), watch=node == SERVER_NODE)

    def _look(self) -> bool:
        """Take in news; whether the server or all clients have ended."""
        for ended in self._programs.news():
            self._end(ended)
        return not self._server_runs() or len(self._ran) >= self._fed.n_devices

    def _server_runs(self) -> bool:
        return SERVER_NODE not in self._ran

    def _end(self, ended: Ended) -> None:
        self._close(ended.node)
        if ended.code != 0:
            label = device_label(ended.node - 1)
            raise AppFailed(f"the program of {label} {ending(ended.code)}", self._tail(self._outputs[ended.node]))

    def _close(self, node: int) -> None:
        ran_ns = time.monotonic_ns() - self._begun_ns[node]
        self._ran[node] = Ran(node, ran_ns, self._programs.waited_ns.get(node, 0))

    def _tail(self, name: str) -> str:
        path = self._folder.path / name
        content = path.read_bytes() if path.exists() else b""
        return content[-_TAIL_BYTE:].decode(errors="replace")

    # ---- its records -------------------------------------------------------------------------------------------------

    def account(self, data_dir: Path | str | None) -> dict[str, Any]:
        """Write what has passed until now into the ledger, and return entries of the summary."""
        fed, hub, options = self._fed, self._hub, self._options
        if self._origin_ns is not None and (now_ns := self._now_ns()) > fed.clock.now:
            fed.clock.run(until=now_ns)
        for node in self._begun_ns.keys() - self._ran.keys():
            self._close(node)
        programs = [self._ran[node] for node in sorted(self._ran)]
        busy_s = self._busy_s + time.thread_time() if self._busy_s else 0.0
        hub.traffic.close()
        messages = hub.traffic.messages
        errors = write_messages(fed, messages, predicted(self._scenario, messages, data_dir))
        host = write_host(fed.ledger, hub.late_ns, programs)
        for name in self._outputs.values():
            path = self._folder.path / name
            self._folder.write_bytes(name, path.read_bytes() if path.exists() else b"")
        way = {"latency_s": options.latency_s, "queue_byte": options.queue_byte, "hold_s": options.hold_s}
        return {
            "doubtful": doubts(host, programs) or None,
            "live": {
                **way,
                "congestion_control": self._programs.congestion,
                **host,
                "hub_s": busy_s,
                "air_byte": hub.traffic.air_byte,
                "dropped": hub.traffic.dropped,
                "strays": hub.strays,
                "compared": len(errors),
                "starved": len(messages) - len(errors),
                "errors": sorted(errors, key=abs),
            },
        }


@contextmanager
def exactly() -> Iterator[bool]:
    """Let this thread wake up exactly, and before all others where the host allows that, which is the value."""
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
