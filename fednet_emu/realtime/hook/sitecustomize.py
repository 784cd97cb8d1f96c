"""Patches of Flower (1.41 and later) in the processes of a live app; Python imports this file when a process starts.

The patches record when the `ServerApp` starts, ends, sends and receives, and the metrics of the strategy. They also
make a `ClientApp` as slow as its device in the scenario. Each record is a note, a line of JSON with a time of the
host's monotonic clock, which all namespaces share. This file imports only the standard library, so that processes start
without delay.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

_EXAMPLES = ("num-examples", "num_examples")


def note(what: str, **more: Any) -> None:
    """Append a JSON line to the file of notes: the event `what`, the host's time in ns, and the values `more`."""
    line = json.dumps({"what": what, "ns": time.monotonic_ns(), **more}, default=str)
    with open(os.environ["FEDNET_NOTES"], "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


# ---- the client ------------------------------------------------------------------------------------------------------


def _pad_client(module: Any) -> None:
    call = module.ClientApp.__call__

    def padded(self: Any, message: Any, context: Any) -> Any:
        began_ns = time.monotonic_ns()
        reply = call(self, message, context)
        own_s = (time.monotonic_ns() - began_ns) / 1e9
        kind = str(message.metadata.message_type)
        flop, wanted_s = _work(kind, reply)
        time.sleep(max(wanted_s - own_s, 0.0))
        note("compute", began_ns=began_ns, kind=kind, flop=flop, wanted_s=wanted_s, own_s=own_s)
        return reply

    module.ClientApp.__call__ = padded


def _work(kind: str, reply: Any) -> tuple[float, float]:
    """Return the number of operations for a reply, and the time in s that the device needs for it in the scenario."""
    known = json.loads(os.environ["FEDNET_WORK"])
    per_example = known["flop_per_example"].get(kind.partition(".")[0], 0.0)
    examples = _examples(reply) if per_example else 0.0
    flop = per_example * examples
    if not flop:
        return 0.0, 0.0
    notes = Path(os.environ["FEDNET_NOTES"])
    before = notes.read_text(encoding="utf-8").count("\n") if notes.exists() else 0
    factors = known["factors"]
    return flop, (known["overhead_s"] + flop / known["flop_per_s"]) * factors[before % len(factors)]


def _examples(reply: Any) -> float:
    records = reply.content.metric_records.values() if reply.has_content() else ()
    return next((float(record[name]) for record in records for name in _EXAMPLES if name in record), 0.0)


# ---- the server ------------------------------------------------------------------------------------------------------


def _watch_server(module: Any) -> None:
    call = module.ServerApp.__call__

    def watched(self: Any, grid: Any, context: Any) -> None:
        note("begin")
        try:
            call(self, grid, context)
        except BaseException:
            note("end", error=traceback.format_exc())
            raise
        note("end", error="")

    module.ServerApp.__call__ = watched


def _watch_grid(module: Any) -> None:
    push, pull = module.HttpGrid.push_messages, module.HttpGrid.pull_messages

    def pushed(self: Any, messages: Iterable[Any]) -> Any:
        every = list(messages)
        note("sent", count=Counter(_category(message) for message in every))
        return push(self, every)

    def pulled(self: Any, message_ids: Iterable[str]) -> Any:
        replies = list(pull(self, message_ids))
        if replies:
            note("got", count=Counter(_category(reply) for reply in replies if reply.has_content()))
        return replies

    module.HttpGrid.push_messages, module.HttpGrid.pull_messages = pushed, pulled


def _category(message: Any) -> str:
    return str(message.metadata.message_type).partition(".")[0]


def _watch_strategy(module: Any) -> None:
    start = module.Strategy.start

    def watched(self: Any, grid: Any, *args: Any, **options: Any) -> Any:
        self.aggregate_train = _noting(self.aggregate_train, "train", lambda result: result[1])
        self.aggregate_evaluate = _noting(self.aggregate_evaluate, "evaluate", lambda result: result)
        if options.get("evaluate_fn") is not None:
            options["evaluate_fn"] = _noting(options["evaluate_fn"], "central", lambda result: result)
        try:
            return start(self, grid, *args, **options)
        finally:
            del self.aggregate_train, self.aggregate_evaluate

    module.Strategy.start = watched


def _noting(function: Callable[..., Any], source: str, metrics_of: Callable[[Any], Any]) -> Callable[..., Any]:
    def noting(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        metrics = dict(metrics_of(result) or {})
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        if numbers:
            note("metrics", source=source, metrics=numbers)
        return result

    return noting


# ---- imports of Flower -----------------------------------------------------------------------------------------------

WATCHED = {
    "flwr.clientapp.client_app": _pad_client,
    "flwr.serverapp.server_app": _watch_server,
    "flwr.superlink.grid.http_grid": _watch_grid,
    "flwr.serverapp.strategy.strategy": _watch_strategy,
}
"""Modules of Flower that are patched, each with the function that patches the module after its import."""


class Watching(MetaPathFinder):
    """Import hook that finds the modules in `WATCHED` as Python does, and patches each module after its import."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Return an import specification that also patches the module, if it is in `WATCHED`; otherwise None."""
        change = WATCHED.get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if change is not None else None
        if change is not None and spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: Any) -> None:
                execute(module)
                change(module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


if "FEDNET_NOTES" in os.environ:
    sys.meta_path.insert(0, Watching())
    sys.path.remove(str(Path(__file__).parent))  # so that the environment's own `sitecustomize` is imported, too
    sys.modules.pop("sitecustomize", None)
    with suppress(ImportError):
        import_module("sitecustomize")
