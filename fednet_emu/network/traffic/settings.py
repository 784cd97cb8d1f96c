"""Settings of other users: the files that they send or receive, and the arrival times of the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator

from fednet_emu.component.component import Component
from fednet_emu.devices.placement import AnyPlacement, Listed
from fednet_emu.network.traffic.laws import AnyGap, AnySize

NAMED = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class Traffic(Component):
    """A class of other users, which send or receive files in a band of the federation.

    Users do not move, keep their radio connection, have the radio of `channel.device`, and are served by the cell with
    the strongest signal. Files use the access scheme, the transport protocol and the session of the direction, and have
    no timeout. The energy that users and base stations spend on files is not counted.
    Ignored here: requests and answers of an application, batteries and movement of users.
    """

    name: str = Field(pattern=NAMED)
    """Name of the class in records and reports."""
    users: int = 1
    """Number of users. If `trace` is set, the trace determines this number. If `place` is `per-file`, it is the number
    of positions to which files are assigned in turn."""
    direction: Literal["uplink", "downlink"] = "uplink"
    """Direction of the files. uplink: users send files. downlink: users receive files."""
    placement: AnyPlacement | None = None
    """Rule for the positions of the users; null means the placement of the devices."""
    size: AnySize | None = None
    """Distribution of file sizes, which are rounded to whole bytes; `network.overhead` adds headers. Required if
    `trace` is null."""
    gap: AnyGap | None = None
    """Distribution of the gaps (from the event in `after` to the next arrival) between the files of a user or, if
    `place` is `per-file`, between all files of the class. Required if `trace` is null."""
    after: Literal["arrival", "end"] = "arrival"
    """Time at which a gap starts. arrival: when the previous file arrives, so that a file may have to wait for earlier
    files of the user. end: when the transfer of the previous file ends, as for a user who reads a web page before
    loading the next page."""
    place: Literal["per-user", "per-file"] = "per-user"
    """Positions of files. per-user: the files of a user are transmitted one by one, at the position of the user.
    per-file: files are assigned to `users` positions in turn, and do not wait for each other."""
    slice: str | None = Field(None, pattern=NAMED)
    """Name of the slice in `network.slices` that carries the files; null means the slice `others`."""
    warm_up_s: float = Field(0.0, ge=0, le=1e9)
    """Warm-up time in s of simulated time. The delays in the summary exclude files that arrive during the warm-up."""
    trace: str | None = None
    """Recorded files, which replace `size` and `gap`. The setting names a CSV file with the columns user, start_s and
    size_byte, or the folder of another run, whose messages in this direction are used as files."""

    @field_validator("users")
    @classmethod
    def _somebody_sends(cls, users: int) -> int:
        if users < 1:
            raise ValueError(f"{users} users send nothing; give at least 1")
        if users > 100_000:
            raise ValueError(f"at most 100,000 users are possible, got {users}; give them shorter gaps instead")
        return users

    def problems(self, scenario: Any) -> Iterator[tuple[str, str]]:
        """Yield the key and the error message of each setting that contradicts another setting."""
        if self.trace is None:
            for key in ("size", "gap"):
                if getattr(self, key) is None:
                    yield key, f"is required without a trace, got null; give a law, or a file of {'traffic/'!r}"
        else:
            given = {"size": self.size, "gap": self.gap, "after": self.after != "arrival" or None}
            given |= {"place": self.place != "per-user" or None, "users": self.users != 1 or None}
            for key, value in given.items():
                if value is not None:
                    yield key, f"a trace says which files come, and when, got {key}; leave it out"
        if self.gap is not None and self.gap.mean == 0 and (self.after == "arrival" or self.place == "per-file"):
            yield "gap", "files without gaps never let time pass, got a mean of 0 s; give one, or after: end"
        if self.place == "per-file" and self.after == "end":
            yield "after", "each file has a user of its own, got end with place: per-file; leave one out"
        if isinstance(self.placement, Listed) and self.trace is None and len(self.placement.xy_m) != self.users:
            got = f"got {len(self.placement.xy_m)} for {self.users} users"
            yield "placement.xy_m", f"is not one for each user, {got}; must be as many as users"
        yield from self._unsuited(scenario)

    def _unsuited(self, scenario: Any) -> Iterator[tuple[str, str]]:
        """Yield the key and the error message of each setting of the scenario that excludes other users in a band."""
        way, network = getattr(scenario.network, self.direction), scenario.network
        access = way.access
        if access.only_sums or access.kind in {"planned", "lora"}:
            why = "is no band that others use" if access.kind == "lora" else "says before a round who sends"
            yield "direction", f"{access.kind} {why}, got {self.direction}; choose another access or direction"
        if way.trace is not None:
            what = f"other users are in recorded rates already, got network.{self.direction}.trace"
            yield "direction", f"{what}; leave the traffic out, or that trace"
        if network.cells.positions_m().shape[1] == 3:
            yield "", f"users are on the ground, got cells: {network.cells.kind}; leave the traffic out"


def problems(classes: Sequence[Traffic], scenario: Any) -> Iterator[tuple[str, str]]:
    """Yield the key and the error message of each setting, in any user class, that contradicts another setting."""
    first: dict[str, int] = {}
    for place, its in enumerate(classes):
        if its.name in first:
            yield f"{place}.name", f"is taken by traffic.{first[its.name]}, got {its.name}; give another"
        first.setdefault(its.name, place)
        for key, what in its.problems(scenario):
            yield f"{place}.{key}", what
