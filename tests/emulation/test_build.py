"""Claims about building an emulation."""

import math

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.outlook import Outlook, unreachable
from fednet_emu.emulation.play import tried
from fednet_emu.errors import FednetError
from fednet_emu.testing import small_scenario


def test_the_data_folder_may_be_a_string(tmp_path):
    """As it may be a path: whoever calls from a notebook should not have to know."""
    x, y = np.zeros((40, 3), np.float32), np.arange(40) % 2
    np.savez(tmp_path / "own.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    scenario = load_scenario("quickstart", ["data={kind: npz, path: own.npz}", "partition=iid"])

    assert build(scenario, data_dir=str(tmp_path)).task.data.x.shape == (40, 3)


def test_out_of_reach_is_judged_by_the_part_of_the_band_that_a_device_may_use():
    """At -20 dB over 20 MHz a device reaches -7.5 dB on a block of 180 kHz, 111 times less; a base station does not."""
    power_dbm = -20 - 174 + 10 * math.log10(20e6) + 40 * math.log10(100)
    terminal = f"{{tx_power_dbm: {power_dbm}, noise_figure_db: 0, height_m: 0}}"
    law = "{kind: log-distance, exponent: 4, reference_loss_db: 0}"
    channel = f"{{carrier_hz: 2e9, bandwidth_hz: 20e6, path_loss: {law}, device: {terminal}, base_station: {terminal}}}"
    place = "devices.placement={kind: list, xy_m: [[100, 0]]}"

    def told(*changes):
        weak = small_scenario("devices.count=1", "algorithm.cohort=1", place, f"channel={channel}", *changes)
        return [what for _, what in unreachable(Outlook(weak))]

    assert told() == told("network.uplink.access=shared") == told("channel.narrowest_hz=2e6") == []
    assert len(told("channel.narrowing=off")) == 2
    (up, _) = told("channel.narrowest_hz=2e6", "channel.rate={kind: shannon, repetitions: 1}")
    assert "uplink, the best mean SNR is -20.0 dB, got a rate that needs -17.5 dB" in up


SGD = {"lr": 0.1, "local_steps": 1}
RUN_REFUSES = {
    "a model without adapters": {"algorithm": {"kind": "flora", "ranks": [2], **SGD}, "model": "softmax"},
    "a layer that the model lacks": {"algorithm": {"kind": "fedper", "private": ["nothing"], **SGD}},
    "a cut behind the last layer": {
        "algorithm": {"kind": "splitfed", "cut": 9, **SGD},
        "server.flop_per_s": 1e9,
        "evaluation.per_device": False,
    },
    "more labels than classes": {"partition": {"kind": "labels-per-device", "labels": 11}},
    "a class that is not there": {"attack": {"kind": "label-flip", "malicious": 2, "target": 10}},
    "a metric of another task": {"evaluation.metrics": ["rmse"]},
    "groups that the data lack": {"partition": "group"},
    "a speed that the server lacks": {
        "network.uplink.secure_aggregation": {"kind": "bonawitz", "prg_flop_per_entry": 2},
        "algorithm.weighting": "uniform",
    },
}


@pytest.mark.parametrize("case", RUN_REFUSES)
def test_check_refuses_what_a_run_refuses(case):
    """In the words of the run, although nothing but building it or its first round shows the mistake."""
    refusals = []
    for ask in (fe.check, fe.run):
        with pytest.raises(FednetError) as refused:
            ask("quickstart", settings=RUN_REFUSES[case])
        refusals.append(str(refused.value))

    assert refusals[0] == refusals[1]


def test_a_scenario_is_tried_only_where_that_takes_seconds(tmp_path, monkeypatch):
    """Not without its data, not for 30,000 devices; and a run that ends before its first round is no mistake."""
    monkeypatch.delenv("FEDNET_DATA", raising=False)

    assert tried(Outlook(load_scenario("mcmahan_2nn"), tmp_path)).startswith(f"{tmp_path}")
    assert tried(Outlook(load_scenario("quickstart", ["devices.count=30000"]))) == "it is large"
    assert tried(Outlook(load_scenario("quickstart", ["stop={simulated_s: 1.0e-6}"]))) == ""
