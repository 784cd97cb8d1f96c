"""Claims about the step size of each round."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.optim import lr_scheduler

from fednet_emu.learning.graph.jobs import SgdPlan
from fednet_emu.learning.graph.schedules import SCHEDULES, Constant, Cosine, Exponential, Schedule, Step

Make = Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]


@pytest.mark.parametrize(
    ("schedule", "make"),
    [
        (Constant(), lambda sgd: lr_scheduler.ConstantLR(sgd, 1.0)),
        (Step(every_rounds=3, gamma=0.5), lambda sgd: lr_scheduler.StepLR(sgd, 3, 0.5)),
        (Exponential(gamma=0.9), lambda sgd: lr_scheduler.ExponentialLR(sgd, 0.9)),
        (Cosine(rounds=8), lambda sgd: lr_scheduler.CosineAnnealingLR(sgd, 8)),
        (Cosine(rounds=8, final_share=0.1), lambda sgd: lr_scheduler.CosineAnnealingLR(sgd, 8, eta_min=0.02)),
    ],
)
def test_rounds_have_pytorchs_step_sizes(schedule: Schedule, make: Make) -> None:
    """The first nine rounds of each kind, from 0.2."""
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    scheduler, expected = make(sgd), []
    for _ in range(9):
        expected.append(sgd.param_groups[0]["lr"])
        sgd.step()
        scheduler.step()

    plan = SgdPlan(lr=0.2, steps=1, schedule=schedule)
    assert [plan.in_round(t).lr for t in range(9)] == pytest.approx(expected, abs=1e-12)


def test_after_the_cosine_the_step_size_stays() -> None:
    """It does not rise again."""
    assert {Cosine(rounds=4, final_share=0.25).factor(t) for t in range(4, 20)} == {0.25}


def test_a_plan_without_a_schedule_is_itself_in_every_round() -> None:
    """Nothing is made anew; with a schedule, the rest of the plan is kept."""
    plan = SgdPlan(lr=0.2, batch_size=3, epochs=2, clip_norm=1.0)
    halved = SgdPlan(lr=0.4, batch_size=3, epochs=2, clip_norm=1.0, schedule=Exponential(gamma=0.5))

    assert plan.in_round(7) is plan
    assert halved.in_round(1) == plan


def test_every_kind_is_found_by_its_name() -> None:
    """The table's names are those of the classes."""
    assert all(found.kind == kind for kind, found in SCHEDULES.items())
