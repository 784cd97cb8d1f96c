"""`fe.search` and `fednet search`: what a user asks and what comes back."""

from __future__ import annotations

import pytest

import fednet_emu as fe
from fednet_emu.results.study import Search
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL
from tests.commands import fednet

pytestmark = pytest.mark.usefixtures("cells_here")

MAPPING = from_text(SMALL, "small").data
SPACE = {"algorithm.lr": {"low": 0.01, "high": 0.2, "log": True}, "algorithm.local_steps": [1, 2, 4]}
ASKED = {"target": {"loss": 0.6}, "seeds": 3, "trials": 6, "settings": {"stop.rounds": 12, "channel": "urban-micro"}}


@pytest.fixture(scope="module")
def found(tmp_path_factory, cells_here):
    """A search in a folder; tests only look at it."""
    return fe.search(MAPPING, SPACE, out=tmp_path_factory.mktemp("search") / "out", workers=2, **ASKED)


def test_a_search_tells_trials_best_and_importance(found):
    """The best settings are by name, in the order of the means of their runs; shares are numbers up to 1."""
    assert isinstance(found, fe.Search)
    assert len(found.trials) == 6
    assert set(found.best[0]) == set(SPACE)
    means = [found.runs[number][:, 0].mean() for number in found.finalists]
    assert means == sorted(means)
    assert set(found.importance) <= set(SPACE)
    assert all(0 <= share <= 1 for share in found.importance.values())


def test_words_name_counts_places_and_files(found):
    """As many settings as were tried, a line for each finalist with its file."""
    lines = found.lines()

    assert lines[0].startswith("A small federation: 6 settings tried: ")
    for place, best in enumerate(found.best, 1):
        line = next(line for line in lines if line.startswith(f" {place}. "))
        assert f"algorithm.local_steps={best['algorithm.local_steps']}" in line
        assert line.endswith(f"best/{place}.yaml")
        again = fe.run(found.folder / "best" / f"{place}.yaml")
        reached = again.evaluations[again.evaluations["loss"] <= 0.6]["simulated_s"].iloc[0]
        assert reached == pytest.approx(found.runs[found.finalists[place - 1]][0, 0])


def test_what_remained_is_a_study(found):
    """With its rankings, figures and page."""
    study = found.study

    assert list(study.axes) == ["setting"]
    assert len(study.axes["setting"]) == len(found.best)
    assert study.best().best[0] == {"setting": found.trials.set_index("trial")["setting"][found.finalists[0]]}
    assert "studySearch" in study.report(found.folder / "page.html").read_text(encoding="utf-8")


def test_the_figure_has_every_trial(found):
    """A point for each that got there, at its cost, and a cross for each other."""
    axes = found.plot().axes[0]
    drawn = {line.get_label(): line.get_xdata() for line in axes.get_lines()}
    known = found.trials["time"].notna()

    assert list(drawn["trial"]) == found.trials["trial"][known].tolist()
    assert list(drawn["not there"]) == found.trials["trial"][~known].tolist()


def test_a_search_without_a_folder_leaves_none_behind():
    """The temporary folder goes with the last object that reads from it: here the study of its finalists."""
    found = fe.search(MAPPING, SPACE, workers=1, minimise=("time", "bits"), **ASKED | {"trials": 3, "seeds": 1})
    folder, study = found.home.path, found.study

    assert found.folder is None
    assert len(found.plot().axes) == 1
    assert "time" in str(found)
    assert "bits" in found._repr_html_()
    del found
    assert folder.exists()
    assert study[0].status == "done"
    del study
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"space": None}, "a scenario needs a space, got none"),
        ({"minimise": "tim"}, "minimise"),
        ({"maximise": "accuracy", "within": {"time": 1}}, "target: is not for search.maximise"),
        ({"within": {"energy": 0}}, "within"),
        ({"space": {"algorithm.lrr": [1, 2]}}, "algorithm.lrr: no such setting"),
        ({"settings": {"algorithm.lr": 1}}, "is varied by the axis 'algorithm.lr'"),
        ({"timing_only": True}, "a timing-only run learns nothing"),
    ],
)
def test_mistakes_are_sentences(options, what):
    """Before anything runs."""
    with pytest.raises(fe.FednetError) as caught:
        fe.search(MAPPING, **{"space": SPACE, **ASKED, **options})

    assert what in str(caught.value)


def test_what_a_file_says_is_not_said_again():
    """The file of a study has space, target and seeds."""
    with pytest.raises(fe.FednetError, match="grid, seeds and target are in the study's file"):
        fe.search("quickstart_search", seeds=3)


def test_a_folder_without_a_search_is_a_sentence(tmp_path):
    """It says which command writes one."""
    with pytest.raises(fe.DataError, match="give the folder that `fednet search` wrote"):
        Search.opened(tmp_path)


def test_the_command_ends_with_two_for_a_mistake(tmp_path):
    """And with a sentence, not a traceback."""
    ended = fednet("search", "quickstart_access", "--out", tmp_path / "out")

    assert ended.exit_code == 2
    assert (
        ended.stderr.strip()
        == "quickstart_access: nothing is searched, got no 'search'; fednet sweep quickstart_access"
    )
    assert not (tmp_path / "out").exists()
