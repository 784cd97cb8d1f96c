"""Cyclic participation with overlapping groups of clients.

Anonymous manuscript under review: "Participation Strategies in Federated Learning with Heterogeneous Client
Communications" (no public link). Cyclic participation with one group per client: Cho, Sharma, Joshi, Xu, Kale, Zhang,
"On the Convergence of Federated Averaging with Cyclic Client Participation", ICML 2023, arXiv 2302.03109.

Differences from the paper: its three ways of writing the server's average are all here (`agg`); the factor
|B_mk| / |B_m|, which its Algorithm 1 leaves out, is applied as in its update rule; the server averages once per
round, over what has arrived; clients may make several local steps on batches, of whose movement the factor is then
taken; a client in several groups may also use all its samples in each of them, with or without the factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fednet_emu.algorithms.base import RoundBased
from fednet_emu.algorithms.cyclic.groups import parts_of, seats_of
from fednet_emu.algorithms.cyclic.structures import AnyGroupStructure
from fednet_emu.algorithms.cyclic.theory import Theory
from fednet_emu.arrays import IntArray
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Deferred, Federation, Process, SgdPlan


class Member(NamedTuple):
    """A device in one group.

    Attributes:
        device: its number.
        factor: s_mk, what part of its movement counts.
        samples: the samples that it uses there, by their place among its own; None for all.
        power: part of its power that it sends with.
    """

    device: int
    factor: float
    samples: IntArray | None
    power: float


class Turn(NamedTuple):
    """One group's turn: which cycle and which group of it, both from 0, and all groups of the cycle."""

    cycle: int
    group: int
    groups: list[list[Member]]

    @property
    def members(self) -> list[Member]:
        """Whose turn it is."""
        return self.groups[self.group]


class CyclicFedAvg(RoundBased):
    """Groups take turns in a cycle; a device may sit in several and divide its samples between them."""

    kind: Literal["cyclic-fedavg"] = "cyclic-fedavg"
    structure: AnyGroupStructure
    """Who transmits together."""
    data: Literal["split", "no-split", "no-split-reweighted"] = "split"
    """What a device in c groups uses in each: its own c-th of its samples, and that part of the movement; all samples
    and the whole movement; or all samples and one c-th of the movement."""
    agg: Literal["mean", "const", "sum"] = "mean"
    """The server adds the mean of what has arrived, or the sum of it times (groups / devices), or the sum itself."""
    lr: float = Field(ge=0)
    """Step size of the devices."""
    batch_size: int | None = Field(None, gt=0)
    """Samples per step; null, as in the paper, takes all that the device uses in the group."""
    local_steps: int | None = Field(None, gt=0)
    """Gradient steps per turn; give this or `local_epochs`, or neither for the paper's one step."""
    local_epochs: int | None = Field(None, gt=0)
    """Passes over the samples per turn."""
    slot_s: float | None = Field(None, gt=0)
    """Length of a turn, from the downlink on; what is not decoded by then is lost. Null ends a turn when all have
    answered, or at the deadline."""
    l2: float = Field(0.0, ge=0)
    """Strength of a regulariser l2 / 2 |w|^2 in every device's loss."""
    bounds: bool = False
    """Also measure the distance from the optimum and record the theory's bound of it, for small convex models; with the
    paper's one full-batch step on split samples, groups that stay, a mean only over groups of one size, and a network
    that loses nothing. From a loss that nobody foresaw (a weak link, a timeout) on, the bound is infinite."""
    reform_cycles: int | None = Field(None, gt=0)
    """Groups are formed anew after so many cycles, as devices move; null keeps the first ones."""

    @model_validator(mode="after")
    def _one_measure_of_local_work(self) -> CyclicFedAvg:
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
        return self

    def demands(self) -> Iterable[tuple[str, str, int]]:
        """Settings (key, meaning, number of devices) that need so many devices."""
        return self.structure.demands()

    def conflicts_with_losses(self, losses: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Bounds hold where every update arrives."""
        if self.bounds and losses:
            yield (
                "bounds",
                f"hold only where no message can be lost, got {', '.join(losses)}; leave that out or set bounds: false",
            )

    def run(self, fed: Federation) -> Process:
        """The server: each group in turn receives the model, trains and answers; the server steps once per group.

        Raises:
            ScenarioError: nobody can train, or bounds are asked for where they do not hold.
        """
        for key, what in self.conflicts_with_losses(fed.network.losses()):
            raise ScenarioError(f"algorithm.{key}: {what}")
        w, theory = fed.initial_model(), None
        for r, turn in zip(fed.rounds(), self.turns(fed), strict=False):
            yield fed.cohort(1, r)  # until somebody is there
            if self.bounds and turn.group == 0 and not fed.timing_only:
                theory = theory or self._theory(fed, turn.groups)
                theory.record(fed, w, turn.cycle)
            started_s = fed.now_s
            slot = None if self.slot_s is None else fed.sleep(self.slot_s)
            replies = yield fed.gather((self.client(fed, member, w, r) for member in turn.members), self._patience_s)
            if slot is not None:
                yield slot
            arrived = [reply.payload for reply in replies if not reply.lost]
            if theory is not None and len(arrived) < len(turn.members):
                theory.holds = False
            if arrived:
                w = fed.defer(server_step, w, arrived, self.server_lr(turn.groups, len(arrived)))
            self._record_turn(fed, turn, started_s)
            fed.end_of_round(w, invited=len(turn.members), arrived=len(arrived))

    def client(self, fed: Federation, member: Member, w: Deferred, r: int) -> Process:
        """A device: receive, train on the group's samples, send its model."""
        device = fed.device(member.device)
        got = yield fed.downlink(device, w)
        if got.lost:
            return got
        plan = SgdPlan(lr=self.lr, batch_size=self.batch_size, steps=self._steps, epochs=self.local_epochs)
        origin = fed.defer(torch.zeros_like, w) if self.l2 else None
        work = fed.train(device, got.payload, plan, r, subset=member.samples, prox=self.l2, anchor=origin)
        trained = yield device.compute(work)
        mine = trained.params
        if member.factor != 1:
            mine = fed.defer(part_of_the_way, got.payload, mine, member.factor)
        return (yield fed.uplink(device, mine, power_part=member.power))

    def server_lr(self, groups: Sequence[Sequence[Member]], arrived: int) -> float:
        """The server's step rho, when so many of a group have arrived."""
        devices = {member.device for group in groups for member in group}
        return {"mean": 1 / arrived, "const": len(groups) / len(devices), "sum": 1.0}[self.agg]

    def _record_turn(self, fed: Federation, turn: Turn, started_s: float) -> None:
        ways = {"structure": self.structure, "access": fed.network.uplink.rules.band.access}
        fed.ledger.record(
            "cyclic_turns",
            round=fed.round + 1,
            cycle=turn.cycle,
            group=turn.group,
            groups=len(turn.groups),
            **{name: getattr(way, "kind", "?") for name, way in ways.items()},
            started_s=started_s,
            ended_s=fed.now_s,
        )

    def _theory(self, fed: Federation, groups: Sequence[Sequence[Member]]) -> Theory:
        sizes = {len(group) for group in groups}
        if self.agg == "mean" and len(sizes) > 1:
            raise ScenarioError(
                f"algorithm.bounds: a mean is covered for groups of one size only, got sizes {sorted(sizes)}; "
                "choose agg: const or sum"
            )
        parts = [[(member.device, member.samples) for member in group] for group in groups]
        return Theory(fed, parts, self.l2, self.lr * self.server_lr(groups, min(sizes)))

    @property
    def _patience_s(self) -> float | None:
        """How long a turn waits for its members: until the end of the slot or the deadline, whichever comes first."""
        return min((limit for limit in (self.slot_s, self.deadline_s) if limit is not None), default=None)

    @property
    def _steps(self) -> int | None:
        return 1 if self.local_steps is None and self.local_epochs is None else self.local_steps

    def turns(self, fed: Federation) -> Iterator[Turn]:
        """The turns of all groups, cycle after cycle; groups are formed when the first turn of a cycle is due.

        Raises:
            ScenarioError: no device of any group has samples.
        """
        groups: list[list[Member]] = []
        for cycle in count():
            if cycle == 0 or (self.reform_cycles is not None and cycle % self.reform_cycles == 0):
                groups = self.members(fed, self.structure.form(fed, cycle))
                _record_groups(fed, cycle, groups)
            yield from (Turn(cycle, k, groups) for k in range(len(groups)))

    def members(self, fed: Federation, seats: Sequence[Mapping[int, float]]) -> list[list[Member]]:
        """Who uses which samples in each group, out of the devices of each group and their powers.

        Devices without samples are left out, and so are groups without any other.

        Raises:
            ScenarioError: no group is left.
        """
        groups: list[list[Member]] = [[] for _ in seats]
        for device, mine in seats_of(seats).items():
            n = fed.device(device).n_samples
            parts = parts_of(n, len(mine), fed.streams("split", device))
            for k, part in zip(mine, parts, strict=True):
                if self.data == "split":
                    member = Member(device, len(part) / max(n, 1), part if len(mine) > 1 else None, seats[k][device])
                else:
                    factor = 1.0 if self.data == "no-split" else 1 / len(mine)
                    member = Member(device, factor, None, seats[k][device])
                if n and (len(part) or self.data != "split"):
                    groups[k].append(member)
        groups = [sorted(group, key=lambda member: member.device) for group in groups if group]
        if not groups:
            raise ScenarioError(
                "algorithm.structure: nobody can train, got groups of devices without samples; change the partition"
            )
        return groups


def part_of_the_way(w: Tensor, trained: Tensor, factor: float) -> Tensor:
    """The model w [P] moved by this part of the way to the trained model."""
    return w + factor * (trained - w)


def server_step(w: Tensor, arrived: Sequence[Tensor], rho: float) -> Tensor:
    """The model w [P] moved by rho times the sum of the differences arrived - w.

    Differences, not models, are summed: models equal to w leave it bit for bit as it is.
    """
    moved = w
    for w_m in arrived:
        moved = moved + rho * (w_m - w)
    return moved


def _record_groups(fed: Federation, cycle: int, groups: Sequence[Sequence[Member]]) -> None:
    for k, group in enumerate(groups):
        for member in group:
            samples = fed.device(member.device).n_samples if member.samples is None else len(member.samples)
            seat = {"cycle": cycle, "group": k, "device": member.device, "samples": samples}
            fed.ledger.record("cyclic_groups", **seat, factor=member.factor, power_part=member.power)
