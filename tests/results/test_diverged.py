"""Runs that diverge: they end as that, whatever their scores, and reach no target."""

import pytest

import fednet_emu as fe
from fednet_emu.draw.page.run import run_document
from fednet_emu.records.ledger import Ledger
from fednet_emu.records.rows import EvaluationRow
from fednet_emu.records.summaries import divergence
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL

MAPPING = from_text(SMALL, "small").data
DIGITS = {**MAPPING, "data": "digits", "model": "softmax"}


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([], ""),
        ([2.3, 0.1], ""),
        ([2.3, 22.9], ""),
        ([2.3, 23.1], "far above that of the first model, got 23.1 after 2.3"),
        ([2.3, 99.0, 2.0], ""),
        ([2.3, float("nan")], "not finite any more, got nan"),
        ([2.3, float("inf")], "not finite any more, got inf"),
        ([0.0, 5.0], ""),
    ],
)
def test_what_counts_as_diverged(losses, words):
    """The last loss does: not finite, or more than ten times the first."""
    ledger = Ledger()
    for number, loss in enumerate(losses):
        row = {**dict.fromkeys(EvaluationRow._fields, 0), "round": number, "loss": loss}
        ledger.evaluations.append(tuple(row.values()))

    assert words in divergence(ledger)
    assert bool(words) == bool(divergence(ledger))


class Spoils(fe.Algorithm):
    """Rounds of nothing but a pause, of which the second one ends with a model of nan."""

    def run(self, fed):
        """Each round has a model of its own."""
        w = fed.initial_model()
        for t in fed.rounds():
            yield fed.sleep(1)
            fed.end_of_round(w * float("nan") if t == 1 else w, invited=0, arrived=1)


def test_a_loss_that_was_not_finite_once_ends_as_diverged_whatever_follows():
    """Nan after round 2 of 4, finite again after it; the text names the round. Alone, the accuracy is no limit then."""
    run = fe.run({**DIGITS, "stop": {"rounds": 4}}, algorithm=Spoils())

    assert run.evaluations["loss"].isna().tolist() == [False, False, True, False, False]
    assert run.summary["status"] == "diverged"
    assert run.summary["diverged"] == "the loss is not finite after round 2, got nan; lower the learning rate"
    assert len(fe.run({**DIGITS, "stop": {"accuracy": 0.99}}, algorithm=Spoils()).evaluations) == 3


def test_training_that_leaves_the_finite_numbers_ends_the_run():
    """No exception: a run, with what was measured until then, that says who diverged and with what step size."""
    run = fe.run(MAPPING, settings={"algorithm.lr": 1e30, "algorithm.local_steps": 5})

    assert run.summary["status"] == "diverged"
    assert run.summary["diverged"].startswith("dev-0, round 1: training diverges, got loss inf after step 1 with lr=1e")
    assert len(run.evaluations) == 1
    assert repr(run).endswith(", diverged>")
    assert "<th>status</th><td>diverged</td>" in run._repr_html_()


def test_a_loss_far_above_the_first_ends_as_diverged_though_finite(tmp_path):
    """Steps a little too large: three rounds, all finite; the folder's manifest and log say it too."""
    run = fe.run(MAPPING, settings={"algorithm.lr": 5.0}, out=tmp_path / "run")

    assert run.summary["rounds"] == 3
    assert run.summary["diverged"].startswith("the loss is far above that of the first model, got ")
    assert fe.open(tmp_path / "run").summary["status"] == "diverged"
    first = run_document(run, "")["words"][0]
    assert first.startswith(f"The run diverged: {run.summary['diverged']}. 3 rounds with ")
    assert "reached an accuracy" not in first
    assert "diverged: the loss is far above" in (tmp_path / "run" / "log.txt").read_text()
    with pytest.raises(fe.DataError, match="holds a finished run"):
        fe.run(MAPPING, settings={"algorithm.lr": 5.0}, out=tmp_path / "run")


def test_a_diverged_model_does_not_stop_at_a_target_accuracy():
    """Its accuracy of one class in ten would be enough, but counts for nothing."""
    wild = {"algorithm.lr": 1e4, "stop": {"rounds": 4, "accuracy": 0.02}}
    calm = {"algorithm.lr": 0.1, "stop": {"rounds": 4, "accuracy": 0.02}}
    first = fe.run(DIGITS, settings={"stop.rounds": 1}).evaluations["accuracy"][0]
    target = {"stop.accuracy": max(0.02, first + 0.01)}

    assert fe.run(DIGITS, settings=calm | target).summary["rounds"] < 4
    assert fe.run(DIGITS, settings=wild | target).summary["rounds"] == 4


@pytest.mark.usefixtures("cells_here")
def test_a_diverged_cell_is_in_the_table_but_reaches_no_target():
    """Its row says so, with the reason; time to target is blank, also for another target; the other cell is as ever."""
    study = fe.sweep(
        DIGITS,
        grid={"algorithm.lr": [0.1, 1e4]},
        seeds=1,
        workers=1,
        target={"accuracy": 0.02},
        settings={"stop.rounds": 2},
    )

    cells = study.cells.set_index("algorithm.lr")
    assert list(cells["status"]) == ["done", "diverged"]
    assert cells.loc[1e4, "reason"].startswith("the loss is far above")
    assert cells["time_to_target_s"].notna().tolist() == [True, False]
    assert study.aiming_at(0.01).cells["time_to_target_s"].notna().tolist() == [True, False]
    assert "2 cells done, 1 diverged" in repr(study)
