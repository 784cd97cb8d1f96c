"""Reductions, such as sums of models, that process their inputs one at a time to avoid storing all of them at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, final

from fednet_emu.learning.graph.deferred import LATER, PENDING, Deferred, values_of

Accumulation = Generator[None, Any, Any]
"""Generator that reduces a sequence of inputs, called parts, to one result, such as the sum of models. Each `(yield)`
receives the next part, and the return value of the generator is the result. Write `total.add_((yield))`, because a
variable for a part would keep the part in memory until the next one is received."""


_F = TypeVar("_F", bound=Callable[..., Accumulation])

_OF_MEANS: list[Any] = []


def of_means(function: _F) -> _F:
    """Mark an accumulation f(w, weights, ...) as a function of the weighted mean of its inputs (decorator).

    Several inputs may then be replaced by their weighted mean, with the sum of their weights. The model `w` is the one
    to which the inputs are added, and `weights` has the weight of each input. Functions among the other arguments must
    have this decorator, too.
    """
    _OF_MEANS.append(function)
    return function


def accumulated(accumulation: Accumulation, parts: Iterable[Any]) -> Any:
    """Run an accumulation on the values `parts`, and return its result.

    A `ValueError` is raised if the generator requests fewer or more values than `parts` has.
    """
    running = _Running(accumulation)
    for part in parts:
        running.add(part)
    return running.result()


class _Running:
    """State of a running accumulation: its generator, the number of inputs it has received, and finally its result."""

    def __init__(self, accumulation: Accumulation) -> None:
        if not isinstance(accumulation, Generator):
            raise TypeError(f"accumulate: not a generator, got {accumulation!r}; request each part with `yield`")
        self._accumulation = accumulation
        self._added, self._over, self._result = -1, False, None
        self.add(None)  # run up to the first `yield`

    def add(self, part: Any) -> None:
        if self._over:
            raise ValueError(f"accumulate: over after {self._added} parts, got another; make one `yield` for each")
        self._over = True  # also after an error
        try:
            self._accumulation.send(part)
            self._over = False
        except StopIteration as end:
            self._result = end.value
        self._added += 1

    def result(self) -> Any:
        if not self._over:
            raise ValueError(f"accumulate: requests more parts, got all {self._added} parts; make one `yield` for each")
        return self._result


class AsMean(NamedTuple):
    """The inputs of an accumulation in which any group of inputs may be replaced by its weighted mean.

    `w` is the model to which the inputs `parts` are added. `weights` has the weight of each input.
    """

    w: Deferred
    weights: Sequence[float]
    parts: list[Deferred]


@final
class Accumulate:
    """The computation of a Deferred by an accumulation, which processes its inputs (parts) one at a time.

    A part is processed as soon as its value and those of all earlier parts are known.
    """

    def __init__(self, function: Callable[..., Accumulation], args: tuple[Any, ...], parts: Sequence[Deferred]) -> None:
        self.function, self.args, self.parts = function, args, deque(parts)
        self.known: list[Deferred] = []  # counterparts of parts in the postponed graph
        self._running: _Running | None = None

    @property
    def has_begun(self) -> bool:
        return self._running is not None

    @property
    def waits_for(self) -> Deferred:
        return self.parts[0]

    def as_mean(self) -> AsMean | None:
        """Return the inputs and weights if groups of inputs may be replaced by their weighted mean; None otherwise.

        The result is None, for example, if another computation uses an input, or if `w` is not known yet.
        """
        functions = [self.function, *filter(callable, self.args)]
        if self.has_begun or not self.parts or any(all(own is not one for one in _OF_MEANS) for own in functions):
            return None
        w, weights = self.args[:2]
        may_be = w.done and not any(part.is_shared for part in self.parts)
        return AsMean(w, weights, list(self.parts)) if may_be else None

    def put_together(self, groups: Sequence[Sequence[int]]) -> None:
        """Replace each group of inputs by its first input, with the sum of the weights in the group.

        Each group lists indices of inputs. The caller must set the group's first input to the weighted mean.
        """
        w, weights, *others = self.args
        self.args = (w, [sum(weights[place] for place in group) for group in groups], *others)
        parts = list(self.parts)
        self.parts = deque(parts[group[0]] for group in groups)
        for group in groups:
            for place in group[1:]:
                parts[place].let_go()

    def advance(self) -> Any:
        """Process the inputs whose values are known; return the result, or `PENDING` if an input is not known."""
        parts = self.parts
        if parts and not parts[0].done:
            return PENDING  # do not begin before the first part is known
        running = self._run()
        while parts:
            if parts[0]._value is PENDING:
                return PENDING
            running.add(parts[0].value)
            parts.popleft().let_go()
        return running.result()

    def put_off(self, counterpart: Callable[[Deferred], Deferred]) -> Any:
        """Store for each input the corresponding node in the graph of postponed computations.

        The function `counterpart` returns this node. The result is `LATER` if all inputs are stored, and `PENDING` if
        the next input is still pending.
        """
        while self.parts:
            part = self.parts[0]
            if part._value is PENDING:
                return PENDING
            known = counterpart(part)
            known._given = part._given if known._given is None else known._given
            self.known.append(known)
            self.parts.popleft().let_go()
        return LATER

    def postponed(self, args: tuple[Any, ...]) -> Accumulate:
        """Return a copy of this accumulation for the graph of postponed computations, with the arguments `args`."""
        return Accumulate(self.function, args, self.known)

    def take_back(self) -> None:
        """Use the stored nodes of the graph of postponed computations as inputs. Their values must be known."""
        self.parts.extendleft(reversed(self.known))
        self.known = []

    def _run(self) -> _Running:
        if self._running is None:
            self._running = _Running(self.function(*values_of(self.args)))
        return self._running
