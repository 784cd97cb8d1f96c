"""Compare a live run (real programs in real time) with the emulator's prediction, for each transfer and each round."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from fednet_emu.analysis.run import RunRecords
from fednet_emu.records.ledger import SERVER

MESSAGES = "live_messages"
"""Name of the table with measured and predicted times of messages. Only live runs (with real programs) have it."""


def transfers_beside(run: RunRecords) -> pd.DataFrame:
    """Return the transfers of a live run (real programs in real time) with their measured and predicted durations.

    Returns:
        One row for each transfer, sorted by measured end time. `took_s` and `predicted_s` are the measured and the
        predicted time from request to end, and `error` is the difference of these times divided by the predicted time.
        Three columns show possible causes of the difference. `starved_s` is the time during which the send queue was
        empty, `away_s` is the time during which the device was absent, and `repeated_byte` is the number of
        retransmitted bytes. The other columns are `transfer`, `direction`, `device` and `loss_reason`.
    """
    rows = run.table(MESSAGES).merge(run.table("transfers"), on="transfer")
    device = np.where(rows["sender"] == SERVER, rows["receiver"], rows["sender"])
    took_s, predicted_s = rows["ended_s"] - rows["requested_s"], rows["predicted_s"] - rows["requested_s"]
    return rows[["transfer", "direction"]].assign(
        device=device,
        loss_reason=rows["loss_reason"].astype(str),
        took_s=took_s,
        predicted_s=predicted_s,
        error=rows["error"],
        starved_s=rows["starved_s"],
        away_s=rows["away_s"],
        repeated_byte=rows["repeated_byte"],
    )


def rounds_beside(run: RunRecords) -> pd.DataFrame:
    """Return the duration of each round of a live run, divided into transmission, computation and waiting.

    Returns:
        One row for each round, with the columns `round` and `took_s`, the duration. `air_s` is the time in which at
        least one transfer is active, and `predicted_air_s` is this time for the predicted transfers. `compute_s` is the
        time in which a device computes but no transfer is active. `waiting_s` is the remaining time, for example for
        program starts and polling for messages.
    """
    sent, computes, rounds = run.table("transfers"), run.table("computes"), run.table("rounds")
    known = run.table(MESSAGES)["predicted_s"].to_numpy()
    predicted_s = np.where(np.isnan(known), sent["ended_s"], known)
    requested_s = sent["requested_s"].to_numpy()
    measured = [*zip(requested_s, sent["ended_s"], strict=True)]
    meant = [*zip(requested_s, predicted_s, strict=True)]
    made = [*zip(computes["started_s"], computes["ended_s"], strict=True)]
    turns = [*zip(rounds["started_s"], rounds["ended_s"], strict=True)]
    air_s, predicted_air_s, busy_s = (
        np.array([_covered_s(spans, *turn) for turn in turns]) for spans in (measured, meant, [*measured, *made])
    )
    took_s = rounds["ended_s"] - rounds["started_s"]
    return rounds[["round"]].assign(
        took_s=took_s,
        air_s=air_s,
        predicted_air_s=predicted_air_s,
        compute_s=busy_s - air_s,
        waiting_s=took_s - busy_s,
    )


def _covered_s(spans: Iterable[tuple[float, float]], from_s: float, until_s: float) -> float:
    covered_s, reached_s = 0.0, from_s
    for begin_s, end_s in sorted(spans):
        begin_s, end_s = max(begin_s, reached_s), min(end_s, until_s)  # noqa: PLW2901
        if end_s > begin_s:
            covered_s, reached_s = covered_s + end_s - begin_s, end_s
    return covered_s
