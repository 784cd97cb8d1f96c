"""Run cells as tasks of a Ray cluster, on this machine or elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from fednet_emu.learning.engines.ray.cluster import connected
from fednet_emu.study.attempt import CellJob, Outcome, complete
from fednet_emu.study.local import News

WAIT_S = 0.2


def run_on_ray(tasks: Sequence[CellJob], address: str | None, workers: int | None) -> Generator[News, None, None]:
    """Run tasks on Ray, each on one CPU and with the memory and GPUs that its limits specify.

    Ray does not report when a task starts, so all tasks count as started once they are submitted. Each task supervises
    a process of its own, as on a single machine, so that limits have the same meaning.

    Args:
        tasks: what to run; their folders must be on a file system that the whole cluster shares.
        address: address of an existing cluster, `auto` for the one that runs on this machine; None starts one here.
        workers: number of CPUs of a cluster that is started here; None takes all.

    Raises:
        FednetError: Ray is not installed, or the cluster cannot be reached.
    """
    ray = connected("--ray", address, workers)
    try:
        refs = {ray.remote(complete).options(**_demands(task)).remote(task): place for place, task in enumerate(tasks)}
        for place in refs.values():
            yield News(place, None)
        while refs:
            ended, _ = ray.wait(list(refs), timeout=WAIT_S)
            for ref in ended:
                yield News(refs.pop(ref), _outcome(ray, ref))
    finally:
        ray.shutdown()


def _demands(task: CellJob) -> dict[str, Any]:
    limits = task.limits
    memory = {} if limits.memory_mb is None else {"memory": limits.memory_mb * 1e6}
    return {"num_cpus": 1, "num_gpus": limits.gpus, "max_retries": 0, **memory}


def _outcome(ray: Any, ref: Any) -> Outcome:
    try:
        outcome: Outcome = ray.get(ref)
    except ray.exceptions.RayError as error:
        return Outcome("failed", f"Ray: {' '.join(str(error).split())[:300]}")
    return outcome
