"""SNRs between all receivers and senders on the air in one band; only links that change are updated."""

from __future__ import annotations

import math

import numpy as np

from fednet_emu.arrays import Array, IntArray, Keys, Mask
from fednet_emu.network.air.band import Band
from fednet_emu.network.air.roomy import Roomy
from fednet_emu.network.links.links import LinksOverTime

Places = IntArray | slice
"""Selection of rows or columns of an array."""

_SENDER = np.dtype([("radio", np.int64), ("part", np.float64)])
_PAIR = np.dtype([("mean", np.float64), ("key", np.uint64)])


class LinkGains:
    """Mean SNRs, fading keys and fading gains of all links on the air, as matrices [receivers, senders].

    Each row belongs to a receiving radio, and exists while a transfer to this radio is on the air. Each column belongs
    to a sending radio, and exists while one of its bursts is on the air. The link of a pair is computed when the second
    radio of the pair is added, and again when a movement period begins.

    Attributes:
        receivers: [receivers] numbers of the receiving radios.
        senders: [senders] numbers of the sending radios.
        lowest: a lower bound of all values in `mean` since the matrices were last empty or devices last moved.
        mean: [receivers, senders] SNR (linear) at the sender's power, averaged over fading, with all antennas of the
            receiver combined; 0 if sender and receiver are the same radio.
    """

    def __init__(self, band: Band, links: LinksOverTime) -> None:
        self._band, self._links, self._antennas = band, links, band.reception.antennas
        self._of_sender = Roomy(np.empty((1, 0), _SENDER))
        self.clear()

    def clear(self) -> None:
        self.receivers: IntArray = np.empty(0, np.int64)
        self._row: dict[int, int] = {}
        self._legs: list[int] = []  # number of legs in each row
        self._devices_listen = False
        self.lowest = math.inf
        self._gain: Roomy | None = None
        self._numbers: IntArray = np.empty(0, np.int64)
        self._of_sender.clear()
        self._of_pair = Roomy(np.empty((0, 0), _PAIR))
        self._changed()

    def _changed(self) -> None:
        sender, pair = self._of_sender.now[0], self._of_pair.now
        self.senders: IntArray = sender["radio"]
        self._part: Array = sender["part"]
        self.mean: Array = pair["mean"]
        self._keys: Keys = pair["key"]

    def listen(self, receivers: list[int]) -> list[int]:
        """Return the row of each receiver whose transfer starts now; new receivers get new rows."""
        row = self._row
        new = [receiver for receiver in dict.fromkeys(receivers) if receiver not in row]
        if new:
            row.update({receiver: len(row) + place for place, receiver in enumerate(new)})
            added = np.array(new, np.int64)
            of_pair = np.empty((len(added), len(self.senders)), _PAIR)
            mean, of_pair["key"] = self._pairs(self.senders, added)
            of_pair["mean"] = mean * self._part
            self._of_pair = Roomy(np.concatenate((self._of_pair.now, of_pair)))
            self.lowest = min(self.lowest, float(of_pair["mean"].min(initial=math.inf)))
            self._devices_listen |= int(added.max()) >= 0
            self.receivers = np.concatenate((self.receivers, added))
            self._legs.extend([0] * len(new))
            self._gain = None
            self._changed()
        rows = [row[receiver] for receiver in receivers]
        for place in rows:
            self._legs[place] += 1
        return rows

    def add(self, senders: list[int], power_part: list[float]) -> None:
        """Add a column for each sender, at the given share of its full power."""
        sender, pair = self._of_sender.grow(len(senders)), self._of_pair.grow(len(senders))
        if len(senders) == len(self.receivers) == 1 and senders[0] != self.receivers[0]:
            snr, key = self._links.now().link(senders[0], int(self.receivers[0]))
            snr *= power_part[0]
            sender[0, 0], pair[0, 0], lowest = (senders[0], power_part[0]), (snr, key), snr
        else:
            added, part = np.array(senders, np.int64), np.array(power_part)
            mean, pair["key"] = self._pairs(added, self.receivers)
            sender["radio"], sender["part"], pair["mean"] = added, part, mean * part
            lowest = float(pair["mean"].min(initial=math.inf))
        self.lowest = min(self.lowest, lowest)
        if self._gain is not None:
            self._gain.grow(len(senders))[...] = self._band.gains(pair["key"][:, :, None], self._numbers)
        self._changed()

    def move(self) -> None:
        """Update all links at the start of a movement period."""
        pair = self._of_pair.now
        mean, pair["key"] = self._pairs(self.senders, self.receivers)
        pair["mean"] = mean * self._part
        self.lowest, self._gain = float(pair["mean"].min(initial=math.inf)), None

    def drop_senders(self, columns: IntArray) -> None:
        self._of_sender.drop(columns)
        self._of_pair.drop(columns)
        if self._gain is not None:
            self._gain.drop(columns)
        self._changed()

    def leave(self, rows: IntArray) -> IntArray | None:
        """Record the end of transfers, and remove the rows of receivers that have no transfers left.

        `rows` contains the row of each transfer that has ended; a row may occur several times.

        Returns:
            The new index of each old row, or None if all rows remain.
        """
        legs = self._legs
        for row in rows.tolist():
            legs[row] -= 1
        if all(legs):
            return None
        count = np.array(legs)
        kept = count.nonzero()[0]
        self.receivers, self._of_pair = self.receivers[kept], Roomy(self._of_pair.now[kept])
        if self._gain is not None:
            self._gain = Roomy(self._gain.now[kept])
        self._changed()
        self._legs = count[kept].tolist()
        place = np.cumsum(count > 0) - 1
        self._row = {receiver: int(place[row]) for receiver, row in self._row.items() if legs[row]}
        return place

    def heard(self, numbers: IntArray) -> Array:
        """Return the SNRs (linear) [receivers, senders, blocks] at one antenna of each receiver, in consecutive blocks.

        The SNRs include fading and the powers of the senders.
        """
        mean = self.mean[:, :, None]
        if self._antennas > 1:
            mean = mean / self._antennas
        if self._band.constant:
            return np.repeat(mean * self._band.fading.gain(0.5), len(numbers), axis=2)
        known, first, gain = self._numbers, numbers[0], self._gain
        if gain is None or first < known[0] or numbers[-1] > known[-1]:
            self._numbers = numbers
            gain = self._gain = Roomy(self._band.gains(self._keys[:, :, None], numbers))
        elif len(known) != len(numbers):
            skip = int(first - known[0])  # drops earlier blocks, for which new rows and columns would need gains
            gain, self._numbers = Roomy(gain.now[:, :, skip : skip + len(numbers)]), numbers
            self._gain = gain
        heard: Array = mean * gain.now
        return heard

    def know(self, numbers: IntArray, gain: Array) -> None:
        """Store fading gains [receivers, senders, blocks] of consecutive blocks that the caller has computed."""
        self._numbers, self._gain = numbers, Roomy(gain)

    def combined(self, rows: IntArray, columns: IntArray, numbers: IntArray, branches: int) -> Array:
        """Return the SNRs (linear) [pairs, blocks] of receiver-sender pairs, summed over `branches` antennas."""
        mean = self.mean[rows, columns] * (branches / self._band.reception.antennas)
        return mean[:, None] * self._band.gains(self._keys[rows, columns][:, None], numbers, branches)

    def in_sight(self, rows: IntArray, columns: IntArray) -> Mask:
        """Return the mask [pairs] of the receiver-sender pairs that have line of sight."""
        return (self._keys[rows, columns] & np.uint64(1)).astype(np.bool_)

    def deaf(self, rows: Places, columns: Places) -> Mask | None:
        """Return the mask [receivers, senders] of pairs that are the same radio; None if there is no such pair."""
        if not self._devices_listen:
            return None
        same: Mask = self.receivers[rows][:, None] == self.senders[columns]
        return same if same.any() else None

    def _pairs(self, senders: IntArray, receivers: IntArray) -> tuple[Array, Keys]:
        links = self._links.now()
        sender, receiver = senders[None, :], receivers[:, None]
        alone = sender == receiver
        if not alone.any():
            return links.snrs(sender, receiver), links.fading_keys(sender, receiver)
        mean, keys = np.zeros(alone.shape), np.zeros(alone.shape, np.uint64)
        row, column = np.nonzero(~alone)
        mean[row, column] = links.snrs(senders[column], receivers[row])
        keys[row, column] = links.fading_keys(senders[column], receivers[row])
        return mean, keys
