"""Plays a script on the project's medium: all that the second emulator's tests know of the project is here."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from pydantic import Field
from simpy.events import NORMAL

from fednet_emu.arrays import Array, IntArray, Keys, Mask
from fednet_emu.devices.availability import Presence, Windows
from fednet_emu.kernel.clock import COLLECT, FOREVER_NS, Clock
from fednet_emu.kernel.streams import mix, mixes, uniform
from fednet_emu.network.access.base import Access, Use
from fednet_emu.network.access.contention import FullReuse, Noma, SlottedAloha, SpatialReuse
from fednet_emu.network.access.orthogonal import Ofdma, Tdma
from fednet_emu.network.air.shared import SharedAir
from fednet_emu.network.air.transfer import Message
from fednet_emu.network.links.links import Links
from fednet_emu.network.medium.loads import Radios
from fednet_emu.network.slices import Slice, Sliced, Slices
from fednet_emu.radio.channel import Terminal
from fednet_emu.radio.fading import Fading, NoFading, Rayleigh
from fednet_emu.radio.rates.base import RateLaw
from fednet_emu.radio.rates.narrowing import narrowed
from fednet_emu.radio.rates.shannon import FixedRate, Shannon
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.reasons import REASONS
from tests.network.media import medium_of

from .script import Cancel, Handover, Law, Row, Script, Send, World

FADING_KEY, ACCESS_KEY, FIRST_RADIO = 0x5EED, 0xACCE55, 16
GAINS = (0.0, 0.25, 1.0, 1.0, 2.0, 4.0)


class TableFading(Fading):
    """A gain out of a few, each as likely; products with them are exact, and equal gains are frequent."""

    kind = "table"
    coherence_s: float = Field(gt=0)

    def gain(self, uniform: float, los: bool = False) -> float:
        """The gain in this place of the table."""
        return GAINS[int(uniform * len(GAINS))]

    def gains(self, uniform: Array, los: Mask | bool = False) -> Array:
        """The gains in these places of the table."""
        return np.array(GAINS)[(uniform * len(GAINS)).astype(np.int64)]

    def cdf(self, gain: Array, los: Mask | bool = False) -> Array:
        """How much of the table is not above each gain."""
        return np.searchsorted(np.array(GAINS), gain, side="right") / len(GAINS)


class RootLaw(RateLaw):
    """B sqrt(SINR), with which shares that end together have a closed form."""

    kind = "root"

    def rate_bps(self, sinr: float, bandwidth_hz: float) -> float:
        """Rate of one transmission."""
        return bandwidth_hz * math.sqrt(sinr)

    def rates_bps(self, sinr: Array, bandwidth_hz: Array | float) -> Array:
        """Rates of many transmissions."""
        return np.asarray(bandwidth_hz * np.sqrt(sinr))

    @property
    def min_sinr(self) -> float:
        """Every SINR carries some bits."""
        return 0.0


class TableLinks(Links):
    """The links of a world, as they are at the clock's time."""

    def __init__(self, world: World, clock: Clock) -> None:
        self._world, self._clock = world, clock

    @property
    def _period(self) -> int:
        return self._clock.now // self._world.period_ns

    def link(self, sender: int, receiver: int) -> tuple[float, int]:
        """The SNR of the table, and a key for each ordered pair."""
        known = self._world.snr[sender, receiver]
        return float(known[self._period % len(known)]), link_key((sender, receiver))

    def snrs(self, sender: IntArray, receiver: IntArray) -> Array:
        """From the table."""
        return np.asarray(np.vectorize(self.snr, otypes=[np.float64])(sender, receiver))

    def fading_keys(self, sender: IntArray, receiver: IntArray) -> Keys:
        """One for each ordered pair."""
        return mixes(mixes(FADING_KEY, np.asarray(sender) + FIRST_RADIO), np.asarray(receiver) + FIRST_RADIO)

    def until_ns(self) -> int:
        """The end of this period of movement, if there is another one."""
        return (self._period + 1) * self._world.period_ns if self._world.moves else FOREVER_NS

    def station_of(self, device: int) -> int:
        """The base station of a device's cell."""
        world = self._world
        return -1 - 2 * world.serving[self._period % len(world.serving)][device] if world.cells > 1 else -1


def link_key(link: tuple[int, int]) -> int:
    """Key of a link's fading."""
    return mix(mix(FADING_KEY, link[0] + FIRST_RADIO), link[1] + FIRST_RADIO)


def gain_of(world: World, link: tuple[int, int], block: int) -> Fraction:
    """Fading gain of a link in a block, drawn on its own."""
    draw = uniform(link_key(link), block)
    return Fraction(-math.log1p(-draw) if world.fading == "rayleigh" else GAINS[int(draw * len(GAINS))])


def draw_of(sender: int, slot: int) -> Fraction:
    """What a sender draws for a slot of random access."""
    return Fraction(uniform(mix(ACCESS_KEY, sender), slot))


class Play:
    """A script on the project's medium."""

    def __init__(self, world: World, script: Script) -> None:
        self.clock, self.ledger, self.script = Clock(), Ledger(), script
        windows = {device: [(a / 1e9, b / 1e9) for a, b in spans] for device, spans in world.windows.items()}
        presence = Presence(Windows.model_validate({"devices": windows}), 0, world.devices)
        circuit_w, efficiency = float(world.circuit_w), 1.0 / float(world.full_w)  # 30 dBm are 1 W
        radio = Terminal(
            tx_power_dbm=30.0, noise_figure_db=0, height_m=1, amplifier_efficiency=efficiency, circuit_w=circuit_w
        )
        access, law = access_of(world), law_of(world.law)
        if world.narrowest_hz is not None:
            law = narrowed(law, world.narrowest_hz)
        self.medium = medium_of(
            access,
            law,
            TableLinks(world, self.clock),
            world.devices,
            way=world.kind,
            clock=self.clock,
            ledger=self.ledger,
            presence=presence,
            fading=fading_of(world),
            key=ACCESS_KEY,
            multicast=world.kind != "uplink",
            timeout_s=world.timeout_ns / 1e9,
            radios=Radios(radio),
            cells=world.cells,
            hands_over=world.during,
            refit=self._sliced(world) if world.slices else lambda use: use,
            bandwidth_hz=float(world.hertz),
        )
        self.asked: dict[tuple[int, int], Any] = {}

    def _sliced(self, world: World) -> Callable[[Use], Use]:
        """The band in slices, by the number of the line of the script."""
        rules = {
            str(k): Slice(
                priority=rule.priority, weight=float(rule.weight), dedicated=float(rule.kept), min=float(rule.least),
                max=float(rule.most),
            )
            for k, rule in enumerate(world.slices)
        }  # fmt: skip
        access, links = access_of(world), TableLinks(world, self.clock)
        assert isinstance(access, Ofdma)

        def refit(use: Use) -> Use:
            slice_of = lambda transfer: transfer.number % len(rules)  # noqa: E731
            air = SharedAir(Sliced(access, Slices(rules)), use.band, links, world.cells, slice_of=slice_of)
            return use._replace(air=air)

        return refit

    def rows(self) -> list[Row]:
        """The books, when all is over."""
        for number, line in enumerate(self.script):
            if isinstance(line, Send):
                self.clock.call_at(line.at_ns, lambda _event, it=(number, line): self._send(*it), NORMAL)
            else:
                self.clock.call_at(line.at_ns, lambda _event, it=line: self._cancel(it), COLLECT)
        self.clock.run()
        self.medium.close()
        return rows_of(self.ledger)

    def handovers(self) -> list[Handover]:
        """Who has changed cells on the way, after `rows`."""
        names = ("simulated_ns", "value_id", "device", "from_cell", "to_cell")
        columns = (self.ledger.handovers.column(name).tolist() for name in names)
        return [Handover(*row) for row in zip(*columns, strict=True)]

    def _send(self, number: int, send: Send) -> None:
        payload = ("payload", number)
        for receiver in send.receivers:
            self.asked[number, receiver] = self.medium.send(
                send.sender,
                receiver,
                Message(payload, send.size_bit, number, number),
                cluster=send.cluster,
                power_part=float(send.power),
            )

    def _cancel(self, line: Cancel) -> None:
        for leg in line.legs:
            if leg in self.asked:
                self.medium.cancel(self.asked[leg], "deadline")


def rows_of(ledger: Ledger) -> list[Row]:
    """The ledger in the second emulator's form."""
    column = ledger.transfers.column
    several: dict[int, list[tuple[int, str]]] = {}
    for row, receiver, lost in zip(
        *map(ledger.receptions.column, ("transfer", "receiver", "loss_reason")), strict=True
    ):
        several.setdefault(int(row), []).append((int(receiver), REASONS[lost]))
    names = ("value_id", "started_ns", "ended_ns", "transmitted_bit", "energy_j", "receiver", "loss_reason", "cell")
    rows = []
    for row, values in enumerate(zip(*(column(name).tolist() for name in names), strict=True)):
        number, started_ns, ended_ns, transmitted_bit, energy_j, receiver, lost, cell = values
        fates = several.get(row, [(receiver, REASONS[lost])])
        rows.append(
            Row(number, started_ns, ended_ns, Fraction(transmitted_bit), Fraction(energy_j), tuple(fates), cell)
        )
    return rows


def access_of(world: World) -> Access:
    """The access scheme of a world."""
    threshold_db, places = world.threshold_db, world.places
    match world.access:
        case "tdma":
            return Tdma()
        case "ofdma":
            return Ofdma.model_validate({"subchannels": places, "scheduler": world.scheduler})
        case "noma":
            return Noma(sinr_threshold_db=threshold_db, residual=world.residual, max_senders=places)
        case "shared":
            return FullReuse(sinr_threshold_db=threshold_db, max_senders=places)
        case "slotted-aloha":
            assert world.slot_ns is not None
            assert threshold_db is not None
            return SlottedAloha(slot_s=world.slot_ns / 1e9, probability=world.probability, capture_db=threshold_db)
        case _:
            turns = "coloured" if world.coloured else "cluster"
            return SpatialReuse(turns=turns, interference=world.interference, sinr_threshold_db=threshold_db)


def law_of(law: Law) -> RateLaw:
    """The rate law of a world."""
    if law.kind == "fixed":
        lowest = {"threshold_db": law.lowest_db, "on_outage": "lose" if law.loses else "stall"}
        return FixedRate.model_validate({"bit_rate_bps": law.fixed_bps, **lowest})
    if law.kind == "root":
        return RootLaw()
    return Shannon(
        gap_db=law.gap_db,
        min_efficiency_bps_hz=law.lowest_bps_hz,
        max_efficiency_bps_hz=law.highest_bps_hz,
        max_repetitions=law.repetitions,
    )


def fading_of(world: World) -> Fading:
    """The fading of a world."""
    if world.coherence_ns is None:
        return NoFading()
    kind = Rayleigh if world.fading == "rayleigh" else TableFading
    return kind(coherence_s=world.coherence_ns / 1e9)
