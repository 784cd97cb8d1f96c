"""Speed and memory of traces: slices per second beside a plain loop of structs, memory over the length of a run."""

from __future__ import annotations

import json
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.run import RunRecords
from fednet_emu.draw.trace.trace import write_trace
from fednet_emu.records.ledger import SERVER, SEVERAL
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS

DEVICES = 1000
CONTENT = struct.Struct("<BQBBBQBQBdBdBQBBQ")
"""A slice with its begin, end, track, name, and the same numbers about it, as bare as a struct can hold them."""


def write_run(folder: Path, rounds: int) -> Path:
    """The tables of a synchronous run: a broadcast to all devices, computing, then one uplink after the other."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    compute_s, air_s, cast_s = rng.lognormal(0.0, 0.3, (rounds, DEVICES)), 1e-3, 0.2
    ready_s = np.sort(compute_s, axis=1)
    order = np.argsort(compute_s, axis=1)
    turn = np.arange(DEVICES) * air_s
    ended_s = np.maximum.accumulate(ready_s - turn, axis=1) + turn + air_s
    start_s = np.cumsum(cast_s + ended_s[:, -1]) - cast_s - ended_s[:, -1]
    heard_s, number = start_s + cast_s, np.arange(rounds)
    uplinks = pd.DataFrame({
        "sender": order.ravel(), "receiver": SERVER, "receivers": 1, "value_id": 1 + np.arange(rounds * DEVICES),
        "requested_s": (heard_s[:, None] + ready_s).ravel(), "started_s": (heard_s[:, None] + ended_s - air_s).ravel(),
        "ended_s": (heard_s[:, None] + ended_s).ravel(), "direction": 0,
    })  # fmt: skip
    casts = pd.DataFrame({
        "sender": SERVER, "receiver": SEVERAL, "receivers": DEVICES, "value_id": 10**9 + number, "requested_s": start_s,
        "started_s": start_s, "ended_s": heard_s, "direction": 1,
    })  # fmt: skip
    transfers = pd.concat([uplinks, casts]).sort_values("ended_s", ignore_index=True)
    transfers["transfer"] = np.arange(len(transfers))
    transfers["direction"] = pd.Categorical.from_codes(transfers["direction"], list(KINDS))
    transfers["loss_reason"] = pd.Categorical.from_codes(np.zeros(len(transfers), int), list(REASONS))
    transfers = transfers.assign(size_bit=10**5, transmitted_bit=1e5, energy_j=1e-3, rx_energy_j=0.0, cell=0)
    heard = transfers["transfer"][transfers["receiver"] == SEVERAL].to_numpy().repeat(DEVICES)
    receptions = pd.DataFrame({"transfer": heard, "receiver": np.tile(np.arange(DEVICES), rounds)})
    receptions["loss_reason"] = pd.Categorical.from_codes(np.zeros(len(receptions), int), list(REASONS))
    computes = pd.DataFrame({
        "device": order.ravel(), "started_s": heard_s.repeat(DEVICES), "ended_s": uplinks["requested_s"], "flop": 1e6,
        "energy_j": 1e-4, "input": (10**9 + number).repeat(DEVICES), "result": uplinks["value_id"],
        "stopped": pd.Categorical.from_codes(np.zeros(len(uplinks), int), list(REASONS)),
    })  # fmt: skip
    ends_s = np.append(start_s[1:], heard_s[-1] + ended_s[-1, -1])
    tables = {
        "transfers": transfers,
        "receptions": receptions,
        "computes": computes,
        "rounds": pd.DataFrame(
            {"round": number, "started_s": start_s, "ended_s": ends_s, "invited": DEVICES, "arrived": DEVICES}
        ),
        "evaluations": pd.DataFrame(columns=["simulated_s", "loss", "accuracy", "worst_accuracy", "std_accuracy",
                                             "worst_train_loss", "attack_success"], dtype=float),
    }  # fmt: skip
    for name, table in tables.items():
        table.to_parquet(folder / f"{name}.parquet")
    (folder / "summary.json").write_text(json.dumps({"name": "synthetic", "simulated_s": float(ends_s[-1])}))
    (folder / "scenario.yaml").write_text(f"devices: {{count: {DEVICES}}}\n")
    return folder


def trace_rate(folder: Path) -> float:
    """Slices per second of processor time, reading and writing included."""
    started = time.process_time()
    slices = write_trace(RunRecords.opened(folder), folder / "run.pftrace")
    return slices / (time.process_time() - started)


def struct_rate(folder: Path, slices: int = 200_000) -> float:
    """Slices per second of processor time of a plain loop that packs a struct each, with nothing to read or sort."""
    started = time.process_time()
    with (folder / "structs").open("wb") as file:
        for number in range(slices):
            content = (10, number, 8, 1, 11, number, 10, number, 5, 1.5, 5, 2.5, 47, number, 9, 2, number)
            file.write(CONTENT.pack(*content))
    return slices / (time.process_time() - started)


PEAK = """
import sys
from pathlib import Path
from fednet_emu.draw.trace.trace import write_trace
from fednet_emu.analysis.run import RunRecords

folder = Path(sys.argv[1])
write_trace(RunRecords.opened(folder), folder / "run.pftrace")
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak_kib(folder: Path) -> int:
    """The most memory in KiB that writing a trace takes in a process of its own."""
    done = subprocess.run([sys.executable, "-c", PEAK, str(folder)], check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 1000 devices and 100 rounds: 100,100 transfers, 600,200 slices."""
    return write_run(tmp_path_factory.mktemp("trace") / "run", 100)


def test_slices_cost_a_few_struct_packs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reading, sorting, nesting and encoding a slice takes less than ten times as long as packing one bare struct."""
    ratio = statistics.median(trace_rate(folder) / struct_rate(folder) for _ in range(3))

    with capsys.disabled():
        print(f"\n  {trace_rate(folder):,.0f} slices/s of processor time, {ratio:.2f} of a loop of structs")
    assert ratio > 0.1


def test_memory_is_flat_over_the_length_of_a_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four times as many rounds, and as many times the slices, take at most a tenth more memory."""
    short, long = peak_kib(folder), peak_kib(write_run(tmp_path / "long", 400))

    with capsys.disabled():
        print(f"\n  peak memory: {short / 1024:.0f} MiB for 600,000 slices, {long / 1024:.0f} MiB for 2,400,000")
    assert long < 1.1 * short
