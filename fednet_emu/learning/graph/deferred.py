"""A value that is computed only when it is read."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar, Final, final
from weakref import ref

import numpy as np
from torch import Tensor

from fednet_emu.errors import AlgorithmError


class _Unknown:
    """The type of the constants that stand for unknown values."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}>"


PENDING: Final = _Unknown("pending")
"""Stands for a value that is not computed yet."""
LATER: Final = _Unknown("later")
"""Stands for a value whose computation is postponed."""


@final
class Deferred:
    """A value that is computed only when it is read.

    Deferreds are created by a `Graph`. Once a value is known, it must not be modified.

    A Deferred keeps its inputs alive, but not the results that depend on it. A result to which nothing refers is never
    computed. If a tensor is modified in place, the next read raises an error. An accumulation is a computation that
    processes its inputs one at a time. A Deferred that is such an input may be used only by accumulations. Its value is
    released when the last of these accumulations has processed it, even if there are other references.

    The operators `+`, `-`, `*` and `/` and the function `sum` return new Deferreds. They work entrywise. A number, or a
    Deferred of one number, can be combined with a Deferred of any size.

    Attributes:
        number: index in the order of creation within the graph. It is the same in every run of a scenario, with or
            without training.
        size: number of scalars in the value. It is known even if the value is not.
    """

    __slots__ = (
        "__weakref__",
        "_digest",
        "_given",
        "_graph",
        "_missing",
        "_value",
        "_version",
        "_waiters",
        "_work",
        "number",
        "size",
    )

    __array_ufunc__: ClassVar[None] = None  # NumPy scalars leave arithmetic to a Deferred on their right

    # The Graph manages the private attributes. `_work` makes the value, or, while the value is postponed, is the node
    # that would compute it. `_missing` is the number of unknown inputs. `_waiters` are weak references to the results
    # that wait for this value. `_given` is the number of accumulations that have not added the value yet, plus one if
    # it has another use; None if it was given to no accumulation. `_digest` identifies the value.
    def __init__(self, number: int, size: int, work: Any = None, graph: Any = None) -> None:
        self._graph = graph
        self._digest = b""
        self.number = number
        self.size = size
        self._value: Any = PENDING
        self._version: int | None = None  # PyTorch's count of in-place changes; None for inference tensors
        self._work = work
        self._missing = 0
        self._waiters: list[ref[Deferred]] | None = None
        self._given: int | None = None

    @property
    def done(self) -> bool:
        return self._value is not PENDING and self._value is not LATER

    @property
    def value(self) -> Any:
        """The value. If it is not computed yet, a `RuntimeError` is raised; `Graph.read` computes it first."""
        value = self._value
        if value is PENDING or value is LATER:
            raise RuntimeError(f"deferred {self.number}: value is not computed yet; use Graph.read")
        if self._version is not None and self._version != value._version:
            raise RuntimeError(f"deferred {self.number}: its tensor was modified in place; make a new tensor instead")
        return value

    def _settle(self, value: Any) -> None:
        """Set the value, and release the inputs from which the value was computed."""
        self._value = value
        self._version = value._version if isinstance(value, Tensor) and not value.is_inference() else None
        self._work = None

    def give(self) -> None:
        """Register the value as an input of an accumulation. From now on, only accumulations may use the value."""
        if self._given is None:
            waiters = self._waiters
            awaited = waiters is not None and any(me() is not None for me in waiters)
            self._given = int(awaited or self._value is not PENDING)
        self._given += 1

    @property
    def is_shared(self) -> bool:
        """Whether the value has any use other than as the input of a single accumulation."""
        return self._given != 1

    def check_not_given(self) -> None:
        """Raise a `RuntimeError` if the value is an input of an accumulation, so that no other use is allowed."""
        if self._given is not None:
            raise RuntimeError(
                f"deferred {self.number}: was given to an accumulation, got another use of it; "
                "make what else needs it before that, or call a function of a list of all parts instead"
            )

    def let_go(self) -> None:
        """Record that an accumulation has processed the value. After the last accumulation, the value is released."""
        assert self._given is not None
        self._given -= 1
        if self._given == 0:
            self._value, self._version, self._work = PENDING, None, None

    def part(self, key: str | int, size: int) -> Deferred:
        """Return the attribute or the entry `key` of the value, as a Deferred with `size` scalars."""
        getter = operator.attrgetter(key) if isinstance(key, str) else operator.itemgetter(key)
        made: Deferred = self._graph.call(getter, self, size=size)
        return made

    # ---- arithmetic --------------------------------------------------------------------------------------------------

    def _made(self, function: Callable[[Any, Any], Any], first: Any, second: Any) -> Deferred:
        other = second if first is self else first
        if not isinstance(other, Deferred | int | float | np.generic):
            what = f"takes part in arithmetic with values and numbers, got a {type(other).__name__}"
            raise AlgorithmError(f"deferred {self.number}", what, "write fed.defer(function, ...) for anything else")
        size = max(self.size, other.size) if isinstance(other, Deferred) else self.size
        if isinstance(other, Deferred) and not {self.size, other.size} <= {1, size}:
            what = f"two values of different sizes do not go together, got {first.size} and {second.size} numbers"
            raise AlgorithmError(f"deferred {self.number}", what, "give values of one shape")
        made: Deferred = self._graph.call(function, first, second, size=size)
        return made

    def __add__(self, other: Any) -> Deferred:
        return self._made(operator.add, self, other)

    def __radd__(self, other: Any) -> Deferred:
        starts_a_sum = isinstance(other, int) and other == 0
        return self if starts_a_sum else self._made(operator.add, other, self)

    def __sub__(self, other: Any) -> Deferred:
        return self._made(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Deferred:
        return self._made(operator.sub, other, self)

    def __mul__(self, other: Any) -> Deferred:
        return self._made(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Deferred:
        return self._made(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Deferred:
        return self._made(operator.truediv, self, other)

    def __neg__(self) -> Deferred:
        return self._made(operator.mul, self, -1)

    def _no_value(self, *_: Any) -> Any:
        what = "steers the flow of the algorithm, got a value that is not computed yet"
        raise AlgorithmError(f"deferred {self.number}", what, "write fed.read(value)")

    __bool__ = __float__ = __int__ = __lt__ = __le__ = __gt__ = __ge__ = _no_value

    def __getattr__(self, name: str) -> Any:
        what = f"is computed later and has no such attribute, got .{name}"
        raise _AttributeError(f"deferred {self.number}", what, "write fed.defer(function, value), or fed.read(value)")

    def __repr__(self) -> str:
        return f"Deferred(number={self.number}, size={self.size}, {'done' if self.done else 'pending'})"


class _AttributeError(AlgorithmError, AttributeError):
    """Error for a Deferred that is used like a tensor before its value is computed."""


def deferreds_in(items: tuple[Any, ...] | list[Any]) -> list[Deferred]:
    """Return all Deferreds among the items, including those in nested tuples and lists."""
    found: list[Deferred] = []
    for item in items:
        if type(item) is Deferred:
            found.append(item)
        elif isinstance(item, (tuple, list)):
            found += deferreds_in(item)
    return found


def replaced(items: Any, by: Callable[[Deferred], Any]) -> Any:
    """Return a tuple or list in which each Deferred x, also in nested tuples and lists, is replaced by `by(x)`."""
    found = [
        by(item) if type(item) is Deferred else replaced(item, by) if isinstance(item, (tuple, list)) else item
        for item in items
    ]
    if isinstance(items, list):
        return found
    return type(items)(*found) if hasattr(items, "_fields") else tuple(found)


def values_of(items: Any) -> Any:
    """Return a tuple or list in which all Deferreds, also in nested tuples and lists, are replaced by their values."""
    return replaced(items, _value_of)


_value_of = operator.attrgetter("value")
