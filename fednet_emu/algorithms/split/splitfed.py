"""Split learning: devices compute the first layers of a model, and the server computes all further layers.

- sl: Gupta, Raskar: "Distributed learning of deep neural network over multiple agents", Journal of Network and
  Computer Applications, 2018, https://arxiv.org/abs/1810.06060;
- v1, v2: Thapa, Mahawaga Arachchige, Camtepe, Sun: "SplitFed: When Federated Learning Meets Split Learning", AAAI 2022,
  https://arxiv.org/abs/2004.12088;
- psl: parallel split learning, in which the server takes one step on the activations of all devices together.

A device sends the activations and labels of a batch. The server runs the forward and backward pass of its layers, and
returns the gradient. The learned model depends on which messages arrive and, in v2, on the order in which the server
has computed the batches. Messages have the sizes of activations and gradients, but not their values.

Differences from the papers: there may be a cohort, a deadline, and lost messages, after which a device leaves the
round. Labels are sent with the activations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from math import prod
from typing import Annotated, Any, Literal, NamedTuple, final

import torch
from pydantic import Field
from simpy.events import Event
from torch import Tensor

from fednet_emu.algorithms.base import NO_SERVER_SPEED, Invited, LocalTraining
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.errors import Diverged, ScenarioError
from fednet_emu.federation import (
    Deferred,
    Device,
    Federation,
    Process,
    Sgd,
    SgdPlan,
    Streams,
    TrainData,
    TrainJob,
    Work,
    accumulated,
    average,
)
from fednet_emu.learning.models.base import torch_seed
from fednet_emu.learning.models.cuts import Cut, cuts_of
from fednet_emu.learning.models.flat import FlatModel, Live


@final
class DeviceBatches:
    """The batches of a device in a round, as in ordinary local training; the batches are drawn when first needed."""

    def __init__(self, job: TrainJob) -> None:
        self._job = job

    @cached_property
    def _rows(self) -> list[Tensor]:
        batches = self._job.batches()
        index = torch.tensor(batches.index, device=self._job.data.y.device)
        return [rows[:count] for rows, count in zip(index, batches.count.tolist(), strict=True)]

    def __getitem__(self, step: int) -> Tensor:
        return self._rows[step]


class Served(NamedTuple):
    """Record of a round of v2; `order` lists (device, step) of the batches in the order of the server's steps."""

    order: Sequence[tuple[int, int]]
    batches: Mapping[int, DeviceBatches]  # the batches of each device
    arrived: Sequence[int]  # devices whose model parts have arrived
    weights: Sequence[float]  # weights of the arrived parts in the mean


@final
class JointSteps:
    """Computes training steps of a model without running statistics; its first `n_device` parameters are on devices."""

    def __init__(self, model: FlatModel, data: TrainData, n_device: int, streams: Streams) -> None:
        self._model, self._data, self._cut, self._streams = model, data, n_device, streams

    @cached_property
    def _live(self) -> Live:
        return self._model.live()

    def as_served(self, w: Tensor, plan: SgdPlan, served: Served, key: tuple[int, ...]) -> Tensor:
        """Return the model [P] after a round of variant v2 from `w` [P]; the server takes a step for each batch.

        Each device takes a step on its own copy of the first layers for each of its batches. The copies that arrive at
        the server are averaged. `served` is the record of the round, and `key` the key of the model's random numbers.
        A `Diverged` error is raised if a parameter is not finite.
        """
        live, cut = self._live, self._cut
        live.start(w)
        front, back = live.weights[:cut], live.weights[cut:]
        own = {k: w[:cut].clone() for k in dict.fromkeys(k for k, _ in served.order)}
        move_server = plan.optimizer.start(back, plan.lr)
        move = {k: plan.optimizer.start(part, plan.lr) for k, part in own.items()}
        with self._drawing(key):
            for k, step in served.order:
                front.copy_(own[k])
                gradient = _gradient(live, self._losses(live, served.batches[k][step]).mean())
                move_server(gradient[cut:])
                move[k](gradient[:cut])
        front.copy_(accumulated(average(w[:cut], served.weights), [own[k] for k in served.arrived]))
        return _finite(live.let_go(), plan.lr, key)

    def together(
        self,
        w: Tensor,
        lr: float,
        forward: Sequence[DeviceBatches],
        backward: Sequence[int],
        step: int,
        key: tuple[int, ...],
    ) -> Tensor:
        """Return the model [P] after one plain SGD step (psl) from `w` [P] on the joint batch of several devices.

        `forward` contains the batches of the devices whose activations have arrived; the server steps along the mean
        gradient of these batches. `backward` contains the indices, in `forward`, of the devices whose model parts have
        arrived; these parts are averaged. Both gradients are from one forward pass with the same random numbers. `step`
        is the index of the batch of each device, and `key` (round, step) is the key of the model's random numbers.
        A `Diverged` error is raised if a parameter is not finite.
        """
        live, cut = self._live, self._cut
        live.start(w)
        with self._drawing(key):
            rows = [own[step] for own in forward]
            losses = self._losses(live, torch.cat(rows))
            some = 0 < len(backward) < len(forward)
            gradient = _gradient(live, losses.mean(), again=some)
            if some:
                of = torch.split(losses, [len(own) for own in rows])
                gradient[:cut] = _gradient(live, torch.cat([of[place] for place in backward]).mean())[:cut]
            elif not backward:
                gradient[:cut] = 0.0
        live.weights.sub_(gradient, alpha=lr)
        return _finite(live.let_go(), lr, key)

    def _drawing(self, key: tuple[int, ...]) -> AbstractContextManager[None]:
        if not self._model.draws:
            return nullcontext()
        return torch_seed(int(self._streams("split", *key).integers(2**63)))

    def _losses(self, live: Live, rows: Tensor) -> Tensor:
        """Return the losses [B] of the given data rows, from one forward pass."""
        x, y = self._data.x.index_select(0, rows), self._data.y.index_select(0, rows)
        return self._model.sample_losses(live.module(self._model.laid_out(x)), y)


def _gradient(live: Live, loss: Tensor, *, again: bool = False) -> Tensor:
    """Return the gradient [P] of `loss`; if `again`, keep the autograd graph for another gradient."""
    gradient = torch.autograd.grad(loss, live.parameters, materialize_grads=True, retain_graph=again)
    return torch.cat([part.reshape(-1) for part in gradient])


def _finite(w: Tensor, lr: float, key: tuple[int, ...]) -> Tensor:
    if not torch.isfinite(w).all():
        when = ", ".join(f"{name} {number + 1}" for name, number in zip(("round", "step"), key, strict=False))
        raise Diverged(
            f"splitfed, {when}: training diverges, got parameters that are not finite with lr={lr:g}; lower the "
            "learning rate or look for extreme values in the data"
        )
    return w


Queue = Literal["fifo", "parallel"]
"""Order in which the server computes the batches of several devices: one after the other (fifo), or in parallel."""

SLOWEST_BPS = 1e-3
"""Minimum rate in bit/s that is assumed for a link in the comparison of cuts."""


@final
class CutLink:
    """Simulates the messages between device and server in split learning, and the computations on both sides."""

    def __init__(self, fed: Federation, plan: SgdPlan, queue: Queue, retries: int) -> None:
        self._fed, self.plan, self._queue, self._attempts = fed, plan, queue, 1 + retries
        self._labels = prod(fed.task.data.y.shape[1:])

    def sizes(self, k: Device) -> list[int]:
        return self.plan.batch_sizes(k.n_samples)

    def steps(self, k: Device, cut: Cut, order: list[tuple[int, int]], first: int = -1, last: int = -1) -> Process:
        """Run all steps of device `k`; return the delivery of the last message, which is lost if `k` leaves the round.

        The pair (device, step) is added to `order` when the server has computed the batch. For the records, `first` is
        the index of the value that the device's first computation reads, and `last` the index of the last result.
        """
        sizes, sent = self.sizes(k), None
        for step, size in enumerate(sizes):
            sent = yield from self.forward(k, cut, size, first if step == 0 else -1)
            if sent.lost:
                return sent
            yield self.serve(cut, size)
            order.append((k.index, step))
            sent = yield from self.backward(k, cut, size, last if step == len(sizes) - 1 else -1)
            if sent.lost:
                return sent
        return sent

    def forward(self, k: Device, cut: Cut, size: int, first: int = -1) -> Process:
        """Let device `k` compute the activations of `size` samples and send them with labels; return the delivery."""
        yield k.compute(Work(cut.forward_flop * size, None, first))
        return (yield from self.up(k, None, size * (cut.width + self._labels)))

    def serve(self, cut: Cut, size: int) -> Event:
        """Return an event that triggers when the server has taken a step on `size` samples."""
        flop, server = cut.server_flop * size, self._fed.server
        if self._queue == "parallel":
            return self._fed.sleep(flop / server.flop_per_s)
        return server.compute(Work(flop, None))

    def backward(self, k: Device, cut: Cut, size: int, last: int = -1) -> Process:
        """Send the gradient for `size` samples to device `k`, which then takes its step; return the delivery."""
        send = partial(self._fed.downlink, k, None, FLOAT_BIT * size * cut.width)
        got = yield from self._fed.retry(send, attempts=self._attempts, pause_s=0.0)
        if not got.lost:
            yield k.compute(Work(cut.backward_flop * size, None, -1, last))
        return got

    def up(self, k: Device, payload: Deferred | None, scalars: int) -> Process:
        """Send a message of `scalars` 32-bit numbers from device `k` to the server; return the delivery."""
        send = partial(self._fed.uplink, k, payload, FLOAT_BIT * scalars)
        return self._fed.retry(send, attempts=self._attempts, pause_s=0.0)

    def least_time(self, k: Device, cuts: Sequence[Cut]) -> Cut:
        """Return the cut for which a round with device `k` alone would be shortest at the expected link rates.

        This is the first cut that minimises n_samples (F_C / f_k + F_S / f_S + 32 (q + l) / R_up + 32 q / R_down) + 32
        P_C (1 / R_up + 1 / R_down). Here F_C and F_S are the operations per sample, f_k and f_S the speeds of device
        and server, q and l the numbers of scalars at the cut and in a label, P_C the parameters on the device, and R_up
        and R_down the rates. Headers are not counted.
        """
        n_samples, server_flop_per_s = sum(self.sizes(k)), self._fed.server.flop_per_s
        up_bps = max(k.expected_rate_bps, SLOWEST_BPS)
        down_bps = max(k.expected_downlink_rate_bps, SLOWEST_BPS)

        def round_s(cut: Cut) -> float:
            computing_s = (cut.forward_flop + cut.backward_flop) / k.flop_per_s + cut.server_flop / server_flop_per_s
            up, down = (n_samples * width + cut.device.n_shared for width in (cut.width + self._labels, cut.width))
            return n_samples * computing_s + FLOAT_BIT * (up / up_bps + down / down_bps)

        return min(cuts, key=round_s)


class Round(NamedTuple):
    """Data of a round of split learning, of the training of a single device (sl), or of a single joint step (psl)."""

    fed: Federation
    link: CutLink
    cuts: Sequence[Cut]  # possible cuts of the model
    w: Deferred  # the model at the start of the round
    t: int

    @property
    def joint(self) -> JointSteps:
        return JointSteps(self.fed.task.model, self.fed.task.data, self.cuts[0].device.n_shared, self.fed.streams)

    def batches(self, k: Device) -> DeviceBatches:
        return DeviceBatches(self.fed.learner.job(k, self.w, self.link.plan, (self.t,), self.t))


class SplitFed(LocalTraining):
    """Devices train the first layers of a model, the server the others; activations are sent for each batch."""

    kind = "splitfed"
    exchanges_models = False
    ships_no_base = "devices have the first layers only"
    uses = frozenset({"server-speed"})
    excludes = (NO_SERVER_SPEED,)

    variant: Literal["sl", "v1", "v2", "psl"] = "v1"
    """Arrangement of the device and server parts of the model. sl: devices train one after the other, and pass the
    first layers on through the server. v1: one server part per device; device and server parts are averaged after a
    round, which is equivalent to `fedavg`. v2: one server part, which takes a step for each batch; the device parts are
    averaged after a round. psl: one server part, which takes one step on the activations of all devices together; the
    device parts are averaged after each step."""
    cut: Literal["least-time"] | Annotated[int, Field(gt=0)] = 1
    """Cut layer: number of layers with parameters that run on the device; layers without parameters that follow the
    last of them also run there. least-time, only for sl and v1: for each device, the number of layers for which a round
    of this device alone would be shortest, at the rates expected when the device is invited."""
    cohort: Invited = 0.5
    deadline_s: float | None = Field(None, gt=0)
    """Maximum time (simulated s) that the server waits for devices; late devices are cancelled and left out. In v1 and
    v2 this is the time of a round, in sl the time of one device's turn. In psl it limits the wait for the activations
    of each step, and separately the wait for the device parts of the model. Null waits for all devices."""
    retries: int = Field(0, ge=0)
    """Maximum number of immediate retries of a lost message. A model part that is lost on the downlink is not sent
    again; its device leaves the round."""
    server_queue: Queue = "fifo"
    """How the server computes the batches of several devices. fifo: one after the other, as they arrive; parallel, only
    for v1: in parallel, each at the full speed of the server. Records do not contain parallel computations."""

    def _check(self) -> None:
        super()._check()
        if self.clip_norm is not None:
            what = f"neither end has the whole gradient, got {self.clip_norm:g}"
            raise ValueError(f"clip_norm: {what}; leave it out")
        if self.variant == "psl" and self.local_optimizer != Sgd():
            what = f"means after each step are a step only if steps are plain, got {self.local_optimizer!r}"
            raise ValueError(f"local_optimizer: {what}; leave it out, or choose another variant than psl")
        if self.server_queue == "parallel" and self.variant != "v1":
            what = f"one server part makes one step at a time, got parallel with {self.variant}"
            raise ValueError(f"server_queue: {what}; leave it out, or choose v1")
        if self.cut == "least-time" and self.variant in ("v2", "psl"):
            what = f"devices that share the server's part have one cut, got least-time with {self.variant}"
            raise ValueError(f"cut: {what}; give a number of layers, or choose v1 or sl")

    def events(self, n_samples: int | None) -> int | None:
        if n_samples is None and self.local_steps is None:
            return None
        steps = self.plan.n_steps(n_samples or 1)
        return 7 * steps if self.variant == "psl" else 2 + 5 * steps

    def run(self, fed: Federation) -> Process:
        w, cuts, link = fed.initial_model(), self.cuts(fed), CutLink(fed, self.plan, self.server_queue, self.retries)
        train = {"sl": self.in_turn, "v1": self.side_by_side, "v2": self.as_served, "psl": self.in_step}[self.variant]
        for t in fed.rounds():
            cohort = yield fed.cohort(self.cohort, t)
            w = yield from train(Round(fed, link, cuts, w, t), cohort)
            fed.end_of_round(w)

    def cuts(self, fed: Federation) -> list[Cut]:
        model, cuts = fed.task.model, cuts_of(fed.task.model)
        if self.variant in ("v2", "psl") and model.size > model.n_trainable:
            what = f"devices share a part, so that batch norm has statistics of none, got variant {self.variant}"
            raise ScenarioError(f"model: {what}; choose v1 or sl, or a model without it")
        if self.cut == "least-time":
            return cuts
        if self.cut > len(cuts):
            what = f"leaves the server no layer with parameters, got {self.cut}"
            raise ScenarioError(f"algorithm.cut: {what}; must be at most {len(cuts)}")
        return [cuts[self.cut - 1]]

    def in_turn(self, its: Round, cohort: Sequence[Device]) -> Process:
        """Return the model after a round of variant sl; a device that loses a message does not change the model."""
        for k in cohort:
            trained: dict[Device, Deferred] = {}
            arrived = yield from self.exchange(its, [k], self.client, trained, [])
            if arrived:
                its = its._replace(w=trained[k])
        return its.w

    def side_by_side(self, its: Round, cohort: Sequence[Device]) -> Process:
        """Return the model after a round of variant v1: devices train in parallel, and their models are averaged."""
        trained: dict[Device, Deferred] = {}
        arrived = yield from self.exchange(its, cohort, self.client, trained, [])
        models = [trained[k] for k in arrived.devices]
        return its.fed.accumulate(average, models, its.w, arrived.weights("samples")) if models else its.w

    def as_served(self, its: Round, cohort: Sequence[Device]) -> Process:
        """Return the model after a round of variant v2; the server keeps its steps for devices that leave the round."""
        order: list[tuple[int, int]] = []
        arrived = yield from self.exchange(its, cohort, self.client, None, order)
        batches = {k.index: its.batches(k) for k in cohort}
        served = Served(order, batches, [k.index for k in arrived.devices], arrived.weights("samples"))
        return its.fed.defer(its.joint.as_served, its.w, self.plan.in_round(its.t), served, (its.t,), size=its.w.size)

    def in_step(self, its: Round, cohort: Sequence[Device]) -> Process:
        """Return the model after a round of variant psl; a device that is late or loses a message leaves the round."""
        fed, [cut], lr, joint = its.fed, its.cuts, self.plan.in_round(its.t).lr, its.joint
        sizes, batches = {k: its.link.sizes(k) for k in cohort}, {k: its.batches(k) for k in cohort}
        left: set[Device] = set()
        for step in range(max(map(len, sizes.values()))):
            size = {k: sizes[k][step] for k in cohort if k not in left and step < len(sizes[k])}
            if not size:
                break
            forward = (yield from self.exchange(its, list(size), self.forward, size, counts=False)).devices
            backward: list[int] = []
            if forward:
                yield its.link.serve(cut, sum(size[k] for k in forward))
                sent = yield fed.gather((self.backward(its, k, size[k]) for k in forward), self.deadline_s)
                backward = [place for place, delivery in enumerate(sent) if not delivery.lost]
                rows = [batches[k] for k in forward]
                w = fed.defer(joint.together, its.w, lr, rows, backward, step, (its.t, step), size=its.w.size)
                its = its._replace(w=w)
            left.update(size.keys() - {forward[place] for place in backward})
        fed.answered(len(cohort), len(cohort) - len(left))
        return its.w

    def exchange(self, its: Round, cohort: Sequence[Device], client: Any, *args: Any, counts: bool = True) -> Process:
        """Send each device its first layers, run the process `client` of each device, and return the replies."""
        fed, cuts = its.fed, its.cuts
        cut = {k: cuts[0] if len(cuts) == 1 else its.link.least_time(k, cuts) for k in cohort}
        part = {own: fed.defer(own.device.take, its.w, size=own.device.n_shared) for own in dict.fromkeys(cut.values())}

        def message(k: Device) -> Deferred:
            return part[cut[k]]

        return fed.exchange(cohort, message, client, its, cut, *args, deadline_s=self.deadline_s, counts=counts)

    def client(
        self,
        fed: Federation,
        k: Device,
        part: Deferred,
        its: Round,
        cuts: Mapping[Device, Cut],
        trained: dict[Device, Deferred] | None,
        order: list[tuple[int, int]],
    ) -> Process:
        """Process of a device (sl, v1, v2): take all steps, send its layers, and store the whole model in `trained`."""
        cut, mine = cuts[k], None
        if trained is not None:
            trained[k] = model = k.training(its.w, self.plan, its.t).result.params
            mine = fed.defer(cut.device.take, model, size=cut.device.n_shared)
        sent = yield from its.link.steps(k, cut, order, part.number, -1 if mine is None else mine.number)
        return sent if sent.lost else (yield from its.link.up(k, mine, cut.device.n_shared))

    def forward(
        self,
        fed: Federation,
        k: Device,
        part: Deferred,
        its: Round,
        cuts: Mapping[Device, Cut],
        size: dict[Device, int],
    ) -> Process:
        return its.link.forward(k, cuts[k], size[k], part.number)

    def backward(self, its: Round, k: Device, size: int) -> Process:
        """Process of a device in a psl step: receive the gradient, send the model part, return its delivery."""
        [cut] = its.cuts
        got = yield from its.link.backward(k, cut, size)
        return got if got.lost else (yield from its.link.up(k, None, cut.device.n_shared))
