"""`python -m peers`: install the peers, run every contestant on every workload by turns, and write the table."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peers import environments, machine, memory, table
from peers.journal import FAILED, Journal, is_good
from peers.models import training_loss, write_initial
from peers.workloads import WORKLOADS, load_data, write_data

ROOT = Path(__file__).parents[2]
MALLOC = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
    "MALLOC_TOP_PAD_": str(2**28),
    "MALLOC_ARENA_MAX": "1",
}
"""Memory freed is kept: otherwise every step of a CNN pays for fresh pages, and times swing by a factor of ten."""
DENSE = ("W1", "W2")
SYNCHRONOUS = ("W1", "W2", "W3")


@dataclass(frozen=True, slots=True)
class Contestant:
    """A program of `contestants/`, in one of its variants.

    Attributes:
        label: its name in the table.
        module: its file.
        kind: fednet_emu, reference, peer, or app: a peer's app on the emulated network.
        variant: passed on to it.
        workloads: those it can do.
        environment: the peer in whose environment it runs, if that is not its module.
    """

    label: str
    module: str
    kind: str
    variant: str = ""
    workloads: tuple[str, ...] = SYNCHRONOUS
    environment: str = ""

    @property
    def python(self) -> str:
        """The name of its environment."""
        return self.environment or self.module

    @property
    def is_ours(self) -> bool:
        """Whether it runs in our own environment."""
        return self.kind in ("fednet_emu", "reference")


CONTESTANTS = (
    Contestant("fednet_emu, one process", "emulator", "fednet_emu", "one", tuple(WORKLOADS)),
    Contestant("fednet_emu, two workers", "emulator", "fednet_emu", "two"),
    Contestant("hand-written, analytic gradients", "reference", "reference", "analytic", DENSE),
    Contestant("hand-written, analytic gradients, two threads", "reference", "reference", "analytic-threads", DENSE),
    Contestant("hand-written, analytic gradients, two processes", "reference", "reference", "analytic-two", DENSE),
    Contestant("hand-written, vmap(grad)", "reference", "reference", "vmap"),
    Contestant("hand-written, stacked", "reference", "reference", "stacked"),
    Contestant("hand-written, serial, lean", "reference", "reference", "lean", tuple(WORKLOADS)),
    Contestant("hand-written, serial, two processes", "reference", "reference", "two"),
    Contestant("hand-written, serial, DataLoader and deepcopy", "reference", "reference", "naive"),
    Contestant("FedJAX, JAX 0.10.2", "fedjax", "peer"),
    Contestant("FedJAX, JAX 0.4.30", "fedjax", "peer", environment="fedjax_2024"),
    Contestant("pfl-research, one process", "pfl", "peer", "one"),
    Contestant("pfl-research, two processes", "pfl", "peer", "two"),
    Contestant("FedLab", "fedlab", "peer"),
    Contestant("FLGo, serial", "flgo", "peer", "serial"),
    Contestant("FLGo, two threads", "flgo", "peer", "threads"),
    Contestant("Flower", "flower", "peer"),
    Contestant("Flower app on fednet_emu", "flower_emulated", "app", environment="flower"),
)


class RunError(Exception):
    """A contestant could not be installed, did not end well, or not in time; the text says which, in one line."""


def main() -> None:
    """Install, run, write; what fails becomes a line of the table, and the exit code says so."""
    given = arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    folder, facts = given.build.resolve(), machine.facts()
    entrants = [
        entrant
        for entrant in CONTESTANTS
        if (not given.alone if entrant.is_ours else entrant.python.partition("_")[0] in given.peers)
    ]
    journal = Journal(given.out / "runs.csv", resume=given.resume)
    pythons = installed(entrants, folder / "environments")
    data = folder / "data"
    write_data(data)
    write_initial(data)
    for repeat, name, entrant in turns(entrants, given.workloads, given.repeats):
        if (name, entrant.label, repeat) in journal:
            continue
        started_s = time.perf_counter()
        run = {"workload": name, "kind": entrant.kind, "contestant": entrant.label, "repeat": repeat}
        try:
            run |= play(entrant, name, pythons[entrant.python], data, given.rounds, given.limit_s)
        except RunError as error:
            run |= {FAILED: str(error)}
        journal.add(run)
        print(f"{table.told(run)}  ({time.perf_counter() - started_s:.0f} s)", flush=True)
    text = table.markdown(journal.runs, facts)
    (given.out / "README.md").write_text(text)
    print(f"\n{text}")
    if not all(map(is_good, journal.runs)):
        sys.exit("peers: some runs failed or were disturbed, see the table; RESUME=1 tries them again")


def installed(entrants: Sequence[Contestant], folder: Path) -> Mapping[str, Path | None]:
    """The interpreter of each environment; None for a peer that could not be installed, of which pip said why."""
    pythons: dict[str, Path | None] = {}
    for entrant in entrants:
        if entrant.is_ours:
            pythons[entrant.python] = Path(sys.executable)
        elif entrant.python not in pythons:
            try:
                pythons[entrant.python] = environments.install(entrant.python, folder)
            except subprocess.CalledProcessError:
                pythons[entrant.python] = None
    return pythons


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(prog="python -m peers", description=__doc__)
    peers = list(dict.fromkeys(entrant.module for entrant in CONTESTANTS if entrant.kind == "peer"))
    parser.add_argument("--peers", nargs="*", choices=peers, default=peers, help="beside fednet_emu and the references")
    parser.add_argument("--alone", action="store_true", help="without fednet_emu's own entry and the references")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="rounds on the clock, for a quick look")
    parser.add_argument("--cores", type=int, default=2, help="cores that each contestant may use")
    parser.add_argument("--limit-s", type=float, default=600.0, help="a run that takes longer is ended")
    parser.add_argument("--resume", action="store_true", help="keep the good runs that --out has already")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "peers", help="environments and data")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "peers")
    return parser.parse_args()


def turns(
    entrants: Sequence[Contestant], workloads: Sequence[str], repeats: int
) -> Iterator[tuple[int, str, Contestant]]:
    """Who runs what, in order: all contestants of a workload in turn, in the other order every second time."""
    for repeat in range(repeats):
        for name in workloads:
            able = [entrant for entrant in entrants if name in entrant.workloads]
            for entrant in able if repeat % 2 == 0 else reversed(able):
                yield repeat, name, entrant


def play(
    entrant: Contestant, name: str, python: Path | None, data: Path, rounds: int | None = None, limit_s: float = 600.0
) -> dict[str, Any]:
    """Run a contestant once.

    Returns:
        Its line of results, the peak of its memory, and the training loss of the model it ended with.

    Raises:
        RunError: it is not installed, failed, or took too long; what it said last goes to the standard error.
    """
    if python is None:
        raise RunError("not installed")
    (data / "final.npz").unlink(missing_ok=True)
    command = [python, "-m", f"peers.contestants.{entrant.module}", name, data]
    command += ["--variant", entrant.variant] if entrant.variant else []
    command += [] if rounds is None else ["--rounds", str(rounds)]
    log = data / "log.txt"
    with log.open("w") as said, (data / "line.txt").open("w+") as lines:
        started_s, busy_s, own_s = time.perf_counter(), memory.busy_s(), sum(os.times()[:4])
        process = subprocess.Popen(command, env=environment(), stdout=lines, stderr=said, text=True, cwd=ROOT)
        tree = memory.watch(process, limit_s=limit_s)
        elapsed_s = time.perf_counter() - started_s
        others = memory.others_cores(tree, memory.busy_s() - busy_s, sum(os.times()[:4]) - own_s, elapsed_s)
        lines.seek(0)
        results = [line for line in lines.read().splitlines() if line.startswith("{")]
    if process.returncode or not results:
        print(log.read_text()[-3000:], file=sys.stderr)
        raise RunError(f"more than {limit_s:.0f} s" if elapsed_s >= limit_s else f"exit code {process.returncode}")
    workload = WORKLOADS[name]
    with np.load(data / "final.npz") as file:
        loss = training_loss(workload.model, [file[key] for key in file.files], load_data(workload, data))
    return json.loads(results[-1]) | {"peak_mb": tree.peak_byte / 1e6, "loss": loss, "others_cores": others}


def environment() -> dict[str, str]:
    """The variables of every contestant."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    kept = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    paths = os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT)])
    return kept | MALLOC | quiet | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"}


if __name__ == "__main__":
    main()
