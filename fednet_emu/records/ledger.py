"""The ledger of a run, which records every transfer, computation, round and evaluation with its simulated time.

Times in the ledger are integers in ns. Tables for users have times in s. Device indices begin at 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fednet_emu.arrays import Array, IntArray
from fednet_emu.records.rows import (
    KINDS,
    ROWS,
    BackhaulRow,
    BatteryRow,
    ComputeRow,
    DeviceEvaluationRow,
    EnergyRow,
    EvaluationRow,
    HandoverRow,
    PhaseColumns,
    ReceptionRow,
    RoundRow,
    SharedColumns,
    TrafficRow,
    TransferRow,
)
from fednet_emu.records.table import MEASURE, Column, Rows, Table, columns_of

if TYPE_CHECKING:
    import pandas as pd


_NS_PER_S = 1e9


class IdleEnergy:
    """Total idle energy of all devices. Their idle power in W changes when a battery becomes empty or is charged."""

    def __init__(self, power_w: float = 0.0) -> None:
        self.power_w = power_w
        self._before_j, self._since_ns = 0.0, 0

    def change(self, now_ns: int, by_w: float) -> None:
        self._before_j, self._since_ns = self.until_j(now_ns), now_ns
        self.power_w += by_w

    def until_j(self, now_ns: int) -> float:
        return self._before_j + self.power_w * ((now_ns - self._since_ns) / _NS_PER_S)


SERVER = -1
"""The server's index in columns of device indices."""
SEVERAL = -2
"""Value of `receiver` for a transfer to several devices. The table `receptions` lists these devices."""
NEVER_NS = -1
"""Value of `started_ns` for a transfer that never started."""

SCORES = ("loss", "accuracy", "worst_accuracy", "std_accuracy", "worst_train_loss", "attack_success")
"""Columns of the table of evaluations with the quality of a model, except the columns of optional metrics."""
_NO_SCORES = frozenset({*EvaluationRow._fields, "simulated_s", "total_bit"} - {*SCORES})
WHERE_USED = ("backhaul", "batteries", "handovers", "energies", "traffic")
"""Tables that are not written if they have no rows. The table `traffic` contains the files of other users."""
TABLES = tuple(ROWS)
SCENE, DATA_SPLIT, GROUND = "scene", "data_split", "ground"
"""Names of the tables that describe a scenario: positions and links of devices, split of samples, and map of gains."""
DESCRIBED = (SCENE, DATA_SPLIT, GROUND)
_TAKEN = frozenset({*TABLES, *DESCRIBED})


def device_label(device: int) -> str:
    """Return the name of a device in logs and errors, such as `dev-3`, or `server` for the index -1."""
    return "server" if device == SERVER else f"dev-{device}"


def scores_in(columns: Iterable[str]) -> list[str]:
    """Return those of the given columns of evaluations that are scores of a model: all except round, time and costs."""
    return [name for name in columns if name not in _NO_SCORES]


class Ledger:
    """The recorded tables of one run, and running totals of bits and energy for stop rules and progress displays."""

    def __init__(self, metrics: Sequence[str] = ()) -> None:
        self.metrics = tuple(metrics)  # columns of additional metrics in `evaluations` and `device_evaluations`
        measured = dict.fromkeys(metrics, MEASURE)
        self.transfers: Table[Any] = Table(columns_of(TransferRow))
        self.has_phases = False  # whether transfers have the columns of `PhaseColumns`
        self.receptions: Table[ReceptionRow] = Table(columns_of(ReceptionRow))
        self.backhaul: Table[BackhaulRow] = Table(columns_of(BackhaulRow))
        self.computes: Table[ComputeRow] = Table(columns_of(ComputeRow))
        self.rounds: Table[RoundRow] = Table(columns_of(RoundRow))
        self.evaluations: Table[tuple[float, ...]] = Table(columns_of(EvaluationRow) | measured)
        self.device_evaluations: Table[DeviceEvaluationRow] = Table(columns_of(DeviceEvaluationRow) | measured)
        self.batteries: Table[BatteryRow] = Table(columns_of(BatteryRow))
        self.handovers: Table[HandoverRow] = Table(columns_of(HandoverRow))
        self.energies: Table[EnergyRow] = Table(columns_of(EnergyRow))
        self.traffic: Table[TrafficRow] = Table(columns_of(TrafficRow))
        self.is_shared = False  # whether other users share bands: transfers then have the columns of `SharedColumns`
        # bits of all files of other users, and the integral over time of the number of files
        self.traffic_bit, self.traffic_ns = 0, 0
        self.traffic_classes: dict[str, tuple[int, str]] = {}
        self.series: dict[str, list[dict[str, Any]]] = {}
        self.described: dict[str, Callable[[], pd.DataFrame]] = {}  # functions that make the tables of `DESCRIBED`
        self.invited: Counter[int] = Counter()  # number of rounds in which each device was invited
        self.given: set[int] = set()  # identification numbers of values that all devices have from the start
        self.sent_bit = [0] * len(KINDS)  # total bits on the air, by kind of link
        self.offered_bit = [0] * len(KINDS)
        self.backhaul_bit, self.backhaul_j = 0, 0.0  # the energy is part of `energy_j`
        self.energy_j = 0.0  # energy of all transmissions, receptions and computations so far, without idle energy
        self.idle = IdleEnergy()
        self.stations_w = 0.0  # total idle power of all base stations
        self.ended_ns = 0  # end of the run, up to which `energies` counts
        # function that returns the distances [n] in m between the senders of transfers (rows [n]) and receivers [n]
        self.distances: Callable[[Rows, IntArray], Array] | None = None
        # functions called with the table name and the columns of each new row of `evaluations`, `rounds` or a series
        self.listeners: list[Callable[[str, Mapping[str, Any]], None]] = []

    def spent_j(self, now_ns: int) -> float:
        """Return the energy of ended activities plus the idle energy of devices and base stations, up to now, in J."""
        return self.energy_j + self.idle.until_j(now_ns) + self.stations_j(now_ns)

    def stations_j(self, now_ns: int) -> float:
        return self.stations_w * (now_ns / 1e9)

    def record(self, series: str, **values: Any) -> None:
        """Add a row to an algorithm's own table: `record("staleness", step=3, staleness=1)`."""
        if series in _TAKEN:
            raise ValueError(f"series: is a table of the ledger, got '{series}'; choose another name")
        self.series.setdefault(series, []).append(values)
        self._tell(series, values)

    def add_phases(self) -> None:
        """Add the columns of `PhaseColumns` to the table of transfers, which must not have rows yet."""
        self.has_phases = True
        self._make_transfers()

    def add_traffic(self, classes: Mapping[str, tuple[int, str]], slices: Sequence[str]) -> None:
        """Add the columns for shared bands to the table of transfers, and prepare the table of other users' files.

        `classes` maps the name of each class of other users to the time in ns from which delays are included in
        statistics, and to the direction of its files. `slices` are the names of the network slices.
        """
        self.is_shared, self.traffic_classes = True, dict(classes)
        self._make_transfers()
        named = {"traffic_class": Column(np.int32, words=list(classes)), "slice": Column(np.int32, False, words=slices)}
        self.traffic = Table(columns_of(TrafficRow) | named)

    def _make_transfers(self) -> None:
        further = (PhaseColumns, self.has_phases), (SharedColumns, self.is_shared)
        columns = dict(columns_of(TransferRow))
        for row, used in further:
            columns |= columns_of(row) if used else {}
        self.transfers = Table(columns)

    def add_round(self, row: RoundRow) -> None:
        self.rounds.append(row)
        if self.listeners:
            self._tell("rounds", row._asdict())

    def add_evaluation(self, row: EvaluationRow, measured: Iterable[float]) -> None:
        values = (*row, *measured)
        self.evaluations.append(values)
        if self.listeners:
            self._tell("evaluations", dict(zip(self.evaluations.columns, values, strict=True)))

    def _tell(self, table: str, row: Mapping[str, Any]) -> None:
        for listener in self.listeners:
            listener(table, row)

    def keep_in(self, folder: Path) -> None:
        """Use unnamed files in `folder` for the oldest rows of tables that exceed their memory limit from now on."""
        for name in TABLES:
            getattr(self, name).folder = folder

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return every table as a data frame, by name, with additional columns such as distances and mean rates."""
        return {name: _whole(parts) for name, parts in self.parts().items()}

    def frame(self, name: str) -> pd.DataFrame:
        """Return the table `name` as a data frame, as in `frames`, without others; `KeyError` if there is none."""
        return _whole(self.parts()[name])

    def parts(self) -> dict[str, Iterable[pd.DataFrame]]:
        """Return every table, by name, as an iterator over data frames, one of which is in memory at a time."""
        import pandas as pd

        makers = self.described | {name: partial(pd.DataFrame, rows) for name, rows in self.series.items()}
        own: dict[str, Iterable[pd.DataFrame]] = {name: (make() for make in [made]) for name, made in makers.items()}
        tables = {name: getattr(self, name) for name in TABLES}
        kept = {name: table.frames() for name, table in tables.items() if len(table) or name not in WHERE_USED}
        return {**own, **kept, "transfers": self._transfers(), "receptions": self._receptions()}

    def with_receptions(self) -> Iterator[tuple[int, Rows, Rows]]:
        """Yield blocks of transfers: the row number of the first transfer, the transfers, and their receptions.

        Receptions must be in the order of their transfers; other receptions are omitted.
        """
        row, blocks = 0, self.receptions.blocks()
        left: Rows | None = next(blocks)
        for transfers in self.transfers.blocks():
            end, own = row + len(transfers), []
            while left is not None:
                mine = left["transfer"] < end
                own.append(left[mine & (left["transfer"] >= row)])
                left = left[~mine]
                if len(left):
                    break
                left = next(blocks, None)
            yield row, transfers, np.concatenate(own) if own else self.receptions.none
            row = end

    def _transfers(self) -> Iterator[pd.DataFrame]:
        for row, rows, heard in self.with_receptions():
            frame = self.transfers.shown(rows)
            frame.insert(0, "transfer", np.arange(row, row + len(rows)))
            lost_bit = rows["size_bit"] * rows["receivers"] - rows["delivered_bit"]
            frame.insert(list(frame).index("delivered_bit") + 1, "lost_bit", lost_bit)
            distance_m, place = self._distances_m(rows, rows["receiver"]), heard["transfer"] - row
            np.fmax.at(distance_m, place, self._distances_m(rows[place], heard["receiver"]))
            after = list(frame).index("snr_db") + 1
            frame.insert(after, "distance_m", distance_m)
            frame.insert(after + 1, "mean_rate_bps", _mean_rates_bps(rows))
            yield frame

    def _receptions(self) -> Iterator[pd.DataFrame]:
        for row, rows, heard in self.with_receptions():
            frame = self.receptions.shown(heard)
            frame["distance_m"] = self._distances_m(rows[heard["transfer"] - row], heard["receiver"])
            yield frame

    def _distances_m(self, transfers: Rows, receivers: IntArray) -> NDArray[np.float32]:
        distance_m = np.full(len(receivers), np.nan, np.float32)
        known = (transfers["started_ns"] != NEVER_NS) & (receivers != SEVERAL)
        if self.distances is not None and known.any():
            distance_m[known] = self.distances(transfers[known], receivers[known])
        return distance_m

    def event_digest(self) -> str:
        """Return a hash of all transfers, receptions, computations, backhaul messages and files of other users.

        Times are hashed with a resolution of 1 ns. Values that result from training (losses, accuracies) are not
        included. A run without training therefore has the same hash as a run of the same scenario with training.
        """
        whole = blake2b(digest_size=16)
        for table in (self.transfers, self.receptions, self.computes):
            whole.update(table.digest())
        for table in (self.backhaul, self.traffic):
            if len(table):
                whole.update(table.digest())
        return whole.hexdigest()


def _whole(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    first, *more = parts
    return pd.concat([first, *more], ignore_index=True) if more else first


def _mean_rates_bps(rows: Rows) -> NDArray[np.float32]:
    """Return the mean rate of each transfer in bit/s [transfers]; NaN for transfers without airtime.

    The airtime excludes waits for acknowledgements and the delay after the last bit on the air.
    """
    air_ns = np.where(rows["started_ns"] == NEVER_NS, 0, rows["ended_ns"] - rows["started_ns"])
    if "ack_wait_ns" in (rows.dtype.names or ()):
        air_ns = air_ns - rows["ack_wait_ns"] - rows["reception_delay_ns"]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(air_ns > 0, rows["transmitted_bit"] * _NS_PER_S / air_ns, np.nan).astype(np.float32)
