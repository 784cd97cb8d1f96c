"""Settings of algorithms that ask a cohort in every round, by a rule that can be chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from fednet_emu.algorithms.local_sgd import LocalSgd
from fednet_emu.algorithms.selection.asking import Asking
from fednet_emu.algorithms.selection.plain import Uniform
from fednet_emu.algorithms.selection.table import AnySelection
from fednet_emu.federation import Federation, cohort_size


class ChosenCohort(LocalSgd):
    """Settings of a cohort that is chosen by a rule, and trains locally."""

    plans_rounds: ClassVar[bool] = True

    selection: AnySelection = Uniform()
    """Who is asked in a round."""

    @property
    def events_depend_on_learning(self) -> bool:
        """Whether the rule decides by losses."""
        return self.selection.needs_losses

    def participants(self, count: int) -> int:
        """The largest number of devices, out of `count`, that the rule asks in a round."""
        return self.selection.most(cohort_size(self.cohort, count), count)

    def contradictions(self, count: int) -> Iterator[tuple[str, str]]:
        """A rule that cannot choose so many of `count` devices, as (key, what is wrong)."""
        yield from super().contradictions(count)
        if problem := self.selection.problem(cohort_size(self.cohort, count)):
            yield "selection", f"{problem}; choose others"

    def conflicts_with_sums(self) -> Iterator[tuple[str, str]]:
        """A rule that asks devices, or relies on the times of single uploads, as (key, what is wrong)."""
        yield from super().conflicts_with_sums()
        if self.selection.single_uploads:
            yield "selection", f"{getattr(self.selection, 'kind', '?')} {self.selection.single_uploads}"

    def asking(self, fed: Federation, down: int, up: int) -> Asking:
        """The rule at work, for rounds in which a device receives `down` numbers and uploads `up`."""
        size = cohort_size(self.cohort, fed.n_devices)
        return Asking(fed, self.selection, size, self.plan, down, up, self.deadline_s)
