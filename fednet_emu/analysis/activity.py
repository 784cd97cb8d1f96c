"""Compute the activities of devices over time (as bars of a timeline and as shares of time), and the use of bands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fednet_emu.analysis.run import RunRecords
from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.errors import FednetError, require_known
from fednet_emu.records.summaries import deliveries

OFF_AIR = ("ack_wait_s", "reception_delay_s")
"""Columns of the table of transfers with the durations, in s, of phases after the start in which no bits are sent; they
exist only in runs with delays other than airtime."""
TRANSFER_COLUMNS = ("transfer", "direction", "sender", "receiver", "requested_s", "started_s", "ended_s", "loss_reason")
RECEPTION_COLUMNS = ("transfer", "receiver", "loss_reason")
COMPUTE_COLUMNS = ("device", "started_s", "ended_s", "stopped")

WAITING = "waiting"
BAR_COLUMNS = ("device", "activity", "started_s", "ended_s", "failed")
ROUNDS_SHOWN = 3


def activity_bars(
    transfers: pd.DataFrame, receptions: pd.DataFrame, computes: pd.DataFrame, until_s: float, from_s: float = 0.0
) -> pd.DataFrame:
    """Return the activities of all devices between `from_s` and `until_s` (simulated seconds), clipped to this window.

    A transfer is an activity of each device that sends or receives it. The wait for the channel before a transfer is an
    activity of the sender, or of the receivers if the server sends.

    Returns:
        One row for each activity, which is a bar in a timeline. The columns are `device`; `activity` (uplink, downlink,
        sidelink, `compute` or `waiting`); `started_s` and `ended_s` in simulated seconds; and `failed`, which is True
        if the transfer was lost for this device or the computation was stopped.
    """
    transfers = transfers[transfers["requested_s"] < until_s]
    parts = _parts(transfers, receptions)
    started_s = parts["started_s"].fillna(parts["ended_s"])  # a transfer that never started waited until its end
    on_air = parts.assign(activity=parts["direction"], started_s=started_s)[parts["started_s"].notna()]
    waits = parts[parts["waits"]].assign(activity=WAITING, started_s=parts["requested_s"], ended_s=started_s)
    waits["failed"] = parts["started_s"].isna()
    computing = computes.assign(activity="compute", failed=computes["stopped"] != "")
    bars = pd.concat([table[list(BAR_COLUMNS)] for table in (on_air, waits, computing)], ignore_index=True)
    bars["ended_s"] = bars["ended_s"].fillna(np.inf).clip(upper=until_s)
    bars["started_s"] = bars["started_s"].clip(lower=from_s)
    return bars[(bars["started_s"] < bars["ended_s"])].reset_index(drop=True)


def first_rounds_end_s(rounds: pd.DataFrame, transfers: pd.DataFrame, computes: pd.DataFrame) -> float:
    """Return the end of the third round, or of the last ended round if fewer have ended, in simulated seconds.

    If no round has ended, the result is the time at which three computations per device have ended on average. If no
    computation has ended, it is the end of the last transfer. If no transfer has ended either, it is 0.
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
    """Return one row for each device that sends or receives a transfer; `waits` is True if the device waits before.

    The end of a row of a sender is the time at which the last bit leaves the sender.
    """
    heard, sent = deliveries(transfers, receptions), transfers[transfers["sender"] >= 0]
    heard = heard[heard["receiver"] >= 0]
    receiving = heard.assign(device=heard["receiver"], waits=heard["sender"] < 0)
    if OFF_AIR[1] in sent:
        sent = sent.assign(ended_s=sent["ended_s"] - sent[OFF_AIR[1]])
    parts = pd.concat([sent.assign(device=sent["sender"], waits=True), receiving], ignore_index=True)
    return parts.assign(failed=parts["loss_reason"] != "")


BINS = 480
"""Number of time intervals for which shares of activities are computed. It is about the width of a figure in pixels."""


def state_shares(bars: pd.DataFrame, devices: int, edges_s: Array) -> dict[str, Array]:
    """Return for each activity the fraction of devices [intervals] that perform it, averaged over each time interval.

    If activities of a device overlap, the first one in the order of `SPENT` counts.

    Args:
        bars: the activities; see `activity_bars`. Activities of the server are ignored.
        devices: number of devices, including idle devices.
        edges_s: edges of the intervals [intervals + 1], in simulated seconds.
    """
    bars = bars[bars["device"] >= 0].sort_values(["device", "started_s"])
    shares: dict[str, Array] = {}
    busy: Array = np.zeros(len(edges_s) - 1)
    for place, name in enumerate(SPENT):
        some = bars[bars["activity"].isin(SPENT[: place + 1])]
        if not (some["activity"] == name).any():
            continue
        # each activity counts from the latest end of all earlier activities of its device, which may be after its end
        earlier_s = some.groupby("device")["ended_s"].cummax().groupby(some["device"]).shift()
        started_s, ended_s = (np.fmax(some[column], earlier_s) for column in ("started_s", "ended_s"))
        busy_s = np.diff(time_before(started_s, edges_s) - time_before(ended_s, edges_s))
        shares[name] = busy_s / (np.diff(edges_s) * devices) - busy
        busy = busy + shares[name]
    return shares


def time_before(instants_s: ArrayLike, edges_s: Array) -> Array:
    """Return for each edge e [edges] the sum of e - t, in seconds, over all given times t before e."""
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
"""Orders of the devices, by name. Each function returns a mask of activities, and devices are sorted by the total
duration of these activities, longest first. None stands for the order by device number."""


def ranked(bars: pd.DataFrame, sort: str) -> list[int]:
    """Return all devices with activities, in one of the orders of `SORTS`. Ties are sorted by device number.

    The server counts as a device with the number -1.
    """
    counts, devices = SORTS[sort], np.unique(bars["device"].to_numpy(np.int64))
    if counts is not None:
        took_s = (bars["ended_s"] - bars["started_s"]).where(counts(bars), 0.0)
        total_s = took_s.groupby(bars["device"]).sum().reindex(devices).to_numpy(np.float64)
        devices = devices[np.argsort(-total_s, kind="stable")]
    return [int(device) for device in devices]


Item = TypeVar("Item")


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Return `count` evenly spaced items of a sequence, with the first and the last; all if there are fewer."""
    places = np.linspace(0, len(items) - 1, min(count, len(items)))
    return [items[place] for place in np.round(places).astype(int).tolist()]


SPENT = ("uplink", "downlink", "sidelink", "compute", WAITING, "idle")
"""Categories of a device's time. If activities overlap, the first one in this order counts. All other time is idle."""


def time_split(bars: pd.DataFrame, devices: int, simulated_s: float) -> dict[str, Array]:
    """Return the time that each device [devices] spent in each category of `SPENT`, in seconds.

    The times of a device add up to `simulated_s`.

    Args:
        bars: the activities within the run; see `activity_bars`. Activities of the server are ignored.
        simulated_s: duration of the run in simulated seconds.
    """
    bars = bars[bars["device"] >= 0]
    rank = bars["activity"].map({name: place for place, name in enumerate(SPENT)}).to_numpy(np.int64)
    # the time of each device is divided into intervals at the start and at the end of each of its activities
    device = np.tile(bars["device"].to_numpy(np.int64), 2)
    at_s = np.concatenate([bars["started_s"], bars["ended_s"]]).astype(np.float64)
    order = np.lexsort((at_s, device))
    device, at_s = device[order], at_s[order]
    took_s = np.append(np.diff(at_s), 0.0)[: len(at_s)]  # empty without activities
    took_s[:-1][device[1:] != device[:-1]] = 0.0
    spent: dict[str, Array] = {}
    busy = np.zeros(len(took_s), np.bool_)
    for place, name in enumerate(SPENT[:-1]):
        step = (rank == place).astype(np.int64)
        under_way = np.cumsum(np.concatenate([step, -step])[order])
        now = (under_way > 0) & ~busy
        busy |= now
        spent[name] = np.bincount(device[now], took_s[now], minlength=devices).astype(np.float64)
    return {**spent, "idle": np.maximum(simulated_s - sum(spent.values()), 0.0)}


MOST_NUMBERS = 120_000
MOST_BINS, FEWEST_BINS = 480, 40


@dataclass(frozen=True)
class Use:
    """Occupancy of a radio band (one cell and one direction) in successive time intervals."""

    kind: str
    """Direction of the band: uplink, downlink or sidelink."""
    cell: int
    """Index of the cell, or of the cluster for sidelinks."""
    one: Array
    """Fraction of each time interval [intervals] in which exactly one transmission is on the air, from 0 to 1."""
    several: Array
    """Fraction of each time interval [intervals] in which several transmissions are on the air, from 0 to 1."""


def air_use(transfers: pd.DataFrame, simulated_s: float) -> tuple[Array, list[Use]]:
    """Return the edges [intervals + 1] of equal time intervals, in simulated seconds, and the occupancy of each band.

    There are 40 to 480 intervals. The number decreases as the number of bands increases, which limits the amount of
    data on a page. Waits for acknowledgements are placed before the time on the air.
    """
    gaps_s, tail_s = (transfers.get(name, 0.0) for name in OFF_AIR)
    on_air = transfers.assign(started_s=transfers["started_s"] + gaps_s, ended_s=transfers["ended_s"] - tail_s)
    on_air = on_air[on_air["started_s"].notna()]
    bands = on_air.groupby(["direction", "cell"], observed=True)
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
    """Return two fractions of each time interval [intervals]: with one and with several transmissions on the air."""
    at_s = np.concatenate([started_s, ended_s])
    step = np.repeat([1, -1], len(started_s))
    order = np.lexsort((step, at_s))  # ends come first, so that consecutive transmissions do not overlap
    at_s, count = at_s[order], np.cumsum(step[order])
    begins_s, ends_s, count = at_s[:-1], at_s[1:], count[:-1]

    def share(chosen: Mask) -> Array:
        covered = np.diff(time_before(begins_s[chosen], edges_s) - time_before(ends_s[chosen], edges_s))
        return np.asarray(np.clip(covered / np.diff(edges_s), 0.0, 1.0))

    return share(count == 1), share(count > 1)


FOREVER_NS = 1 << 62


@dataclass(frozen=True)
class Window:
    """The time window, the devices and the order of devices that a timeline or trace shows."""

    from_s: float = 0.0
    """Start of the window, in simulated seconds."""
    until_s: float | None = None
    """End of the window, in simulated seconds. In a trace, None stands for the end of the run. In a timeline, None
    stands for the end of the third round if `from_s` is 0, and otherwise for the end of the run. If a timeline shows
    several runs, the latest of their ends is used.
    """
    devices: tuple[int, ...] | None = None
    """The devices to show; None for all devices."""
    sort: str | None = None
    """Order of the devices in a timeline, a key of `SORTS`. If it is None, devices are sorted by number, or by waiting
    time if there are too many devices for one row each."""

    @classmethod
    def of(
        cls,
        from_s: float | None = None,
        until_s: float | None = None,
        devices: Iterable[int] | None = None,
        sort: str | None = None,
    ) -> Self:
        """Create a window. Each argument that is None is replaced by its default."""
        return cls(from_s or 0.0, until_s, None if devices is None else tuple(sorted(set(devices))), sort)

    def check(self, runs: Sequence[RunRecords]) -> None:
        """Check that the window is not empty, and that the sort order and the devices exist in the runs.

        Raises:
            FednetError: the window begins before 0 s or does not end after its start, no device is selected, or a sort
                order or device does not exist.
        """
        if not self.from_s >= 0:
            raise FednetError(f"from_s: must be at least 0, got {self.from_s:g} s; leave it out to begin with the run")
        if self.until_s is not None and not self.until_s > self.from_s:
            begin = f"must be after the begin at {self.from_s:g} s"
            raise FednetError(f"until_s: {begin}, got {self.until_s:g} s; give a later end")
        require_known("sort: no such order of devices", self.sort, SORTS)
        if self.devices is None:
            return
        count = max((run.devices for run in runs), default=0)
        wrong = [device for device in self.devices if not 0 <= device < count]
        if not self.devices:
            raise FednetError("devices: no device is to be shown, got no number; leave it out to show all")
        if wrong:
            raise FednetError(f"devices: no such device, got {wrong[0]}; they are numbered 0 to {count - 1}")

    @property
    def from_ns(self) -> int:
        """Start of the window, in simulated nanoseconds."""
        return round(self.from_s * 1e9)

    @property
    def until_ns(self) -> int:
        """End of the window in a trace, in simulated nanoseconds; 2^62 if the window has no end."""
        return FOREVER_NS if self.until_s is None or np.isinf(self.until_s) else round(self.until_s * 1e9)

    def overlaps(self, started_ns: IntArray, ended_ns: IntArray) -> Mask:
        """Return a mask [n] of time spans that overlap the window. The starts and ends [n] are in simulated ns."""
        return np.asarray((ended_ns >= self.from_ns) & (started_ns <= self.until_ns))

    def has(self, device: IntArray) -> Mask:
        """Return a mask [n], which is True if the device with the index in `device` [n] is shown."""
        return np.ones(len(device), np.bool_) if self.devices is None else np.isin(device, self.devices)


WHOLE = Window()
