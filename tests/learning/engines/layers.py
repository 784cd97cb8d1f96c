"""Layers that other processes cannot use; they import this module quickly, and one of tests in half a second."""

from __future__ import annotations

import os
import signal
from multiprocessing import parent_process

from torch import nn


class Deadly(nn.Linear):
    """A layer that ends any process but the one of the test."""

    def forward(self, x):
        if parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x.flatten(1))


class Picky(nn.Linear):
    """A layer that no other process can load, or run."""

    def __init__(self, *, loads):
        super().__init__(64, 5)
        self.loads = loads

    def __setstate__(self, state):
        super().__setstate__(state)
        self.check(ok=state["loads"])

    def forward(self, x):
        self.check(ok=not self.loads)
        return super().forward(x.flatten(1))

    def check(self, *, ok):
        if not ok and parent_process() is not None:
            raise OSError("not in this process")
