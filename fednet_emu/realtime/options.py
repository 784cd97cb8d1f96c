"""Commands and options of a live run, and the settings of scenarios that live runs do not support."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fednet_emu.errors import FednetError
from fednet_emu.network.access.contention import SlottedAloha
from fednet_emu.network.access.orthogonal import Ofdma
from fednet_emu.network.delay import NoDelay
from fednet_emu.network.faults import NoLoss
from fednet_emu.network.lora import Lora
from fednet_emu.network.nr.grants import NrGrants
from fednet_emu.network.over_the_air import OverTheAir
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.settings import Uplink
from fednet_emu.network.transport.transports import Session, Tcp, Transport
from fednet_emu.realtime.packets import SERVER_NODE, address
from fednet_emu.records.ledger import SERVER
from fednet_emu.scenario.model import Problem, Scenario

MOST_DEVICES = 250
_WAY_S = 0.0005


@dataclass(frozen=True)
class Commands:
    """The commands of the server and of the clients, as lists of arguments.

    In both commands, `{server}` stands for the address of the server, `{device}` for the index of the device (-1 for
    the server), `{devices}` for the number of devices, and `{role}` for `server` or `client`. The environment variables
    FEDNET_SERVER, FEDNET_DEVICE, FEDNET_DEVICES and FEDNET_ROLE have the same values.
    """

    server: tuple[str, ...]
    client: tuple[str, ...]

    @classmethod
    def of(cls, server: str | None, client: Sequence[str]) -> Commands:
        """Parse commands; if `server` is None, the command of the clients is also the command of the server.

        Raises:
            FednetError: the command of the clients is missing, or the command of the server cannot be parsed.
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
        """Return the command of a device or of the server, and the environment variables for the command."""
        role, command = ("server", self.server) if device == SERVER else ("client", self.client)
        known = {"server": address(SERVER_NODE), "device": str(device), "devices": str(devices), "role": role}
        words = list(command)
        for name, value in known.items():
            words = [word.replace(f"{{{name}}}", value) for word in words]
        return words, {f"FEDNET_{name.upper()}": value for name, value in known.items()}


@dataclass(frozen=True)
class LiveOptions:
    """Options of a live run that are not in the scenario.

    Attributes:
        latency_s: one-way delay of the core network in s, in addition to the time on the air; None for half of the
            round-trip time of the scenario's transport, or 0.0005 s if the transport has none.
        queue_byte: capacity of the queue of each link, in bytes.
        hold_s: time in s for which a link stays active after its queue became empty.
        tcp: congestion control of TCP; None for the host's default.
        boot_s: maximum time in s until the server listens at a TCP port.
    """

    latency_s: float | None = None
    queue_byte: int = 262_144
    hold_s: float = 0.005
    tcp: str | None = None
    boot_s: float = 60.0

    def way_s(self, transport: Transport) -> float:
        """Return the one-way delay in s, in addition to the time on the air, for a scenario with this transport."""
        if self.latency_s is not None:
            return self.latency_s
        return transport.rtt_s / 2 if isinstance(transport, Tcp) else _WAY_S


def beneath(scenario: Scenario) -> Scenario:
    """Return the scenario without its transport and session, because programs in live runs use real connections."""
    update = {"transport": Transport(), "session": Session()}
    return scenario.model_copy(update={"network": scenario.network.model_copy(update=update)})


def unfit(scenario: Scenario) -> Iterator[Problem]:
    """Yield the key path and the problem of each setting that live runs do not support."""
    if scenario.devices.count > MOST_DEVICES:
        what = f"each device is a namespace of this machine, got {scenario.devices.count}; {MOST_DEVICES} are the most"
        yield ("devices", "count"), what
    if scenario.devices.battery is not None:
        yield ("devices", "battery"), "live devices have no batteries, got one; leave it out"
    if scenario.traffic:
        yield ("traffic",), "other users cannot be played live, got traffic; leave it out"
    if scenario.channel.rate.outage_sinr > 0:
        what = f"a rate law that loses whole messages in outage has no packets, got {scenario.channel.rate.kind}"
        yield ("channel", "rate"), f"{what}; choose one that adapts"
    transport = scenario.network.transport
    if transport.kind != "none" and not isinstance(transport, Tcp):
        what = f"messages are found in connections of TCP, got {transport.kind}"
        yield ("network", "transport"), f"{what}; choose tcp, or leave it out"
    for way in (scenario.network.uplink, scenario.network.downlink):
        for key, what in _unfit(way):
            yield ("network", way.DIRECTION, key), what


def _unfit(way: Uplink) -> Iterator[tuple[str, str]]:
    access = way.access
    why = {
        Lora: "frames of LoRa carry no TCP",
        NrGrants: "slots are granted to whole messages",
        OverTheAir: "sums over the air have no packets",
        Planned: "plans take whole messages in advance",
        SlottedAloha: "slots are decided for whole messages",
    }
    if type(access) in why:
        yield "access", f"{why[type(access)]}, got {access.kind}; choose tdma, ofdma, noma or full-reuse"
    if isinstance(access, Ofdma) and access.scheduler == "equal-finish":
        what = "parts that finish together take whole messages in advance, got equal-finish"
        yield "access", f"{what}; choose equal or proportional-fair"
    if way.trace is not None:
        yield "trace", f"recorded rates cannot be played live yet, got {way.trace.kind}; leave it out"
    if not isinstance(way.delay, NoDelay):
        yield "delay", f"packets have the delay --latency, got {way.delay.kind}; leave it out"
    if way.idle is not None:
        yield "idle", f"radio connections are released and set up for whole messages, got {way.idle.kind}; leave it out"
    if type(way.message_loss) is not NoLoss:
        yield "message_loss", f"TCP repeats lost packets, got {way.message_loss.kind}; leave it out"
