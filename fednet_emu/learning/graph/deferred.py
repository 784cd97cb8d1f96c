"""A value that is computed only when it is read."""

from __future__ import annotations

from typing import Any, Final, final
from weakref import ref

from torch import Tensor


class _Pending:
    """The type of `PENDING`, which marks a value that is not computed yet."""

    def __repr__(self) -> str:
        return "<pending>"


PENDING: Final = _Pending()


@final
class Deferred:
    """A value that is computed only when it is read: made by a `Graph`, immutable once known.

    A Deferred keeps its inputs alive, but not its results: a result without references is never computed. If the value
    is a tensor and is modified in place, the next read raises an error.

    Attributes:
        number: order of creation within its graph; the same in every run of a scenario, with or without training.
        size: number of scalars it carries, known before its value.
    """

    __slots__ = ("__weakref__", "_missing", "_value", "_version", "_waiters", "_work", "number", "size")

    # Private attributes belong to the Graph: `_work` makes the value, `_missing` counts the inputs not known yet, and
    # `_waiters` are weak references to the results that wait for this one.
    def __init__(self, number: int, size: int, work: Any = None) -> None:
        self.number = number
        self.size = size
        self._value: Any = PENDING
        self._version: int | None = None  # how often the tensor had been modified; inference tensors do not count
        self._work = work
        self._missing = 0
        self._waiters: list[ref[Deferred]] | None = None

    @property
    def done(self) -> bool:
        """Whether the value is known."""
        return self._value is not PENDING

    @property
    def value(self) -> Any:
        """The value, if it is known; `Graph.read` computes it first.

        Raises:
            RuntimeError: the value is not computed yet, or its tensor was modified in place.
        """
        value = self._value
        if value is PENDING:
            raise RuntimeError(f"deferred {self.number}: value is not computed yet; use Graph.read")
        if self._version is not None and self._version != value._version:
            raise RuntimeError(f"deferred {self.number}: its tensor was modified in place; make a new tensor instead")
        return value

    def _settle(self, value: Any) -> None:
        """Set the value, and release the inputs it was computed from."""
        self._value = value
        self._version = value._version if isinstance(value, Tensor) and not value.is_inference() else None
        self._work = None

    def __repr__(self) -> str:
        return f"Deferred(number={self.number}, size={self.size}, {'done' if self.done else 'pending'})"
