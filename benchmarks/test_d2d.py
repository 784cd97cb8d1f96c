"""Speed of device-to-device rounds without training: against a bare queue, and over the number of clusters."""

from __future__ import annotations

import gc
import time
from collections import deque
from pathlib import Path

import numpy as np
import simpy

from fednet_emu.algorithms.d2d.connectivity_aware import ConnectivityAware
from fednet_emu.testing import small_federation

ROUNDS = 4
ALGORITHM = ConnectivityAware(lr=0.1, batch_size=None, local_steps=1, phi_max=0.06)


def round_s(clusters: int) -> tuple[float, int]:
    """Processor time of the fastest of some rounds of clusters of ten, and the receptions in one."""
    edges, groups = "{kind: random-regular, degree: 8, deletion: 0.1}", f"{{kind: equal, count: {clusters}}}"
    fed = small_federation(
        f"devices.count={10 * clusters}",
        f"data.n_samples={20 * 10 * clusters}",
        f"stop.rounds={ROUNDS}",
        "network.sidelink={channel: {include: ideal}, access: {kind: spatial-reuse, interference: false}, "
        f"topology: {{edges: {edges}, clusters: {groups}}}}}",
        timing_only=True,
    )
    marks = [time.process_time()]
    fed.observers.append(lambda _fed: marks.append(time.process_time()))
    gc.collect()
    fed.run(ALGORITHM)
    receptions = [row["d2d_receptions"] for row in fed.ledger.series["connectivity"]]
    return float(np.diff(marks).min()), int(np.mean(receptions))


def bare_event_s(events: int = 100_000) -> float:
    """Processor time of one service of a callback-driven queue on SimPy, which does nothing."""
    env, queue = simpy.Environment(), deque(range(events))

    def serve(_event: simpy.Event) -> None:
        if queue:
            queue.popleft()
            env.timeout(1).callbacks.append(serve)

    env.timeout(1).callbacks.append(serve)
    started = time.process_time()
    env.run()
    return (time.process_time() - started) / events


def memory_gb(what: str) -> float:
    """An entry of this process's status: its memory now, VmRSS, or at its peak, VmHWM."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return float(status.split(f"{what}:")[1].split()[0]) / 1e6


def test_a_round_of_seventy_devices() -> None:
    """Under 20 ms on a quiet core of a data centre: at most 120 bare events for each model received."""
    bare_s, (spent_s, receptions) = min(bare_event_s() for _ in range(3)), min(round_s(7) for _ in range(3))
    print(f"70 devices: {spent_s * 1e3:.1f} ms, {receptions} receptions of {spent_s / receptions / bare_s:.1f} events")
    assert spent_s / receptions < 120 * bare_s


def test_a_round_of_seven_thousand_devices() -> None:
    """A hundred times as many clusters take at most 300 times as long, in less than 1 GB more than before."""
    few_s, _ = min(round_s(7) for _ in range(3))
    before_gb = memory_gb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from now on
    many_s, receptions = round_s(700)
    peak_gb = memory_gb("VmHWM") - before_gb
    print(f"7,000 devices: {many_s:.2f} s, {receptions} receptions, {many_s / few_s:.0f} times 70; {peak_gb:.2f} GB")
    assert many_s < 300 * few_s
    assert peak_gb < 1.0
