"""A second emulator of one medium: plain, slow and exact; it shares no line with the project.

Times are integers of nanoseconds; everything else is fractions. At every instant that matters all is worked out from
scratch: ends, requests and turns, until nothing changes; then everybody's rate. The next instant is the earliest end,
edge of a fading block or slot, timeout, or line of the script.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from .script import (
    NEVER_NS,
    NOTHING,
    ONE,
    Burst,
    Cancel,
    Draw,
    Gain,
    Handover,
    Leg,
    Row,
    Script,
    Send,
    World,
    as_double,
    parts_of,
)

NS_PER_S = 10**9


class Emulator:
    """Plays a script."""

    def __init__(self, world: World, script: Script, gain: Gain, draw: Draw) -> None:
        self.world, self.script, self.gain, self.draw = world, script, gain, draw
        self.now_ns = 0
        self.queue, self.air = list[Burst](), list[Burst]()
        self.senders: dict[int, Fraction] = {}  # power of radios on the air, in the order of their starts
        self.changed = False  # who is on the air, since the band was dealt out
        self.rows, self.handovers = list[Row](), list[Handover]()

    def play(self) -> list[Row]:
        """The books, when all is over."""
        times = sorted({line.at_ns for line in self.script})
        while times or self.air:
            self.flow(min([*self.next_ns(), *times[:1]]))
            self.ends()
            self.hand_over()
            if times and times[0] == self.now_ns:
                times.pop(0)
                self.ask()
            self.settle()
            for line in self.script:
                if isinstance(line, Cancel) and line.at_ns == self.now_ns:
                    self.cancel(line)
                    self.settle()
        return self.rows

    def settle(self) -> None:
        """Ends and turns, until nothing changes."""
        self.rate()
        while self.ends() + self.turns():
            self.rate()

    def ends(self) -> int:
        """Take off the bursts that nobody waits for; how many."""
        ended = [burst for burst in self.air if all(leg.is_done(self.now_ns) for leg in burst.legs)]
        for burst in ended:
            self.air.remove(burst)
            self.book(burst, burst.legs)
            self.fall_silent(burst.radio)
        self.changed |= bool(ended)
        return len(ended)

    def fall_silent(self, radio: int) -> None:
        """Forget a sender that has nothing on the air any more."""
        if all(other.radio != radio for other in self.air):
            del self.senders[radio]

    def hand_over(self) -> None:
        """Let devices without a broadcast go on in their new cells, the last of all there; senders keep power."""
        world, period = self.world, self.now_ns // self.world.period_ns
        if not world.during or self.now_ns % world.period_ns:
            return
        cells = world.serving[period % len(world.serving)]
        held = {leg.receiver for burst in self.air for leg in burst.legs if len(burst.legs) > 1}
        moved = [(max(burst.send.sender, burst.legs[0].receiver), burst) for burst in self.air if len(burst.legs) == 1]
        moved = [(device, burst) for device, burst in moved if device not in held and cells[device] != burst.cell]
        powers = [self.senders[burst.radio] for _, burst in moved]
        for device, burst in moved:
            self.handovers.append(Handover(self.now_ns, burst.line, device, burst.cell, cells[device]))
            self.air.remove(burst)
            burst.spent_j, burst.spent_s = self.energy_j(burst), NOTHING
            self.fall_silent(burst.radio)
        for (device, burst), power in zip(moved, powers, strict=True):
            burst.cell, leg = cells[device], burst.legs[0]
            burst.radio, leg.radio = (end if end >= 0 else -1 - 2 * burst.cell for end in (burst.radio, leg.radio))
            self.senders.setdefault(burst.radio, power)
            self.air.append(burst)

    def energy_j(self, burst: Burst) -> Fraction:
        """What a burst has drawn until now."""
        if burst.started_ns == NEVER_NS:
            return NOTHING
        drawn_w = self.world.full_w * self.senders[burst.radio] + self.world.circuit_w
        return burst.spent_j + drawn_w * burst.spent_s

    def ask(self) -> None:
        """Queue the requests of this instant by sender and receiver; each cell has its own part of a broadcast."""
        world, bursts, period = self.world, {}, self.now_ns // self.world.period_ns
        cells = world.serving[period % len(world.serving)]
        sends = [(n, s) for n, s in enumerate(self.script) if isinstance(s, Send) and s.at_ns == self.now_ns]
        asked = [(send.sender, receiver, number, send) for number, send in sends for receiver in send.receivers]
        for *ends, number, send in sorted(asked, key=lambda ask: ask[:3]):
            cell = self.cell_of(max(ends), cells, bursts.values()) if world.cells > 1 else 0
            sender, receiver = (end if end >= 0 else -1 - 2 * cell for end in ends)
            burst = bursts.setdefault((number, cell), Burst(number, send, sender, cell, []))
            burst.legs.append(Leg(ends[1], receiver, Fraction(send.size_bit)))
            burst.asked |= {sender, receiver}
        self.queue += bursts.values()

    def cell_of(self, device: int, cells: tuple[int, ...], asked: Iterable[Burst]) -> int:
        """That of a device's transfers which wait or are under way, so that it stays there; else whose it is now."""
        there = [burst for burst in [*self.air, *self.queue, *asked] if device in burst.ends]
        return there[0].cell if there else cells[device]

    def turns(self) -> int:
        """Start whoever may, in the order of requests; how many."""
        return sum(self.start(burst) for burst in [*self.queue] if self.may_start(burst))

    def may_start(self, burst: Burst) -> bool:
        """Whether there is a place and, in clusters, none of its ends takes part in another transmission."""
        if self.world.access == "reuse" and not all(burst.asked.isdisjoint(other.ends) for other in self.air):
            return False
        taken = sum((other.cell, other.send.cluster) == (burst.cell, burst.send.cluster) for other in self.air)
        return self.world.places is None or taken < self.world.places

    def start(self, burst: Burst) -> bool:
        """Put a burst on the air for those who are there; False if nobody is."""
        self.queue.remove(burst)
        for leg in [*burst.legs]:
            leg.until_ns = self.now_ns + self.world.timeout_ns
            leaves_ns = min(self.world.leaves_ns(end, self.now_ns) for end in (burst.send.sender, leg.receiver))
            if leaves_ns < leg.until_ns:
                leg.until_ns, leg.reason = leaves_ns, "left"
            if leaves_ns <= self.now_ns:
                leg.cancelled = "away"
                burst.legs.remove(leg)
                self.book(burst, [leg])
        if burst.legs:
            burst.started_ns, self.changed = self.now_ns, True
            self.air.append(burst)
            self.senders.setdefault(burst.radio, burst.send.power)
        return bool(burst.legs)

    def cancel(self, line: Cancel) -> None:
        """Give legs up: those that wait leave the queue, those on the air are no longer waited for."""
        for burst in [*self.queue, *self.air]:
            for leg in [leg for leg in burst.legs if (burst.line, leg.receiver) in line.legs and not leg.cancelled]:
                leg.cancelled, self.changed = "deadline", True
                if burst in self.queue:
                    burst.legs.remove(leg)
                    self.book(burst, [leg])
        self.queue = [burst for burst in self.queue if burst.legs]

    def book(self, burst: Burst, legs: list[Leg]) -> None:
        """Write a row."""
        transmitted_bit = max(burst.send.size_bit - leg.left_bit for leg in legs)
        fates = tuple((leg.receiver, leg.fate) for leg in legs)
        cell = burst.send.cluster if self.world.access == "reuse" else burst.cell
        self.rows.append(
            Row(burst.line, burst.started_ns, self.now_ns, transmitted_bit, self.energy_j(burst), fates, cell)
        )

    def next_ns(self) -> list[float]:
        """When something may change next."""
        legs = [leg for burst in self.air for leg in burst.legs if not leg.is_done(self.now_ns)]
        times = [leg.until_ns for leg in legs]
        times += [self.now_ns + ceil(leg.left_bit * NS_PER_S / leg.bps) for leg in legs if leg.bps]
        block_ns = self.world.slot_ns or self.world.coherence_ns
        edges_ns = [block_ns, self.world.period_ns if self.world.moves else None]
        return times + [(self.now_ns // each + 1) * each for each in edges_ns if legs and each]

    def flow(self, until_ns: int) -> None:
        """Let bits and energy flow until an instant."""
        flow_s, law = Fraction(until_ns - self.now_ns, NS_PER_S), self.world.law
        for burst in self.air:
            burst.spent_s += burst.power * flow_s
            for leg in burst.legs:
                if flow_s and not leg.is_done(self.now_ns):
                    leg.outage |= law.loses and leg.carries and leg.sinr < law.lowest
                    leg.left_bit = max(leg.left_bit - leg.bps * flow_s, NOTHING)
                self.changed |= bool(flow_s) and leg.until_ns == until_ns
        self.changed |= self.world.moves and not until_ns % self.world.period_ns
        self.now_ns = until_ns

    def rate(self) -> None:
        """Work out everybody's power, SINR and rate; in the middle of a slot only who has no hope."""
        world = self.world
        for burst in self.air:
            burst.part = Fraction(1, sum(other.radio == burst.radio for other in self.air))
        self.deal_out()
        for burst in self.air:
            for leg in burst.legs:
                clear = as_double(self.mean(burst, leg, burst.radio) * world.peak * burst.part / burst.share)
                hopeless = clear < self.world.threshold or not world.bps(clear, world.hertz * burst.share)
                leg.dead = hopeless and not world.moves  # who moves may come back
        if world.slot_ns and self.now_ns % world.slot_ns:
            return
        for burst in self.air:
            burst.power = self.power(burst)
        for burst in self.air:
            for leg in burst.legs:
                leg.sinr, leg.carries = self.hear(burst, leg)
                leg.bps = world.bps(leg.sinr, world.hertz * burst.share) if leg.carries else NOTHING

    def mean(self, burst: Burst, leg: Leg, radio: int) -> Fraction:
        """SNR of a sender at a leg's receiver in this period of movement, without fading."""
        snr = self.world.snr[radio, leg.radio]
        return snr[self.now_ns // self.world.period_ns % len(snr)] * self.senders[radio]

    def heard(self, burst: Burst, leg: Leg, radio: int) -> Fraction:
        """SNR of a sender at a leg's receiver in this block."""
        fades = self.world.coherence_ns
        gain = self.gain((radio, leg.radio), self.now_ns // fades) if fades else ONE
        return self.mean(burst, leg, radio) * gain

    def own(self, burst: Burst, leg: Leg) -> Fraction:
        """SINR of a leg if nobody disturbed it: its part of the power over the noise in its share of the band."""
        return self.heard(burst, leg, burst.radio) * burst.part / burst.share

    def hear(self, burst: Burst, leg: Leg) -> tuple[Fraction, bool]:
        """SINR of a leg, and whether it carries bits."""
        world = self.world
        together = world.access in {"shared", "slotted-aloha"} or (world.access == "reuse" and world.interference)
        others = [other for other in self.air if other.radio != burst.radio]
        noise = ONE + sum(
            self.heard(burst, leg, other.radio) * other.power
            for other in others
            if other.radio != leg.radio and (together or other.cell != burst.cell)
        )
        deaf = together and any(other.radio == leg.radio and other.power for other in others)
        if world.access == "noma":
            return self.decode(burst, leg, noise)
        sinr = as_double(self.own(burst, leg) / noise)
        return sinr, bool(burst.power) and not deaf and sinr >= self.world.threshold

    def decode(self, burst: Burst, leg: Leg, noise: Fraction) -> tuple[Fraction, bool]:
        """SINR of a leg when those before it, the stronger ones, have been decoded or have not, and whether it is."""
        cell = {other.radio for other in self.air if other.cell == burst.cell}
        heard = {radio: self.heard(burst, leg, radio) for radio in self.senders if radio in cell}
        below, decoded = noise + sum(heard.values()), True
        for radio in sorted(heard, key=heard.__getitem__, reverse=True):
            below -= heard[radio]
            sinr = as_double(heard[radio] / below)
            decoded &= sinr >= self.world.threshold
            if radio == burst.radio:
                break
            below += heard[radio] * (Fraction(self.world.residual) if decoded else 1)
        return sinr, decoded

    def slice(self, bursts: list[Burst]) -> None:
        """Give each slice its part, and its bursts equal parts of that; without a part they are silent."""
        rules = self.world.slices
        of = {burst.line: burst.line % len(rules) for burst in bursts}
        parts = parts_of(rules, set(of.values()))
        for burst in bursts:
            own = parts[of[burst.line]] / [of[other.line] for other in bursts].count(of[burst.line])
            burst.silent = not own
            burst.share = own or Fraction(1, len(bursts))

    def power(self, burst: Burst) -> Fraction:
        """Part of its sender's power that a burst has in this block or slot."""
        world, cell = self.world, [other for other in self.air if other.cell == burst.cell]
        if burst.silent:
            return NOTHING
        if world.access == "slotted-aloha":
            probability = Fraction(world.probability or 0) or Fraction(1, len({other.radio for other in cell}))
            return burst.part if self.draw(burst.radio, self.now_ns // world.slot_ns) < probability else NOTHING
        if world.scheduler == "proportional-fair" and world.coherence_ns:
            return ONE if burst is max(cell, key=self.luck) else NOTHING
        return burst.part

    def luck(self, burst: Burst) -> Fraction:
        """The gain of a burst over its mean, the least of its receivers'."""
        means = [(self.mean(burst, leg, burst.radio), leg) for leg in burst.there(self.now_ns)]
        return min(self.heard(burst, leg, burst.radio) / mean if mean else NOTHING for mean, leg in means)

    def deal_out(self) -> None:
        """Give everybody a share of the band; shares that are to end together hold until somebody starts or ends."""
        world, law, cells = self.world, self.world.law, {burst.cell for burst in self.air}
        for bursts in ([burst for burst in self.air if burst.cell == cell] for cell in cells):
            for burst in bursts:
                if world.access != "ofdma":
                    burst.share = ONE if world.access == "tdma" else burst.part
                elif world.scheduler == "proportional-fair" and world.coherence_ns:
                    burst.part = burst.share = ONE
                elif world.scheduler != "equal-finish" or law.kind == "fixed":
                    burst.share = Fraction(1, world.places if world.fixed_parts else len(bursts))
            if world.slices and world.access == "ofdma":
                self.slice(bursts)
            if world.scheduler == "equal-finish" and law.kind == "root" and self.changed:
                snr = [
                    min(self.mean(burst, leg, burst.radio) for leg in burst.there(self.now_ns)) * burst.part
                    for burst in bursts
                ]
                left_bit = [max(leg.left_bit for leg in burst.there(self.now_ns)) for burst in bursts]
                for burst, share in zip(bursts, law.end_together(snr, left_bit), strict=True):
                    burst.share = share
        self.changed = False
