"""Write the reference page of the tables that a run records, from the docstrings of their row classes.

A column without a description is an error.
"""

from __future__ import annotations

from typing import Any

from generated import writes
from markdown_text import code, table

from fednet_emu.records.ledger import TABLES, WHERE_USED, Ledger
from fednet_emu.records.reasons import MEANINGS
from fednet_emu.records.rows import ROWS, PhaseColumns
from fednet_emu.scenario.schema import docstrings
from fednet_emu.units import unit_of

LEAD = """# Tables and columns

Written from `fednet_emu/records/rows.py`. Times are simulated seconds. Devices are numbered from 0, the server is -1.
The [event digest](../concepts/records.md#the-event-digest) covers the columns that are marked.
"""

DESCRIBED = """## scene

Where devices are and what their links carry, at up to 41 instants of the run, or at its begin if nothing changes.
The first rows are those of the stations, whose `device` is -1: `cell` is their number. A row of a device has
`simulated_s`, `device`, `x_m`, `y_m`, `cell`, the mean SNR of its uplink alone in the whole band, `snr_db`, the
rates `uplink_bps` and `downlink_bps` of its links alone in the band (recorded ones, those at the mean SNR, or the mean
over fading of a link that carries nothing there), its computing speed `speed_flop_per_s`, its idle power `idle_w`, the
fixed time of its computations `overhead_s`, and whether it is `there` then, as far as that does not depend on its
battery.

## ground

With `channel.path_loss: {kind: table}`, the gain in dB of the best station at places of the grid: `x_m`, `y_m`,
`gain_db`; of every second, third, ... line if there are more than 40,000 places.

## data_split

How samples are split: `part` (`train` or `test`), `device`, and `samples`. With labels there is a row for each
`label` that a device has; with numbers for targets a row for each device has their quantiles, `q05`, `q25`, `q50`,
`q75` and `q95`. Runs whose algorithm brings its own data have no such table.
"""
ADDED = {
    "transfer": "row number of the table `transfers`",
    "lost_bit": "sum over the receivers who did not get it",
    "distance_m": "between the antennas of both ends at the start; the largest of several receivers; NaN as `snr_db`",
    "mean_rate_bps": "`transmitted_bit` over the time on the air, without waits for acknowledgements; NaN if unsent",
}
"""Descriptions of columns of `transfers` and `receptions` that `Ledger.frames` adds to the recorded rows."""


def page() -> str:
    """Return the reference page of recorded tables as MyST Markdown.

    Raises:
        KeyError: a column has no description.
    """
    empty = Ledger()
    empty.add_phases()
    frames = {**empty.frames(), **{name: getattr(empty, name).frame() for name in WHERE_USED}}
    lines = [LEAD]
    for name in TABLES:
        row, columns = ROWS[name], getattr(empty, name).columns
        classes = (row, PhaseColumns) if name == "transfers" else (row,)
        texts = ADDED | {
            columns[column].heading(column): text for its in classes for column, text in docstrings(its).items()
        }
        digested = {its.heading(column) for column, its in columns.items() if its.digest}
        covered = name in ("transfers", "receptions", "backhaul", "computes")
        rows = [
            (
                code(column),
                _type(frames[name][column].dtype),
                unit_of(column) or "",
                "yes" if covered and column in digested else "",
                texts[column],
            )
            for column in frames[name]
        ]
        about = " ".join(" ".join(str(its.__doc__) for its in classes).split())
        lines += [f"## {name}\n", f"{about}\n", *table(("Column", "Type", "Unit", "Digest", "Meaning"), rows)]
    reasons = [(code(reason) if reason else "empty", its.meaning) for reason, its in MEANINGS.items()]
    lines += [DESCRIBED, "## Reasons of loss\n", *table(("Reason", "Meaning"), reasons)]
    return "\n".join(lines)


def _type(dtype: Any) -> str:
    if str(dtype) == "category":
        return "text"
    return {"i": "whole number", "f": "number"}[dtype.kind]


def setup(app: Any) -> dict[str, bool]:
    """Register this extension with Sphinx."""
    return writes(app, "reference/tables.md", page)
