"""The settings of a network: its uplink, downlink and sidelink, and common settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator
from typing_extensions import override

from fednet_emu.component.component import Component
from fednet_emu.component.slot import Slot, kinds
from fednet_emu.compression import AnyCompression, Compression, NoCompression
from fednet_emu.errors import ScenarioError
from fednet_emu.network.access.base import Access
from fednet_emu.network.access.contention import Noma, Shared, SlottedAloha, SpatialReuse
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.backhaul import EdgeServers
from fednet_emu.network.cells import AnyCells, SingleCell
from fednet_emu.network.delay import AnyDelay, NoDelay
from fednet_emu.network.ethernet import Switch
from fednet_emu.network.faults import AnyLoss, NoLoss
from fednet_emu.network.links.asymmetry import Asymmetry
from fednet_emu.network.lora.access import Lora
from fednet_emu.network.nr.grants import NrGrants
from fednet_emu.network.nr.rrc import AnyIdle
from fednet_emu.network.over_the_air import OverTheAir
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.secure_aggregation import AnySecureAggregation
from fednet_emu.network.slices import Slice
from fednet_emu.network.topology import Topology
from fednet_emu.network.traces import AnyRateTraces
from fednet_emu.network.traffic.settings import NAMED
from fednet_emu.network.transport import AnySession, AnyTransport, NoTransport, Session
from fednet_emu.network.wifi.dcf import Dcf
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.overhead import AnyOverhead, NoOverhead
from fednet_emu.radio.receiver.combining import ONE_ANTENNA, AnyReception, SingleAntenna
from fednet_emu.radio.receiver.power_control import AnyPowerControl, FullPower

ACCESSES: dict[str, type[Access]] = kinds(
    *(Tdma, Ofdma, Noma, Shared, SlottedAloha, SpatialReuse, OverTheAir, Planned),
    *(NrGrants, Dcf, Switch, Lora),
)

AnyAccess = Annotated[Access, Slot("access", ACCESSES)]


class Uplink(Component):
    """From devices to the server."""

    DIRECTION: ClassVar[str] = "uplink"

    access: AnyAccess = Tdma()
    loss: AnyLoss = NoLoss()
    compression: AnyCompression = NoCompression()
    """How models are compressed: sent as the update since the model that both ends know, in fewer bits. Other messages
    of an algorithm are not compressed."""
    secure_aggregation: AnySecureAggregation | None = None
    """Messages and masks by which the server reads the sum of the uploads of a round only; null sends them openly."""
    trace: AnyRateTraces | None = None
    """Recorded rates, one trace per device, instead of channel and access scheme; null to use channel and access."""
    idle: AnyIdle | None = None
    """Release of the radio connection of a silent device, for messages in both directions; null keeps it."""
    delay: AnyDelay = NoDelay()
    timeout_s: float | None = Field(None, gt=0)
    """Timeout in s: a transfer that is on the air for longer is lost; waiting for a turn does not count. Null takes 20
    times the expected time of the message at the mean rate of its link, from 60 s to 3600 s; a message that is expected
    to take more than 3600 s is not sent, and lost as `unreachable`. With moving devices the link at the start counts,
    and a link that carries nothing waits for a better position until its timeout."""

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        way, algorithm = self.DIRECTION, scenario.algorithm
        if way == "uplink" and (conflict := self.access.uplink_conflict(scenario)):
            yield "access", conflict
        if not isinstance(self.compression, NoCompression) and f"{way}-compression" not in algorithm.uses:
            what = f"the algorithm {algorithm.kind} has nothing to compress on the {way}, no update since a model"
            yield "compression", f"{what} that both ends know, got {self.compression.kind}; leave it out"
        if self.idle is not None and (self.access.only_sums or isinstance(self.access, Planned)):
            what = "who sends when is fixed before devices are connected"
            yield "idle", f"{what}, got {self.idle.kind} with access: {self.access.kind}; leave one out"

    @property
    def broadcasts(self) -> bool:
        """Whether the same payload for several receivers is sent once."""
        return False

    @field_validator("access")
    @classmethod
    def _goes_this_way(cls, access: Access) -> Access:
        if cls.DIRECTION not in access.DIRECTIONS:
            others = [kind for kind, known in ACCESSES.items() if cls.DIRECTION in known.DIRECTIONS]
            raise ValueError(f"is not for a {cls.DIRECTION}, got {access.kind}; choose {', '.join(others)}")
        return access


class Downlink(Uplink):
    """From the server to devices."""

    DIRECTION: ClassVar[str] = "downlink"

    idle: None = None
    """The setting of the uplink holds for both directions."""
    secure_aggregation: None = None
    """Sums are for the uplink."""
    mode: Literal["broadcast", "unicast"] = "broadcast"
    """Sending the same payload to several devices in one instant: `broadcast` uses one transmission, as long as the
    worst receiver needs; `unicast` uses one transmission per device."""

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        if self.broadcasts and not self.access.multicasts:
            what = f"acknowledged frames have one receiver, got broadcast with {self.access.kind}"
            yield "mode", f"{what}; set mode: unicast, or choose another access"

    @property
    @override
    def broadcasts(self) -> bool:
        return self.mode == "broadcast"


class Sidelink(Downlink):
    """From device to device, in a separate band."""

    DIRECTION: ClassVar[str] = "sidelink"

    channel: Channel
    trace: None = None
    """Sidelinks have no recorded rates."""
    topology: Topology | None = None
    """Which devices send to which, for algorithms that take this graph from the network; null for no graph."""
    asymmetry: Asymmetry = Asymmetry()
    """Differences between the two directions of a link, in addition to their independent fading."""

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from scenario.unless_used("sidelink", "never sends from device to device", "a sidelink")

    @field_validator("channel")
    @classmethod
    def _idle_once(cls, channel: Channel) -> Channel:
        if channel.device.idle_w:
            what = (
                f"device.idle_w: a device idles with the power that channel.device has, got {channel.device.idle_w:g}"
            )
            raise ValueError(f"{what} for its sidelink; leave it out, or give it there")
        return channel

    @field_validator("compression")
    @classmethod
    def _whole(cls, compression: Compression) -> Compression:
        if type(compression) is not NoCompression:
            kind = compression.kind
            raise ValueError(f"is for uplink and downlink, got {kind}; leave it out, sidelinks send everything whole")
        return compression


class NetworkSettings(Component):
    """Settings of the bands and their use."""

    uplink: Uplink = Uplink()
    downlink: Downlink = Downlink()
    sidelink: Sidelink | None = None
    cells: AnyCells = SingleCell()
    """Positions of the base stations."""
    edges: EdgeServers | None = None
    """Edge servers, one in each base station, and the backhaul between them and the cloud, for algorithms that average
    there first; null takes the defaults for these."""
    power_control: AnyPowerControl = FullPower()
    """How devices choose their uplink power, each from its own link; downlink and sidelink use full power."""
    reception: AnyReception = ONE_ANTENNA
    """Combining of the signals of a base station's antennas on the uplink; the downlink has one antenna."""
    overhead: AnyOverhead = NoOverhead()
    """Header bits that are added to each payload."""
    transport: AnyTransport = NoTransport()
    """The transport protocol from end to end, instead of `overhead: packets`: its headers, its handshakes, the
    gaps in which it waits for acknowledgements, and the wired part of the path."""
    session: AnySession = Session()
    """The session above the transport: framing, further handshakes, and the software's time for each message."""
    movement_s: float = Field(1.0, gt=0)
    """Period of movement in s: with moving devices, links are recomputed after each period, and transfers on the air
    continue at the rate of their new link. A link is computed only when used."""
    slices: dict[Annotated[str, Field(pattern=NAMED)], Slice] = Field(default_factory=dict)
    """Slices of the bands that other users share, by name: the federation is in `fl`, and traffic in `others` unless it
    names another slice. Without slices all transmissions have equal parts."""
    handover: Literal["between-transfers", "during"] = "between-transfers"
    """When a device that moves changes to the strongest cell. between-transfers: a transfer stays in its cell to its
    end, and later requests of the device until then use the same cell. during: transfers continue in the new cell from
    the next period of movement on, without a gap, and the table `handovers` has a row for each; a device changes cells
    only after the end of a broadcast to it. For access schemes without turns."""

    @field_validator("power_control", mode="before")
    @classmethod
    def _has_another_name(cls, given: Any) -> Any:
        if "foschini-miljanic" in (given, given.get("kind") if isinstance(given, Mapping) else None):
            raise ValueError(
                "kind: each sender aims at an SNR over noise alone, got foschini-miljanic, which no kind is called; "
                "write {kind: target-snr, target_snr_db: ...}"
            )
        return given

    @override
    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        access = self.uplink.access
        if access.only_sums:
            for key, what in self._more_than_sums():
                yield key, f"{what}; leave it out, or choose another access than {access.kind}"
        if self.handover == "during" and self.cells.count > 1:
            for what in self._not_during(scenario.algorithm):
                yield "handover", f"{what} set handover: between-transfers"
        if not isinstance(self.reception, SingleAntenna):
            for what in self._not_with_antennas(scenario.devices.count, scenario.channel):
                yield "reception", what

    def _not_during(self, algorithm: Any) -> Iterator[str]:
        """Find settings that cannot be combined with handovers during transfers."""
        for way in (self.uplink, self.downlink):
            if way.access.capacity is not None:
                got = f"during with the turns of network.{way.DIRECTION}.access {way.access.kind}"
                remedy = "choose ofdma without subchannels there, or"
                yield f"a transfer would have to queue again in its new cell, got {got}; {remedy}"
        if "edges" in algorithm.uses:
            yield f"an upload belongs to the edge server where it began, got during with {algorithm.kind};"

    def _not_with_antennas(self, devices: int, channel: Channel) -> Iterator[str]:
        """Find settings that cannot be combined with several antennas of the base stations."""
        access, reception = self.uplink.access, self.reception
        if conflict := access.conflict_with_antennas(reception):
            yield conflict
        if self.uplink.trace is not None:
            what = "recorded rates belong to one receiver"
            yield f"{what}, got {reception.kind}; leave it out"
        most = min(access.capacity or devices, devices) if access.overlapping else 1
        if reception.branches(most) < 1:
            what = f"the antennas cannot null all senders of a cell, got {reception.antennas} for {most}"
            yield f"{what}; give more, or network.uplink.access max_senders: {reception.antennas}"
        if most > 1 and reception.NULLS and channel.medium_rate() != channel.block_rate:
            what = f"the law of the gains changes with the number of senders, got {reception.kind}"
            means = "long_transfers: ergodic" if channel.long_transfers == "ergodic" else "fading.delay_spread_s"
            remedy = "set channel.long_transfers: walk, without channel.fading.delay_spread_s, or choose mrc"
            yield f"{what} with {means}; {remedy}"
        try:
            channel.fading.combined(reception.antennas)
        except ScenarioError as problem:
            yield str(problem)

    def _more_than_sums(self) -> Iterator[tuple[str, str]]:
        """Find settings that need single uploads, though the server receives only sums: (key, error)."""
        up = self.uplink
        plain = {
            "uplink.loss": (up.loss, NoLoss, "no single packet can be lost"),
            "uplink.compression": (up.compression, NoCompression, "every entry is an analogue symbol"),
            "power_control": (self.power_control, FullPower, "devices invert their channels"),
            "cells": (self.cells, SingleCell, "there is one server to send to"),
            "reception": (self.reception, SingleAntenna, "signals add up at one antenna"),
        }
        for key, (setting, due, why) in plain.items():
            if type(setting) is not due:
                yield key, f"{why}, got {setting.kind}"
        if up.trace is not None:
            yield "uplink.trace", "signals add up on a channel, got recorded rates"

    def losses(self, channel: Channel) -> Iterator[str]:
        """List the settings by which messages to and from the server may be lost, as `key: value`.

        Not included: links that are too weak, and transfers that take longer than `timeout_s`.
        """
        access = self.uplink.access
        if isinstance(access, Planned) and access.planner.loses:
            yield f"network.uplink.access.planner: {access.planner.kind}"
        for way in (self.uplink, self.downlink):
            if not isinstance(way.loss, NoLoss):
                yield f"network.{way.DIRECTION}.loss: {way.loss.kind}"
        if self.session.refuses(self.transport):
            yield f"network.session: {self.session.kind} that never connects"
        rated = any(way.access.law(channel.usable_hz) is None for way in (self.uplink, self.downlink))
        if rated and channel.rate.outage_sinr > 0:
            yield f"channel.rate: {channel.rate.kind} that loses in outage"
