"""When a run ends, and when it is evaluated."""

from __future__ import annotations

from pydantic import Field, model_validator

from fednet_emu.component import Component


class Stop(Component):
    """Limits; whichever comes first ends the run. Simulated time ends it at once, the others at the end of a round."""

    rounds: int | None = Field(None, gt=0)
    """Rounds of the algorithm."""
    simulated_s: float | None = Field(None, gt=0, le=1e9)
    """Time on the clock of the run."""
    bits: float | None = Field(None, gt=0)
    """Bits sent over all links together."""
    energy_j: float | None = Field(None, gt=0)
    """Energy of all transmissions and computations together."""
    accuracy: float | None = Field(None, gt=0, le=1)
    """Pooled test accuracy."""

    @model_validator(mode="after")
    def _something_ends_the_run(self) -> Stop:
        limits = (self.rounds, self.simulated_s, self.bits, self.energy_j, self.accuracy)
        if all(limit is None for limit in limits):
            raise ValueError(f"nothing ends the run, got no limit; give one of {', '.join(type(self).model_fields)}")
        return self

    def reached(self, rounds: int, bits: float, energy_j: float, accuracy: float | None) -> bool:
        """Whether a run that has come so far, at the end of a round, is over."""
        so_far = ((rounds, self.rounds), (bits, self.bits), (energy_j, self.energy_j), (accuracy, self.accuracy))
        return any(value is not None and limit is not None and value >= limit for value, limit in so_far)

    @property
    def only_accuracy(self) -> bool:
        """Whether the accuracy is the only limit."""
        return all(limit is None for limit in (self.rounds, self.simulated_s, self.bits, self.energy_j))


class Evaluation(Component):
    """When the global model is evaluated: an observer that costs no simulated time, no bits and no energy."""

    every_rounds: int | None = Field(1, gt=0)
    """Null for never at the end of a round; the initial and the last model are evaluated in any case."""
    every_s: float | None = Field(None, ge=1e-6)
    """Simulated seconds between two evaluations of the global model as it is then, beside those at the ends of rounds;
    null for none. A model that was evaluated before is not evaluated again: its scores are repeated."""
    per_device: bool = False
    """Whether each device's own share of the test set is evaluated too, for the worst device and the spread."""
    train_loss: bool = False
    """Whether the largest loss of a device on its own training samples is measured too."""
