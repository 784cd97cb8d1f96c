"""The ledger of a run: every transfer, computation, round and evaluation, in simulated time.

Times are integer nanoseconds here and seconds in the tables that users read. Devices are numbered from 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    TransferRow,
)
from fednet_emu.records.table import MEASURE, Rows, Table, columns_of

if TYPE_CHECKING:
    import pandas as pd


_NS_PER_S = 1e9


class IdleEnergy:
    """Idle power of all devices together over simulated time; it changes where batteries get empty or come back."""

    def __init__(self, power_w: float = 0.0) -> None:
        self.power_w = power_w
        self._before_j, self._since_ns = 0.0, 0

    def change(self, now_ns: int, by_w: float) -> None:
        """Draw so much more, or less, from now on."""
        self._before_j, self._since_ns = self.until_j(now_ns), now_ns
        self.power_w += by_w

    def until_j(self, now_ns: int) -> float:
        """Energy in J from the start until an instant, now or later."""
        return self._before_j + self.power_w * ((now_ns - self._since_ns) / _NS_PER_S)


SERVER = -1
"""The server's number in columns that hold device numbers."""
SEVERAL = -2
"""The receiver of a transfer to several devices; `receptions` names them."""
NEVER_NS = -1
"""The start of a transfer that never went on the air."""

SCORES = ("loss", "accuracy", "worst_accuracy", "std_accuracy", "worst_train_loss", "attack_success")
"""The columns of `evaluations` that say how good a model is, beside those of further metrics."""
_NO_SCORES = frozenset({*EvaluationRow._fields, "simulated_s", "total_bit"} - {*SCORES})
WHERE_USED = ("backhaul", "batteries", "handovers", "energies")
"""Tables that a run has only if they have rows: of a backhaul, batteries, handovers, and energies once it has ended."""
TABLES = tuple(ROWS)
"""Names of all tables."""
SCENE, DATA_SPLIT, GROUND = "scene", "data_split", "ground"
"""Tables that describe the federation: where devices are and what their links carry; how samples are split."""
DESCRIBED = (SCENE, DATA_SPLIT, GROUND)
_TAKEN = frozenset({*TABLES, *DESCRIBED})


def device_label(device: int) -> str:
    """A device's name in logs and errors: `dev-3`, or `server`."""
    return "server" if device == SERVER else f"dev-{device}"


def scores_in(columns: Iterable[str]) -> list[str]:
    """The columns of a run's `evaluations` that say how good a model is: all but the round, the time and the costs."""
    return [name for name in columns if name not in _NO_SCORES]


class Ledger:
    """All tables of one run, and the running totals that stop rules and progress lines read.

    Args:
        metrics: further columns of `evaluations` and `device_evaluations`, behind the others.

    Attributes:
        metrics: their names.
        asked: in how many rounds each device was asked, where the algorithm asks a cohort.
        listeners: each is called with the name and the columns of every row of `evaluations`, `rounds` and the series
            of algorithms, when it is added; they must not change the run.
        sent_bit, offered_bit: totals on the air, by kind of link.
        backhaul_bit, backhaul_j: totals of the backhaul; its energy is part of `energy_j`.
        energy_j: energy of all transmissions, receptions and computations so far, beside idle power.
        idle: the idle power of the devices over time.
        stations_w: idle power of all base stations together.
        ended_ns: end of the run, to which `energies` counts.
        distances: distances in m between ends [n], of transfers (rows) to receivers [n]; None for unknown.
        described: the tables of `DESCRIBED`, of a run that is kept.
    """

    def __init__(self, metrics: Sequence[str] = ()) -> None:
        self.metrics = tuple(metrics)
        measured = dict.fromkeys(metrics, MEASURE)
        self.transfers: Table[Any] = Table(columns_of(TransferRow))
        self.receptions: Table[ReceptionRow] = Table(columns_of(ReceptionRow))
        self.backhaul: Table[BackhaulRow] = Table(columns_of(BackhaulRow))
        self.computes: Table[ComputeRow] = Table(columns_of(ComputeRow))
        self.rounds: Table[RoundRow] = Table(columns_of(RoundRow))
        self.evaluations: Table[tuple[float, ...]] = Table(columns_of(EvaluationRow) | measured)
        self.device_evaluations: Table[DeviceEvaluationRow] = Table(columns_of(DeviceEvaluationRow) | measured)
        self.batteries: Table[BatteryRow] = Table(columns_of(BatteryRow))
        self.handovers: Table[HandoverRow] = Table(columns_of(HandoverRow))
        self.energies: Table[EnergyRow] = Table(columns_of(EnergyRow))
        self.series: dict[str, list[dict[str, Any]]] = {}
        self.described: dict[str, pd.DataFrame] = {}
        self.asked: Counter[int] = Counter()
        self.given: set[int] = set()  # numbers of values that all devices know from the start
        self.sent_bit = [0] * len(KINDS)
        self.offered_bit = [0] * len(KINDS)
        self.backhaul_bit = 0
        self.backhaul_j = 0.0
        self.energy_j = 0.0
        self.idle = IdleEnergy()
        self.stations_w, self.ended_ns = 0.0, 0
        self.distances: Callable[[Rows, IntArray], Array] | None = None
        self.listeners: list[Callable[[str, Mapping[str, Any]], None]] = []

    def spent_j(self, now_ns: int) -> float:
        """Energy in J of all there is until now: of what has ended, and of waiting."""
        return self.energy_j + self.idle.until_j(now_ns) + self.stations_j(now_ns)

    def stations_j(self, now_ns: int) -> float:
        """Energy in J that all base stations have drawn until now beside what they have sent."""
        return self.stations_w * (now_ns / 1e9)

    def record(self, series: str, **values: Any) -> None:
        """Add a row to a series that an algorithm defines, for example `record("staleness", step=3, staleness=1)`.

        Raises:
            ValueError: the ledger has a table of that name.
        """
        if series in _TAKEN:
            raise ValueError(f"series: is a table of the ledger, got '{series}'; choose another name")
        self.series.setdefault(series, []).append(values)
        self._tell(series, values)

    def add_phases(self) -> None:
        """From the first transfer on keep the columns of `PhaseColumns` too."""
        self.transfers = Table(columns_of(TransferRow) | columns_of(PhaseColumns))

    def add_round(self, row: RoundRow) -> None:
        """Add a row to the table `rounds`."""
        self.rounds.append(row)
        if self.listeners:
            self._tell("rounds", row._asdict())

    def add_evaluation(self, row: EvaluationRow, measured: Iterable[float]) -> None:
        """Add a row to the table `evaluations`, with the values of the further columns."""
        values = (*row, *measured)
        self.evaluations.append(values)
        if self.listeners:
            self._tell("evaluations", dict(zip(self.evaluations.columns, values, strict=True)))

    def _tell(self, table: str, row: Mapping[str, Any]) -> None:
        for listener in self.listeners:
            listener(table, row)

    def keep_in(self, folder: Path) -> None:
        """From now on keep rows for which there is no room in memory in this folder, in files without a name."""
        for name in TABLES:
            getattr(self, name).folder = folder

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return every table as a data frame by name, with the columns that `_transfers` and `_receptions` add."""
        import pandas as pd

        tables = {name: list(parts) for name, parts in self.parts().items()}
        return {
            name: pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0] for name, parts in tables.items()
        }

    def parts(self) -> dict[str, Iterable[pd.DataFrame]]:
        """Return every table of `frames`, its rows in parts of which only one need be in memory."""
        import pandas as pd

        own: dict[str, Iterable[pd.DataFrame]] = {name: [table] for name, table in self.described.items()}
        own |= {name: [pd.DataFrame(rows)] for name, rows in self.series.items()}
        tables = {name: getattr(self, name) for name in TABLES}
        kept = {name: table.frames() for name, table in tables.items() if len(table) or name not in WHERE_USED}
        return {**own, **kept, "transfers": self._transfers(), "receptions": self._receptions()}

    def with_receptions(self) -> Iterator[tuple[int, Rows, Rows]]:
        """Iterate over blocks of transfers: the number of the first, the transfers, and their receptions.

        Receptions are in the order of their transfers; one that is not is left out.
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
        """Transfers with their numbers, lost bits, distances (of several receivers the largest) and mean rates."""
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
        """Receptions with their distances."""
        for row, rows, heard in self.with_receptions():
            frame = self.receptions.shown(heard)
            frame["distance_m"] = self._distances_m(rows[heard["transfer"] - row], heard["receiver"])
            yield frame

    def _distances_m(self, transfers: Rows, receivers: IntArray) -> NDArray[np.float32]:
        """Distances in m [n] of transfers to receivers when they start; NaN where unknown."""
        distance_m = np.full(len(receivers), np.nan, np.float32)
        known = (transfers["started_ns"] != NEVER_NS) & (receivers != SEVERAL)
        if self.distances is not None and known.any():
            distance_m[known] = self.distances(transfers[known], receivers[known])
        return distance_m

    def event_digest(self) -> str:
        """Hash of the event log: which device sent, received and computed what, and when, to the nanosecond.

        Values that depend on training (losses, accuracies) are left out, so a timing-only run has the same hash.
        """
        whole = blake2b(digest_size=16)
        for table in (self.transfers, self.receptions, self.computes):
            whole.update(table.digest())
        if len(self.backhaul):
            whole.update(self.backhaul.digest())
        return whole.hexdigest()


def _mean_rates_bps(rows: Rows) -> NDArray[np.float32]:
    """Bits that flowed over the time on the air, without gaps and tails, [transfers]; NaN for no such time."""
    air_ns = np.where(rows["started_ns"] == NEVER_NS, 0, rows["ended_ns"] - rows["started_ns"])
    if "gap_ns" in (rows.dtype.names or ()):
        air_ns = air_ns - rows["gap_ns"] - rows["tail_ns"]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(air_ns > 0, rows["air_bit"] * _NS_PER_S / air_ns, np.nan).astype(np.float32)
