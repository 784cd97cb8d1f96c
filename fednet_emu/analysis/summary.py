"""Format the summary of a run as rows of a readable table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fednet_emu.analysis.quantities import format_bits, format_carbon, format_energy, format_seconds
from fednet_emu.analysis.scales import OWN_METRICS
from fednet_emu.records.summaries import losses_in_words

DIGEST_LENGTH = 12
"""Number of hexadecimal digits of the event digest (a hash of all events of a run) in tables. Its 48 bits suffice to
distinguish the runs of a study."""


def summary_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the summary of a run as rows (title, value with unit). Quantities that were not measured are omitted."""
    known = {**summary, "losses": losses_in_words(summary) or None}
    measured = {
        key: value
        for key, value in known.items()
        if value is not None and not (isinstance(value, float) and math.isnan(value))
    }
    rows = [row for row in _ROWS if row[0] in measured and (row[0] not in _PARTS or measured[row[0]] > 0)]
    return [(title, show(measured[key])) for key, title, show in rows] + list(_neighbours(summary))


def _neighbours(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield rows (title, text) about the files and delays of each class of other users (background traffic).

    If files arrived while the federation was sending in the same direction, two further rows follow: one with the
    delays of these files, and one with the delays of all other files.
    """
    for name, its in summary.get("traffic", {}).items():
        files = f"{its['files']:,} files, {its['unfinished']:,} unfinished, {its['lost']:,} lost"
        yield f"other users: {name}", f"{files}; {delays_text(its)}"
        sends = "devices uploaded" if its["direction"] == "uplink" else "the server sent"
        if its["while_sending"]["counted"]:
            yield f"  while {sends}", f"{its['sending_share']:.0%} of the time: {delays_text(its['while_sending'])}"
            yield "  at other times", delays_text(its["otherwise"])


def delays_text(its: Mapping[str, Any]) -> str:
    """Return a text with the mean and the 95 % quantile of the delays of files.

    If unfinished files make a value a lower bound, the words `at least` precede it.
    """
    if not its["counted"]:
        return "no files"
    mean, high = (
        ("at least " if key in its["at_least"] else "") + format_seconds(its[key]) for key in ("mean_s", "p95_s")
    )
    return f"{mean} on average, {high} at the 95 % quantile"


def profile_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return rows (title, value with unit) about host time by activity (longest first), training jobs and workers."""
    parts = sorted(summary["host_parts"].items(), key=lambda item: -item[1]["host_s"])
    total_s = sum(spent["host_s"] for _, spent in parts) or 1.0
    rows = []
    for part, spent in parts:
        share = f"{spent['host_s'] / total_s:4.0%}  {format_seconds(spent['host_s'])}"
        waiting = f", {format_seconds(spent['waiting_s'])} of it waiting" if spent["waiting_s"] > 0 else ""
        rows.append((f"  {part}", share + waiting))
    rows.append(("  mean wavefront", f"{summary['mean_wavefront']:.3g} training jobs"))
    jobs = [(name, summary[f"{name}_jobs"]) for name in ("trained", "known") if f"{name}_jobs" in summary]
    counts = [("  training jobs", ", ".join(f"{count} {name}" for name, count in jobs))] if jobs else []
    return [*rows, *counts, *_exchange_rows(summary), *_worker_rows(summary)]


def _exchange_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return rows with the number of message exchanges computed as arrays, and of others (one by one) by reason."""
    own = summary.get("exchanges", {"as_arrays": 0, "one_by_one": {}})
    rows = [("  exchanges as arrays", str(own["as_arrays"]))] if own["as_arrays"] else []
    return rows + [("  exchanges one by one", f"{count}: {why}") for why, count in own["one_by_one"].items()]


def _worker_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    own = summary.get("elsewhere")
    if own is None:
        return []
    processes = f"{own['processes']} process{'es' if own['processes'] > 1 else ''}"
    sent, received = own["sent_byte"] / 1e6, own["received_byte"] / 1e6
    return [
        ("  computing elsewhere", f"{format_seconds(own['computing_s'])}, the sum of {processes}"),
        ("  overlap with the clock", format_seconds(own["ahead_s"])),
        ("  sent, received", f"{sent:.3g} MB, {received:.3g} MB"),
    ]


def _co2(carbon_g: float) -> str:
    return f"{format_carbon(carbon_g)} of CO2"


_PARTS = ("compute_j", "transmit_j", "rx_energy_j", "idle_j", "waiting_j", "station_j", "known_jobs")
"""Entries of the summary that are omitted from tables if they are zero: components of the energy, and the number of
training jobs whose results were read from the cache."""

_ROWS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("doubtful", "doubtful", str),
    ("name", "scenario", str),
    ("seed", "seed", str),
    ("status", "status", str),
    ("diverged", "diverged", str),
    ("simulated_s", "simulated time", format_seconds),
    ("host_s", "host time", format_seconds),
    ("known_jobs", "training jobs known from before", lambda count: f"{int(count):,}".replace(",", " ")),
    ("rounds", "rounds", lambda count: f"{int(count):,}".replace(",", " ")),
    ("uplink_bit", "uplink", format_bits),
    ("downlink_bit", "downlink", format_bits),
    ("sidelink_bit", "sidelink", format_bits),
    ("backhaul_bit", "backhaul", format_bits),
    ("losses", "losses", str),
    ("energy_j", "energy", format_energy),
    ("compute_j", "  computing", format_energy),
    ("transmit_j", "  sending", format_energy),
    ("rx_energy_j", "  receiving", format_energy),
    ("idle_j", "  idle power", format_energy),
    ("waiting_j", "    of this while waiting", format_energy),
    ("station_j", "  base stations", format_energy),
    ("backhaul_j", "energy of the backhaul", format_energy),
    ("carbon_g", "carbon", _co2),
    ("host_carbon_g", "  of the host that trained, apart", _co2),
    ("accuracy", "accuracy", "{:.3f}".format),
    ("loss", "loss", "{:.4g}".format),
    *((name, title[0].lower() + title[1:], "{:.4g}".format) for name, title in OWN_METRICS.items()),
    ("worst_tenth_accuracy", "  of the worst tenth of devices", "{:.3f}".format),
    ("accuracy_q05", "  5 % quantile over devices", "{:.3f}".format),
    ("accuracy_q50", "  median over devices", "{:.3f}".format),
    ("accuracy_q95", "  95 % quantile over devices", "{:.3f}".format),
    ("accuracy_jain", "  Jain's index over devices", "{:.3f}".format),
    ("epsilon", "privacy: epsilon", "{:.4g}".format),
    ("delta", "  at delta", "{:g}".format),
    ("sample_epsilon", "privacy of a sample: epsilon", "{:.4g}".format),
    ("sample_epsilon_as_poisson", "  as if batches were Poisson draws", "{:.4g}".format),
    ("sample_delta", "  at delta", "{:g}".format),
    ("event_digest", "event digest", lambda digest: str(digest)[:DIGEST_LENGTH]),
    ("verified", "verdict", lambda sound: "all records consistent" if sound else "records are not consistent"),
)
