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
    is a tensor and is modified in place, the next read raises an error. One that is given to an accumulation is of use
    to accumulations only, and has its value until the last of these has added it, whoever still refers to it.

    Attributes:
        number: order of creation within its graph; the same in every run of a scenario, with or without training.
        size: number of scalars it carries, known before its value.
    """

    __slots__ = ("__weakref__", "_given", "_missing", "_value", "_version", "_waiters", "_work", "number", "size")

    # Private attributes belong to the Graph: `_work` makes the value, `_missing` counts the inputs not known yet, and
    # `_waiters` are weak references to the results that wait for this one. `_given` counts the accumulations that have
    # not added this one yet, and one more if something else needs it; None if it was given to none.
    def __init__(self, number: int, size: int, work: Any = None) -> None:
        self.number = number
        self.size = size
        self._value: Any = PENDING
        self._version: int | None = None  # how often the tensor had been modified; inference tensors do not count
        self._work = work
        self._missing = 0
        self._waiters: list[ref[Deferred]] | None = None
        self._given: int | None = None

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

    def give(self) -> None:
        """Promise the value to an accumulation, and to nothing but accumulations from now on."""
        if self._given is None:
            awaited = any(me() is not None for me in self._waiters or ())
            self._given = int(self.done or awaited)
        self._given += 1

    @property
    def is_shared(self) -> bool:
        """Whether more than one accumulation needs it, or an accumulation and something else."""
        return self._given != 1

    def check_not_given(self) -> None:
        """Raise an error if it was given to an accumulation, so that nothing else may use it."""
        if self._given is not None:
            raise RuntimeError(
                f"deferred {self.number}: was given to an accumulation, got another use of it; "
                "make what else needs it before that, or call a function of a list of all parts instead"
            )

    def let_go(self) -> None:
        """Note that an accumulation has added the value; after the last of them it is released."""
        assert self._given is not None
        self._given -= 1
        if self._given == 0:
            self._value, self._version, self._work = PENDING, None, None

    def __repr__(self) -> str:
        return f"Deferred(number={self.number}, size={self.size}, {'done' if self.done else 'pending'})"


def deferreds_in(items: tuple[Any, ...] | list[Any]) -> list[Deferred]:
    """The Deferreds among the items, in nested tuples and lists too."""
    found: list[Deferred] = []
    for item in items:
        if type(item) is Deferred:
            found.append(item)
        elif isinstance(item, (tuple, list)):
            found += deferreds_in(item)
    return found


def values_of(items: tuple[Any, ...] | list[Any]) -> list[Any]:
    """The items with values in the place of Deferreds, in nested tuples and lists too."""
    return [
        item.value if type(item) is Deferred else _nested(item) if isinstance(item, (tuple, list)) else item
        for item in items
    ]


def _nested(items: tuple[Any, ...] | list[Any]) -> Any:
    values = values_of(items)
    if isinstance(items, list):
        return values
    return type(items)(*values) if hasattr(items, "_fields") else tuple(values)
