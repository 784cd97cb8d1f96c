"""The keeper: the process that owns the namespaces of a live run, and starts the programs in them.

The keeper and the `fednet` command exchange JSON messages over a socket. The keeper itself only enters a user, a mount
and a PID namespace. Its child is the first process of the PID namespace; it makes a network namespace with a TUN device
for each node, and starts the programs. All these processes end when the command ends for any reason: the kernel kills
the keeper when the command dies, the child when the keeper dies, and all processes of the PID namespace when the child
dies. The child also ends when the socket is closed. Namespaces and TUN devices have no names, so that the kernel
removes them with the last process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from fednet_emu.realtime import linux

_GLANCE_S = 0.05
_WAITS_EVERY = 4
_LISTENS = "0A"
_NOT_STARTED = 127
_MOST_BYTE = 1 << 17


def main() -> None:
    """Run the keeper; its first argument is the descriptor of the socket to the command that started it."""
    os.set_inheritable(int(sys.argv[1]), False)
    control = socket.socket(fileno=int(sys.argv[1]))
    with suppress(ConnectionError):  # raised when the command has ended
        _keep(control)


def _keep(control: socket.socket) -> None:
    plan = _heard(control)
    host_net = os.readlink("/proc/self/ns/net")
    try:
        linux.unshare(linux.NEW_USERS | linux.NEW_MOUNTS | linux.NEW_PIDS)
        linux.die_with_parent()  # after `unshare`, because new credentials reset this setting
        _say(control, unshared=True)
        _heard(control)
        child = os.fork()
    except ConnectionError:
        raise
    except OSError as problem:
        _say(control, missing="namespaces", errno=problem.errno, why=problem.strerror)
        return
    if not child:
        linux.die_with_parent()
        _Keeper(control, plan, host_net).serve()
    control.close()
    os.waitpid(child, 0)


def _heard(control: socket.socket) -> dict[str, Any]:
    """Wait for the next request of the `fednet` command and return it.

    Raises:
        ConnectionError: the command has ended.
    """
    message = control.recv(_MOST_BYTE)
    if not message:
        raise ConnectionResetError
    told: dict[str, Any] = json.loads(message)
    return told


def _say(control: socket.socket, **what: Any) -> None:
    control.send(json.dumps(what).encode())


class _Keeper:
    """The first process of the PID namespace, which creates the nodes and starts the programs.

    Args:
        control: the socket to the command.
        plan: the addresses of the nodes, the congestion control of TCP, and the user and group of the programs.
        host_net: the network namespace of the host.
    """

    def __init__(self, control: socket.socket, plan: dict[str, Any], host_net: str) -> None:
        self._control, self._plan, self._host_net = control, plan, host_net
        self._nets: list[int] = []
        self._program: dict[int, int] = {}  # index of each program, by process ID
        self._watched: int | None = None  # node in which a program is expected to listen at a TCP port
        self._glances = 0

    def serve(self) -> NoReturn:
        """Create the nodes, and execute requests of the command until the command ends."""
        step = "proc"
        with suppress(ConnectionError):
            try:
                linux.mount_proc()
                for node, address in enumerate(self._plan["addresses"]):
                    step = "tun"
                    self._make(node, address)
                step = "proc"
                linux.forbid_settings()
                _say(self._control, made=len(self._nets))
                while True:
                    asked, _, _ = select.select([self._control], [], [], _GLANCE_S)
                    if asked:
                        self._start(**_heard(self._control))
                    self._look()
            except ConnectionError:
                raise
            except OSError as problem:
                _say(self._control, missing=step, errno=problem.errno, why=problem.strerror)
        os._exit(0)

    def _make(self, node: int, address: str) -> None:
        linux.unshare(linux.NEW_NET)
        if os.readlink("/proc/self/ns/net") == self._host_net:
            raise OSError(0, "a new network namespace is that of the host")
        self._nets.append(os.open("/proc/self/ns/net", os.O_RDONLY))
        tun = linux.open_tun()
        congestion = linux.configure(address, self._plan["congestion"])
        socket.send_fds(self._control, [json.dumps({"node": node, "congestion": congestion}).encode()], [tun])
        os.close(tun)

    def _start(
        self, program: int, node: int, command: list[str], more: dict[str, str], output: str, *, watch: bool
    ) -> None:
        """Start a program in the namespace of a node. If `watch`, report when a program in the namespace listens."""
        process = os.fork()
        if process:
            self._program[process] = program
            self._watched = node if watch else self._watched
            return
        try:
            file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(file, 1)
            os.dup2(file, 2)
            linux.enter(self._nets[node])
            os.setsid()
            linux.give_up_privileges(self._plan["user"], self._plan["group"])
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execvpe(command[0], command, {**os.environ, **more})
        except OSError as problem:
            os.write(2, f"{command[0]}: cannot be started ({problem.strerror})\n".encode())
        os._exit(_NOT_STARTED)

    def _look(self) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not process:
                break
            if process in self._program:
                _say(self._control, ended=self._program.pop(process), code=os.waitstatus_to_exitcode(status))
        if self._watched is not None and self._listens(self._watched):
            _say(self._control, listens=self._watched)
            self._watched = None
        self._glances += 1
        if self._program and self._glances % _WAITS_EVERY == 0:
            _say(self._control, waited={str(own): _waited_ns(process) for process, own in self._program.items()})

    def _listens(self, node: int) -> bool:
        linux.enter(self._nets[node])
        sockets = [line for name in ("tcp", "tcp6") for line in _lines(Path("/proc/thread-self/net") / name)]
        return any(line.split()[3] == _LISTENS for line in sockets)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:] if path.exists() else []


def _waited_ns(process: int) -> int:
    """Return the total time in ns for which the threads of a process have waited for a processor; 0 if it has ended."""
    total = 0
    try:
        for thread in Path(f"/proc/{process}/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return total
    return total
