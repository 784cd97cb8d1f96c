"""What reaching the target cost each setting, with the runs that never reached it beside those that did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fednet_emu.analysis.quantities import counted
from fednet_emu.analysis.settings import Setting
from fednet_emu.analysis.statistics import mean_interval
from fednet_emu.analysis.targets import TO_TARGET


def costs_to_target(settings: Sequence[Setting]) -> Iterator[dict[str, Any]]:
    """Yield for each setting what each of its runs needed, and the mean with its interval over those that got there.

    A run without a value never reached the target; `failures` says in words how many there are of which kind.
    """
    for place, setting in enumerate(settings):
        seeds = [*setting.cells["seed"], *setting.missing.get("seed", ())]
        ends = [*setting.cells["status"], *setting.missing.get("status", ())]
        needed = {column: setting.cells[column].to_numpy(np.float64) for column in TO_TARGET}
        reached = np.isfinite(needed[TO_TARGET[0]])
        yield {
            "setting": place,
            "seeds": [int(seed) for seed in seeds],
            "status": ends,
            "reached": int(reached.sum()),
            "of": setting.of,
            "failures": failures_text(ends, reached),
            "costs": {
                column: {"values": values, **mean_interval(values[reached])._asdict()}
                for column, values in needed.items()
            },
        }


def failures_text(ends: Sequence[str], reached: Sequence[bool] | np.ndarray[Any, np.dtype[np.bool_]]) -> str:
    """Return in words how many runs did not reach the target, and why; empty if all did.

    Args:
        ends: the status of each run; those that have not finished come last.
        reached: whether each of the finished runs reached the target.
    """
    late = [end for end, got in zip(ends, reached, strict=False) if not got]
    unfinished = list(ends[len(reached) :])
    kinds = {
        "never got there": late.count("done"),
        "diverged": late.count("diverged"),
        "failed": unfinished.count("failed"),
        "not run yet": len(unfinished) - unfinished.count("failed"),
    }
    told = [f"{counted(number, 'run')} {what}" for what, number in kinds.items() if number]
    return ", ".join(told)
