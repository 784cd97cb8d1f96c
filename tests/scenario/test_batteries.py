"""Stories of runs with batteries at exact times: who is empty when, what is lost, and who is there again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fednet_emu.emulation.play import play
from fednet_emu.errors import Deadlock
from fednet_emu.federation import cohort
from fednet_emu.federation.federation import Federation
from fednet_emu.records.laws import USES, verify
from fednet_emu.records.summaries import empty_s
from fednet_emu.testing import run_small, small_federation, small_scenario
from tests.algorithms.small import resumed_every_round

WATT = ("devices.compute_energy={kind: measured, active_w: 1.0}", "channel.device.tx_power_dbm=30")
"""1 W to compute, and to send."""
ONE = ("devices.count=1", "algorithm.cohort=1", "stop.rounds=1", "data.n_samples=20", *WATT)
"""One device: 320 us to receive, 720 us to compute, and 320 us to upload: 1040 uJ."""


def battery(capacity_j: float, **more: Any) -> str:
    return f"devices.battery={ {'capacity_j': capacity_j, **more}!r}"


def harvest(power_w: float) -> dict[str, Any]:
    return {"kind": "constant", "power_w": power_w}


def law(fed: Federation) -> str:
    return verify(fed.ledger, frozenset())["charge is conserved"]


def times(fed: Federation, table: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = fed.ledger.frame(table)
    return [
        tuple(round(value * 1e6, 3) if name.endswith("_s") else value for name, value in zip(columns, row, strict=True))
        for row in frame[list(columns)].itertuples(index=False)
    ]


def test_a_battery_that_lasts_changes_nothing() -> None:
    """The event log is that of a run without batteries, and the charge is what was not drawn."""
    plain, powered = run_small(*WATT), run_small(*WATT, battery(1.0))
    last = powered.ledger.frame("batteries").groupby("device").last()

    assert powered.ledger.event_digest() == plain.ledger.event_digest()
    assert "batteries" not in plain.ledger.frames()
    assert last["charge_j"].to_numpy() == pytest.approx(1.0 - 3 * 1040e-6, rel=1e-12)
    assert law(powered) == ""


def test_a_device_dies_in_the_middle_of_its_upload() -> None:
    """880 uJ are 720 for computing and 160 for half of the upload, which is lost at 1200 us with half of its bits."""
    fed = run_small(*ONE, battery(880e-6))

    assert times(fed, "transfers", "direction", "started_s", "ended_s", "transmitted_bit", "loss_reason") == [
        ("downlink", 0.0, 320.0, 320.0, ""),
        ("uplink", 1040.0, 1200.0, 160.0, "empty"),
    ]
    assert fed.ledger.frame("transfers")["energy_j"].iloc[1] == pytest.approx(160e-6, rel=1e-12)
    assert times(fed, "batteries", "simulated_s", "state")[-2:] == [(1200.0, "empty"), (1200.0, "empty")]
    assert fed.ledger.rounds.column("arrived").tolist() == [0]
    assert law(fed) == ""


def test_a_device_that_trains_alone_ends_with_its_battery() -> None:
    """1800 uJ are two rounds of 720 us and half of a third one, which changes nothing any more."""
    alone = "algorithm={kind: individual, device: 0, lr: 0.1, local_steps: 1, batch_size: null}"
    fed = run_small(*ONE, alone, "stop={simulated_s: 1}", battery(1800e-6))

    assert [stopped for *_, stopped in times(fed, "computes", "ended_s", "stopped")] == ["", "", "empty"]
    assert fed.round == 2
    assert len(fed.ledger.evaluations) == 3
    assert law(fed) == ""


def test_a_battery_that_just_suffices_delivers() -> None:
    """What ends in the instant in which the battery is empty has ended."""
    fed = run_small(*ONE, battery(1040e-6))

    assert fed.ledger.rounds.column("arrived").tolist() == [1]
    assert law(fed) == ""


def test_a_computation_stops_and_goes_on() -> None:
    """360 uJ at 1 W - 0.2 W last 450 us; half of that takes 900 us at 0.2 W; then 225 us more, and so on."""
    fed = run_small(*ONE, battery(360e-6, restart_share=0.5, harvesting=harvest(0.2)))

    assert times(fed, "computes", "started_s", "ended_s", "stopped") == [
        (320.0, 770.0, "empty"),
        (1670.0, 1895.0, "empty"),
        (2795.0, 2840.0, ""),
    ]
    computes = fed.ledger.frame("computes")
    assert computes["flop"].sum() == pytest.approx(720.0, rel=1e-12)
    assert computes["energy_j"].to_numpy() == pytest.approx([450e-6, 225e-6, 45e-6], rel=1e-12)
    assert (computes["result"] >= 0).tolist() == [False, False, True]
    assert times(fed, "transfers", "started_s", "ended_s", "loss_reason")[-1] == (
        2840.0,
        3020.0,
        "empty",
    )  # 144 uJ at 0.8 W
    assert not any(verify(fed.ledger, frozenset()).values())
    assert empty_s(fed.ledger, 1)[0] / fed.clock.now_s == pytest.approx(1800 / 3020, rel=1e-9)


def test_a_deadline_ends_a_computation_that_waits_for_charge() -> None:
    """Only the part that was done is in the books, and the device, once it is back, takes part again."""
    settings = ("algorithm.deadline_s=1e-3", "stop.rounds=3", battery(360e-6, harvesting=harvest(0.2)))
    fed = run_small(*ONE, *settings)

    assert times(fed, "computes", "started_s", "ended_s", "stopped")[0] == (320.0, 770.0, "empty")
    assert fed.ledger.rounds.column("arrived").sum() == 0
    assert not any(verify(fed.ledger, frozenset()).values())


def test_nobody_waits_for_a_device_that_is_empty_for_ever() -> None:
    """Its computation is in the books as far as it came; the round ends when it would have, and the upload is lost."""
    fed = run_small(
        *WATT, "devices.count=2", "data.n_samples=40", battery(1256e-6), "stop.rounds=2", "algorithm.cohort=2"
    )
    uploads = [row for row in times(fed, "transfers", "direction", "sender", "loss_reason") if row[0] == "uplink"]

    assert fed.round == 2
    assert [lost for *_, lost in uploads] == ["", "", "away", "away"]
    assert fed.ledger.computes.column("flop").tolist() == pytest.approx([720, 720, 216, 216], rel=1e-9)
    assert law(fed) == ""


def test_a_fleet_that_is_empty_for_ever_is_a_deadlock() -> None:
    """With nobody left to ask, the run says so, and that nothing charges the batteries."""
    fed = small_federation(*WATT, battery(1e-3))
    why = "a device to return; all 4 are away, 4 of them with an empty battery that nothing charges"
    with pytest.raises(Deadlock, match=why):
        fed.run(small_scenario(*WATT).algorithm)


CYCLING = ("channel.device.idle_w=1.0", battery(1e-3, restart_share=0.5, harvesting=harvest(0.25)))
"""From full to empty in 4/3 ms at an idle power of 1 W, back 2 ms later, empty after 2/3 ms, and so on for ever."""


def until(end_s: float) -> str:
    """The setting by which all four devices go away for good."""
    windows = {device: [[0.0, end_s]] for device in range(4)}
    return f"devices.availability={{kind: windows, devices: {windows}}}"


def test_batteries_that_nobody_waits_for_do_not_keep_a_run_going() -> None:
    """The devices leave in the downlink of the first round and never return, while their batteries go on as before."""
    fed = small_federation(*CYCLING, until(160e-6), "stop={rounds: 9, simulated_s: 10}")
    with pytest.raises(Deadlock, match=r"^deadlock at t=0\.00016 s: run waits for a device to return; all 4 are away;"):
        fed.run(small_scenario().algorithm)

    assert fed.round == 1
    assert times(fed, "receptions", "receiver", "loss_reason") == [(k, "left") for k in range(4)]


def test_a_run_goes_on_while_somebody_waits_for_charge() -> None:
    """600 uJ last for 800 us, half of them come back in 1.2 ms: 480 us of the computation are done before, 240 after.

    Its device has left for good at 400 us.
    """
    story = (*ONE, *CYCLING, "devices.battery.capacity_j=6e-4", "stop={rounds: 9, simulated_s: 10}")
    fed = small_federation(*story, "devices.availability={kind: windows, devices: {0: [[0, 400e-6]]}}")
    with pytest.raises(Deadlock, match=r"^deadlock at t=0\.00224 s: run waits for a device to return; all 1 are away"):
        fed.run(small_scenario(*story).algorithm)

    spans = [(320.0, 800.0, "empty"), (2000.0, 2240.0, "")]
    assert times(fed, "computes", "started_s", "ended_s", "stopped") == spans


def test_a_device_that_is_empty_in_each_of_its_windows_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its battery is empty from 0 to 2 ms of every 4 ms, and it can be reached from 0.23 to 1.23 ms of them only."""
    monkeypatch.setattr(cohort, "MOST_LOOKS", 50)
    phases = ("channel.device.idle_w=1.0", battery(1e-3, initial_share=0, restart_share=1.0, harvesting=harvest(0.5)))
    fed = small_federation(*ONE, *phases, "devices.availability={kind: periodic, on_s: 1e-3, off_s: 3e-3}")
    with pytest.raises(Deadlock, match=r"^deadlock at t=0\.20\d+ s: the server waits for .* all 1 are away"):
        fed.run(small_scenario(*ONE).algorithm)

    assert fed.round == 0


def test_an_asynchronous_server_says_that_everybody_is_away() -> None:
    """Its inbox stays empty: the text follows the trips, which ask for a device."""
    settings = ("algorithm={kind: fedbuff, lr: 0.1, local_steps: 1, concurrency: 4}", *CYCLING, until(160e-6))
    fed = small_federation(*settings, "stop={rounds: 9, simulated_s: 10}")
    why = r"t=0\.00016 s: run waits for 1 arrivals in the inbox, which holds 0; _trip waits for a device to return"
    with pytest.raises(Deadlock, match=why):
        fed.run(small_scenario(*settings).algorithm)


def test_one_receiver_of_a_broadcast_dies_alone() -> None:
    """At 1 W it has 160 us; the others receive all 320 us; their energy is that of the row."""
    fed = run_small(
        "channel.device.rx_consumption_w=1.0",
        "devices.count=3",
        "stop.rounds=1",
        battery(1e-3, initial_share=0.5, initial_spread=0.5),
        "algorithm.cohort=3",
    )
    first = fed.ledger.frame("batteries").groupby("device").first()["charge_j"].to_numpy()
    died = np.flatnonzero(first < 320e-6)
    lost = fed.ledger.frame("receptions").set_index("receiver")["loss_reason"]

    assert 0 < len(died) < 3
    assert [lost[device] for device in range(3)] == ["empty" if device in died else "" for device in range(3)]
    received_j = np.where(first < 320e-6, first, 320e-6).sum()
    assert fed.ledger.frame("transfers")["rx_energy_j"].iloc[0] == pytest.approx(received_j, rel=1e-6)
    assert law(fed) == ""


def test_idle_power_is_drawn_once_under_everything_else() -> None:
    """1360 us at 0.1 W, 720 us of computing that add 0.9 W to it, and 320 us of sending that add 1 W: 1104 uJ."""
    settings = ("channel.device.idle_w=0.1", battery(1200e-6))
    fed = run_small(*ONE, *settings)
    last = fed.ledger.frame("batteries").iloc[-1]

    assert last["idle_j"] == pytest.approx(136e-6, rel=1e-9)
    assert last["charge_j"] == pytest.approx(1200e-6 - 1104e-6, rel=1e-9)
    assert fed.ledger.spent_j(fed.clock.now) == pytest.approx(1104e-6 + 320e-6, rel=1e-9)  # the station sends with 1 W
    assert law(fed) == ""
    crowd = run_small(*WATT, "channel.device.idle_w=0.1", battery(1.0), "stop.rounds=1").ledger.frame("batteries")
    assert crowd.groupby("device").last()["idle_j"].to_numpy() == pytest.approx([232e-6] * 4, rel=1e-9)


def test_a_device_whose_battery_is_empty_draws_no_idle_power() -> None:
    """It ends after 500 us of 1 W: from then on idle power counts no more, in the battery and in the total."""
    fed = run_small(*ONE, "channel.device.idle_w=0.25", battery(400e-6))
    died_s = 320e-6 + (400e-6 - 80e-6) / 1.0

    assert fed.ledger.idle.until_j(fed.clock.now) == pytest.approx(0.25 * died_s, rel=1e-6)
    assert law(fed) == ""


def drawn_of_rows(frames: dict[str, pd.DataFrame], device: int, use: str) -> float:
    """What a device has drawn by the rows of the other tables."""
    sent, made = frames["transfers"], frames["computes"]
    if use == "computing_j":
        return float(made.loc[made["device"] == device, "energy_j"].sum())
    return float(sent.loc[sent["sender"] == device, "energy_j"].sum())


AIRS = {  # the access, and half of what an upload draws
    "proportional fair": ("network.uplink.access={kind: ofdma, scheduler: proportional-fair}", 2.5e-05),
    "equal parts": ("network.uplink.access=ofdma", 6e-05),
    "aloha": ("network.uplink.access={kind: slotted-aloha, slot_s: 0.001, probability: 0.4}", 6e-05),
    "noma": ("network.uplink.access=noma", 3e-05),
    "power control": ("network.power_control={kind: open-loop, target_dbm: -90}", 3e-05),
}


@pytest.mark.parametrize("air", AIRS)
def test_draws_are_those_of_the_rows_whatever_the_access(air: str) -> None:
    """Blocks in which a sender is silent draw nothing, and a device that dies in one has drawn what its rows say."""
    access, capacity_j = AIRS[air]
    settings = (
        "channel=fl-paper",
        "channel.fading={kind: rayleigh, coherence_s: 0.001}",
        access,
        "devices.count=6",
        "algorithm.cohort=6",
        "stop.rounds=4",
        "network.overhead={kind: header, header_bit: 400000}",
        battery(capacity_j, restart_share=0.3, harvesting={"kind": "constant", "power_w": 1e-3}),
    )
    fed = run_small(*settings)
    frames = fed.ledger.frames()
    last = frames["batteries"].groupby("device").last()

    assert (frames["transfers"]["loss_reason"] == "empty").sum() > 0
    for use in ("computing_j", "sending_j"):
        for device in range(6):
            assert last.loc[device, use] == pytest.approx(drawn_of_rows(frames, device, use), rel=1e-9, abs=1e-15)
    assert frames["batteries"]["charge_j"].between(-1e-9, capacity_j * (1 + 1e-12)).all()
    assert last[list(USES)].to_numpy().sum() > 0
    assert law(fed) == ""
    assert run_small(*settings, timing_only=True).ledger.event_digest() == fed.ledger.event_digest()


def test_a_run_that_was_cut_goes_on_with_the_same_charges() -> None:
    """Cut after every round and resumed, every row of every table is the same to the last bit."""
    packets = {"kind": "poisson", "arrival_j": 5e-4, "mean_interval_s": 1e-3}
    settings = (*WATT, "stop.rounds=4", battery(1.2e-3, harvesting=packets))
    whole, (rest, _) = run_small(*settings), resumed_every_round(3, *settings)

    frames, expected = rest.ledger.frames(), whole.ledger.frames()
    assert "empty" in expected["batteries"]["state"].to_list()
    assert frames.keys() == expected.keys()
    for name in frames:
        pd.testing.assert_frame_equal(frames[name], expected[name], check_exact=True)


def test_the_server_sees_the_charge_of_those_that_are_there() -> None:
    """The rule asks the fullest; who is empty is not there to be asked."""
    fed = run_small(
        *WATT,
        "algorithm.selection=most-charged",
        "algorithm.cohort=2",
        "stop.rounds=2",
        battery(8e-3, initial_spread=0.5),
    )
    asked = fed.ledger.frame("selection").groupby("round")["device"].apply(sorted)
    first = fed.ledger.frame("batteries").groupby("device").first()["charge_j"]

    assert asked[1] == sorted(first.nlargest(2).index)
    left = first - [1040e-6 if device in asked[1] else 0.0 for device in range(4)]
    assert asked[2] == sorted(left.nlargest(2).index)


@pytest.mark.parametrize("more", [(), ("channel.device.rx_consumption_w=0.5",), ("network.downlink.mode=unicast",)])
def test_a_device_whose_battery_ends_in_a_broadcast_does_not_wait(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Two boards of 1 W, a model of 1.6 s: one receives until it is empty, the other until it has all.

    So neither waits a second, unless each is sent its own: then the second one waits until it is empty.
    """
    links = ("devices.count=2", "channel.rate.bit_rate_bps=200", "channel.device.idle_w=1", "seed=2")
    scenario = small_scenario(*links, battery(4.0, initial_spread=1.0), *more)
    with pytest.raises(Deadlock):  # both are empty
        play(scenario, "empty", tmp_path / "run", timing_only=True)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())

    assert summary["waiting_j"] == pytest.approx(0.998579668 if "unicast" in str(more) else 0.0, abs=1e-8)
    assert summary["verified"]


@pytest.mark.parametrize("seed", range(6))
def test_energies_of_devices_are_those_of_their_batteries(seed: int) -> None:
    """Empty and back again in broadcasts, uploads and computations: what each has drawn.

    The table is the sum of other tables; the battery has counted the same while time went by.
    """
    more = battery(0.3, initial_spread=0.5, harvesting=harvest(0.4), restart_share=0.2)
    slow = ("channel.rate.bit_rate_bps=2000", "channel.device.idle_w=0.2", "channel.device.rx_consumption_w=0.5")
    scenario = small_scenario(*WATT, *slow, more, f"seed={seed}")
    run = play(scenario, "empty", None, timing_only=True)
    energies, batteries = (run.ledger.frame(name) for name in ("energies", "batteries"))
    last = batteries.groupby("device").last()

    assert run.summary["verified"]
    assert run.summary["empty_share"] > 0
    for use in USES:
        np.testing.assert_allclose(energies[use][:-1], last[use], rtol=1e-9)
    assert (energies["waiting_j"][:-1] <= energies["idle_j"][:-1]).all()
    parts = {"compute_j": "computing_j", "transmit_j": "sending_j", "rx_energy_j": "receiving_j", "idle_j": "idle_j"}
    for name, column in {**parts, "waiting_j": "waiting_j"}.items():
        assert run.summary[name] == pytest.approx(energies[column][:-1].sum())
    assert run.summary["energy_j"] == pytest.approx(energies[list(parts.values())].to_numpy().sum())
