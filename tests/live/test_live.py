"""Real programs in namespaces: times, ends, and that nobody gets out and nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fednet_emu.emulation.given import scenario_of
from fednet_emu.errors import AppFailed, FednetError
from fednet_emu.realtime.options import Commands, LiveOptions
from fednet_emu.realtime.play import play_live
from fednet_emu.realtime.programs import Missing, Programs
from tests.commands import fednet
from tests.live.conftest import ROOT, UPLOAD, cell, table

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("machine")]

LONGEST_S = 120.0
"""Host time in s after which a test stops waiting for what should come at once, however busy the host is."""
LISTEN = "import socket, time; s = socket.create_server(('', 9000)); time.sleep(60)"


def live(scenario: dict[str, Any], out: Path, client: list[str], server: str | None = None, **how: Any) -> Any:
    return play_live(scenario_of(scenario)[1], "tried", out, Commands.of(server, client), LiveOptions(**how))


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


# ---- times -----------------------------------------------------------------------------------------------------------


def test_an_answer_comes_on_the_downlink(tmp_path: Path) -> None:
    """A download is a message from the server."""
    (tmp_path / "model").write_bytes(bytes(300_000))
    serve = f"{sys.executable} -m http.server 8000 --directory {tmp_path}"
    get = "import urllib.request as u; print(len(u.urlopen('http://{server}:8000/model').read()))"
    out = tmp_path / "run"
    live(cell(), out, python(get), serve)
    row = table(out, "transfers").iloc[0]
    assert (row["direction"], row["sender"], row["receiver"]) == ("downlink", -1, 0)
    assert (out / "dev-0.txt").read_text() == "300000\n"


def test_a_run_ends_at_its_limit_of_time(tmp_path: Path) -> None:
    """Programs that never end are ended; what has not ended is no failure."""
    summary = live(cell(stop={"simulated_s": 0.5}), tmp_path / "run", python(LISTEN))
    assert summary["status"] == "done"
    assert 0.5 <= summary["simulated_s"] < 50, "before the programs end by themselves"


def test_the_command_prints_what_was_predicted_and_measured(tmp_path: Path) -> None:
    """The totals of a run, how late the hub was, and the errors; a program that fails is exit code 1."""
    scenario, out = tmp_path / "cell.yaml", tmp_path / "run"
    scenario.write_text(json.dumps(cell()))
    size = 200_000
    ran = fednet("live", scenario, "--out", out, "--", *UPLOAD, "{role}", "{server}", size)
    assert ran.exit_code == 0, ran.output
    rows = dict(line.split("  ", 1) for line in ran.stdout.splitlines() if "  " in line.strip())
    assert {"status", "uplink", "packets", "run folder", "verdict"} <= rows.keys()
    assert (out / "figures/timeline.png").exists()
    assert fednet("live", scenario, "--out", out, "--", "true").exit_code == 2, "the folder holds a finished run"
    failed = fednet(
        "live", scenario, "--out", tmp_path / "other", "--server", f"{sys.executable} -m http.server", "--", "false"
    )
    assert failed.exit_code == 1
    assert "the app failed: the program of dev-0 ended with exit code 1" in failed.stderr
    checked = fednet("live", "--check")
    assert checked.exit_code == 0
    assert checked.stdout.startswith("this machine can play scenarios live\n")


# ---- programs that fail ----------------------------------------------------------------------------------------------


def test_a_program_that_fails_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    """The error states its name, exit code and output, and the run has failed."""
    fails = "import sys, os; print('no room', file=sys.stderr); sys.exit(3)"
    with pytest.raises(AppFailed, match="no room\nthe app failed: the program of dev-0 ended with exit code 3"):
        live(cell(), tmp_path / "run", python(fails), f'{sys.executable} -c "{LISTEN}"')
    assert json.loads((tmp_path / "run/summary.json").read_text())["status"] == "failed"


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Exit code 127, as a shell gives it."""
    with pytest.raises(AppFailed, match="no-such-program: cannot be started"):
        live(cell(), tmp_path / "run", ["no-such-program"], f'{sys.executable} -c "{LISTEN}"')


def test_a_server_that_never_listens_is_told(tmp_path: Path) -> None:
    """Clients are not started."""
    with pytest.raises(FednetError, match=r"listens at no TCP port, got none for 0\.3 s"):
        live(cell(), tmp_path / "run", ["sleep", "9"], boot_s=0.3)
    with pytest.raises(FednetError, match="ended before it listened"):
        live(cell(), tmp_path / "run2", ["true"])


def test_a_congestion_control_that_the_host_forbids_is_named() -> None:
    """With those that it allows."""
    with (
        pytest.raises(Missing, match=r"--tcp: the host does not allow .* got no-such; choose "),
        Programs(1, "no-such"),
    ):
        pass


# ---- no way out ------------------------------------------------------------------------------------------------------

PROBE = """
import ctypes, json, os, socket, sys
def tries(what):
    try:
        what()
        return "done"
    except OSError as problem:
        return type(problem).__name__ + " " + str(problem.errno)
def connect(host, port):
    socket.create_connection((host, port), 0.5)
def call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), "")
port = int(sys.argv[1])
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "loopback": tries(lambda: connect("127.0.0.1", port)),
    "outside": tries(lambda: connect("192.0.2.1", 80)),
    "capabilities": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "parent": os.getppid(),
    "init": tries(lambda: os.open("/proc/1/ns/net", os.O_RDONLY)),
    "namespace": tries(lambda: call("unshare", 0x40000000)),
    "tun": tries(lambda: call("mount", b"none", b"/mnt", b"tmpfs", 0, None)),
    "settings": [tries(lambda: open(name, "w")) for name in (
        "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/profiling"
    ) if os.path.exists(name)],
    "user": os.getuid(),
    "files": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
}))
"""


def host_facts() -> dict[str, str]:
    """Interfaces, routes and settings of the host."""
    facts = {"interfaces": str(socket.if_nameindex())}
    for name in ("route", "fib_trie", "if_inet6"):
        path = Path("/proc/net") / name
        facts[name] = path.read_text() if path.exists() else ""
    for setting in ("ipv4/tcp_congestion_control", "ipv4/tcp_no_metrics_save", "ipv4/ip_forward"):
        facts[setting] = (Path("/proc/sys/net") / setting).read_text()
    for path in sorted(Path("/proc/sys/net").glob("ipv6/conf/*/disable_ipv6")):
        facts[str(path)] = path.read_text()
    facts["mounts"] = Path("/proc/self/mounts").read_text()
    return facts


def test_programs_have_no_way_out_and_the_host_stays_as_it_is(tmp_path: Path) -> None:
    """They see no other interface and no process of the host, cannot reach it, and have no privileges."""
    before = host_facts()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        probe = [sys.executable, "-c", PROBE, str(listener.getsockname()[1])]
        live(cell(), tmp_path / "run", probe, f'{sys.executable} -c "{LISTEN}"')
    found = json.loads((tmp_path / "run/dev-0.txt").read_text())
    assert found["interfaces"] == ["fed0", "lo"]
    assert found["loopback"] == "ConnectionRefusedError 111"
    assert found["outside"] == "OSError 101", "no route"
    assert found["capabilities"] == [0] * 5
    assert found["parent"] == 1, "its processes are numbered anew"
    assert found["init"] == "PermissionError 13"
    assert found["namespace"] == found["tun"] == "PermissionError 1"
    assert set(found["settings"]) <= {"OSError 30", "PermissionError 13"}, "read-only, or not his"
    assert found["user"] == os.getuid()
    assert found["files"][:3] == [0, 1, 2]
    assert len(found["files"]) <= 4, "and the folder that lists them"
    assert host_facts() == before


WRITES = """
import json, os
def done(what, *more):
    try:
        what(*more)
        return True
    except OSError:
        return False
found = {}
for point in [line.split()[1] for line in open("/proc/self/mounts")]:
    if (point + "/").startswith(("/proc/", "/sys/")) and os.path.isdir(point):
        files = [its.path for its in os.scandir(point) if its.is_file() and its.stat().st_mode & 0o222]
        written = [path for path in files if done(os.open, path, os.O_WRONLY)]
        made = [folder for folder in [point + "/fednet-tried"] if done(os.mkdir, folder) and done(os.rmdir, folder)]
        found[point] = {"read-only": bool(os.statvfs(point).f_flag & os.ST_RDONLY), "written": written + made}
print(json.dumps(found))
"""


def test_programs_write_to_no_mount_below_proc_and_sys(tmp_path: Path) -> None:
    """Neither a folder nor a file of any of them, such as the control groups of the host: all are read-only."""
    with Programs(1) as programs:
        programs.start(0, python(WRITES), {}, tmp_path / "writes.txt", watch=False)
        assert [ended.code for ended in _ends(programs)] == [0]
    found = json.loads((tmp_path / "writes.txt").read_text())
    assert {"/proc", "/sys"} <= set(found)
    assert all(its == {"read-only": True, "written": []} for its in found.values()), found


def test_programs_have_the_environment_that_the_command_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the command sets for itself, such as PYTHONSAFEPATH, would change how programs import."""
    monkeypatch.setenv("FEDNET_OWN", "1")
    with Programs(1) as programs:
        programs.start(0, ["env"], {"FEDNET_ROLE": "client"}, tmp_path / "env.txt", watch=False)
        assert [ended.code for ended in _ends(programs)] == [0]
    found = (tmp_path / "env.txt").read_text().splitlines()
    assert "FEDNET_ROLE=client" in found
    assert "FEDNET_OWN=1" not in found
    assert f"PATH={os.environ['PATH']}" in found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs as another user")
def test_sudo_runs_programs_as_the_user_who_called_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub alone has the rights of root."""
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "1001")
    with Programs(1) as programs:
        programs.start(0, ["id"], {}, tmp_path / "id.txt", watch=False)
        assert [ended.code for ended in _ends(programs)] == [0]
    text = (tmp_path / "id.txt").read_text()
    assert text.startswith("uid=1000")
    assert "gid=1001" in text
    assert "(root)" not in text


def _ends(programs: Programs) -> Iterator[Any]:
    found: list[Any] = []
    end = time.monotonic() + LONGEST_S
    while not found and time.monotonic() < end:
        found = programs.news()
        time.sleep(0.02)
    return iter(found)


AS_USER = """
mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 || exit 77
exec setpriv --reuid 1000 --regid 1000 --clear-groups {python} -c '{code}'
"""
TWO_NODES = """
import time
from fednet_emu.realtime.programs import Programs
from pathlib import Path
with Programs(2) as programs:
    programs.start(1, ["sh", "-c", "id -u; ls /sys/class/net"], {}, Path("/dev/stdout"), watch=False)
    end = time.monotonic() + 120
    while not (ended := programs.news()) and time.monotonic() < end:
        time.sleep(0.02)
    print(len(programs.ports), ended)
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="takes root, to become another user")
def test_an_ordinary_user_needs_no_root(tmp_path: Path) -> None:
    """Namespaces and TUN devices are made through a user namespace; with a Python that all users may run."""
    system = Path("/usr/bin/python3")
    new = [str(system), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    if not system.exists() or subprocess.run(new, check=False).returncode:
        pytest.skip("the system has no Python 3.11")
    output = Path(tempfile.gettempdir(), "fednet-user.txt")  # the user may not write to the folder of the test
    script = AS_USER.format(python=system, code=TWO_NODES.replace("/dev/stdout", str(output)))
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        check=False,
        cwd="/",
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    if ran.returncode == 77 or "live: the host lets" in ran.stderr:
        pytest.skip(f"the machine does not allow this: {ran.stderr.strip().splitlines()[-1:]}")
    assert ran.stdout == "2 [Ended(program=1, code=0)]\n", ran.stderr
    assert output.read_text().split()[0] == "1000"
    output.unlink()


# ---- nothing is left -------------------------------------------------------------------------------------------------

HOLDING = """
import sys, time
from pathlib import Path
from fednet_emu.realtime.programs import Programs
with Programs(3) as programs:
    print("made", flush=True)
    out = Path(sys.argv[1])
    stays = ["sh", "-c", "setsid sleep 600 & exec sleep 600"]
    for node in range(3):
        programs.start(node, stays, {}, out / str(node), watch=False)
    print("started", flush=True)
    time.sleep(600)
"""


def marked(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def come(mark: str, count: int, every_s: float = 0.05) -> None:
    """Wait until there are so many, and look for them so often."""
    end = time.monotonic() + LONGEST_S
    while len(marked(mark)) < count:
        assert time.monotonic() < end, f"only {len(marked(mark))} of {count} processes have come"
        time.sleep(every_s)


def gone(mark: str) -> bool:
    end = time.monotonic() + LONGEST_S
    while marked(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return not marked(mark)


@pytest.mark.parametrize("moment", ["at once", "made", "started", "running"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_command_that_is_killed(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    """Whenever that happens, also of programs in sessions of their own."""
    before, mark = host_facts(), uuid.uuid4().hex
    command = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path)],
        env={**os.environ, "FEDNET_MARK": mark, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    if moment == "at once":
        come(mark, 2, 0.005)  # the keeper has begun
    else:
        for line in command.stdout:
            if line.strip() == moment or (moment == "running" and line.strip() == "started"):
                break
    if moment == "running":
        come(mark, 9)  # this, two keepers, three programs, and a daemon of each
    command.send_signal(number)
    command.wait()
    command.stdout.close()
    assert gone(mark), marked(mark)
    assert host_facts() == before


def test_nothing_is_left_when_the_keeper_is_killed(tmp_path: Path) -> None:
    """The command says so, and programs end."""
    mark = uuid.uuid4().hex
    with Programs(1) as programs:
        programs.start(0, ["sleep", "600"], {"FEDNET_MARK": mark}, tmp_path / "out", watch=False)
        come(mark, 1)
        programs._keeper.kill()
        assert gone(mark)
        with pytest.raises(FednetError, match="the process that keeps the namespaces has ended"):
            _ends(programs)
