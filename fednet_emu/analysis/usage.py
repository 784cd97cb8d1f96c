"""Activities, costs and lost messages of each device of a run, as numbers, histograms and sentences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fednet_emu.analysis.activity import (
    COMPUTE_COLUMNS,
    OFF_AIR,
    RECEPTION_COLUMNS,
    TRANSFER_COLUMNS,
    activity_bars,
    time_split,
)
from fednet_emu.analysis.quantities import counted, format_bits, format_energy, format_seconds
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.scales import with_total_bits
from fednet_emu.analysis.scene import Scene
from fednet_emu.arrays import Array
from fednet_emu.records.ledger import SCENE, SERVER
from fednet_emu.records.rows import KINDS
from fednet_emu.records.summaries import by_device, losses_in_words

TRANSFERS = (*TRANSFER_COLUMNS, "receivers", "size_bit", "transmitted_bit", "delivered_bit", "lost_bit", "energy_j",
             "rx_energy_j", "cell")  # fmt: skip
COMPUTES = (*COMPUTE_COLUMNS, "flop", "energy_j")


@dataclass(frozen=True, eq=False)
class Usage:
    """Activities and costs of each device of a run. Each table is read once, and each quantity is computed once."""

    run: RunRecords

    @cached_property
    def scene(self) -> Scene | None:
        """Positions and link rates of the devices over time, or None if the run did not record them."""
        return Scene.of(self.run) if self.run.has(SCENE) else None

    @property
    def devices(self) -> int:
        return self.run.devices

    @cached_property
    def simulated_s(self) -> float:
        return float(self.run.summary["simulated_s"])

    @cached_property
    def transfers(self) -> pd.DataFrame:
        """Table of all transfers. The end time of an unfinished transfer is the end of the run.

        If the run does not record cells (as in older versions), all transfers are assigned to cell 0.
        """
        whole = self.run.table("transfers")
        whole = whole.assign(cell=whole.get("cell", 0))
        columns = [*TRANSFERS, *(name for name in OFF_AIR if name in whole)]
        return whole[columns].assign(ended_s=whole["ended_s"].fillna(self.simulated_s))

    @cached_property
    def receptions(self) -> pd.DataFrame:
        """One row for each receiver of the transfers that have several receivers."""
        return self.run.table("receptions", RECEPTION_COLUMNS)

    @cached_property
    def computes(self) -> pd.DataFrame:
        """Table of all computations. The end time of an unfinished computation is the end of the run."""
        whole = self.run.table("computes", COMPUTES)
        return whole.assign(ended_s=whole["ended_s"].fillna(self.simulated_s))

    @cached_property
    def rounds(self) -> pd.DataFrame:
        return self.run.table("rounds")

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """Table of all evaluations of the model. The column `total_bit` is the number of bits on all links so far."""
        return with_total_bits(self.run.table("evaluations"))

    @cached_property
    def bars(self) -> pd.DataFrame:
        """Table of the activities of the devices in the whole run; see `activity_bars`."""
        return activity_bars(self.transfers, self.receptions, self.computes, self.simulated_s)

    @cached_property
    def split(self) -> dict[str, Array]:
        """Time in s [devices] that each device spent in each category of activity; see `time_split`."""
        return time_split(self.bars, self.devices, self.simulated_s)

    @cached_property
    def lost_s(self) -> Array:
        """Time that each device spent on lost transfers and stopped computations, in seconds [devices].

        Transfers and computations that were unfinished at the end of the run do not count.
        """
        given = ((self.transfers, "loss_reason"), (self.receptions, "loss_reason"), (self.computes, "stopped"))
        sent, heard, made = (
            table.assign(**{column: table[column].astype(str).replace("end", "")}) for table, column in given
        )
        if not any((reasons != "").any() for reasons in (sent["loss_reason"], heard["loss_reason"], made["stopped"])):
            return np.zeros(self.devices)
        bars = activity_bars(sent, heard, made, self.simulated_s)
        failed = bars[bars["failed"] & (bars["device"] >= 0)]
        return self.per_device(failed["device"], failed["ended_s"] - failed["started_s"])

    @cached_property
    def energy_j(self) -> dict[str, Array]:
        """Energy of each device in J [devices], by cause: sending, receiving, computing and idle power.

        Sending is divided into `uplink` and `sidelink`. The receive energy of a transmission is divided equally among
        its receivers, because they receive for the same time. The energy due to idle power is divided into `waiting`
        (while a device is inactive) and `idle` (while it sends, receives or computes).
        """
        sent, made = self.transfers, self.computes
        spent = {
            kind: self.per_device(part["sender"], part["energy_j"])
            for kind in ("uplink", "sidelink")
            for part in [sent[(sent["direction"] == kind) & (sent["sender"] > SERVER)]]
        }
        alone = sent[sent["receiver"] > SERVER]
        heard = self.receptions.merge(sent[["transfer", "rx_energy_j", "receivers"]], on="transfer")
        heard = heard[heard["receiver"] > SERVER]
        received = self.per_device(alone["receiver"], alone["rx_energy_j"])
        received = received + self.per_device(heard["receiver"], heard["rx_energy_j"] / heard["receivers"])
        computing = self.per_device(made["device"], made["energy_j"])
        return {**spent, "receiving": received, "computing": computing, **self._idle_j()}

    def _idle_j(self) -> dict[str, Array]:
        """Return the energy in J [devices] that each device consumed due to its idle power, as `waiting` and `idle`.

        `waiting` is the part while the device was inactive, and `idle` the part while it computed or communicated. The
        result is empty if devices have no idle power, or if the run did not record idle powers.
        """
        if self.scene is None or not self.scene.idle_w.any():
            return {}
        whole_j = self.scene.idle_w * self.simulated_s
        if self.run.summary.get("empty_share"):
            drawn = self.run.table("batteries", ("device", "idle_j"))
            whole_j = drawn.groupby("device")["idle_j"].last().to_numpy(np.float64)
        busy_s = self.simulated_s - self.split["idle"] - self.split["waiting"]
        return {"waiting": whole_j - self.scene.idle_w * busy_s, "idle": self.scene.idle_w * busy_s}

    def per_device(self, device: pd.Series[int], amount: pd.Series[float] | None = None) -> Array:
        """Return the sum of `amount` [rows] over the rows of each device [devices].

        `device` [rows] is the device of each row; rows of the server are ignored. None for `amount` counts the rows.
        """
        amounts: Array = np.ones(len(device)) if amount is None else np.asarray(amount, np.float64)
        return by_device(np.asarray(device, np.int64), amounts, self.devices)


DOING = {
    "uplink": "sending to the server", "downlink": "receiving from the server", "sidelink": "talking to each other",
    "compute": "computing", "waiting": "waiting", "idle": "idle",
}  # fmt: skip


def words(usage: Usage) -> list[str]:
    """Return sentences about a run: its duration and result, lost messages, costs, and the slowest device."""
    losses = losses_in_words(usage.run.summary)
    lost = [f"{losses[0].upper()}{losses[1:]}."] if losses else []
    return [_length(usage), *lost, _costs(usage), _slowest(usage)]


def _length(usage: Usage) -> str:
    summary = usage.run.summary
    who, whole = counted(usage.devices, "device"), format_seconds(usage.simulated_s)
    if summary["rounds"]:
        who = f"{counted(int(summary['rounds']), 'round')} with {who}"
        ended = format_seconds(float(usage.rounds["ended_s"].iloc[-1]))
        whole = whole if ended == whole else f"{ended} of {whole}"
    first = f"{who} took {whole} of simulated time"
    accuracy, loss = summary.get("accuracy"), summary.get("loss")
    if summary.get("diverged"):
        return f"The run diverged: {summary['diverged']}. {first}."
    if summary.get("timing_only"):
        return f"{first}; nothing was trained, as the run was for timing only."
    if accuracy is not None:
        return f"{first} and reached an accuracy of {accuracy:.3f} at the end."
    return f"{first}, with a loss of {loss:.4g} at the end." if loss is not None else f"{first}."


def _costs(usage: Usage) -> str:
    summary = usage.run.summary
    parts = {name: float(seconds.sum()) for name, seconds in usage.split.items()}
    total_s = sum(parts.values())
    longest = max((name for name in parts if name != "idle"), key=lambda name: parts[name])
    bits = {kind: float(summary[f"{kind}_bit"]) for kind in ("uplink", "downlink", "sidelink")}
    most = max(bits, key=lambda kind: bits[kind])
    text = "Nothing happened"
    if total_s and parts[longest] > 0:
        idle = parts["idle"] / total_s
        share = parts[longest] / total_s
        text = f"Devices were idle for {idle:.0%} of their time and else mostly {DOING[longest]}, {share:.0%} of it"
    if bits[most] > 0:
        share = bits[most] / sum(bits.values())
        text += f"; {format_bits(sum(bits.values()))} were on the air, {share:.0%} of them on the {most}"
    energies = {name: float(joules.sum()) for name, joules in usage.energy_j.items()}
    cause = max(energies, key=lambda name: energies[name])
    if energies[cause] > 0:
        own_j = sum(energies.values())
        most_of_it = f"{energies[cause] / own_j:.0%} of it on {_cause(cause)}"
        unknown = _not_counted(usage)
        text += f"; devices spent {format_energy(own_j)}{unknown}, {most_of_it}"
    return f"{text}."


def _not_counted(usage: Usage) -> str:
    run, whose = usage.run, ""
    if run.summary.get("compute_j", 0.0) is not None:
        if not run.has("energies"):  # runs of older versions have no energies of single devices
            return ""
        count = int(run.table("energies", ("computing_j",))["computing_j"][:-1].isna().sum())
        if not count:
            return ""
        whose = f" on {count:,} of {usage.devices:,} devices"
    return f", without computing{whose}, whose power is unknown"


def _cause(cause: str) -> str:
    if cause == "idle":
        return "idle power meanwhile"
    return cause if cause.endswith("ing") else f"sending over the {cause}"


def turn_s(usage: Usage) -> Array:
    """Return the mean time per update in s [devices] for which each device is busy or waits; NaN if it has no updates.

    Each finished computation of a device counts as an update. For a device that never computes, each uplink counts
    instead. The time of unfinished computations does not count.
    """
    done = usage.computes["stopped"].astype(str) == ""
    made, cut = usage.computes[done], usage.computes[~done]
    busy_s = (
        usage.simulated_s - usage.split["idle"] - usage.per_device(cut["device"], cut["ended_s"] - cut["started_s"])
    )
    turns = usage.per_device(made["device"])
    sent = usage.transfers
    ups = usage.per_device(sent["sender"][sent["direction"] == "uplink"])
    turns = np.where(turns > 0, turns, ups)
    return np.asarray(np.divide(busy_s, turns, out=np.full(usage.devices, np.nan), where=turns > 0))


def _slowest(usage: Usage) -> str:
    turns_s = turn_s(usage)
    if not np.isfinite(turns_s).any():
        return "No device finished a computation or sent anything to the server."
    slowest = int(np.nanargmax(turns_s))
    known = turns_s[np.isfinite(turns_s)]
    if len(known) == 1:
        return f"Only device {slowest} took part; a turn took it {format_seconds(turns_s[slowest])}."
    own = {name: seconds[slowest] for name, seconds in usage.split.items() if name != "idle"}
    most = max(own, key=lambda name: own[name])
    ratio = turns_s[slowest] / np.median(known)
    return (
        f"Slowest was device {slowest}: one turn took it {format_seconds(turns_s[slowest])} on average, "
        f"{ratio:.3g} times the median, {own[most] / sum(own.values()):.0%} of it {DOING[most]}."
    )


BINS = 40


def spreads(usage: Usage) -> dict[str, Any]:
    """Return histograms of round durations (`latency_s`), rates by direction (`rate_bps`), and recorded `staleness`."""
    rounds, sent = usage.rounds, usage.transfers
    took_s = sent["ended_s"] - sent["started_s"] - sum(sent[name] for name in OFF_AIR if name in sent)
    on_air = sent[(took_s > 0) & (sent["transmitted_bit"] > 0)]
    rate_bps = on_air["transmitted_bit"] / took_s[on_air.index]
    found = {
        "latency_s": histogram((rounds["ended_s"] - rounds["started_s"]).to_numpy(np.float64)),
        "rate_bps": {kind: histogram(rate_bps[on_air["direction"] == kind].to_numpy(np.float64)) for kind in KINDS},
    }
    stale = _staleness(usage)
    return found if stale is None else {**found, "staleness": stale}


def histogram(values: Array) -> dict[str, Any] | None:
    """Return a histogram with 40 bins, and the mean and quantiles of the values; None if no value is finite.

    Bins have equal widths. If all values are positive and span more than a factor of 20, bins have equal widths on a
    logarithmic axis.
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    low, high = float(known.min()), float(known.max())
    log = low > 0 and high > 20 * low
    if high - low <= 1e-9 * abs(high):
        edges = np.array([low, high]) + max(abs(high), 1e-9) * np.array([-0.05, 0.05])
    else:
        edges = np.geomspace(low, high, BINS + 1) if log else np.linspace(low, high, BINS + 1)
        edges[0], edges[-1] = low, high
    counts = np.histogram(known, edges)[0]
    quantiles = dict(zip(("p5", "median", "p95"), np.quantile(known, [0.05, 0.5, 0.95]).tolist(), strict=True))
    return {
        "edges": edges,
        "counts": counts,
        "log": log,
        "number": len(known),
        "mean": float(known.mean()),
        **quantiles,
    }


def _staleness(usage: Usage) -> dict[str, Any] | None:
    """Return the number of updates by staleness, from the first table with such a column; None if there is none.

    Tables with the column `updates` are ignored. Their rows count several updates.
    """
    run = usage.run
    for name in run.names():
        table = run.table(name)
        if "staleness" in table and "updates" not in table and len(table):
            values, counts = np.unique(pd.to_numeric(table["staleness"]).dropna(), return_counts=True)
            return {"series": name, "values": values, "counts": counts}
    return None
