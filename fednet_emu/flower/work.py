"""Number of floating-point operations of a client per message: given per example, counted by PyTorch, or estimated."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, final

from pydantic import Field

from fednet_emu.component.component import Component
from fednet_emu.errors import ScenarioError
from fednet_emu.federation import Device

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

EXAMPLES = ("num-examples", "num_examples")
"""Names of the metric by which a reply states its number of examples; the classic interface uses the second name."""


FLOP_PER_PARAMETER = {"train": 6.0, "evaluate": 2.0}
"""Estimated floating-point operations per parameter and example: a multiply-add (2 operations) in the forward pass, and
two multiply-adds in the backward pass."""


class FlowerWork(Component):
    """Number of floating-point operations of a client per message."""

    flop_per_example: float | None = Field(None, ge=0)
    """Floating-point operations of training per example, over all local epochs; the reply states the number of examples
    as `num-examples`. With null, PyTorch's FLOP counter counts the operations of the first message of each type at each
    device. If the app trains without PyTorch, 6 operations per parameter and example are assumed for training, and 2
    for evaluation."""
    evaluate_flop_per_example: float | None = Field(None, ge=0)
    """Floating-point operations of evaluation per example, used only if `flop_per_example` is set. With null, a third
    of `flop_per_example` is used, because evaluation has no backward pass."""


@final
class Toll:
    """Computes the number of floating-point operations for each message."""

    def __init__(self, work: FlowerWork) -> None:
        self._work = work
        self._counted: dict[tuple[int, str], int] = {}
        self._most_in_training: int | None = None
        self._warned = False

    def counts(self, device: Device, kind: str) -> bool:
        """Return True if PyTorch must count the operations, as for a device's first message of type `kind`."""
        return self._work.flop_per_example is None and (device.index, kind) not in self._counted

    def learn(self, device: Device, kind: str, counted: int | None) -> None:
        """Record the number of operations `counted` for a message of type `kind` at a device; None has no effect."""
        if counted is None:
            return
        self._counted[device.index, kind] = counted
        if _category(kind) == "train":
            self._most_in_training = max(counted, self._most_in_training or 0)

    def before(self, device: Device, kind: str) -> float | None:
        """Return the number of operations of a message of type `kind`; None if unknown until the reply is complete."""
        if self._work.flop_per_example is None:
            counted = self._counted.get((device.index, kind))
            return None if counted == 0 and self._is_estimated(kind) else counted
        return None if self._per_example(kind) else 0.0

    def flop(self, device: Device, kind: str, content: RecordDict, reply: Message) -> float:
        """Return the number of operations for the reply to a message of type `kind` with the records `content`.

        Raises:
            ScenarioError: the number of operations or of examples is unknown.
        """
        per_example = self._per_example(kind)
        if per_example is None:
            counted = self._counted[device.index, kind]
            if counted or not self._is_estimated(kind):
                return float(counted)
            per_example = self._estimate(device, kind, _n_parameters(content))
        return per_example * _examples(device, kind, reply) if per_example else 0.0

    def _per_example(self, kind: str) -> float | None:
        training, evaluation = self._work.flop_per_example, self._work.evaluate_flop_per_example
        if training is None:
            return None
        if _category(kind) == "train":
            return training
        if _category(kind) == "evaluate":
            return training / 3 if evaluation is None else evaluation
        return 0.0

    def _is_estimated(self, kind: str) -> bool:
        """Return True if an estimate is used for messages of type `kind` for which PyTorch has counted no operations.

        If PyTorch has counted operations in training, an evaluation without counted operations is assumed to need none.
        """
        category = _category(kind)
        return category == "train" or (category == "evaluate" and self._most_in_training == 0)

    def _estimate(self, device: Device, kind: str, n_parameters: int) -> float:
        category, uncounted = _category(kind), f"PyTorch has counted no operation in the training of {device.name}"
        if category == "train" and not n_parameters:
            raise ScenarioError(
                f"algorithm.work: {uncounted}, which was sent no parameters, got no flop_per_example; give one, 0 if "
                "training is to take no time"
            )
        per_example = FLOP_PER_PARAMETER[category] * n_parameters
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"algorithm.work: {uncounted}, so that a fit takes 6 per parameter and example, and an evaluation 2, "
                f"got no flop_per_example; give one, as with --set algorithm.work.flop_per_example={per_example:g}",
                stacklevel=2,
            )
        return per_example


def _category(kind: str) -> str:
    return kind.partition(".")[0]


def _n_parameters(content: RecordDict) -> int:
    arrays = (array for record in content.array_records.values() for array in record.values())
    return sum(math.prod(array.shape) for array in arrays if "float" in array.dtype)


def _examples(device: Device, kind: str, reply: Any) -> float:
    if not reply.has_content():
        return 0.0
    for record in reply.content.metric_records.values():
        for name in EXAMPLES:
            if isinstance(record.get(name), int | float):
                return float(record[name])
    raise ScenarioError(
        f"algorithm.work: the reply of {device.name} to '{kind}' has no metric '{EXAMPLES[0]}', so that its operations "
        "are unknown; let the app return it, give flop_per_example: 0, or leave that out where PyTorch can count"
    )
