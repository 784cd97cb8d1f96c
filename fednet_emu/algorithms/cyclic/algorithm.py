"""Cyclic participation with overlapping groups of clients.

Source: anonymous manuscript under review, "Participation Strategies in Federated Learning with Heterogeneous Client
Communications" (no public link). Cyclic participation with one group per client: Cho, Sharma, Joshi, Xu, Kale, Zhang,
"On the Convergence of Federated Averaging with Cyclic Client Participation", ICML 2023, arXiv 2302.03109.

Differences from the paper: the paper states the server's average in three different ways, all offered by `agg`. The
factor |B_mk| / |B_m|, which Algorithm 1 of the paper omits, is applied as in the paper's update rule. The server
averages once per round, over the models that arrived. Clients may take several local steps on batches; the factor then
scales the total change of a client's model. A client in several groups may also use all its samples in each group, with
or without the factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from fednet_emu.algorithms.base import Algorithm, Deadline
from fednet_emu.algorithms.cyclic.structures import AnyGroupStructure, GroupStructure, parts_of, seats_of
from fednet_emu.algorithms.cyclic.theory import Theory, check_covered
from fednet_emu.arrays import IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Accumulation, Deferred, Device, Federation, Process, Reply, SgdPlan, computes_only
from fednet_emu.federation.sums import moved

Use = Literal["split", "no-split", "no-split-reweighted"]
"""Values of the setting `data`, which selects the samples that a device in several groups uses in each group."""


class Member(NamedTuple):
    """The membership of a device in one group."""

    device: int
    factor: float  # s_mk, which multiplies the device's change of the model
    samples: IntArray | None  # indices of the device's samples that it uses in this group; None for all samples
    power: float  # transmit power, as a fraction of the device's full power


class Turn(NamedTuple):
    """The turn in which one group trains: index of the cycle, index of the group, and all groups of the cycle."""

    cycle: int
    group: int
    groups: list[list[Member]]

    @property
    def members(self) -> list[Member]:
        return self.groups[self.group]

    def record(self, fed: Federation, structure: GroupStructure, started_s: float) -> None:
        """Add a row with the data of this turn to the series `cyclic_turns`, at the end of the turn."""
        ways = {"structure": structure.kind, "access": fed.network.uplink.settings.access.kind}
        place = {"round": fed.round + 1, "cycle": self.cycle, "group": self.group, "groups": len(self.groups)}
        fed.ledger.record("cyclic_turns", **place, **ways, started_s=started_s, ended_s=fed.now_s)


def turns(fed: Federation, structure: GroupStructure, use: Use, reform_cycles: int | None) -> Iterator[Turn]:
    """Yield the turns in which the groups train, one group after the other, in one cycle after the other.

    Groups are formed at the start of the first cycle and, if `reform_cycles` is not None, every `reform_cycles` cycles.
    A `ScenarioError` is raised if no device of any group has samples.
    """
    groups: list[list[Member]] = []
    for cycle in count():
        if cycle == 0 or (reform_cycles is not None and cycle % reform_cycles == 0):
            groups = members(fed, structure.form(fed, cycle), use)
            _record_groups(fed, cycle, groups)
        yield from (Turn(cycle, k, groups) for k in range(len(groups)))


def members(fed: Federation, seats: Sequence[Mapping[int, float]], use: Use) -> list[list[Member]]:
    """Return the members of each group with their samples; `seats` contains the devices of each group and their powers.

    Devices without samples are left out, as are groups in which no device has samples.
    """
    groups: list[list[Member]] = [[] for _ in seats]
    for device, mine in seats_of(seats).items():
        n = fed.device(device).n_samples
        parts = parts_of(n, len(mine), fed.streams("split", device))
        for k, part in zip(mine, parts, strict=True):
            if use == "split":
                member = Member(device, len(part) / max(n, 1), part if len(mine) > 1 else None, seats[k][device])
            else:
                member = Member(device, 1.0 if use == "no-split" else 1 / len(mine), None, seats[k][device])
            if n and (len(part) or use != "split"):
                groups[k].append(member)
    groups = [sorted(group, key=lambda member: member.device) for group in groups if group]
    if not groups:
        raise ScenarioError(
            "algorithm.structure: no device can train, got groups of devices without samples; change the partition"
        )
    return groups


def _record_groups(fed: Federation, cycle: int, groups: Sequence[Sequence[Member]]) -> None:
    for k, group in enumerate(groups):
        for member in group:
            samples = fed.device(member.device).n_samples if member.samples is None else len(member.samples)
            seat = {"cycle": cycle, "group": k, "device": member.device, "samples": samples}
            fed.ledger.record("cyclic_groups", **seat, factor=member.factor, power_part=member.power)


class CyclicFedAvg(Algorithm):
    """Groups of devices train one after the other; a device in several groups may split its samples among them."""

    kind = "cyclic-fedavg"
    uses = frozenset({"uplink-compression", "downlink-compression"})
    structure: AnyGroupStructure
    """Rule that forms the groups; the devices of a group train and transmit in the same turn."""
    data: Use = "split"
    """Samples that a device in c groups uses in each group. split: a different 1/c of its samples, and its change of
    the model is multiplied by the share of samples; no-split: all samples, and the change is not scaled;
    no-split-reweighted: all samples, and the change is multiplied by 1/c."""
    agg: Literal["mean", "const", "sum"] = "mean"
    """The update of the server's model. mean: the mean of the changes that arrived; const: the sum of these changes
    times (number of groups / number of devices); sum: the sum of these changes."""
    lr: float = Field(ge=0)
    """Step size of the devices (eta)."""
    batch_size: int | None = Field(None, gt=0)
    """Number of samples per gradient step; null is all samples that the device uses in the group, as in the paper."""
    local_steps: int | None = Field(None, gt=0)
    """Number of gradient steps of a device per turn of its group. If this and `local_epochs` are null, a turn has one
    step, as in the paper."""
    local_epochs: int | None = Field(None, gt=0)
    """Number of passes per turn over the samples that the device uses in the group; can be set instead of
    `local_steps`."""
    slot_s: float | None = Field(None, gt=0)
    """Length of a turn (simulated s) from the start of the downlink; replies not decoded by the end of the turn are
    lost. If null, a turn ends when all members have replied, or at the deadline."""
    deadline_s: Deadline = None
    l2: float = Field(0.0, ge=0)
    """Factor l2 of the regulariser l2 / 2 |w|^2 in every device's loss."""
    bounds: bool = False
    """Whether to measure the distance of the objective from its optimum, and to record the theory's bound on this
    distance. Allowed only for small convex models, one full-batch step per turn on split samples, fixed groups (of
    equal size if `agg` is mean), and a network without losses. If a message is lost nevertheless (weak link, timeout),
    the bound is infinite from then on."""
    reform_cycles: int | None = Field(None, gt=0)
    """Number of cycles after which groups are formed again, which is useful for moving devices; if null, the first
    groups are used for the whole run."""

    def _check(self) -> None:
        if self.local_steps is not None and self.local_epochs is not None:
            raise ValueError(
                f"at most one of local_steps and local_epochs, got {self.local_steps} and {self.local_epochs}"
            )
        one_full_step = self.batch_size is None and (self.local_steps or self.local_epochs or 1) == 1
        whole = self.reform_cycles is None and self._patience_s is None
        if self.bounds and not (one_full_step and self.data == "split" and whole):
            raise ValueError(
                "bounds hold for one full-batch step on split samples in groups that stay and wait for all, got "
                f"batch_size={self.batch_size}, local_steps={self.local_steps}, local_epochs={self.local_epochs}, "
                f"data={self.data}, reform_cycles={self.reform_cycles}, slot_s={self.slot_s}, "
                f"deadline_s={self.deadline_s}; "
                "leave these out or set bounds: false"
            )

    def demands(self) -> Iterable[tuple[str, str, int]]:
        return self.structure.demands()

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(scenario)
        if problem := self._unbounded(scenario.losses()):
            yield "bounds", problem

    def _unbounded(self, losses: Sequence[str]) -> str:
        """Return why lost messages exclude `bounds`; an empty string if bounds are possible or not requested."""
        if not (self.bounds and losses):
            return ""
        return f"hold only where no message can be lost, got {', '.join(losses)}; leave that out or set bounds: false"

    def run(self, fed: Federation) -> Process:
        if problem := self._unbounded(fed.network.losses()):
            raise ScenarioError(f"algorithm.bounds: {problem}")
        w, theory = fed.initial_model(), None
        for r, turn in zip(fed.rounds(), turns(fed, self.structure, self.data, self.reform_cycles), strict=False):
            w = fed.published(w)
            yield fed.somebody_there()
            if self.bounds and r == 0:
                check_covered(fed.task.model, self.l2, self.agg, turn.groups)
                parts = [[(member.device, member.samples) for member in group] for group in turn.groups]
                rate = self.lr * self.server_lr(turn.groups, min(map(len, turn.groups)))
                theory = None if fed.timing_only else Theory(fed, parts, self.l2, rate)
            if theory is not None and turn.group == 0:
                theory.record(fed, w, turn.cycle)
            started_s = fed.now_s
            slot = None if self.slot_s is None else fed.sleep(self.slot_s)
            members = {fed.device(member.device): member for member in turn.members}
            arrived = yield from fed.exchange(members, w, self.client, r, members, deadline_s=self._patience_s)
            if slot is not None:
                yield slot
            if theory is not None and len(arrived) < len(turn.members):
                theory.holds = False
            if arrived:
                rho = self.server_lr(turn.groups, len(arrived))
                w = fed.accumulate(server_step, arrived.models, w, len(arrived), rho, fed.n_statistics)
            turn.record(fed, self.structure, started_s)
            fed.end_of_round(w)

    @computes_only
    def client(self, fed: Federation, k: Device, w: Deferred, r: int, members: Mapping[Device, Member]) -> Process:
        """Process of device `k`: train on the samples that it uses in the group, and send its model."""
        own, plan = members[k], SgdPlan(self.lr, self.batch_size, steps=self._steps, epochs=self.local_epochs)
        origin = fed.defer(torch.zeros_like, w) if self.l2 else None
        trained = yield k.train(w, plan, r, subset=own.samples, prox=self.l2, anchor=origin)
        mine = (
            trained.params
            if own.factor == 1
            else fed.defer(part_of_the_way, w, trained.params, own.factor, fed.n_statistics)
        )
        return Reply(mine, since=w, power_part=own.power)

    def server_lr(self, groups: Sequence[Sequence[Member]], arrived: int) -> float:
        """Return the factor rho of the sum of changes in the server's step, if `arrived` members have replied."""
        devices = {member.device for group in groups for member in group}
        return {"mean": 1 / arrived, "const": len(groups) / len(devices), "sum": 1.0}[self.agg]

    @property
    def _patience_s(self) -> float | None:
        return min((limit for limit in (self.slot_s, self.deadline_s) if limit is not None), default=None)

    @property
    def _steps(self) -> int | None:
        return 1 if self.local_steps is None and self.local_epochs is None else self.local_steps


def part_of_the_way(w: Tensor, trained: Tensor, factor: float, statistics: int = 0) -> Tensor:
    """Return w + factor (trained - w) [P]; the last `statistics` entries (running statistics) come from `trained`."""
    return moved(w, trained - w, factor, statistics)


def server_step(w: Tensor, arrived: int, rho: float, statistics: int = 0) -> Accumulation:
    """Return `w` [P] plus `rho` times the sum of the models' differences from `w`; models are received one by one.

    The last `statistics` entries (running statistics) are replaced by their mean over the models. Because differences
    are summed instead of models, `w` stays bit-identical if all models equal `w`.
    """
    after = w.clone()
    for _ in range(arrived):
        difference = (yield) - w
        if statistics:
            difference[-statistics:] /= rho * arrived
        after += rho * difference
    return after
