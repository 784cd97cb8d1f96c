"""What a run will cost, told before anything large is allocated: devices, rounds, model size, events and memory.

The numbers come from the settings alone. The memory of the host is read only to refuse what cannot fit into it: results
never depend on it.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.datasets.base import Extent
from fednet_emu.learning.models.base import Model
from fednet_emu.learning.models.torch_seed import seeded_module
from fednet_emu.learning.models.user_module import GivenModule, UserModule
from fednet_emu.scenario.model import Scenario

BYTE_PER_DEVICE = 400
"""Memory that the network keeps of each device while it is built: measured at a million devices."""
BYTE_PER_EVENT = 100
"""Memory of the record of a transfer or computation."""
VECTORS = 3
"""Vectors of the size of the model that every run holds at once: the initial model, the present one, the next one."""
EVENTS = 3
"""Events of a device in a round: it receives, computes and sends."""
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Cost:
    """An estimate of what a run takes.

    Attributes:
        devices: the number of devices.
        rounds: the largest number of rounds; None if another limit ends the run.
        participants: the largest number of devices that hold an update at a time.
        answers: the number of devices that receive, compute and send in a round.
        parameters: the size of the model; None if it is known only when the data or the user's code are read.
        data_byte: the memory of the samples; 0 if unknown.
        upload_bit: the bits of a model on the uplink, headers aside, at most; None if unknown, or if no whole
            models are sent.
    """

    devices: int
    rounds: int | None
    participants: int
    answers: int
    parameters: int | None
    data_byte: int
    upload_bit: int | None = None

    @classmethod
    def of(cls, scenario: Scenario, extent: Extent | None) -> Cost:
        """Estimate what a scenario takes; it may be too large to run.

        Raises:
            ScenarioError: the model cannot be built for the data, or it is too large for any machine.
        """
        count, parameters = scenario.devices.count, _parameters(scenario, extent)
        sends_models = "uplink-compression" in scenario.algorithm.uses
        return cls(
            devices=count,
            rounds=scenario.stop.rounds,
            participants=scenario.algorithm.participants(count),
            answers=scenario.algorithm.answers(count),
            parameters=parameters,
            data_byte=extent.byte if extent else 0,
            upload_bit=scenario.network.uplink.compression.bit(parameters) if parameters and sends_models else None,
        )

    @property
    def model_byte(self) -> int:
        """Memory of one vector of the size of the model, in float32."""
        return 4 * (self.parameters or 0)

    @property
    def events(self) -> int | None:
        """Transfers and computations of all rounds; None without a number of rounds."""
        return None if self.rounds is None else EVENTS * self.answers * self.rounds

    @property
    def least_byte(self) -> int:
        """Memory without which the run cannot start: devices, samples and the model itself."""
        return BYTE_PER_DEVICE * self.devices + self.data_byte + VECTORS * self.model_byte

    @property
    def most_byte(self) -> int:
        """Memory when all participants of a round hold an update and all rounds are recorded."""
        return self.least_byte + self.participants * self.model_byte + BYTE_PER_EVENT * (self.events or 0)

    def __str__(self) -> str:
        rounds = "rounds until another limit" if self.rounds is None else f"rounds up to {self.rounds:,}"
        size = "a model of unknown size" if self.parameters is None else f"a model of {self.parameters:,} parameters"
        if self.upload_bit is not None and self.upload_bit < 8 * self.model_byte:
            size += f" sent up in {self.upload_bit:,} bits"
        events = f"{EVENTS * self.answers:,} events a round" if self.events is None else f"{self.events:,} events"
        memory = f"{readable(self.least_byte)} of memory, with all records {readable(self.most_byte)}"
        if self.least_byte == self.most_byte or self.events is None:
            memory = f"{readable(self.most_byte)} of memory"
        return f"cost: devices {self.devices:,}, {rounds}, {size}, about {events}, {memory} beside the program itself"


def host_memory_byte() -> float:
    """Return the memory in bytes of the machine, or of the control group of this process; inf if unknown."""
    limits = [math.inf]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    for file in map(Path, _CGROUPS):
        text = file.read_text(encoding="ascii").strip() if file.is_file() else ""
        if text.isdecimal():
            limits.append(float(text))
    return min(limits)


def _parameters(scenario: Scenario, extent: Extent | None) -> int | None:
    """Count the parameters of a model of this package, without memory for them; None for the user's own code."""
    model = scenario.model
    if extent is None or extent.outputs is None or model is None or isinstance(model, UserModule | GivenModule):
        return None
    if not type(model).__module__.startswith("fednet_emu."):
        return None
    return _counted(type(model), model.model_dump_json(), extent.input_shape, extent.outputs)


@lru_cache(maxsize=1024)
def _counted(kind: type[Model], settings: str, shape: tuple[int, ...], outputs: int) -> int:
    """Count the parameters of a model for inputs of a shape; the runs of a study share a few of them.

    The settings are text, because a model with a mapping among its settings has no hash.
    """
    model = kind.model_validate_json(settings)
    try:
        with torch.device("meta"):
            module = seeded_module(lambda: model.build(shape, outputs), 0)
    except (RuntimeError, OverflowError, TypeError, ValueError) as error:
        what = str(error).splitlines()[0]
        raise ScenarioError(f"model: cannot be built ({what}), got {model!r}; give smaller layers") from error
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def readable(size_byte: float) -> str:
    """Return an amount of memory as text, `3.2 GB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size_byte >= size:
            return f"{size_byte / size:,.3g} {unit}"
    return f"{size_byte / 1e3:.3g} kB"
