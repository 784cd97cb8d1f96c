"""What a run's time and energy went to along the paths that decided when its rounds ended, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fednet_emu.analysis.critical_path import BACKHAUL, DEADLINE, IDLE, WAITING, critical_path, parts_frame
from fednet_emu.analysis.quantities import counted, format_energy, format_seconds
from fednet_emu.analysis.run import RunView
from fednet_emu.errors import DataError
from fednet_emu.records.ledger import SERVER, device_label
from fednet_emu.records.losses import losses_in_words

NAMED = 5
"""How many devices are named."""
MEANING = {
    "uplink": "sending to the server",
    "downlink": "sending to the devices",
    "sidelink": "sending to each other",
    BACKHAUL["up"]: "sending to the cloud over the backhaul",
    BACKHAUL["down"]: "sending to the edge servers over the backhaul",
    "compute": "computing",
    WAITING: "waiting for a turn, with nobody in the way",
    DEADLINE: "waiting for the deadline",
    IDLE: "nothing recorded: pauses, or devices that were away or out of reach",
}


@dataclass(frozen=True)
class Path:
    """The paths of all rounds of a run.

    Attributes:
        label: the name of the run.
        parts: the parts of the paths, see `parts_frame`.
        energy_j: what the whole run spent.
        waiting_j: how much of it devices drew while they did nothing.
        losses: in words how many messages were lost, and why; empty for none.
    """

    label: str
    parts: pd.DataFrame
    energy_j: float
    waiting_j: float = 0.0
    losses: str = ""

    @property
    def took_s(self) -> float:
        """The length of all rounds together."""
        return float(self.parts["took_s"].sum())

    @property
    def kinds(self) -> pd.DataFrame:
        """Seconds and joules by what they went to, the most seconds first: `what`, `took_s`, `share`, `energy_j`."""
        sums = self.parts.groupby("what")[["took_s", "energy_j"]].sum().sort_values("took_s", ascending=False)
        return sums.assign(share=sums["took_s"] / self.took_s).reset_index()[["what", "took_s", "share", "energy_j"]]

    @property
    def devices(self) -> pd.DataFrame:
        """Seconds by device, the most first: `device`, `rounds` in which it was on the path, `took_s` and `share`."""
        own = self.parts[self.parts["device"] >= 0]
        sums = own.groupby("device").agg(rounds=("round", "nunique"), took_s=("took_s", "sum"))
        return sums.assign(share=sums["took_s"] / self.took_s).sort_values("took_s", ascending=False).reset_index()

    def of_device(self, device: int) -> pd.Series:
        """Seconds of a device by what they went to, the most first."""
        own = self.parts[self.parts["device"] == device]
        return own.groupby("what")["took_s"].sum().sort_values(ascending=False)


def path_of(run: RunView) -> Path:
    """Return the paths of the rounds of a run.

    Raises:
        DataError: the run has no rounds that took any time, or a table is missing or unreadable.
    """
    backhaul = run.table("backhaul") if run.has("backhaul") else None
    parts = critical_path(run.table("transfers"), run.table("computes"), run.table("rounds"), backhaul)
    if not parts:
        raise DataError(
            f"{run.label}: rounds", "none took any time, so that nothing decided when they ended", "run more"
        )
    energy_j, waiting_j = (float(run.summary.get(name) or 0.0) for name in ("energy_j", "waiting_j"))
    return Path(run.label, parts_frame(parts), energy_j, waiting_j, losses_in_words(run.summary))


def path_lines(path: Path) -> Iterator[str]:
    """The paths as text: by what the time went to, and by device."""
    rounds = counted(int(path.parts["round"].nunique()), "round")
    yield f"{path.label}: {rounds} took {format_seconds(path.took_s)}; what decided when they ended"
    for what, took_s, share, energy_j in _rows(path.kinds):
        energy = f", {format_energy(energy_j)}" if energy_j > 0 else ""
        yield f"  {MEANING[what]}: {format_seconds(took_s)}, {share:.0%}{energy}"
    spent = float(path.parts["energy_j"].sum())
    if path.energy_j > 0:
        yield f"  of {format_energy(path.energy_j)} in all, {spent / path.energy_j:.0%} were spent on these paths"
    if path.waiting_j > 0:
        share = path.waiting_j / path.energy_j
        yield f"  and {format_energy(path.waiting_j)}, {share:.0%}, by devices that had nothing to do meanwhile"
    if path.losses:
        yield f"  {path.losses}"
    if len(path.devices):
        yield "whom they waited for longest"
        yield from (f"  {text}" for text in device_texts(path))


def device_texts(path: Path) -> list[str]:
    """Return in words how long the devices that are most on the paths held them up, and by what."""
    found = []
    for device, number, took_s, share in _rows(path.devices[:NAMED]):
        what = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in path.of_device(device).items())
        rounds = counted(number, "round")
        found.append(f"{device_label(device)}: {format_seconds(took_s)}, {share:.0%}, in {rounds}: {what}")
    return found


def path_words(path: Path) -> list[str]:
    """Return the paths in two sentences."""
    kinds = [f"{MEANING[what]} {share:.0%}" for what, _, share, _ in _rows(path.kinds)]
    text = f"When rounds ended was decided by {', '.join(kinds)} of the time, along the chain of what waited for what."
    if not len(path.devices):
        return [text]
    device, number, took_s, _ = _rows(path.devices)[0]
    rounds = counted(number, "round")
    return [text, f"They waited longest for {device_label(device)}: {format_seconds(took_s)} in {rounds}."]


def slowest(path: Path, number: int) -> list[int]:
    """Return the devices that held up the rounds longest."""
    return [int(device) for device in path.devices["device"][:number] if device != SERVER]


def _rows(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].tolist() for name in table), strict=True))
