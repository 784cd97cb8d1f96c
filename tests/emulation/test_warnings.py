"""Warnings of scenarios that are valid but suspicious: who is told what, where, and how often."""

import re
import sys
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

import fednet_emu as fe
from fednet_emu.cli.app import app
from fednet_emu.emulation.given import scenario_of
from fednet_emu.emulation.load import warnings_of
from fednet_emu.errors import ScenarioWarning

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
    """The own channel, with devices at these distances."""
    count = {"devices.count": len(distances_m), "algorithm.cohort": 1, "partition": "iid"}
    places = {"kind": "list", "xy_m": [[metres, 0.0] for metres in distances_m]}
    return {**OWN, **count, "devices.placement": places, **more}


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
    waits_s = run.transfers.query("lost == 'unreachable'").eval("ended_s - started_s")
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
