"""The cost of a run is known before it starts, from the settings alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fednet_emu as fe
from fednet_emu.cli.app import app
from fednet_emu.emulation import outlook
from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.outlook import Cost, Outlook
from fednet_emu.errors import ScenarioError
from fednet_emu.files import npz

LAYERS = (8 * 8 + 1) * 32 + (32 + 1) * 10
"""Parameters of the quickstart's network: 64 pixels, 32 units, 10 classes."""


def test_the_cost_of_the_quickstart_by_hand() -> None:
    """Twenty devices of 400 bytes, 1797 images of 64 floats and a label, three vectors; ten devices, three events."""
    found = Outlook(fe.check("quickstart")).cost

    assert (found.devices, found.rounds, found.participants, found.parameters) == (20, 60, 10, LAYERS)
    assert found.events == 60 * 10 * 3
    assert found.least_byte == 20 * 400 + 1797 * (64 * 4 + 8) + 3 * 4 * LAYERS
    assert found.most_byte == found.least_byte + 10 * 4 * LAYERS + 100 * 1800


def test_the_most_memory_by_hand() -> None:
    """Eight participants hold a model of 400 bytes each, and two answer in a round: 3 x 2 x 3 events of 100 bytes."""
    asynchronous = Cost(devices=5, rounds=3, participants=8, answers=2, parameters=100, data_byte=1000)

    assert asynchronous.least_byte == 5 * 400 + 1000 + 3 * 400
    assert asynchronous.most_byte == asynchronous.least_byte + 8 * 400 + 18 * 100
    assert replace(asynchronous, rounds=None).most_byte == asynchronous.least_byte + 8 * 400
    assert replace(asynchronous, parameters=None).most_byte == 5 * 400 + 1000 + 18 * 100


def test_the_events_are_those_of_the_run() -> None:
    """With replies one by one, the records of a run hold as many transfers and computations as were expected."""
    settings = {"stop.rounds": 3, "network.downlink.mode": "unicast", "evaluation.per_device": False}
    expected = Outlook(fe.check("quickstart", settings=settings)).cost.events

    run = fe.run("quickstart", settings=settings, timing_only=True)

    assert len(run.transfers) + len(run.computes) == expected


@pytest.mark.parametrize(("kind", "answers"), [("fedasync", 1), ("fedbuff", 4)])
def test_the_rounds_of_an_asynchronous_server_have_few_events(kind: str, answers: int) -> None:
    """Thirty rounds of one answer, or of four in a buffer, and at most what the eight devices in flight have begun."""
    algorithm = {"kind": kind, "concurrency": 8, "lr": 0.1, "batch_size": 10, "local_epochs": 1}
    settings = {"stop": {"rounds": 30}, "network.downlink.mode": "unicast"}
    settings["algorithm"] = algorithm | ({"buffer_size": answers} if kind == "fedbuff" else {})
    expected = Outlook(fe.check("quickstart", settings=settings)).cost.events

    run = fe.run("quickstart", settings=settings, timing_only=True)

    assert expected == 3 * 30 * answers
    assert expected <= len(run.transfers) + len(run.computes) <= expected + 3 * 8


@pytest.mark.parametrize(
    ("change", "size"),
    [
        ({"model": "softmax"}, 65 * 10),
        ({"model": {"kind": "mlp", "hidden": [7, 5]}}, 65 * 7 + 8 * 5 + 6 * 10),
        ({"data": {"kind": "synthetic", "features": 4, "classes": 3}}, 5 * 32 + 33 * 3),
        ({"model": "mcmahan-cnn", "data": "mnist"}, 1_663_370),
    ],
)
def test_the_model_is_counted_without_being_made(change: dict[str, object], size: int) -> None:
    """The number of parameters, for data that are not there too."""
    assert Outlook(fe.check("quickstart", settings=change)).cost.parameters == size


@pytest.mark.parametrize(
    ("devices", "bit", "times"), [(1024, 2 * 1024 * 256 + (5 * 1024 - 4) * 256 + 26 * LAYERS, 49.2), (20, 85_426, 2.22)]
)
def test_the_cost_of_secure_aggregation_by_hand(devices: int, bit: int, times: float) -> None:
    """2 n a_K + (5 n - 4) a_S + m w, which is 2.2154 for twenty devices as the note of the formula has it."""
    secure = {"network.uplink.secure_aggregation": "bonawitz", "algorithm.weighting": "uniform"}
    settings = {**secure, "partition": "iid", "devices.count": devices, "algorithm.cohort": devices}
    told = Outlook(fe.check("quickstart", settings=settings)).secrecy

    assert told == (
        f"secure aggregation of {devices:,} devices: 7 messages of each a round, {bit:,} bits on top of a model, "
        f"{times} times a vector of 16 bit an entry"
    )
    shown = CliRunner().invoke(
        app, ["check", "quickstart", *(f"--set={key}={value}" for key, value in settings.items())]
    )
    assert told in " ".join(shown.stderr.split())
    assert Outlook(fe.check("quickstart")).secrecy == ""


def test_a_file_of_data_is_known_by_its_headers(tmp_path: Path) -> None:
    """The arrays themselves may be missing: only shapes are read."""
    y = np.arange(50) % 3
    np.savez(tmp_path / "x.npz", train_x=np.zeros((50, 4)), train_y=y, test_x=np.zeros((50, 4)), test_y=y)
    data = {"kind": "npz", "path": "x.npz", "classes": 3}
    scenario = fe.check("quickstart", settings={"data": data, "devices.count": 10})

    found = Outlook(scenario, tmp_path).cost

    assert (found.parameters, found.data_byte) == (5 * 32 + 33 * 3, 100 * (4 * 4 + 8))
    assert Outlook(scenario).cost.parameters is None


def test_what_does_not_fit_is_refused_and_what_just_fits_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is the memory of the host, to the byte; the result of a run does not depend on it."""
    needed = Outlook(fe.check("quickstart")).cost.least_byte
    settings = {"stop.rounds": 1}
    digest = fe.run("quickstart", settings=settings, timing_only=True).digest

    monkeypatch.setattr(outlook, "host_memory_byte", lambda: float(needed))
    assert fe.run("quickstart", settings=settings, timing_only=True).digest == digest
    monkeypatch.setattr(outlook, "host_memory_byte", lambda: float(needed - 1))
    with pytest.raises(ScenarioError, match=r"model: takes \d+ kB of memory with its data, got 2410 parameters; this "):
        fe.check("quickstart")
    monkeypatch.setattr(outlook, "host_memory_byte", lambda: 20 * 400.0 - 1)
    with pytest.raises(
        ScenarioError, match=r"devices.count: takes 8 kB of memory \(400 bytes a device\), got 20; this"
    ):
        fe.check("quickstart")


def test_data_of_a_file_that_do_not_fit_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run reads the headers first."""
    y = np.arange(5000) % 3
    np.savez(tmp_path / "x.npz", train_x=np.zeros((5000, 40)), train_y=y, test_x=np.zeros((50, 40)), test_y=y[:50])
    settings = {"data": {"kind": "npz", "path": "x.npz", "classes": 3}, "stop.rounds": 1}
    monkeypatch.setattr(outlook, "host_memory_byte", lambda: 100_000.0)
    monkeypatch.setattr(npz, "_array", None)

    with pytest.raises(ScenarioError, match=r"data: takes 848 kB of memory, got 5050 samples; this host has 100 kB"):
        fe.run("quickstart", settings=settings, data_dir=tmp_path)


def test_the_memory_of_this_host_is_plausible() -> None:
    """More than 100 MB, which these tests take, and less than 1 EB; infinite where it cannot be found out."""
    assert 1e8 < outlook.host_memory_byte() < 1e18 or outlook.host_memory_byte() == float("inf")


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            Cost(1_000_000, 60, 10, 10, 2410, 10**9),
            "cost: devices 1,000,000, rounds up to 60, a model of 2,410 parameters, about 1,800 events, "
            "1.4 GB of memory, with all records 1.4 GB on top of the program",
        ),
        (
            Cost(20, None, 10, 10, None, 0),
            "cost: devices 20, rounds until another limit, a model of unknown size, about 30 events a round, "
            "8 kB of memory on top of the program",
        ),
    ],
)
def test_the_cost_in_words(found: Cost, text: str) -> None:
    """One line with devices, rounds, model, events and memory."""
    assert str(found) == text


def test_check_and_run_tell_the_cost_first(tmp_path: Path) -> None:
    """`check` says it beside the scenario, `run` before all else; with --quiet it is not said."""
    words = f"cost: devices 20, rounds up to 60, a model of {LAYERS:,} parameters, about 1,800 events"
    once = ("--set", "stop.rounds=1", "--no-plots", "--force", "--out", str(tmp_path / "run"))

    assert CliRunner().invoke(app, ["check", "quickstart"]).stderr.startswith(words)
    loud = CliRunner().invoke(app, ["run", "quickstart", *once])
    quiet = CliRunner().invoke(app, ["run", "quickstart", "--quiet", *once])

    assert loud.stderr.splitlines()[0].startswith("cost: devices 20, rounds up to 1, ")
    assert "cost" not in quiet.output


@pytest.mark.parametrize(
    ("cohort", "line"),
    [("1.0", "cohort: 1.0 (20 of 20 devices)"), ("1", "cohort: 1 (1 of 20 devices)"), ("0.33", "cohort: 0.33 (7 of")],
)
def test_check_says_how_many_devices_a_cohort_is(cohort: str, line: str, tmp_path: Path) -> None:
    """The share and the number are both shown; what `check` prints is a scenario with the same cohort."""
    told = CliRunner().invoke(app, ["check", "quickstart", "--set", f"algorithm.cohort={cohort}"])
    (tmp_path / "again.yaml").write_text(told.stdout)

    assert told.stderr.splitlines()[1].startswith(line)
    assert repr(load_scenario(tmp_path / "again.yaml").algorithm.cohort) == cohort  # type: ignore[attr-defined]


def test_frozen_weights_are_in_memory_once_and_sent_never() -> None:
    """Four bytes each, however many devices hold an update."""
    few, many = (Cost(5, 3, participants, 2, 100, 1000, 3200) for participants in (2, 8))
    frozen = [replace(cost, frozen=10**6) for cost in (few, many)]

    for with_, without in zip(frozen, (few, many), strict=True):
        assert with_.least_byte - without.least_byte == with_.most_byte - without.most_byte == 4 * 10**6
    assert "a model of 100 parameters and 1,000,000 frozen ones" in str(frozen[0])
