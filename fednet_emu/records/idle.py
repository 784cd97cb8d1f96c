"""Idle time of devices: the time of a run in which they neither send, receive nor compute."""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.records.ledger import SERVER, Ledger


def idle_s(ledger: Ledger, n_devices: int, simulated_ns: int) -> Array:
    """Seconds [n_devices] in which a device neither sends, receives nor computes; overlapping activities count once.

    Devices that are away count as idle. A receiver is busy until a transfer to it ends, even if the transfer is lost.

    Args:
        ledger: the closed ledger of a run.
        n_devices: how many devices there are.
        simulated_ns: simulated duration of the run.
    """
    device, started_ns, ended_ns = _busy(ledger)
    counted = (device > SERVER) & (started_ns >= 0)
    clipped_ns = (np.minimum(times[counted], simulated_ns) for times in (started_ns, ended_ns))
    busy_ns = np.bincount(*_union_ns(device[counted], *clipped_ns), minlength=n_devices)
    return np.asarray(np.maximum(simulated_ns - busy_ns, 0.0) / 1e9, np.float64)


def _busy(ledger: Ledger) -> tuple[IntArray, IntArray, IntArray]:
    """Device, start and end in ns of each activity [intervals]: sending, receiving (alone or not), computing."""
    sends, hears, works = ledger.transfers.column, ledger.receptions.column, ledger.computes.column
    started_ns, ended_ns, row = sends("started_ns"), sends("ended_ns"), hears("transfer")
    device = (sends("sender"), sends("receiver"), hears("receiver"), works("device"))
    starts_ns = (started_ns, started_ns, started_ns[row], works("started_ns"))
    ends_ns = (ended_ns, ended_ns, ended_ns[row], works("ended_ns"))
    return np.concatenate(device).astype(np.int64), np.concatenate(starts_ns), np.concatenate(ends_ns)


def _union_ns(device: IntArray, started_ns: IntArray, ended_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Device of each interval, and the ns it adds to the time covered by earlier intervals of the same device."""
    order = np.lexsort((started_ns, device))
    device = device[order]
    times_ns, place = np.unique(np.concatenate([started_ns[order], ended_ns[order]]), return_inverse=True)
    # ranks of times instead of times, one range of numbers per device, so that a single running maximum serves all
    shift = np.concatenate([device, device]) * len(times_ns)
    first, last = np.split(place + shift, 2)
    reached = np.maximum.accumulate(last)
    first[1:] = np.maximum(first[1:], reached[:-1])
    first = np.minimum(first, last) - shift[: len(device)]
    return device, times_ns[last - shift[: len(device)]] - times_ns[first]
