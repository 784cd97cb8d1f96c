"""Paths made of straight legs: each device's present leg is kept, and the next ones are drawn when they are needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fednet_emu.arrays import Array, IntArray, cos, sin
from fednet_emu.devices.mobility.regions import Region, bounced


@dataclass(slots=True, eq=False)
class Legs:
    """One straight leg of each of k devices.

    Attributes:
        device: Which devices, [k].
        number: Which of a device's draws gave the leg its heading, [k]; -1 before the first.
        start_s: When the leg starts, [k].
        end_s: When it ends, at a wall or at a turn, [k].
        turn_s: When its heading ends, [k]; after `end_s` when a wall comes first.
        xy_m: Where it starts, [k, 2].
        velocity_m_s: Constant velocity, [k, 2].
        memory: What the law of motion carries from leg to leg, [k, columns].
    """

    device: IntArray
    number: IntArray
    start_s: Array
    end_s: Array
    turn_s: Array
    xy_m: Array
    velocity_m_s: Array
    memory: Array

    @classmethod
    def none_yet(cls, xy_m: Array, columns: int = 0) -> Legs:
        """Empty legs of all devices that end at time 0 where the devices are placed, [devices, 2]."""
        count = len(xy_m)
        return cls(
            device=np.arange(count),
            number=np.full(count, -1),
            start_s=np.zeros(count),
            end_s=np.zeros(count),
            turn_s=np.zeros(count),
            xy_m=np.array(xy_m, dtype=np.float64),
            velocity_m_s=np.zeros((count, 2)),
            memory=np.zeros((count, columns)),
        )

    def take(self, rows: IntArray) -> Legs:
        """A copy of some rows."""
        return Legs(
            device=self.device[rows],
            number=self.number[rows],
            start_s=self.start_s[rows],
            end_s=self.end_s[rows],
            turn_s=self.turn_s[rows],
            xy_m=self.xy_m[rows],
            velocity_m_s=self.velocity_m_s[rows],
            memory=self.memory[rows],
        )

    def put(self, rows: IntArray, legs: Legs) -> None:
        """Overwrite some rows."""
        self.device[rows], self.number[rows] = legs.device, legs.number
        self.start_s[rows], self.end_s[rows], self.turn_s[rows] = legs.start_s, legs.end_s, legs.turn_s
        self.xy_m[rows], self.velocity_m_s[rows], self.memory[rows] = legs.xy_m, legs.velocity_m_s, legs.memory

    def at_m(self, time_s: float | Array) -> Array:
        """Positions [k, 2] at one time, or at one time each."""
        here_m: Array = self.xy_m + self.velocity_m_s * np.reshape(time_s - self.start_s, (-1, 1))
        return here_m


Following = Callable[[Legs], Legs]
"""From legs to the next ones; draws are keyed by device and number, so that a replay gives the same legs."""


class LegPaths:
    """Paths whose legs follow one another by a law.

    Memory is one leg per device. A later time costs as many steps as there are legs in between, for all devices asked
    at once, and nothing for devices not asked; an earlier time than that of the present leg replays from the start.
    """

    def __init__(self, first: Legs, following: Following, speed_m_s: float) -> None:
        self.speed_m_s = speed_m_s
        self._first = first
        self._present = first.take(first.device)
        self._following = following

    def positions_m(self, devices: IntArray, time_s: float) -> Array:
        """Coordinates [k, 2] in metres of devices [k] at a time of 0 or later."""
        if len(devices) == 1:
            return self._one_m(int(devices[0]), time_s)
        present = self._present
        moved = (time_s < present.start_s[devices]) | (time_s >= present.end_s[devices])
        if moved.any():
            self._move(np.asarray(devices)[moved], time_s)
        here_m: Array = (
            present.xy_m[devices] + present.velocity_m_s[devices] * (time_s - present.start_s[devices])[:, None]
        )
        return here_m

    def _one_m(self, device: int, time_s: float) -> Array:
        present = self._present
        if not present.start_s.item(device) <= time_s < present.end_s.item(device):
            self._move(np.array([device]), time_s)
        elapsed_s = time_s - present.start_s.item(device)
        x_m = present.xy_m.item(device, 0) + present.velocity_m_s.item(device, 0) * elapsed_s
        y_m = present.xy_m.item(device, 1) + present.velocity_m_s.item(device, 1) * elapsed_s
        return np.array([[x_m, y_m]])

    def _move(self, devices: IntArray, time_s: float) -> None:
        legs = self._present.take(devices)
        too_late = np.flatnonzero(time_s < legs.start_s)
        legs.put(too_late, self._first.take(devices[too_late]))
        due = np.flatnonzero(time_s >= legs.end_s)
        while len(due):
            following = self._following(legs.take(due))
            legs.put(due, following)
            due = due[time_s >= following.end_s]
        self._present.put(devices, legs)


def bouncing(region: Region, turned: Following, mirrored: Callable[[Legs, Array], None] | None = None) -> Following:
    """The law of devices that turn when their heading ends and are reflected by the walls until then.

    Args:
        region: Where they stay.
        turned: Gives legs that have just ended their heading the next number, velocity and `turn_s`.
        mirrored: Reflects, in place, what `memory` holds, given the normals [k, 2] of the walls.
    """

    def following(legs: Legs) -> Legs:
        turning = legs.end_s >= legs.turn_s
        legs.xy_m, legs.start_s = region.clipped_m(legs.at_m(legs.end_s)), legs.end_s
        turns, walls = np.flatnonzero(turning), np.flatnonzero(~turning)
        if len(turns):
            legs.put(turns, turned(legs.take(turns)))
        if len(walls):
            hit = legs.take(walls)
            normal = region.normal(hit.xy_m, hit.velocity_m_s)
            hit.velocity_m_s = bounced(hit.velocity_m_s, normal)
            if mirrored is not None:
                mirrored(hit, normal)
            legs.put(walls, hit)
        legs.end_s = np.minimum(legs.turn_s, legs.start_s + region.exit_s(legs.xy_m, legs.velocity_m_s))
        return legs

    return following


def heading(uniform: Array) -> Array:
    """Unit vectors [k, 2] in directions 2 pi times the uniforms [k]."""
    angle = 2 * math.pi * uniform
    return np.stack([cos(angle), sin(angle)], axis=1)
