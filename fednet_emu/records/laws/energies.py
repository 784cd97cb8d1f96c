"""The law of the table `energies`: its rows add up to the energy of the run, and waiting is a part of idling.

The totals of the ledger were counted while the run went on; the table was filled in from the rows of its end.
"""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array
from fednet_emu.records.ledger import SERVER, Ledger, device_label
from fednet_emu.records.summaries import activities, by_device, empty_s

RELATIVE = 1e-9
_PARTS = ("computing_j", "sending_j", "receiving_j", "idle_j")


def energies_problem(ledger: Ledger) -> str:
    """Say what is wrong with the table; empty if it is right, or if the run has none."""
    if not len(ledger.energies):
        return ""
    column, ended_ns = ledger.energies.column, ledger.ended_ns
    parts_j = sum(float(np.nansum(column(name))) for name in _PARTS)
    due_j = ledger.spent_j(ended_ns) - ledger.backhaul_j
    if not np.isclose(parts_j, due_j, rtol=RELATIVE, atol=1e-12):
        return f"its rows are {parts_j:.9g} J, all that was drawn beside the backhaul is {due_j:.9g} J"
    for name in (*_PARTS, "waiting_j"):
        for place in np.flatnonzero(column(name) < 0)[:1]:
            return f"{device_label(int(column('device')[place]))}: {name} is negative, {column(name)[place]:.9g} J"
    idle_j, waiting_j = column("idle_j")[:-1], column("waiting_j")[:-1]
    count = len(idle_j)
    if not idle_j.any():
        return "some device waits at no idle power" if waiting_j.any() else ""
    idle_w = idle_j / np.maximum(ended_ns / 1e9 - empty_s(ledger, count), 1e-9)
    off_j = np.abs(waiting_j - idle_w * _waiting_s(ledger, count))
    for device in np.flatnonzero(off_j > RELATIVE * idle_w * (ended_ns / 1e9) + 1e-12)[:1]:
        return f"dev-{device}: waiting_j differs by {off_j[device]:.9g} J from the times in which it does nothing"
    return ""


def _waiting_s(ledger: Ledger, count: int) -> Array:
    """Seconds [count] in which a device has charge and does nothing, by a count of its activities along the time."""
    device, from_ns, to_ns = activities(ledger)
    known, every = (device > SERVER) & (from_ns >= 0), np.arange(count)
    device, from_ns, to_ns = device[known], from_ns[known], to_ns[known]
    who = np.concatenate((device, device, every, every))
    ends_ns = np.zeros(count, np.int64), np.full(count, ledger.ended_ns)
    at_ns = np.minimum(np.concatenate((from_ns, to_ns, *ends_ns)), ledger.ended_ns)
    step = np.repeat([1, -1, 0], [len(device), len(device), 2 * count])
    order = np.lexsort((at_ns, who))
    who, at_ns, busy = who[order], at_ns[order], np.cumsum(step[order])
    free = (busy[:-1] == 0) & (who[1:] == who[:-1])
    return by_device(who[1:][free], np.diff(at_ns)[free] / 1e9, count)
