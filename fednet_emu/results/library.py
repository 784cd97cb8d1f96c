"""List the library (channels, profiles, scenarios, kinds, schema), and check scenarios.

Further functions return the data split and the references of a scenario without running it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from fednet_emu.analysis.data_split import DataSplit
from fednet_emu.analysis.quantities import format_bits
from fednet_emu.component.component import Component
from fednet_emu.devices.profiles import Profile
from fednet_emu.emulation.build import deal
from fednet_emu.emulation.given import ScenarioLike, Settings, scenario_of
from fednet_emu.emulation.load import warn
from fednet_emu.emulation.play import tried
from fednet_emu.errors import FednetError
from fednet_emu.files.data_folder import data_folder
from fednet_emu.radio.channel import Channel
from fednet_emu.radio.profiles import MARKS, Kind, RadioProfile, StationProfile, kind_of
from fednet_emu.radio.survey import Rates, uplink_rates
from fednet_emu.records.folder import SCENARIO
from fednet_emu.scenario import library
from fednet_emu.scenario.document import load
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.slots import described, slots
from fednet_emu.units import unit_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LISTED_M = (50.0, 200.0, 500.0)
DRAWN_M = np.geomspace(10.0, 2000.0, 40)

AnyProfile = Profile | RadioProfile | StationProfile
CLASSES: dict[Kind, type[AnyProfile]] = {"device": Profile, "radio": RadioProfile, "station": StationProfile}

UNITS = {"flop_per_s": "FLOP/s", "memory_bytes": "B", "tx_j_per_bit": "J", "rx_j_per_bit": "J"}
"""Units of the numeric profile fields whose names do not end with a unit."""
HEADS: dict[type[AnyProfile], tuple[str, ...]] = {
    Profile: ("device", "speed", "overhead", "computing", "idle", "sending", "receiving", "at", "amplifier", "memory",
              "title"),
    RadioProfile: ("radio", "at most", "amplifier", "circuit", "sending", "receiving", "sent bit", "received bit",
                   "title"),
    StationProfile: ("station", "at most", "amplifier", "idle", "title"),
}  # fmt: skip
SIGNS = dict(zip(MARKS, ("", "", "t", "r", "a"), strict=True))
LEGEND = "measured, or derived from measurements, but: t maker's table, r recalled, a assumed; - not known"


def check(
    scenario: ScenarioLike,
    *,
    seed: int | None = None,
    settings: Settings | None = None,
    data_dir: str | Path | None = None,
) -> Scenario:
    """Validate a scenario and return it with every default filled in.

    Some problems appear only in a run. Therefore, if the data are available and the scenario is not large, its first
    round is run without training.

    Args:
        scenario: a name of the library, a path, a mapping with the keys of a scenario file, or a `Scenario`.
        seed: a seed that replaces the seed of the scenario.
        settings: changes to the scenario, for example `{"algorithm.lr": 0.05}`.
        data_dir: the folder with data sets; None for the value of the environment variable FEDNET_DATA.

    Warns:
        ScenarioWarning: a setting of the scenario is suspicious, for example because devices are out of range.

    Raises:
        ScenarioError: the scenario is invalid. The error lists every problem with its location.
        Deadlock: the algorithm waits in its first round for an event that can never happen.
    """
    _, outlook = scenario_of(scenario, settings, data_dir=data_dir, seed=seed)
    warn(outlook)
    tried(outlook)
    return outlook.scenario


def channels(names: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a table of radio environments with the median uplink rates of a single device.

    Args:
        names: names of environments; None for all environments of the library.

    Returns:
        One row for each environment: name, title, carrier frequency and bandwidth in Hz, and the rates in bit/s at
        distances of 50, 200 and 500 m. A rate is NaN if its distance is out of range.

    Raises:
        ScenarioError: an environment does not exist, or is invalid.
    """
    import pandas as pd

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
    """Return a table of real devices, radios and base stations, with the quality of the source of each number.

    Args:
        names: names of profiles; None for all profiles of the library.

    Returns:
        One row for each profile: name, kind (device, radio or station), title, year, its numbers, and the quality of
        the source of each number, such as `flop_per_s_evidence`. The numbers of devices are `flop_per_s`, `overhead_s`,
        `active_w`, `idle_w`, `tx_consumption_w`, `rx_consumption_w`, `max_dbm`, `amplifier_efficiency` and
        `memory_bytes`; radios and stations have other numbers, such as `circuit_w`. Numbers that are unknown, or that
        do not exist for the kind of the profile, are NaN.

    Raises:
        ScenarioError: a profile does not exist, or is invalid.
    """
    import pandas as pd

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
    return library.names("scenarios")


@overload
def kinds(slot: None = None) -> dict[str, dict[str, str]]: ...
@overload
def kinds(slot: str) -> dict[str, str]: ...
def kinds(slot: str | None = None) -> dict[str, Any]:
    """Return the kinds of component that a setting can take, including those of installed plug-ins.

    A setting whose value is one of several kinds of component is called a slot. Each kind is described by a sentence.

    Args:
        slot: a slot, for example `access`, or a key with a slot, for example `network.uplink.access`. It can also be a
            kind of a slot, for example `access.ofdma`, or a key without kinds, for example `stop`. None for all slots.

    Returns:
        For a slot, its kinds with their sentences. For a kind or key, its settings with their possible values, units,
        defaults and meanings. For None, the kinds of each slot, by the name of the slot.

    Raises:
        ScenarioError: the slot, kind or key does not exist.
    """
    if slot is not None:
        return described(slot)[1]
    return {name: place.described() for name, place in slots().items()}


def schema(*, study: bool = False) -> dict[str, Any]:
    """Return the JSON schema of scenario or study files, with which an editor can complete and check such files."""
    from fednet_emu.scenario.schema import json_schema
    from fednet_emu.study.file import StudyFile

    return json_schema(StudyFile if study else Scenario, includes=not study)


# ---- as text ---------------------------------------------------------------------------------------------------------


def channel_rows(wanted: list[str] | None) -> list[str]:
    """Return a table of radio environments as lines of text, the first of which is a heading.

    Each line has the name, carrier, bandwidth, median rates and title of an environment. `wanted` are the names of the
    environments; None stands for all environments of the library.
    """
    rows = [("channel", "carrier", "bandwidth", *(f"{distance_m:.0f} m" for distance_m in LISTED_M), "title")]
    for name, channel in environments(wanted).items():
        rates = ("out of range" if np.isnan(rate) else f"{format_bits(rate)}/s" for rate in listed_rates(channel))
        carrier, bandwidth = f"{channel.carrier_hz / 1e9:g} GHz", f"{channel.bandwidth_hz / 1e6:g} MHz"
        rows.append((name, carrier, bandwidth, *rates, channel.title))
    return _table(rows)


def rate_curves(wanted: list[str] | None) -> dict[str, Rates]:
    """Return quantiles of the uplink rate at the distances `DRAWN_M`, by name of the environment.

    `wanted` are the names of the radio environments; None stands for all environments of the library.
    """
    return {name: uplink_rates(channel, DRAWN_M) for name, channel in environments(wanted).items()}


def listed_rates(channel: Channel) -> list[float]:
    """Return the median uplink rates in bit/s at the distances `LISTED_M`, with NaN at distances out of range."""
    rates: list[float] = uplink_rates(channel, np.array(LISTED_M)).median_bps.tolist()
    return rates


def environments(wanted: Sequence[str] | None) -> dict[str, Channel]:
    """Load the radio environments `wanted`, or all environments of the library, and return them by name."""
    return {name: validate(Channel, load(name, "channels")) for name in wanted or library.names("channels")}


def profile_rows(wanted: list[str] | None) -> list[str]:
    """Return tables of devices, radios and stations as lines of text, and a legend of the letters for source quality.

    `wanted` are the names of profiles; None stands for all profiles of the library.
    """
    tables = {its: [head] for its, head in HEADS.items()}
    for name, profile in known(wanted).items():
        numbers = (_text(profile, number) for number in profile.numbers)
        tables[type(profile)].append((name, *numbers, f"{profile.title}, {profile.year}"))
    return [*(line for rows in tables.values() if len(rows) > 1 for line in (*_table(rows), "")), LEGEND]


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip() for row in rows]


def _text(profile: AnyProfile, name: str) -> str:
    value, mark = profile.numbers[name], profile.marks[name]
    if value is None or mark is None:
        return "-"
    return " ".join(part for part in (f"{value:.3g}", UNITS.get(name) or unit_of(name), SIGNS[mark]) if part)


def known(wanted: Sequence[str] | None) -> dict[str, AnyProfile]:
    """Load the profiles `wanted`, or all profiles of the library, and return the profiles by name."""
    documents = {name: load(name, "profiles") for name in wanted or library.names("profiles")}
    kind = {name: kind_of(document.data) or "device" for name, document in documents.items()}
    order = sorted(documents, key=lambda name: list(CLASSES).index(kind[name]))
    return {name: validate(CLASSES[kind[name]], documents[name]) for name in order}


def data_split(scenario: Scenario, data_dir: Path | str | None = None) -> DataSplit:
    """Return the distribution of samples over devices, for which the data of a scenario are split as in a run.

    If an attack or the transformations of device groups change labels or targets, the changed values are counted.

    Raises:
        FednetError: the algorithm defines its own data.
        DataError: the data cannot be read.
    """
    if scenario.algorithm.own_learning:
        kind = scenario.algorithm.kind
        raise FednetError(f"data: the algorithm brings its own data, got {kind}; choose a scenario with a partition")
    return deal(scenario, scenario.streams, data_folder(data_dir)).counts()


def scenario_in(source: ScenarioLike, settings: Settings | None = None) -> Scenario:
    """Return a scenario, given in any form or as a run folder, with the changes in `settings`."""
    folder = Path(source) if isinstance(source, str | Path) else None
    recorded = None if folder is None or not folder.is_dir() else folder / SCENARIO
    return scenario_of(source if recorded is None or not recorded.is_file() else recorded, settings)[1].scenario


def data_figures(
    source: ScenarioLike, settings: Settings | None = None, data_dir: Path | str | None = None
) -> dict[str, Figure]:
    """Plot how the data of a scenario are split among devices, and return the figures by name.

    The figure `data` shows training samples. The figure `data-test` exists only if devices have test samples.
    """
    from fednet_emu.draw.figures.data_split import split_figures

    return split_figures(data_split(scenario_in(source, settings), data_dir))


# ---- references ------------------------------------------------------------------------------------------------------

REFERENCES = Path(__file__).with_name("references.bib")
"""File with the BibTeX entries. A line above each entry names the kinds of components that cite the entry."""
OURSELVES = "fednet_emu"
_ENTRY = re.compile(r"^% (?P<sources>\S[^\n]*)\n(?P<entry>@\w+\{.*?^\})$", re.MULTILINE | re.DOTALL)


def bibtex(scenarios: Iterable[Scenario]) -> str:
    """Return the BibTeX entries of all components of the scenarios. The entry of the emulator is first.

    If a component is defined by a plug-in, its entries are those in its class variable `bibtex`.
    """
    used: dict[str, None] = {OURSELVES: None}
    own: dict[str, None] = {}
    for scenario in scenarios:
        for component in _components(scenario):
            used |= dict.fromkeys(name for each in type(component).__mro__ for name in _kinds().get(each, ()))
            own |= dict.fromkeys([getattr(type(component), "bibtex", "").strip()])
    known = [entry for entry, sources in references().items() if not used.keys().isdisjoint(sources)]
    return "\n\n".join([*known, *filter(None, own)])


@cache
def references() -> Mapping[str, tuple[str, ...]]:
    """Return the names `slot.kind` of the components that cite a BibTeX entry, by the text of the entry."""
    text = REFERENCES.read_text(encoding="utf-8")
    return {found["entry"]: tuple(found["sources"].split()) for found in _ENTRY.finditer(text)}


@cache
def _kinds() -> Mapping[type, tuple[str, ...]]:
    found: dict[type, tuple[str, ...]] = {}
    for name, place in slots().items():
        for kind, component in place.slot.table.items():
            found[component] = (*found.get(component, ()), f"{name}.{kind}")
    return found


def _components(value: Any) -> Iterator[Component]:
    if isinstance(value, Component):
        yield value
        value = [getattr(value, name) for name in type(value).model_fields]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        yield from _components(part)
