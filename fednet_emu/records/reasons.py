"""Reasons for which transfers are lost and computations stopped: their words in the records and their meanings."""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """Meaning of a reason of loss, and its wording in texts such as "3 timed out"."""

    meaning: str
    in_words: str


MEANINGS = {
    "": Reason("delivered", "delivered"),
    "erased": Reason("random loss, `network.*.message_loss`, or an error that was planned for", "lost at random"),
    "outage": Reason("the SINR, or the gain over the air, fell below the threshold of the rate law", "in outage"),
    "unreachable": Reason("a link that never carries a bit, or is expected to take more than an hour", "out of reach"),
    "away": Reason("the device was absent at its turn", "away at their turn"),
    "left": Reason("the device left during the transfer", "away in the middle"),
    "timeout": Reason("on the air for longer than `network.*.timeout_s`", "timed out"),
    "deadline": Reason("the algorithm stopped waiting", "given up at a deadline"),
    "end": Reason("the run ended", "cut off by the end of the run"),
    "empty": Reason("the battery of the sender or a receiver got empty", "with an empty battery"),
    "connect": Reason("no connection within `network.session.connect_timeout_s`", "without a connection"),
}
"""Reasons of loss by the word in the records, in the order of their integer codes. "" means delivered. The event digest
depends on the codes."""

REASONS = list(MEANINGS)
"""Words of the reasons of loss by integer code. Plug-ins append the words of the reasons that they define."""

CODE = {reason: code for code, reason in enumerate(REASONS)}


def add_reason(reason: str, meaning: str) -> None:
    """Add a reason of loss that a plug-in defines. Nothing happens if the word `reason` already exists."""
    if reason not in MEANINGS:
        MEANINGS[reason] = Reason(meaning, f"lost by {reason}")
        CODE[reason] = len(REASONS)
        REASONS.append(reason)
