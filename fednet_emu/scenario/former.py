"""Former names of settings, kinds and values.

A file that uses a former name is rejected, and the error message states the present name.
"""

from __future__ import annotations

from collections.abc import Collection

KEYS = {
    "dealt": "rank_assignment",
    "guard": "self_balancing",
    "long_transfers": "fading_model",
    "loss": "on_lost_message",
    "lr_weights": "lr_lambda",
    "movement_s": "position_update_s",
    "numerology_khz": "subcarrier_spacing_khz",
    "private_sgd": "dp_sgd",
    "spacing_khz": "subcarrier_spacing_khz",
    "spare": "unused_bandwidth",
    "train_loss": "worst_train_loss",
}
WORDS = {
    "climbing": "olla",
    "drop-both": "drop-pair",
    "keep-home": "keep-own-weight",
    "shared": "full-reuse",
    "switch": "ethernet",
    "walk": "per-block",
}
"""Former kinds and values."""


def present_key(key: str, known: Collection[str]) -> str | None:
    """Return the present name of the setting formerly called `key`, if it is among the `known` names; else None."""
    new = KEYS.get(key, key.replace("least_", "min_", 1).replace("most_", "max_", 1))
    return new if new != key and new in known else None


def present_word(word: object, known: Collection[str]) -> str | None:
    """Return the present form of the former kind or value `word`, if it is among the `known` ones; else None."""
    new = WORDS.get(word) if isinstance(word, str) else None
    return new if new in known else None
