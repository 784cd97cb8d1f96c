"""The backdoor: a trigger in the input that makes the model predict the target class."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fednet_emu.errors import ScenarioError
from fednet_emu.learning.data.attacks.base import Attack
from fednet_emu.learning.data.datasets.base import Samples


class Backdoor(Attack):
    """Malicious samples carry a trigger and the target label; success means that the trigger makes models predict it.

    In images [C, H, W] the trigger is a square in the lower right corner of all channels, in series [C, T] a constant
    at the end of the first channel, in vectors [F] the last entries. After Bagdasaryan et al. (AISTATS 2020) and, for
    series, Dai, Chen and Li (IEEE Access 2019).
    """

    patch: int = Field(4, gt=0)
    """Size of the trigger: side of the square (pixels), or number of entries in series and vectors."""
    value: float | None = None
    """Value of the trigger's entries; null takes the largest value in the clean training inputs."""

    def poisoned(self, x: Tensor, y: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
        """The inputs with the trigger, all labelled as the target class."""
        return self._stamped(x, samples), y * 0 + self.target

    def trial(self, samples: Samples) -> Tensor:
        """The test samples of all other classes, with the trigger."""
        return self._stamped(samples.test_x[samples.test_y != self.target], samples)

    def _stamped(self, x: Tensor, samples: Samples) -> Tensor:
        shape = x.shape[1:]
        if samples.vocabulary is not None:
            found = f"windows of {samples.vocabulary} different tokens"
            raise ScenarioError(f"attack: a backdoor needs real inputs to stamp, got {found}; use label-flip")
        if len(shape) not in (1, 2, 3) or self.patch > min(shape[1:] or shape):
            raise ScenarioError(f"attack.patch: does not fit in samples of shape {tuple(shape)}, got {self.patch}")
        stamped, end = x.clone(), slice(-self.patch, None)
        value = float(samples.train_x.max()) if self.value is None else self.value
        places = {1: (slice(None), end), 2: (slice(None), 0, end), 3: (slice(None), slice(None), end, end)}
        stamped[places[len(shape)]] = value
        return stamped
