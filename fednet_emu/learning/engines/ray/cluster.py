"""Connection to a Ray cluster. Ray is imported only when a run uses it."""

from __future__ import annotations

import importlib
import socket
from typing import Any

from fednet_emu.errors import FednetError

_ANSWER_S = 10.0


def connected(where: str, address: str | None, cpus: int | None) -> Any:
    """Connect to the Ray cluster at `address`, and return the module `ray`.

    The address `auto` stands for the cluster that runs on this machine, and None starts a new cluster. A new cluster
    has `cpus` CPUs, or all CPUs if `cpus` is None. `where` is the name of the setting in error messages.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise FednetError(f"{where}: Ray is not installed; pip install 'fednet-emu[ray]'") from error
    here = {"address": "local", "num_cpus": cpus, "include_dashboard": False}  # even if a cluster already runs here
    options: dict[str, Any] = {"address": address} if address else here
    try:
        if address and address != "auto":
            _knock(address)
        ray.init(log_to_driver=False, logging_level="error", ignore_reinit_error=True, **options)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FednetError(f"{where}: no cluster can be used, got '{reason}'; check the address") from error
    return ray


def _knock(address: str) -> None:
    """Raise an `OSError` if no server responds at `address`, because Ray itself would wait for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{address} is no host:port")
    try:
        socket.create_connection((host, int(port)), _ANSWER_S).close()
    except OSError as error:
        raise OSError(f"no cluster responds at {address}: {error}") from error
