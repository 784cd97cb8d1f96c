"""The model that a run ends with, as PyTorch modules; in a run folder, `model.pt`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fednet_emu.errors import DataError
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.streams import Streams
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.models.torch_seed import seeded_module
from fednet_emu.records.store import RunFolder
from fednet_emu.scenario.model import Scenario

NAME = "model.pt"


@dataclass(frozen=True)
class FinalModel:
    """One global model, or every device's own.

    Attributes:
        states: trained parameters and statistics by name, of the one model or of each device's.
        own: whether each device has one.
        input_shape: shape of a sample.
        outputs: what the model puts out.
    """

    states: Sequence[dict[str, Tensor]]
    own: bool
    input_shape: tuple[int, ...]
    outputs: int

    def modules(self, scenario: Scenario) -> nn.Module | list[nn.Module]:
        """The model of a scenario with these parameters, ready to predict; a list where each device has its own."""
        key = Streams(scenario.seed).key("init") >> 1
        found = [seeded_module(lambda: scenario.model.build(self.input_shape, self.outputs), key) for _ in self.states]
        for module, state in zip(found, self.states, strict=True):
            module.load_state_dict(state, strict=False)  # what is not trained is as it was built
        ready = [module.eval() for module in found]
        return ready if self.own else ready[0]


def final_model(fed: Federation) -> FinalModel | None:
    """What a run has ended with; None for a timing-only run, and for an algorithm that never showed a model."""
    latest, flat = fed.latest, fed.task.model
    if fed.timing_only or latest is None:
        return None
    own = not isinstance(latest, Deferred)
    vectors = [fed.graph.read(model) for model in ([latest] if isinstance(latest, Deferred) else latest)]
    states = [
        {name: part.detach().cpu().clone() for name, part in flat.unflatten(vector).items()} for vector in vectors
    ]
    return FinalModel(states, own, flat.input_shape, max(len(fed.task.test_shares), 1))


def save_model(model: FinalModel, folder: RunFolder) -> None:
    """Leave a global model in a run folder, without any code; models of each device would fill it."""
    if not model.own:
        content = {"state": model.states[0], "input_shape": list(model.input_shape), "outputs": model.outputs}
        folder.write_bytes(NAME, lambda part: torch.save(content, part))


def load_model(folder: Path) -> FinalModel:
    """The model in a run folder; no code in it is run.

    Raises:
        DataError: there is none, or it cannot be read.
    """
    path = folder / NAME
    if not path.is_file():
        remedy = "run the scenario by itself, with training; where each device has its own model, in memory (out=None)"
        raise DataError(str(path), "no such file, this folder keeps no model", remedy)
    try:
        saved: dict[str, Any] = torch.load(path, weights_only=True)
        return FinalModel([saved["state"]], False, tuple(saved["input_shape"]), saved["outputs"])
    except Exception as error:
        raise DataError(str(path), f"cannot be read ({type(error).__name__})", "run it again") from error
