"""The engine that distributes training jobs to Ray actors.

Each actor trains the devices whose data it stores. For this purpose, the rows of the training data are cut into one
shard per actor, and each shard is sent to its actor once. A job is sent to the actor that stores the job's first row.
The tensors of jobs are put into Ray's object store once per wavefront (a set of jobs that are trained together), and
every machine fetches them once. Trained parameters stay on the machine that trained them until they are read or
averaged. Ray restarts an actor that dies, and repeats its calls. This is possible because each call lists the models
and data that the actor needs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fednet_emu.errors import FednetError
from fednet_emu.learning.engines.parcels import Kept, Rows, packed, span
from fednet_emu.learning.engines.ray.actor import Actor
from fednet_emu.learning.engines.ray.cluster import connected
from fednet_emu.learning.engines.trainer import TrainReport
from fednet_emu.learning.graph.engine import Engine, Group, Results, TrainResult
from fednet_emu.learning.graph.host_time import HostTime
from fednet_emu.learning.graph.jobs import ResolvedJob, TrainData, TrainJob
from fednet_emu.learning.models.flat import FlatModel

_CALL_JOBS = 100
_CALL_FLOP = {"cpu": 6e9, "cuda": 5e11}  # about 100 ms on a core or a GPU
_CALL_BYTE = 2**26
_DEATHS = 3
_READY_S = 300.0
_WHERE = "training.engine"


class Cluster(NamedTuple):
    """The settings of a run's Ray cluster and of its actors."""

    address: str | None = None  # host:port of the cluster, or `auto`; None starts one on this machine
    actors: int | None = None  # number of actors; None uses the maximum that fits
    threads: int = 1  # cores of each actor
    device: str = "cpu"  # "cpu", or "cuda" for actors with a GPU each
    tf32: bool = False  # whether GPUs may use TF32


class _Call:
    """Jobs that are sent to an actor together, and their results."""

    def __init__(self, actor: int) -> None:
        self.actor, self.jobs, self.flop, self.byte = actor, list[ResolvedJob](), 0.0, 0
        self.report_ref: Any = None
        self.params_ref: Any = None
        self.report: TrainReport | None = None
        self.params: list[Any] | None = None

    def add(self, resolved: ResolvedJob) -> int:
        """Add a job to the call, and return the index of the job in the call."""
        self.jobs.append(resolved)
        self.flop += resolved.job.flop
        self.byte += resolved.params.nbytes
        return len(self.jobs) - 1

    def is_full(self, device: str) -> bool:
        """Return True if the call is large enough to be sent. This depends only on its jobs, not on measured time."""
        return len(self.jobs) >= _CALL_JOBS or self.flop >= _CALL_FLOP[device] or self.byte >= _CALL_BYTE


@final
class RayEngine(Engine):
    """Engine that runs training jobs on the actors of a Ray cluster.

    A job may start as soon as its inputs are available, while the simulation continues. The method `run` waits for the
    jobs, and yields their results in the order of the jobs. `host` records the time for sending jobs to the actors.
    """

    def __init__(self, cluster: Cluster, host: HostTime | None = None) -> None:
        local = None if cluster.actors is None else cluster.actors * cluster.threads
        self._ray = connected(_WHERE, cluster.address, local)
        self._device, self._host = cluster.device, HostTime() if host is None else host
        try:
            self._actors = self._started(cluster)
        except BaseException:
            self.close()
            raise
        count = len(self._actors)
        self._models: WeakKeyDictionary[FlatModel, tuple[int, Any]] = WeakKeyDictionary()
        self._shards: WeakKeyDictionary[TrainData, dict[int, tuple[int, Any, tuple[int, int]]]] = WeakKeyDictionary()
        self._numbers = 0
        self._filling = [_Call(actor) for actor in range(count)]
        self._begun: dict[TrainJob, tuple[_Call, int]] = {}
        self._put: dict[int, tuple[Tensor, Any]] = {}
        self._since: float | None = None
        self._statistics: dict[str, float] = {
            "processes": count,
            "computing_s": 0.0,
            "ahead_s": 0.0,
            "sent_byte": 0,
            "received_byte": 0,
        }

    @property
    def statistics(self) -> Mapping[str, float]:
        return self._statistics

    def begin(self, job: TrainJob) -> None:
        if job not in self._begun:
            with self._host.part("sending jobs"):
                self._add(job.resolve())

    def begin_all(self, jobs: Sequence[ResolvedJob]) -> None:
        self._begin(jobs)
        self._begun = {resolved.job: self._begun[resolved.job] for resolved in jobs}

    def means(self, jobs: Sequence[ResolvedJob], w: Tensor, weights: Sequence[float]) -> list[Group]:
        self._note_wait()
        calls = [self._begun[resolved.job] for resolved in jobs]
        if any(self._report_of(call).error for call, _ in calls):
            return []
        by_actor: dict[int, list[int]] = {}
        for place, (call, _) in enumerate(calls):
            by_actor.setdefault(call.actor, []).append(place)
        refs = []
        for actor, places in by_actor.items():
            own = list(dict.fromkeys(calls[place][0] for place in places))
            which = [(own.index(calls[place][0]), calls[place][1]) for place in places]
            shares = [weights[place] for place in places]
            params = [call.params_ref for call in own]
            refs.append(self._actors[actor].mean.remote(self._sent(w), shares, which, *params))
        groups = []
        for places, ref in zip(by_actor.values(), refs, strict=True):
            mean = torch.tensor(self._got(ref))
            self._statistics["received_byte"] += mean.nbytes
            losses = [self._report_of(call).losses[own] for call, own in (calls[place] for place in places)]
            groups.append(Group(places, mean, losses))
        for resolved in jobs:
            del self._begun[resolved.job]
        return groups

    def run(self, jobs: Sequence[ResolvedJob]) -> Results:
        self._begin(jobs)
        self._note_wait()
        errors = []
        for resolved in jobs:
            call, own = self._begun.pop(resolved.job)
            report = self._report_of(call)
            if own in report.losses:
                yield resolved, TrainResult(self._params(call, own), *report.losses[own])
            elif report.error is not None:
                errors.append(report.error)
        self._put.clear()
        self._since = self._since and time.perf_counter()
        if errors:
            raise errors[0]

    def close(self) -> None:
        self._ray.shutdown()

    def _add(self, resolved: ResolvedJob) -> None:
        job = resolved.job
        call = self._filling[job.first_row * len(self._actors) // len(job.data.y)]
        self._begun[job] = call, call.add(resolved)
        if call.is_full(self._device):
            self._send(call)

    def _begin(self, jobs: Sequence[ResolvedJob]) -> None:
        for resolved in jobs:
            if resolved.job not in self._begun:
                self._add(resolved)
        for call in self._filling:
            if call.jobs:
                self._send(call)

    def _send(self, call: _Call) -> None:
        self._filling[call.actor] = _Call(call.actor)
        self._place(call)
        parcel = packed(call.jobs, self._ray.cloudpickle.CloudPickler)
        keeps = dict(self._models.values()) | {
            own[call.actor][0]: own[call.actor][1] for own in self._shards.values() if call.actor in own
        }
        used = [self._number(thing, call.actor) for thing in parcel.kept]
        arrays = [self._sent(tensor) for tensor in parcel.tensors]
        train = self._actors[call.actor].train.options(num_returns=2)
        call.report_ref, call.params_ref = train.remote(parcel.text, used, keeps, *arrays)
        call.jobs = []
        self._statistics["sent_byte"] += len(parcel.text)
        self._since = self._since or time.perf_counter()

    def _place(self, call: _Call) -> None:
        """Put the models and the data of a call into Ray's object store, unless they are already there."""
        spans: dict[TrainData, list[tuple[int, int]]] = {}
        for resolved in call.jobs:
            model = resolved.job.model
            if model not in self._models:
                self._models[model] = self._next(), self._ray.put(model)
            spans.setdefault(resolved.job.data, []).append(span(resolved))
        for data, needed in spans.items():
            shards, rows, actors = self._shards.setdefault(data, {}), len(data.y), len(self._actors)
            known = shards.get(call.actor)
            own = (
                (-(-rows * call.actor // actors), -(-rows * (call.actor + 1) // actors)) if known is None else known[2]
            )
            first, end = min(own[0], *(a for a, _ in needed)), max(own[1], *(b for _, b in needed))
            if known is None or (first, end) != own:
                shard = Rows(data.x[first:end].numpy(), data.y[first:end].numpy(), first, rows)
                shards[call.actor] = self._next(), self._ray.put(shard), (first, end)
                self._statistics["sent_byte"] += shard.x.nbytes + shard.y.nbytes

    def _note_wait(self) -> None:
        if self._since is not None:
            self._statistics["ahead_s"] += time.perf_counter() - self._since
            self._since = None

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _number(self, thing: Kept, actor: int) -> int:
        return self._models[thing][0] if isinstance(thing, FlatModel) else self._shards[thing][actor][0]

    def _sent(self, tensor: Tensor) -> Any:
        """Return the reference of a tensor in Ray's object store, where each tensor is stored once per wavefront."""
        if id(tensor) not in self._put:
            self._put[id(tensor)] = tensor, self._ray.put(tensor.numpy())
            self._statistics["sent_byte"] += tensor.nbytes
        return self._put[id(tensor)][1]

    def _report_of(self, call: _Call) -> TrainReport:
        if call.report is None:
            call.report = self._got(call.report_ref)
            self._statistics["computing_s"] += call.report.computing_s
        return call.report

    def _params(self, call: _Call, place: int) -> Tensor:
        """Return a copy of a job's parameters; Ray frees the memory of a call when all its results are copied."""
        if call.params is None:
            call.params, call.params_ref = self._got(call.params_ref), None
        params, call.params[place] = torch.tensor(call.params[place]), None
        self._statistics["received_byte"] += params.nbytes
        return params

    def _got(self, ref: Any) -> Any:
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[:200]
            raise FednetError(f"{_WHERE}: Ray cannot train, got '{reason}'; look at the cluster") from error

    def _started(self, cluster: Cluster) -> list[Any]:
        demands = {"num_cpus": cluster.threads, "num_gpus": int(cluster.device == "cuda")}
        count = _count(self._ray.nodes(), cluster, demands)
        make = self._ray.remote(Actor).options(
            **demands, max_restarts=_DEATHS, max_task_retries=_DEATHS, scheduling_strategy="SPREAD"
        )
        actors = [make.remote(cluster.threads, cluster.device, cluster.tf32, self._ray.get) for _ in range(count)]
        self._wait_for(actors)
        return actors

    def _wait_for(self, actors: Sequence[Any]) -> None:
        ready = [actor.ready.remote() for actor in actors]
        _, late = self._ray.wait(ready, num_returns=len(ready), timeout=_READY_S)
        if late:
            raise FednetError(
                f"{_WHERE}: the cluster is busy, got {len(ready) - len(late)} of {len(ready)} actors in {_READY_S:g} s"
                "; request fewer with training.workers"
            )
        for ref in ready:
            self._got(ref)


def _count(nodes: Sequence[Any], cluster: Cluster, demands: dict[str, int]) -> int:
    """Return the number of actors to start. Raise a `FednetError` if the cluster has not enough resources for them."""
    has = [node["Resources"] for node in nodes if node["Alive"]]
    if demands["num_gpus"] and not any(own.get("GPU") for own in has):
        raise FednetError("training.device: no GPU is in the cluster, got cuda; use cpu")
    cpus, gpus = demands["num_cpus"], demands["num_gpus"]
    room = sum(int(min(own.get("CPU", 0) // cpus, own.get("GPU", 0) if gpus else float("inf"))) for own in has)
    wanted = cluster.actors or max(room, 1)
    if wanted > room:
        raise FednetError(
            f"training.workers: the cluster has room for {room} actors of {cpus} cores, got {wanted}; "
            "give fewer, or fewer training.threads"
        )
    return wanted
