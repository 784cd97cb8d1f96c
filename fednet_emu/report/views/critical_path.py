"""What decided when each round ended: the chain of transfers, computations and waits from its end back to its start.

The walk begins at the end of the round and asks each time what ended at that very instant and let the next thing begin:

- what the server waited for, or else anything that ended then, let the round end;
- the end of another transfer in the same band let a transfer begin that had waited for its turn, so that the path goes
  on with the other device, whose sending was in the way, and not with whoever waited;
- a transfer or computation of a device began when something was received, computed or sent by it.

Where nothing ended at an instant, time passed without a cause in the records until then: a pause, or waiting for a
device to return. A round whose last transfers were given up at a deadline lasted until that deadline and no longer for
anybody's sake. What began in an earlier round counts from the start of this one. Times are whole nanoseconds, and the
parts of a round lie end to end, so that their sum is its length exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fednet_emu.arrays import IntArray
from fednet_emu.records.ledger import SERVER, SEVERAL

NS_PER_S = 1_000_000_000
COMPUTE, WAITING, DEADLINE, IDLE = "compute", "waiting", "deadline", "idle"
NOBODY = -3
"""The device of a part that nobody is busy in."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the path of a round.

    Attributes:
        round: the number of the round.
        what: a kind of transfer, `compute`, `waiting` for a turn in the band, `deadline` or `idle`.
        device: who sent or computed; of a transfer from the server to one device, that device; `SERVER`; or `NOBODY`.
        started_ns: its start in simulated nanoseconds.
        ended_ns: its end, at which the next part starts.
        energy_j: the energy that the activity spent, in proportion to its time on the path.
    """

    round: int
    what: str
    device: int
    started_ns: int
    ended_ns: int
    energy_j: float = 0.0


@dataclass(frozen=True, slots=True)
class Activity:
    """A transfer or computation; a transfer that never went on the air starts when it ends."""

    what: str
    sender: int
    receiver: int
    requested_ns: int
    started_ns: int
    ended_ns: int
    given_up: bool
    cell: int
    energy_j: float

    @property
    def device(self) -> int:
        """The device that it is about."""
        return self.receiver if self.sender == SERVER and self.receiver >= 0 else self.sender

    def lets_go_on(self, actor: int) -> bool:
        """Whether its end can let something begin at a device, or at the server."""
        return actor in (self.sender, self.receiver) or (self.receiver == SEVERAL and actor != SERVER)


def critical_path(transfers: pd.DataFrame, computes: pd.DataFrame, rounds: pd.DataFrame) -> list[Part]:
    """Return the parts of all rounds in the order of time, without those of no length.

    Args:
        transfers: the table `transfers` of a run.
        computes: its table `computes`.
        rounds: its table `rounds`.
    """
    activities = sorted([*_transfers(transfers), *_computes(computes)], key=lambda its: its.ended_ns)
    walk = _Walk(activities)
    starts, ends = (_ns(rounds[name]) for name in ("started_s", "ended_s"))
    return [
        part
        for number, start, end in zip(rounds["round"], starts, ends, strict=True)
        for part in reversed(list(walk.back(int(number), int(start), int(end))))
    ]


def parts_frame(parts: list[Part]) -> pd.DataFrame:
    """Return one row for each part: `round`, `what`, `device`, `started_s`, `ended_s`, `took_s` and `energy_j`."""
    rows = [
        (its.round, its.what, its.device, its.started_ns, its.ended_ns, its.ended_ns - its.started_ns, its.energy_j)
        for its in parts
    ]
    columns = ["round", "what", "device", "started_s", "ended_s", "took_s", "energy_j"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(**{name: table[name] / NS_PER_S for name in ("started_s", "ended_s", "took_s")})


class _Walk:
    """Walks back through activities in the order of their ends."""

    def __init__(self, activities: list[Activity]) -> None:
        self._ended_at: dict[int, list[Activity]] = defaultdict(list)
        for its in activities:
            self._ended_at[its.ended_ns].append(its)
        self._ends = np.array(sorted(self._ended_at), np.int64)

    def back(self, number: int, start: int, end: int) -> Iterator[Part]:
        """Yield the parts of a round from its end to its start."""
        ending = self._ended_at.get(end, [])
        if end > start and ending and all(its.given_up for its in ending):
            yield Part(number, DEADLINE, NOBODY, start, end)
            return
        now, actor, used = end, SERVER, set[int]()
        cause = self._cause(now, actor, used) or next((its for its in reversed(ending) if not its.given_up), None)
        while now > start:
            if cause is None:
                earlier = self._latest(now, actor, start, used)
                yield Part(number, IDLE, NOBODY, earlier, now)
                now, cause = earlier, self._cause(earlier, actor, used)
                continue
            used.add(id(cause))
            began = max(start, cause.started_ns)
            if began < now:
                energy_j = cause.energy_j * (now - began) / (cause.ended_ns - cause.started_ns)
                yield Part(number, cause.what, cause.device, began, now, energy_j)
            now, actor = began, cause.sender
            if cause.requested_ns < cause.started_ns and now > start:
                before = self._in_the_way(cause, used)
                if before is not None:
                    cause = before
                    continue
                asked = max(start, cause.requested_ns)
                yield Part(number, WAITING, cause.device, asked, now)
                now = asked
            cause = self._cause(now, actor, used)

    def _cause(self, now: int, actor: int, used: set[int]) -> Activity | None:
        """What ended now and let the actor go on; rather what is about the actor alone, and what was not given up."""
        found = [its for its in self._ended_at.get(now, ()) if id(its) not in used and its.lets_go_on(actor)]
        return max(found, key=lambda its: (not its.given_up, its.receiver != SEVERAL), default=None)

    def _in_the_way(self, its: Activity, used: set[int]) -> Activity | None:
        """The transfer in the same band whose end let a waiting one begin."""
        found = [
            other
            for other in self._ended_at.get(its.started_ns, ())
            if id(other) not in used and (other.what, other.cell) == (its.what, its.cell) and other is not its
        ]
        return found[-1] if found else None

    def _latest(self, now: int, actor: int, start: int, used: set[int]) -> int:
        """The latest instant before now, in this round, at which something of the actor ended; else the start."""
        last = int(np.searchsorted(self._ends, now)) - 1
        while last >= 0 and self._ends[last] > start:
            if self._cause(int(self._ends[last]), actor, used) is not None:
                return int(self._ends[last])
            last -= 1
        return start


def _transfers(table: pd.DataFrame) -> Iterator[Activity]:
    ended = _ns(table["ended_s"])
    started = np.where(table["started_s"].isna(), ended, _ns(table["started_s"].fillna(0.0)))
    energy_j = table["energy_j"] + (table["receive_j"].fillna(0.0) if "receive_j" in table else 0.0)
    cells = table["cell"] if "cell" in table else np.zeros(len(table), np.int64)
    given_up = table["lost"].isin(["deadline"])
    columns = (table["kind"], table["sender"], table["receiver"], _ns(table["requested_s"]), started, ended)
    for kind, sender, receiver, asked, began, over, late, cell, joule in zip(
        *columns, given_up, cells, energy_j, strict=True
    ):
        yield Activity(str(kind), sender, receiver, int(asked), int(began), int(over), late, int(cell), float(joule))


def _computes(table: pd.DataFrame) -> Iterator[Activity]:
    columns = (table["device"], _ns(table["started_s"]), _ns(table["ended_s"]), table["stopped"] == "deadline")
    for device, began, over, late, joule in zip(*columns, table["energy_j"], strict=True):
        yield Activity(COMPUTE, device, device, int(began), int(began), int(over), late, 0, float(joule))


def _ns(seconds: pd.Series) -> IntArray:
    """Simulated seconds as the whole nanoseconds that they were written from."""
    return np.asarray(np.rint(seconds.to_numpy(np.float64) * NS_PER_S), np.int64)
