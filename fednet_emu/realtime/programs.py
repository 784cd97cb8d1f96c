"""Start and end of the programs of a live run in namespaces, and errors about unmet requirements of this machine."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from fednet_emu.errors import FednetError
from fednet_emu.host import GRACE_S
from fednet_emu.realtime import linux
from fednet_emu.realtime.packets import address

_MOST_BYTE = 1 << 17
_ANSWER_S = 30.0
_KEEPER = "import sys; sys.path.insert(0, sys.argv[2]); from fednet_emu.realtime.keeper import main; main()"


class Missing(FednetError):  # noqa: N818  (a property of the machine)
    """This machine cannot run scenarios live; the error text names the requirement that is not met."""


class Ended(NamedTuple):
    """A program that has ended, with its index and exit code.

    If a signal killed the program, `code` is minus the number of the signal.
    """

    program: int
    code: int


class Programs:
    """The namespaces of nodes, and the programs in them.

    Namespaces and programs end when the `with` block ends, or when this process ends.

    Attributes:
        ports: the file descriptor of the TUN device of each node.
        congestion: the congestion control of TCP in the namespaces.
        listening: the watched nodes in which a program listens.
        waited_ns: time in ns for which each program has waited for a processor.
    """

    def __init__(self, nodes: int, congestion: str | None = None) -> None:
        self.ports: dict[int, int] = {}
        self.congestion = ""
        self.listening: set[int] = set()
        self.waited_ns: dict[int, int] = {}
        self._nodes, self._chosen = nodes, congestion

    def __enter__(self) -> Self:
        if sys.platform != "linux":
            raise Missing(f"live: takes namespaces and TUN devices of Linux, got {sys.platform}; use a machine with it")
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_ANSWER_S)
        number = theirs.fileno()
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-c", _KEEPER, str(number), str(Path(__file__).parents[2])],
            pass_fds=[number],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            env=_given_environment(),
        )
        theirs.close()
        try:
            self._make()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End all programs and release the namespaces; repeated calls have no effect."""
        self._control.close()  # this ends the keeper
        try:
            self._keeper.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        for port in self.ports.values():
            os.close(port)
        self.ports = {}

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when the keeper has sent reports, which `news` processes."""
        return self._control.fileno()

    def start(
        self,
        program: int,
        command: Sequence[str],
        more: dict[str, str],
        output: Path,
        *,
        watch: bool,
        node: int | None = None,
    ) -> None:
        """Start a program in the namespace of a node, with additional environment variables `more`.

        By default, `node` is equal to the index `program`. If `watch` is True, the keeper reports once a program in the
        node listens at a TCP port.
        """
        where = program if node is None else node
        self._tell(program=program, node=where, command=list(command), more=more, output=str(output), watch=watch)

    def news(self) -> list[Ended]:
        """Process the reports of the keeper; return the programs that have ended.

        Raises:
            FednetError: the process that keeps the namespaces has ended.
        """
        ended: list[Ended] = []
        self._control.setblocking(False)
        try:
            while True:
                message = json.loads(self._control.recv(_MOST_BYTE) or b'{"gone": true}')
                if "gone" in message or "missing" in message:
                    raise self._gone()
                if "ended" in message:
                    ended.append(Ended(message["ended"], message["code"]))
                elif "listens" in message:
                    self.listening.add(message["listens"])
                else:
                    self.waited_ns.update({int(program): waited for program, waited in message["waited"].items()})
        except BlockingIOError:
            return ended
        except ConnectionError:
            raise self._gone() from None
        finally:
            self._control.settimeout(_ANSWER_S)

    def _make(self) -> None:
        user, group = programs_user()
        addresses = [address(node) for node in range(self._nodes)]
        self._tell(addresses=addresses, congestion=self._chosen, user=user, group=group)
        self._hear("unshared")
        try:
            linux.map_users(self._keeper.pid, {os.geteuid(), user}, {os.getegid(), group})
        except OSError as problem:
            raise _missing("users", problem.errno or 0, problem.strerror or "", None) from None
        self._tell(go=True)
        for _ in range(self._nodes):
            message, port = self._hear("node")
            os.set_blocking(port, False)
            self.ports[message["node"]], self.congestion = port, message["congestion"]
        self._hear("made")

    def _tell(self, **what: Any) -> None:
        try:
            self._control.send(json.dumps(what).encode())
        except TimeoutError:
            raise _silent() from None
        except ConnectionError:
            raise self._gone() from None

    def _gone(self) -> FednetError:
        try:
            code = f"exit code {self._keeper.wait(GRACE_S)}"
        except subprocess.TimeoutExpired:
            code = f"no exit code for {GRACE_S:g} s"
        return FednetError(f"live: the process that keeps the namespaces has ended, got {code}; start the run again")

    def _hear(self, what: str) -> tuple[dict[str, Any], int]:
        """Return the keeper's next message, which must have the key `what`, and its file descriptor (-1 if none)."""
        body, ports = b"", list[int]()
        try:
            body, ports, _, _ = socket.recv_fds(self._control, _MOST_BYTE, 1)
        except TimeoutError:
            raise _silent() from None
        except ConnectionError:  # the keeper ended before it read the request
            pass
        message = json.loads(body or b'{"missing": "keeper", "errno": 0, "why": "it has ended"}')
        if what not in message:
            raise _missing(message["missing"], message["errno"], message["why"], self._chosen)
        return message, ports[0] if ports else -1


def _silent() -> FednetError:
    what = f"the process that keeps the namespaces does not respond, got no message for {_ANSWER_S:g} s"
    return FednetError(f"live: {what}; start the run when this machine is less busy")


def _given_environment() -> dict[bytes, bytes]:
    """Return the environment variables with which this process was started; the programs inherit these variables."""
    pairs = (pair.partition(b"=") for pair in Path("/proc/self/environ").read_bytes().split(b"\0"))
    return {name: value for name, sign, value in pairs if sign}


def programs_user() -> tuple[int, int]:
    """Return user ID and group ID for the programs: the IDs of the caller of `sudo`, or else of this process."""
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        return int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", os.environ["SUDO_UID"]))
    return os.getuid(), os.getgid()


def _missing(step: str, number: int, why: str, congestion: str | None) -> Missing:
    """Return the error for a failed `step`; its text states the missing requirement of this machine, and a remedy."""
    if step == "tun" and congestion is not None and number in (errno.EPERM, errno.ENOENT, errno.EINVAL):
        known = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
        if congestion not in known:
            what = f"--tcp: the host does not allow this congestion control in namespaces, got {congestion}"
            return Missing(f"{what}; choose {', '.join(known)}")
    said = {
        "namespaces": ("the host lets this user make no namespaces", _NAMESPACES),
        "users": ("the users of a new namespace cannot be set", _NAMESPACES),
        "proc": ("/proc cannot be mounted in a namespace", "in a container, allow it (apparmor=unconfined, SYS_ADMIN)"),
        "tun": ("no TUN device can be made", "run it as root, or let users open /dev/net/tun (mode 0666; module tun)"),
        "keeper": ("the process that keeps the namespaces has ended", "look at its output"),
    }
    what, remedy = said[step]
    return Missing(f"live: {what}, got '{why.lower()}'; {remedy}")


_NAMESPACES = (
    "run it as root, allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu), or start "
    "the container with --cap-add SYS_ADMIN --cap-add NET_ADMIN --device /dev/net/tun"
)
