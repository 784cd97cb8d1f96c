"""What devices and bands did at which time: bars of a timeline, shares and seconds of devices, use of bands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fednet_emu.arrays import Array, Mask
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


BINS = 480
"""Stretches of time for which shares are computed: about one for each pixel of a column of a page."""


def state_shares(bars: pd.DataFrame, devices: int, edges_s: Array) -> dict[str, Array]:
    """Mean share of the devices in each activity, exact for each stretch of time; the rest is idle.

    What a device does at the same time counts in each of its activities.

    Args:
        bars: the activities, see `activity_bars`.
        devices: how many devices there are, the idle ones included.
        edges_s: begins of the stretches and the end of the last, [stretches + 1], in simulated seconds.

    Returns:
        For each activity its shares, [stretches].
    """
    widths_s = np.diff(edges_s)
    return {
        str(activity): np.diff(time_before(some["started_s"], edges_s) - time_before(some["ended_s"], edges_s))
        / (widths_s * devices)
        for activity, some in bars.groupby("activity", observed=True)
    }


def time_before(instants_s: ArrayLike, edges_s: Array) -> Array:
    """Sum over instants of the time from an instant to each edge, 0 if it is later, [edges]."""
    ordered = np.sort(np.asarray(instants_s, np.float64))
    count = np.searchsorted(ordered, edges_s)
    return np.asarray(count * edges_s - np.append(0.0, np.cumsum(ordered))[count])


SORTS: dict[str, Callable[[pd.DataFrame], pd.Series[bool]] | None] = {
    "device": None,
    "waiting": lambda bars: bars["activity"] == WAITING,
    "computing": lambda bars: bars["activity"] == "compute",
    "busy": lambda bars: bars["activity"] != WAITING,
    "lost": lambda bars: bars["failed"],
}
"""Orders of devices: by number, or by the time that they spend in bars of a kind, the longest first."""


def ranked(bars: pd.DataFrame, sort: str) -> list[int]:
    """All devices that did anything, in one of the orders of SORTS; equal ones by their numbers."""
    counts, devices = SORTS[sort], np.unique(bars["device"].to_numpy(np.int64))
    if counts is not None:
        took_s = (bars["ended_s"] - bars["started_s"]).where(counts(bars), 0.0)
        total_s = took_s.groupby(bars["device"]).sum().reindex(devices).to_numpy(np.float64)
        devices = devices[np.argsort(-total_s, kind="stable")]
    return [int(device) for device in devices]


def spread(ranking: list[int], count: int) -> list[int]:
    """`count` devices at equal distances in a ranking, the first and the last included."""
    places = np.linspace(0, len(ranking) - 1, min(count, len(ranking)))
    return [ranking[place] for place in np.round(places).astype(int).tolist()]


SPENT = ("uplink", "downlink", "sidelink", "compute", WAITING, "idle")
"""What a device's time is spent on. Of things at the same time the first counts; idle is what is left over."""


def time_split(bars: pd.DataFrame, devices: int, simulated_s: float) -> dict[str, Array]:
    """Seconds of each device by what they went to, [devices] for each of SPENT; they add up to `simulated_s`.

    Args:
        bars: the activities within the run, see `activity_bars`; those of the server are left out.
        devices: how many devices there are.
        simulated_s: the duration of the run in simulated seconds.
    """
    bars = bars[bars["device"] >= 0]
    rank = bars["activity"].map({name: place for place, name in enumerate(SPENT)}).to_numpy(np.int64)
    device = bars["device"].to_numpy(np.int64)
    edges = _Edges(device, bars["started_s"].to_numpy(np.float64), bars["ended_s"].to_numpy(np.float64))
    spent: dict[str, Array] = {}
    busy = np.zeros(len(edges.took_s), np.bool_)
    for place, name in enumerate(SPENT[:-1]):
        now = edges.covered(rank == place) & ~busy
        busy |= now
        spent[name] = np.bincount(edges.device[now], edges.took_s[now], minlength=devices).astype(np.float64)
    return {**spent, "idle": np.maximum(simulated_s - sum(spent.values()), 0.0)}


class _Edges:
    """The time of all devices, cut at all begins and ends of their activities; each piece lasts until the next cut."""

    def __init__(self, device: Array, started_s: Array, ended_s: Array) -> None:
        both, at_s = np.concatenate([device, device]), np.concatenate([started_s, ended_s])
        self._order = np.lexsort((at_s, both))
        self.device = both[self._order]
        at_s = at_s[self._order]
        self.took_s = np.append(np.diff(at_s), 0.0)
        self.took_s[np.append(self.device[1:] != self.device[:-1], True)] = 0.0

    def covered(self, chosen: Mask) -> Mask:
        """Whether at least one of the chosen activities [bars] is under way in each piece, [2 bars]."""
        step = chosen.astype(np.int64)
        under_way = np.cumsum(np.concatenate([step, -step])[self._order])
        return np.asarray(under_way > 0)


MOST_NUMBERS = 120_000
MOST_BINS, FEWEST_BINS = 480, 40


@dataclass(frozen=True)
class Use:
    """Use of the band of one kind of link in one cell, in stretches of time.

    Attributes:
        kind: uplink, downlink or sidelink.
        cell: number of the cell, or of the cluster for sidelinks.
        one: share of each stretch with one transmission on the air, [stretches].
        several: share with several at once, [stretches].
    """

    kind: str
    cell: int
    one: Array
    several: Array


def air_use(transfers: pd.DataFrame, simulated_s: float) -> tuple[Array, list[Use]]:
    """Return the edges of equal stretches of the run in simulated seconds, [stretches + 1], and the use of each band.

    The more bands there are, the fewer are the stretches.
    """
    on_air = transfers[transfers["started_s"].notna()]
    bands = on_air.groupby(["kind", "cell"], observed=True)
    bins = min(max(MOST_NUMBERS // max(2 * bands.ngroups, 1), FEWEST_BINS), MOST_BINS)
    edges_s = np.linspace(0.0, max(simulated_s, 1e-9), bins + 1)
    uses = []
    for key, part in bands:
        kind, cell = np.asarray(key, object).tolist()
        ended_s = part["ended_s"].fillna(simulated_s).to_numpy(np.float64)
        one, several = _senders(part["started_s"].to_numpy(np.float64), ended_s, edges_s)
        uses.append(Use(str(kind), int(cell), one, several))
    return edges_s, uses


def _senders(started_s: Array, ended_s: Array, edges_s: Array) -> tuple[Array, Array]:
    """Shares of each stretch in which one, and in which more than one transmission is on the air."""
    at_s = np.concatenate([started_s, ended_s])
    step = np.repeat([1, -1], len(started_s))
    order = np.lexsort((step, at_s))  # ends first: transmissions one right after the other do not overlap
    at_s, count = at_s[order], np.cumsum(step[order])
    begins_s, ends_s, count = at_s[:-1], at_s[1:], count[:-1]

    def share(chosen: Mask) -> Array:
        covered = np.diff(time_before(begins_s[chosen], edges_s) - time_before(ends_s[chosen], edges_s))
        return np.asarray(np.clip(covered / np.diff(edges_s), 0.0, 1.0))

    return share(count == 1), share(count > 1)
