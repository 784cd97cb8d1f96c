"""Records of metrics that clients and strategies report: evaluations, evaluations per device, and series."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

from flwr.app import Message, MetricRecord
from flwr.serverapp.strategy import Strategy

from fednet_emu.federation import Federation
from fednet_emu.flower.host import StandIn, StandIns
from fednet_emu.flower.post import Turns
from fednet_emu.flower.versions import FIRST_NODE
from fednet_emu.flower.work import EXAMPLES
from fednet_emu.records.rows import DeviceEvaluationRow

_PLACES = ("", "eval_", "test_", "val_", "valid_", "validation_", "evaluate_", "centralized_", "central_", "server_")
ACCURACY = frozenset(f"{place}{name}" for place in _PLACES for name in ("accuracy", "acc"))
LOSS = frozenset(f"{place}loss" for place in _PLACES)
"""Common names of the metrics accuracy and loss in apps, in lower case with underscores."""

Metrics = Mapping[str, Any]


@final
class Scores:
    """Records the metrics of an app.

    Attributes:
        in_strategy: True while a strategy of Flower runs; the strategy then aggregates the metrics of clients.
    """

    def __init__(self, fed: Federation, turns: Turns) -> None:
        self._fed, self._turns = fed, turns
        self.in_strategy = False
        self._central = False

    def replies(self, replies: Sequence[Message]) -> None:
        """Record the metrics in replies of clients and, unless a strategy is running, their mean as an evaluation."""
        evaluated = []
        for reply in replies:
            if reply.has_content():
                metrics = _metrics(reply)
                device = int(reply.metadata.src_node_id) - FIRST_NODE
                self._series("client_metrics", metrics, device=device, message=str(reply.metadata.message_type))
                if str(reply.metadata.message_type).partition(".")[0] == "evaluate":
                    evaluated.append(metrics)
                    self._of_device(device, metrics)
        if evaluated and not self.in_strategy:
            self._report(_mean(evaluated))

    def summed_up(self, what: str, metrics: Metrics | None) -> None:
        """Record a strategy's metrics: aggregates (`what` is `train` or `evaluate`), or measurements on the server.

        For measurements on the server, `what` is `central`.
        """
        if not metrics:
            return
        self._series("server_metrics", metrics, source=what)
        self._central = self._central or what == "central"
        if what == ("central" if self._central else "evaluate"):
            self._report(metrics)

    def _series(self, series: str, metrics: Metrics, **key: Any) -> None:
        at = {"round": self._turns.number, "simulated_s": self._fed.now_s}
        for name, value in metrics.items():
            if isinstance(value, int | float):
                self._fed.ledger.record(series, **at, **key, metric=name, value=float(value))

    def _of_device(self, device: int, metrics: Metrics) -> None:
        loss, accuracy = found(metrics, LOSS), found(metrics, ACCURACY)
        if loss is not None or accuracy is not None:
            scores = (float("nan") if score is None else score for score in (loss, accuracy))
            row = DeviceEvaluationRow(self._turns.number, device, int(_examples(metrics)), *scores)
            self._fed.ledger.device_evaluations.append(row)

    def _report(self, metrics: Metrics) -> None:
        loss, accuracy = found(metrics, LOSS), found(metrics, ACCURACY)
        if loss is not None or accuracy is not None:
            self._fed.report(self._turns.number, loss=loss, accuracy=accuracy)


def found(metrics: Metrics, names: frozenset[str]) -> float | None:
    """Return the first metric whose name is in `names`, regardless of case and of - or _; None if no name matches."""
    return next(
        (
            float(value)
            for key, value in metrics.items()
            if key.lower().replace("-", "_") in names and isinstance(value, int | float)
        ),
        None,
    )


def _metrics(reply: Message) -> dict[str, Any]:
    records = reply.content.items()
    parts = [its for key, its in records if key.endswith("res.metrics") or isinstance(its, MetricRecord)]
    return {key: value for part in parts for key, value in part.items()}


def _examples(metrics: Metrics) -> float:
    return next((float(metrics[name]) for name in EXAMPLES if name in metrics), 0.0)


def _mean(each: Sequence[Metrics]) -> dict[str, float]:
    """Return the mean of each metric that all clients report, weighted by numbers of examples if all state them."""
    weights = list(map(_examples, each))
    if not all(weights):
        weights = [1.0] * len(each)
    common = [key for key, value in each[0].items() if isinstance(value, int | float)]
    return {
        key: sum(w * metrics[key] for w, metrics in zip(weights, each, strict=True)) / sum(weights)
        for key in common
        if all(isinstance(metrics.get(key), int | float) for metrics in each)
    }


# ---- strategies ------------------------------------------------------------------------------------------------------


def _observed(start: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `Strategy.start` that also records the strategy's metrics in the grid's `Scores`."""
    signature = inspect.signature(start)

    def observed_start(self: Any, grid: Any, *args: Any, **options: Any) -> Any:
        scores = getattr(grid, "scores", None)
        if not isinstance(scores, Scores):
            return start(self, grid, *args, **options)
        bound = signature.bind(self, grid, *args, **options)
        evaluate = bound.arguments.get("evaluate_fn")
        if evaluate is not None:
            bound.arguments["evaluate_fn"] = _recorded(evaluate, lambda result: scores.summed_up("central", result))
        tellers: dict[str, Callable[[Any], None]] = {
            "aggregate_train": lambda result: scores.summed_up("train", result[1]),
            "aggregate_evaluate": lambda result: scores.summed_up("evaluate", result),
        }
        before, scores.in_strategy = scores.in_strategy, True
        try:
            with telling(self, tellers):
                return start(*bound.args, **bound.kwargs)
        finally:
            scores.in_strategy = before

    return observed_start


@contextmanager
def telling(strategy: Any, tellers: Mapping[str, Callable[[Any], None]]) -> Iterator[None]:
    """Inside the `with` block, pass each result of the strategy's method `name` to the function `tellers[name]`."""
    own = {name: vars(strategy)[name] for name in tellers if name in vars(strategy)}
    for name, tell in tellers.items():
        setattr(strategy, name, _recorded(getattr(strategy, name), tell))
    try:
        yield
    finally:
        for name in tellers:
            delattr(strategy, name)
        vars(strategy).update(own)


def _recorded(function: Callable[..., Any], record: Callable[[Any], None]) -> Callable[..., Any]:
    def recording(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        record(result)
        return result

    return recording


STRATEGIES = StandIns(lambda: [StandIn(Strategy, "start", _observed(Strategy.start))])
