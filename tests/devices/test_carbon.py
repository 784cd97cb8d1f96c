"""Grams of CO2: sums by hand, hours of a day, and the energy of a run."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

import fednet_emu as fe
from fednet_emu.analysis.ranking import rank
from fednet_emu.devices import carbon
from fednet_emu.devices.carbon import Carbon
from fednet_emu.testing import small_scenario

pytestmark = pytest.mark.usefixtures("cells_here")

DAY = tuple(100.0 * (hour < 12) + 300.0 * (hour >= 12) for hour in range(24))


def test_grams_by_hand() -> None:
    """1 kWh at 250 g/kWh is 250 g; 100 W of a host for an hour are 25 g, apart."""
    assert Carbon(g_per_kwh=250).grams([10.0], [3.6e6], 0.0) == {"carbon_g": 250.0}
    assert Carbon(g_per_kwh=250, host_w=100).grams([10.0], [0.0], 3600.0)["host_carbon_g"] == pytest.approx(25.0)


def test_hours_of_a_day() -> None:
    """From 11 on for two hours: the mean of 100 and 300; a day and more: the mean of all hours and the rest."""
    grid = Carbon(g_per_kwh=DAY, start_hour=11)
    assert grid.mean_g_per_kwh(7200.0) == pytest.approx(200.0)
    assert grid.mean_g_per_kwh(0.0) == 100.0
    assert grid.mean_g_per_kwh(25 * 3600.0) == pytest.approx((24 * 200 + 100) / 25)
    assert grid.mean_g_per_kwh(7200.0, 3600.0) == pytest.approx(300.0)
    assert [grid.mean_g_per_kwh(time_s, time_s) for time_s in (3600.0, 13 * 3600.0)] == [300.0, 100.0]


def test_grams_up_to_a_time_follow_the_hours() -> None:
    """1 kWh before noon at 100 g and 2 kWh after it at 300 g: 100 g, and 700 g at the end of two hours."""
    grid = Carbon(g_per_kwh=DAY, start_hour=11)
    assert grid.grams_until([0.0, 3600.0, 7200.0], [0.0, 3.6e6, 3 * 3.6e6]).tolist() == pytest.approx([0, 100, 700])


def test_every_row_has_its_source_and_year() -> None:
    """No number without a source; 20 to 1000 g/kWh."""
    rows = list(csv.DictReader(Path(carbon.__file__).with_suffix(".csv").read_text(encoding="utf-8").splitlines()))
    assert all(row["source"] and int(row["year"]) > 2000 and 20 < float(row["g_per_kwh"]) < 1000 for row in rows)
    assert Carbon(place="france").mean_g_per_kwh(9.0) == 67.39


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"place": "frence"}, "no such place, got frence; did you mean 'france'"),
        ({}, "exactly one of place and g_per_kwh is needed"),
        ({"g_per_kwh": (1.0, 2.0)}, "hourly intensities are 24 numbers, got 2"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], text: str) -> None:
    """Each error says what would be right."""
    with pytest.raises(ValidationError, match=text):
        Carbon.model_validate(settings)


def test_a_run_reports_its_carbon(tmp_path: Path) -> None:
    """Grams follow from the energy in the summary, and a study ranks by them."""
    power = "devices.compute_energy={kind: measured, active_w: 1.0}"
    run = fe.run(small_scenario(power, "carbon={place: germany}"))
    assert run.summary["carbon_g"] == pytest.approx(run.summary["energy_j"] / 3.6e6 * 365.477)
    study = fe.sweep(
        small_scenario(power, "carbon={g_per_kwh: 400}", "stop.rounds=8"), grid={"algorithm.local_steps": [1, 2]},
        seeds=[1, 2], out=tmp_path / "study", target={"loss": 9.0},
    )  # fmt: skip
    assert study.best(minimise="carbon").minimised == "carbon"
    last = study.evaluations.groupby("run").last()
    assert last["carbon_g"].to_numpy() == pytest.approx(study.runs["carbon_g"].to_numpy())


@pytest.mark.parametrize("intensity", ["400", str(list(DAY))])
def test_runs_that_are_equal_up_to_the_target_cause_equal_carbon(tmp_path: Path, intensity: str) -> None:
    """The target is reached in the first round; how long a run goes on afterwards does not count."""
    power = "devices.compute_energy={kind: measured, active_w: 1.0}"
    study = fe.sweep(
        small_scenario(power, f"carbon={{g_per_kwh: {intensity}}}"), grid={"stop.rounds": [3, 8]}, seeds=[1, 2],
        out=tmp_path / "study",
    )  # fmt: skip
    falling = study.evaluations.assign(loss=10.0 / (1 + study.evaluations["round"]))
    found = rank(replace(study, evaluations=falling).aiming_at(loss=5.0), "carbon")
    assert (found.settings[0].costs > 0).all()
    assert found.settings[1].is_same
    assert "carbon to target" in str(found)
