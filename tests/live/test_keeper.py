"""The process that keeps the namespaces ends by itself, and silently, at whatever moment its command ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from fednet_emu.errors import FednetError
from fednet_emu.realtime.programs import _KEEPER, Programs
from tests.live.conftest import ROOT

PLAN = {"addresses": ["10.77.0.1"], "congestion": None, "user": os.getuid(), "group": os.getgid()}


@pytest.mark.parametrize("moment", ["nothing said", "plan said", "answer heard", "told to go on"])
def test_a_command_that_is_gone_is_no_error(moment: str) -> None:
    """Exit code 0 and no traceback; where this machine makes no namespaces the answer says so, and it ends, too."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its, mine:
        keeper = subprocess.Popen(
            [sys.executable, "-P", "-c", _KEEPER, str(its.fileno()), str(ROOT)],
            pass_fds=[its.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        its.close()
        if moment != "nothing said":
            mine.send(json.dumps(PLAN).encode())
        if moment in ("answer heard", "told to go on"):
            answer = json.loads(mine.recv(1 << 16))
            if moment == "told to go on" and "unshared" in answer:
                mine.send(b"{}")
    _, said = keeper.communicate()
    assert (keeper.returncode, said) == (0, "")


GONE = "the process that keeps the namespaces has ended, got exit code 3; start the run again"


@pytest.mark.parametrize("does", [lambda programs: programs._tell(go=True), Programs.news], ids=["tell", "news"])
def test_a_keeper_that_is_gone_is_told_in_a_sentence(does: Callable[[Programs], object]) -> None:
    """With its exit code; also to a command that would only say something."""
    programs = Programs(1)
    programs._keeper = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    programs._control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    its.close()
    with programs._control, pytest.raises(FednetError, match=GONE):
        does(programs)


def _say_much(programs: Programs) -> None:
    while True:
        programs._tell(command=["x" * 10_000])


@pytest.mark.parametrize("does", [_say_much, lambda programs: programs._hear("made")], ids=["tell", "hear"])
def test_a_keeper_that_is_silent_is_told_in_a_sentence(does: Callable[[Programs], object]) -> None:
    """The keeper reads no further commands, or sends no answer."""
    programs = Programs(1)
    programs._control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    programs._control.settimeout(0.05)
    silent = "says nothing, got no word for 30 s; start the run when this machine is less busy"
    with its, programs._control, pytest.raises(FednetError, match=silent):
        does(programs)
