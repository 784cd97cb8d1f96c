"""Radio profiles, files and traced gains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

import fednet_emu as fe
from fednet_emu.emulation.hardware import hardware, notes
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.emulation.plausibility import radiated
from fednet_emu.emulation.play import play
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.kernel.streams import Streams
from fednet_emu.network.air.transfer import Message
from fednet_emu.radio.propagation.link import Hop
from fednet_emu.radio.propagation.path_loss import FreeSpace
from fednet_emu.records.laws import charge_problem, verify
from fednet_emu.records.ledger import SERVER
from fednet_emu.results.library import known
from fednet_emu.scenario.document import from_text
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.yaml_text import dump
from fednet_emu.testing import SMALL, run_small, small_federation, small_scenario
from tests.quick import validator

ROOT = Path(__file__).parents[2]
PHONES = ("phone-lte-2020", "phone-5g-2020", "phone-5g-mmwave-2020")
CHIPS = ("esp32", "sx1276", "sx1276-boost")
STATIONS = ("earth-macro", "earth-remote-head", "earth-micro", "earth-pico", "earth-femto")
RADIOS = (*PHONES, *CHIPS)
MBIT = 1_000_000


def radio_with(profile: str, *settings: str) -> Federation:
    """The small federation at 10 Mbit/s, whose devices have this radio."""
    return small_federation(f"channel.device.profile={profile}", "channel.rate.bit_rate_bps=1e7", *settings)


def sent(fed: Federation, size_bit: int, *, down: bool = False) -> Any:
    """The delivery of a message that device 0 sends, or is sent."""
    request = (fed.network.downlink if down else fed.network.uplink).send(
        *((SERVER, 0) if down else (0, SERVER)), Message(None, size_bit, 0)
    )
    wait_for(fed, request)
    return request.value


def wait_for(fed: Federation, *requests: Any) -> None:
    """Run until these have ended, the last one last, and end the run."""

    def wait(request: Any) -> Any:
        yield request

    for request in requests:
        fed.clock.run_process(wait(request))
    fed.close()


# ---- what the sources say --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "whole_j", "above_j"), [("phone-lte-2020", 29.5, 10.7), ("phone-5g-2020", 28.2, 9.3)]
)
def test_eighty_megabits_up_at_ten_take_the_energy_of_the_measured_phone(profile, whole_j, above_j):
    """8 s, with the power of the whole phone where its base of 2.36 W counts as idle power."""
    alone, whole = radio_with(profile), radio_with(profile, "devices.count=1", "channel.device.idle_w=2.36")

    for fed in (alone, whole):
        delivery = sent(fed, 80 * MBIT)
        assert delivery.ended_s == 8.0

    assert alone.ledger.spent_j(alone.clock.now) == pytest.approx(above_j, abs=0.05)
    assert whole.ledger.spent_j(whole.clock.now) == pytest.approx(whole_j, abs=0.1)


@pytest.mark.parametrize(
    ("profile", "up_w", "up_nj", "down_w", "down_nj"),
    [
        ("phone-lte-2020", 0.54, 79.5, 0.36, 15.0),
        ("phone-5g-2020", 0.84, 32.2, 0.53, 15.4),
        ("phone-5g-mmwave-2020", 3.28, 9.15, 2.86, 1.76),
    ],
)
@pytest.mark.parametrize("mbps", [2, 20])
def test_power_grows_with_the_rate_by_the_fitted_line(profile, up_w, up_nj, down_w, down_nj, mbps):
    """P = a + b R: the same 40 Mbit take less energy at a higher rate, by a times the time that is saved."""
    rate = f"channel.rate.bit_rate_bps={mbps * MBIT}"
    up, down = radio_with(profile, rate), radio_with(profile, rate)
    sent(up, 40 * MBIT)
    sent(down, 40 * MBIT, down=True)

    assert up.ledger.transfers.column("energy_j")[0] == pytest.approx(40 / mbps * up_w + 0.04 * up_nj, rel=1e-9)
    assert down.ledger.transfers.column("rx_energy_j")[0] == pytest.approx(
        40 / mbps * down_w + 0.04 * down_nj, rel=1e-9
    )


@pytest.mark.parametrize(
    ("profile", "dbm", "stated_w"),
    [
        ("esp32", 14, 0.594),
        ("esp32", 16, 0.627),
        ("esp32", 19.5, 0.792),
        ("sx1276", 7, 0.066),
        ("sx1276", 13, 0.0957),
        ("sx1276-boost", 17, 0.2871),
        ("sx1276-boost", 20, 0.396),
    ],
)
def test_a_second_of_sending_takes_the_power_of_the_data_sheet(profile, dbm, stated_w):
    """Current times voltage of each row, to the 1.3 % of the fit of two numbers to three rows."""
    fed = radio_with(profile, f"channel.device.tx_power_dbm={dbm}")
    sent(fed, 10 * MBIT)

    assert fed.ledger.transfers.column("energy_j")[0] == pytest.approx(stated_w, rel=0.013)


@pytest.mark.parametrize(
    ("profile", "dbm", "no_load_w", "full_w"),
    [
        ("earth-macro", 50.7918, 780.0, 1344.0),  # six of 20 W
        ("earth-remote-head", 50.7918, 504.0, 840.0),
        ("earth-micro", 41.0037, 112.0, 144.8),
        ("earth-pico", 24.1497, 13.6, 14.6),
        ("earth-femto", 20.0, 9.6, 10.4),
    ],
)
def test_a_station_draws_what_earth_says_without_load_and_at_full_load(profile, dbm, no_load_w, full_w):
    """A second of silence, then a second of sending with all transceivers at their full power."""
    station = (f"channel.base_station.profile={profile}", f"channel.base_station.tx_power_dbm={dbm}")
    fed = small_federation(*station, "channel.rate.bit_rate_bps=1e7")

    fed.clock.run(until=NS_PER_S)
    silent_j = fed.ledger.spent_j(fed.clock.now)
    sent(fed, 10 * MBIT, down=True)

    assert silent_j == pytest.approx(no_load_w, rel=1e-9)
    assert fed.ledger.spent_j(fed.clock.now) - silent_j == pytest.approx(full_w, abs=0.05)


def test_a_macro_station_at_half_load_draws_1062_watts():
    """6 (130 + 47): full power half of the time, or half of the power all the time."""
    fed = small_federation("channel.base_station.profile=earth-macro", "channel.base_station.tx_power_dbm=50.7918")
    half = small_federation("channel.base_station.profile=earth-macro", "channel.base_station.tx_power_dbm=47.7815")
    fed.clock.run(until=NS_PER_S)
    sent(fed, MBIT, down=True)
    sent(half, MBIT, down=True)

    assert fed.ledger.spent_j(fed.clock.now) / 2 == pytest.approx(1062, rel=1e-5)
    assert half.ledger.spent_j(half.clock.now) == pytest.approx(1062, rel=1e-5)


def test_every_station_counts_and_what_devices_spend_stays_apart():
    """Three macro stations for the whole run, in `station_j` and in no other part; stop rules see it too."""
    cells = "network.cells={kind: list, xy_m: [[0, 0], [300, 0], [0, 300]]}"
    plain, macro = (
        play(small_scenario(cells, "stop.rounds=1", *more), "stations", None, timing_only=True).summary
        for more in ((), ("channel.base_station.profile=earth-macro",))
    )

    parts = ("transmit_j", "rx_energy_j", "idle_j", "station_j")
    assert macro["station_j"] == pytest.approx(3 * 780 * macro["simulated_s"] + 4.7 * plain["station_j"], rel=1e-5)
    assert sum(macro[part] for part in parts) == pytest.approx(macro["energy_j"], rel=1e-12)
    assert [macro[part] for part in parts[:3]] == [plain[part] for part in parts[:3]]
    assert macro["event_digest"] == plain["event_digest"]
    assert macro["verified"]


# ---- batteries -------------------------------------------------------------------------------------------------------

LTE = "channel.device.profile=phone-lte-2020"
SMALL_BATTERY = "devices.battery={capacity_j: 5}"


def test_a_battery_gives_what_bits_take():
    """At 10 Mbit/s LTE draws 0.54 + 0.795 W: 5 J last for 3.7453 s, and the battery has given just these."""
    fed = radio_with("phone-lte-2020", SMALL_BATTERY)
    delivery = sent(fed, 80 * MBIT)

    assert delivery.lost == "empty"
    assert delivery.ended_s == pytest.approx(5 / (0.54 + 0.795), abs=2e-9)
    assert fed.ledger.transfers.column("energy_j")[0] == pytest.approx(5.0, rel=1e-8)
    assert charge_problem(fed.ledger) == ""


def test_a_battery_follows_the_rate_where_senders_share_a_band():
    """Two devices have 5 Mbit/s each, 0.54 + 0.3975 W, until the one with the shorter message is through after 2 s.

    Then the other one has all of the band: 5 - 2 x 0.9375 J last for 2.3408 s more.
    """
    flat = "channel.rate={kind: shannon, min_efficiency_bps_hz: 0, max_efficiency_bps_hz: 0.5}"
    fed = radio_with("phone-lte-2020", SMALL_BATTERY, "network.uplink.access=ofdma", flat)
    medium = fed.network.uplink
    long, short = (medium.send(device, SERVER, Message(None, size * MBIT, 0)) for device, size in ((0, 80), (1, 10)))
    wait_for(fed, short, long)

    assert short.value.ended_s == pytest.approx(2.0, abs=1e-8)
    assert long.value.lost == "empty"
    assert long.value.ended_s == pytest.approx(2.0 + (5 - 2 * 0.9375) / 1.335, abs=1e-8)
    assert charge_problem(fed.ledger) == ""


def test_a_battery_gives_what_receiving_bits_takes():
    """0.36 + 0.15 W at 10 Mbit/s: 5 J last for 9.8039 s."""
    fed = radio_with("phone-lte-2020", SMALL_BATTERY)
    delivery = sent(fed, 200 * MBIT, down=True)

    assert delivery.lost == "empty"
    assert delivery.ended_s == pytest.approx(5 / 0.51, abs=2e-9)
    assert fed.ledger.transfers.column("rx_energy_j")[0] == pytest.approx(5.0, rel=1e-8)
    assert charge_problem(fed.ledger) == ""


FADES = ("channel.fading=rayleigh", "channel.rate={kind: shannon}", "channel.bandwidth_hz=1e5", "stop.rounds=2")


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("network.uplink.access=ofdma", "network.downlink.mode=unicast", "network.downlink.access=ofdma"),
        ("network.uplink.access=full-reuse",),
        ("network.cells={kind: list, xy_m: [[0, 0], [60, 0]]}",),
        ("network.uplink.timeout_s=0.002",),
        ("devices.battery.capacity_j=0.01", "devices.battery.harvesting={kind: constant, power_w: 1}"),
    ],
)
def test_batteries_and_records_agree_on_the_energy_of_bits(settings):
    """In turns and at the same time, with fading, lost in the middle or empty: no joule is made or lost."""
    fed = run_small(LTE, *FADES, "devices.battery={capacity_j: 1000}", *settings, timing_only=True)
    column = fed.ledger.transfers.column
    last = {use: np.zeros(4) for use in ("sending_j", "receiving_j")}
    for row, device in enumerate(fed.ledger.batteries.column("device")):
        for use, drawn_j in last.items():
            drawn_j[device] = fed.ledger.batteries.column(use)[row]

    up = column("sender") >= 0
    times_s = (column("ended_ns") - column("started_ns"))[up & (column("started_ns") >= 0)] / 1e9
    assert verify(fed.ledger, frozenset()) == dict.fromkeys(verify(fed.ledger, frozenset()), "")
    assert last["sending_j"].sum() == pytest.approx(column("energy_j")[up].sum(), rel=1e-9)
    assert last["receiving_j"].sum() == pytest.approx(column("rx_energy_j").sum(), rel=1e-9)
    bits_j = 79.5e-9 * column("transmitted_bit")[up].sum()
    assert column("energy_j")[up].sum() <= (0.54 * times_s.sum() + bits_j) * (1 + 1e-9)
    assert column("energy_j")[up].sum() > bits_j > 0


def test_a_battery_that_nothing_empties_changes_no_energy():
    """With fading the battery draws at mean rates, and ends with just what the rows have without it."""
    plain, powered = (
        run_small(LTE, *FADES, *more, timing_only=True) for more in ((), ("devices.battery={capacity_j: 1e6}",))
    )

    assert powered.ledger.event_digest() == plain.ledger.event_digest()
    for column in ("energy_j", "rx_energy_j"):
        np.testing.assert_allclose(
            powered.ledger.transfers.column(column), plain.ledger.transfers.column(column), rtol=1e-12
        )


# ---- beside other settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sending_w", "receiving_w"),
    [
        (("devices.profile=cortex-m4", "channel.device.profile=sx1276"), 0.0957, 0.0396),  # whose radio is apart
        (("devices.profile=pi-4b",), 2.1, 0.0),
        (("devices.profile=pi-4b", "channel.device.profile=esp32"), 0.572, 0.322),
        (("channel.device.profile=esp32", "channel.device.circuit_w=0"), 0.0629, 0.322),
        (("channel.device.profile=esp32", "channel.device.amplifier_efficiency=0.1"), 0.7085, 0.322),
        (("channel.device.profile=esp32", "channel.device.rx_consumption_w=0.1"), 0.572, 0.1),
        (("channel.device.profile={include: esp32, rx_consumption_w: 0.2}",), 0.572, 0.2),
        (("channel.device.profile=phone-lte-2020",), 0.54, 0.36),
        (("channel.device.profile=phone-lte-2020", "channel.device.circuit_w=1"), 1.01995, 0.36),
        (("channel.device.profile=phone-lte-2020", "channel.device.amplifier_efficiency=0.02"), 0.9976, 0.36),
        ((), 0.01995, 0.0),
    ],
)
def test_a_setting_beside_a_radio_wins_and_a_radio_over_the_device(settings, sending_w, receiving_w):
    """At 13 dBm, 19.95 mW; a transmitter draws at least what its amplifier takes."""
    scenario = small_scenario(*settings, "channel.device.tx_power_dbm=13")
    hard, radio = hardware(scenario, Streams(0)), scenario.channel.device

    drawn_w = hard.powers.transmitters(radio)[0].drawn_w(radio.tx_power_w)
    assert drawn_w == pytest.approx(sending_w, rel=1e-3)
    assert hard.powers.rx_consumption_w(radio)[0] == receiving_w


def test_the_energy_of_a_bit_can_be_set_without_a_profile():
    """It wins over that of a profile, too."""
    for more in ((), (LTE,)):
        settings = ("channel.device.tx_j_per_bit=1e-6", "channel.device.rx_j_per_bit=2e-6")
        fed = small_federation(*more, *settings)
        sent(fed, MBIT)
        sent(fed, MBIT, down=True)
        up_w, down_w = (0.54, 0.36) if more else (10**-0.7, 0.0)
        assert fed.ledger.transfers.column("energy_j")[0] == pytest.approx(up_w + 1.0)
        assert fed.ledger.transfers.column("rx_energy_j")[1] == pytest.approx(down_w + 2.0)


def test_plans_with_a_limit_of_energy_count_the_bits():
    """An upload of 320 bit at 1e-3 J each is 0.32 J: under a limit of 0.3 J nobody may send, under 0.4 J all may."""
    planner = "network.uplink.access={kind: planned, planner: {kind: resource-blocks, blocks: 4, max_energy_j: %s}}"
    shannon = ("channel.rate=shannon", "channel.device.tx_j_per_bit=1e-3", "stop.rounds=1")

    with pytest.warns(UserWarning, match="lets none of the 4 devices of round 1 upload"):
        none = run_small(planner % 0.3, *shannon, timing_only=True)
    everyone = run_small(planner % 0.4, *shannon, timing_only=True)

    assert len(none.ledger.series.get("plan", [])) == 0
    assert len(everyone.ledger.series["plan"]) == 4


@pytest.mark.parametrize("name", [*RADIOS, *STATIONS])
def test_a_file_states_every_number_or_that_it_is_not_known(name):
    """No key is left out, and each number is as well known as its source: nothing quoted passes for read."""
    written = YAML(typ="safe").load(ROOT / "profiles" / f"{name}.yaml")
    [profile] = known([name]).values()
    due = {"phone": "derived", "esp32": "table", "sx1276": "recalled", "earth": "recalled"}[name.split("-")[0]]

    assert set(written) == set(type(profile).model_fields)
    assert set(profile.marks.values()) - {None} == {due}
    assert ("not read" in (ROOT / "profiles" / f"{name}.yaml").read_text(encoding="utf-8")) == (due == "recalled")


def test_a_run_names_the_evidence_of_its_radios():
    """Of numbers that a setting beside the profile replaces nothing is said."""
    given = (LTE, "channel.base_station.profile=earth-macro", "channel.base_station.amplifier_efficiency=0.3")
    told = "\n".join(notes(small_scenario(*given)))

    assert (
        "LTE of a phone of 2020: the weakest evidence is 'derived' (tx_consumption_w, rx_consumption_w, tx_j_per_bit, "
        "rx_j_per_bit)" in told
    )
    assert "Macro base station: the weakest evidence is 'recalled' (idle_w)" in told
    assert "'derived' (rx_consumption_w, tx_j_per_bit, rx_j_per_bit)" in "\n".join(
        notes(small_scenario(LTE, "channel.device.circuit_w=0.1"))
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (("device.profile=esp32", "device.tx_power_dbm=19.5"), []),
        (("device.profile=esp32",), ["got 23 dBm; ESP32 Wi-Fi: at most 19.5 dBm (ESP32 Series data sheet 5.2, "]),
        (("base_station.profile=earth-femto",), ["got 30 dBm; Femto base station: at most 20 dBm (Auer et al. 2011"]),
        (("base_station.profile=earth-macro", "base_station.tx_power_dbm=46"), []),
        (("device.profile=phone-lte-2020",), []),
    ],
)
def test_more_radiated_power_than_a_profile_holds_for_is_said(settings, told):
    """With its source, and that it is from memory where it is."""
    found = [what for _, what in radiated(Outlook(small_scenario(*(f"channel.{setting}" for setting in settings))))]

    assert len(found) == len(told)
    for what, part in zip(found, told, strict=True):
        assert part in what
        assert what.endswith(", from memory)") == ("Auer" in part)


def test_a_dump_reads_back_as_the_same_scenario():
    """The files need not be there any more to run it again."""
    scenario = small_scenario(LTE, "channel.base_station.profile=earth-macro")
    text = dump(scenario)

    assert "title: LTE of a phone of 2020" in text
    assert validate(type(scenario), from_text(text)) == scenario


@pytest.mark.parametrize(("value", "accepted"), [("esp32", True), ({"include": "esp32"}, True), (3, False)])
def test_editors_know_how_to_name_a_radio(value, accepted):
    """The schema admits a name, or a file with changes."""
    document = YAML(typ="safe").load(SMALL)
    document["channel"] = {"include": "ideal", "device": {"profile": value}}

    assert validator().is_valid(document) == accepted


LINES_M = np.arange(-100.0, 101.0, 50.0)
PLACES_M = np.array([[x, y, 1.5] for x in LINES_M for y in LINES_M])
STATIONS_M = np.array([[-30.0, 15.0, 10.0], [70.0, -15.0, 10.0]])
PLAIN = {
    "devices.count": len(PLACES_M),
    "devices.placement": {"kind": "list", "xy_m": PLACES_M[:, :2].tolist()},
    "network.cells": {"kind": "list", "xy_m": STATIONS_M[:, :2].tolist()},
    "channel": {"carrier_hz": 3.5e9, "bandwidth_hz": 1e6, "path_loss": {"kind": "free-space"}},
    "stop": {"rounds": 3},
}


def friis(path, **changes):
    gain_db = np.stack(
        [-FreeSpace().loss_db(Hop.between(PLACES_M, station_m), 3.5e9) for station_m in STATIONS_M], axis=1
    )
    arrays = {"gain_db": gain_db, "los": np.ones(gain_db.shape, np.bool_), "xyz_m": PLACES_M, "stations_m": STATIONS_M}
    np.savez(path, **(arrays | {"carrier_hz": 3.5e9} | changes))
    return str(path)


def played(path_loss, **changes):
    return fe.run("quickstart", settings={**PLAIN, "channel.path_loss": path_loss, **changes}, timing_only=True)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_a_table_of_friis_is_free_space(tmp_path, interpolation):
    """Digest for digest, for devices on the grid, in two cells; and the map of the page has the gains."""
    path = friis(tmp_path / "street.npz")
    traced = played({"kind": "table", "path": path, "interpolation": interpolation})
    assert traced.summary["event_digest"] == played({"kind": "free-space"}).summary["event_digest"]
    ground = traced.table("ground")
    assert len(ground) == len(PLACES_M)
    assert ground["gain_db"].max() == pytest.approx(np.load(path)["gain_db"].max())
    assert '"ground"' in traced.report(tmp_path / "page.html").read_text()


WALK = {
    "devices.count": 1, "devices.placement": {"kind": "list", "xy_m": [[0, 0]]}, "algorithm.cohort": 1,
}  # fmt: skip


def walked(tmp_path, rows, **changes):
    """A run of one device that walks through rows of time, x and y, in a table of which one column is dark."""
    np.savez(tmp_path / "walk.npz", one=np.array(rows, np.float64))
    walk = {"kind": "trace", "path": str(tmp_path / "walk.npz"), "start": "beginning"}
    path = friis(tmp_path / "street.npz")
    path_loss = {"kind": "table", "path": path, "interpolation": "bilinear", **changes}
    return played(path_loss, **WALK, **{"devices.mobility": walk, "stop": {"simulated_s": 100}})


def test_a_device_moves_through_the_street(tmp_path):
    """Half way between two places it has the mean of their gains in dB, and at its end is served by the other cell."""
    run = walked(tmp_path, [(0, -75, 0), (100, 75, 0)])
    scene = run.table("scene")
    scene = scene[scene["device"] == 0].set_index("simulated_s")
    gain_db = np.load(tmp_path / "street.npz")["gain_db"].reshape(5, 5, 2)
    noise_dbm = -174 + 60 + 5
    assert scene.loc[0.0, "snr_db"] == pytest.approx(23 + gain_db[:2, 2, 0].mean() - noise_dbm, abs=1e-9)
    assert (scene["cell"].iloc[0], scene["cell"].iloc[-1]) == (0, 1)


def test_beyond_the_grid(tmp_path):
    """The run ends with the place, or the device is out of reach there."""
    way = [(0, 0, 0), (50, 0, 150), (100, 0, 150)]
    with pytest.raises(
        ScenarioError, match=r"a device is beyond the grid, got 0, 1\d\d.* m; must be x from -100 to 100"
    ):
        walked(tmp_path, way)
    run = walked(tmp_path, way, out_of_range="no-link")
    assert np.isneginf(run.table("scene").query("device == 0")["snr_db"].iloc[-1])


def test_powers_are_no_gains(tmp_path):
    """Direct paths of DeepMIMO that are 30 dB off free space are received powers, or of another carrier."""
    folder = tmp_path / "scene"
    folder.mkdir()
    length_m = np.linalg.norm(PLACES_M - STATIONS_M[0], axis=1)
    direct_db = -20 * np.log10(4 * np.pi * length_m * 3.5e9 / 299_792_458.0)
    for key, array in {
        "power": direct_db[:, None] + 30, "inter": np.zeros((25, 1)), "rx_pos": PLACES_M, "tx_pos": STATIONS_M[:1],
    }.items():  # fmt: skip
        np.savez(folder / f"{key}_t000_tx000_r001.npz", **{key: array.astype(np.float32)})
    changes = {"network.cells": {"kind": "list", "xy_m": [[-30, 15]]}}
    with pytest.raises(DataError, match=r"direct paths are 30.0 dB from free space at 3.5e\+09 Hz"):
        played({"kind": "table", "path": str(folder)}, **changes)
    np.savez(folder / "power_t000_tx000_r001.npz", power=direct_db[:, None].astype(np.float32))
    assert played({"kind": "table", "path": str(folder)}, **changes).summary["rounds"] == 3
