"""Sending until it has arrived, for algorithms that would otherwise wait for a lost message for ever."""

from __future__ import annotations

from collections.abc import Callable

from simpy.events import Event

from fednet_emu.federation import Federation, Process


def until_delivered(fed: Federation, send: Callable[[], Event]) -> Process:
    """The delivery of `fed.retry(send)`, as part of a process."""
    return (yield fed.retry(send))
