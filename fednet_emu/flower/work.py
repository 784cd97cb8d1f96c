"""Number of floating-point operations per message of an app: given per example, counted by PyTorch, or estimated."""

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
"""Names of the metric with the number of examples of a reply; the classic interface uses the second name."""


FLOP_PER_PARAMETER = {"train": 6.0, "evaluate": 2.0}
"""Estimated operations per parameter and example: a multiply-add in the forward pass, and two in the backward pass."""


class FlowerWork(Component):
    """Number of floating-point operations of a client per message."""

    flop_per_example: float | None = Field(None, ge=0)
    """Floating-point operations of training, over all local epochs, for each of the `num-examples` that the reply
    states. null counts the operations of the first message of each type at each device with PyTorch's FLOP counter; an
    app that trains without PyTorch is assumed to need 6 per parameter and example in training, and 2 in evaluation."""
    evaluate_flop_per_example: float | None = Field(None, ge=0)
    """Floating-point operations of evaluation per example; null takes a third of `flop_per_example`, because evaluation
    has no backward pass."""


@final
class Toll:
    """Computes the number of floating-point operations for each message."""

    def __init__(self, work: FlowerWork) -> None:
        self._work = work
        self._counted: dict[tuple[int, str], int] = {}
        self._most_in_training: int | None = None
        self._warned = False

    def counts(self, device: Device, kind: str) -> bool:
        """Return True if the operations of a message are counted, as for the first message of a type at a device."""
        return self._work.flop_per_example is None and (device.index, kind) not in self._counted

    def learn(self, device: Device, kind: str, counted: int | None) -> None:
        """Record the operations counted for a message of type `kind` at a device; None if nothing was counted."""
        if counted is None:
            return
        self._counted[device.index, kind] = counted
        if _category(kind) == "train":
            self._most_in_training = max(counted, self._most_in_training or 0)

    def before(self, device: Device, kind: str) -> float | None:
        """Return the number of operations of a message of type `kind` if known before the reply; otherwise None."""
        if self._work.flop_per_example is None:
            counted = self._counted.get((device.index, kind))
            return None if counted == 0 and self._is_estimated(kind) else counted
        return None if self._per_example(kind) else 0.0

    def flop(self, device: Device, kind: str, content: RecordDict, reply: Message) -> float:
        """Return the number of operations of a message of type `kind` with the records `content`.

        Raises:
            ScenarioError: the number is unknown.
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
        """Return True if messages of type `kind` for which PyTorch counts no operations get an estimate.

        If PyTorch counts operations in training, an evaluation without counted operations is assumed to need none.
        """
        category = _category(kind)
        return category == "train" or (category == "evaluate" and self._most_in_training == 0)

    def _estimate(self, device: Device, kind: str, n_parameters: int) -> float:
        """Return the estimated operations per example of an app without PyTorch; warn the first time."""
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
    """Return the number of real numbers in the arrays of the records."""
    arrays = (array for record in content.array_records.values() for array in record.values())
    return sum(math.prod(array.shape) for array in arrays if "float" in array.dtype)


def _examples(device: Device, kind: str, reply: Any) -> float:
    """Return the number of examples that a reply states.

    Raises:
        ScenarioError: the reply does not state a number of examples.
    """
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
