"""Plausibility: what could not exist is named with its bound and its source, and what exists is left in peace."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.devices.profiles import Profile
from fednet_emu.emulation.given import scenario_of
from fednet_emu.emulation.plausibility import BOUNDS, PLAUSIBLE, amount
from fednet_emu.radio.profiles import StationProfile
from fednet_emu.results.library import known
from fednet_emu.scenario.library import names

ROOT = Path(__file__).parents[2]
PLAIN = {"devices.profile": None, "channel.device": {}, "data": "digits"}
CMOS = {"kind": "cmos", "clock_hz": 1e9, "flop_per_cycle": 1.0}
OPEN = {"kind": "log-distance", "reference_loss_db": 40.0, "exponent": 3.0}
"""A path loss for any carrier and any heights."""
NEAR = {"kind": "list", "xy_m": [[2.0 + k / 10, 0.0] for k in range(20)]}


def told(settings, name="quickstart"):
    outlook = scenario_of(name, settings)[1]
    return {".".join(path): sentence for check in PLAUSIBLE for path, sentence in check(outlook)}


def draws(active_w, flop_per_s):
    """Devices without a profile that draw some power at some speed."""
    speed = {"kind": "fixed", "flop_per_s": flop_per_s}
    return {**PLAIN, "devices.speed": speed, "devices.compute_energy": {"kind": "measured", "active_w": active_w}}


def cmos(flop_per_s, **law):
    """Devices without a profile and with a law of CMOS."""
    speed = {"kind": "fixed", "flop_per_s": flop_per_s}
    return {**PLAIN, "devices.speed": speed, "devices.compute_energy": {**CMOS, **law}}


def at(carrier_hz, **settings):
    changed = {key.replace("__", "."): value for key, value in settings.items()}
    return {"channel.carrier_hz": carrier_hz, "channel.path_loss": OPEN, "channel.shadowing": "none", **changed}


def test_links_stronger_than_radios():
    """By hand: 20 log10(4 pi d f / c) to a mast of 10 m, 23 dBm in 1 MHz, a noise figure of 5 dB."""
    found = told({"channel.path_loss": "free-space", "channel.shadowing": "none", "devices.placement": NEAR})

    distance_m = np.hypot(np.array(NEAR["xy_m"])[:, 0], 10 - 1.5)
    loss_db = 20 * np.log10(4 * np.pi * np.sort(distance_m) * 3.5e9 / 299792458)
    median = np.median(10 ** ((23 - loss_db + 174 - 60 - 5) / 10))
    assert found["network.uplink"] == (
        f"is not plausible, got {10 * np.log10(median):.4g} dB for half of the devices where they start; mean SNRs: at "
        "most 60 dB (distortion of radios limits them to less, assumed)"
    )


@pytest.mark.parametrize(("subcarrier_spacing_khz", "least"), [(None, "250 us"), (15, "1 ms"), (30, "500 us")])
def test_uploads_shorter_than_a_slot(subcarrier_spacing_khz, least):
    """20,800 bits (64 x 10 weights, 10 biases) at no more than 5.5547 bit/s/Hz; 14 symbols are 1 ms at 15 kHz."""
    small = {
        "model.hidden": [],
        "channel.bandwidth_hz": 20e6,
        "channel.fading": "none",
        "channel.subcarrier_spacing_khz": subcarrier_spacing_khz,
        "devices.placement": {"kind": "disc", "radius_m": 12, "inner_radius_m": 10},
    }
    sentence = told(small)["network.uplink"]

    blocks = {None: 20e6, 15: 106 * 180e3, 30: 51 * 360e3}[subcarrier_spacing_khz]
    bits = int(re.search(r"model of ([0-9,]+) bits", sentence)[1].replace(",", ""))
    assert bits == 32 * 650
    assert sentence.startswith(f"is not plausible, got {amount(bits / (5.5547 * blocks), 's')} to upload a model")
    assert f"at least {least} (TS 38.211 4.3.2)" in sentence
    assert "network.uplink" not in told({**small, "model.hidden": [1000]})


def test_classes_have_bounds_of_their_own():
    """A board's 2 W are much for a microcontroller; and so is 1e12 FLOP/s for a phone."""
    as_board = {"include": "cortex-m4", "compute": {"active_w": 2.0}}
    microcontroller = told({"devices.profile": as_board})["devices.profile"]
    unknown = told({"devices.profile": {**as_board, "device_class": None}})["devices.profile"]

    assert "got 2 W while a device computes; a busy microcontroller: 5 mW to 500 mW" in microcontroller
    assert "devices that train: 5e7 to 2e11 FLOP/J" in unknown
    fast = {
        "devices.profile": "phone-2019-mid",
        "devices.speed": {"kind": "log-normal", "median_flop_per_s": 1e12, "sigma": 0.1},
    }
    assert "a phone's processor: 5e7 to 1e10 FLOP/J" in told(fast)["devices.speed"]
    mixed = told(
        {"devices.profile": {"pi-4b": 0.5, "cortex-m4": 0.5}, "devices.speed": {"kind": "fixed", "flop_per_s": 2e7}}
    )
    assert "a Linux board" in mixed["devices.speed"]


def test_one_of_many_listed_devices_is_enough():
    """The least and the largest of the listed speeds are judged."""
    speeds = [1e9] * 19 + [1e16]
    found = told({"devices.profile": None, "devices.speed": {"kind": "list", "flop_per_s": speeds}})

    assert found["devices.speed"].startswith("is not plausible, got 1e16 FLOP/s; ")


@pytest.mark.parametrize(
    ("carrier_hz", "device_dbm", "station_dbm", "plausible"),
    [
        (3.5e9, 26, 49, True),
        (3.5e9, 26.1, 49.1, False),
        (8.68e8, 14, 14, True),
        (2.45e9, 36, 36, True),
        (2.45e9, 36.1, 36.1, False),
        (5.5e9, 30, 30, True),
        (5.5e9, 30.1, 30.1, False),
        (5.8e9, 36, 36, True),
        (28e9, 43, 75, True),
        (28e9, 43.1, 75.1, False),
    ],
)
def test_each_band_has_its_rule(carrier_hz, device_dbm, station_dbm, plausible):
    """At the bound nothing is said; above it, of devices and base stations each by itself."""
    powers = {"channel.device.tx_power_dbm": device_dbm, "channel.base_station.tx_power_dbm": station_dbm}
    found = [key for key in told({**at(carrier_hz), **powers}) if "tx_power" in key]

    assert found == ([] if plausible else list(powers))


@pytest.mark.parametrize(
    ("carrier_hz", "widest_hz"), [(3.5e9, 1e8), (5.5e9, 3.2e8), (2.8e10, 4e8), (6e10, 2.16e9), (8.68e8, 7e6)]
)
def test_each_band_has_its_widest_carrier(carrier_hz, widest_hz):
    """At the bound nothing is said."""
    for width_hz, fits in ((widest_hz, True), (1.01 * widest_hz, False)):
        settings = at(carrier_hz, channel__bandwidth_hz=width_hz, network__power_control="none")
        assert ("channel.bandwidth_hz" not in told(settings)) is fits


@pytest.mark.parametrize(("optimizer", "vectors"), [("sgd", 2), ({"kind": "momentum", "beta": 0.9}, 3), ("adam", 4)])
def test_memory_holds_parameters_gradient_and_state(optimizer, vectors):
    """float32: 2,410 parameters fit into so many vectors of 4 bytes, and into no byte less."""
    for less, fits in ((0, True), (1, False)):
        profile = {"include": "cortex-m4", "memory_bytes": 4 * vectors * 2410 - less}
        found = told({"devices.profile": profile, "algorithm.local_optimizer": optimizer})
        assert ("model" not in found) is fits


def test_recorded_rates_and_sums_have_no_snr_and_no_slot():
    """Whatever the places are: only the downlink has a channel; sums have slots of their own."""
    strong = {"channel.path_loss": "free-space", "channel.shadowing": "none", "devices.placement": NEAR}
    trace = {"network.uplink.trace": {"kind": "csv", "path": "x.csv"}}
    assert {*told({**strong, **trace})} == {"network.downlink"}
    assert "network.uplink" not in told({"model.hidden": [], "channel.bandwidth_hz": 20e6}, "over_the_air")


def test_a_power_of_ones_own_is_that_of_any_device():
    """A microcontroller's class says nothing of the 2 W that settings beside it state."""
    found = told({"devices.profile": "cortex-m4", "devices.compute_energy": {"kind": "measured", "active_w": 2.0}})
    assert "devices that train: 5e7 to 2e11 FLOP/J" in found["devices.compute_energy"]


def test_what_is_not_counted_is_not_judged():
    """0 W says that a power is not counted; and a clock out of range explains the power that follows from it."""
    assert told(draws(0.0, 1e9)) == {}
    assert list(told(cmos(2e11, clock_hz=2.5e10, flop_per_cycle=8.0))) == ["devices.compute_energy.clock_hz"]


def test_recollections_say_so():
    """No bound that was not read in its source is printed as a fact."""
    assert all(bound.cited.endswith(", from memory") for bound in BOUNDS.values() if bound.mark == "recalled")
    assert all(bound.cited.endswith(", assumed") for bound in BOUNDS.values() if bound.mark == "assumed")
    assert {bound.mark for bound in BOUNDS.values()} == {"derived", "table", "recalled", "assumed"}


def test_the_bound_of_all_is_the_union_of_the_classes():
    """The widest of each end."""
    for quantity in ("efficiency", "busy", "idle"):
        of_class = [bound for name, bound in BOUNDS.items() if name.startswith(f"{quantity} ")]
        assert BOUNDS[quantity].low == min(bound.low for bound in of_class)
        assert BOUNDS[quantity].high == max(bound.high for bound in of_class)


RIGHT = {
    "compressed_digits": ["channel.bandwidth_hz"],  # 100 kHz: nothing around 3.5 GHz is so narrow
    "fedl": ["devices.compute_energy", "channel.device.tx_power_dbm"],  # the paper's settings
    "over_the_air": ["channel.bandwidth_hz"],  # as compressed_digits
    "rank_order_5g": ["network.downlink"],  # boards in a room, next to the base station
    "rank_order_wifi": ["network.uplink"],  # the same
}
"""What is told of shipped scenarios, and rightly."""


@pytest.mark.parametrize("name", names())
def test_shipped_scenarios_are_plausible(name):
    """But for what is listed."""
    assert list(told({}, name)) == RIGHT.get(name, [])


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "channels").glob("*.yaml")))
def test_channels_of_the_library_are_plausible(name):
    """With devices within 100 m, and in the country within 2 km."""
    radius_m = 2000 if name == "rural" else 100
    placement = {"kind": "disc", "radius_m": radius_m, "inner_radius_m": 20}
    assert told({"channel": name, "devices.placement": placement}) == {}


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml")))
def test_profiles_of_the_library_are_plausible(name):
    """Each device has a class; radios and base stations send at their largest power, a sector at 46 dBm."""
    [profile] = known([name]).values()
    if isinstance(profile, Profile):
        assert told({"devices.profile": name, "channel.device": {}}) == {}
        assert profile.device_class is not None
        return
    key = "channel.base_station" if isinstance(profile, StationProfile) else "channel.device"
    power_dbm = 23 if profile.max_dbm is None else min(profile.max_dbm, 46)
    assert told({f"{key}.profile": name, f"{key}.tx_power_dbm": power_dbm}) == {}


def calls(count):
    """How many functions of Python are called to judge so many devices."""
    many = {"devices.count": count, "partition": "iid", "data": {"kind": "synthetic"}}
    outlook, number = scenario_of("quickstart", many)[1], 0

    def note(_frame, event, _what):
        nonlocal number
        number += event == "call"

    sys.setprofile(note)
    try:
        for check in PLAUSIBLE:
            list(check(outlook))
    finally:
        sys.setprofile(None)
    return number


def test_a_million_devices_are_judged_in_arrays():
    """A hundred times as many devices take no more calls of functions."""
    calls(1000)
    few, many = calls(2000), calls(200_000)

    assert many < few + 100
