"""The runs of a study: grids and files."""

from __future__ import annotations

import itertools
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import ScenarioError, ScenarioWarning
from fednet_emu.limits import LARGEST, problem_of
from fednet_emu.scenario.tree import Place
from fednet_emu.scenario.yaml_text import dump, parse, parse_value
from fednet_emu.study.file import StudyFile
from fednet_emu.study.grid import axes_of, option_text
from fednet_emu.study.runs import run_of, runs_of
from fednet_emu.study.search.search import load_search


def test_cells_are_the_product_in_the_order_of_the_file(study_file):
    """The last axis and the seeds change fastest, and every run has its settings and its seed."""
    loaded = runs_of(study_file("grid: {algorithm.lr: [0.1, 0.2], devices.count: [4, 5]}\nseeds: 2\n"))

    assert [(run.scenario.algorithm.lr, run.scenario.devices.count, run.scenario.seed) for run in loaded] == [
        (lr, count, seed) for lr in (0.1, 0.2) for count in (4, 5) for seed in (0, 1)
    ]
    assert loaded[3].label == "algorithm.lr=0.1, devices.count=5, seed=1"


def test_replay_runs_the_very_same_scenario(study_file):
    """The command told for a failed run resolves to the scenario of the run, nested settings and all."""
    path = study_file(
        "set: {stop.rounds: 2, devices.straggler: {kind: log-normal, sigma: 0.3}}\n"
        "grid:\n  air:\n    a: {network.uplink.access: ofdma}\n"
        "    b: {network.uplink: {message_loss: {kind: random, probability: 1e-2}}}\n"
    )
    for run in runs_of(path):
        command = run.command
        overrides = [value for option, value in itertools.pairwise(command) if option == "--set"]

        again = load_scenario(command[2], [*overrides, f"seed={command[command.index('--seed') + 1]}"])
        assert dump(again) == dump(run.scenario)


def test_a_variant_may_change_what_the_study_sets(study_file):
    """Settings under `set` are where every level starts from."""
    runs = runs_of(study_file("set: {algorithm.lr: 0.3}\ngrid: {pace: {a: {}, b: {algorithm.lr: 0.4}}}\nseeds: 1\n"))

    assert [run.scenario.algorithm.lr for run in runs] == [0.3, 0.4]


def test_one_run_may_change_what_its_level_sets(study_file):
    """A cell with another step size than the study's; the replay command repeats it, and a seed has an option."""
    path = study_file("set: {stop.rounds: 2}\ngrid: {pace: {a: {}, b: {algorithm.lr: 0.4}}}\nseeds: 1\n")
    run = run_of(path, {"pace": "b"}, ["algorithm.lr=0.5", "stop.rounds=3"])

    assert (run.scenario.algorithm.lr, run.scenario.stop.rounds) == (0.5, 3)
    overrides = [value for option, value in itertools.pairwise(run.command) if option == "--set"]
    assert dump(load_scenario(run.command[2], [*overrides, "seed=0"])) == dump(run.scenario)
    with pytest.raises(ScenarioError, match="the study has 'seeds' for that"):
        run_of(path, {"pace": "b"}, ["seed=3"])


def test_one_device_and_all_devices_are_two_runs(study_file):
    """Of an axis with 1 and 1.0 the runs invite one and all; each level is found by its text, 0.50 by its value."""
    path = study_file("grid: {algorithm.cohort: [1, 1.0, 0.5]}\nseeds: 1\n")
    runs = runs_of(path)

    assert [run.scenario.algorithm.participants(20) for run in runs] == [1, 20, 10]
    assert [run.label for run in runs] == [f"algorithm.cohort={level}, seed=0" for level in ("1", "1.0", "0.5")]
    for text, run in zip(("1", "1.0", "0.50"), runs, strict=True):
        assert run_of(path, {"algorithm.cohort": text}).digest == run.digest


def test_levels_without_a_kind_change_the_default(study_file):
    """`{residual: 0.1}` is NOMA, the only access with that key; `{weight_decay: 0.1}` changes the default optimiser."""
    grid = "network.uplink.access: [{residual: 0.1}, ofdma]\n  algorithm.local_optimizer: [{weight_decay: 0.1}, {}]"
    runs = runs_of(study_file(f"grid:\n  {grid}\nseeds: 1\n"))

    access = [run.scenario.network.uplink.access for run in runs]
    assert [(its.kind, getattr(its, "residual", None)) for its in access[::2]] == [("noma", 0.1), ("ofdma", None)]
    assert [run.scenario.algorithm.local_optimizer.weight_decay for run in runs] == [0.1, 0, 0.1, 0]


def test_cells_are_known_by_what_they_run(study_file):
    """The digest covers every setting, the seed, and whether there is training; names of levels do not matter."""
    text = "grid: {{air: {{{}: {{network.uplink.access: ofdma}}}}}}\nseeds: 2\n"
    first, other = runs_of(study_file(text.format("x")))
    renamed = runs_of(study_file(text.format("y")))[0]
    timed = runs_of(study_file(text.format("x")), timing_only=True)[0]
    changed = runs_of(study_file(text.format("x")), ["stop.rounds=2"])[0]

    assert first.digest == renamed.digest
    assert len({first.digest, other.digest, timed.digest, changed.digest}) == 4


def test_cells_repeat_bit_by_bit_beside_others(study_file):
    """A run uses one thread, unless the study or its base says otherwise."""
    (run,) = runs_of(study_file("seeds: 1\n"))
    assert (run.scenario.training.threads, run.scenario.training.engine) == (1, "serial")  # as the base has it

    (run,) = runs_of(study_file("set: {training.threads: 3}\nseeds: 1\n"))
    assert run.scenario.training.threads == 3

    base = study_file("seeds: 1\n").with_name("small.yaml")
    for own, threads in (("threads: 2", 2), ("threads: null", 1), ("checkpoint_s: 1", 1)):
        base.write_text(re.sub(r"training: \{.*\}", f"training: {{{own}}}", base.read_text()))
        (run,) = runs_of(study_file("seeds: 1\n"))
        assert (run.scenario.training.threads, run.scenario.training.engine) == (threads, "by-rule")


def test_all_problems_come_before_anything_runs(study_file):
    """Wrong settings in `set` and in the grid are told together, each once, each with its line in the study file."""
    path = study_file(
        "set:\n  stop.round: 3\ngrid:\n  algorithm.lr:\n    - 0.1\n    - loud\n  devices.count: [2, 40]\n"
    )

    with pytest.raises(ScenarioError) as caught:
        runs_of(path)

    problems = caught.value.problems
    assert (
        len([problem for problem in problems if "stop.round: no such setting; did you mean 'rounds'?" in problem]) == 1
    )
    assert any("study.yaml:3  stop.round" in problem for problem in problems)
    assert any("study.yaml:7  algorithm.lr: expected a number, got 'loud'" in problem for problem in problems)


@pytest.mark.parametrize(
    ("text", "overrides", "told"),
    [
        ("grid: {devices.count: [2, 3]}\nset: {algorithm.cohort: 3}\n", [], "invites more devices than there are"),
        ("sedes: 3\n", [], "study.yaml:2  sedes: no such setting; did you mean 'seeds'?"),
        ("seeds: 0\n", [], "expected a number above 0 or different numbers from 0 on, got 0"),
        ("seeds: [1, 1]\n", [], "different numbers"),
        ("target: {accuracy: 0.8, loss: 1}\n", [], "exactly one of accuracy and loss"),
        ("set: {seed: 3}\n", [], "seed: the study has 'seeds' for that"),
        (
            "grid: {algorithm.lr: [0.1]}\n",
            ["algorithm.lr=1"],
            "--set algorithm.lr  algorithm.lr: is varied by the axis",
        ),
        (
            "grid: {model: [linear, {kind: mlp, hidden: [4]}]}\n",
            ["model.hidden=[8]"],
            "--set model.hidden  model.hidden: is varied by the axis 'model'",
        ),
        ("grid: {algorithm.lr: [0.1, 0.1]}\n", [], "two runs are the same run, got algorithm.lr=0.1, seed=0 and"),
        ("limits: {time_s: -1}\n", [], "limits.time_s: must be > 0, got -1"),
    ],
)
def test_a_wrong_study_is_refused(study_file, text, overrides, told):
    """Mistakes of a study file read as those of a scenario do."""
    with pytest.raises(ScenarioError) as caught:
        runs_of(study_file(text), overrides)

    assert told in str(caught.value)


def test_folders_of_cells_have_names_that_every_file_system_takes(study_file):
    """Labels may be long and in any script; names of files are limited in bytes (255 on most systems)."""
    first, second = runs_of(
        study_file(f"grid: {{{'信' * 80}: {{'a/b': {{}}, '{'道' * 80}': {{stop.rounds: 9}}}}}}\nseeds: 1\n")
    )

    assert max(len(run.name.encode()) for run in (first, second)) < 200
    assert "/" not in first.name
    assert first.name != second.name


ROUNDS = """
set: {stop.rounds: 20}
grid:
  method:
    avg: {algorithm.cohort: 4}
    async: {algorithm: {kind: fedasync, lr: 0.1, alpha: 0.5}}
    few: {algorithm.cohort: 2}
seeds: 1
"""


def test_rounds_of_different_methods_are_asked_for_a_time(study_file):
    """A round of FedAsync is one update, of FedAvg a cohort; cohorts alone, or a time for all, are no reason."""
    with pytest.warns(ScenarioWarning) as told:
        runs_of(study_file(ROUNDS))
    assert "a round takes different numbers of updates, 1 with fedasync, 2 to 4 with fedavg" in str(told[0].message)

    for text in (ROUNDS.replace("set: {", "set: {stop.simulated_s: 60, "), re.sub("    async.*\n", "", ROUNDS)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runs_of(study_file(text))


REGRESSION = """
set: {algorithm.local_steps: 2}
grid: {algorithm.lr: [0.1, 0.2]}
target: {loss: 0.1}
"""


def test_an_accuracy_is_no_aim_of_a_regression(study_file):
    """Neither as the target of a study, nor of its search, nor as the end of a run; a loss is."""
    search = "search: {space: {algorithm.lr: {low: 0.1, high: 1}}, maximise: accuracy, within: {time: 9}}"
    assert len(runs_of(study_file(REGRESSION))) == 10

    with pytest.raises(ScenarioError, match=r"study.yaml:5  target.accuracy: a regression has no accuracy, got 0.9; g"):
        runs_of(study_file(REGRESSION.replace("loss: 0.1", "accuracy: 0.9")))
    with pytest.raises(ScenarioError, match=r"study.yaml:4  search.maximise: a regression has no accuracy"):
        load_search(StudyFile.read(study_file(re.sub("grid.*\ntarget.*", search, REGRESSION))))
    for stop in ("accuracy: 0.9", "milestones: [{rounds: 2, accuracy: 0.5}]"):
        with pytest.raises(ScenarioError, match="a regression has no accuracy, got"):
            runs_of(study_file(REGRESSION.replace("set: {", f"set: {{stop: {{rounds: 9, {stop}}}, ")))


def axes(text):
    return axes_of(parse(text, "grid.yaml"))


def changes(axis):
    return [{setting.name: setting.value.plain() for setting in level.settings} for level in axis.levels]


def test_a_list_varies_one_key():
    """Each entry is a level, whose column holds the value itself."""
    (axis,) = axes("algorithm.lr: [0.1, 1]")

    assert changes(axis) == [{"algorithm.lr": 0.1}, {"algorithm.lr": 1}]
    assert [level.columns["algorithm.lr"] for level in axis.levels] == [0.1, 1.0]


def test_a_count_and_a_share_are_two_levels():
    """1 is one device and 1.0 all of them: both labels and both columns differ, and each sets what was written."""
    (alone,) = axes("algorithm.cohort: [1, 1.0]")
    (together,) = axes("pair: {algorithm.cohort: [5, 1.0], algorithm.lr: [1, 2]}")

    assert [repr(its["algorithm.cohort"]) for its in changes(alone)] == ["1", "1.0"]
    assert [level.label for level in alone.levels] == ["1", "1.0"]
    assert [level.columns["algorithm.cohort"] for level in alone.levels] == ["1", "1.0"]
    assert [level.label for level in together.levels] == ["5, 1", "1.0, 2"]


def test_labels_have_the_digits_that_tell_levels_apart():
    """Six digits are enough for most axes; where two levels agree in them, all digits are shown."""
    (close, apart) = axes("a: [100000.0, 100000.4]\nb: [0.1000001, 1e-7]")

    assert [level.label for level in close.levels] == ["100000.0", "100000.4"]
    assert [level.label for level in apart.levels] == ["0.1", "1e-07"]


def test_variants_have_names():
    """Each variant is a level with any number of settings, also none; the column holds the name."""
    (axis,) = axes("air: {plain: {}, both: {network.uplink.access: tdma, devices.count: 3}}")

    assert changes(axis) == [{}, {"network.uplink.access": "tdma", "devices.count": 3}]
    assert [level.columns for level in axis.levels] == [{"air": "plain"}, {"air": "both"}]


def test_lists_of_one_axis_go_together():
    """The first entries are one level, the second ones another; each key has a column, too."""
    (axis,) = axes("size: {devices.count: [2, 3], algorithm.cohort: [1, 2]}")

    assert changes(axis) == [{"devices.count": 2, "algorithm.cohort": 1}, {"devices.count": 3, "algorithm.cohort": 2}]
    assert axis.levels[1].columns == {"size": "3, 2", "devices.count": 3, "algorithm.cohort": 2}


def test_columns_have_one_type():
    """Numbers with fractions among them are all floats; anything mixed with text is text."""
    (numbers, mixed, flags) = axes("a: [1, 2.5]\nb: [null, 3, {kind: ofdma}]\nc: [true, false]")

    assert [level.columns["a"] for level in numbers.levels] == [1.0, 2.5]
    assert [level.columns["b"] for level in mixed.levels] == ["null", "3", "ofdma"]
    assert [level.columns["c"] for level in flags.levels] == [True, False]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x: 3", "grid.yaml:1  grid.x: expected a list of values, a mapping of lists"),
        ("x: []", "grid.x: varies nothing, got an empty list"),
        ("\nx: {a: [1, 2], b: [1]}", "grid.yaml:2  grid.x: lists that go together must be equally long, got [2, 1]"),
        ("x: {a: [1], b: {}}", "grid.x: expected a list of values"),
        ("seed: [1, 2]", "got an axis of that name; give the seeds under 'seeds'"),
        ("accuracy: [1, 2]", "grid.accuracy: is a column of the results"),
        ("bits_to_target: {a: {}}", "grid.bits_to_target: is a column of the results"),
        ("macro_f1: {a: {}}", "grid.macro_f1: is a column of the results"),
        ("x: {a: {seed: 1}}", "grid.x: sets the seed; give seeds under 'seeds'"),
        ("x: {a: {k: 1}}\nk: [1, 2]", "grid.yaml:2  grid.k: sets k, which 'x' sets, too"),
    ],
)
def test_what_is_no_axis_is_told_with_its_line(text, told):
    """Each mistake is one sentence with file and line."""
    with pytest.raises(ScenarioError) as caught:
        axes(text)

    assert told in str(caught.value)


TEXTS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=8)
"""What a YAML file can hold."""
VALUES = st.recursive(
    (st.none() | st.booleans() | st.integers() | st.floats(-LARGEST, LARGEST) | TEXTS).filter(
        lambda value: problem_of(value) is None
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), inner),
    max_leaves=6,
)


@given(VALUES)
def test_options_read_back_as_the_same_value(value):
    """A replay line gives `--set` exactly what the study file said."""
    assert parse_value(option_text(value), Place("--set")).plain() == value
