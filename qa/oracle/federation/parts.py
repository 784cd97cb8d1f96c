"""What processes wait for in the second emulator: messages, computations, others, pauses; and the batteries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .physics import NEVER, NOTICE_S, NS, Physics, to_ns

if TYPE_CHECKING:
    from .emulator import Emulator, Steps
    from .users import File


class Task:
    """A process: a generator that yields what it waits for."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.waits, self.over, self.value = steps, None, False, None

    def step(self) -> bool:
        """Go on as far as possible; whether it did at all."""
        moved = False
        while not self.over and (self.waits is None or self.waits.over):
            moved = True
            try:
                self.waits = self.steps.send(None if self.waits is None else self.waits.value)
            except StopIteration as stop:
                self.over, self.value = True, stop.value
        return moved

    def cancel(self, reason: str) -> None:
        """Stop, and what it waits for."""
        if not self.over:
            self.over, self.value = True, reason
            self.waits.cancel(reason)


class Gather:
    """Waits for processes, with a deadline."""

    def __init__(self, tasks: list[Task], until_ns: float) -> None:
        self.tasks, self.until_ns = tasks, until_ns

    @property
    def over(self) -> bool:
        """Whether all have ended."""
        return all(task.over for task in self.tasks)

    @property
    def value(self) -> list[Any]:
        """Their results."""
        return [task.value for task in self.tasks]

    def cancel(self, reason: str) -> None:
        """Cancel those that have not ended."""
        for task in self.tasks:
            task.cancel(reason)


class Pause:
    """Waits for a time."""

    value = None

    def __init__(self, emulator: Emulator, duration_s: float) -> None:
        self.emulator, self.until_ns = emulator, emulator.now_ns + to_ns(duration_s)

    @property
    def over(self) -> bool:
        """Whether it is over."""
        return self.emulator.now_ns >= self.until_ns


class Someone:
    """Waits until a device is there; the value is all that are."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator

    @property
    def value(self) -> list[int]:
        """Who is there."""
        return [k for k in range(self.emulator.physics.n) if self.emulator.there(k)]

    @property
    def over(self) -> bool:
        """Whether anybody is."""
        return bool(self.value)


class Leg:
    """A message to one receiver; its value is why it is lost."""

    def __init__(self, emulator: Emulator, kind: str, sender: int, receiver: int, size_bit: float) -> None:
        self.emulator, self.kind, self.sender, self.receiver, self.size_bit = emulator, kind, sender, receiver, size_bit
        self.device, self.left_bit = max(sender, receiver), size_bit
        self.cell = emulator.physics.serving[self.device]
        self.part, self.grant, self.slots_s, self.name = 1.0, None, 0.0, None
        self.ended, self.value, self.started_ns, self.rx_energy_j = False, "", -1, 0.0
        self.told_ns, self.until_ns, self.reason, self.stopped, self.cut = -1, NEVER, "", "", False
        self.file: File | None = None
        self.slice, self.lost_s, self.sent_j = emulator.own_slice, 0.0, 0.0

    def start(self) -> None:
        """Go on the air, until the timeout or the departure of the device."""
        emulator, physics, powers = self.emulator, self.emulator.physics, self.emulator.physics.powers
        snr = physics.down_snr[self.device] if self.kind == "downlink" else physics.up_snr[self.device] * self.part
        patience_s = physics.patience_s(self.kind, snr, self.size_bit)
        timeout, leaves_ns = "timeout" if patience_s else "unreachable", physics.leaves_ns(self.device, emulator.now_ns)
        if self.file is not None:
            patience_s = NEVER
        until_ns = NEVER if patience_s == NEVER else emulator.now_ns + to_ns(patience_s)
        self.until_ns, self.reason = min((until_ns, timeout), (leaves_ns, "left"))
        explicit_s = getattr(emulator.scenario.network, self.kind).timeout_s
        self.told_ns = emulator.now_ns + to_ns(min(NOTICE_S, explicit_s or NOTICE_S))
        self.started_ns = emulator.now_ns
        self.drawn_w = powers.amplifier_w * self.part + powers.circuit_w
        if self.kind == "downlink":
            self.drawn_w = physics.station_w

    @property
    def receiving_w(self) -> float:
        """What its receiver draws for it now."""
        return 0.0 if self.cut or self.receiver < 0 else self.emulator.physics.powers.receiving_w

    @property
    def over(self) -> bool:
        """Whether its sender and its receiver know what has become of it: later than now if it is out of reach."""
        return self.ended and (self.value != "unreachable" or self.emulator.now_ns >= self.told_ns)

    def finish(self, fate: str) -> None:
        """Arrive, or be lost."""
        self.ended, self.value = True, self.value or fate

    def cancel(self, reason: str) -> None:
        """Give it up; what waits is booked now, what is on the air when its burst has ended."""
        if self.ended:
            return
        self.ended, self.value = True, reason
        if self.started_ns >= 0:
            self.until_ns, self.reason = self.emulator.now_ns, reason
        else:
            self.emulator.book([self], 0.0, 0.0, 0.0)


class Compute:
    """A computation, which stops while the battery is empty."""

    value = ""

    def __init__(self, emulator: Emulator, k: int) -> None:
        self.emulator, self.device, self.over = emulator, k, False
        grant = emulator.grants.get(k)
        self.whole_ns = self.left_ns = to_ns(emulator.physics.compute_s[k] / (grant.clock if grant else 1.0))
        self.runs, self.started_ns, self.ends_ns = False, 0, NEVER
        emulator.computing[k] = self
        if emulator.batteries and not emulator.batteries[k].on:
            self.wait()
        else:
            self.resume()

    def resume(self) -> None:
        """Compute from now on."""
        self.runs, self.started_ns = True, self.emulator.now_ns
        self.ends_ns = self.started_ns + self.left_ns

    def wait(self) -> None:
        """Wait for charge; where nothing charges the battery, as long as the rest would have taken."""
        harvesting = self.emulator.scenario.devices.battery.harvesting
        never = harvesting.kind == "none" or harvesting.mean_w == 0
        self.runs, self.ends_ns = False, self.emulator.now_ns + self.left_ns if never else NEVER

    def pause(self) -> None:
        """Book what is done, and wait."""
        self.book("empty")
        self.left_ns -= self.emulator.now_ns - self.started_ns
        self.wait()

    def book(self, stopped: str) -> None:
        """A row, if any time has passed since it went on."""
        emulator = self.emulator
        span_ns = emulator.now_ns - self.started_ns
        if self.runs and span_ns:
            flop = emulator.physics.flop[self.device] * span_ns / self.whole_ns
            energy_j = emulator.physics.powers.computing_w * span_ns / NS
            row = (self.device, self.started_ns, emulator.now_ns, stopped, flop, energy_j)
            emulator.books["computes"].append(row)

    def end(self) -> bool:
        """End if it is time."""
        if self.ends_ns > self.emulator.now_ns:
            return False
        self.cancel("")
        return True

    def cancel(self, reason: str) -> None:
        """Book what is done, and be over."""
        self.book(reason)
        self.over = True
        del self.emulator.computing[self.device]


class Message:
    """A message on the backhaul; its value is whether it is lost."""

    def __init__(self, size_bit: int, requested_ns: int) -> None:
        self.size_bit, self.requested_ns, self.over, self.value = size_bit, requested_ns, False, False
        self.started_ns, self.leaves_ns, self.arrives_ns = -1, NEVER, NEVER


class Line:
    """One direction of the backhaul of an edge server: first come, first served, and then a delay."""

    def __init__(self, emulator: Emulator, edge: int, up: bool) -> None:
        self.emulator, self.edge, self.up, self.count = emulator, edge, up, 0
        self.queue, self.way = list[Message](), list[Message]()

    def send(self, message: Message) -> Message:
        """Queue a message."""
        self.queue.append(message)
        return message

    def settle(self) -> bool:
        """Start, let leave, let arrive; whether anything did."""
        emulator, settings = self.emulator, self.emulator.scenario.network.edge_servers.backhaul
        if self.queue and self.queue[0].started_ns < 0:
            first = self.queue[0]
            first.started_ns = emulator.now_ns
            first.leaves_ns = emulator.now_ns + to_ns(first.size_bit / (settings.rate_bps or NEVER))
            return True
        if self.queue and self.queue[0].leaves_ns <= emulator.now_ns:
            self.queue[0].arrives_ns = emulator.now_ns + to_ns(settings.delay_s)
            self.way.append(self.queue.pop(0))
            return True
        if self.way and self.way[0].arrives_ns <= emulator.now_ns:
            message = self.way.pop(0)
            message.over, message.value = True, emulator.physics.backhaul_erased(self.edge, self.up, self.count)
            self.count += 1
            fate, energy_j = "erased" if message.value else "", settings.energy_j_per_bit * message.size_bit
            row = (self.edge, self.up, message.requested_ns, message.started_ns, emulator.now_ns, fate, energy_j)
            emulator.books["backhaul"].append(row)
            return True
        return False

    def next_ns(self) -> float:
        """When something leaves or arrives."""
        return min(
            [message.leaves_ns for message in self.queue] + [message.arrives_ns for message in self.way] + [NEVER]
        )


class Battery:
    """The charge of a device, and what has become of its energy."""

    def __init__(self, emulator: Emulator, k: int) -> None:
        self.emulator, self.device = emulator, k
        physics: Physics = emulator.physics
        settings = physics.scenario.devices.battery
        self.capacity_j, self.needed_j = settings.capacity_j, settings.capacity_j * settings.restart_share
        self.charge_j = physics.charge_j(k)
        self.on, self.harvested_j, self.spilled_j = self.charge_j > 0, 0.0, 0.0
        self.used_j = dict.fromkeys(("computing", "sending", "receiving", "idle"), 0.0)

    def net_w(self) -> float:
        """What comes in less what is drawn."""
        harvest_w = self.emulator.physics.harvest(self.device, self.emulator.now_ns)[0]
        return harvest_w - sum(power_w for _, power_w in self.emulator.draws(self.device))

    def lasts_ns(self) -> float:
        """How long it lasts in whole nanoseconds, or takes until the device is back."""
        net_w = self.net_w()
        if self.on:
            return math.floor(self.charge_j / -net_w * NS + 1e-4) if net_w < 0 else NEVER
        if self.charge_j >= self.needed_j * (1 - 1e-13):
            return 0
        return max(math.ceil((self.needed_j - self.charge_j) / net_w * NS - 1e-4), 1) if net_w > 0 else NEVER

    def due(self) -> bool:
        """Whether it is empty now, or charged enough."""
        return self.lasts_ns() <= 0

    def next_ns(self) -> float:
        """When that is, or the source changes."""
        now_ns = self.emulator.now_ns
        return min(now_ns + self.lasts_ns(), self.emulator.physics.harvest(self.device, now_ns)[1])

    def flow(self, until_ns: int) -> None:
        """Charge and discharge until an instant, before which nothing changes."""
        now_ns = self.emulator.now_ns
        harvest_w, piece_ns, arrival_j = self.emulator.physics.harvest(self.device, now_ns)
        flow_s, draws = (until_ns - now_ns) / NS, self.emulator.draws(self.device)
        for use, power_w in draws:
            self.used_j[use] += power_w * flow_s
        self.take(harvest_w * flow_s, sum(power_w for _, power_w in draws) * flow_s)
        if until_ns == piece_ns:
            self.take(arrival_j, 0.0)

    def take(self, harvested_j: float, drawn_j: float) -> None:
        """What has no room is spilled."""
        self.harvested_j += harvested_j
        charge_j = self.charge_j + harvested_j - drawn_j
        self.charge_j = min(charge_j, self.capacity_j)
        self.spilled_j += charge_j - self.charge_j
