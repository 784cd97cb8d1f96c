"""What every receiver of a band hears of every sender, kept between changes: a change costs what it changes."""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys, Mask
from fednet_emu.network.links.links import Links
from fednet_emu.network.medium.band import Band

Places = IntArray | slice
"""Which rows or columns of an array."""


class LinkGains:
    """Mean SNRs, fading keys and the fading gains of some blocks, as matrices of receivers and senders.

    A row is one receiving radio in one period of movement, and lives as long as a transfer to it that started in that
    period; a column is one sending radio, and lives as long as a burst of it. A pair is looked up when the later of
    the two comes, so that every transfer has the link of the moment at which it starts.

    Attributes:
        receivers: [receivers] radios that listen.
        senders: [senders] radios that send.
        mean: [receivers, senders] SNR at the sender's power, averaged over fading; 0 where the two are one radio.
    """

    def __init__(self, band: Band, links: Links) -> None:
        self._band, self._links = band, links
        self.clear()

    def clear(self) -> None:
        """Forget everybody."""
        self.receivers: IntArray = np.empty(0, np.int64)
        self.senders: IntArray = np.empty(0, np.int64)
        self.mean: Array = np.empty((0, 0))
        self._part: Array = np.empty(0)
        self._keys: Keys = np.empty((0, 0), np.uint64)
        self._row: dict[tuple[int, int], int] = {}
        self._legs: list[int] = []  # how many legs listen in each row
        self._devices_listen = False
        self._gain: Array | None = None
        self._numbers: IntArray = np.empty(0, np.int64)

    def listen(self, receivers: list[int]) -> list[int]:
        """The rows of receivers of transfers that start now; new ones get theirs."""
        period, row = self._links.period(), self._row
        named = [(receiver, period) for receiver in receivers]
        new = [name for name in dict.fromkeys(named) if name not in row]
        if new:
            row.update({name: len(row) + place for place, name in enumerate(new)})
            added = np.array([receiver for receiver, _ in new], np.int64)
            mean, keys = self._pairs(self.senders, added)
            self._devices_listen |= int(added.max()) >= 0
            self.receivers = np.concatenate((self.receivers, added))
            self.mean = np.concatenate((self.mean, mean * self._part))
            self._keys = np.concatenate((self._keys, keys))
            self._legs.extend([0] * len(new))
            self._gain = None
        rows = [row[name] for name in named]
        for place in rows:
            self._legs[place] += 1
        return rows

    def add(self, senders: list[int], power_part: list[float]) -> None:
        """Give senders a column each, at these parts of their full powers."""
        added, part = np.array(senders, np.int64), np.array(power_part)
        mean, keys = self._pairs(added, self.receivers)
        self.senders = np.concatenate((self.senders, added))
        self.mean = np.concatenate((self.mean, mean * part), axis=1)
        self._part = np.concatenate((self._part, part))
        self._keys = np.concatenate((self._keys, keys), axis=1)
        if self._gain is not None:
            gain = self._band.gains(keys[:, :, None], self._numbers)
            self._gain = np.concatenate((self._gain, gain), axis=1)

    def keep_senders(self, columns: IntArray) -> None:
        """Drop all other columns."""
        self.senders = self.senders.take(columns)
        self.mean, self._keys = self.mean.take(columns, axis=1), self._keys.take(columns, axis=1)
        self._part = self._part.take(columns)
        if self._gain is not None:
            self._gain = self._gain.take(columns, axis=1)

    def leave(self, rows: IntArray) -> IntArray | None:
        """Some legs of these rows, which may repeat, have ended: drop rows without any.

        Returns:
            The new place of each old row, or None where all stay.
        """
        legs = self._legs
        for row in rows.tolist():
            legs[row] -= 1
        if all(legs):
            return None
        count = np.array(legs)
        kept = count.nonzero()[0]
        self.receivers, self.mean, self._keys = self.receivers[kept], self.mean[kept], self._keys[kept]
        if self._gain is not None:
            self._gain = self._gain[kept]
        self._legs = count[kept].tolist()
        place = np.cumsum(count > 0) - 1
        self._row = {name: int(place[row]) for name, row in self._row.items() if legs[row]}
        return place

    def heard(self, numbers: IntArray) -> Array:
        """SNRs [receivers, senders, blocks] at the senders' powers in blocks in a row, fading included."""
        mean = self.mean[:, :, None]
        if self._band.constant:
            return np.repeat(mean * self._band.fading.gain(0.5), len(numbers), axis=2)
        known, first = self._numbers, numbers[0]
        if self._gain is None or first < known[0] or numbers[-1] > known[-1]:
            self._numbers = numbers
            self._gain = self._band.gains(self._keys[:, :, None], numbers)
        elif len(known) != len(numbers):
            skip = int(first - known[0])  # newcomers then need no more gains than these
            self._gain, self._numbers = self._gain[:, :, skip : skip + len(numbers)], numbers
        return mean * self._gain

    def deaf(self, rows: Places, columns: Places) -> Mask | None:
        """Where a receiver [rows, columns] is the radio of a sender itself; None where nowhere."""
        if not self._devices_listen:
            return None
        same: Mask = self.receivers[rows][:, None] == self.senders[columns]
        return same if same.any() else None

    def _pairs(self, senders: IntArray, receivers: IntArray) -> tuple[Array, Keys]:
        if len(senders) == len(receivers) == 1 and senders[0] != receivers[0]:
            link = int(senders[0]), int(receivers[0])
            return np.array([[self._links.snr(*link)]]), np.array([[self._links.fading_key(*link)]], np.uint64)
        sender, receiver = senders[None, :], receivers[:, None]
        alone = sender == receiver
        if not alone.any():
            return self._links.snrs(sender, receiver), self._links.fading_keys(sender, receiver)
        mean, keys = np.zeros(alone.shape), np.zeros(alone.shape, np.uint64)
        row, column = np.nonzero(~alone)
        mean[row, column] = self._links.snrs(senders[column], receivers[row])
        keys[row, column] = self._links.fading_keys(senders[column], receivers[row])
        return mean, keys
