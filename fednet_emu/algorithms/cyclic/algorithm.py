"""Cyclic participation with overlapping groups of clients.

Anonymous manuscript under review: "Participation Strategies in Federated Learning with Heterogeneous Client
Communications" (no public link). Cyclic participation with one group per client: Cho, Sharma, Joshi, Xu, Kale, Zhang,
"On the Convergence of Federated Averaging with Cyclic Client Participation", ICML 2023, arXiv 2302.03109.

Differences from the paper: the paper writes the server's average in three ways, and `agg` offers all of them; the
factor |B_mk| / |B_m|, missing from its Algorithm 1, is applied as in its update rule; the server averages once per
round, over the models that arrived; clients may make several local steps on batches, and the factor then scales their
total change of the model; a client in several groups may also use all its samples in each of them, with or without the
factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar, Literal, NamedTuple

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
"""The samples that a device in several groups uses in each of them; the setting `data`."""


class Member(NamedTuple):
    """The membership of a device in one group."""

    device: int
    factor: float  # s_mk, the factor of its change of the model
    samples: IntArray | None  # indices of its samples that it uses in this group; None for all
    power: float  # transmit power, as a fraction of the device's full power


class Turn(NamedTuple):
    """One group's turn: the number of the cycle, the index of the group (both from 0), and all groups of the cycle."""

    cycle: int
    group: int
    groups: list[list[Member]]

    @property
    def members(self) -> list[Member]:
        return self.groups[self.group]

    def record(self, fed: Federation, structure: GroupStructure, started_s: float) -> None:
        """Add a row to the series `cyclic_turns`, at the end of the turn."""
        ways = {"structure": structure.kind, "access": fed.network.uplink.settings.access.kind}
        place = {"round": fed.round + 1, "cycle": self.cycle, "group": self.group, "groups": len(self.groups)}
        fed.ledger.record("cyclic_turns", **place, **ways, started_s=started_s, ended_s=fed.now_s)


def turns(fed: Federation, structure: GroupStructure, use: Use, reform_cycles: int | None) -> Iterator[Turn]:
    """The turns of all groups, cycle after cycle; groups are formed when the first turn of a cycle is due.

    Raises:
        ScenarioError: no device of any group has samples.
    """
    groups: list[list[Member]] = []
    for cycle in count():
        if cycle == 0 or (reform_cycles is not None and cycle % reform_cycles == 0):
            groups = members(fed, structure.form(fed, cycle), use)
            _record_groups(fed, cycle, groups)
        yield from (Turn(cycle, k, groups) for k in range(len(groups)))


def members(fed: Federation, seats: Sequence[Mapping[int, float]], use: Use) -> list[list[Member]]:
    """The members of each group and their samples, from the devices of each group and their powers.

    Devices without samples are left out, as are groups that have no other devices.
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
    """Groups of devices train in turn; a device may be in several groups and split its samples among them."""

    kind = "cyclic-fedavg"
    uses: ClassVar[frozenset[str]] = frozenset({"uplink-compression", "downlink-compression"})
    structure: AnyGroupStructure
    """How groups are formed: which devices train and transmit in the same turn."""
    data: Use = "split"
    """Samples that a device in c groups uses in each of them. split: a different 1/c of its samples, with its change of
    the model scaled by that share; no-split: all its samples, unscaled; no-split-reweighted: all its samples, scaled by
    1/c."""
    agg: Literal["mean", "const", "sum"] = "mean"
    """The update of the server's model. mean: the mean of the changes that arrived; const: their sum times (groups /
    devices); sum: their sum."""
    lr: float = Field(ge=0)
    """Step size of the devices (eta)."""
    batch_size: int | None = Field(None, gt=0)
    """Samples per gradient step; null takes all samples that the device uses in the group, as in the paper."""
    local_steps: int | None = Field(None, gt=0)
    """Gradient steps per turn; give this or `local_epochs`, or neither for the paper's one step."""
    local_epochs: int | None = Field(None, gt=0)
    """Passes per turn over the samples that the device uses in the group; null if `local_steps` is given."""
    slot_s: float | None = Field(None, gt=0)
    """Length of a turn (simulated s), counted from the start of the downlink; answers not decoded by then are lost.
    Null ends a turn when all members have answered, or at the deadline."""
    deadline_s: Deadline = None
    l2: float = Field(0.0, ge=0)
    """Factor l2 of the regulariser l2 / 2 |w|^2 in every device's loss."""
    bounds: bool = False
    """Whether to measure the distance from the optimum and record the theory's bound on it. Only for small convex
    models, one full-batch step per turn on split samples, fixed groups (of equal size with `agg: mean`), and a network
    without losses. If a message is lost all the same (weak link, timeout), the bound is infinite from then on."""
    reform_cycles: int | None = Field(None, gt=0)
    """Number of cycles after which groups are formed again, for devices that move; null keeps the first groups."""

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
        """Why there are no bounds where these settings can lose messages; empty if `bounds` is false."""
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
        """A device: train on the group's samples, send its model."""
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
        """The server's step size rho when `arrived` members of a group have answered."""
        devices = {member.device for group in groups for member in group}
        return {"mean": 1 / arrived, "const": len(groups) / len(devices), "sum": 1.0}[self.agg]

    @property
    def _patience_s(self) -> float | None:
        """Longest wait for the members of a turn (s): the shorter of slot and deadline; None if neither is set."""
        return min((limit for limit in (self.slot_s, self.deadline_s) if limit is not None), default=None)

    @property
    def _steps(self) -> int | None:
        return 1 if self.local_steps is None and self.local_epochs is None else self.local_steps


def part_of_the_way(w: Tensor, trained: Tensor, factor: float, statistics: int = 0) -> Tensor:
    """The model w + factor (trained - w) [P]; its last `statistics` entries, running statistics, are from `trained`."""
    return moved(w, trained - w, factor, statistics)


def server_step(w: Tensor, arrived: int, rho: float, statistics: int = 0) -> Accumulation:
    """The model w [P] plus rho times the sum of the models' differences to w; models are received one by one.

    The last `statistics` entries, running statistics, become their mean. Summing differences instead of models leaves w
    bit-identical when all models equal w.
    """
    after = w.clone()
    for _ in range(arrived):
        difference = (yield) - w
        if statistics:
            difference[-statistics:] /= rho * arrived
        after += rho * difference
    return after
