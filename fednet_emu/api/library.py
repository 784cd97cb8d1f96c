"""List what the library offers and validate scenarios: check, channels, scenarios, schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fednet_emu.api.scenarios import ScenarioLike, Settings, scenario_of
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.warnings import warn

if TYPE_CHECKING:
    import pandas as pd


def check(scenario: ScenarioLike, *, seed: int | None = None, settings: Settings | None = None) -> Scenario:
    """Validate a scenario and return it with every default filled in, without running it.

    Args:
        scenario: a name of the library, a path, a mapping with the keys of a scenario file, or a `Scenario`.
        seed: a seed that replaces the scenario's.
        settings: changes, for example `{"algorithm.lr": 0.05}`.

    Warns:
        ScenarioWarning: something in it is suspicious, for example devices that are out of reach.

    Raises:
        ScenarioError: lists every problem of the scenario with its place.
    """
    checked = scenario_of(scenario, settings, seed=seed)[1]
    warn(checked)
    return checked


def channels(names: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a table of radio environments with the median uplink rates of a single device.

    Args:
        names: names of environments; None for all of the library.

    Returns:
        One row for each environment: name, title, carrier and bandwidth in Hz, and the rates in bit/s at distances of
        50, 200 and 500 m; NaN where a distance is out of range.

    Raises:
        ScenarioError: there is no such environment, or it is invalid.
    """
    import pandas as pd

    from fednet_emu.api.channels import LISTED_M, environments, listed_rates

    rows = [
        {
            "channel": name,
            "title": channel.title,
            "carrier_hz": channel.carrier_hz,
            "bandwidth_hz": channel.bandwidth_hz,
            **{f"rate_at_{at_m:.0f}_m_bps": rate for at_m, rate in zip(LISTED_M, listed_rates(channel), strict=True)},
        }
        for name, channel in environments(names).items()
    ]
    return pd.DataFrame(rows)


def scenarios() -> list[str]:
    """Return the names of the scenarios in the library and in ./scenarios."""
    from fednet_emu.scenario.search import names

    return names("scenarios")


def schema(*, study: bool = False) -> dict[str, Any]:
    """Return the JSON schema of scenario files, or of study files, for editors that complete and check them."""
    from fednet_emu.scenario.schema import json_schema
    from fednet_emu.study.model import Study

    return json_schema(Study, (), includes=False) if study else json_schema(Scenario)
