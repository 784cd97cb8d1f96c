"""Other users in the second emulator: their files, drawn by closed forms, and when they arrive."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from fednet_emu.kernel.streams import uniform

from .parts import Leg
from .physics import NEVER, to_ns

if TYPE_CHECKING:
    from .emulator import Emulator


class File:
    """A file: its user, its size, and its times."""

    def __init__(self, user: User, size_bit: int, arrived_ns: int) -> None:
        self.user, self.size_bit, self.arrived_ns = user, size_bit, arrived_ns


class User:
    """Sends or receives files: one after the other, or, as a class with a place per file, all at once."""

    def __init__(self, emulator: Emulator, its: Any, of: int, number: int, radio: int) -> None:
        self.emulator, self.its, self.of, self.number, self.radio = emulator, its, of, number, radio
        self.count = self.sent = 0
        self.waiting, self.on = list[File](), 0
        self.keys = [emulator.physics.streams.key("traffic", its.name, number, what) for what in ("size", "gap")]
        self.due_ns: float = 0
        self.expect(0)

    def expect(self, since_ns: int) -> None:
        """The next file arrives a gap later."""
        self.due_ns = since_ns + to_ns(quantile(self.its.gap, uniform(self.keys[1], self.count)))

    def arrive(self) -> bool:
        """Let files arrive that are due; whether any did."""
        now_ns, before = self.emulator.now_ns, self.count
        while self.due_ns <= now_ns:
            byte = max(round(quantile(self.its.size, uniform(self.keys[0], self.count))), 1)
            self.waiting.append(File(self, 8 * byte + self.emulator.physics.header_bit, now_ns))
            self.count += 1
            self.due_ns = NEVER
            if self.its.after == "arrival":
                self.expect(now_ns)
        while self.waiting and (self.its.place == "per-file" or not self.on):
            self.send(self.waiting.pop(0))
        return self.count > before

    def send(self, file: File) -> None:
        """Ask for its transmission."""
        place = self.sent % self.its.users if self.its.place == "per-file" else 0
        ends = (self.radio + place, -1) if self.its.direction == "uplink" else (-1, self.radio + place)
        leg = Leg(self.emulator, self.its.direction, *ends, file.size_bit)
        leg.file, leg.slice, leg.number = file, self.emulator.slice_of(self.its.slice or "others"), self.number + place
        self.emulator.ask(leg, ("file", self.of, self.number, self.sent))
        self.sent, self.on = self.sent + 1, self.on + 1

    def end(self, leg: Leg) -> None:
        """Write a row about a file, and wait for the next one."""
        self.on -= 1
        if self.its.after == "end":
            self.expect(self.emulator.now_ns)
        file, bit = leg.file, leg.size_bit - max(leg.left_bit, 0)
        row = (self.of, leg.number, leg.slice, file.size_bit, file.arrived_ns, leg.started_ns)
        self.emulator.books["traffic"].append((*row, self.emulator.now_ns, float(bit), leg.value))


def quantile(law: Any, u: float) -> float:
    """The quantile of a size in byte or of a gap in s."""
    unit = law.UNIT
    if law.kind == "fixed":
        return float(law.byte if unit == "byte" else law.mean_s)
    if law.kind == "exponential":
        return -getattr(law, f"mean_{unit}") * math.log1p(-u)
    if law.kind == "log-normal":
        normal, sigma, most = NormalDist(), law.sigma, getattr(law, f"max_{unit}")
        mu = math.log(getattr(law, f"mean_{unit}")) - sigma**2 / 2
        below = 1.0 if most is None else normal.cdf((math.log(most) - mu) / sigma)
        return math.exp(mu + sigma * normal.inv_cdf(u * below))
    least, most = getattr(law, f"min_{unit}"), getattr(law, f"max_{unit}")
    return float((least**-law.shape - u * (least**-law.shape - most**-law.shape)) ** (-1 / law.shape))
