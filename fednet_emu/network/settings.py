"""The settings of a network: uplink, downlink, sidelink, and settings that apply to all of them."""

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
from fednet_emu.network.access.contention import FullReuse, Noma, SlottedAloha, SpatialReuse
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.backhaul import EdgeServers
from fednet_emu.network.cells import AnyCells, SingleCell
from fednet_emu.network.delay import AnyDelay, NoDelay
from fednet_emu.network.ethernet import Ethernet
from fednet_emu.network.faults import AnyLoss, NoLoss
from fednet_emu.network.links.links import Asymmetry
from fednet_emu.network.lora import Lora
from fednet_emu.network.nr.grants import NrGrants
from fednet_emu.network.nr.rrc import AnyIdle
from fednet_emu.network.over_the_air import OverTheAir
from fednet_emu.network.planning.access import Planned
from fednet_emu.network.secure_aggregation import AnySecureAggregation
from fednet_emu.network.slices import Slice
from fednet_emu.network.topology import Topology
from fednet_emu.network.traces import AnyRateTraces
from fednet_emu.network.traffic.settings import NAMED
from fednet_emu.network.transport import AnySession, AnyTransport, Session, Transport
from fednet_emu.network.wifi import Dcf
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.overhead import AnyOverhead, NoOverhead
from fednet_emu.radio.receiver.combining import ONE_ANTENNA, AnyReception, SingleAntenna
from fednet_emu.radio.receiver.power_control import AnyPowerControl, FullPower

ACCESSES: dict[str, type[Access]] = kinds(
    *(Tdma, Ofdma, Noma, FullReuse, SlottedAloha, SpatialReuse, OverTheAir, Planned),
    *(NrGrants, Dcf, Ethernet, Lora),
)

AnyAccess = Annotated[Access, Slot("access", ACCESSES)]


class Uplink(Component):
    """Transmissions from devices to the server."""

    DIRECTION: ClassVar[str] = "uplink"

    access: AnyAccess = Tdma()
    message_loss: AnyLoss = NoLoss()
    compression: AnyCompression = NoCompression()
    """Compression of models. The sender compresses the difference between the new model and the last model that both
    sender and receiver have. Other messages of an algorithm are not compressed."""
    secure_aggregation: AnySecureAggregation | None = None
    """Secure aggregation, by which the server can read only the sum of a round's uploads; null for plain uploads."""
    trace: AnyRateTraces | None = None
    """Recorded rates, one trace per device, which replace the channel and the access scheme. If null, the channel and
    the access scheme determine the rates."""
    idle: AnyIdle | None = None
    """Rule for the release of the radio connections of idle devices, for uplink and downlink. null means that
    connections are never released."""
    delay: AnyDelay = NoDelay()
    timeout_s: float | None = Field(None, gt=0)
    """Maximum time on the air in s; a transfer that takes longer is lost. The time in the queue does not count. null
    means 20 times the expected duration at the mean rate of the link, but at least 60 s and at most 3600 s. In this
    case, a message whose expected duration exceeds 3600 s is not sent, and is lost for the reason `unreachable`. If
    devices move, the link at the start of the transfer determines the timeout, and a transfer at rate 0 waits until the
    device reaches a better position or until its timeout."""

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
        return False

    @field_validator("access")
    @classmethod
    def _goes_this_way(cls, access: Access) -> Access:
        if cls.DIRECTION not in access.DIRECTIONS:
            others = [kind for kind, known in ACCESSES.items() if cls.DIRECTION in known.DIRECTIONS]
            raise ValueError(f"is not for a {cls.DIRECTION}, got {access.kind}; choose {', '.join(others)}")
        return access


class Downlink(Uplink):
    """Transmissions from the server to devices."""

    DIRECTION: ClassVar[str] = "downlink"

    idle: None = None
    """Always null; the uplink's setting `idle` applies to both directions."""
    secure_aggregation: None = None
    """Always null; secure aggregation is only for the uplink."""
    mode: Literal["broadcast", "unicast"] = "broadcast"
    """How one payload is sent to several devices at the same time. broadcast: one transmission, which lasts as long as
    the receiver with the weakest signal needs. unicast: one transmission per device."""

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
    """Transmissions from device to device, in a separate band."""

    DIRECTION: ClassVar[str] = "sidelink"

    channel: Channel
    trace: None = None
    """Always null; sidelinks have no recorded rates."""
    topology: Topology | None = None
    """Graph whose edges determine which devices send to which other devices, for algorithms that need such a graph;
    null for no graph."""
    asymmetry: Asymmetry = Asymmetry()
    """Differences between the two directions of a link between devices. In any case, the fading of the two directions
    is independent."""

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
    """Settings of the network: frequency bands, base stations, transport, and slices."""

    uplink: Uplink = Uplink()
    downlink: Downlink = Downlink()
    sidelink: Sidelink | None = None
    cells: AnyCells = SingleCell()
    """Positions of the base stations, which all use the same band."""
    edge_servers: EdgeServers | None = None
    """Edge servers in the base stations, and their backhaul to the cloud, for algorithms that average models in edge
    servers first. null means edge servers with default settings for such algorithms."""
    power_control: AnyPowerControl = FullPower()
    """Rule by which each device sets its uplink transmit power, given its link; downlink and sidelink use full
    power."""
    reception: AnyReception = ONE_ANTENNA
    """Combination of the signals at a base station's antennas on the uplink; the downlink uses one antenna."""
    overhead: AnyOverhead = NoOverhead()
    """Header bits that are added to each payload."""
    transport: AnyTransport = Transport()
    """End-to-end transport protocol, with its headers, handshakes, waits for acknowledgements, and the wired part of
    the path. It cannot be combined with `overhead: packets`, because it has its own headers."""
    session: AnySession = Session()
    """Session layer above the transport protocol: framing of messages, additional handshakes, and software delays."""
    position_update_s: float = Field(1.0, gt=0)
    """Length of a movement period in s. If devices move, links are recomputed at the start of each period, and current
    transfers continue at the rate of the new link. A link is computed only if it is used."""
    slices: dict[Annotated[str, Field(pattern=NAMED)], Slice] = Field(default_factory=dict)
    """Network slices by name, for bands that the federation shares with other users. The federation uses the slice
    `fl`. A class of other users uses the slice `others`, unless the class names another slice. If no slices are
    defined, all transmissions have equal shares."""
    handover: Literal["between-transfers", "during"] = "between-transfers"
    """Time at which a moving device changes to the strongest cell. between-transfers: a device changes cells only while
    it has no current or waiting transfer. during: current transfers continue in the new cell from the next movement
    period on, without a gap, and each change is a row in the table `handovers`; during a broadcast, its receivers stay
    in their cells. `during` requires access schemes without turns."""

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
        for way in (self.uplink, self.downlink):
            if way.access.capacity is not None:
                got = f"during with the turns of network.{way.DIRECTION}.access {way.access.kind}"
                remedy = "choose ofdma without subchannels there, or"
                yield f"a transfer would have to queue again in its new cell, got {got}; {remedy}"
        if "edges" in algorithm.uses:
            yield f"an upload belongs to the edge server where it began, got during with {algorithm.kind};"

    def _not_with_antennas(self, devices: int, channel: Channel) -> Iterator[str]:
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
            means = "fading_model: ergodic" if channel.fading_model == "ergodic" else "fading.delay_spread_s"
            remedy = "set channel.fading_model: per-block, without channel.fading.delay_spread_s, or choose mrc"
            yield f"{what} with {means}; {remedy}"
        try:
            channel.fading.combined(reception.antennas)
        except ScenarioError as problem:
            yield str(problem)

    def _more_than_sums(self) -> Iterator[tuple[str, str]]:
        """Yield key and error message of each setting that is invalid if the server receives only sums of uploads."""
        up = self.uplink
        plain = {
            "uplink.message_loss": (up.message_loss, NoLoss, "no single packet can be lost"),
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
        """Yield the settings that may cause losses of messages to or from the server, as `key: value`.

        Losses due to weak links and due to `timeout_s` are not included.
        """
        access = self.uplink.access
        if isinstance(access, Planned) and access.planner.loses:
            yield f"network.uplink.access.planner: {access.planner.kind}"
        for way in (self.uplink, self.downlink):
            if not isinstance(way.message_loss, NoLoss):
                yield f"network.{way.DIRECTION}.message_loss: {way.message_loss.kind}"
        if self.session.refuses(self.transport):
            yield f"network.session: {self.session.kind} that never connects"
        rated = any(way.access.law(channel.usable_hz) is None for way in (self.uplink, self.downlink))
        if rated and channel.rate.outage_sinr > 0:
            yield f"channel.rate: {channel.rate.kind} that loses in outage"
