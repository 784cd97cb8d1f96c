"""Edges from recorded contacts between devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field

from fednet_emu.arrays import Array, IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.files.recordings import read_texts
from fednet_emu.network.topology.edges import Edges, EdgeSource, Ends, TopologyInputs

_HOW = {
    "one": "lines of time, CONN, node, node, up or down",
    "intervals": "lines of node, node, begin and end, nodes from 1 on",
    "snapshots": "lines of time, node and node, sorted by time",
}
_SNAPSHOT_S = 20.0


class Contacts(Edges):
    """Recorded contacts. One is an edge for as long as it lasts, and for `memory_s` after its end."""

    path: str
    """The trace, plain or .gz; in the data folder, or where the program was started."""

    format: Literal["one", "intervals", "snapshots"] = "one"
    """`one`: lines `t CONN a b up` and `down` of the ONE simulator (StandardEvents); device k is node k. `intervals`:
    lines `a b begin end` in s, further columns ignored; device k is node k + 1. `snapshots`: lines `t a b` of contacts
    in the 20 s up to t, further columns ignored, as SocioPatterns publishes them; time begins 20 s before the first
    line, and devices are the nodes in the order of their numbers."""

    start_s: float = Field(0.0, ge=0)
    """Time of the trace in s at which the run begins."""

    step_s: float | None = Field(None, gt=0)
    """Trace time in s that passes per round; null to use simulated time (rounds are then shorter than contacts)."""

    memory_s: float = Field(0.0, ge=0)
    """Time in s for which a contact still counts after its end, e.g. because Bluetooth scans are minutes apart."""

    directed: bool = False
    """Whether `a b up` is an edge from b to a only (a is taken to have heard b), or one both ways."""

    def source(self, inputs: TopologyInputs) -> EdgeSource:
        """The trace, read once.

        Raises:
            DataError: it is missing, damaged, or has fewer nodes than there are devices.
        """
        path = locate(self.path, inputs.data_dir)
        ((name, text),) = read_texts(path, "*")
        trace = _READERS[self.format](str(path) if name == path.name else name, text)
        nodes = int(max(trace.first.max(initial=-1), trace.second.max(initial=-1))) + 1
        if nodes < inputs.count:
            raise DataError(str(path), f"has {nodes} nodes for {inputs.count} devices", "lower devices.count")
        return partial(self._at, trace, inputs.count)

    def _at(self, trace: ContactTrace, count: int, group: IntArray, at_s: float, name: tuple[int, ...]) -> Ends:
        """The contacts at this time; when the trace has ended it begins again."""
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
    """Contacts [contacts] between nodes `first` and `second` from `up_s` to `down_s`, in order of their beginnings."""

    first: IntArray
    second: IntArray
    up_s: Array
    down_s: Array

    @property
    def period_s(self) -> float:
        """Length of the trace: the end of the last contact."""
        return float(self.down_s.max(initial=0.0))


def read_contacts(where: str, text: str) -> ContactTrace:
    """Contacts of a text in the StandardEvents format; those without an end last until the last line.

    A contact that comes up while it is up is one contact until it has gone down as often.

    Raises:
        DataError: a line is not of this form, or a contact ends that has not begun.
    """
    open_since: dict[tuple[int, int], list[float]] = {}
    rows: list[tuple[float, float, int, int]] = []
    time_s = 0.0
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if len(fields) != 5 or fields[1] != "CONN" or fields[4] not in ("up", "down"):
            raise _no_contact(where, number, line, "one")
        try:
            time_s, pair = float(fields[0]), (int(fields[2]), int(fields[3]))
        except ValueError as error:
            raise _no_contact(where, number, line, "one") from error
        if fields[4] == "up":
            open_since.setdefault(pair, []).append(time_s)
        elif open_since.get(pair):
            began_s = open_since[pair].pop()
            if not open_since[pair]:
                rows.append((began_s, time_s, *pair))
        else:
            what = f"line {number} ends a contact that has not begun, got {line[:60]!r}"
            raise DataError(where, what, f"{_HOW['one']}, separated by blanks, are right")
    rows += [(since_s[0], time_s, *pair) for pair, since_s in open_since.items() if since_s]
    return _trace(rows)


def read_intervals(where: str, text: str) -> ContactTrace:
    """Contacts of a text of lines `a b begin end`, whose nodes are numbered from 1.

    Raises:
        DataError: a line is not of this form, or a contact ends before it begins.
    """
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            first, second, begin, end = line.split()[:4]
            row = float(begin), float(end), int(first) - 1, int(second) - 1
        except ValueError as error:
            raise _no_contact(where, number, line, "intervals") from error
        if not 0 <= row[0] <= row[1] < np.inf or min(row[2:]) < 0:
            raise _no_contact(where, number, line, "intervals")
        rows.append(row)
    return _trace(rows)


def read_snapshots(where: str, text: str) -> ContactTrace:
    """Contacts of a text of lines `t a b`, each of which says that a and b met in the 20 s up to t.

    Raises:
        DataError: a line is not of this form, or time goes back.
    """
    rows: list[tuple[float, int, int]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            time, first, second = line.split()[:3]
            row = float(time), int(first), int(second)
        except ValueError as error:
            raise _no_contact(where, number, line, "snapshots") from error
        if not np.isfinite(row[0]) or (rows and row[0] < rows[-1][0]):
            raise _no_contact(where, number, line, "snapshots")
        rows.append(row)
    nodes = {node: k for k, node in enumerate(sorted({node for _, *ends in rows for node in ends}))}
    begin_s = rows[0][0] if rows else 0.0
    return _trace((at_s - begin_s, at_s - begin_s + _SNAPSHOT_S, nodes[a], nodes[b]) for at_s, a, b in rows)


_READERS: dict[str, Callable[[str, str], ContactTrace]] = {
    "one": read_contacts,
    "intervals": read_intervals,
    "snapshots": read_snapshots,
}


def _no_contact(where: str, number: int, line: str, form: str) -> DataError:
    what = f"line {number} is no contact, got {line[:60]!r}"
    return DataError(where, what, f"{_HOW[form]}, separated by blanks, are right")


def _trace(rows: Iterable[tuple[float, float, int, int]]) -> ContactTrace:
    """Contacts from rows of begin and end in s and two nodes."""
    up_s, down_s, first, second = np.array(sorted(rows), np.float64).reshape(-1, 4).T
    return ContactTrace(first.astype(np.int64), second.astype(np.int64), up_s, down_s)
