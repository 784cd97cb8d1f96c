"""What a graph has counted, and what it knows at one moment of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, final


@final
@dataclass(slots=True)
class GraphStatistics:
    """Number of wavefronts (sets of jobs that ran together), and of the jobs in them."""

    wavefronts: int = 0
    jobs: int = 0

    @property
    def mean_wavefront(self) -> float:
        """Jobs per wavefront; zero before the first."""
        return self.jobs / self.wavefronts if self.wavefronts else 0.0


class Snapshot(NamedTuple):
    """What a graph knows: enough for a repeated run to go on as the first one would have.

    Attributes:
        created: how many Deferreds it had created.
        values: known values by the number of their Deferred.
        wavefronts: how many wavefronts had run.
        jobs: how many jobs were in them.
        pending_byte: memory that pending results were counted with.
        begun: numbers of the jobs of a wavefront that had begun.
        unbegun: numbers of all other jobs that had not ended.
    """

    created: int
    values: dict[int, Any]
    wavefronts: int = 0
    jobs: int = 0
    pending_byte: int = 0
    begun: frozenset[int] = frozenset()
    unbegun: frozenset[int] = frozenset()
