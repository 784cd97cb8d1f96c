"""One study has one Pareto front: on its page, in its figure, and in `study.front`."""

from pathlib import Path

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.analysis.scales import TRADED
from fednet_emu.draw.figures.study_pareto import pareto_figure
from fednet_emu.draw.page.study_page import study_document

STUDY = Path(__file__).parents[2] / "scenarios/studies/quickstart_access.yaml"
COSTS = [cost.column for cost in TRADED.values()]


@pytest.fixture(scope="module")
def study(cells_here, tmp_path_factory):
    """The study of the tutorial, with 8 of its 40 rounds and 2 of its 5 seeds."""
    path = tmp_path_factory.mktemp("study") / "access.yaml"
    path.write_text(STUDY.read_text(encoding="utf-8").replace("seeds: 5", "seeds: 2"), encoding="utf-8")
    return fe.sweep(str(path), settings={"stop.rounds": 8}, progress=False)


def points(table):
    """Setting, round, costs and accuracy of each point, sorted."""
    return sorted(map(tuple, table[["setting", "round", *COSTS, "accuracy"]].to_numpy().tolist()))


@pytest.mark.parametrize("cost", TRADED)
def test_the_page_and_the_figure_show_the_front_of_the_study(study, cost):
    """The same settings, rounds and means for accuracy against each cost; some points are on it, and most are not."""
    front = study.front(cost)
    told = study_document(study)
    part = told["pareto"]["rounds"]
    place = part["fronts"][f"{TRADED[cost].column}:accuracy"]
    shown = front.iloc[:0].assign(
        setting=[told["settings"][int(number)]["label"] for number in part["setting"][place]],
        **{name: part[name][place] for name in ("round", *COSTS, "accuracy")},
    )
    numbers = pareto_figure(study).numbers
    drawn = numbers[numbers["front"] == cost]
    drawn = drawn.assign(setting=[f"{row.access}, devices.count = {row._3}" for row in drawn.itertuples()])

    assert 1 < len(front) < len(part["setting"]) / 2
    assert points(front) == points(shown) == points(drawn)


def test_the_front_of_two_costs_is_over_settings(study):
    """What reaching the target cost: no other setting of which every run got there was cheaper in both."""
    reached = study.aiming_at(0.5)
    front = reached.front("bits", "energy")
    means = reached.cells.groupby(["access", "devices.count"])[["bits_to_target", "energy_to_target_j"]]
    known = means.mean()[means.count().min(axis=1) == 2].to_numpy()
    beaten = [((known <= row).all(axis=1) & (known < row).any(axis=1)).any() for row in known]

    assert len(known) >= 2
    assert sorted(front["total_bit"]) == pytest.approx(sorted(known[~np.array(beaten), 0]))
    assert set(front["round"]) == {-1}


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        (("tme", "accuracy"), "no such quantity of a front, got 'tme'; did you mean 'time'"),
        (("rounds", "accuracy"), "choose from time, bits, energy, accuracy"),
        (("bits", "bits"), "weighs two quantities, got 'bits' twice"),
    ],
)
def test_mistakes_are_told(study, pair, problem):
    """With the names that there are."""
    with pytest.raises(fe.FednetError, match=problem):
        study.front(*pair)
