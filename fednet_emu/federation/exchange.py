"""Exchanges, in which devices receive a message, compute and send a reply, and retries of lost messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Literal, NamedTuple

from simpy.events import Event
from torch import Tensor

from fednet_emu.devices.availability import Presence
from fednet_emu.federation.device import Device, Fed, Invitation, Statistic
from fednet_emu.federation.sums import MeanOf, mean_update, moved
from fednet_emu.federation.updates import Since
from fednet_emu.kernel.all_of import AllOf
from fednet_emu.kernel.clock import FOREVER_NS, NS_PER_S, Clock, Process, to_ns
from fednet_emu.kernel.events import Completion, not_awaited
from fednet_emu.learning.graph.accumulation import Accumulation, of_means
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.network.air.transfer import Delivery, Transfer


class Reply(NamedTuple):
    """A reply with options for its upload, which a client may return instead of the payload alone.

    Attributes:
        payload: the content that the server receives.
        since: the model that the device started from and that the server also has; see `Federation.uplink`.
        power_part: share of the device's transmit power that is used for the upload.
    """

    payload: Any
    since: Since = None
    power_part: float = 1.0


class Upload(NamedTuple):
    """An upload, which consists of the reply of a device and the device's training statistics."""

    payload: Any  # the elements of the reply, followed by the statistics
    since: Since  # the model that the device started from; see `Federation.uplink`
    power_part: float  # share of the device's transmit power that is used for the upload
    n_statistics: int  # number of training statistics at the end of the payload
    several: bool  # whether the reply is a tuple of several elements


def upload_of(k: Device, reply: Any, base: Any) -> Upload:
    """Return the upload of a reply; `base` is the model in the received message if the uplink compresses, else None."""
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
    """Return the delivery `sent` of an upload, with the training statistics removed from its payload."""
    if not upload.n_statistics or sent.lost:
        return sent
    payload = sent.payload[: -upload.n_statistics]
    return sent._replace(payload=payload if upload.several else payload[0])


def _since(base: Any, reply: Any) -> Since:
    """Return the reference models of a reply: `base` for its first element if both have the same size, else None."""
    first = reply[0] if isinstance(reply, tuple) else reply
    if not (isinstance(base, Deferred) and isinstance(first, Deferred) and base.size == first.size):
        return None
    return (base, *(None,) * (len(reply) - 1)) if isinstance(reply, tuple) else base


Send = Callable[[], Event]
"""Function that starts one attempt to send, and returns an event whose value is a `Delivery` or a list of deliveries.
"""

Client = Callable[..., Process]
"""Function `client(fed, k, *message, *arguments)` that returns the process of device k in an exchange. The process
returns the reply or, if it has sent the reply itself, the `Delivery`."""

PAUSE_S = 1e-3
"""Default pause in s between the first and the second attempt; the pause doubles after each attempt."""
PATIENCE_S = 604_800.0
"""Default timeout of retries, one week in s: no attempt begins later than this time after the start of the first."""

BEYOND_REACH = "unreachable"
"""Loss reason of a link with a rate of 0. If devices do not move, every retry fails."""
NO_CONNECTION = "connect"
"""Loss reason of a path whose delay is too long for a connection. Every retry fails."""
LEFT = frozenset({"away", "left"})
"""Loss reasons that mean that a device is absent, but not because its battery is empty."""
GONE = LEFT | {"empty"}
"""Loss reasons that mean that a device is absent, for any reason. Retries fail until the device returns, which may
never happen."""


class Exchange(NamedTuple):
    """Settings of an exchange.

    Attributes:
        deadline_s: maximum time in s that the server waits for replies; the work of late devices is cancelled, and
            their replies count as lost. None for no limit.
        retries: maximum number of immediate retries of a lost reply, if `patience_s` is None.
        patience_s: time in s during which lost messages in both directions are sent again; None if only `retries`
            applies.
        sums: whether the server needs only the mean of the replies, so that the network may deliver only their sum.
        statistics: training statistics that each device sends with its reply.
        counts: whether the exchange adds to the round's numbers of invited devices and arrived replies.
    """

    deadline_s: float | None = None
    retries: int = 0
    patience_s: float | None = None
    sums: bool = False
    statistics: tuple[Statistic, ...] = ()
    counts: bool = True


class Arrived(list[tuple[Device, Any]]):
    """List of the arrived replies of an exchange, as pairs (device, payload) in the order of the cohort.

    Attributes:
        cohort: the invited devices; the attribute `measured` of a device has the statistics that the device has sent.
        replies: the deliveries of all replies, including lost ones, in the order of the cohort.
        sent: the message that was sent to the devices.
        mean: function that returns the weighted mean of the differences between the arrived models and a given model.
    """

    def __init__(
        self, fed: Fed, cohort: Sequence[Device], replies: Sequence[Delivery], sent: Any, mean: MeanOf
    ) -> None:
        super().__init__((k, reply.payload) for k, reply in zip(cohort, replies, strict=True) if not reply.lost)
        self._fed, self.cohort, self.replies, self.sent, self.mean = fed, cohort, replies, sent, mean

    @property
    def devices(self) -> list[Device]:
        return [k for k, _ in self]

    def part(self, number: int) -> list[Any]:
        """Return the element with index `number` of every reply; each reply must be a tuple of elements."""
        return [payload[number] for _, payload in self]

    @property
    def models(self) -> list[Deferred]:
        """The first element of every reply, or the reply itself if it is not a tuple."""
        return [payload[0] if isinstance(payload, tuple) else payload for _, payload in self]

    @property
    def model(self) -> Deferred:
        """The model that was sent to the devices, which is the message or the first element of the message."""
        w: Deferred = self.sent[0] if isinstance(self.sent, tuple) else self.sent
        return w

    def average(
        self, weighting: Literal["samples", "uniform"] | Sequence[float] = "samples", lr: float = 1.0
    ) -> Deferred:
        """Return the sent model plus `lr` times the weighted mean of the differences (arrived model - sent model).

        The result is the sent model, bit for bit, if no model has arrived or all arrived models equal the sent model.
        Running statistics, as in batch norm, become the weighted mean for any `lr`. The arrived models cannot be used
        afterwards; see `Federation.accumulate`.

        Args:
            weighting: `samples` (weights are the numbers of samples), `uniform`, or a weight for each reply.
            lr: step size of the server.
        """
        if not self:
            return self.model
        weights = self.weights(weighting) if isinstance(weighting, str) else weighting
        statistics = self._fed.n_statistics if lr != 1.0 else 0
        mean: Deferred = self._fed.accumulate(average, self.models, self.model, weights, lr, self.mean, statistics)
        return mean

    def weights(self, weighting: Literal["samples", "uniform"]) -> list[int]:
        """Return the weight of every reply: the number of samples of its device, or 1 if `weighting` is uniform."""
        devices = [k.index for k, _ in self]
        counts: list[int] = self._fed.task.n_samples[devices].tolist() if weighting == "samples" else [1] * len(devices)
        return counts


@of_means
def average(
    w: Tensor, weights: Sequence[float], lr: float = 1.0, mean: MeanOf = mean_update, statistics: int = 0
) -> Accumulation:
    """Return `w` [P] plus `lr` times the weighted mean of (model - `w`); the models are received one by one.

    The last `statistics` entries of a model are running statistics, for which `lr` counts as 1. Because differences are
    summed instead of models, `w` stays bit-identical when all models equal `w`.
    """
    update = yield from mean(w, weights)
    return moved(w, update, lr, statistics)


def exchange(
    fed: Fed, cohort: Iterable[Device], message: Any, client: Client, args: Sequence[Any], how: Exchange
) -> Process:
    """Process of `Federation.exchange`, which returns an `Arrived`."""
    cohort = list(cohort)
    ends_s = None if how.deadline_s is None else fed.now_s + how.deadline_s
    invitation = Invitation(cohort, ends_s, how.statistics)
    invited = [Device(fed, k.index, invitation) for k in cohort]
    sums = fed.sums if how.sums else None
    if sums is None and fed.local_rounds.take(client, message, how):
        replies = yield from fed.local_rounds.play(invited, message, client, args, how)
        if replies is not None:
            return _arrived(fed, invited, replies, message, mean_update, how)
    if callable(message):
        messages: Iterable[Any] = map(message, cohort)
    else:
        one = message if isinstance(message, Deferred) else fed.shared(message)
        if how.patience_s is not None or fed.presence.foreseen or sums is not None:
            messages = repeat(one)
        else:
            fed.asks(len(cohort))
            messages = fed.links.downlinks([k.index for k in cohort], one)
    summed = sums is not None
    clients = (asked(fed, k, m, client, args, how, summed=summed) for k, m in zip(invited, messages, strict=False))
    if sums is not None:
        size = message[0].size if isinstance(message, tuple) else message.size
        replies, mean = yield from sums.of(size, zip(invited, clients, strict=True), how.deadline_s)
    else:
        begun, mean = fed.clock.begin(clients), mean_update
        replies = yield AllOf(fed.clock, begun, how.deadline_s, lambda: Delivery.given_up(fed.now_s))
    return _arrived(fed, invited, replies, message, mean, how)


def _arrived(
    fed: Fed, invited: Sequence[Device], replies: Sequence[Delivery], message: Any, mean: MeanOf, how: Exchange
) -> Arrived:
    arrived = Arrived(fed, invited, replies, message, mean)
    if how.counts:
        fed.answered(len(invited), len(arrived))
    return arrived


def asked(
    fed: Fed, k: Device, message: Any, client: Client, args: Sequence[Any], how: Exchange, *, summed: bool = False
) -> Process:
    """Process of one device in an exchange: receive the message, run `client`, and send the reply.

    The process returns the `Delivery` of the reply. If `summed` is True, it does not send the reply, but returns the
    pair (device, reply). `message` is a `Transfer` if the message is already being sent.
    """
    if how.patience_s is None and not fed.presence.foreseen:
        got = yield message if isinstance(message, Transfer) else fed.downlink(k, message)
    else:
        got = yield from resent(fed, partial(fed.downlink, k, message), how._replace(retries=0))
    if got.lost:
        return got
    parts = got.payload if isinstance(got.payload, tuple) else (got.payload,)
    base = parts[0] if fed.links.compresses_uploads else None
    working = client(fed, k, *parts, *args)
    del got, parts, message  # free the model as soon as the client no longer needs it
    reply = yield from working
    if isinstance(reply, Completion):
        raise not_awaited(reply, "its value")
    if summed or isinstance(reply, Delivery):
        return reply if isinstance(reply, Delivery) else (k, reply)
    upload = upload_of(k, reply, base)
    send = partial(fed.uplink, k, upload.payload, since=upload.since, power_part=upload.power_part)
    if how.retries or how.patience_s is not None or fed.presence.foreseen:
        sent = yield from resent(fed, send, how)
    else:
        sent = yield send()
    return received(upload, sent) if upload.n_statistics else sent


def resent(fed: Fed, send: Send, how: Exchange) -> Process:
    """Process that sends a message with retries; a message to a satellite out of view waits for its next pass."""
    if how.patience_s is not None:
        return (yield from fed.retry(send, patience_s=how.patience_s, to_the_gone=False))
    return (yield from fed.retry(send, attempts=1 + how.retries, pause_s=0.0))


def retrying(
    clock: Clock,
    send: Send | Sequence[Send],
    attempts: int | None,
    pause_s: float,
    patience_s: float,
    *,
    to_the_gone: bool,
    moving: bool,
    presence: Presence,
) -> Process:
    """Process of `Federation.retry`; `moving` is True if devices move, so that links change over time."""
    sends = [send] if callable(send) else send
    last: list[Any] = [None] * len(sends)
    missing, made, give_up_s = list(range(len(sends))), 0, clock.now_s + patience_s
    while True:
        made += 1
        if callable(send):
            last[0] = got = yield send()
            if type(got) is Delivery and not got.lost:
                return got
        else:
            ended = yield AllOf(clock, [sends[place]() for place in missing])
            for place, value in zip(missing, ended, strict=True):
                last[place] = value
        hopeless = {NO_CONNECTION, *(() if to_the_gone else GONE), *(() if moving else (BEYOND_REACH,))}
        back_ns = _foreseen_ns(presence, [last[place] for place in missing], clock.now)
        if back_ns < FOREVER_NS and back_ns <= to_ns(give_up_s):
            made -= 1
            yield clock.sleep((back_ns - clock.now) / NS_PER_S)
            continue
        missing = [place for place in missing if {d.lost for d in _deliveries(last[place]) if d.lost} - hopeless]
        if not missing or made == attempts or clock.now_s + pause_s > give_up_s:
            return last[0] if callable(send) else last
        if pause_s:
            yield clock.sleep(pause_s)
            pause_s *= 2


def _foreseen_ns(presence: Presence, values: Sequence[Delivery | Sequence[Delivery]], now_ns: int) -> int:
    """Return the earliest known return time in ns of a device whose absence caused a loss; `FOREVER_NS` if unknown."""
    if not presence.foreseen:
        return FOREVER_NS
    lost = [delivery for value in values for delivery in _deliveries(value) if delivery.lost in LEFT]
    ends = {end for delivery in lost for end in (delivery.sender, delivery.receiver)}
    return min((presence.foreseen_ns(device, now_ns) for device in ends), default=FOREVER_NS)


def _deliveries(value: Delivery | Sequence[Delivery]) -> Sequence[Delivery]:
    return [value] if isinstance(value, Delivery) else value
