"""Editors get it right: scenarios of apps need no partition and no model, all others do."""

import pytest

import fednet_emu as fe
from tests.flower.conftest import SMALL

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is a tool of the project's ordinary environment")
CHECK = jsonschema.Draft202012Validator(fe.schema())


def test_what_an_algorithm_brings_is_not_required():
    """The schema of scenario files waives what the app brings, and nothing else."""
    app = {**SMALL, "algorithm": {"kind": "flower", "app": "path"}}
    other = {**SMALL, "algorithm": {"kind": "fedavg", "cohort": 2, "lr": 0.1, "batch_size": 10, "local_steps": 1}}
    missing = sorted(error.message.split()[0] for error in CHECK.iter_errors(other))

    assert list(CHECK.iter_errors(app)) == []
    assert missing == ["'model'"]
    assert list(CHECK.iter_errors({**other, "partition": "iid", "model": "linear"})) == []
    nothing = {key: its for key, its in app.items() if key != "algorithm"}
    assert sorted(error.message.split()[0] for error in CHECK.iter_errors(nothing)) == ["'algorithm'", "'model'"]
