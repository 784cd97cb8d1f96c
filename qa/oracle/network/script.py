"""What both emulators are given: a world, and a script of requests and cancellations. Plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

SERVER, NEVER_NS = -1, -1
CRUMB, HIGHEST_SINR = Fraction(1, 10**9), 10**14
"""Of shares that end together: the part of who has no use for any, and what no share is so narrow as to exceed."""
ONE, NOTHING = Fraction(1), Fraction(0)


class Send(NamedTuple):
    """Somebody asks for a transfer to one receiver, or for a broadcast to several."""

    at_ns: int
    sender: int
    receivers: tuple[int, ...]
    size_bit: int
    cluster: int = 0
    power: Fraction = Fraction(1)


class Cancel(NamedTuple):
    """After all else of an instant, legs (line of the script, receiver) are given up."""

    at_ns: int
    legs: tuple[tuple[int, int], ...]


Script = list[Send | Cancel]
Gain = Callable[[tuple[int, int], int], Fraction]  # fading gain of a link, (sender, receiver), in a block
Draw = Callable[[int, int], Fraction]  # draw of a sender in a slot


@dataclass(frozen=True)
class Law:
    """A rate law: `fixed`; `shannon` between two efficiencies; or `root`, B sqrt(SINR), whose shares are exact."""

    kind: str = "root"
    fixed_bps: int = 10**6
    lowest_db: float | None = None  # of the fixed rate
    loses: bool = False  # whether a block below that loses the transfer, or else carries nothing
    gap_db: float = 0.0
    lowest_bps_hz: float = 0.0
    repetitions: int = 8  # of a block at the lowest efficiency
    highest_bps_hz: float | None = None

    @property
    def lowest(self) -> float:
        """The lowest SINR of the fixed rate."""
        return ratio(self.lowest_db)

    @property
    def least(self) -> float:
        """The SINR of the lowest efficiency."""
        return ratio(self.gap_db) * math.expm1(self.lowest_bps_hz * math.log(2))

    def bps(self, sinr: Fraction, hertz: Fraction) -> Fraction:
        """The rate on all of these hertz."""
        if self.kind == "fixed":
            return Fraction(self.fixed_bps if self.loses or sinr >= self.lowest else 0)
        if self.kind == "root":
            return Fraction(float(hertz) * math.sqrt(sinr))
        if sinr < self.least:
            return Fraction(float(hertz) * self.lowest_bps_hz * float(sinr) / self.least) * self.repeats(sinr)
        bps_hz = math.log1p(float(sinr) / ratio(self.gap_db)) / math.log(2)
        return Fraction(float(hertz) * min(bps_hz, self.highest_bps_hz or math.inf))

    def repeats(self, sinr: Fraction) -> bool:
        """Whether so many copies as there may be reach the lowest efficiency."""
        return sinr >= self.least / self.repetitions

    def end_together(self, snr: list[Fraction], left_bit: list[Fraction]) -> list[Fraction]:
        """Shares of the band that end all together: as bits^2 / SNR where the rate is B sqrt(SNR share).

        None is so narrow that its SINR exceeds the highest one; who has or hears nothing gets a crumb.
        """
        ratios = {k: left_bit[k] ** 2 / snr[k] for k in range(len(snr)) if snr[k] and left_bit[k]}
        parts, rest, low = dict.fromkeys(range(len(snr)), CRUMB), ONE, [0]
        while ratios and low:
            parts |= {k: rest * ratios[k] / sum(ratios.values()) for k in ratios}
            low = [k for k in ratios if parts[k] < snr[k] / HIGHEST_SINR]
            parts |= {k: snr[k] / HIGHEST_SINR for k in low}
            rest -= sum(parts[k] for k in low)
            ratios = {k: ratios[k] for k in ratios if k not in low}
        return [part / sum(parts.values()) for part in parts.values()]


def as_double(sinr: Fraction) -> Fraction:
    """An SINR as it is held against thresholds: the nearest double."""
    return Fraction(float(sinr))


def ratio(level_db: float | None) -> float:
    """A level in dB as a ratio; 0 for none."""
    return 0.0 if level_db is None else 10.0 ** (level_db / 10.0)


class SliceRule(NamedTuple):
    """A slice of the band: its priority, its weight, and the parts kept for it, guaranteed to it, and its largest."""

    priority: int
    weight: Fraction
    kept: Fraction
    least: Fraction
    most: Fraction


def parts_of(rules: tuple[SliceRule, ...], sending: set[int]) -> dict[int, Fraction]:
    """Part of the band of each slice that sends: guarantees first, then by priority what is left, by halving t."""
    part = {k: max(rules[k].kept, rules[k].least) for k in sending}
    left = 1 - sum(rule.kept for k, rule in enumerate(rules) if k not in sending) - sum(part.values())
    for priority in sorted({rules[k].priority for k in sending}):
        level = [k for k in sorted(sending) if rules[k].priority == priority]
        floor = {k: part[k] for k in level}
        room = min(left + sum(floor.values()), sum(rules[k].most for k in level))

        def at(t: Fraction, floor: dict[int, Fraction] = floor) -> dict[int, Fraction]:
            return {k: min(max(rules[k].weight * t, floor[k]), rules[k].most) for k in floor}

        low, high = Fraction(0), max(rules[k].most / rules[k].weight for k in level)
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(at(middle).values()) < room else (low, middle)
        part |= at(high)
        left -= sum(part[k] - floor[k] for k in level)
    return {k: its if its > Fraction(1, 2**60) else NOTHING for k, its in part.items()}


@dataclass(frozen=True)
class World:
    """Everything but the script. A radio is a device's, by its number, or -1 - 2 c, the base station's of cell c."""

    kind: str  # uplink, downlink, sidelink
    access: str  # tdma, ofdma, noma, shared, slotted-aloha, reuse
    law: Law
    devices: int
    timeout_ns: int
    snr: Mapping[tuple[int, int], tuple[Fraction, ...]]  # mean SNR from radio to radio in each period, round and round
    period_ns: int = 10**6
    cells: int = 1
    serving: tuple[tuple[int, ...], ...] = ()  # cell of each device in each period, round and round
    fading: str = "none"
    during: bool = False  # whether devices take their transfers to other cells in the middle
    coherence_ns: int | None = None
    hertz: int = 10**6
    places: int | None = None  # for senders on the air of a cell or cluster
    scheduler: str = "equal"
    fixed_parts: bool = False  # of the band, one for each place
    threshold_db: float | None = None
    residual: float = 0.0
    slot_ns: int | None = None
    probability: float | None = None
    coloured: bool = False
    interference: bool = True
    slices: tuple[SliceRule, ...] = ()  # of the band; line n of the script is in slice n modulo their number
    narrowest_hz: int | None = None  # of the part of its band that a weak sender is granted; None for all of it
    full_w: Fraction = Fraction(2)  # drawn by the amplifier at full power
    circuit_w: Fraction = Fraction(1, 4)
    windows: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)  # of presence, [from, to) in ns

    @property
    def moves(self) -> bool:
        """Whether links change."""
        return any(len(snr) > 1 for snr in self.snr.values()) or len(self.serving) > 1

    @property
    def threshold(self) -> Fraction:
        """The SINR below which a block carries nothing."""
        return Fraction(ratio(self.threshold_db))

    @property
    def peak(self) -> Fraction:
        """The gain that fewer than one block in 10^8 exceeds."""
        best = {"none": 1.0, "rayleigh": -math.log(1e-8)}.get(self.fading, 4.0)
        return Fraction(best if self.coherence_ns else 1.0)

    def bps(self, sinr: Fraction, hertz: Fraction) -> Fraction:
        """The rate on a share of the band: below the lowest efficiency that one, on as many hertz as reach it."""
        law, least = self.law, self.law.least
        narrow_hz = self.narrowest_hz or hertz
        if narrow_hz < hertz and law.kind == "shannon" and sinr < least:
            granted_hz = float(hertz) * float(sinr) / least
            return Fraction(granted_hz * law.lowest_bps_hz * law.repeats(sinr * hertz / narrow_hz))
        return law.bps(sinr, hertz)

    def leaves_ns(self, device: int, now_ns: int) -> float:
        """When a device goes away; now, if it is away."""
        if device not in self.windows:
            return math.inf
        return next((until for since, until in self.windows[device] if since <= now_ns < until), now_ns)


class Row(NamedTuple):
    """Books: one burst, or one leg that never was on the air; `fates` says what became of each receiver.

    `cell` is the cluster where clusters send at the same time.
    """

    line: int
    started_ns: int
    ended_ns: int
    transmitted_bit: Fraction
    energy_j: Fraction
    fates: tuple[tuple[int, str], ...]
    cell: int


class Handover(NamedTuple):
    """Books: a transfer on the air that changes its cell."""

    at_ns: int
    line: int
    device: int
    left: int
    entered: int


@dataclass(eq=False)
class Leg:
    """A burst's way to one receiver."""

    receiver: int
    radio: int
    left_bit: Fraction
    until_ns: float = math.inf
    reason: str = "timeout"
    cancelled: str = ""
    outage: bool = False
    dead: bool = False
    carries: bool = False
    sinr: Fraction = NOTHING
    bps: Fraction = NOTHING

    @property
    def fate(self) -> str:
        """Why it is lost; empty when it has arrived."""
        missing = "unreachable" if self.dead else self.reason
        return self.cancelled or ("outage" if self.outage else missing if self.left_bit else "")

    def is_done(self, now_ns: int) -> bool:
        """Whether it is no longer waited for."""
        return bool(self.cancelled) or self.left_bit == 0 or self.until_ns <= now_ns or self.dead


@dataclass(eq=False)
class Burst:
    """What one sender radiates for one or more receivers."""

    line: int
    send: Send
    radio: int
    cell: int
    legs: list[Leg]
    asked: set[int] = field(default_factory=set)  # the radios that it was asked for, cancelled or not
    started_ns: int = NEVER_NS
    part: Fraction = ONE  # of its sender's power and band
    share: Fraction = ONE  # of the band
    silent: bool = False  # whether its slice has no part of the band
    power: Fraction = NOTHING  # part of its sender's power that it has at this moment
    spent_s: Fraction = NOTHING
    spent_j: Fraction = NOTHING  # in earlier cells

    @property
    def ends(self) -> set[int]:
        """The devices that take part."""
        return {self.radio, *(leg.radio for leg in self.legs)}

    def there(self, now_ns: int) -> list[Leg]:
        """The legs that are not given up; those that are through wait for the others."""
        return [leg for leg in self.legs if not leg.cancelled and leg.until_ns > now_ns] or self.legs
