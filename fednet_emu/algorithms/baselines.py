"""Baselines without communication: every device trains alone, a single device trains, or no device trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from fednet_emu.algorithms.base import Algorithm, Deadline, LocalSteps, LocalTraining
from fednet_emu.federation import CohortSize, Delivery, Federation, LocalStep, Process

LONGEST_S = 1e9
"""Simulated time in s after which a run without training ends at the latest."""


class Idle(Algorithm):
    """No federation: nothing is trained or sent until `stop.simulated_s`.

    If `traffic` is set, the other users of the network send the same files as in a run of another algorithm with the
    same seed. The difference between the two runs is then the cost that the federation causes for these users.
    """

    def conflicts(self, scenario: Any) -> Iterator[tuple[str, str]]:
        if scenario.stop.simulated_s is None:
            yield "kind", "has no rounds that could end the run, got idle; give stop.simulated_s"

    def events(self, n_samples: int | None) -> int:
        return 0

    def run(self, fed: Federation) -> Process:
        fed.initial_model()
        yield fed.sleep(LONGEST_S)


class LocalOnly(LocalTraining):
    """In each round the devices of a random cohort train their own models on their own samples; nothing is sent."""

    kind = "local"
    ships_no_base = "no server sends anything"
    uses = frozenset({"consensus"})
    cohort: CohortSize = 0.5
    """Devices that train in a round: an int is the number of devices, a float is the share of all devices. Fewer train
    if fewer are present."""
    deadline_s: Deadline = None

    def events(self, n_samples: int | None) -> int:
        return 1

    def run(self, fed: Federation) -> Process:
        """Run rounds in which devices train without a server; a late device keeps its old model."""
        models = [fed.initial_model()] * fed.n_devices
        for t in fed.rounds():
            cohort = yield fed.cohort(self.cohort, t)
            ended = yield fed.gather((self.client(fed, k, models[k.index], t) for k in cohort), self.deadline_s)
            trained = [(k, own) for k, own in zip(cohort, ended, strict=True) if not isinstance(own, Delivery)]
            for k, own in trained:
                models[k.index] = own
            fed.end_of_round(list(models), invited=len(cohort), arrived=len(trained))

    @property
    def client(self) -> LocalStep:
        return LocalStep(self.plan)


class Individual(LocalSteps):
    """One device trains on its own samples and sends nothing; its model is evaluated on the samples of all devices.

    A study that varies the setting `device` yields the quantity Ind_j of the ASPIRE paper for each device j. The
    largest worst-case accuracy of these runs is the paper's max Ind_j.
    """

    ships_no_base = "no server sends anything"
    device: int = Field(ge=0)
    """Index of the device that trains, from 0."""

    def demands(self) -> list[tuple[str, str, int]]:
        return [("device", "counted from 1 is more than there are", self.device + 1)]

    def participants(self, count: int) -> int:
        return 1

    def events(self, n_samples: int | None) -> int:
        return 1

    def run(self, fed: Federation) -> Process:
        w, k = fed.initial_model(), fed.device(self.device)
        for t in fed.rounds():
            computation = k.train(w, self.plan, t)
            trained = yield computation
            if computation.stopped:
                return
            w = trained.params
            fed.end_of_round(w, invited=1, arrived=1)
