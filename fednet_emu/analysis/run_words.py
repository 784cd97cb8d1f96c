"""What happened in a run, in a few sentences: how long it took, what was lost, what cost most, who was slowest."""

from __future__ import annotations

import numpy as np

from fednet_emu.analysis.quantities import counted, format_bits, format_energy, format_seconds
from fednet_emu.analysis.usage import Usage
from fednet_emu.arrays import Array
from fednet_emu.records.summaries import losses_in_words

DOING = {
    "uplink": "sending to the server", "downlink": "receiving from the server", "sidelink": "talking to each other",
    "compute": "computing", "waiting": "waiting", "idle": "idle",
}  # fmt: skip


def words(usage: Usage) -> list[str]:
    """Return the sentences."""
    losses = losses_in_words(usage.run.summary)
    told = [f"{losses[0].upper()}{losses[1:]}."] if losses else []
    return [_length(usage), *told, _costs(usage), _slowest(usage)]


def _length(usage: Usage) -> str:
    summary = usage.run.summary
    who = f"{counted(int(summary['rounds']), 'round')} with " if summary["rounds"] else ""
    first = f"{who}{counted(usage.devices, 'device')} took {format_seconds(usage.simulated_s)} of simulated time"
    accuracy, loss = summary.get("accuracy"), summary.get("loss")
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
    told = "Nothing happened"
    if total_s and parts[longest] > 0:
        idle = parts["idle"] / total_s
        share = parts[longest] / total_s
        told = f"Devices were idle for {idle:.0%} of their time and else mostly {DOING[longest]}, {share:.0%} of it"
    if bits[most] > 0:
        share = bits[most] / sum(bits.values())
        told += f"; {format_bits(sum(bits.values()))} were on the air, {share:.0%} of them on the {most}"
    energies = {name: float(joules.sum()) for name, joules in usage.energy_j.items()}
    cause = max(energies, key=lambda name: energies[name])
    if energies[cause] > 0:
        own_j = sum(energies.values())
        told += f"; devices spent {format_energy(own_j)}, {energies[cause] / own_j:.0%} of it on {_cause(cause)}"
    return f"{told}."


def _cause(cause: str) -> str:
    if cause == "idle":
        return "idle power meanwhile"
    return cause if cause.endswith("ing") else f"sending over the {cause}"


def turn_s(usage: Usage) -> Array:
    """Mean time in seconds from an update to the next that each device was busy or waiting, [devices]; NaN for none.

    It is the time in which a device was not idle, per computation, or per uplink of a device that never computes.
    """
    busy_s = usage.simulated_s - usage.split["idle"]
    made = usage.computes
    turns = usage.per_device(made["device"])
    sent = usage.transfers
    ups = usage.per_device(sent["sender"][sent["kind"] == "uplink"])
    turns = np.where(turns > 0, turns, ups)
    return np.asarray(np.divide(busy_s, turns, out=np.full(usage.devices, np.nan), where=turns > 0))


def _slowest(usage: Usage) -> str:
    turns_s = turn_s(usage)
    if not np.isfinite(turns_s).any():
        return "No device computed or sent anything."
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
