"""What is wrong with a scenario of a Flower app is said before anything runs; none of this needs Flower."""

import re
from importlib.util import find_spec

import pytest

import fednet_emu as fe
from fednet_emu.errors import ScenarioError
from tests.flower.conftest import CONFIG, TABLE, on_small

HERE = find_spec("flwr") is not None


def problems_of(scenario, **settings):
    """What is wrong with a scenario, one sentence each, without the place, and without Flower itself being missing."""
    try:
        fe.check(scenario, settings=settings)
    except ScenarioError as error:
        return [what for what in error.problems if "needs the package" not in what]
    return []


def test_an_app_needs_no_data_partition_or_model(write_app):
    """They are null where they are left out, in what `check` prints, too."""
    assert problems_of(on_small(write_app())) == []


@pytest.mark.parametrize(
    ("key", "value", "got"),
    [
        ("data", "digits", "digits"),
        ("partition", "iid", "iid"),
        ("model", "linear", "linear"),
        ("attack", {"kind": "label-flip", "malicious": 1, "source": 1, "target": 2}, "label-flip"),
    ],
)
def test_learning_of_the_scenario_beside_that_of_the_app_is_refused(write_app, key, value, got):
    """Settings that would have no effect are an error that says so."""
    found = problems_of({**on_small(write_app()), key: value})

    assert found == [f"scenario  {key}: the algorithm flower brings its own data and model, got '{got}'; leave it out"]


@pytest.mark.parametrize(
    ("project", "problem"),
    [
        ("", "pyproject.toml names no serverapp and no clientapp in \\[tool.flwr.app.components\\]"),
        (TABLE.replace("clientapp", "client"), "pyproject.toml names no clientapp in"),
        (TABLE.replace("toy.server_app:app", "toy"), "pyproject.toml names no serverapp in"),
        ("[tool", "pyproject.toml cannot be read"),
    ],
)
def test_a_project_that_names_no_app_is_refused(write_app, project, problem):
    """The table and the keys that are missing are named."""
    (found,) = problems_of(on_small(write_app(project=project)))

    assert re.search(f"algorithm.app: {problem}", found)


def test_an_unknown_setting_of_the_app_is_refused(write_app):
    """A misspelt one is named together with what was meant; keys of nested tables are joined by dots."""
    app = write_app(project=TABLE + CONFIG)
    found = problems_of(on_small(app, run_config={"round": 5, "nested": {"rate": 1.0}}))
    ill = [what for value in ([1], {}) for what in problems_of(on_small(app, run_config={"rounds": value}))]

    assert [what.partition("run_config: ")[2] for what in found] == [
        "the app has no such setting, got 'round'; did you mean 'rounds'?"
    ]
    for what, value in zip(ill, ("[1]", "{}"), strict=True):
        assert f"rounds must be a number, a text, true or false, got {value}; give one of these" in what


@pytest.mark.skipif(HERE, reason="flwr is installed")
def test_flower_itself_may_be_missing(write_app):
    """The error names the extra that installs it."""
    with pytest.raises(ScenarioError, match=r"needs the package flwr, .* pip install 'fednet-emu\[flower\]'"):
        fe.check(on_small(write_app()))
