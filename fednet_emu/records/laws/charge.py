"""The conservation law of batteries: what came in has been spilled, drawn or is left, and draws are those of the rows.

At each row of the table `batteries`, initial charge + harvested - spilled - drawn = charge. At the end of the run, what
each device has drawn for computing, sending and receiving is the sum of its rows, and what all together have drawn for
idling is the idle power over the time that they last.
"""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array, Mask
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.summaries import energies_of_rows

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
    for use, own_j in energies_of_rows(ledger, len(used_j["idle_j"])).items():
        wrong = _differ(own_j, used_j[use])
        if wrong.any():
            return f"dev-{np.flatnonzero(wrong)[0]}: {use} of its battery differs from the energy of its rows"
    return ""


def _differ(one_j: Array, other_j: Array) -> Mask:
    return np.asarray(~np.isclose(one_j, other_j, rtol=RELATIVE, atol=1e-12))
