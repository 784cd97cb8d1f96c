"""The critical path of each round, the chain of transfers, computations and waits that determines its duration.

The paths explain how the duration and energy of a run are composed, and how much time remedies (changes to settings)
save.

The search begins at the end of the round and proceeds backwards in time. Each step looks for the activity that ended at
the current time and allowed the next activity to begin:
- the end of a round follows the activity for which the server waited; if there is none, any activity that ended then;
- a transfer that waited for its turn follows the previous transfer in the same band, and the path continues at the
  device of that previous transfer;
- a transfer or computation of a device follows a reception, computation or transmission of this device, or, at a
  barrier, the last activity of another device;
- if there are edge servers, the server is the cloud, and transfers of a cell belong to the edge server of the cell. A
  message on the backhaul follows a reception or transmission of its sender.

If no activity ended at the current time, the preceding time is a pause, or a device is absent. If a deadline ended the
last transfers of a round or edge round, the whole round or edge round is assigned to the deadline. If an activity began
in an earlier round, only its time since the start of the round counts. Times are integer nanoseconds. The segments of a
path follow each other without gaps, so their durations add up to the duration of the round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
from typing_extensions import override

from fednet_emu.analysis.quantities import TextResult, counted, format_energy, format_seconds
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.scene import Scene
from fednet_emu.arrays import IntArray
from fednet_emu.errors import DataError
from fednet_emu.records.ledger import SCENE, SERVER, SEVERAL, device_label
from fednet_emu.records.rows import DIRECTIONS
from fednet_emu.records.summaries import losses_in_words

NS_PER_S = 1_000_000_000
COMPUTE, WAITING, DEADLINE, IDLE = "compute", "waiting", "deadline", "idle"
SETUP, ACCESS, GAPS, TAIL = "setup", "access", "gaps", "tail"
"""Names of four phases of a transfer: connection setup, wait for channel access, waits for acknowledgements, and delay
from the last bit on the air to its reception. The other phases are the wait for a turn and the time on the air."""
PHASES = ("connection_setup_s", "grant_delay_s", "ack_wait_s", "reception_delay_s")
"""Columns of the table of transfers with the durations in s of connection set-up, channel access, waits for
acknowledgements, and reception delay."""
OTHERS, BEHIND, AMONG = "others", "behind others", "behind devices"
"""Kinds of delays in a band that is shared with other users (background traffic): air time that is taken by files of
other users, the wait for a turn behind other users, and the wait for a turn behind other devices."""
FIXED = "fixed time"
"""Kind of a path segment for the overhead of a computation, which does not depend on the number of operations."""
BACKHAUL = {direction: f"backhaul {direction}" for direction in DIRECTIONS}
"""Kinds of path segments for messages on the backhaul, by direction."""
NOBODY = -3
"""Value of `device` for a path segment in which no device is active."""
_FIRST_EDGE = -4
"""Number of edge server 0 as a sender or receiver; edge server e has the number -4 - e."""


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of the critical path of a round: a time span with a single cause, such as a transmission or a wait."""

    round: int
    what: str
    """Kind of the segment. For a transfer, it is the direction during the time on the air, `waiting` during the wait
    for a turn in the band, or one of the phases `setup`, `access`, `gaps` (placed before the air time) and `tail`. If
    other users share the band, delays have the kinds `others`, `behind others` and `behind devices`. For a message on
    the backhaul, it is `backhaul up` or `backhaul down`. For a computation, it is `compute`, or `fixed time` for the
    overhead, which does not depend on the number of operations. A wait until a deadline has the kind `deadline`, and a
    pause has the kind `idle`."""
    device: int
    """The device that sends or computes, or that receives from the server. It is `SERVER` for a broadcast and for edge
    servers, and `NOBODY` if no device is involved."""
    started_ns: int
    ended_ns: int
    """End in simulated nanoseconds, which is the start of the next segment of the path."""
    energy_j: float = 0.0
    """Energy of the activity in J, multiplied by the fraction of the activity's duration that is on the path."""


@dataclass(frozen=True, slots=True)
class Activity:
    """A transfer, computation or backhaul message, with its times in simulated ns.

    Activities that share a radio band or a backhaul line, and therefore wait for each other, have equal values of
    `what` and `cell`. For an activity that never started, the start time equals the end time.
    """

    what: str
    sender: int
    receiver: int
    requested_ns: int
    started_ns: int
    freed_ns: int
    """Time at which the next activity in the same band or on the same backhaul line can start."""
    ended_ns: int
    given_up: bool
    cell: int
    energy_j: float
    connection_setup_ns: int = 0
    grant_delay_ns: int = 0
    gap_ns: int = 0
    """For a transfer, the air time in which no bits are sent. For a computation, the overhead at its start. In ns."""
    reception_delay_ns: int = 0
    others_ns: int = 0
    """Delay in ns due to files of other users in the same band. It belongs to the wait for a turn if the transfer
    waited, and otherwise to the air time.
    """

    def before(self, since: int, until: int) -> Iterator[tuple[str, int, int, float]]:
        """Yield the phases of the activity between two times in ns, latest first.

        Each item is (kind, start in ns, end in ns, energy in J). Waits for acknowledgements precede the air time.
        """
        left_ns = min(until, self.ended_ns - self.reception_delay_ns)
        yield TAIL, max(since, left_ns), until, 0.0
        begun_ns = min(max(since, self.started_ns + self.gap_ns), left_ns)
        computes, others_ns = self.what == COMPUTE, self.others_ns if self.ready_ns >= self.started_ns else 0
        done_ns = max(begun_ns, left_ns - others_ns)
        yield OTHERS, done_ns, left_ns, 0.0
        silent_ns = self.reception_delay_ns + others_ns + (0 if computes else self.gap_ns)
        j_per_ns = self.energy_j / max(self.ended_ns - self.started_ns - silent_ns, 1)
        yield self.what, begun_ns, done_ns, j_per_ns * (done_ns - begun_ns)
        yield (FIXED, since, begun_ns, j_per_ns * (begun_ns - since)) if computes else (GAPS, since, begun_ns, 0.0)

    def waits(self, since: int) -> Iterator[tuple[str, int, int, float]]:
        """Yield the delays between the request and the wait for a turn, latest first; the items are as in `before`."""
        until = self.ready_ns
        for what, took_ns in ((ACCESS, self.grant_delay_ns), (SETUP, self.connection_setup_ns)):
            yield what, max(since, until - took_ns), max(since, until), 0.0
            until -= took_ns

    @property
    def ready_ns(self) -> int:
        """Time in ns at which the activity begins to wait for its turn."""
        return self.requested_ns + self.connection_setup_ns + self.grant_delay_ns

    @property
    def device(self) -> int:
        """Index of the sending or computing device, or of the receiver if the server sends; `SERVER` (-1) if none."""
        device = self.receiver if self.sender < 0 <= self.receiver else self.sender
        return max(device, SERVER)

    def lets_go_on(self, actor: int) -> bool:
        """Return True if the end of the activity allows `actor` (device, server or edge server) to continue."""
        return actor in (self.sender, self.receiver) or (self.receiver == SEVERAL and actor >= 0)


def critical_path(
    transfers: pd.DataFrame, computes: pd.DataFrame, rounds: pd.DataFrame, backhaul: pd.DataFrame | None = None
) -> list[Part]:
    """Return the segments of the critical paths of all rounds, in order of time, from the tables of a run.

    Segments of zero duration are omitted. The optional column `fixed_s` of `computes` is the overhead of a computation
    in s, which does not depend on its number of operations. `backhaul` is None if there are no edge servers.
    """
    activities = [*_transfers(transfers, edges=backhaul is not None), *_computes(computes)]
    if backhaul is not None:
        activities += _messages(backhaul)
    walk = _Walk(sorted(activities, key=lambda its: its.ended_ns))
    starts, ends = (_ns(rounds[name]) for name in ("started_s", "ended_s"))
    return [
        part
        for number, start, end in zip(rounds["round"], starts, ends, strict=True)
        for part in reversed(list(walk.back(int(number), int(start), int(end))))
    ]


def parts_frame(parts: list[Part]) -> pd.DataFrame:
    """Return path segments as a table: `round`, `what`, `device`, `started_s`, `ended_s`, `took_s` and `energy_j`."""
    rows = [
        (its.round, its.what, its.device, its.started_ns, its.ended_ns, its.ended_ns - its.started_ns, its.energy_j)
        for its in parts
    ]
    columns = ["round", "what", "device", "started_s", "ended_s", "took_s", "energy_j"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(**{name: table[name] / NS_PER_S for name in ("started_s", "ended_s", "took_s")})


class _Walk:
    def __init__(self, activities: list[Activity]) -> None:
        self._ended_at: dict[int, list[Activity]] = defaultdict(list)
        self._freed_at: dict[int, list[Activity]] = defaultdict(list)
        self._invited: dict[int, list[int]] = defaultdict(list)
        for its in activities:
            self._ended_at[its.ended_ns].append(its)
            self._freed_at[its.freed_ns].append(its)
            if its.what == "downlink":
                self._invited[its.sender].append(its.requested_ns)
        self._ends = np.array(sorted(self._ended_at), np.int64)

    def back(self, number: int, start: int, end: int) -> Iterator[Part]:
        ending = self._ended_at.get(end, [])
        if end > start and ending and all(its.given_up for its in ending):
            yield Part(number, DEADLINE, NOBODY, start, end)
            return
        now, actor, used = end, SERVER, set[int]()
        cause = self._cause(now, actor, used)
        while now > start:
            is_deadline = self._is_deadline(now, actor, cause)
            cause = cause or self._other(now, used)
            if is_deadline or cause is None:
                invited = (ns for ns in self._invited[actor] if start < ns < now)
                earlier = max(invited, default=start) if is_deadline else self._latest(now, actor, start, used)
                yield Part(number, DEADLINE if is_deadline else IDLE, NOBODY, earlier, now)
                now, cause = earlier, self._cause(earlier, actor, used)
                continue
            used.add(id(cause))
            began = max(start, cause.started_ns)
            yield from _parts(number, cause.device, cause.before(began, now))
            now, actor = began, cause.sender
            if cause.requested_ns < cause.started_ns and now > start:
                before = self._in_the_way(cause, used) if cause.ready_ns < cause.started_ns else None
                if before is not None:
                    cause = before
                    continue
                ready = min(max(start, cause.ready_ns), now)
                since = max(ready, now - cause.others_ns)
                wait = AMONG if cause.others_ns else WAITING
                waits = [(BEHIND, since, now, 0.0), (wait, ready, since, 0.0)]
                yield from _parts(number, cause.device, [*waits, *cause.waits(start)])
                now = max(start, cause.requested_ns)
            cause = self._cause(now, actor, used)

    def _cause(self, now: int, actor: int, used: set[int]) -> Activity | None:
        """Return the activity that ended at `now` (ns) and allowed `actor` to continue, or None if there is none.

        Activities that were not cancelled have priority, then activities with a single receiver.
        """
        found = [its for its in self._ended_at.get(now, ()) if id(its) not in used and its.lets_go_on(actor)]
        return max(found, key=lambda its: (not its.given_up, its.receiver != SEVERAL), default=None)

    def _other(self, now: int, used: set[int]) -> Activity | None:
        """Return any activity that ended at `now` (ns), was not cancelled and is not yet on the path; None if none did.

        At a barrier, all devices wait for the last activity, whichever device performs it.
        """
        rest = reversed(self._ended_at.get(now, ()))
        return next((its for its in rest if id(its) not in used and not its.given_up), None)

    def _is_deadline(self, now: int, actor: int, cause: Activity | None) -> bool:
        """Return True if the edge server `actor` ended its edge round at `now` (ns) and cancelled late transfers."""
        if actor > _FIRST_EDGE or (cause is not None and not cause.given_up):
            return False
        return any(its.given_up for its in self._ended_at.get(now, ()))

    def _in_the_way(self, its: Activity, used: set[int]) -> Activity | None:
        """Return the transfer in the same band, or message on the same backhaul line, for whose end an activity waited.

        If several ended when the activity `its` started, the last one is returned; None if there is none.
        """
        found = [
            other
            for other in self._freed_at.get(its.started_ns, ())
            if id(other) not in used and (other.what, other.cell) == (its.what, its.cell) and other is not its
        ]
        return found[-1] if found else None

    def _latest(self, now: int, actor: int, start: int, used: set[int]) -> int:
        """Return the latest end in ns of an activity of `actor` before `now`, but at least the start of the round."""
        last = int(np.searchsorted(self._ends, now)) - 1
        while last >= 0 and self._ends[last] > start:
            if self._cause(int(self._ends[last]), actor, used) is not None:
                return int(self._ends[last])
            last -= 1
        return start


def _parts(number: int, device: int, spans: Iterable[tuple[str, int, int, float]]) -> Iterator[Part]:
    """Yield a path segment for each non-empty time span; spans are (kind, start in ns, end in ns, energy in J)."""
    for what, since, until, energy_j in spans:
        if since < until:
            yield Part(number, what, device, since, until, energy_j)


def _activities(*columns: Any) -> Iterator[Activity]:
    """Return one activity for each row. `columns` are arrays [rows] in the order of the fields of `Activity`."""
    return map(Activity, *(np.asarray(column).tolist() for column in columns))


def _transfers(table: pd.DataFrame, *, edges: bool) -> Iterator[Activity]:
    none, (asked, began, over) = pd.Series(0, table.index), _times(table)
    cell, rx_energy_j = (table.get(name, none).fillna(0) for name in ("cell", "rx_energy_j"))
    server = _FIRST_EDGE - cell if edges else SERVER
    ends = (table[end].where(table[end] != SERVER, server) for end in ("sender", "receiver"))
    *phases, tail, others = (_ns(table.get(name, none)) for name in (*PHASES, "others_s"))
    late, energy_j = table["loss_reason"] == "deadline", table["energy_j"] + rx_energy_j
    times = (asked, began, over - tail, over)
    return _activities(table["direction"], *ends, *times, late, cell, energy_j, *phases, tail, others)


def _computes(table: pd.DataFrame) -> Iterator[Activity]:
    none, device, late = pd.Series(0, table.index), table["device"], table["stopped"] == "deadline"
    began, over, fixed = (_ns(table.get(name, none)) for name in ("started_s", "ended_s", "fixed_s"))
    what, times = np.full(len(table), COMPUTE), (began, began, over, over)
    return _activities(what, device, device, *times, late, none, table["energy_j"], none, none, fixed)


def _messages(table: pd.DataFrame) -> Iterator[Activity]:
    edge, is_up, late = _FIRST_EDGE - table["edge"], table["direction"] == "up", table["loss_reason"] == "deadline"
    ends = (np.where(is_up, edge, SERVER), np.where(is_up, SERVER, edge))
    (asked, began, over), what = _times(table), table["direction"].astype(str).map(BACKHAUL)
    return _activities(what, *ends, asked, began, _freed(table), over, late, table["edge"], table["energy_j"])


def _freed(table: pd.DataFrame) -> IntArray:
    """Return for each backhaul message [messages] the time in ns at which its line became free for the next message.

    This is the start of the next message on the line if that message was waiting, and otherwise the arrival of the
    message itself.
    """
    asked, began, over = _times(table)
    freed, next_ns = over.copy(), dict[tuple[str, int], int]()
    lines = list(zip(table["direction"], table["edge"], strict=True))
    never = table["started_s"].isna().to_numpy()
    for row in reversed(np.argsort(began, kind="stable").tolist()):
        if not never[row]:
            freed[row] = next_ns.pop(lines[row], freed[row])
            if asked[row] < began[row]:
                next_ns[lines[row]] = int(began[row])
    return freed


def _times(table: pd.DataFrame) -> tuple[IntArray, IntArray, IntArray]:
    """Return request, start and end times in ns [rows]. The start of an activity that never started is its end."""
    ended = _ns(table["ended_s"])
    started = np.where(table["started_s"].isna(), ended, _ns(table["started_s"].fillna(0.0)))
    return _ns(table["requested_s"]), started, ended


def _ns(seconds: pd.Series) -> IntArray:
    return np.asarray(np.rint(seconds.to_numpy(np.float64) * NS_PER_S), np.int64)


SAME = 1e-9
"""Maximum relative difference of durations that rounding errors may cause."""
NAMED = 5
"""Maximum number of devices that are listed individually."""
MEANING = {
    "uplink": "sending to the server",
    "downlink": "sending to the devices",
    "sidelink": "sending to each other",
    BACKHAUL["up"]: "sending to the cloud over the backhaul",
    BACKHAUL["down"]: "sending to the edge servers over the backhaul",
    "compute": "computing",
    FIXED: "fixed time per computation",
    SETUP: "setting up connections, and software for each message",
    ACCESS: "waiting for access to the channel",
    GAPS: "waiting for acknowledgements",
    TAIL: "on the way after the last bit on the air",
    WAITING: "waiting for a turn, with the band free",
    OTHERS: "time on the air that went to other users of the band",
    BEHIND: "waiting for a turn behind other users",
    AMONG: "waiting for a turn behind other devices",
    DEADLINE: "waiting for the deadline",
    IDLE: "nothing recorded: pauses, or devices that were away or out of reach",
}


@dataclass(frozen=True)
class Remedy:
    """A remedy (a change to settings that may shorten a run) and its effect on the duration of the run."""

    title: str
    settings: dict[str, Any]
    leaves_out: bool = False
    """True if the remedy excludes devices, so that other devices are selected instead."""
    simulated_s: float | None = None
    """Simulated time in seconds until as many updates have arrived as in the original run. None if unknown."""
    rounds: int | None = None
    """Number of rounds until as many updates have arrived as in the original run. None if the number of rounds is the
    same."""
    before_s: float | None = None
    """Simulated time in seconds until the last update of the original run arrived. None if it arrived in the last
    round."""
    problem: str = ""
    """The reason why `simulated_s` is unknown, or the kind of activity whose time increases due to the remedy. If no
    update arrived in the original run, the number of updates that arrive with the remedy."""

    def gain(self, took_s: float) -> str:
        """Return a text about the time that the remedy saves, or about the reason why this time is unknown.

        `took_s` is the duration of the run without the remedy in simulated seconds.
        """
        if self.simulated_s is None:
            return self.problem
        took_s = took_s if self.before_s is None else self.before_s
        saved_s = took_s - self.simulated_s
        if abs(saved_s) <= SAME * took_s:
            return "nothing"
        word, share = "sooner" if saved_s > 0 else "later", abs(saved_s) / took_s
        rounds = "" if self.rounds is None else f", in {counted(self.rounds, 'round')}"
        why = f": {self.problem}" if self.problem else ""
        return f"{format_seconds(self.simulated_s)}, {format_seconds(abs(saved_s))} {word} ({share:.0%}){rounds}{why}"


@dataclass(frozen=True, repr=False)
class Explanation(TextResult):
    """Critical paths of the rounds of a run, and the time saved by remedies.

    Attributes:
        name: the name of the run.
        parts: table of the segments of the critical paths of all rounds; see `parts_frame`.
        energy_j: energy of the whole run in J.
        waiting_j: energy in J that devices consumed while they neither communicated nor computed.
        losses: text with the number of lost messages for each reason; empty if no message was lost.
        handovers: number of transfers that changed cells.
        has_updates: True if at least one update arrived.
        remedies: the remedies whose effect was found by replaying the run.
        no_remedies: the reason why no remedy was replayed; empty if there is none.
    """

    name: str
    parts: pd.DataFrame
    energy_j: float
    waiting_j: float = 0.0
    losses: str = ""
    handovers: int = 0
    has_updates: bool = True
    remedies: list[Remedy] = field(default_factory=list)
    no_remedies: str = ""

    @classmethod
    def of(cls, run: RunRecords) -> Self:
        """Return the critical paths of the rounds of a run, without remedies.

        Raises:
            DataError: the run has no rounds of positive duration, or a table is missing or unreadable.
        """
        backhaul = run.table("backhaul") if run.has("backhaul") else None
        computes = run.table("computes")
        if run.has(SCENE):
            computes = computes.assign(fixed_s=Scene.of(run).fixed_s(computes))
        rounds = run.table("rounds")
        if not len(rounds):
            algorithm = run.settings.get("algorithm")
            idle = "idle" in (algorithm, algorithm.get("kind") if isinstance(algorithm, dict) else None)
            found = "algorithm idle" if idle else "a run that ended before its first round did"
            advice = "explain a run of another algorithm" if idle else "give it more (`stop`)"
            raise DataError(f"{run.name}: rounds", f"there are none, got {found}", advice)
        parts = critical_path(run.table("transfers"), computes, rounds, backhaul)
        if not parts:
            raise DataError(f"{run.name}: rounds", "all have zero length, so there is no critical path", "run more")
        energy_j, waiting_j = (float(run.summary.get(name) or 0.0) for name in ("energy_j", "waiting_j"))
        handovers = len(run.table("handovers")) if run.has("handovers") else 0
        has_updates = bool(rounds["arrived"].any())
        losses = losses_in_words(run.summary)
        return cls(run.name, parts_frame(parts), energy_j, waiting_j, losses, handovers, has_updates)

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each segment of each round's critical path. The segments add up to the duration of the round."""
        return self.parts.copy()

    @property
    def took_s(self) -> float:
        """Total duration of the rounds, in simulated seconds."""
        return float(self.parts["took_s"].sum())

    @property
    def kinds(self) -> pd.DataFrame:
        """Table with the total time and energy of each kind of path segment, sorted by time, longest first.

        The columns are `what` (kind), `took_s`, `share` (fraction of the total time) and `energy_j`.
        """
        sums = self.parts.groupby("what")[["took_s", "energy_j"]].sum().sort_values("took_s", ascending=False)
        return sums.assign(share=sums["took_s"] / self.took_s).reset_index()[["what", "took_s", "share", "energy_j"]]

    @property
    def devices(self) -> pd.DataFrame:
        """Table with the time of each device on critical paths, sorted by time, longest first.

        The columns are `device`, `rounds` (number of rounds whose path includes the device), `took_s` and `share`
        (fraction of the total time).
        """
        own = self.parts[self.parts["device"] >= 0]
        sums = own.groupby("device").agg(rounds=("round", "nunique"), took_s=("took_s", "sum"))
        return sums.assign(share=sums["took_s"] / self.took_s).sort_values("took_s", ascending=False).reset_index()

    def slowest(self, number: int) -> list[int]:
        """Return the indices of the `number` devices with the longest time on critical paths, longest first."""
        return [int(device) for device in self.devices["device"][:number] if device != SERVER]

    @property
    def words(self) -> list[str]:
        """One or two sentences: the share of each kind of activity on the critical paths, and the slowest device."""
        kinds = [f"{MEANING[what]} {share:.0%}" for what, _, share, _ in _rows(self.kinds)]
        text = f"The critical path of the rounds consists of {', '.join(kinds)} of the time."
        if not len(self.devices):
            return [text]
        device, number, took_s, _ = _rows(self.devices)[0]
        rounds = counted(number, "round")
        return [text, f"The longest delays are those of {device_label(device)}: {format_seconds(took_s)} in {rounds}."]

    @property
    def device_texts(self) -> list[str]:
        """One text for each of the five devices with the longest time on critical paths, with this time by cause."""
        found = []
        for device, number, took_s, share in _rows(self.devices[:NAMED]):
            own = self.parts[self.parts["device"] == device].groupby("what")["took_s"].sum()
            spent = own.sort_values(ascending=False).items()  # longest first
            what = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in spent)
            rounds = counted(number, "round")
            found.append(f"{device_label(device)}: {format_seconds(took_s)}, {share:.0%}, in {rounds}: {what}")
        return found

    @override
    def lines(self) -> list[str]:
        return [*self._path_lines(), *self._remedy_lines()]

    def _path_lines(self) -> Iterator[str]:
        rounds = counted(int(self.parts["round"].nunique()), "round")
        yield f"{self.name}: {rounds} took {format_seconds(self.took_s)}; the critical path of each round, by kind"
        for what, took_s, share, energy_j in _rows(self.kinds):
            energy = f", {format_energy(energy_j)}" if energy_j > 0 else ""
            yield f"  {MEANING[what]}: {format_seconds(took_s)}, {share:.0%}{energy}"
        spent = float(self.parts["energy_j"].sum())
        if self.energy_j > 0:
            yield f"  of {format_energy(self.energy_j)} in all, {spent / self.energy_j:.0%} were spent on these paths"
        if self.waiting_j > 0:
            share = self.waiting_j / self.energy_j
            yield f"  and {format_energy(self.waiting_j)}, {share:.0%}, by inactive devices"
        if self.losses:
            yield f"  {self.losses}"
        if self.handovers:
            yield f"  {counted(self.handovers, 'transfer')} changed cells on the way, see the table handovers"
        if len(self.devices):
            yield "devices that delayed the rounds most"
            yield from (f"  {text}" for text in self.device_texts)

    def _remedy_lines(self) -> Iterator[str]:
        if self.no_remedies:
            yield f"no remedy was replayed: {self.no_remedies}"
            return
        if self.remedies and not self.has_updates:
            yield "no update arrived; updates that arrive with a remedy, or its gain in as many rounds, replayed"
        elif self.remedies:
            yield "largest gain of a remedy, until as many updates have arrived, replayed with the same seed"
        for its in self.remedies:
            yield f"  {its.title}: {its.gain(self.took_s)}"


def _rows(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].tolist() for name in table), strict=True))
