"""Patches for Flower's classic interface (`flwr.server.strategy`, `Client`, `NumPyClient`) in its compatibility layer.

Flower's compatibility layer sends one message per client from a pool of threads, and registers clients in another
thread. The patches replace both: calls to the clients of a round run in greenlets, whose messages are sent together,
and clients are registered whenever the server asks for clients. Flower still converts all messages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flwr.app import Message
from greenlet import getcurrent, greenlet

from fednet_emu.flower.grid import EmulatedGrid
from fednet_emu.flower.host import StandIn, StandIns
from fednet_emu.flower.scores import telling

LOOK_S = 1.0
"""Interval in simulated s at which the server checks for new clients, as in the strategies of the message interface."""


def at_once(grid: EmulatedGrid, calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the functions `calls` concurrently, and return the result or exception of each, in the order of `calls`.

    Each call may send messages and wait for their replies once. The messages of all calls are sent together.
    """
    branches = [greenlet(_ended(call)) for call in calls]
    grid.together = _handed_up
    try:
        sent: list[list[Message]] = [branch.switch() for branch in branches]
    finally:
        grid.together = None
    asking = [(branch, messages) for branch, messages in zip(branches, sent, strict=True) if not branch.dead]
    replies = grid.send_and_receive([message for _, messages in asking for message in messages])
    answers = {reply.metadata.reply_to_message_id: reply for reply in replies}
    ends = dict(zip(branches, sent, strict=True))
    for branch, messages in asking:
        numbers = [message.metadata.message_id for message in messages]
        ends[branch] = branch.switch([answers[number] for number in numbers if number in answers])
    return list(ends.values())


def _handed_up(messages: list[Message]) -> list[Message]:
    replies: list[Message] = getcurrent().parent.switch(messages)
    return replies


def _ended(call: Callable[[], Any]) -> Callable[[], Any]:
    def end() -> Any:
        try:
            return call()
        except Exception as error:
            return error

    return end


def _sorted_out(grid: EmulatedGrid, clients: Sequence[Any], calls: Sequence[Callable[[], Any]]) -> tuple[Any, Any]:
    """Run `calls`, and return their results and their failures as two lists in the format of Flower's server."""
    results: list[Any] = []
    failures: list[Any] = []
    grid.scores.in_strategy = True
    for client, end in zip(clients, at_once(grid, calls), strict=True):
        if isinstance(end, BaseException):
            failures.append(end)
        else:
            (results if end.status.code.value == 0 else failures).append((client, end))
    return results, failures


def _asking(what: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    def ask(client_instructions: Any, max_workers: int | None, timeout: float | None, group_id: int) -> Any:
        clients = [client for client, _ in client_instructions]
        grid = getattr(clients[0], "grid", None) if clients else None
        if not isinstance(grid, EmulatedGrid):
            return theirs(client_instructions, max_workers, timeout, group_id)
        calls = [
            lambda client=client, ins=ins: getattr(client, what)(ins, timeout=timeout, group_id=group_id)
            for client, ins in client_instructions
        ]
        return _sorted_out(grid, clients, calls)

    return ask


# ---- registration ----------------------------------------------------------------------------------------------------


def _registering(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `start_update_client_manager_thread`, which updates the clients without a thread.

    The clients are updated whenever the client manager is queried.
    """

    def register(grid: Any, client_manager: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(grid, EmulatedGrid):
            return theirs(grid, client_manager, *args, **options)
        _Register(grid, client_manager).watch()
        thread, stop, done = threading.Thread(target=bool), threading.Event(), threading.Event()
        thread.start()
        done.set()
        return thread, stop, done

    return register


class _Register:
    """Keeps the clients of a client manager equal to the available nodes, and waits for clients in simulated time."""

    def __init__(self, grid: EmulatedGrid, manager: Any) -> None:
        self._grid, self._manager = grid, manager
        self._proxies: dict[int, Any] = {}

    def watch(self) -> None:
        """Update the client manager now, and patch its methods so that they first update the clients."""
        self._look()
        for name in ("num_available", "all"):
            setattr(self._manager, name, self._looking(getattr(self._manager, name)))
        self._manager.wait_for = self._wait_for
        self._manager.sample = self._sampling(self._manager.sample)

    def _look(self) -> None:
        from flwr.server.compat.grid_client_proxy import GridClientProxy

        there = self._grid.get_node_ids()
        for node in [node for node in self._proxies if node not in there]:
            self._manager.unregister(self._proxies.pop(node))
        for node in there:
            if node not in self._proxies:
                self._proxies[node] = GridClientProxy(node_id=node, grid=self._grid, run_id=self._grid.run.run_id)
                self._manager.register(self._proxies[node])

    def _looking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def looking(*args: Any, **options: Any) -> Any:
            self._look()
            return method(*args, **options)

        return looking

    def _wait_for(self, num_clients: int, timeout: float = 86_400) -> bool:
        for _ in range(int(timeout / LOOK_S)):
            self._look()
            if len(self._proxies) >= num_clients:
                return True
            self._grid.sleep(LOOK_S)
        return False

    def _sampling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def sample(num_clients: int, min_num_clients: int | None = None, criterion: Any = None) -> Any:
            self._wait_for(num_clients if min_num_clients is None else min_num_clients)
            return method(num_clients, min_num_clients, criterion)

        return sample


# ---- metrics ---------------------------------------------------------------------------------------------------------


def _noting(evaluate_round: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `Server.evaluate_round` that also records the metrics that the strategy aggregates."""

    def noting(self: Any, server_round: int, timeout: float | None) -> Any:
        result = evaluate_round(self, server_round, timeout)
        _tell(self, "evaluate", result)
        return result

    return noting


def _noting_fit(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `Server.fit` that also records metrics of the strategy's evaluations on the server."""

    def noting(self: Any, num_rounds: int, timeout: float | None) -> Any:
        with telling(self.strategy, {"evaluate": lambda result: _tell(self, "central", result)}):
            return fit(self, num_rounds, timeout)

    return noting


def _tell(server: Any, what: str, result: Any) -> None:
    """Record the loss and the metrics that a strategy has returned, if it has returned any."""
    if result is None:
        return
    loss, metrics = result[:2]
    proxies = list(server.client_manager().all().values())
    scores = getattr(getattr(proxies[0], "grid", None), "scores", None) if proxies else None
    if scores is not None:
        scores.summed_up(what, {**({} if loss is None else {"loss": loss}), **metrics})


def _classic() -> Iterator[StandIn]:
    """Yield the patches of Flower's classic server, each as the object to patch and its replacement."""
    from flwr.server import server
    from flwr.server.compat import app

    yield StandIn(server, "fit_clients", _asking("fit", server.fit_clients))
    yield StandIn(server, "evaluate_clients", _asking("evaluate", server.evaluate_clients))
    registering = _registering(app.start_update_client_manager_thread)
    yield StandIn(app, "start_update_client_manager_thread", registering)
    yield StandIn(server.Server, "evaluate_round", _noting(server.Server.evaluate_round))
    yield StandIn(server.Server, "fit", _noting_fit(server.Server.fit))


CLASSIC = StandIns(_classic)
