"""Files of radios and base stations: what they state, and what is said of them."""

from __future__ import annotations

import pytest
from ruamel.yaml import YAML

from fednet_emu.emulation.hardware import notes
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.emulation.plausibility import radiated
from fednet_emu.errors import ScenarioError
from fednet_emu.radio.profiles import RadioProfile, StationProfile
from fednet_emu.results.library import known
from fednet_emu.scenario.document import from_text
from fednet_emu.scenario.library import names
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.yaml_text import dump
from fednet_emu.testing import SMALL, small_scenario
from tests.emulation.test_radio_profiles import LTE, RADIOS, ROOT, STATIONS
from tests.quick import validator


def test_the_library_has_these_radios_and_stations():
    """They are in the same folder as devices, and of their own kinds."""
    assert {*RADIOS, *STATIONS} <= set(names("profiles"))
    kinds = {name: type(profile) for name, profile in known([*RADIOS, *STATIONS]).items()}
    assert kinds == dict.fromkeys(RADIOS, RadioProfile) | dict.fromkeys(STATIONS, StationProfile)


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
        "LTE of a phone of 2020: the weakest evidence is 'derived' (transmit_w, receive_w, transmit_j_per_bit, "
        "receive_j_per_bit)" in told
    )
    assert "Macro base station: the weakest evidence is 'recalled' (idle_w)" in told
    assert "'derived' (receive_w, transmit_j_per_bit, receive_j_per_bit)" in "\n".join(
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


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("devices.profile=esp32", "is the profile of a radio, got ESP32 Wi-Fi; give it as channel.device.profile"),
        (
            "channel.device.profile=pi-4b",
            "is the profile of a device, got Raspberry Pi 4 B; give it as devices.profile",
        ),
        (
            "channel.device.profile=earth-pico",
            "is the profile of a station, got Pico base station; give it as channel.",
        ),
        ("channel.base_station.profile=esp32", "is the profile of a radio, got ESP32 Wi-Fi; give it as channel.device"),
        ("channel.device.profile={include: esp32, transmit_w: 1}", "holds the amplifier and what circuit_w is, got 1"),
        ("channel.device.profile={include: phone-lte-2020, most_dbm: 23}", "evidence.most_dbm: is required, got 23"),
        ("channel.base_station.profile={include: earth-pico, idle_w: null}", "evidence.idle_w: there is no number to"),
    ],
)
def test_a_profile_in_the_wrong_place_or_that_cannot_be_is_refused(setting, text):
    """In one sentence, which says where it belongs."""
    marked = "channel.device.profile.evidence.transmit_w=assumed"
    with pytest.raises(ScenarioError) as refused:
        small_scenario(setting, *((marked,) if "transmit_w: 1" in setting else ()))

    assert len(refused.value.problems) == 1
    assert text in str(refused.value)


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
