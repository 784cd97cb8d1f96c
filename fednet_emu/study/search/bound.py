"""What a setting costs at least, from its clock alone: runs without training that take milliseconds."""

from __future__ import annotations

import math
from pathlib import Path

from fednet_emu.analysis.scales import COSTS
from fednet_emu.emulation.play import play
from fednet_emu.errors import FednetError
from fednet_emu.scenario.model import Scenario
from fednet_emu.study.search.aim import Aim, spent_in


def too_costly(
    aim: Aim, scenario: Scenario, rounds: int, cap: float = math.inf, data_dir: Path | str | None = None
) -> str:
    """Return why a scenario cannot reach the target within the limits, or not below a cap; empty if it might.

    Time, bits and energy of the first rounds are those of the run itself, training or not, unless events or sizes of
    messages depend on what is learnt; of such scenarios nothing is said.

    Args:
        aim: what the search is for.
        scenario: the scenario.
        rounds: fewest rounds in which the target could be reached.
        cap: the largest amount of the minimised cost.
        data_dir: where data sets are.
    """
    limits = dict(aim.limits)
    if aim.is_single and math.isfinite(cap):
        limits[aim.costs[0]] = min(cap, limits.get(aim.costs[0], math.inf))
    free = scenario.stop.model_copy(update={"rounds": min(rounds, scenario.stop.rounds or rounds), "accuracy": None})
    short = scenario.model_copy(update={"stop": free})
    if not limits or short.events_depend_on_learning or list(short.untimed()):
        return ""
    try:
        spent = spent_in(
            play(short, "bound", None, timing_only=True, data_dir=data_dir).summary, scenario.devices.count
        )
    except FednetError:  # told when the run itself meets it
        return ""
    over = [cost for cost, most in limits.items() if spent[cost] > most]
    if not over:
        return ""
    count = f"{rounds} rounds" if rounds > 1 else "a round"
    its = COSTS[over[0]]
    return f"{its.show(spent[over[0]])} after {count}, {its.show(limits[over[0]])} allowed"
