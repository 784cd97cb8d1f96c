"""A second emulator of whole rounds: plain, slow, from the definitions.

It has everything that a synchronous run meets: turns and parts of the band, planned parts, sums over the air,
batteries, edge servers and their backhaul, deadlines and departures. At every instant that matters, all that flows is
worked out from scratch: bits, computations, charges. Then whatever has ended ends, batteries get empty or are back,
waiting messages start, and processes go on, until nothing changes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterator
from fractions import Fraction
from typing import Any

from fednet_emu.scenario.model import Scenario

from ..network.script import SliceRule, parts_of
from .parts import Battery, Compute, Gather, Leg, Line, Message, Pause, Someone, Task
from .physics import MODEL_BIT, NEVER, NS, Physics, to_ns
from .plans import Grant, plan, sending
from .users import User

Steps = Generator[Any, Any, Any]


class Emulator:
    """One run of a scenario, and its books by table."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.physics, self.now_ns = scenario, Physics(scenario), 0
        self.books: dict[str, list[tuple[Any, ...]]] = {
            name: [] for name in ("transfers", "computes", "rounds", "backhaul", "flips", "plan", "bursts", "traffic")
        }
        given = scenario.network.slices
        self.slices = [*given, *(name for name in ("others", "fl") if name not in given)]
        self.rules = tuple(rule_of(given.get(name)) for name in self.slices)
        self.own_slice = self.slice_of("fl")
        everybody, battery = range(self.physics.n), scenario.devices.battery
        self.batteries = {k: Battery(self, k) for k in everybody if battery is not None}
        self.tasks, self.gathers = list[Task](), list[Gather]()
        self.asked, self.queue, self.air = list[list[Leg]](), list[list[Leg]](), list[list[Leg]]()
        self.computing, self.lines = dict[int, Compute](), dict[tuple[int, bool], Line]()
        self.sent, self.grants, self.round = Counter[Any](), dict[int, Grant](), 0
        access = scenario.network.uplink.access
        self.access, self.planner = access.kind, getattr(access, "planner", None)
        self.ended = "done"
        self.users, self.ending = list(self.everyone()), list[Leg]()

    def everyone(self) -> Iterator[User]:
        """The other users; a class with a place per file counts as one."""
        radio = self.physics.n
        for of, its in enumerate(self.scenario.traffic):
            for number in range(1 if its.place == "per-file" else its.users):
                yield User(self, its, of, number, radio + number)
            radio += its.users

    def slice_of(self, name: str) -> int:
        """The number of a slice."""
        return self.slices.index(name)

    def play(self) -> Emulator:
        """Until the last round has ended, or nobody can go on."""
        main = self.start(self.hierarchical() if self.scenario.algorithm.kind == "hier-favg" else self.flat())
        while not main.over:
            while self.go_on() or self.settle():
                pass
            if main.over or self.give_up():
                continue
            if self.stuck():
                self.ended = "deadlock"
                break
            self.flow(int(min([*self.instants(), *(battery.next_ns() for battery in self.batteries.values())])))
        return self

    def stuck(self) -> bool:
        """Whether nothing can change any more but charges, and nobody waits for one."""
        if min(self.instants(), default=NEVER) < NEVER:
            return False
        charged = self.scenario.devices.battery is not None and self.scenario.devices.battery.harvesting.mean_w > 0
        returning = any(self.physics.leaves_ns(k, self.now_ns) > self.now_ns for k in self.batteries)
        asking = any(isinstance(task.waits, Someone) for task in self.tasks)
        return not (charged and (self.computing or (asking and returning)))

    # ---- processes ---------------------------------------------------------------------------------------------------

    def start(self, steps: Steps) -> Task:
        """Start a process."""
        self.tasks.append(Task(steps))
        return self.tasks[-1]

    def go_on(self) -> bool:
        """Let every process go on as far as it can; whether any did."""
        moved = sum(task.step() for task in [*self.tasks])
        self.tasks = [task for task in self.tasks if not task.over]
        return moved > 0

    def gather(self, processes: Iterator[Steps], deadline_s: float | None) -> Gather:
        """Start processes, and wait for all of them or the deadline."""
        until_ns = NEVER if deadline_s is None else self.now_ns + to_ns(deadline_s)
        self.gathers.append(Gather([self.start(steps) for steps in processes], until_ns))
        return self.gathers[-1]

    def give_up(self) -> bool:
        """Stop what is late, after all else of the instant."""
        late = [gather for gather in self.gathers if gather.until_ns <= self.now_ns and not gather.over]
        for gather in late:
            gather.cancel("deadline")
        return bool(late)

    def there(self, k: int) -> bool:
        """Whether a device is present, and its battery is not empty."""
        battery = self.batteries.get(k)
        return self.physics.leaves_ns(k, self.now_ns) > self.now_ns and (battery is None or battery.on)

    def rounds(self) -> Iterator[int]:
        """The numbers of the rounds."""
        self.round = 0
        while self.round < self.scenario.stop.rounds:
            yield self.round
            self.round += 1

    def flat(self) -> Steps:
        """Federated averaging: invite, wait for the uploads, average."""
        deadline_s = self.scenario.algorithm.deadline_s
        for t in self.rounds():
            started_ns = self.books["rounds"][-1][1] if t else 0
            invited = yield Someone(self)
            if self.planner is not None:
                self.grants = plan(self.physics, self.planner, invited)
                invited = [k for k in invited if k in self.grants]
                self.books["plan"] += [(t + 1, k, grant.share, grant.part, grant.ends_s)
                                       for k, grant in self.grants.items()]  # fmt: skip
            if self.access == "over-the-air":
                fates = yield from self.together(invited, deadline_s)
            else:
                fates = yield self.gather((self.client(k, t) for k in invited), deadline_s)
            self.books["rounds"].append((started_ns, self.now_ns, len(invited), fates.count("")))

    def client(self, k: int, name: Any) -> Steps:
        """A device: receive the model, compute, send; its value is why it failed."""
        fate = (yield from self.receive_and_compute(k, name)) or (yield self.upload(k))
        return fate

    def receive_and_compute(self, k: int, name: Any) -> Steps:
        """A device until it is ready to send; the value is why it never is."""
        fate = yield self.ask(Leg(self, "downlink", -1, k, self.physics.message_bit), name)
        if not fate:
            yield Compute(self, k)
        return fate

    def upload(self, k: int) -> Leg:
        """Ask for an upload, as it was planned."""
        leg = Leg(self, "uplink", k, -1, self.physics.message_bit)
        leg.grant = self.grants.get(k)
        leg.part = leg.grant.part if leg.grant else 1.0
        return self.ask(leg, ("up", k))

    def together(self, invited: list[int], deadline_s: float | None) -> Steps:
        """All at once over the air, when the last one is ready or at the last moment before the deadline."""
        burst_s = self.physics.burst_s
        patience_s = None if deadline_s is None else (to_ns(deadline_s) - to_ns(burst_s)) / NS
        fates = yield self.gather((self.receive_and_compute(k, self.round) for k in invited), patience_s)
        ready = [k for k, fate in zip(invited, fates, strict=True) if not fate]
        if not ready:
            return fates
        burst = sending(self.physics, ready, self.now_ns)
        legs = {}
        for k in ready:
            leg = Leg(self, "uplink", k, -1, MODEL_BIT)
            leg.part, leg.slots_s = burst.part[k], burst_s
            legs[k] = self.ask(leg, ("burst", k))
            if burst.silent[k]:
                leg.cancel(burst.silent[k])
        reserved = Pause(self, burst_s)
        for k in ready:
            if not legs[k].over:
                yield legs[k]
        yield reserved
        sent = {k: leg.value for k, leg in legs.items()}
        summed = list(sent.values()).count("")
        self.books["bursts"].append((len(ready), summed, burst.snr if summed else math.nan))
        return [sent.get(k, fate) for k, fate in zip(invited, fates, strict=True)]

    def hierarchical(self) -> Steps:
        """HierFAVG: devices average in edge servers, and these in the cloud."""
        for _ in self.rounds():
            started_ns, self.invited = self.books["rounds"][-1][1] if self.round else 0, 0
            cohort = yield Someone(self)
            arrived = yield self.gather((self.edge(e, cohort) for e in range(len(self.physics.stations))), None)
            self.books["rounds"].append((started_ns, self.now_ns, self.invited, sum(arrived)))

    def edge(self, e: int, cohort: list[int]) -> Steps:
        """An edge server: the cloud's model, some rounds of its own, the update to the cloud."""
        algorithm, arrived = self.scenario.algorithm, 0
        if (yield from self.resent(e, up=False)):
            return 0
        for r in range(algorithm.edge_rounds):
            here = [k for k in cohort if self.physics.serving[k] == e]
            self.invited += len(here)
            name = (self.round, e, r)
            arrived += (yield self.gather((self.client(k, name) for k in here), algorithm.deadline_s)).count("")
        lost = arrived == 0 or (yield from self.resent(e, up=True))
        return 0 if lost else arrived

    def resent(self, e: int, *, up: bool) -> Steps:
        """A message on the backhaul, again while it is lost."""
        for _ in range(1 + self.scenario.algorithm.backhaul_retries):
            line = self.lines.setdefault((e, up), Line(self, e, up))
            lost = yield line.send(Message(self.physics.message_bit, self.now_ns))
            if not lost:
                return ""
        return "erased"

    # ---- the air -----------------------------------------------------------------------------------------------------

    def ask(self, leg: Leg, name: Any) -> Leg:
        """Ask for a message; those of one instant, name and cell are one broadcast."""
        leg.name = (leg.kind, name, leg.cell)
        together = [burst for burst in self.asked if burst[0].name == leg.name]
        (together[0] if together else self.asked.append([]) or self.asked[-1]).append(leg)
        return leg

    def settle(self) -> bool:
        """Ends, batteries, starts; whether anything has changed."""
        changed = sum(compute.end() for compute in [*self.computing.values()])
        changed += sum(self.end(burst) for burst in [*self.air])
        for leg in [leg for leg in self.ending if leg.over]:
            self.ending.remove(leg)
            leg.file.user.end(leg)
        changed += sum(user.arrive() for user in self.users)
        changed += sum(line.settle() for line in self.lines.values())
        changed += sum(self.switch(battery) for battery in self.batteries.values())
        self.queue += sorted(self.asked, key=lambda burst: min((leg.sender, leg.receiver) for leg in burst))
        self.asked = []
        self.queue.sort(key=self.level)
        return changed + sum(self.begin(burst) for burst in [*self.queue]) > 0

    def level(self, burst: list[Leg]) -> int:
        """Turns are by priority, and then in the order of the requests."""
        return self.rules[burst[0].slice].priority

    def end(self, burst: list[Leg]) -> bool:
        """Take a burst off the air when none of its legs is under way any more."""
        for leg in burst:
            dead = not self.bps(leg) and self.has_part(leg)
            if not leg.stopped and leg.left_bit > 0 and (leg.until_ns <= self.now_ns or dead):
                leg.stopped = leg.reason if leg.until_ns <= self.now_ns else "unreachable"
        if any(leg.left_bit > 0 and not leg.stopped for leg in burst):
            return False
        self.air.remove(burst)
        for leg in burst:
            leg.finish(leg.stopped or self.erased(leg))
        first, took_s = burst[0], (self.now_ns - burst[0].started_ns) / NS
        transmitted_bit = max(leg.size_bit - max(leg.left_bit, 0) for leg in burst)
        if first.file is not None:
            self.ending.append(first)
        else:
            energy_j = first.sent_j if self.users else first.drawn_w * took_s
            self.book(burst, transmitted_bit, energy_j, sum(leg.rx_energy_j for leg in burst))
        return True

    def erased(self, leg: Leg) -> str:
        """Whether a message that has come through is lost by chance."""
        link = (leg.kind, leg.sender, leg.receiver)
        error = leg.grant.error if leg.grant else 0.0
        lost = self.physics.erased(leg.kind, link[1:], self.sent[link], error)
        self.sent[link] += 1
        return "erased" if lost else ""

    def begin(self, burst: list[Leg]) -> bool:
        """Start a burst if it is its turn."""
        first = burst[0]
        taken = [other for other in self.air if (other[0].kind, other[0].cell) == (first.kind, first.cell)]
        turns = first.kind == "downlink" or self.access == "tdma" or getattr(self.planner, "kind", "") == "fedl"
        if turns and taken:
            return False
        self.queue.remove(burst)
        for leg in [*burst]:
            if leg.ended or not self.there(leg.device):
                burst.remove(leg)
                if not leg.ended:
                    leg.finish("away")
                    self.book([leg], 0.0, 0.0, 0.0)
        for leg in burst:
            leg.start()
        if burst:
            self.air.append(burst)
        return True

    def book(self, burst: list[Leg], transmitted_bit: float, energy_j: float, rx_energy_j: float) -> None:
        """Write a row about a burst, or a leg that never was on the air."""
        first, fates = burst[0], sorted((leg.receiver, leg.value) for leg in burst)
        row = (first.kind, first.sender, first.started_ns, self.now_ns, *fates, transmitted_bit, energy_j, rx_energy_j)
        row += (first.lost_s,) if self.users else ()
        self.books["transfers"].append(row)

    def bps(self, leg: Leg) -> float:
        """The rate of a leg among all that are on the air in its cell."""
        physics = self.physics
        if leg.slots_s:
            return leg.size_bit / leg.slots_s
        if leg.kind == "downlink":
            return physics.bps(physics.down_snr[leg.device])
        snr = physics.up_snr[leg.sender] * leg.part
        if self.access == "ofdma":
            share = self.share(leg, self.on_air(leg))
            return physics.bps(snr, share) if share else 0.0
        if leg.grant is not None:
            return physics.bps(snr / leg.grant.noise, leg.grant.share)
        return physics.bps(snr)

    def on_air(self, leg: Leg) -> list[Leg]:
        """All that is on the air in its band and cell."""
        return [burst[0] for burst in self.air if (burst[0].kind, burst[0].cell) == (leg.kind, leg.cell)]

    def share(self, leg: Leg, cell: list[Leg]) -> float:
        """Its part of a band that these divide."""
        if not self.scenario.network.slices:
            return 1 / len(cell)
        same = sum(other.slice == leg.slice for other in cell)
        return float(parts_of(self.rules, {other.slice for other in cell})[leg.slice]) / same

    def has_part(self, leg: Leg) -> bool:
        """Whether its slice has a part of the band, if the band is divided."""
        return self.access != "ofdma" or leg.kind == "downlink" or self.share(leg, self.on_air(leg)) > 0

    def loses(self, burst: list[Leg], *, waits: bool) -> float:
        """How much of each second a burst of the federation loses to files now."""
        cell = self.on_air(burst[0])
        own = [other for other in cell if other.file is None]
        if waits or burst[0].kind == "downlink" or self.access != "ofdma":
            return waits and len(cell) > len(own)
        return 1 - self.share(burst[0], cell) / self.share(burst[0], own)

    # ---- time --------------------------------------------------------------------------------------------------------

    def switch(self, battery: Battery) -> bool:
        """A battery gets empty, or its device is back."""
        if not battery.due():
            return False
        k, battery.on = battery.device, not battery.on
        self.books["flips"].append((k, self.now_ns, battery.on))
        for leg in (leg for burst in self.air for leg in burst if not battery.on):
            if k in (leg.sender, leg.receiver):
                leg.until_ns, leg.reason, leg.cut = self.now_ns, "empty", True
        if k in self.computing:
            self.computing[k].pause() if not battery.on else self.computing[k].resume()
        return True

    def instants(self) -> Iterator[float]:
        """When something may change next, but for the batteries."""
        for burst in self.air:
            for leg in burst:
                if leg.left_bit > 0 and not leg.stopped:
                    bps = self.bps(leg)
                    yield min(leg.until_ns, self.now_ns + max(to_ns(leg.left_bit / bps), 1) if bps else NEVER)
        yield from (compute.ends_ns for compute in self.computing.values())
        yield from (line.next_ns() for line in self.lines.values())
        yield from (gather.until_ns for gather in self.gathers if not gather.over)
        yield from (user.due_ns for user in self.users)
        yield from (leg.told_ns for leg in self.ending)
        yield from (task.waits.until_ns for task in self.tasks if isinstance(task.waits, Pause))
        legs = (task.waits for task in self.tasks if isinstance(task.waits, Leg))
        yield from (leg.told_ns for leg in legs if leg.ended)
        yield self.physics.returns_ns(self.now_ns)

    def flow(self, until_ns: int) -> None:
        """Let bits and energy flow until an instant."""
        flow_s = (until_ns - self.now_ns) / NS
        rates = {leg: self.bps(leg) for burst in self.air for leg in burst if not leg.stopped}
        for battery in self.batteries.values():
            battery.flow(until_ns)
        for bursts, waits in ((self.air, False), (self.queue, True)) if self.users else ():
            for burst in bursts:
                burst[0].lost_s += flow_s * self.loses(burst, waits=waits) if burst[0].file is None else 0.0
                burst[0].sent_j += 0.0 if waits or not self.bps(burst[0]) else burst[0].drawn_w * flow_s
        for burst in self.air:
            for leg in burst:
                leg.rx_energy_j += leg.receiving_w * flow_s
        for leg, bps in rates.items():
            leg.left_bit -= bps * flow_s
            if leg.left_bit < 1e-9 * bps * 2:  # less than what two nanoseconds carry
                leg.left_bit = 0.0
        self.now_ns = until_ns

    def draws(self, k: int) -> list[tuple[str, float]]:
        """What draws from the battery of a device now: use and power in W."""
        powers, draws = self.physics.powers, list[tuple[str, float]]()
        if self.batteries[k].on:
            draws.append(("idle", powers.idle_w))
        if k in self.computing and self.computing[k].runs:
            draws.append(("computing", powers.computing_w))
        draws += [("sending", burst[0].drawn_w) for burst in self.air if burst[0].sender == k and not burst[0].cut]
        draws += [
            ("receiving", leg.receiving_w) for burst in self.air for leg in burst if leg.receiver == k and not leg.cut
        ]
        return draws

    def all_books(self) -> dict[str, list[tuple[Any, ...]]]:
        """The books, with the balance of every battery."""
        balances = [(k, each.charge_j, each.harvested_j, each.spilled_j, *each.used_j.values()) for k, each in
                    self.batteries.items()]  # fmt: skip
        idle_j = self.physics.powers.idle_w * self.physics.n * self.now_ns / NS
        if self.batteries:
            idle_j = sum(battery.used_j["idle"] for battery in self.batteries.values())
        return {**self.books, "batteries": balances, "idle": [(idle_j,)]}


def rule_of(its: Any) -> SliceRule:
    """A slice in fractions; one without settings has none of its own."""
    if its is None:
        return SliceRule(0, Fraction(1), Fraction(0), Fraction(0), Fraction(1))
    return SliceRule(its.priority, *map(Fraction, (its.weight, its.dedicated, its.min, its.max)))
