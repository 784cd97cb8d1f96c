"""What is wrong with a cluster is told without one."""

import socket
import sys
from types import SimpleNamespace

import pytest

from fednet_emu.errors import FednetError
from fednet_emu.learning.engines.ray.cluster import connected


def test_an_address_is_tried_before_ray_waits_for_it(monkeypatch):
    """Ray itself is not asked to connect to a port that is closed, nor to what is no address."""
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=lambda **_: pytest.fail("asked")))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(FednetError, match=f"x: no cluster can be used, got 'nobody answers at {address}"):
            connected("x", address, None)
    with pytest.raises(FednetError, match="got 'nowhere:nothing is no host:port'; check the address"):
        connected("x", "nowhere:nothing", None)
