"""Settings of algorithms that ask a cohort in every round, by a rule that can be chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

from pydantic import model_validator

from fednet_emu.algorithms.local_sgd import LocalSgd
from fednet_emu.algorithms.selection.asking import Asking
from fednet_emu.algorithms.selection.plain import Uniform
from fednet_emu.algorithms.selection.table import AnySelection
from fednet_emu.federation import Federation


class ChosenCohort(LocalSgd):
    """Settings of a cohort that is chosen by a rule, and trains locally."""

    plans_rounds: ClassVar[bool] = True

    selection: AnySelection = Uniform()
    """Who is asked in a round."""

    @model_validator(mode="after")
    def _selection_fits(self) -> Self:
        if problem := self.selection.problem(self.cohort):
            raise ValueError(f"selection: {problem}; choose others")
        return self

    @property
    def events_depend_on_learning(self) -> bool:
        """Whether the rule decides by losses."""
        return self.selection.needs_losses

    def participants(self, count: int) -> int:
        """The largest number of devices, out of `count`, that the rule asks in a round."""
        return self.selection.most(self.cohort, count)

    def conflicts_with_sums(self) -> Iterator[tuple[str, str]]:
        """A rule that asks devices, or relies on the times of single uploads, as (key, what is wrong)."""
        yield from super().conflicts_with_sums()
        if self.selection.single_uploads:
            yield "selection", f"{getattr(self.selection, 'kind', '?')} {self.selection.single_uploads}"

    def asking(self, fed: Federation, down: int, up: int) -> Asking:
        """The rule at work, for rounds in which a device receives `down` numbers and uploads `up`."""
        return Asking(fed, self.selection, self.cohort, self.plan, down, up, self.deadline_s)
