"""Warnings, and the cost of runs."""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fednet_emu as fe
from fednet_emu.cli.app import app
from fednet_emu.emulation import outlook
from fednet_emu.emulation.given import scenario_of
from fednet_emu.emulation.load import load_scenario, warnings_of
from fednet_emu.emulation.outlook import Cost, Outlook
from fednet_emu.errors import ScenarioError, ScenarioWarning
from fednet_emu.files import npz

OWN = {
    "channel": {
        "carrier_hz": 3.5e9,
        "bandwidth_hz": 20e6,
        "path_loss": {"kind": "log-distance", "reference_loss_db": 35.3, "exponent": 3.76},
        "fading": "rayleigh",
        "device": {"tx_power_dbm": 23, "noise_figure_db": 9, "height_m": 1.5},
        "base_station": {"tx_power_dbm": 30, "noise_figure_db": 5, "height_m": 10},
    },
    "stop": {"rounds": 5},
}
"""An own channel: 35.3 + 37.6 log10 d, 23 dBm, 20 MHz."""
RING = {"kind": "list", "xy_m": [[500.0 * np.cos(k), 500.0 * np.sin(k)] for k in range(20)]}
CARS = {
    "channel": "urban-macro",
    "devices.count": 30,
    "devices.placement": {"kind": "disc", "radius_m": 4000},
    "stop": {"rounds": 5},
}


def sentences(settings, name="quickstart"):
    """What is told of a scenario, by key path."""
    return [(".".join(path), sentence) for path, sentence in warnings_of(scenario_of(name, settings)[1])]


def at_m(*distances_m, **more):
    count = {"devices.count": len(distances_m), "algorithm.cohort": 1, "partition": "iid"}
    places = {"kind": "list", "xy_m": [[metres, 0.0] for metres in distances_m]}
    return {**OWN, **count, "devices.placement": places, **more}


def test_links_that_an_algorithm_does_not_use_are_not_judged():
    """Algorithms without a server need no uplink: distant devices are refused with FedAvg only."""
    far = at_m(*[90_000.0] * 4, **{"channel": {**OWN["channel"], "rate": "nr-mcs"}})
    with pytest.raises(ScenarioError, match="no device can reach it on the uplink"):
        scenario_of("quickstart", far)
    assert not sentences(far | {"algorithm": {"kind": "local", "lr": 0.1, "batch_size": 20, "local_steps": 1}})


def test_devices_out_of_reach_are_named_with_their_snr():
    """By hand: 23 dBm - (35.3 + 37.6 log10 d) + 174 - 73 - 5 dB; a block needs -7.53 dB, 12.65 dB less in a peak.

    A block of 180 kHz has 20.46 dB more than all of the 20 MHz, and 8 repetitions are 9.03 dB.
    """
    (key, text), *_ = sentences(at_m(100.0, 5000.0, 4500.0, 5500.0))

    snr_db = 23 - 35.3 - 37.6 * np.log10(5500) + 174 - 10 * np.log10(20e6) - 5
    assert key == "network.uplink"
    assert text.startswith("3 of 4 devices are out of reach where they start: ")
    assert f"dev-3, mean SNR {snr_db:.1f} dB; dev-1, mean SNR" in text
    assert "the rate law needs -37.0 dB, reached in one fading block of 10^8 at -49.7 dB" in text


def test_who_needs_it_is_said():
    """A threshold of the access scheme; and without fading there is no peak."""
    slots = {"kind": "slotted-aloha", "slot_s": 1e-3, "capture_db": 10}
    (_, text), *_ = sentences(at_m(20.0, 500.0, **{"network.uplink.access": slots, "channel.fading": "none"}))

    assert "1 of 2 devices is out of reach" in text
    assert "the threshold of the access scheme needs 10.0 dB; more power" in text


def test_devices_at_the_edge_are_named_with_their_time():
    """At 120 m an upload takes milliseconds, at 3 km days; that is not tried unless a timeout is given."""
    far = at_m(100.0, 120.0, 3000.0)
    ((key, text),) = [each for each in sentences(far) if "uplink" in each[0]]

    assert key == "network.uplink"
    assert text.startswith(
        "1 of 3 devices is at the edge of reach where they start: 77,120 bits are expected to take dev-2"
    )
    assert "is not tried" in text
    assert re.search(r"expected to take dev-2, \d d \d+ h;", text), "not 98.2 h, nor 2.24e+03 h"
    given = [text for key, text in sentences({**far, "network.uplink.timeout_s": 50}) if "uplink" in key]
    assert "is not tried" not in given[0]


def test_prototypes_and_activations_are_no_models():
    """The size of a model says nothing about an upload where none is sent: only unusable links are named."""
    at = at_m(100.0, 120.0, 3000.0, 1e6)
    other = {**at, "algorithm": {"kind": "fedproto", "lr": 0.1}}
    found = [[text for key, text in sentences(given) if "uplink" in key] for given in (at, other)]
    assert [["out of reach" in text for text in texts] for texts in found] == [[True, False], [True]]
    assert "at the edge of reach" in found[0][1]


@pytest.mark.parametrize("name", ["quickstart", "deadline", "mobile_phones", "interference_cells", "over_the_air"])
def test_shipped_scenarios_have_nobody_out_of_reach(name):
    """Nothing is said of their links."""
    assert [text for key, text in sentences({}, name) if key.startswith("network")] == []


def test_recorded_rates_have_no_snr():
    """Their link is what was recorded: only the downlink, which has a channel, can be out of reach."""
    trace = {"network.uplink.trace": {"kind": "csv", "path": "x.csv"}}
    assert {key for key, _ in sentences({**at_m(100.0, 9000.0), **trace})} == {"network.downlink"}


def test_python_is_warned():
    """By `check` and by `run`, at the line of the caller."""
    with pytest.warns(ScenarioWarning, match=r"^network\.uplink: \d+ of 30 devices are out of reach") as told:
        fe.check("quickstart", settings=CARS)
    assert {warning.filename for warning in told} == {__file__}
    with pytest.warns(ScenarioWarning, match="out of reach") as told:
        fe.run("quickstart", settings={**CARS, "stop": {"rounds": 1}}, timing_only=True)
    assert {warning.filename for warning in told} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fe.check("quickstart")


@pytest.mark.parametrize("command", [["check"], ["run", "--timing-only", "--no-plots", "--set", "stop.rounds=1"]])
def test_commands_say_it_once(command, tmp_path, monkeypatch):
    """On stderr, a line for each warning, before the run; the check prints the scenario as ever."""
    monkeypatch.chdir(tmp_path)
    settings = ["channel=urban-macro", "devices.count=30", "devices.placement.radius_m=2500"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = CliRunner().invoke(app, [*command, "quickstart", *(f"--set={text}" for text in settings)])

    assert result.exit_code == 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert len(lines) == len(set(lines))
    assert any(line.startswith("warning: network.uplink: ") and "out of reach" in line for line in lines)
    assert "warning" not in result.stdout


def calls(settings):
    """How many functions of Python are called to find what there is to warn of."""
    outlook = scenario_of("quickstart", {**settings, "partition": "iid", "data": {"kind": "synthetic"}})[1]
    assert "devices are" in next(warnings_of(outlook))[1]
    count = 0

    def note(_frame, event, _what):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        list(warnings_of(outlook))
    finally:
        sys.setprofile(None)
    return count


def test_a_million_devices_are_looked_at_in_arrays():
    """A hundred times as many devices take no more calls of functions."""
    few, many = (calls({"devices.count": count, "devices.placement.radius_m": 2000.0}) for count in (2000, 200_000))

    assert many < few + 100


# ---- stories: five rounds that took hours ----------------------------------------------------------------------------


def story(settings):
    """A run of the clock, with its hours and losses."""
    return fe.run("quickstart", settings=settings, timing_only=True, progress=False)


def test_an_own_channel_at_three_kilometres():
    """Devices at 3.3 km need over an hour each: five rounds are over in seconds, and all say why."""
    ring = {"kind": "list", "xy_m": [[3300.0 * np.cos(k), 3300.0 * np.sin(k)] for k in range(10)]}
    near = {"kind": "list", "xy_m": [*ring["xy_m"], *[[50.0, float(k)] for k in range(10)]]}
    run = story({**OWN, "devices.placement": near})

    assert run.summary["simulated_s"] < 5 * 60
    assert run.summary["losses"].keys() == {"unreachable"}


def test_cars_on_an_urban_macro_cell():
    """Cars out of reach cost a second each, not an hour."""
    run = story(CARS)

    assert run.summary["losses"]["unreachable"] > 10
    assert "timeout" not in run.summary["losses"]
    waits_s = run.transfers.query("loss_reason == 'unreachable'").eval("ended_s - started_s")
    assert waits_s.max() == 0.0


def test_five_thousand_devices_on_urban_micro():
    """All of two thousand messages arrive, in seconds: whoever is weak narrows and repeats."""
    many = {
        "devices.count": 5000,
        "devices.placement": {"kind": "disc", "radius_m": 300},
        "channel": "urban-micro",
        "data": {"kind": "synthetic"},
        "partition": "iid",
        "algorithm.cohort": 100,
        "stop": {"rounds": 10},
    }
    run = story(many)

    assert run.summary["losses"] == {}
    assert run.summary["messages"] == 2000
    assert run.summary["simulated_s"] < 60


LAYERS = (8 * 8 + 1) * 32 + (32 + 1) * 10
"""Parameters of the quickstart's network: 64 pixels, 32 units, 10 classes."""


def test_the_cost_of_the_quickstart_by_hand() -> None:
    """Twenty devices of 400 bytes, 1797 images of 64 floats and a label, three vectors; ten devices, three events."""
    found = Outlook(fe.check("quickstart")).cost

    assert (found.devices, found.rounds, found.participants, found.parameters) == (20, 60, 10, LAYERS)
    assert found.events == 60 * 10 * 3
    assert found.min_byte == 20 * 400 + 1797 * (64 * 4 + 8) + 3 * 4 * LAYERS
    assert found.max_byte == found.min_byte + 10 * 4 * LAYERS + 100 * 1800


def test_the_most_memory_by_hand() -> None:
    """Eight participants hold a model of 400 bytes each, and two answer in a round: 3 x 2 x 3 events of 100 bytes."""
    asynchronous = Cost(devices=5, rounds=3, participants=8, answers=2, parameters=100, data_byte=1000)

    assert asynchronous.min_byte == 5 * 400 + 1000 + 3 * 400
    assert asynchronous.max_byte == asynchronous.min_byte + 8 * 400 + 18 * 100
    assert replace(asynchronous, rounds=None).max_byte == asynchronous.min_byte + 8 * 400
    assert replace(asynchronous, parameters=None).max_byte == 5 * 400 + 1000 + 18 * 100


@pytest.mark.parametrize("kind", ["fedavg", "local", "individual"])
def test_the_events_are_those_of_the_run(kind: str) -> None:
    """With replies one by one, the records of a run hold as many transfers and computations as were expected."""
    settings = {"stop.rounds": 3, "network.downlink.mode": "unicast", "evaluation.per_device": False}
    if kind != "fedavg":
        settings["algorithm"] = {"kind": kind, "lr": 0.1}
    if kind == "individual":
        settings["algorithm"] |= {"device": 2, "batch_size": 5, "local_steps": 2}
    expected = Outlook(fe.check("quickstart", settings=settings)).cost.events

    run = fe.run("quickstart", settings=settings, timing_only=True)

    assert len(run.transfers) + len(run.computes) == expected


def test_the_rounds_of_pairs_have_two_events_per_update() -> None:
    """AD-PSGD: a computation, and two transfers of every device with an even index that has a neighbour."""
    settings = {"algorithm": {"kind": "ad-psgd"}, "stop": {"rounds": 9}}
    expected = Outlook(fe.check("gossip_mobile", settings=settings)).cost.events

    run = fe.run("gossip_mobile", settings=settings, timing_only=True)

    assert expected == pytest.approx(len(run.transfers) + len(run.computes), rel=0.2)


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


@pytest.mark.parametrize(
    ("size_byte", "text"),
    [(500.0, "0.5 kB"), (999_999.0, "1 MB"), (3.2e9, "3.2 GB"), (3e15, "3 PB"), (4.5e22, "45 ZB")],
)
def test_amounts_of_memory_have_a_fitting_unit(size_byte, text):
    """The records of 10^12 rounds have thousands of terabytes."""
    assert outlook.readable(size_byte) == text


def test_what_does_not_fit_is_refused_and_what_just_fits_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is the memory of the host, to the byte; the result of a run does not depend on it."""
    needed = Outlook(fe.check("quickstart")).cost.min_byte
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
        assert with_.min_byte - without.min_byte == with_.max_byte - without.max_byte == 4 * 10**6
    assert "a model of 100 parameters and 1,000,000 frozen ones" in str(frozen[0])
