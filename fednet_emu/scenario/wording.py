"""Convert errors of pydantic to sentences of the form `problem, got VALUE; remedy`.

A file that uses a former name of a setting, kind or value is rejected, and the sentence states the present name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from fednet_emu.component.component import reworded
from fednet_emu.component.slot import Slot
from fednet_emu.errors import did_you_mean
from fednet_emu.scenario.shapes import Shape, Spot, homes
from fednet_emu.scenario.tree import KeyPath, path_text, show

KEYS: dict[str, str | tuple[str, ...]] = {
    "between": "interpolation",
    "blocks": "resource_blocks",
    "dealt": "rank_assignment",
    "delay_s": "max_delay_s",
    "device_lr": "local_model_lr",
    "device_steps": "local_model_steps",
    "edges": "edge_servers",
    "energy_j": "max_energy_j",
    "fraction": "selected_fraction",
    "frequency": "cpu_frequency",
    "guard": "self_balancing",
    "interference_db": "inr_db",
    "long_transfers": "fading_model",
    "loss": ("message_loss", "on_lost_message"),
    "lr_weights": "lr_lambda",
    "min_height_m": "min_grazing_altitude_m",
    "movement_s": "position_update_s",
    "numerology_khz": "subcarrier_spacing_khz",
    "outside": "out_of_range",
    "private": "personal_layers",
    "private_sgd": "dp_sgd",
    "receive_j_per_bit": "rx_j_per_bit",
    "receive_w": "rx_consumption_w",
    "repetitions": "max_repetitions",
    "spacing_khz": "subcarrier_spacing_khz",
    "spare": "unused_bandwidth",
    "spreading": "spreading_factor",
    "target_bler": "bler",
    "threshold_db": "sinr_threshold_db",
    "train_loss": "worst_train_loss",
    "transmit_j_per_bit": "tx_j_per_bit",
    "transmit_w": "tx_consumption_w",
    "upload_s": "max_upload_s",
}
"""Present settings by their former names; a tuple lists settings of different groups."""
WORDS = {
    "climbing": "olla",
    "drop-both": "drop-pair",
    "keep-home": "keep-own-weight",
    "refuse": "error",
    "shared": "full-reuse",
    "switch": "ethernet",
    "walk": "per-block",
}
"""Present kinds and values, by their former names."""


def present_key(key: str, known: Collection[str]) -> str | None:
    """Return the present name of the setting formerly called `key`; None if it is not one of the `known` names."""
    new = KEYS.get(key, key.replace("least_", "min_", 1).replace("most_", "max_", 1))
    names = (new,) if isinstance(new, str) else new
    return next((name for name in names if name != key and name in known), None)


def present_word(word: object, known: Collection[str]) -> str | None:
    """Return the current name of the former kind or value `word`; None if the current name is not in `known`."""
    new = WORDS.get(word) if isinstance(word, str) else None
    return new if new in known else None


_RANGES = {
    "greater_than": "> {gt}",
    "greater_than_equal": ">= {ge}",
    "less_than": "< {lt}",
    "less_than_equal": "<= {le}",
}
_OTHERS = {
    "finite_number": "must be finite",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_pattern_mismatch": "must match the pattern '{pattern}'",
    "string_too_long": "must have a length <= {max_length}",
    "string_too_short": "must have a length >= {min_length}",
    "too_long": "must have a length <= {max_length}",
    "too_short": "must have a length >= {min_length}",
}
_TYPES = frozenset({"not_a_boolean", "int_from_float", "literal_error", "unknown_kind", "none_required"})
_TYPE_ENDINGS = ("_type", "_parsing", "_parsing_size", "_sub_type")


@dataclass(frozen=True)
class Problem:
    """One problem in a document, with its location.

    Attributes:
        path: The key path of the setting.
        what: The text about the problem, printed after the path.
        written: The key path whose file and line are printed.
        missing: True if a required setting is absent.
        rival: The key path that the author of a misspelt key probably meant.
    """

    path: KeyPath
    what: str
    written: KeyPath
    missing: bool = False
    rival: KeyPath | None = None


def is_type_error(kind: str) -> bool:
    """Return True if a pydantic error type means a wrong type or an unknown choice."""
    return kind in _TYPES or kind.endswith(_TYPE_ENDINGS)


def problem_of(model_class: type[BaseModel], data: Any, spot: Spot, detail: ErrorDetails) -> Problem:
    """Convert one pydantic error to a `Problem`; `data` has the settings of the whole document."""
    path, kind = spot.path, detail["type"]
    if kind == "extra_forbidden":
        return _unknown_setting(model_class, data, spot)
    if kind == "missing":
        return Problem(path, f"is required{_choices(spot.shape)}", path[:-1], missing=True)
    if kind == "unknown_kind" and spot.shape and spot.shape.choice:
        return _unknown_kind(spot.shape.choice, path, detail["input"])
    if kind == "plug_in":
        return Problem(path, detail["ctx"]["problem"], (*path, "kind"))
    return Problem(path, _wrong_value(spot, detail), path)


def _choices(shape: Shape | None) -> str:
    if shape and shape.choice:
        return f"; kinds of {shape.choice.name}: {', '.join(shape.choice.names())}"
    return f"; one of {', '.join(map(show, shape.literals))}" if shape and shape.literals else ""


def _unknown_setting(model_class: type[BaseModel], data: Any, spot: Spot) -> Problem:
    path, key = spot.path, str(spot.path[-1])
    known = list(spot.parent.settings) if spot.parent else []
    slot = spot.parent.slot if spot.parent else None
    kinds = {kind: its.model_fields for kind, its in slot.table.items()} if slot else {}
    by_default = slot is not None and "kind" not in _value_at(data, path[:-1])
    others = ["kind", *(name for settings in kinds.values() for name in settings)] if by_default else []
    if (new := present_key(key, known)) is not None:
        return Problem(path, f"is now named '{new}'", path, rival=(*path[:-1], new))
    close = difflib.get_close_matches(key, known, n=1)
    if not close and not any(key in settings for settings in kinds.values()):
        close = difflib.get_close_matches(key, others, n=1, cutoff=0.7)
    if close:
        return Problem(path, f"no such setting; did you mean '{close[0]}'?", path, rival=(*path[:-1], close[0]))
    theirs = " or ".join(f"'{kind}'" for kind, settings in kinds.items() if key in settings)
    what = "no such setting"
    if slot and spot.parent and by_default:
        what += f" of {slot.name} '{slot.name_of(spot.parent.annotation)}', the default"
    if slot and theirs:
        return Problem(path, f"{what}; it belongs to {slot.name} {theirs}{'; give its kind' * by_default}", path)
    home = next(homes(Shape(model_class), data, key), None)
    if home:
        return Problem(path, f"no such setting; did you mean '{path_text(home)}'?", path, rival=home)
    remedy = f"kinds: {', '.join(kinds)}" if by_default and not known else f"known: {', '.join(known) or 'none'}"
    return Problem(path, f"{what}; {remedy}", path)


def _value_at(data: Any, path: KeyPath) -> Any:
    for key in path:
        inside = isinstance(data, list) if isinstance(key, int) else isinstance(data, Mapping) and key in data
        data = data[key] if inside else {}
    return data if isinstance(data, Mapping) else {}


def _unknown_kind(slot: Slot, path: KeyPath, value: Any) -> Problem:
    kinds = slot.names()
    value = {"kind": value} if isinstance(value, str) else value
    if isinstance(value, type):
        name = value.__name__
        return Problem(path, f"expected an object, got the class {name}; make one, {name}(...)", path)
    if not isinstance(value, Mapping):
        return Problem(path, f"expected a kind of {slot.name}, got {show(value)}; known: {', '.join(kinds)}", path)
    if "kind" not in value:
        typo = next((key for key in value if difflib.get_close_matches(key, ["kind"], cutoff=0.7)), None)
        if typo is not None:
            return Problem((*path, typo), "no such setting; did you mean 'kind'?", (*path, typo))
        return Problem((*path, "kind"), f"is required; kinds of {slot.name}: {', '.join(kinds)}", path)
    kind = value["kind"]
    if (new := present_word(kind, kinds)) is not None:
        return Problem(path, f"{show(kind)} is now named '{new}'", (*path, "kind"))
    near = _described(slot, kind) or did_you_mean(kind, kinds) if isinstance(kind, str) else ""
    remedy = f"{near} (known: {', '.join(kinds)})" if near else f"; known: {', '.join(kinds)}"
    return Problem(path, f"no such kind of {slot.name}, got {show(kind)}{remedy}", (*path, "kind"))


def _described(slot: Slot, word: str) -> str:
    """Return a hint if `word`, given as a kind, is a file or the value of a setting; otherwise an empty string."""
    ending = PurePath(word).suffix.removeprefix(".")
    if ending in slot.table and "path" in slot.table[ending].model_fields:
        return f"; write {{kind: {ending}, path: {word}}}"
    for kind, component in slot.table.items():
        for name, shape in Shape(component).settings.items():
            for choice in shape.literals:
                if _bare(str(choice)) == _bare(word):
                    return f"; write {{kind: {kind}, {name}: {choice}}}"
    return ""


def _bare(word: str) -> str:
    return re.sub(r"[-_ ]", "", word).lower()


def _wrong_value(spot: Spot, detail: ErrorDetails) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", "")) or reworded(detail["msg"])
    if kind in _RANGES:
        bounds = spot.shape.range_text() if spot.shape else None
        return f"must be {bounds or _RANGES[kind].format(**context)}, got {show(value)}"
    if kind in ("too_long", "too_short"):
        return f"{_OTHERS[kind].format(**context)}, got {context['actual_length']}"
    if kind in _OTHERS:
        return f"{_OTHERS[kind].format(**context)}, got {show(value)}"
    if is_type_error(kind) and spot.shape:
        return f"expected {spot.shape.describe()}, got {show(value)}{_remedy(spot.shape, value)}"
    return f"{reworded(detail['msg'])}, got {show(value)}"


def _remedy(shape: Shape, value: Any) -> str:
    """Return advice on how to correct a value of the wrong type; an empty string if the correction is obvious."""
    if isinstance(value, str) and shape.literals:
        new = present_word(value, [str(each) for each in shape.literals])
        return f"; it is now named '{new}'" if new else did_you_mean(value, shape.literals)
    if shape.annotation is str and isinstance(value, int | float):
        return f"; write '{show(value)}' in quotes"
    if shape.annotation in (int, float) and isinstance(value, str) and re.match(r"[-+]?\.?\d", value):
        return "; write the number alone, the unit is in the name of the setting"
    return ""
