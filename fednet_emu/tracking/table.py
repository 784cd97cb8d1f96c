"""The trackers by name, and how a user's choice of them becomes objects."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from fednet_emu.component.plugins import imported, is_import_path, offered, offers
from fednet_emu.errors import FednetError, did_you_mean
from fednet_emu.tracking.tracker import Tracker

HOMES = {
    "tensorboard": "to_tensorboard:TensorBoard",
    "mlflow": "to_mlflow:MLflow",
    "wandb": "to_wandb:WeightsAndBiases",
}
"""Where each tracker is defined; the extra of the package that it needs has its name."""
SLOT = "tracker"
"""What installed packages call theirs, `tracker.<name>`; see `fednet_emu.component.plugins`."""


def trackers_of(chosen: str | Tracker | Iterable[str | Tracker]) -> list[Tracker]:
    """Return trackers, each a new one for a name, an import path, or an entry point; objects are taken as they are.

    The library that a tracker needs is imported here, so that a missing one is known before anything runs.

    Raises:
        FednetError: there is no such tracker, its library is missing, or an object is none.
    """
    if not isinstance(chosen, Iterable) and not hasattr(chosen, "start"):
        raise FednetError(f"track: expected a tracker or several, got {chosen!r}; see docs/guides/trackers.md")
    several: list[Any] = [chosen] if isinstance(chosen, str) or hasattr(chosen, "start") else list(chosen)
    twice = [name for name in several if isinstance(name, str) and several.count(name) > 1]
    if twice:
        raise FednetError(f"track: each tracker once, got '{twice[0]}' {several.count(twice[0])} times; leave one")
    return [_checked(_named(each) if isinstance(each, str) else each) for each in several]


def label(tracker: Tracker) -> str:
    """The name of a tracker in messages."""
    return type(tracker).__name__


def _named(name: str) -> Tracker:
    if name in HOMES:
        return _built_in(name)
    if name in offers().get(SLOT, ()):
        make: Callable[[], Tracker] = offered(SLOT, name)
    elif is_import_path(name):
        make = imported(name)
    else:
        known = [*HOMES, *offers().get(SLOT, ())]
        hint = did_you_mean(name, known) or f"; give one of {', '.join(known)}, or package.module:Class"
        raise FednetError(f"track: no such tracker, got '{name}'{hint}")
    try:
        return make()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise FednetError(f"track: '{name}' cannot be made without arguments, got {reason}; mend it") from error


def _built_in(name: str) -> Tracker:
    module, _, kind = HOMES[name].partition(":")
    try:
        made: Tracker = getattr(importlib.import_module(f"fednet_emu.tracking.{module}"), kind)()
    except ImportError as error:
        lacking = f"{name} is not installed or incomplete ({' '.join(str(error).split())})"
        raise FednetError(f"track: {lacking}, got '{name}'; pip install 'fednet-emu[{name}]'") from error
    return made


def _checked(tracker: Any) -> Tracker:
    lacking = [name for name in ("start", "log", "end") if not callable(getattr(tracker, name, None))]
    if lacking or isinstance(tracker, type):
        what = "a class" if isinstance(tracker, type) else f"one without {', '.join(lacking)}"
        raise FednetError(f"track: expected a tracker, got {what} ({tracker!r}); see docs/guides/trackers.md")
    found: Tracker = tracker
    return found
