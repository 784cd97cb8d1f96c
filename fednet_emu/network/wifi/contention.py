"""Rates of Wi-Fi stations that contend for a channel, computed from the durations of their frame exchanges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fednet_emu.arrays import Array, IntArray
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.network.wifi.backoff import WINDOW, slots
from fednet_emu.network.wifi.standards import FAMILIES, MAX_PPDU_NS, Family, Scheme, WifiStandard, control_ns, schemes

PACKET_BYTE = 1500
"""Size in bytes of the IP packet in a frame."""
AMPDU_BYTE = 65_535
"""Maximum size of an aggregate in bytes in 802.11n. ns-3 uses the same limit for 802.11ac and 802.11ax."""

_SLOT_NS, _SIFS_NS = 9_000, 16_000
_WAIT_NS = {"a": _SIFS_NS + 2 * _SLOT_NS, "n": _SIFS_NS + 3 * _SLOT_NS}  # a: DIFS; n, ac, ax: AIFS of best effort
_LLC_BYTE, _CHECKSUM_BYTE, _HEADER_BYTE, _QOS_HEADER_BYTE, _DELIMITER_BYTE = 8, 4, 24, 26, 4
_RTS_BYTE, _CTS_BYTE, _ACK_BYTE, _REQUEST_BYTE, _BLOCK_ACK_BYTE = 20, 14, 14, 24, 32
_WINDOW_FRAMES = {"a": 1, "n": 64, "ac": 64, "ax": 256}


@dataclass(frozen=True)
class Mode:
    """The transmission mode of all stations on a channel.

    Attributes:
        standard: the version of IEEE 802.11.
        width_mhz: width of the channel in MHz, which the standard must support.
        streams: number of spatial streams.
        aggregates: True if frames are aggregated.
        rts: True if RTS and CTS precede each frame.
        requests: True if a block-ack request follows an aggregate that has collided.
        ampdu_byte: maximum size of an aggregate in bytes.
    """

    standard: WifiStandard
    width_mhz: int
    streams: int = 1
    aggregates: bool = True
    rts: bool = False
    requests: bool = True
    ampdu_byte: int = AMPDU_BYTE


class Exchange(NamedTuple):
    """Bits and durations of one attempt to send with each scheme [schemes].

    Durations include the time up to the next backoff slot. With single frames or RTS, backoff is frozen while other
    stations send. Only the station that has just sent may use the next slot, and does so with probability 1 / W
    (Tinnirello, Bianchi and Xiao, IEEE TVT 59, 2010). The bits and times of a success therefore include a series of
    frames.

    Attributes:
        ip_bit: bits of the IP packets carried by a success.
        success_ns: duration in ns of data with acknowledgement.
        collision_ns: duration in ns of a collision in which no other frame is longer.
        answered_ns: duration in ns of a block-ack request with its answer.
        unanswered_ns: duration in ns of a block-ack request that collides.
        sent_ns: time in ns for which the sender radiates in a success.
        wasted_ns: time in ns for which the sender radiates data in a collision.
        request_ns: time in ns for which the sender radiates a block-ack request.
    """

    ip_bit: Array
    success_ns: Array
    collision_ns: Array
    answered_ns: Array
    unanswered_ns: Array
    sent_ns: Array
    wasted_ns: Array
    request_ns: Array


@lru_cache
def exchange(mode: Mode) -> Exchange:
    """Return the bits and durations of a mode's frame exchanges, with schemes in increasing order."""
    family = FAMILIES[mode.standard]
    rows = [_exchange(mode, family, scheme) for scheme in schemes(mode.standard, mode.width_mhz, mode.streams)]
    return Exchange(*np.array(rows, np.float64).T)


def _exchange(mode: Mode, family: Family, scheme: Scheme) -> tuple[float, ...]:
    def frames_ns(count: int) -> int:
        return family.ppdu_ns(_psdu_byte(mode, count), scheme.data_bit, family.guard_ns, mode.streams)

    frames, mbps = 1, scheme.control_mbps
    most = _WINDOW_FRAMES[mode.standard] if mode.aggregates else 1
    while frames < most and _psdu_byte(mode, frames + 1) <= mode.ampdu_byte and frames_ns(frames + 1) <= MAX_PPDU_NS:
        frames += 1
    data_ns, wait_ns = frames_ns(frames), _WAIT_NS["a" if mode.standard == "a" else "n"]
    answer_ns = _SIFS_NS + control_ns(_BLOCK_ACK_BYTE if mode.aggregates else _ACK_BYTE, mbps)
    rts_ns, cts_ns = (control_ns(size, mbps) for size in (_RTS_BYTE, _CTS_BYTE))
    before_ns = rts_ns + _SIFS_NS + cts_ns + _SIFS_NS if mode.rts else 0
    success_ns = before_ns + data_ns + answer_ns + wait_ns
    sent_ns, wasted_ns = (rts_ns + data_ns, rts_ns) if mode.rts else (data_ns, data_ns)
    collision_ns = (rts_ns + _SIFS_NS + cts_ns if mode.rts else data_ns) + wait_ns
    series, pause_ns = 1.0, 0.0
    if mode.rts or not mode.aggregates:
        series, pause_ns = 1.0 / (1.0 - 1.0 / WINDOW), _SLOT_NS
    request_ns = control_ns(_REQUEST_BYTE, mbps) if mode.requests else 0
    return (
        8.0 * PACKET_BYTE * frames * series,
        success_ns * series + pause_ns,
        collision_ns,
        request_ns + answer_ns + wait_ns,
        request_ns + wait_ns,
        sent_ns * series,
        wasted_ns,
        request_ns,
    )


def _psdu_byte(mode: Mode, frames: int) -> int:
    """Return the bytes of frames with one packet each; frames in an aggregate are padded to multiples of 4 bytes."""
    header_byte = _HEADER_BYTE if mode.standard == "a" else _QOS_HEADER_BYTE
    frame_byte = header_byte + _LLC_BYTE + PACKET_BYTE + _CHECKSUM_BYTE
    return frames * 4 * -(-(frame_byte + _DELIMITER_BYTE) // 4) if mode.aggregates else frame_byte


class Shares(NamedTuple):
    """Results of contention: rates [bursts, blocks] in bit/s, and shares [bursts, blocks] of the time on the air."""

    rate_bps: Array
    airtime: Array


def contend(mode: Mode, scheme: IntArray, station: IntArray) -> Shares:
    """Compute the rates of bursts whose stations contend for one channel.

    All stations send with the same probability, and therefore the same number of frames. A collision lasts as long as
    its longest frame. The bursts of one station have equal shares of its frames, and all frames of a station are
    assumed to have the mean duration of these frames.

    Args:
        mode: the transmission mode of the stations.
        scheme: [bursts, blocks] index of each burst's scheme; -1 for a burst that is silent in the block.
        station: [bursts] index of each burst's station; all indices from 0 on occur.
    """
    sending = scheme >= 0
    own = Exchange(*(np.where(sending, times.take(scheme, mode="clip"), 0.0) for times in exchange(mode)))
    turn = sending.astype(np.float64)
    if len(np.unique(station)) < len(station):
        turn /= np.maximum(_of_stations(turn, station), 1.0)[station]
    mean = Exchange(*(_of_stations(times * turn, station) for times in own))
    present = np.count_nonzero(_of_stations(turn, station), axis=0)
    rate_bps, airtime = np.zeros(scheme.shape), np.zeros(scheme.shape)
    for count in np.unique(present[present > 0]).tolist():
        blocks, of_slot = present == count, slots(count, requests=mode.requests)
        longest_ns = np.sort(mean.collision_ns[:, blocks], axis=0)[-count:]
        slot_ns = (
            of_slot.idle * _SLOT_NS
            + of_slot.success * mean.success_ns[:, blocks].sum(axis=0)
            + (of_slot.collision[:, None] * longest_ns).sum(axis=0)
            + of_slot.answered * mean.answered_ns[:, blocks].sum(axis=0)
            + of_slot.requests_only * mean.unanswered_ns[:, blocks].sum(axis=0) / count
        )
        per_ns = turn[:, blocks] / slot_ns
        rate_bps[:, blocks] = per_ns * (of_slot.success * NS_PER_S) * own.ip_bit[:, blocks]
        airtime[:, blocks] = per_ns * (
            of_slot.success * own.sent_ns[:, blocks]
            + (of_slot.attempt - of_slot.success) * own.wasted_ns[:, blocks]
            + of_slot.request * own.request_ns[:, blocks]
        )
    return Shares(rate_bps, airtime)


def _of_stations(values: Array, station: IntArray) -> Array:
    total = np.zeros((int(station.max()) + 1, values.shape[1]))
    np.add.at(total, station, values)
    return total
