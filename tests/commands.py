"""Commands as tests give them: in this process, or in one of their own that need not import everything anew.

A new interpreter takes seconds to import the package. A process forked from one that has imported it takes none.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import warnings
from collections.abc import Mapping
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner, Result
from typer.main import get_command

from fednet_emu.cli.app import app
from fednet_emu.host import clean_context, main_left_out
from fednet_emu.study.runners import THREADS

LIMIT_S = 600.0
"""More than any host needs for what tests wait for; without it a hang would never end."""

OTHER_SEED = "0" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
"""A hash seed for another process, which this one has by chance only."""

_COMMAND = get_command(app)
"""Made once: it takes longer than most commands."""


def fednet(*words: object, **environment: str) -> Result:
    return CliRunner().invoke(_COMMAND, [str(word) for word in words], env=environment, prog_name="fednet")


class Forked:
    """Python with arguments as of the interpreter: `-c CODE`, `-m MODULE` or a file, and what the program is given.

    The process is forked from the one that sweeps fork their cells from, which has imported the package. It begins in
    the folder `cwd`, with this process's environment and `environment`, and its warnings are errors.

    Attributes:
        stdout: what it has written to its standard output, once it has ended.
        stderr: what it has written to its standard error, once it has ended.
    """

    def __init__(self, *arguments: object, cwd: Path | None = None, **environment: str) -> None:
        context = clean_context("fednet_emu.study.fork_server")
        (self._stdout, stdout), (self._stderr, stderr) = (context.Pipe(duplex=False) for _ in range(2))
        words, folder = [str(word) for word in arguments], str(cwd or Path.cwd())
        args = (words, folder, {**os.environ, **environment}, stdout, stderr)
        self._process = context.Process(target=_begin, args=args)
        with patch.dict(os.environ, dict.fromkeys(THREADS, "1")), main_left_out():
            self._process.start()
        stdout.close()
        stderr.close()
        self.stdout = self.stderr = ""

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the signal that has killed the process, or None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def ended(self) -> Forked:
        """Wait until the process has ended."""
        read: dict[Any, bytes] = {self._stdout: b"", self._stderr: b""}
        while open_ones := [pipe for pipe in read if not pipe.closed]:
            ready = connection.wait(open_ones, LIMIT_S)
            if not ready:
                self.kill()
                raise TimeoutError(f"the process says nothing for {LIMIT_S:g} s")
            for pipe in ready:
                text = os.read(pipe.fileno(), 1 << 16)
                read[pipe] += text
                if not text:
                    pipe.close()
        self._process.join(LIMIT_S)
        if self.returncode is None:
            self.kill()
            raise TimeoutError(f"the process has closed its outputs, but has not ended after {LIMIT_S:g} s")
        self.stdout, self.stderr = (text.decode() for text in read.values())
        return self


def _begin(arguments: list[str], cwd: str, environment: Mapping[str, str], *streams: Connection) -> None:
    """Be Python with these arguments and output streams; this is the main function of a forked process."""
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream.fileno(), number)
        stream.close()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the server may have been started for workers
    warnings.simplefilter("error")
    try:
        _run(*arguments)
    except KeyboardInterrupt:  # the interpreter would end itself by this signal
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def _run(first: str, *rest: str) -> None:
    if first == "-c":
        code, *rest = rest
        sys.argv = ["-c", *rest]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        module, *rest = rest
        sys.argv = [module, *rest]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")
