"""Linux system calls of live mode that Python 3.11 lacks: for namespaces, TUN devices and privileges.

This module imports only the standard library, so that the process that keeps the namespaces starts quickly.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import signal
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

NEW_MOUNTS, NEW_USERS, NEW_PIDS, NEW_NET = 0x20000, 0x10000000, 0x20000000, 0x40000000
INTERFACE = "fed0"
MTU_BYTE = 1500

_PRIVATE = 1 << 18 | 1 << 14  # MS_PRIVATE, MS_REC
_NO_SUID_DEV_EXEC = 2 | 4 | 8
_BIND_ALL, _READ_ONLY = 1 << 12 | 1 << 14, 1 << 5 | 1 << 12 | 1  # MS_BIND, MS_REC; MS_REMOUNT, MS_BIND, MS_RDONLY
_PARENT_DEATH_SIGNAL, _DROP_BOUNDING, _TIMER_SLACK, _NO_NEW_PRIVILEGES = 1, 24, 29, 38
_SET_INTERFACE, _TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
_SET_FLAGS, _SET_ADDRESS, _SET_MASK, _SET_MTU = 0x8914, 0x8916, 0x891C, 0x8922
_UP = 1
_CAPABILITIES = 64

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int | bytes | None) -> None:
    if getattr(_libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def unshare(which: int) -> None:
    """Enter new namespaces of the kinds `which`; a new PID namespace begins with the next child of this process."""
    _call("unshare", which)


def enter(namespace: int) -> None:
    """Enter the network namespace to which the file descriptor `namespace` refers."""
    _call("setns", namespace, NEW_NET)


def mount_proc() -> None:
    """Mount /proc again, so that it shows only the processes of this PID namespace."""
    _call("mount", b"none", b"/", None, _PRIVATE, None)
    _call("mount", b"proc", b"/proc", b"proc", _NO_SUID_DEV_EXEC, None)


def forbid_settings() -> None:
    """Make /proc, /sys and all mounts below them read-only in this mount namespace.

    Otherwise a program of the user root could change settings and control groups of the host, even if it has no
    capabilities.
    """
    for place in ("/proc", "/sys"):
        _call("mount", place.encode(), place.encode(), None, _BIND_ALL, None)
        below = [point for point in _mount_points() if point.startswith(f"{place}/")]
        for point in [place, *sorted(below, key=len)]:  # parents first: a hidden mount is part of its parent
            if os.path.exists(point) and not os.statvfs(point).f_flag & os.ST_RDONLY:
                _call("mount", None, os.fsencode(point), None, _READ_ONLY | _NO_SUID_DEV_EXEC, None)


def _mount_points() -> list[str]:
    lines = os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).splitlines()
    return [re.sub(r"\\([0-7]{3})", lambda byte: chr(int(byte[1], 8)), line.split(" ")[4]) for line in lines]


def die_with_parent() -> None:
    """Kill this process when the thread that started it ends."""
    _call("prctl", _PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def wake_exactly() -> None:
    """Make timers of this thread expire without the usual slack of up to 50 us."""
    _call("prctl", _TIMER_SLACK, 1, 0, 0, 0)


def give_up_privileges(user: int, group: int) -> None:
    """Switch this process to the given user and group, and ensure that no later `exec` gains capabilities."""
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(min(last + 1, _CAPABILITIES)):
        _call("prctl", _DROP_BOUNDING, capability, 0, 0, 0)
    if user != os.getuid():
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)


def map_users(process: int, users: Iterable[int], groups: Iterable[int]) -> None:
    """Map the given users and groups, and no others, to themselves in the user namespace of a process."""
    folder = Path("/proc") / str(process)
    if os.geteuid() != 0:
        (folder / "setgroups").write_text("deny")
    (folder / "uid_map").write_text("".join(f"{user} {user} 1\n" for user in sorted(set(users))))
    (folder / "gid_map").write_text("".join(f"{group} {group} 1\n" for group in sorted(set(groups))))


def open_tun() -> int:
    """Return the file descriptor of a new TUN device in this network namespace; closing it removes the device."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(tun, _SET_INTERFACE, struct.pack("16sH22x", INTERFACE.encode(), _TUN_WITHOUT_HEADER))
    except OSError:
        os.close(tun)
        raise
    return tun


def configure(address: str, congestion: str | None) -> str:
    """Configure TCP and the TUN device (`address` in a /16 network) of this namespace; return the congestion control.

    If `congestion` is None, the host's default congestion control is used.

    Raises:
        OSError: the host does not allow the congestion control `congestion` in namespaces.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for number, host in ((_SET_ADDRESS, address), (_SET_MASK, "255.255.0.0")):
            of_host = struct.pack("16sHH4s16x", INTERFACE.encode(), socket.AF_INET, 0, socket.inet_aton(host))
            fcntl.ioctl(control, number, of_host)
        fcntl.ioctl(control, _SET_MTU, struct.pack("16si20x", INTERFACE.encode(), MTU_BYTE))
        for name in ("lo", INTERFACE):
            fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH22x", name.encode(), _UP))
    net = Path("/proc/sys/net")
    if (net / "ipv6").exists():  # IPv6 would take airtime for its solicitations
        for name in ("all", "default"):
            (net / "ipv6/conf" / name / "disable_ipv6").write_text("1")
    (net / "ipv4/tcp_no_metrics_save").write_text("1")  # connections start without cached metrics
    chosen = net / "ipv4/tcp_congestion_control"
    if congestion is not None:
        chosen.write_text(congestion)
    return chosen.read_text().strip()
