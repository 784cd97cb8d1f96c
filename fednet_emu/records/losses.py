"""How many messages were sent over the air, how many of them were lost, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fednet_emu.records.ledger import SEVERAL, Ledger
from fednet_emu.records.reasons import MEANINGS, REASONS


def messages(ledger: Ledger) -> dict[str, Any]:
    """How many messages there were in all (`messages`), and how many of them were lost by reason (`losses`).

    A broadcast is a message for each of its receivers.
    """
    alone = ledger.transfers.column("receiver") != SEVERAL
    codes = np.concatenate((ledger.transfers.column("lost")[alone], ledger.receptions.column("lost")))
    counts = np.bincount(codes, minlength=len(REASONS)).tolist()
    lost = {reason: count for reason, count in zip(REASONS, counts, strict=True) if reason and count}
    return {"messages": len(codes), "losses": dict(sorted(lost.items(), key=lambda each: -each[1]))}


def losses_in_words(summary: Mapping[str, Any]) -> str:
    """The losses of a run, as in `of 1,010 messages 2 were lost: 2 timed out`; empty if there are none or unknown.

    Args:
        summary: the content of `summary.json`.
    """
    losses = summary.get("losses")
    if not losses:
        return ""
    in_words = {why: MEANINGS[why].in_words if why in MEANINGS else f"lost by {why}" for why in losses}
    total, each = sum(losses.values()), ", ".join(f"{count:,} {in_words[why]}" for why, count in losses.items())
    return f"of {summary['messages']:,} messages {total:,} {'was' if total == 1 else 'were'} lost: {each}"
