"""Devices that exist: what their profiles say comes out of a run, with the numbers of the publications."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

import fednet_emu as fe
from fednet_emu.devices.processors import Work
from fednet_emu.devices.profiles import Profile
from fednet_emu.emulation.hardware import hardware, notes, speeds
from fednet_emu.emulation.load import warnings_of
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.emulation.play import Ended, play
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.kernel.streams import Streams
from fednet_emu.records.ledger import SERVER
from fednet_emu.scenario.document import apply_overrides, from_text, load
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.yaml_text import dump
from fednet_emu.testing import SMALL, run_small, small_federation, small_scenario
from tests.quick import validator

ROOT = Path(__file__).parents[2]
ALL = {path.stem: path for path in sorted((ROOT / "profiles").glob("*.yaml"))}
SHIPPED = {name: path for name, path in ALL.items() if "\ncompute:" in path.read_text(encoding="utf-8")}
"""Those of devices."""
MIXED = "devices.profile={pi-4b: 0.5, phone-2019-mid: 0.5}"
FASHION_FLOP = 6 * 2_856_896 * 600
"""An epoch of 600 samples of the Fashion-MNIST net of ns3-fl."""


def of(name: str) -> Profile:
    return validate(Profile, load(name, "profiles"))


def alone(profile: str, *settings: str) -> Federation:
    return small_federation(f"devices.profile={profile}", "devices.speed=null", "devices.count=1", *settings)


def computed(fed: Federation, flop: float) -> tuple[float, float]:
    """Time in s of a computation of device 0, and the energy in J that the device draws meanwhile."""
    fed.clock.run_process(iter_of(fed.processors.run(0, Work(flop, None))))
    fed.close()
    return fed.clock.now_s, fed.ledger.spent_j(fed.clock.now)


def iter_of(event: Any) -> Any:
    yield event


def ended_of(scenario: Scenario) -> Ended:
    return play(scenario, "profiles", None, timing_only=True)


# ---- what the publications say ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epochs", "took_s", "mean_w", "spent_j"), [(1, 24.482, 5.1402, 125.84), (5, 27.444, 4.855, 133.24)]
)
def test_a_raspberry_pi_takes_the_time_and_energy_of_ns3_fl(epochs, took_s, mean_w, spent_j):
    """Fashion-MNIST, E epochs and the test set, which counts for 100 / 6 of one; power by the fit of the source."""
    start = "devices.overhead_s=11.4"  # which its fit has for each computation, as each was a program that started
    fed = alone("pi-4b", f"devices.compute_energy={{kind: measured, active_w: {mean_w}}}", start)

    now_s, energy_j = computed(fed, FASHION_FLOP * (epochs + 100 / 6))

    assert now_s == pytest.approx(took_s, rel=2e-4)
    assert energy_j == pytest.approx(spent_j, rel=2e-4)


@pytest.mark.parametrize(
    ("profile", "flop", "took_s", "spent_j"),
    [
        ("phone-2019-mid", 1_032_714_240, 0.588, 0.588 * 3.0),  # a batch of 10 of FLASH's FEMNIST net
        ("phone-2019-high", 1_032_714_240, 0.179, 0.179 * 3.6),
        ("jetson-nano", 625 * 8 * 6 * 1.814e9, 483.1, 4831.0),  # 1.34 Wh at the cap of its mode
        ("laptop-m1-pro", 50_000 * 6 * 4.089e9, 50_000 / 72.8, 22.5e3),  # ResNet-50
        ("cortex-m4", 2.8e7, 1.0, 10.682e-3 * 4.409),  # MLPerf Tiny: energy of an inference times throughput
    ],
)
def test_other_devices_take_the_time_and_energy_of_their_sources(profile, flop, took_s, spent_j):
    """The whole device's power while it computes, idle power included, times the measured time."""
    assert computed(alone(profile), flop) == pytest.approx((took_s, spent_j), rel=2e-3)


def test_a_board_that_computes_and_sends_draws_its_idle_power_once():
    """2.7 W of idling, 2.4 W more to compute and 2.1 W more to send are 7.2 W, not 5.1 + 4.8."""
    hard = hardware(small_scenario("devices.profile=pi-4b", "channel.device.tx_power_dbm=20"), Streams(0))
    radio = small_scenario("channel.device.tx_power_dbm=20").channel.device
    [law] = hard.energy

    sending_w = hard.powers.transmitters(radio)[0].drawn_w(radio.tx_power_w)

    assert hard.powers.idle_w[0] == 2.7
    assert law.energy_j(1.0, duration_s=1.0) == pytest.approx(2.4)
    assert sending_w == pytest.approx(2.1)  # 0.1 W of it is radiated
    assert hard.powers.rx_consumption_w(radio)[0] == 0.0  # not known: as idle


def test_waiting_for_a_straggler_costs_the_others_their_idle_power():
    """Four boards, one of them at half speed in a round of three steps: the three wait for it at 2.7 W each."""
    scenario = small_scenario(
        "devices.profile=pi-4b",
        "devices.speed={kind: list, flop_per_s: [720, 1440, 1440, 1440]}",
        "devices.overhead_s=0",
        "stop.rounds=1",
    )
    summary = ended_of(scenario).summary

    lost_j = 3 * 2.7 * 0.5  # a step takes 1 s, or half a second
    assert summary["waiting_j"] == pytest.approx(lost_j, rel=0.02)  # and a millisecond for each of the messages
    assert summary["compute_j"] == pytest.approx(2.4 * (1.0 + 3 * 0.5), rel=1e-6)
    assert summary["idle_j"] == pytest.approx(4 * 2.7 * summary["simulated_s"], rel=1e-12)
    parts = ("compute_j", "transmit_j", "rx_energy_j", "idle_j", "station_j")
    assert sum(summary[part] for part in parts) == pytest.approx(summary["energy_j"], rel=1e-12)
    assert summary["verified"]


# ---- the files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_a_file_states_every_number_or_that_it_is_not_known(name):
    """No key of a profile is left out, so that one that overrides another leaves nothing of it behind."""
    written = YAML(typ="safe").load(SHIPPED[name])
    profile = of(name)

    assert set(written) == set(Profile.model_fields) - {"share"}
    for part in ("compute", "radio"):
        assert set(written[part]) == set(type(getattr(profile, part)).model_fields)
    low, high = profile.compute.flop_per_s_range
    assert low <= profile.compute.flop_per_s <= high * 1.001
    assert 0.004 <= profile.compute.active_w <= 150
    assert profile.title in dump(profile)


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_only_assumed_says_so(name):
    """Marks that may not be better: power of the phones, of the Nano, speed of the microcontroller."""
    phone = {"active_w", "idle_w", "tx_consumption_w", "rx_consumption_w", "max_dbm", "amplifier_efficiency"}
    weak = {"phone-2019-mid": phone, "phone-2019-high": phone, "jetson-nano": {"active_w"}, "cortex-m4": {"flop_per_s"}}
    evidence = of(name).evidence

    assert {key for key in type(evidence).model_fields if getattr(evidence, key) == "assumed"} == weak.get(name, set())


# ---- what stands beside a profile ------------------------------------------------------------------------------------


def test_a_speed_may_be_spread_around_that_of_each_profile():
    """A log-normal law without a median multiplies what the profiles state; one with a median replaces it."""
    spread, replaced = "devices.speed={kind: log-normal, sigma: 0.5}", "devices.speed={kind: fixed, flop_per_s: 5}"

    def drawn(*settings: str) -> np.ndarray:
        scenario = small_scenario(MIXED, "devices.count=400", *settings)
        return speeds(scenario, hardware(scenario, Streams(1)).which, Streams(1), None)

    ratio = drawn(spread) / drawn("devices.speed=null")
    assert np.log(ratio).std() == pytest.approx(0.5, rel=0.1)
    assert set(drawn("devices.speed=null")) == {1.389e10, 1.7563e9}
    assert set(drawn(replaced)) == {5.0}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("", {"idle": 2.7, "computing": 2.4, "sending": 2.1, "overhead": 0.0}),
        ("channel.device.idle_w=1.5", {"idle": 1.5, "computing": 3.6, "sending": 3.3}),
        ("channel.device.circuit_w=0", {"sending": 10**-0.7}),  # 23 dBm, which the amplifier draws
        ("channel.device.rx_consumption_w=0.3", {"receiving": 0.3}),
        ("devices.overhead_s=11.4", {"overhead": 11.4}),
        ("devices.compute_energy={kind: measured, active_w: 4}", {"computing": 1.3}),
        ("devices.profile.idle_w=2", {"idle": 2.0, "computing": 3.1}),
    ],
)
def test_a_setting_beside_a_profile_wins(setting, expected):
    """Each replaces one number; powers of the whole device remain those of the whole device."""
    scenario = small_scenario("devices.profile=pi-4b", *([setting] if setting else []))
    hard, radio = hardware(scenario, Streams(0)), scenario.channel.device
    found = {
        "idle": hard.powers.idle_w[0],
        "computing": hard.energy[0].energy_j(1.0, 1.0),
        "sending": hard.powers.transmitters(radio)[0].drawn_w(radio.tx_power_w),
        "receiving": hard.powers.rx_consumption_w(radio)[0],
        "overhead": hard.overhead_s[0],
    }

    assert {key: found[key] for key in expected} == pytest.approx(expected)


def test_a_dump_holds_the_numbers_and_reads_back_as_the_same_scenario():
    """The files need not be there any more to run it again."""
    for setting in ("devices.profile=pi-4b", MIXED):
        scenario = small_scenario(setting)
        text = dump(scenario)

        assert "title: Raspberry Pi 4 B" in text
        assert validate(type(scenario), from_text(text)) == scenario


def test_a_mixture_is_written_in_two_ways():
    """Names with shares are short for a list of files with shares, in a file and as an override."""
    long = "devices.profile=[{include: pi-4b, share: 0.5}, {include: phone-2019-mid, share: 0.5}]"
    in_file = SMALL.replace("  speed:", "  profile: {pi-4b: 0.5, phone-2019-mid: 0.5}\n  speed:")

    assert small_scenario(long) == small_scenario(MIXED)
    assert validate(type(small_scenario()), apply_overrides(from_text(in_file), [])) == small_scenario(MIXED)
    with pytest.raises(ScenarioError, match="no such profile, got 'pi-4c'; did you mean 'pi-4b'"):
        small_scenario("devices.profile={pi-4c: 1}")


# ---- transmit power --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "due_w"),
    [
        (("devices.profile=phone-2019-mid",), [1.1728, 1.2269, 1.74, 4.0271]),  # 1.74 W at 23 dBm, 0.57 of it amplifier
        (
            ("devices.profile=phone-2019-high", "channel.device.amplifier_efficiency=0.2"),
            [0.7474, 0.8421, 1.74, 5.7424],
        ),
        (("channel.device.profile=esp32",), [0.5122, 0.5719, 1.1384, 3.6636]),
        (("devices.profile=pi-4b",), [2.1, 2.1, 2.1, 2.1]),
        (("devices.profile=pi-4b", "channel.device.amplifier_efficiency=0.35"), [1.5328, 1.5869, 2.1, 4.3871]),
        (("devices.profile=phone-2019-mid", "channel.device.profile=phone-lte-2020"), [0.54, 0.54, 0.54, 1.0]),
        ((), [0.001, 0.01995, 0.1995, 1.0]),
    ],
)
def test_power_while_sending_follows_the_transmit_power_where_a_source_splits_it(settings, due_w):
    """At 0, 13, 23 and 30 dBm: radiated power over efficiency, and a constant; all of it constant without a split.

    What a profile states holds at its own transmit power, or at the 23 dBm of a handset. Nothing draws less than it
    radiates, 1 W in the end.
    """
    drawn_w = []
    for power_dbm in (0, 13, 23, 30):
        scenario = small_scenario(*settings, f"channel.device.tx_power_dbm={power_dbm}")
        radio = scenario.channel.device
        [transmitter] = hardware(scenario, Streams(0)).powers.transmitters(radio)
        drawn_w.append(transmitter.drawn_w(radio.tx_power_w))

    assert drawn_w == pytest.approx(due_w, rel=1e-3)


def test_power_control_saves_the_power_of_the_amplifier():
    """Each of a mixture by its own law: a phone 1.17 W and what it radiates over 0.35, a board 2.1 W whatever."""
    control = "network.power_control={kind: target-snr, target_snr_db: 20}"
    scenario = small_scenario(MIXED, control, "stop.rounds=1")
    ended, hard = ended_of(scenario), hardware(scenario, Streams(scenario.seed))
    links = small_federation(MIXED, control).network.up_links
    sent = ended.ledger.frame("transfers").query("direction == 'uplink'")

    assert set(hard.which) == {0, 1}
    for row in sent.itertuples():
        radiated_w = links.power_w(row.sender)
        due_w = 1.74 - 10**-0.7 / 0.35 + radiated_w / 0.35 if hard.which[row.sender] else 2.1
        assert radiated_w < 2e-3
        assert row.energy_j == pytest.approx(due_w * (row.ended_s - row.started_s), rel=1e-6)
    assert ended.summary["verified"]


def warned(*settings: str) -> str:
    return "\n".join(what for _, what in warnings_of(Outlook(small_scenario(*settings))))


SAME = "at any transmit power"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            ("devices.profile=pi-4b", "channel.device.tx_power_dbm=13"),
            f"power while sending is 2.1 W {SAME}, got 13 dBm",
        ),
        (("channel.device.profile=phone-lte-2020", "channel.device.tx_power_dbm=20"), f"540 mW {SAME}, got 20 dBm"),
        (
            (MIXED, "network.power_control={kind: target-snr, target_snr_db: 9}"),
            f"2.1 W {SAME}, got power_control target",
        ),
        (("devices.profile=pi-4b", "network.uplink.access={kind: planned, planner: least-time}"), "got access planned"),
        (("devices.profile=pi-4b",), ""),
        (("devices.profile=phone-2019-mid", "channel.device.tx_power_dbm=13"), ""),
        (("devices.profile=pi-4b", "channel.device.tx_power_dbm=13", "channel.device.circuit_w=1"), ""),
        (("devices.profile=pi-4b", "channel.device.tx_power_dbm=13", "channel.device.amplifier_efficiency=0.3"), ""),
        (("devices.profile=pi-4b", "channel.device.tx_power_dbm=13", "network.uplink.access=ethernet"), ""),
        (("channel.device.tx_power_dbm=13",), ""),
    ],
)
def test_a_power_that_does_not_follow_the_transmit_power_is_warned_of(settings, text):
    """Where the power differs from that of the profile, or is controlled; not where a source or a setting splits it."""
    found = warned("channel.rate=shannon", *settings)

    assert text in found if text else SAME not in found


@pytest.mark.parametrize(
    ("settings", "ideal"),
    [
        ((), ["devices", "base stations"]),
        (("devices.profile=pi-4b",), ["base stations"]),
        (("channel.device.amplifier_efficiency=0.4",), ["base stations"]),
        (("channel.device.profile=esp32", "channel.base_station.profile=earth-pico"), []),
        (("channel.device.amplifier_efficiency=1", "channel.base_station.amplifier_efficiency=1"), []),
        (("devices.profile=cortex-m4", "network.downlink.access=ethernet"), ["devices"]),
    ],
)
def test_ideal_amplifiers_are_told(settings, ideal):
    """1 W radiated is 1 W drawn where nothing is stated, and a note says so; who states it knows."""
    told = [note.split(" send with")[0] for note in notes(small_scenario(*settings)) if "ideal amplifier" in note]

    assert told == ideal


@pytest.mark.parametrize("planner", ["least-time", "least-energy", "resource-blocks", "fedl"])
def test_plans_are_made_for_devices_whose_power_does_not_follow(planner):
    """A board that draws 2.1 W at any power beside a phone: each plan is played, and uploads cost what they take."""
    access = f"network.uplink.access={{kind: planned, planner: {planner}}}"
    ended = ended_of(small_scenario(MIXED, access, "channel.rate=shannon", "stop.rounds=1"))
    frames, which = ended.ledger.frames(), hardware(small_scenario(MIXED), Streams(0)).which
    sent = frames["transfers"].query("direction == 'uplink'")

    assert len(sent) == 4
    for row in sent.itertuples():
        power_w = row.energy_j / (row.ended_s - row.started_s)
        assert power_w == pytest.approx(2.1) if not which[row.sender] else 1.169 < power_w < 1.741


# ---- what a run relies on --------------------------------------------------------------------------------------------


def test_without_profile_or_law_the_energy_of_computing_is_not_counted_and_said_so():
    """No power is made up: it is unknown in the summary, and a note says what to give."""
    ended = ended_of(small_scenario())

    assert ended.summary["compute_j"] is None
    assert ended.ledger.computes.column("energy_j").sum() == 0
    note = next(notes(small_scenario()))
    assert "computing is not counted" in note
    assert "give devices.profile" in note
    law = "devices.compute_energy={kind: measured, active_w: 1}"
    assert "computing is not counted" not in "\n".join(notes(small_scenario(law)))


def test_a_run_names_its_weakest_evidence_and_what_is_not_known():
    """Only numbers that the run uses count: a speed beside the profile takes that of the profile out."""
    told = "\n".join(notes(small_scenario(MIXED, "devices.speed=null")))

    assert "Raspberry Pi 4 B: the weakest evidence is 'derived' (flop_per_s)" in told
    power = "active_w, idle_w, tx_consumption_w, rx_consumption_w, max_dbm, amplifier_efficiency"
    assert f"Mid-range phone of 2019: the weakest evidence is 'assumed' ({power})" in told
    assert "Raspberry Pi 4 B: not known, and not counted: overhead_s, rx_consumption_w" in told
    assert "'measured' (active_w, idle_w, tx_consumption_w)" in "\n".join(notes(small_scenario(MIXED)))


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ("pi-4b", True),
        ({"pi-4b": 0.5, "jetson-nano": 1}, True),
        ([{"include": "pi-4b", "share": 1}], True),
        ({"include": "pi-4b", "idle_w": 2}, True),
        (None, True),
        ({"pi-4b": "half"}, False),
        ({"include": "pi-4b", "idle": 2}, False),
    ],
)
def test_editors_know_every_way_to_write_a_profile(value, accepted):
    """The schema admits a name, shares, a list and a mapping, and no other keys."""
    document = YAML(typ="safe").load(SMALL)
    document["devices"]["profile"] = value

    assert validator().is_valid(document) == accepted


def test_what_a_server_expects_of_a_device_holds_its_fixed_time():
    """Expected and planned times are those that computations take; the server itself has no fixed time."""
    fed = alone("pi-4b", "devices.overhead_s=11.4", "server.flop_per_s=1e6", "devices.cpu_frequency.part=0.5")
    due_s = (11.4 + 1.0) / 0.5

    assert fed.processors.expected_s(0, 1.389e10) == pytest.approx(due_s)
    assert fed.processors.nominal(0, 1.389e10) == pytest.approx((due_s, due_s * 2.4, 1.0))  # no clock saves
    assert computed(fed, 1.389e10)[0] == pytest.approx(due_s)
    again = alone("pi-4b", "server.flop_per_s=1e6")
    again.clock.run_process(iter_of(again.processors.run(SERVER, Work(1e6, None))))
    assert again.clock.now_s == 1.0


def test_dynamic_energy_falls_with_the_square_of_the_clock():
    """1e6 cycles at 1 GHz and kappa 1e-28 take 0.1 mJ, at half the clock a quarter of it, beside the idle power."""
    law = "devices.compute_energy={kind: cmos, clock_hz: 1e9, flop_per_cycle: 2}"

    for part in (1.0, 0.5):
        fed = alone("pi-4b", law, f"devices.cpu_frequency.part={part}", "devices.overhead_s=0")
        now_s, spent_j = computed(fed, 2e6)
        assert spent_j - 2.7 * now_s == pytest.approx(1e-4 * part**2)


@pytest.mark.parametrize(
    "laws",
    [
        ["devices.speed={kind: fixed, flop_per_s: 1e6}"],
        ["devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 0.5}", "devices.overhead_s=0.02"],
        ["devices.speed={kind: list, flop_per_s: [1e6, 2e6, 3e6, 4e6]}", "devices.cpu_frequency.part=0.5"],
        ["devices.speed=null", "devices.profile={pi-4b: 0.5, phone-2019-mid: 0.5}"],
        ["devices.straggler={kind: log-normal, sigma: 1}", "devices.overhead_s=0.02"],
    ],
)
def test_a_slowdown_multiplies_the_time_of_a_computation(laws: list[str]) -> None:
    """Device 0 takes ten times and device 2 half as long as without it, overhead included; the others are the same."""
    plain, slowed = (
        run_small(*laws, *more, "stop.rounds=2", timing_only=True)
        .ledger.frame("computes")
        .sort_values(["device", "started_s"])
        for more in ([], ["devices.slowdown={0: 10, dev-2: 0.5}"])
    )

    took_s = [(its["ended_s"] - its["started_s"]).to_numpy() for its in (plain, slowed)]
    np.testing.assert_allclose(took_s[1] / took_s[0], np.repeat([10, 1, 0.5, 1], 2), rtol=1e-6)


def test_a_slowdown_is_one_line_of_a_scenario() -> None:
    """As an option, an axis or a mapping of Python numbers; a device that is not there is refused by its number."""
    three = {"data": "digits", "model": "mlp", "algorithm": "fedavg"}

    assert fe.check(three, settings={"devices.slowdown.0": 10}).devices.slowdown == {0: 10}
    assert fe.check(three | {"devices": {"slowdown": {0: 10, "dev-3": 2}}}).devices.slowdown == {0: 10, 3: 2}
    with pytest.raises(ScenarioError, match=r"devices\.slowdown\.20: no such device, got 20; must be from 0 to 19"):
        fe.check(three | {"devices": {"slowdown": {20: 10}}})
    with pytest.raises(ScenarioError, match=r"devices\.slowdown\.0: must be in .* got 0"):
        fe.check(three | {"devices": {"slowdown": {0: 0}}})
