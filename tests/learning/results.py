"""What engines have come to, in the order of their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from fednet_emu.learning.graph.engine import Engine, TrainResult
from fednet_emu.learning.graph.jobs import ResolvedJob


def results_of(engine: Engine, jobs: Sequence[ResolvedJob]) -> list[TrainResult]:
    """All results of an engine, in the order of the jobs."""
    found = dict(engine.run(jobs))
    return [found[resolved] for resolved in jobs]
