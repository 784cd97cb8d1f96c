"""The final model of a run as PyTorch modules; a run folder stores the model as `model.pt`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fednet_emu.errors import DataError
from fednet_emu.federation.federation import Federation
from fednet_emu.learning.graph.deferred import Deferred
from fednet_emu.learning.models.base import seeded_module
from fednet_emu.records.folder import RunFolder, require_sound
from fednet_emu.scenario.model import Scenario

NAME = "model.pt"


@dataclass(frozen=True)
class FinalModel:
    """The final global model, or the final models of all devices."""

    states: Sequence[dict[str, Tensor]]  # trained parameters and running statistics by name, one mapping for each model
    own: bool  # True if each device has its own model, False if there is a single global model
    input_shape: tuple[int, ...]  # shape of one sample
    outputs: int  # number of outputs of the model
    data_dir: Path | None = None  # folder of files that the model reads; None for the folder given by FEDNET_DATA

    def modules(self, scenario: Scenario) -> nn.Module | list[nn.Module]:
        """Return the model in evaluation mode, or a list with one model for each device if `own` is set."""
        key = scenario.streams.key("init") >> 1
        network = scenario.learning()[2].located(self.data_dir)
        found = [seeded_module(lambda: network.build(self.input_shape, self.outputs), key) for _ in self.states]
        for module, state in zip(found, self.states, strict=True):
            module.load_state_dict(state, strict=False)  # untrained tensors keep their initial values
        ready = [module.eval() for module in found]
        return ready if self.own else ready[0]


def final_model(fed: Federation, data_dir: Path | None) -> FinalModel | None:
    """Return the final model of a run; None for a timing-only run, or if the algorithm never reported a model."""
    latest = fed.latest
    if fed.timing_only or latest is None:
        return None
    flat = fed.task.model
    own = not isinstance(latest, Deferred)
    vectors = [fed.graph.read(model) for model in ([latest] if isinstance(latest, Deferred) else latest)]
    states = [
        {name: part.detach().cpu().clone() for name, part in flat.unflatten(vector).items()} for vector in vectors
    ]
    return FinalModel(states, own, flat.input_shape, fed.task.outputs, data_dir)


def save_model(model: FinalModel, folder: RunFolder) -> None:
    """Save a global model in a run folder, as tensors without code. Do nothing if each device has its own model."""
    if not model.own:
        content = {"state": model.states[0], "input_shape": list(model.input_shape), "outputs": model.outputs}
        file = BytesIO()
        torch.save(content, file)
        folder.announce([NAME])
        folder.write_bytes(NAME, file.getvalue())


def load_model(folder: Path) -> FinalModel:
    """Load the model of a run folder, without running any code in the file; raise a `DataError` if there is none."""
    path = folder / NAME
    if not path.is_file():
        remedy = "run the scenario alone, with training; if each device has its own model, in memory (out=None)"
        raise DataError(str(path), "no such file, this folder keeps no model", remedy)
    require_sound(folder, [NAME])
    try:
        saved: dict[str, Any] = torch.load(path, weights_only=True)
        return FinalModel([saved["state"]], False, tuple(saved["input_shape"]), saved["outputs"])
    except Exception as error:
        raise DataError(str(path), f"cannot be read ({type(error).__name__})", "run it again with --force") from error
