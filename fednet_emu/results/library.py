"""List what the library offers and validate scenarios: check, channels, profiles, scenarios, kinds, schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from fednet_emu.emulation.given import ScenarioLike, Settings, scenario_of
from fednet_emu.emulation.load import warn
from fednet_emu.scenario.model import Scenario

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
    _, outlook = scenario_of(scenario, settings, seed=seed)
    warn(outlook)
    return outlook.scenario


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

    from fednet_emu.results.channels import LISTED_M, environments, listed_rates

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


def profiles(names: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a table of devices, radios and base stations that exist, each number with how well it is known.

    Args:
        names: names of profiles; None for all of the library.

    Returns:
        One row for each profile: name, kind (device, radio or station), title, year, its numbers (of devices
        `flop_per_s`, `overhead_s`, `active_w`, `idle_w`, `transmit_w`, `receive_w` and `memory_bytes`; of others
        `most_dbm`, `amplifier_efficiency` and more; NaN for what no source states, or other kinds have), and each one's
        mark, such as `flop_per_s_evidence`.

    Raises:
        ScenarioError: there is no such profile, or it is invalid.
    """
    import pandas as pd

    from fednet_emu.results.profiles import HEADS, known

    return pd.DataFrame(
        {
            "profile": name,
            "kind": HEADS[type(profile)][0],
            "title": profile.title,
            "year": profile.year,
            **{number: float("nan") if value is None else value for number, value in profile.numbers.items()},
            **{f"{number}_evidence": mark for number, mark in profile.marks.items()},
        }
        for name, profile in known(names).items()
    )


def scenarios() -> list[str]:
    """Return the names of the scenarios in the library and in ./scenarios."""
    from fednet_emu.scenario.library import names

    return names("scenarios")


@overload
def kinds(slot: None = None) -> dict[str, dict[str, str]]: ...
@overload
def kinds(slot: str) -> dict[str, str]: ...
def kinds(slot: str | None = None) -> dict[str, Any]:
    """Return the kinds of a slot, those of installed plug-ins included, each with a sentence that says what it is.

    Args:
        slot: a slot, for example `access`, or a key that holds one, for example `network.uplink.access`; None for all.

    Returns:
        The kinds of the slot with their sentences; without a slot, these for each slot by its name.

    Raises:
        ScenarioError: there is no such slot.
    """
    from fednet_emu.scenario.slots import slot_of, slots

    if slot is not None:
        return slot_of(slot).described()
    return {name: place.described() for name, place in slots().items()}


def schema(*, study: bool = False) -> dict[str, Any]:
    """Return the JSON schema of scenario files, or of study files, for editors that complete and check them."""
    from fednet_emu.scenario.schema import json_schema
    from fednet_emu.study.model import Study

    return json_schema(Study, (), includes=False) if study else json_schema(Scenario)
