"""Write the reference of the recorded tables: the columns come from the ledger, their meanings from this module.

A column without a meaning, or a meaning without a column, is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markdown_text import code, table

from fednet_emu.records import ledger
from fednet_emu.units import unit_of

LEAD = """# Tables and columns

Written from `fednet_emu/records/ledger.py`. Times are simulated seconds. Devices are numbered from 0, the server is -1.
The [event digest](../concepts/records.md#the-event-digest) covers the columns that are marked.
"""

ABOUT = {
    "transfers": "One row for each transmission, in the order of their ends.",
    "receptions": "One row for each receiver of a transmission to several.",
    "backhaul": "One row for each message between the cloud and an edge server, in the order of their ends.",
    "computes": "One row for each computation on a device or the server.",
    "rounds": "One row for each round of the algorithm.",
    "evaluations": "One row for each evaluation of the model; counts and energy are sums up to that moment.",
    "device_evaluations": "One row for each device and evaluation, with `evaluation.per_device`.",
    "batteries": "With `devices.battery`: a row for each battery at the start, at the end, and whenever what draws "
    "from it changes. Amounts are sums since the start.",
}

MEANINGS = {
    "transfer": "row number of the table `transfers`",
    "kind": "the direction",
    "sender": "who sends",
    "receiver": "who receives; -2 means several, see `receptions`",
    "receivers": "how many devices the transmission was meant for",
    "size_bit": "payload and header",
    "payload": "number of the value sent, -1 if it is no single deferred value; `computes` has the same numbers",
    "requested_s": "asked for",
    "started_s": "on the air, or the processor begins; NaN for a transfer that never went on the air",
    "ended_s": "over",
    "air_bit": "bits that flowed: the payload when it was completed, less when it was cut short",
    "direction": "`up` to the cloud, `down` from it",
    "edge": "number of the edge server, that of its cell",
    "sent_bit": "bits that left: the size, less when it was cut short",
    "delivered_bit": "sum over the receivers who got it",
    "lost_bit": "sum over the receivers who did not",
    "lost": "empty, or the reason of the loss, see [reasons](#reasons-of-loss)",
    "energy_j": "drawn by the transmitter: (power / amplifier efficiency + circuit power) x time on the air",
    "receive_j": "drawn by the receiving devices: `receive_w` x time on the air, for each of them",
    "cell": "in which it is sent, from 0; of a sidelink the cluster",
    "device": "who",
    "flop": "work done",
    "input": "number of the value that the computation starts from",
    "result": "number of the value that comes out",
    "stopped": "empty, or why it did not come to its end; work and energy are then those of the part that was done",
    "round": "number of the round, from 1",
    "invited": "devices that were asked",
    "arrived": "devices whose update came in time",
    "simulated_s": "when",
    "uplink_bit": "on the air of the uplink",
    "downlink_bit": "on the air of the downlink, a broadcast once",
    "sidelink_bit": "on the air between devices",
    "loss": "on the test samples",
    "accuracy": "share of the test samples that are classified right; NaN for a regression",
    "worst_accuracy": "that of the device for which it is lowest, with `evaluation.per_device`",
    "std_accuracy": "standard deviation over devices, with `evaluation.per_device`",
    "worst_train_loss": "largest mean loss of a device on its own training samples, with `evaluation.train_loss`",
    "attack_success": "share of the attacked test samples that become what the attacker wants",
    "samples": "test samples of the device",
    "charge_j": "in the battery",
    "harvested_j": "came in",
    "spilled_j": "came in and had no room",
    "computing_j": "drawn by computations",
    "sending_j": "drawn by transmissions",
    "receiving_j": "drawn by receptions",
    "idle_j": "drawn while none of these was under way",
    "state": "from then on; a device whose battery is `empty` is away",
}
OWN = {
    ("receptions", "receiver"): "who received",
    ("backhaul", "started_s"): "on the line; NaN for a message that never was",
    ("backhaul", "ended_s"): "arrived or lost",
    ("backhaul", "delivered_bit"): "the size if it has arrived",
    ("backhaul", "energy_j"): "`energy_j_per_bit` x bits that left",
    ("computes", "energy_j"): "drawn by the processor; 0 for the server",
    ("evaluations", "energy_j"): "of all transmissions, of all computations on devices, and of the backhaul",
    ("device_evaluations", "loss"): "on the device's own test samples",
    ("device_evaluations", "accuracy"): "on the device's own test samples",
}
"""Meanings of columns that differ in one table, by table and column; they override `MEANINGS`."""

REASONS = {
    "": "delivered",
    "erased": "random loss, `network.*.loss`",
    "outage": "the SINR fell below the threshold of the rate law",
    "unreachable": "a link that never carries a bit, or is expected to take more than an hour",
    "away": "the device was not there when it was its turn",
    "left": "the device went away in the middle",
    "timeout": "on the air for longer than `network.*.timeout_s`",
    "deadline": "the algorithm stopped waiting",
    "end": "the run ended",
    "empty": "the battery of an end ran out in the middle",
}


def page() -> str:
    """Return the reference page as MyST Markdown.

    Raises:
        KeyError: a column, table or reason has no meaning, or a meaning belongs to none that exists.
    """
    empty = ledger.Ledger()
    frames = {**empty.frames(), **{name: getattr(empty, name).frame() for name in ledger.WHERE_USED}}
    shown = {column for frame in frames.values() for column in frame}
    for known, needed in ((MEANINGS, shown), (ABOUT, set(ledger.TABLES)), (REASONS, set(ledger.REASONS))):
        if known.keys() != needed:
            raise KeyError(*sorted(known.keys() ^ needed))
    lines = [LEAD]
    for name in ledger.TABLES:
        columns = getattr(ledger, name.upper())
        digested = {_shown(column) for column, its in columns.items() if its.digest}
        covered = name in ("transfers", "receptions", "backhaul", "computes")
        rows = [
            (
                code(column),
                _type(frames[name][column].dtype),
                unit_of(column) or "",
                "yes" if covered and column in digested else "",
                OWN.get((name, column), MEANINGS[column]),
            )
            for column in frames[name]
        ]
        lines += [f"## {name}\n", f"{ABOUT[name]}\n", *table(("Column", "Type", "Unit", "Digest", "Meaning"), rows)]
    reasons = [(code(reason) if reason else "empty", meaning) for reason, meaning in REASONS.items()]
    lines += ["## Reasons of loss\n", *table(("Reason", "Meaning"), reasons)]
    return "\n".join(lines)


def _shown(column: str) -> str:
    return f"{column.removesuffix('_ns')}_s" if column.endswith("_ns") else column


def _type(dtype: Any) -> str:
    if str(dtype) == "category":
        return "text"
    return {"i": "whole number", "f": "number"}[dtype.kind]


def write(app: Any) -> None:
    """Write the page into the sources of the site if it has changed."""
    path, text = Path(app.srcdir) / "reference/tables.md", page()
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
