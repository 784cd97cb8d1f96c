"""Compressed transfers of models, sent as differences from a model that sender and receiver have.

On the uplink, a device sends C(x - since + left), where C is the compression, x the device's model, `since` the model
that the device started from, and `left` the compression error of its earlier messages, if the compression uses error
feedback. The device compresses a model once; a retry after a loss sends the same message. The compression error is
stored whether or not the message arrives, because the device receives no feedback about losses.

On the downlink, the server publishes a sequence of models. Each published model is the previous one plus the compressed
update. The server continues from the published model, and stores the compression error. Devices that have the previous
published model receive the update, and all other devices the whole model.

Running statistics (batch norm) are sent uncompressed, with 32 bits each, in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from fednet_emu.compression import Compression
from fednet_emu.compression.base import FLOAT_BIT, Message
from fednet_emu.errors import AlgorithmError
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.graph.graph import Graph
from fednet_emu.network.air.transfer import Transfer


class Shared(NamedTuple):
    """A payload that one transmission sends to several devices, and the identification number of the broadcast."""

    payload: Any
    number: int


def n_scalars(payload: Any) -> int:
    """Return the number of scalars in a payload: a deferred value, number, array, None, or sequence of payloads."""
    if type(payload) is Deferred:
        return payload.size
    if isinstance(payload, (tuple, list)):
        return sum([item.size if type(item) is Deferred else n_scalars(item) for item in payload])
    if isinstance(payload, np.ndarray):
        return int(payload.size)
    if payload is None:
        return 0
    if isinstance(payload, int | float | np.generic):
        return 1
    raise TypeError(f"the size is unknown of a {type(payload).__name__}; give size_bit")


def whole_bit(size_bit: float) -> int:
    """Return the size in bits as an integer; raise a `ValueError` if it is negative or not a whole number."""
    if not (size_bit >= 0 and size_bit % 1 == 0):
        raise ValueError(
            f"size_bit: no whole number of bits, got {size_bit}; must be 0, 1, 2, ..., by math.ceil for example"
        )
    return int(size_bit)


Base = Deferred | Literal[0] | None
"""The model from which an update is computed, and which sender and receiver have. 0 means that the value already is an
update, and None that the value is sent uncompressed."""
Since = Base | tuple[Base, ...]
"""One `Base`, or a tuple with one `Base` for each part of a payload."""

Read = Callable[[Deferred, int], int]
"""Function that returns the computed value of a deferred value, or, in a timing-only run, the given integer."""


class Sent(NamedTuple):
    """Model [n] that a receiver decodes, compression error [n] (None if errors are not fed back), and size in bits."""

    model: Tensor
    left: Tensor | None
    bit: int


def bits_of(scheme: Compression, n: int, statistics: int) -> int:
    """Return the size in bits of a message of `n` numbers, of which the last `statistics` are not compressed."""
    return (scheme.bit(n - statistics) if n > statistics else 0) + FLOAT_BIT * statistics


def sent(
    scheme: Compression,
    x: Tensor,
    base: Tensor | None,
    left: Tensor | None,
    streams: Streams,
    name: tuple[Any, ...],
    statistics: int = 0,
) -> Sent:
    """Return the compressed message for the update [n] (`x` - `base`) plus the compression error of earlier messages.

    `x` is the model [n] of the sender and `base` the one that sender and receiver have; if `base` is None, `x` is an
    update. `left` is the compression error [n] of earlier messages, or None. `name` names the random stream of the
    message. The last `statistics` entries of `x` are running statistics, which are not compressed.
    """
    if statistics:
        n = len(x) - statistics
        base, whole = None if base is None else base[:n], x[n:]
        if not n:
            return Sent(x, x.new_empty(0) if scheme.feeds_back else None, FLOAT_BIT * statistics)
        model, left, bit = sent(scheme, x[:n], base, left, streams, name)
        return Sent(torch.cat([model, whole]), left, bit + FLOAT_BIT * statistics)
    v = x if base is None else x - base
    if left is not None:
        v = v + left
    read, bit = checked(scheme, scheme.compress(v, streams(*name)), v)
    if scheme.feeds_back:
        read = read / scheme.growth(len(v))
    return Sent(read if base is None else base + read, v - read if scheme.feeds_back else None, bit)


def checked(scheme: Compression, message: Any, v: Tensor) -> Message:
    """Return the message that `scheme` for `v` [n]; raise an `AlgorithmError` if its type, shape or size is wrong."""
    where, remedy = f"{type(scheme).__name__}.compress", "return Message(read, bit)"
    if not (isinstance(message, tuple) and len(message) == 2 and isinstance(message[0], Tensor)):
        raise AlgorithmError(where, f"makes no message, got {type(message).__name__}", remedy, line="")
    read, bit = message
    if read.shape != v.shape:
        what = f"reads {list(read.shape)} numbers of a vector {list(v.shape)}"
        raise AlgorithmError(where, f"{what}, got another shape", "return one number for each entry", line="")
    most = scheme.bit(len(v))
    if not isinstance(bit, int | np.integer) or not (0 <= bit <= most and (bit == most or scheme.depends_on_values)):
        what = f"must have as many bits as `bit({len(v)})`, {most}, or at most as many if they depend on the values"
        raise AlgorithmError(where, f"{what}, got {bit}", "return the whole number of bits of the message", line="")
    return Message(read, int(bit))


@final
class Compressor:
    """Creates the compressed messages of the uplink or downlink as deferred values, and stores compression errors."""

    def __init__(
        self, scheme: Compression, graph: Graph, streams: Streams, read: Read, statistics: Mapping[int, int]
    ) -> None:
        self.scheme, self._graph, self._streams, self._read = scheme, graph, streams, read
        self._statistics = statistics
        self._left: dict[tuple[int, ...], Deferred] = {}

    def send(
        self, x: Deferred, base: Deferred | None, who: tuple[int, ...], number: int, kept: float | None = None
    ) -> tuple[Deferred, int]:
        """Return the model that the receiver decodes, and the size in bits of the message.

        `x` is the model to send and `base` the model that sender and receiver have, or None. `who` identifies the
        sender, and `number` its message. If `kept` is given, a sparse scheme keeps this share of the entries.
        """
        n, name, statistics = x.size, ("compression", *who, number), self._statistics.get(x.size, 0)
        scheme = self.scheme if kept is None else self.scheme.model_copy(update={"share": kept})
        what = scheme, x, base, self._left.get(who), self._streams, name, statistics
        both = self._graph.call(sent, *what, size=2 * n)
        model = both.part("model", n)
        if self.scheme.feeds_back:
            self._left[who] = both.part("left", n)
        bit = bits_of(scheme, n, statistics)
        if self.scheme.depends_on_values:
            bit = self._read(both.part("bit", 1), bit)
        return model, bit


@dataclass(slots=True)
class _Sender:
    """Number of messages that a device has made, and its latest message, which is stored until it arrives."""

    messages: int = 0
    key: tuple[int, ...] = ()
    payload: Any = None
    bit: int = 0


@final
class Uploads:
    """The compressed uplink, which sends models as compressed differences from a model that the server has."""

    def __init__(self, compressor: Compressor) -> None:
        self._compressor = compressor
        self._senders: dict[int, _Sender] = {}

    def message(self, device: int, payload: Any, since: Since, kept: float | None = None) -> tuple[Any, int]:
        """Return the payload that the server decodes from the message of `device`, and its size in bits.

        `since` gives the model from which each part of the payload is sent as a difference, see `Base`. If `kept` is
        given, a sparse scheme keeps this share of the entries. Until the message has arrived, further calls with the
        same payload and `since` return the same message. A `ValueError` is raised if `since` does not have one entry
        for each part of the payload.
        """
        alone = not isinstance(payload, tuple)
        parts, bases = (payload,) if alone else payload, since if isinstance(since, tuple) else (since,)
        if len(parts) != len(bases):
            raise ValueError(f"since: not one for each part, got {len(bases)} for {len(parts)}; give None for the rest")
        sender = self._senders.setdefault(device, _Sender())
        key = tuple(item.number if isinstance(item, Deferred) else -1 for item in (*parts, *bases))
        if sender.payload is None or sender.key != key:
            read = [self._part(device, place, parts[place], base, kept) for place, base in enumerate(bases)]
            sender.messages += 1
            sender.key, sender.bit = key, sum(bit for _, bit in read)
            sender.payload = read[0][0] if alone else tuple(part for part, _ in read)
        return sender.payload, sender.bit

    def _part(self, device: int, place: int, part: Any, base: Base, kept: float | None) -> tuple[Any, int]:
        if base is None or not isinstance(part, Deferred) or not part.size:
            return part, n_scalars(part) * FLOAT_BIT
        known = base if isinstance(base, Deferred) else None
        return self._compressor.send(part, known, (device, place), self._senders[device].messages, kept)

    def until_arrived(self, device: int, transfer: Transfer) -> None:
        """Store the message of a device for further attempts until `transfer` has delivered the message."""

        def ended(event: Any) -> None:  # a reference to `transfer` would be a cycle if it never triggers
            if not event.lost:
                self._senders[device].payload = None

        transfer.callbacks.append(ended)


@dataclass(slots=True)
class _Published:
    """The latest published model."""

    source: int  # identification number of the server's model before compression
    model: Deferred  # the published model, which devices decode
    before: int = -1  # identification number of the previous published model; -1 if there is none
    bit: int = 0  # size in bits of the update from the previous published model

    @property
    def known(self) -> tuple[int, int]:
        """Numbers of the models to which a device can apply the update: the previous and the latest published one."""
        return self.before, self.model.number


@final
class Publications:
    """The compressed downlink: the sequence of published models, and the latest published model of each device."""

    def __init__(self, compressor: Compressor) -> None:
        self._compressor = compressor
        self._latest: _Published | None = None
        self._count = 0
        self._has: dict[int, int] = {}

    def publish(self, w: Deferred) -> Deferred:
        """Publish `w`, and return the model that devices receive from now on; the first model is not compressed."""
        last = self._latest
        if last is None:
            self._latest = _Published(w.number, w)
            return w
        if w.number not in (last.source, last.model.number):
            self._count += 1
            model, bit = self._compressor.send(w, last.model, (), self._count)
            self._latest = _Published(w.number, model, last.model.number, bit)
            return model
        return last.model

    def bit(self, device: int, payload: Any) -> int:
        """Return the size in bits of a payload for a device: an update if it can apply one, else a whole model."""
        last = self._latest
        if last is not None and last.bit and payload is last.model and self._has.get(device) in last.known:
            return last.bit
        if isinstance(payload, tuple | list):
            return sum(self.bit(device, part) for part in payload)
        return n_scalars(payload) * FLOAT_BIT

    def until_arrived(self, device: int, payload: Any, transfer: Transfer) -> None:
        """As soon as `transfer` delivers the published model, record that the device has this model."""
        last = self._latest
        if last is None or not _holds(payload, last.model):
            return
        number = last.model.number

        def ended(event: Any) -> None:
            if not event.lost:
                self._has[device] = number

        transfer.callbacks.append(ended)


def _holds(payload: Any, model: Deferred) -> bool:
    if isinstance(payload, Sequence):
        return any(_holds(part, model) for part in payload)
    return payload is model
