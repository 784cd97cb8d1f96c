"""Conservation laws of energy, which check the table `energies` and the charge of batteries.

The totals of the ledger are counted during the run, and the table `energies` is computed from the rows at the end of
the run. The two are therefore independent.
"""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array, Mask
from fednet_emu.records.ledger import SERVER, Ledger, device_label
from fednet_emu.records.summaries import activities, by_device, empty_s, energies_of_rows

RELATIVE = 1e-9
"""Maximum relative error of an energy that passes a check."""

USES = ("computing_j", "sending_j", "receiving_j", "idle_j")


def energies_problem(ledger: Ledger) -> str:
    """Check that the table `energies` adds up to the run's energy, and that `waiting_j` matches the idle times.

    Returns a sentence about the first violation, or an empty text.
    """
    if not len(ledger.energies):
        return ""
    column, ended_ns = ledger.energies.column, ledger.ended_ns
    parts_j = sum(float(np.nansum(column(name))) for name in USES)
    due_j = ledger.spent_j(ended_ns) - ledger.backhaul_j
    if not np.isclose(parts_j, due_j, rtol=RELATIVE, atol=1e-12):
        return f"its rows are {parts_j:.9g} J, all that was drawn beside the backhaul is {due_j:.9g} J"
    for name in (*USES, "waiting_j"):
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
    """Return the time in s [count] in which each device has charge and no activity, found by counting activities."""
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


def charge_problem(ledger: Ledger) -> str:
    """Check that each row of `batteries` has charge = initial charge + harvested - spilled - consumed energy.

    The totals at the end of the run are checked as well. The energy that a battery has supplied for computing, sending
    and receiving must equal the sum over the recorded activities of the device. The idle energy of all batteries must
    equal the idle power integrated over time.
    Returns a sentence about the first violation, or an empty text.
    """
    column = ledger.batteries.column
    device = column("device")
    if not len(device):
        return ""
    _, first = np.unique(device, return_index=True)
    last = len(device) - 1 - np.unique(device[::-1], return_index=True)[1]
    start_j = np.zeros(len(first))
    start_j[device[first]] = column("charge_j")[first]
    came_j = start_j[device] + column("harvested_j")
    drawn_j = sum((column(use) for use in USES), np.zeros(len(device)))
    off_j = np.abs(came_j - column("spilled_j") - drawn_j - column("charge_j"))
    wrong = off_j > RELATIVE * (came_j + drawn_j) + 1e-15
    if wrong.any():
        return f"{int(wrong.sum())} of {len(wrong)} charges are not conserved, first in row {np.flatnonzero(wrong)[0]}"
    idle_j, due_j = float(column("idle_j")[last].sum()), ledger.idle.until_j(int(column("simulated_ns")[last].max()))
    if _differ(np.array([idle_j]), np.array([due_j])).any():
        return f"idle_j of all batteries is {idle_j:.9g} J, the idle power over time gives {due_j:.9g} J"
    for use, own_j in energies_of_rows(ledger, len(last)).items():
        wrong = _differ(own_j, column(use)[last])
        if wrong.any():
            return f"dev-{np.flatnonzero(wrong)[0]}: {use} of its battery differs from the energy of its rows"
    return ""


def _differ(one_j: Array, other_j: Array) -> Mask:
    return np.asarray(~np.isclose(one_j, other_j, rtol=RELATIVE, atol=1e-12))
