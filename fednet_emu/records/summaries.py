"""Statistics of a ledger: fairness of participation, idle times, energies, lost messages and divergence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fednet_emu.arrays import Array, IntArray, Mask
from fednet_emu.records.ledger import SERVER, SEVERAL, Ledger, device_label
from fednet_emu.records.reasons import CODE, MEANINGS, REASONS
from fednet_emu.records.rows import KINDS
from fednet_emu.records.table import Table

if TYPE_CHECKING:
    import pandas as pd


def jain(counts: Iterable[float]) -> float:
    """Return Jain's fairness index (sum x)^2 / (n sum x^2) of n numbers: 1 if all are equal, 1/n if one is nonzero.

    Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer
    Systems", DEC Research Report TR-301, 1984. The index is nan if all numbers are zero.
    """
    x = np.asarray(list(counts), np.float64)
    squares = float((x**2).sum())
    return float(x.sum()) ** 2 / (len(x) * squares) if squares else float("nan")


def invitations(invited: Mapping[int, int], n_devices: int) -> dict[str, float | None]:
    """Return Jain's fairness index of the number of invitations of each device, and the fraction of invited devices.

    `invited` maps each invited device to the number of rounds in which it was invited. It is empty if the algorithm
    does not select cohorts of devices; both results are then None.
    """
    if not invited:
        return {"invited_jain": None, "invited_share": None}
    counts = [*invited.values(), *[0] * (n_devices - len(invited))]
    return {"invited_jain": jain(counts), "invited_share": len(invited) / n_devices}


SPREAD = ("worst_tenth_accuracy", "accuracy_q05", "accuracy_q50", "accuracy_q95", "accuracy_jain")
"""Names of the statistics of the accuracy over devices: mean of the worst tenth, three quantiles, and Jain's index."""


def spread(accuracies: Array) -> dict[str, float]:
    """Return statistics of the accuracies [devices] of devices, by name; empty if all accuracies are NaN.

    The statistics are the mean over the worst tenth of the devices (at least one device), the 5, 50 and 95 % quantiles
    with linear interpolation, and Jain's index.
    """
    known = np.sort(accuracies[np.isfinite(accuracies)])
    if not len(known):
        return {}
    lowest = known[: -(-len(known) // 10)]
    values = (lowest.mean(), *np.quantile(known, (0.05, 0.5, 0.95)), jain(known))
    return dict(zip(SPREAD, map(float, values), strict=True))


FAR_ABOVE = 10.0
"""Ratio to the initial loss above which a loss counts as diverged. Random guesses result in lower losses."""


LOWER = "lower the learning rate, or the noise"
"""Advice for a run that diverges; only some algorithms add noise."""


def divergence(ledger: Ledger) -> str:
    """Return a sentence if the last loss is not finite, or above ten times a positive first loss; otherwise empty."""
    losses = ledger.evaluations.column("loss").astype(np.float64)
    if not len(losses):
        return ""
    first, last = float(losses[0]), float(losses[-1])
    if not math.isfinite(last):
        return f"the loss is not finite any more, got {last:g}; {LOWER}"
    if first > 0 and last > FAR_ABOVE * first:
        return f"the loss is far above that of the first model, got {last:.4g} after {first:.4g}; {LOWER}"
    return ""


def idle_s(ledger: Ledger, n_devices: int, simulated_ns: int) -> Array:
    """Return the idle time in s [n_devices] of each device up to the time `simulated_ns`.

    A device is idle while its battery is not empty and it neither sends, receives nor computes. Devices that are absent
    for other reasons count as idle. A sender is busy until the last bit is on the air. A receiver is busy until the end
    of a transfer, even if the transfer is lost. Overlapping activities count once. All activities must be in the
    ledger, so the run must be finished.
    """
    device, started_ns, ended_ns = activities(ledger)
    counted = (device > SERVER) & (started_ns >= 0)
    clipped_ns = (np.minimum(times[counted], simulated_ns) for times in (started_ns, ended_ns))
    busy_ns = np.bincount(*_union_ns(device[counted], *clipped_ns), minlength=n_devices)
    return np.asarray(np.maximum(simulated_ns - busy_ns, 0.0) / 1e9, np.float64)


def activities(ledger: Ledger) -> tuple[IntArray, IntArray, IntArray]:
    """Return device, start and end in ns [n] of all intervals of sending, receiving, computing or an empty battery."""
    sends, hears, works = ledger.transfers.column, ledger.receptions.column, ledger.computes.column
    started_ns, ended_ns, row = sends("started_ns"), sends("ended_ns"), hears("transfer")
    empty, empty_from_ns, empty_to_ns = empty_spans(ledger)
    device = (sends("sender"), sends("receiver"), hears("receiver"), works("device"), empty)
    starts_ns = (started_ns, started_ns, started_ns[row], works("started_ns"), empty_from_ns)
    ends_ns = (last_bit_ns(ledger), ended_ns, ended_ns[row], works("ended_ns"), empty_to_ns)
    return np.concatenate(device).astype(np.int64), np.concatenate(starts_ns), np.concatenate(ends_ns)


def last_bit_ns(ledger: Ledger) -> IntArray:
    """Return the times in ns [transfers] at which transfers have left the sender: their ends less reception delays."""
    ended_ns = ledger.transfers.column("ended_ns")
    return ended_ns - ledger.transfers.column("reception_delay_ns") if ledger.has_phases else ended_ns


def _union_ns(device: IntArray, started_ns: IntArray, ended_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the device of each interval, and the time in ns that it adds to the union of the device's intervals."""
    order = np.lexsort((started_ns, device))
    device = device[order]
    times_ns, place = np.unique(np.concatenate([started_ns[order], ended_ns[order]]), return_inverse=True)
    # times are replaced by ranks, in a separate range for each device, so that one running maximum serves all devices
    shift = np.concatenate([device, device]) * len(times_ns)
    first, last = np.split(place + shift, 2)
    reached = np.maximum.accumulate(last)
    first[1:] = np.maximum(first[1:], reached[:-1])
    first = np.minimum(first, last) - shift[: len(device)]
    return device, times_ns[last - shift[: len(device)]] - times_ns[first]


def empty_spans(ledger: Ledger) -> tuple[IntArray, IntArray, IntArray]:
    """Return the device, start in ns and end in ns of all intervals in which a battery is empty, each [n]."""
    column = ledger.batteries.column
    order = np.argsort(column("device"), kind="stable")
    device, at_ns, on = column("device")[order], column("simulated_ns")[order], column("state")[order] > 0
    empty = (device[1:] == device[:-1]) & ~on[:-1]
    return device[1:][empty], at_ns[:-1][empty], at_ns[1:][empty]


def empty_s(ledger: Ledger, n_devices: int) -> Array:
    """Return the time in s [n_devices] in which each device's battery is empty; 0 if the device has no battery."""
    device, from_ns, to_ns = empty_spans(ledger)
    return by_device(device, (to_ns - from_ns) / 1e9, n_devices)


def by_device(device: IntArray, amount: Array, n_devices: int) -> Array:
    """Return the sum of `amount` [n] for each device [n_devices]; rows without a device index (below 0) are omitted."""
    own = device > SERVER
    return np.asarray(np.bincount(device[own], amount[own], minlength=n_devices), np.float64)


def energies_of_rows(ledger: Ledger, n_devices: int) -> dict[str, Array]:
    """Return the energies in J [n_devices] of each device for computing, sending and receiving, without idle energy."""
    sent, heard, done = ledger.transfers.column, ledger.receptions.column, ledger.computes.column
    received_j = by_device(sent("receiver"), sent("rx_energy_j"), n_devices)
    return {
        "computing_j": by_device(done("device"), done("energy_j"), n_devices),
        "sending_j": by_device(sent("sender"), sent("energy_j"), n_devices),
        "receiving_j": received_j + by_device(heard("receiver"), heard("rx_energy_j"), n_devices),
    }


def add_energies(ledger: Ledger, idle_w: Array, counted: Mask, ended_ns: int) -> None:
    """Fill in the table `energies`, the energy of each device and of all base stations, at the end of a run.

    `idle_w` [devices] are idle powers in W. `counted` [devices] is True for devices whose computing energy is known.
    `ended_ns` is the end of the run in ns.
    """
    sent, count, own_j = ledger.transfers.column, len(idle_w), energies_of_rows(ledger, len(idle_w))
    stations_j = float(sent("energy_j")[sent("sender") == SERVER].sum())
    idle_j, charged = idle_w * (ended_ns / 1e9), ledger.batteries.column
    idle_j[charged("device")] = charged("idle_j")  # of repeated indices, the last row counts
    ledger.ended_ns, ledger.energies = ended_ns, Table(ledger.energies.columns)
    ledger.energies.extend(
        device=np.append(np.arange(count), SERVER),
        computing_j=np.append(np.where(counted, own_j["computing_j"], np.nan), 0.0),
        sending_j=np.append(own_j["sending_j"], stations_j),
        receiving_j=np.append(own_j["receiving_j"], 0.0),
        idle_j=np.append(idle_j, ledger.stations_j(ended_ns)),
        waiting_j=np.append(idle_w * idle_s(ledger, count, ended_ns), np.nan),
    )


DELAYS = ("mean_s", "p50_s", "p95_s", "p99_s")
"""Names of the delay statistics of other users: the mean, and the 50, 95 and 99 % quantiles, in s."""
_MATERIAL = 0.01
"""If unfinished files may increase a statistic by more than this fraction, the statistic is marked as a lower bound."""


def other_users(ledger: Ledger, ended_ns: int) -> dict[str, dict[str, Any]]:
    """Return statistics of the bits, files and delays of each class of other users (background traffic).

    `ended_ns` is the end of the run in ns. A delay is the time from the arrival of a file to the end of its transfer.
    For an unfinished file, the time until the end of the run is a lower bound of the delay. `while_sending` contains
    the delays of files that arrived while a transmission of the federation in the same direction was on the air.
    `otherwise` contains all other delays. `sending_share` is the fraction of time with such a transmission.
    """
    if not ledger.is_shared:
        return {}
    column, found = ledger.traffic.column, {}
    end, names = CODE["end"], ("size_bit", "requested_ns", "ended_ns", "loss_reason")
    for number, (name, (warm_up_ns, direction)) in enumerate(ledger.traffic_classes.items()):
        own = column("traffic_class") == number
        bits, since_ns, until_ns, fate = (column(each)[own] for each in names)
        counted = (since_ns >= warm_up_ns) & ((fate == 0) | (fate == end))
        delay_s = (until_ns - since_ns) / 1e9
        starts_ns, ends_ns = busy_spans(ledger, KINDS.index(direction))
        place = np.searchsorted(starts_ns, since_ns, side="right") - 1
        during = (place >= 0) & (since_ns < np.append(ends_ns, 0)[place])
        found[name] = {
            "direction": direction,
            "offered_bit": int(bits.sum()),
            "delivered_bit": int(bits[fate == 0].sum()),
            "files": int(own.sum()),
            "unfinished": int((fate == end).sum()),
            "lost": int(((fate != 0) & (fate != end)).sum()),
            **_delays(delay_s[counted], fate[counted] == end),
            "sending_share": float((ends_ns - starts_ns).sum()) / ended_ns if ended_ns else 0.0,
            "while_sending": _delays(delay_s[counted & during], fate[counted & during] == end),
            "otherwise": _delays(delay_s[counted & ~during], fate[counted & ~during] == end),
        }
    return found


def busy_spans(ledger: Ledger, kind: int) -> tuple[IntArray, IntArray]:
    """Return the starts and ends in ns, each [n], of the periods in which the federation transmits on links of a kind.

    `kind` is the code of the direction (uplink, downlink or sidelink). Overlapping transmissions form one period. A
    transfer that has sent no bit is left out.
    """
    sent = ledger.transfers.column
    own = (sent("direction") == kind) & (sent("started_ns") >= 0) & (sent("transmitted_bit") > 0)
    order = np.argsort(sent("started_ns")[own], kind="stable")
    starts_ns, ends_ns = sent("started_ns")[own][order], np.maximum.accumulate(last_bit_ns(ledger)[own][order])
    first = np.append(True, starts_ns[1:] > ends_ns[:-1])[: len(starts_ns)]
    return starts_ns[first], ends_ns[np.append(first[1:], True)[: len(ends_ns)]]


def _delays(delay_s: Array, unfinished: Mask) -> dict[str, Any]:
    """Return the mean and quantiles of delays [n] in s, and their number.

    `unfinished` [n] marks delays that are lower bounds; `at_least` lists the statistics that then are, too.
    """
    if not len(delay_s):
        return {"counted": 0, **dict.fromkeys(DELAYS), "at_least": []}
    levels = [float(name[1:-2]) / 100 for name in DELAYS[1:]]
    values = [float(delay_s.mean()), *np.quantile(delay_s, levels, method="inverted_cdf").tolist()]
    upper = np.quantile(np.where(unfinished, np.inf, delay_s), levels, method="inverted_cdf")
    open_ = [bool(unfinished.mean() > _MATERIAL), *(upper > np.array(values[1:]) * (1 + _MATERIAL)).tolist()]
    bounds = [name for name, is_open in zip(DELAYS, open_, strict=True) if is_open]
    return {"counted": len(delay_s), **dict(zip(DELAYS, values, strict=True)), "at_least": bounds}


def messages(ledger: Ledger) -> dict[str, Any]:
    """Return the number of messages, and of lost messages by reason. A broadcast is one message for each receiver."""
    alone = ledger.transfers.column("receiver") != SEVERAL
    codes = np.concatenate((ledger.transfers.column("loss_reason")[alone], ledger.receptions.column("loss_reason")))
    counts = np.bincount(codes, minlength=len(REASONS)).tolist()
    lost = {reason: count for reason, count in zip(REASONS, counts, strict=True) if reason and count}
    return {"messages": len(codes), "losses": dict(sorted(lost.items(), key=lambda each: -each[1]))}


def deliveries(transfers: pd.DataFrame, receptions: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each message, with the columns of `transfers` and with its own receiver and reason of loss.

    The messages are the transfers to a single receiver, followed by the receptions of the other transfers.
    """
    import pandas as pd

    own = ["receiver", "loss_reason"]
    several = receptions[["transfer", *own]].merge(transfers.drop(columns=own), on="transfer")
    return pd.concat([transfers[transfers["receiver"] != SEVERAL], several], ignore_index=True)


def losses_in_words(summary: Mapping[str, Any]) -> str:
    """Return a text such as `of 1,010 messages 2 were lost: 2 timed out` about a summary; empty without losses."""
    losses = summary.get("losses")
    if not losses:
        return ""
    in_words = {why: MEANINGS[why].in_words if why in MEANINGS else f"lost by {why}" for why in losses}
    total, each = sum(losses.values()), ", ".join(f"{count:,} {in_words[why]}" for why, count in losses.items())
    return f"of {summary['messages']:,} messages {total:,} {'was' if total == 1 else 'were'} lost: {each}"


SHOWN = 5


def recent_losses(ledger: Ledger) -> str:
    """Return a clause `; last lost: ...` with the latest losses of up to five links; empty if no message was lost."""
    ends = deliveries(ledger.frame("transfers"), ledger.frame("receptions"))
    lost = ends[ends["loss_reason"] != ""].sort_values("ended_s", kind="stable").groupby(["sender", "receiver"]).tail(1)
    rows = lost.tail(SHOWN).to_dict("records")
    told = (
        f"{row['direction']} {device_label(row['sender'])} to {device_label(row['receiver'])} "
        f"at t={row['ended_s']:.6g} s ({row['loss_reason']})"
        for row in rows
    )
    return f"; last lost: {', '.join(told)}" if rows else ""
