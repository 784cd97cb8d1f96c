"""Critical paths of a run: the time and energy of each cause, and the time that remedies (changes to settings) save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import pandas as pd
from typing_extensions import override

from fednet_emu.analysis.critical_path import (
    ACCESS,
    AMONG,
    BACKHAUL,
    BEHIND,
    DEADLINE,
    FIXED,
    GAPS,
    IDLE,
    OTHERS,
    SETUP,
    TAIL,
    WAITING,
    critical_path,
    parts_frame,
)
from fednet_emu.analysis.quantities import TextResult, counted, format_energy, format_seconds
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.scene import Scene
from fednet_emu.errors import DataError
from fednet_emu.records.ledger import SCENE, SERVER, device_label
from fednet_emu.records.summaries import losses_in_words

SAME = 1e-9
"""Maximum relative difference of durations that rounding errors may cause."""
NAMED = 5
"""Maximum number of devices that a text names."""
MEANING = {
    "uplink": "sending to the server",
    "downlink": "sending to the devices",
    "sidelink": "sending to each other",
    BACKHAUL["up"]: "sending to the cloud over the backhaul",
    BACKHAUL["down"]: "sending to the edge servers over the backhaul",
    "compute": "computing",
    FIXED: "fixed time per computation",
    SETUP: "setting up connections, and software for each message",
    ACCESS: "waiting for access to the channel",
    GAPS: "waiting for acknowledgements",
    TAIL: "on the way after the last bit on the air",
    WAITING: "waiting for a turn, with the band free",
    OTHERS: "time on the air that went to other users of the band",
    BEHIND: "waiting for a turn behind other users",
    AMONG: "waiting for a turn behind other devices",
    DEADLINE: "waiting for the deadline",
    IDLE: "nothing recorded: pauses, or devices that were away or out of reach",
}


@dataclass(frozen=True)
class Remedy:
    """A remedy is a change to settings, with its effect on the duration of the run."""

    title: str
    settings: dict[str, Any]
    leaves_out: bool = False
    """True if the remedy excludes devices, so that other devices take part instead."""
    simulated_s: float | None = None
    """Simulated time in seconds until as many updates have arrived as in the original run. None if unknown."""
    rounds: int | None = None
    """Number of rounds until as many updates have arrived as in the original run. None if the number of rounds is the
    same."""
    problem: str = ""
    """The reason why `simulated_s` is unknown, or the kind of activity that takes longer with the remedy."""

    def gain(self, took_s: float) -> str:
        """Describe the time that the remedy saves. `took_s` is the duration of the run without the remedy."""
        if self.simulated_s is None:
            return self.problem
        saved_s = took_s - self.simulated_s
        if abs(saved_s) <= SAME * took_s:
            return "nothing"
        word, share = "sooner" if saved_s > 0 else "later", abs(saved_s) / took_s
        rounds = "" if self.rounds is None else f", in {counted(self.rounds, 'round')}"
        why = f": {self.problem}" if self.problem else ""
        return f"{format_seconds(self.simulated_s)}, {format_seconds(abs(saved_s))} {word} ({share:.0%}){rounds}{why}"


@dataclass(frozen=True, repr=False)
class Explanation(TextResult):
    """Critical paths of the rounds of a run, and the time saved by remedies.

    Attributes:
        name: the name of the run.
        parts: the parts of the critical paths of all rounds; see `parts_frame`.
        energy_j: energy of the whole run.
        waiting_j: the part of the energy that inactive devices drew.
        losses: number of lost messages by reason, in words. The text is empty if no message was lost.
        handovers: number of transfers that changed cells.
        remedies: the remedies whose effect was found by replaying the run.
        no_remedies: the reason why no remedy was replayed.
    """

    name: str
    parts: pd.DataFrame
    energy_j: float
    waiting_j: float = 0.0
    losses: str = ""
    handovers: int = 0
    remedies: list[Remedy] = field(default_factory=list)
    no_remedies: str = ""

    @classmethod
    def of(cls, run: RunRecords) -> Self:
        """Return the critical paths of the rounds of a run, without remedies.

        Raises:
            DataError: the run has no rounds of positive duration, or a table is missing or unreadable.
        """
        backhaul = run.table("backhaul") if run.has("backhaul") else None
        computes = run.table("computes")
        if run.has(SCENE):
            computes = computes.assign(fixed_s=Scene.of(run).fixed_s(computes))
        parts = critical_path(run.table("transfers"), computes, run.table("rounds"), backhaul)
        if not parts:
            raise DataError(f"{run.name}: rounds", "all have zero length, so there is no critical path", "run more")
        energy_j, waiting_j = (float(run.summary.get(name) or 0.0) for name in ("energy_j", "waiting_j"))
        handovers = len(run.table("handovers")) if run.has("handovers") else 0
        return cls(run.name, parts_frame(parts), energy_j, waiting_j, losses_in_words(run.summary), handovers)

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each part of the critical path of each round. The parts of a round add up to its duration."""
        return self.parts.copy()

    @property
    def took_s(self) -> float:
        """Total duration of the rounds, in simulated seconds."""
        return float(self.parts["took_s"].sum())

    @property
    def kinds(self) -> pd.DataFrame:
        """Time and energy of each kind of part, longest time first: `what`, `took_s`, `share`, `energy_j`."""
        sums = self.parts.groupby("what")[["took_s", "energy_j"]].sum().sort_values("took_s", ascending=False)
        return sums.assign(share=sums["took_s"] / self.took_s).reset_index()[["what", "took_s", "share", "energy_j"]]

    @property
    def devices(self) -> pd.DataFrame:
        """Time of each device on critical paths, longest first: `device`, number of `rounds`, `took_s` and `share`."""
        own = self.parts[self.parts["device"] >= 0]
        sums = own.groupby("device").agg(rounds=("round", "nunique"), took_s=("took_s", "sum"))
        return sums.assign(share=sums["took_s"] / self.took_s).sort_values("took_s", ascending=False).reset_index()

    def slowest(self, number: int) -> list[int]:
        """Return the `number` devices that delayed the rounds most."""
        return [int(device) for device in self.devices["device"][:number] if device != SERVER]

    @property
    def words(self) -> list[str]:
        """The critical paths in one or two sentences."""
        kinds = [f"{MEANING[what]} {share:.0%}" for what, _, share, _ in _rows(self.kinds)]
        text = f"The critical path of the rounds consists of {', '.join(kinds)} of the time."
        if not len(self.devices):
            return [text]
        device, number, took_s, _ = _rows(self.devices)[0]
        rounds = counted(number, "round")
        return [text, f"The longest delays are those of {device_label(device)}: {format_seconds(took_s)} in {rounds}."]

    @property
    def device_texts(self) -> list[str]:
        """One text for each of the devices with the longest time on critical paths: this time, and its causes."""
        found = []
        for device, number, took_s, share in _rows(self.devices[:NAMED]):
            own = self.parts[self.parts["device"] == device].groupby("what")["took_s"].sum()
            spent = own.sort_values(ascending=False).items()  # longest first
            what = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in spent)
            rounds = counted(number, "round")
            found.append(f"{device_label(device)}: {format_seconds(took_s)}, {share:.0%}, in {rounds}: {what}")
        return found

    @override
    def lines(self) -> list[str]:
        return [*self._path_lines(), *self._remedy_lines()]

    def _path_lines(self) -> Iterator[str]:
        rounds = counted(int(self.parts["round"].nunique()), "round")
        yield f"{self.name}: {rounds} took {format_seconds(self.took_s)}; the critical path of each round, by kind"
        for what, took_s, share, energy_j in _rows(self.kinds):
            energy = f", {format_energy(energy_j)}" if energy_j > 0 else ""
            yield f"  {MEANING[what]}: {format_seconds(took_s)}, {share:.0%}{energy}"
        spent = float(self.parts["energy_j"].sum())
        if self.energy_j > 0:
            yield f"  of {format_energy(self.energy_j)} in all, {spent / self.energy_j:.0%} were spent on these paths"
        if self.waiting_j > 0:
            share = self.waiting_j / self.energy_j
            yield f"  and {format_energy(self.waiting_j)}, {share:.0%}, by inactive devices"
        if self.losses:
            yield f"  {self.losses}"
        if self.handovers:
            yield f"  {counted(self.handovers, 'transfer')} changed cells on the way, see the table handovers"
        if len(self.devices):
            yield "devices that delayed the rounds most"
            yield from (f"  {text}" for text in self.device_texts)

    def _remedy_lines(self) -> Iterator[str]:
        if self.no_remedies:
            yield f"no remedy was replayed: {self.no_remedies}"
            return
        if self.remedies:
            yield "largest gain of a remedy, until as many updates have arrived, replayed with the same seed"
        for its in self.remedies:
            yield f"  {its.title}: {its.gain(self.took_s)}"


def _rows(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].tolist() for name in table), strict=True))
