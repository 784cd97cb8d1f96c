"""The reply of a client, and the upload that carries it."""

from __future__ import annotations

from typing import Any, NamedTuple

from fednet_emu.federation.device import Device
from fednet_emu.federation.updates import Since
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.network.air.transfer import Delivery


class Reply(NamedTuple):
    """A reply with options for its upload; a client may return a `Reply` instead of the payload.

    Attributes:
        payload: the content that the server receives.
        since: the model that the device started from and that the server knows, as for `Federation.uplink`.
        power_part: share of the device's transmit power that is used for the upload.
    """

    payload: Any
    since: Since = None
    power_part: float = 1.0


class Upload(NamedTuple):
    """An upload: the reply of a device, followed by the device's training statistics.

    Attributes:
        n_statistics: number of training statistics at the end of the payload.
        several: whether the reply has several parts.
    """

    payload: Any
    since: Since
    power_part: float
    n_statistics: int
    several: bool


def upload_of(k: Device, reply: Any, base: Any) -> Upload:
    """Make the upload of a reply; `base` is the model in the message if the uplink compresses, else None."""
    payload, since, power_part = reply, None, 1.0
    if isinstance(reply, Reply):
        payload, since, power_part = reply
    elif base is not None:
        since = _since(base, reply)
    n, several = len(k.measured), isinstance(payload, tuple)
    if n:
        payload = (*(payload if several else (payload,)), *k.measured)
        since = (*(since if isinstance(since, tuple) else (since,) * (len(payload) - n)), *(None,) * n)
    return Upload(payload, since, power_part, n, several)


def received(upload: Upload, sent: Delivery) -> Delivery:
    """Return the delivery `sent` with the training statistics removed from its payload."""
    if not upload.n_statistics or sent.lost:
        return sent
    payload = sent.payload[: -upload.n_statistics]
    return sent._replace(payload=payload if upload.several else payload[0])


def _since(base: Any, reply: Any) -> Since:
    """Return the `since` of a reply: its first part becomes an update from `base` if both have the same size."""
    first = reply[0] if isinstance(reply, tuple) else reply
    if not (isinstance(base, Deferred) and isinstance(first, Deferred) and base.size == first.size):
        return None
    return (base, *(None,) * (len(reply) - 1)) if isinstance(reply, tuple) else base
