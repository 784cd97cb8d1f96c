"""Programs that train in worker processes: no guard is needed, and nobody outlives them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import Forked

SCRIPT = """
import sys
import fednet_emu as fe
from fednet_emu.learning.engines import batched
batched.WORTH_FLOP = 0
run = fe.run("quickstart", settings={"stop.rounds": 3, "training.workers": int(sys.argv[1])}, progress=False)
print(run.digest, run.summary["loss"], run.summary.get("elsewhere", {}).get("processes"), flush=True)
if len(sys.argv) > 2:
    import os, signal
    from fednet_emu.learning.engines.workers.pool import pool
    print(*(worker.process._process.pid for worker in pool()._workers), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("source", ["file", pytest.param("standard input", marks=pytest.mark.slow)])
def test_a_script_needs_no_guard_and_workers_end_with_it(tmp_path, source):
    """A script without `if __name__` has equal numbers with 1 and 2 workers; these end when it is killed by SIGKILL.

    So it is for one that comes by standard input, as a notebook has no file either.
    """
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, script if source == "file" else "-", "2", "die"]
    two = subprocess.run(command, input=SCRIPT, capture_output=True, text=True, timeout=600, check=False)
    one = Forked(script, "1").ended()
    told, pids = two.stdout.splitlines()

    assert one.stdout.split()[:2] == told.split()[:2], two.stderr
    assert (one.stdout.split()[2], told.split()[2]) == ("None", "2")
    assert two.stderr == ""
    wait_for_no_one(pids.split())


def wait_for_no_one(pids):
    """Wait until no such process is there any more."""
    for pid in pids:
        for _ in range(6000):
            if not Path(f"/proc/{pid}").exists():
                break
            time.sleep(0.01)
        assert not Path(f"/proc/{pid}").exists()


UNDER_WAY = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell has processes in the background ignore
from fednet_emu.learning.engines import batched
from fednet_emu.learning.engines.workers import pool
batched.WORTH_FLOP = 0
wait_for, context = pool.Pool.wait_for, pool.clean_context

def told(self, call, workers):
    wait_for(self, call, workers)
    print("now", flush=True)

if sys.argv.pop() == "training":
    pool.Pool.wait_for = told
else:
    pool.clean_context = lambda *names: context("telling", *names)
from fednet_emu.cli import main
main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks ps for the processes of a session")
@pytest.mark.parametrize("when", [pytest.param("starting", marks=pytest.mark.slow), "training"])
def test_ctrl_c_is_one_sentence_and_nobody_stays(tmp_path, when):
    """A terminal sends it to all processes: those that are imported into, those that are forked, those that train."""
    script, out = tmp_path / "script.py", tmp_path / "run"
    script.write_text(UNDER_WAY)
    (tmp_path / "telling.py").write_text("import time\nprint('now', flush=True)\ntime.sleep(1)")
    command = [
        sys.executable,
        script,
        "run",
        "quickstart",
        "--set",
        "training.workers=2",
        "--set",
        "stop.rounds=1000000",
    ]
    with subprocess.Popen(
        [*command, "--quiet", "--out", out, when],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    ) as process:
        while process.stdout.readline() not in ("now\n", ""):
            pass
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise

    assert process.returncode == 130, errors
    assert errors.count("interrupted") == 1
    assert "Traceback" not in errors
    listing = ["ps", "--sid", str(process.pid), "-o", "pid="]
    wait_for_no_one(subprocess.run(listing, capture_output=True, text=True, check=False).stdout.split())
