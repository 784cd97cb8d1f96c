"""Edges of a graph from recorded contacts between devices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.lines import LONGEST_S, Grammar, lines, number, parsed, refused, rows, whole
from fednet_emu.files.recordings import read_texts
from fednet_emu.network.topology.edges import Edges, EdgeSource, Ends, TopologyInputs

_HOW = {
    "one": "write lines of time, CONN, node, node, and up or down, sorted by time from 0 s on, nodes from 0 on",
    "intervals": "write lines of node, node, begin and end, nodes from 1 on, times from 0 s on",
    "snapshots": "write lines of time, node and node, sorted by time",
}
_SNAPSHOT_S = 20.0


class Contacts(Edges):
    """Recorded contacts between devices, each of which is an edge while it lasts and for `memory_s` after its end."""

    path: str
    """File of the contact trace, plain or .gz, in the data folder or in the current folder."""

    format: Literal["one", "intervals", "snapshots"] = "one"
    """Format of the trace. `one`: lines `t CONN a b up` and `t CONN a b down` of the ONE simulator (StandardEvents);
    device k is node k, which may also be named `pk`. Two up events of a pair without an intermediate down event are one
    contact, which lasts until the first down event, as in the simulator. `intervals`: lines `a b begin end` with times
    in s; device k is node k + 1. `snapshots`: lines `t a b` for contacts in the 20 s before t, as published by
    SocioPatterns; time starts 20 s before the first line, and devices are the nodes in the order of their numbers.
    `intervals` and `snapshots` may have more columns, which are ignored."""

    start_s: float = Field(0.0, ge=0)
    """Time in the trace, in s, at which the run starts."""

    step_s: float | None = Field(None, gt=0)
    """Time in s by which the trace advances in each round, because simulated rounds are usually shorter than contacts.
    null if the trace follows the simulated time."""

    memory_s: float = Field(0.0, ge=0)
    """Time in s for which a contact remains an edge after its end, for example because Bluetooth scans are minutes
    apart."""

    directed: bool = False
    """If true, a contact `a b` is an edge from b to a only (a has heard b); if false, edges lead both ways."""

    def source(self, inputs: TopologyInputs) -> EdgeSource:
        path = locate(self.path, inputs.data_dir)
        texts = list(read_texts(path))
        if len(texts) != 1:
            raise DataError(str(path), f"holds {len(texts)} files, got a folder or archive", "name one of them")
        ((name, text),) = texts
        where = str(path) if name == path.name else f"{path}:{name}"
        trace = _READERS[self.format](where, text, directed=self.directed)
        nodes = int(max(trace.first.max(initial=-1), trace.second.max(initial=-1))) + 1
        if nodes < inputs.count:
            raise DataError(str(path), f"has {nodes} nodes for {inputs.count} devices", "lower devices.count")
        return partial(self._at, trace, inputs.count)

    def _at(self, trace: ContactTrace, count: int, group: IntArray, at_s: float, name: tuple[int, ...]) -> Ends:
        """Return the edges at the simulated time `at_s` in s; the trace repeats after its end."""
        since_s = at_s if self.step_s is None else self.step_s * name[0]
        time_s = (self.start_s + since_s) % max(trace.period_s, 1e-9)
        there = (trace.up_s <= time_s) & (time_s < trace.down_s + self.memory_s)
        there &= (trace.first < count) & (trace.second < count)
        ends = np.stack([trace.second[there], trace.first[there]], axis=1)
        if not self.directed:
            ends = np.concatenate((ends, ends[:, ::-1]))
        sender, receiver = np.unique(ends, axis=0).T if len(ends) else (ends[:, 0], ends[:, 1])
        return sender, receiver


@dataclass(frozen=True, slots=True, eq=False)
class ContactTrace:
    """Contacts of nodes `first` and `second` from `up_s` to `down_s` in s, as arrays [contacts] sorted by `up_s`."""

    first: IntArray
    second: IntArray
    up_s: Array
    down_s: Array

    @property
    def period_s(self) -> float:
        """Length of the trace in s: the end of the last contact."""
        return float(self.down_s.max(initial=0.0))


def read_contacts(where: str, text: str, *, directed: bool = False) -> ContactTrace:
    """Read contacts from a text in the StandardEvents format of the ONE simulator.

    A contact without an end lasts until the last line. Repeated events have no effect, as in the ONE: a pair that is up
    stays up, and a pair that is down stays down. The order of the nodes does not matter. Contacts over different
    interfaces are different contacts. If `directed` is True, `a b` and `b a` are two contacts; if only one of the two
    is up, a down event in either order ends it. Lines about messages are ignored.

    Raises:
        DataError: a line has another form, a node has contact with itself, or the time decreases.
    """
    since_s: dict[tuple[int, int, str], float] = {}
    found: list[tuple[float, float, int, int]] = []
    time_s = 0.0
    for count, line in lines(text):
        cells = line.split()
        before_s, (time_s, action) = time_s, parsed(where, count, _EVENT, [*cells, "", ""][:2], _HOW["one"])
        if time_s < before_s:
            raise refused(where, count, f"time goes back to {time_s:.15g} after {before_s:.15g}", line, _HOW["one"])
        if action != "CONN":
            continue
        if len(cells) not in (5, 6):
            raise refused(where, count, f"has {len(cells)} fields instead of 5 or 6", line, _HOW["one"])
        first, second, up = parsed(where, count, _ENDS, cells[2:5], _HOW["one"])
        if first == second:
            raise refused(where, count, "is a contact of a node with itself", line, _HOW["one"])
        interface = cells[5] if len(cells) == 6 else ""
        pair = first, second, interface
        if not directed or (not up and pair not in since_s):
            turned = second, first, interface
            pair = turned if turned in since_s else pair
        if up:
            since_s.setdefault(pair, time_s)
        elif pair in since_s:
            found.append((since_s.pop(pair), time_s, *pair[:2]))
    return _trace(found + [(up_s, time_s, *pair[:2]) for pair, up_s in since_s.items()])


def read_intervals(where: str, text: str, *, directed: bool = False) -> ContactTrace:
    """Read contacts from lines `a b begin end`, with nodes numbered from 1.

    Raises:
        DataError: a line has another form, a node has contact with itself, or a contact ends before it begins.
    """
    fields: dict[str, Grammar] = {
        "first": partial(whole, low=1),
        "second": partial(whole, low=1),
        "begin": _time,
        "end": _time,
    }
    found = []
    for count, (first, second, begin_s, end_s) in rows(where, text, fields, _HOW["intervals"], more=True):
        if end_s < begin_s or first == second:
            problem = "is a contact of a node with itself" if first == second else "ends before it begins"
            raise refused(where, count, problem, f"{first} {second} {begin_s:g} {end_s:g}", _HOW["intervals"])
        found.append((begin_s, end_s, first - 1, second - 1))
    return _trace(found)


def read_snapshots(where: str, text: str, *, directed: bool = False) -> ContactTrace:
    """Read contacts from lines `t a b`, which mean that a and b had contact in the 20 s before t.

    Raises:
        DataError: a line has another form, a node has contact with itself, or the time decreases.
    """
    fields: dict[str, Grammar] = {"time": _time, "first": whole, "second": whole}
    found: list[tuple[float, int, int]] = []
    for count, (time_s, first, second) in rows(where, text, fields, _HOW["snapshots"], more=True):
        back = bool(found) and time_s < found[-1][0]
        if back or first == second:
            problem = f"time goes back to {time_s:.15g}" if back else "is a contact of a node with itself"
            raise refused(where, count, problem, f"{time_s:.15g} {first} {second}", _HOW["snapshots"])
        found.append((time_s, first, second))
    nodes = {node: k for k, node in enumerate(sorted({node for _, *ends in found for node in ends}))}
    begin_s = found[0][0] if found else 0.0
    return _trace((at_s - begin_s, at_s - begin_s + _SNAPSHOT_S, nodes[a], nodes[b]) for at_s, a, b in found)


_READERS = {"one": read_contacts, "intervals": read_intervals, "snapshots": read_snapshots}


def _action(text: str) -> str:
    """Return `text` if it is the code of a contact or message event; raise ValueError otherwise."""
    if text not in ("CONN", "C", "S", "DE", "A", "DR", "R"):
        raise ValueError("is no action of the ONE")
    return text


def _node(text: str) -> int:
    return whole(_NAME.sub("", text))


def _is_up(text: str) -> bool:
    if text.lower() not in ("up", "down"):
        raise ValueError("is neither up nor down")
    return text.lower() == "up"


_time = partial(number, low=0.0, high=LONGEST_S)
_NAME = re.compile(r"^[^\W\d]+")
_EVENT: dict[str, Grammar] = {"time": _time, "action": _action}
_ENDS: dict[str, Grammar] = {"first node": _node, "second node": _node, "event": _is_up}


def _trace(rows: Iterable[tuple[float, float, int, int]]) -> ContactTrace:
    up_s, down_s, first, second = np.array(sorted(rows), np.float64).reshape(-1, 4).T
    return ContactTrace(first.astype(np.int64), second.astype(np.int64), up_s, down_s)
