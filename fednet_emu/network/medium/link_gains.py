"""What every receiver of a band hears of every sender, kept between changes: a change costs what it changes."""

from __future__ import annotations

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys, Mask
from fednet_emu.network.links.links import Links
from fednet_emu.network.medium.band import Band

Places = IntArray | slice
"""Which rows or columns of an array."""

_SPARE_EARS = 8


class Hearing:
    """Mean SNRs, fading keys and the fading gains of some blocks, as matrices of receivers (ears) and senders.

    Attributes:
        ears: [ears] radios that listen; some of them may have nobody left who talks to them.
        senders: [senders] radios that send.
        mean: [ears, senders] SNR at the sender's power, averaged over fading; 0 where the two are one radio.
    """

    def __init__(self, band: Band, links: Links) -> None:
        self._band, self._links = band, links
        self.clear()

    def clear(self) -> None:
        """Forget everybody."""
        self.ears: IntArray = np.empty(0, np.int64)
        self.senders: IntArray = np.empty(0, np.int64)
        self.mean: Array = np.empty((0, 0))
        self._part: Array = np.empty(0)
        self._keys: Keys = np.empty((0, 0), np.uint64)
        self._row: dict[int, int] = {}
        self._devices_listen = False
        self._gain: Array | None = None
        self._numbers: IntArray = np.empty(0, np.int64)

    def listen(self, ears: list[int]) -> list[int]:
        """The rows of receivers; new ones get theirs."""
        row = self._row
        if len(ears) == 1 and ears[0] in row:
            return [row[ears[0]]]
        new = [ear for ear in dict.fromkeys(ears) if ear not in row]
        if new:
            row.update({ear: len(row) + place for place, ear in enumerate(new)})
            added = np.array(new, np.int64)
            mean, keys = self._pairs(self.senders, added)
            self._devices_listen |= max(new) >= 0
            self.ears = np.concatenate((self.ears, added))
            mean = mean * self._part
            self.mean, self._keys = np.concatenate((self.mean, mean)), np.concatenate((self._keys, keys))
            self._gain = None
        return [row[ear] for ear in ears]

    def add(self, senders: list[int], power_part: list[float]) -> None:
        """Give senders a column each, at these parts of their full powers."""
        added, part = np.array(senders, np.int64), np.array(power_part)
        mean, keys = self._pairs(added, self.ears)
        self.senders = np.concatenate((self.senders, added))
        self.mean = np.concatenate((self.mean, mean * part), axis=1)
        self._part = np.concatenate((self._part, part))
        self._keys = np.concatenate((self._keys, keys), axis=1)
        if self._gain is not None:
            gain = self._band.gains(keys[:, :, None], self._numbers)
            self._gain = np.concatenate((self._gain, gain), axis=1)

    def keep(self, columns: IntArray) -> None:
        """Drop all other columns."""
        self.senders = self.senders.take(columns)
        self.mean, self._keys = self.mean.take(columns, axis=1), self._keys.take(columns, axis=1)
        self._part = self._part.take(columns)
        if self._gain is not None:
            self._gain = self._gain.take(columns, axis=1)

    def keep_rows(self, rows: IntArray) -> IntArray:
        """Drop the other rows once they are many; the new places of `rows`, which may repeat."""
        if len(self.ears) <= 2 * len(rows) + _SPARE_EARS:
            return rows
        kept, places = np.unique(rows, return_inverse=True)
        self.ears, self.mean, self._keys = self.ears[kept], self.mean[kept], self._keys[kept]
        self._row = {ear: row for row, ear in enumerate(self.ears.tolist())}
        self._gain = None
        return np.asarray(places, np.int64)

    def heard(self, numbers: IntArray) -> Array:
        """SNRs [ears, senders, blocks] at the senders' powers in blocks in a row, fading included."""
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

    def deaf(self, ears: Places, columns: Places) -> Mask | None:
        """Where an ear [ears, columns] is the radio of a sender itself; None where nowhere."""
        if not self._devices_listen:
            return None
        same: Mask = self.ears[ears][:, None] == self.senders[columns]
        return same if same.any() else None

    def _pairs(self, senders: IntArray, ears: IntArray) -> tuple[Array, Keys]:
        if len(senders) == len(ears) == 1 and senders[0] != ears[0]:
            link = int(senders[0]), int(ears[0])
            return np.array([[self._links.snr(*link)]]), np.array([[self._links.fading_key(*link)]], np.uint64)
        sender, ear = senders[None, :], ears[:, None]
        alone = sender == ear
        if not alone.any():
            return self._links.snrs(sender, ear), self._links.fading_keys(sender, ear)
        mean, keys = np.zeros(alone.shape), np.zeros(alone.shape, np.uint64)
        row, column = np.nonzero(~alone)
        mean[row, column] = self._links.snrs(senders[column], ears[row])
        keys[row, column] = self._links.fading_keys(senders[column], ears[row])
        return mean, keys
