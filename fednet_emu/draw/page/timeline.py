"""Collect the transfers, receptions and computations that the timeline of a page shows, up to a maximum number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.activity import spread
from fednet_emu.analysis.quantities import format_seconds
from fednet_emu.analysis.usage import Usage
from fednet_emu.arrays import IntArray, Mask
from fednet_emu.records.ledger import SEVERAL
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS

MOST_DEVICES = 2_000
MOST_ROWS = 2_500_000
"""Maximum number of devices that have rows, and maximum total number of transfers, receptions and computations on a
page."""
EXACT_ROWS = 200_000
"""Maximum number of transfers for which a page has times in nanoseconds and includes energies. With more transfers,
times are in microseconds, and energies are omitted."""


def timeline(usage: Usage) -> dict[str, Any]:
    """Return the transfers, receptions and computations for the page of a run, and notes on omitted ones.

    Times are integers in units of `quantum_s`. A transfer that was never on the air has the duration -1.
    """
    notes, devices = [], np.arange(usage.devices)
    if usage.devices > MOST_DEVICES:
        devices = np.array(spread(devices.tolist(), MOST_DEVICES))
        notes.append(f"Rows are those of {MOST_DEVICES} of {usage.devices} devices, evenly spread by number.")
    sent, heard, made = _of(usage, devices)
    until_s = _until_s(sent, heard, made)
    if until_s < usage.simulated_s:
        sent, made = sent[sent["requested_s"] <= until_s], made[made["started_s"] <= until_s]
        heard = heard[heard["transfer"].isin(sent["transfer"])]
        notes.append(
            f"Bars end at {format_seconds(until_s)}: more than {MOST_ROWS} would not fit into a page. "
            "`fednet trace` has them all."
        )
    exact = len(sent) <= EXACT_ROWS
    if not exact:
        notes.append("Times of single transfers are rounded to microseconds, and their energies are left out.")
    unit_s = 1e-9 if exact else 1e-6
    energy = {"energy_j": sent["energy_j"] + sent["rx_energy_j"]} if exact else {}
    return {
        "quantum_s": unit_s,
        "devices": devices,
        "notes": notes,
        "transfers": {**_transfers(sent, unit_s), **energy},
        "receptions": {
            "transfer": np.searchsorted(sent["transfer"].to_numpy(), heard["transfer"].to_numpy()),
            "receiver": heard["receiver"],
            "lost": _codes(heard["loss_reason"], REASONS),
        },
        "computes": {
            "device": made["device"],
            "started": _whole(made["started_s"], unit_s),
            "took": _whole(made["ended_s"], unit_s) - _whole(made["started_s"], unit_s),
            "stopped": _codes(made["stopped"], REASONS),
        },
    }


def _transfers(sent: pd.DataFrame, unit_s: float) -> Mapping[str, Any]:
    requested, ended = _whole(sent["requested_s"], unit_s), _whole(sent["ended_s"], unit_s)
    never = sent["started_s"].isna().to_numpy()
    started = np.where(never, ended, _whole(sent["started_s"].fillna(0.0), unit_s))
    return {
        "number": sent["transfer"],
        "kind": _codes(sent["direction"], KINDS),
        "sender": sent["sender"],
        "receiver": sent["receiver"],
        "receivers": sent["receivers"],
        "requested": requested,
        "waited": started - requested,
        "took": np.where(never, -1, ended - started),
        "size_bit": sent["size_bit"].astype(np.int64),
        "unsent_bit": np.rint((sent["size_bit"] - sent["transmitted_bit"]).fillna(0.0).to_numpy()).astype(np.int64),
        "lost": _codes(sent["loss_reason"], REASONS),
        "cell": sent["cell"],
    }


def _of(usage: Usage, devices: IntArray) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the transfers, receptions and computations that involve at least one of `devices`."""
    sent, heard, made = usage.transfers, usage.receptions, usage.computes
    heard, made = heard[heard["receiver"] >= 0], made[made["device"] >= 0]
    if len(devices) == usage.devices:
        return sent, heard, made
    heard = heard[_among(heard["receiver"], devices)]
    several = (sent["receiver"] == SEVERAL) & sent["transfer"].isin(heard["transfer"])
    sent = sent[_among(sent["sender"], devices) | _among(sent["receiver"], devices) | several]
    heard = heard[heard["transfer"].isin(sent["transfer"])]
    return sent, heard, made[_among(made["device"], devices)]


def _among(column: pd.Series[int], devices: IntArray) -> Mask:
    return np.asarray(np.isin(column.to_numpy(), devices))


def _until_s(sent: pd.DataFrame, heard: pd.DataFrame, made: pd.DataFrame) -> float:
    """Return the simulated time, in seconds, up to which the records fit into the page; infinity if all records fit."""
    if len(sent) + len(heard) + len(made) <= MOST_ROWS:
        return np.inf
    heard_s = sent.set_index("transfer")["requested_s"].reindex(heard["transfer"])
    begins_s = np.concatenate([sent["requested_s"], heard_s, made["started_s"]])
    return float(np.partition(begins_s, MOST_ROWS)[MOST_ROWS])


def _whole(times_s: pd.Series[float], unit_s: float) -> IntArray:
    return np.asarray(np.rint(times_s.to_numpy(np.float64) / unit_s), np.int64)


def _codes(words: pd.Series[str], of: Sequence[str]) -> IntArray:
    return np.asarray(pd.Categorical(words, categories=list(of)).codes, np.int64)
