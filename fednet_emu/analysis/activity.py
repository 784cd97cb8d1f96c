"""Compute the bars of a timeline, which show what each device did at which time, from the tables of a run."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fednet_emu.records.ledger import SEVERAL

TRANSFER_COLUMNS = ("transfer", "kind", "sender", "receiver", "requested_s", "started_s", "ended_s", "lost")
RECEPTION_COLUMNS = ("transfer", "receiver", "lost")
COMPUTE_COLUMNS = ("device", "started_s", "ended_s", "stopped")

WAITING = "waiting"
BAR_COLUMNS = ("device", "activity", "started_s", "ended_s", "failed")
ROUNDS_SHOWN = 3


def activity_bars(
    transfers: pd.DataFrame, receptions: pd.DataFrame, computes: pd.DataFrame, until_s: float, from_s: float = 0.0
) -> pd.DataFrame:
    """Return the activities of all devices from `from_s` until `until_s` (simulated seconds), cut off at these times.

    A transfer gives a bar for each device that takes part. The wait for its channel gives a bar for the sender, or for
    the receivers if the server sends.

    Returns:
        One row per bar: `device`; `activity`, a kind of transfer, `compute` or `waiting`; `started_s`, `ended_s`; and
        `failed`, whether the transfer was lost to this device or the computation was stopped.
    """
    transfers = transfers[transfers["requested_s"] < until_s]
    parts = _parts(transfers, receptions)
    started_s = parts["started_s"].fillna(parts["ended_s"])  # a transfer that never started was waiting until its end
    on_air = parts.assign(activity=parts["kind"], started_s=started_s)[parts["started_s"].notna()]
    waits = parts[parts["waits"]].assign(activity=WAITING, started_s=parts["requested_s"], ended_s=started_s)
    waits["failed"] = parts["started_s"].isna()
    computing = computes.assign(activity="compute", failed=computes["stopped"] != "")
    bars = pd.concat([table[list(BAR_COLUMNS)] for table in (on_air, waits, computing)], ignore_index=True)
    bars["ended_s"] = bars["ended_s"].fillna(np.inf).clip(upper=until_s)
    bars["started_s"] = bars["started_s"].clip(lower=from_s)
    return bars[(bars["started_s"] < bars["ended_s"])].reset_index(drop=True)


def first_rounds_end_s(rounds: pd.DataFrame, transfers: pd.DataFrame, computes: pd.DataFrame) -> float:
    """Return the time in simulated seconds at which the first three rounds have ended; 0 if nothing has ended.

    For a run without rounds it is the time at which three computations per device have ended, counted over all devices;
    for a run without computations, the end of the last transfer.
    """
    ended_s = np.sort(rounds["ended_s"].dropna().to_numpy())
    if ended_s.size:
        return float(ended_s[:ROUNDS_SHOWN][-1])
    ended_s = np.sort(computes["ended_s"].dropna().to_numpy())
    if ended_s.size:
        return float(ended_s[: ROUNDS_SHOWN * computes["device"].nunique()][-1])
    ended_s = transfers["ended_s"].dropna().to_numpy()
    return float(ended_s.max()) if ended_s.size else 0.0


def _parts(transfers: pd.DataFrame, receptions: pd.DataFrame) -> pd.DataFrame:
    """Return a table with one row per transfer and device that takes part in it."""
    transfers = transfers.assign(failed=transfers["lost"] != "")
    from_server = transfers["sender"] < 0
    sending = transfers[~from_server].assign(device=transfers["sender"], waits=True)
    single = transfers[transfers["receiver"] >= 0].assign(device=transfers["receiver"], waits=from_server)
    several = transfers[transfers["receiver"] == SEVERAL].assign(waits=from_server)
    each = receptions[["transfer", "receiver", "lost"]].set_axis(["transfer", "device", "missed"], axis="columns")
    several = several.merge(each[each["device"] >= 0], on="transfer")
    several["failed"] = several["missed"] != ""  # one receiver may miss what others receive
    return pd.concat([sending, single, several], ignore_index=True)
