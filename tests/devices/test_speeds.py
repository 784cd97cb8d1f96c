"""Laws of the devices' speeds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fednet_emu.devices.speeds import FixedSpeed, FlashSpeed, LogNormalSpeed
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import DataError, ScenarioError
from fednet_emu.testing import run_small, small_federation

DATA = Path(os.environ.get("FEDNET_DATA", Path(__file__).parents[3] / "shared" / "data"))
RNG = np.random.default_rng(1)


def test_a_fixed_speed_is_everybodys() -> None:
    """All devices have the one speed given."""
    assert FixedSpeed(flop_per_s=2e6).draw(3, RNG).tolist() == [2e6, 2e6, 2e6]


def test_log_normal_speeds_have_the_median_and_spread_asked_for() -> None:
    """The logarithms have mean log(median) and deviation sigma, within five standard errors."""
    logs = np.log(LogNormalSpeed(median_flop_per_s=1e7, sigma=0.5).draw(10_000, RNG))

    assert logs.mean() == pytest.approx(np.log(1e7), abs=5 * 0.5 / 100)
    assert logs.std() == pytest.approx(0.5, abs=5 * 0.5 / 141)


@pytest.mark.parametrize("given", [2, 5])
def test_a_list_must_give_every_device_its_speed(given: int) -> None:
    """A list for fewer or more devices than there are is refused; no device has a compute time of zero."""
    speed = {"kind": "list", "flop_per_s": [1e6] * given}
    with pytest.raises(ScenarioError) as caught:
        load_scenario("quickstart", ["devices.count=3", "devices.profile=null", f"devices.speed={json.dumps(speed)}"])

    assert f"flop_per_s: not one for each device, got {given}; must be as many as devices.count, 3" in str(caught.value)


def test_a_listed_speed_is_the_device_of_that_place() -> None:
    """Compute times in a run follow the list: 720 FLOP at 1, 2, 4 and 8 MFLOP/s."""
    fed = run_small("devices.speed={kind: list, flop_per_s: [1e6, 2e6, 4e6, 8e6]}", "stop.rounds=1")
    computes = fed.ledger.frames()["computes"].set_index("device")

    assert (computes["ended_s"] - computes["started_s"]).sort_index().tolist() == pytest.approx(
        [720e-6, 360e-6, 180e-6, 90e-6], abs=1e-12
    )


def test_drawn_speeds_differ_with_the_seed_and_are_seen_by_algorithms() -> None:
    """The speeds come from the scenario's seed, and `device.flop_per_s` shows them."""

    def speeds(seed: int) -> list[float]:
        fed = small_federation(f"seed={seed}", "devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 1}")
        return [device.flop_per_s for device in fed.devices()]

    assert speeds(0) == speeds(0) != speeds(1)


def test_phones_of_real_users_spread_ninefold() -> None:
    """By the nearest measured phone, times are 0.179, 0.588 or 1.642 s per batch, as FLASH maps them."""
    if not (DATA / "device_flash").is_dir():
        pytest.skip("no device_flash: set FEDNET_DATA to a folder that has it")
    nearest, between = (FlashSpeed(median_flop_per_s=1e9, rule=rule) for rule in ("nearest", "interpolated"))
    speeds = nearest.draw(20_000, np.random.default_rng(0), DATA)

    assert speeds.max() / speeds.min() == pytest.approx(1.642 / 0.179)
    assert len(np.unique(speeds)) == 3
    assert nearest.draw(5, np.random.default_rng(0), DATA).tolist() == speeds[:5].tolist()
    assert np.mean(between.draw(20_000, np.random.default_rng(0), DATA) > 1e9) == pytest.approx(0.5, abs=0.02)


def test_missing_phones_are_named() -> None:
    """Without the files the error names the folder that was looked for."""
    with pytest.raises(DataError, match="nowhere: not found"):
        FlashSpeed(median_flop_per_s=1e9, path="nowhere").draw(1, np.random.default_rng(0), None)
