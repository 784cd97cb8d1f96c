"""The conservation law of batteries: what came in has been spilled, drawn or is left, and draws are those of the rows.

At each row of the table `batteries`, initial charge + harvested - spilled - drawn = charge. At the end of the run, what
each device has drawn for computing and sending is the sum of its computations and transmissions, and what all together
have drawn for receiving is the sum of all receptions, and for idling the idle power over the time that they last.
"""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.records.ledger import SERVER, Ledger

RELATIVE = 1e-9
"""Largest error, as a part of all the energy that the battery has seen."""

USES = ("computing_j", "sending_j", "receiving_j", "idle_j")


def charge_problem(ledger: Ledger) -> str:
    """Say which row or device breaks the law; empty if none does, or if there are no batteries."""
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
    return _differs_from_rows(ledger, {use: column(use)[last] for use in USES})


def _differs_from_rows(ledger: Ledger, used_j: dict[str, Array]) -> str:
    """Compare what devices [devices] have drawn with the rows of the ledger."""
    sent, computed = ledger.transfers.column, ledger.computes.column
    pairs = {
        "computing_j": (computed("device"), computed("energy_j")),
        "sending_j": (sent("sender"), sent("energy_j")),
    }
    for use, (device, energy_j) in pairs.items():
        wrong = _differ(_by_device(device, energy_j, len(used_j[use])), used_j[use])
        if wrong.any():
            return f"dev-{np.flatnonzero(wrong)[0]}: {use} of its battery differs from the energy of its rows"
    total_j = float(sent("receive_j").sum())
    if _differ(np.array([total_j]), np.array([used_j["receiving_j"].sum()])).any():
        return f"receiving_j of all batteries differs from receive_j of all transfers, {total_j:.9g} J"
    return ""


def _by_device(device: IntArray, energy_j: Array, count: int) -> Array:
    own = device > SERVER
    return np.asarray(np.bincount(device[own], energy_j[own], minlength=count), np.float64)


def _differ(one_j: Array, other_j: Array) -> Mask:
    return np.asarray(~np.isclose(one_j, other_j, rtol=RELATIVE, atol=1e-12))


def empty_s(ledger: Ledger, n_devices: int) -> Array:
    """Time in s [n_devices] in which batteries were empty; 0 without batteries."""
    column = ledger.batteries.column
    device, at_ns, on = column("device"), column("simulated_ns"), column("state") > 0
    order = np.argsort(device, kind="stable")
    device, at_ns, on = device[order], at_ns[order], on[order]
    empty = (device[1:] == device[:-1]) & ~on[:-1]
    took_s = np.diff(at_ns)[empty] / 1e9
    return np.asarray(np.bincount(device[1:][empty], took_s, n_devices), np.float64)
