"""Warnings of scenarios that are valid but suspicious, told before a run by `fednet` and in Python.

To add one, write a function from the outlook of a valid scenario to the key path of the setting to look at and a
sentence, and add it to `CHECKS`. It reads no data, and works on arrays, as there may be a million devices.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np

from fednet_emu.arrays import Array, Mask
from fednet_emu.emulation.outlook import AtStart, Needed, Outlook, expected_s
from fednet_emu.emulation.plausibility import PLAUSIBLE
from fednet_emu.errors import ScenarioWarning
from fednet_emu.network.air.patience import LEAST_S, MOST_S, TIMES
from fednet_emu.network.settings import Uplink
from fednet_emu.records.ledger import device_label
from fednet_emu.scenario.model import Problem, Scenario
from fednet_emu.scenario.tree import path_text
from fednet_emu.units import linear_to_db

_NAMED = 3
_FLOAT_BIT = 32
_NO_SNR = 1e-40


def warnings_of(outlook: Outlook) -> Iterator[Problem]:
    """Find what is suspicious in a valid scenario.

    Yields:
        The key path of the setting to look at, and a sentence that says what is suspicious and what would help.
    """
    for check in CHECKS:
        yield from check(outlook)


def warn(outlook: Outlook, stacklevel: int = 2) -> None:
    """Give the warnings of a scenario as `ScenarioWarning`; by default the line that called the caller is named."""
    for path, sentence in warnings_of(outlook):
        warnings.warn(f"{path_text(path)}: {sentence}", ScenarioWarning, stacklevel=stacklevel + 1)


def poor_links(outlook: Outlook) -> Iterator[Problem]:
    """Find devices that are out of reach at their initial positions, or whose links are very slow there."""
    scenario, cost, network = outlook.scenario, outlook.cost, outlook.scenario.network
    model_bit = _FLOAT_BIT * cost.parameters if cost.parameters else None
    sizes_bit = cost.upload_bit or model_bit, model_bit
    for way, links, size_bit in zip((network.uplink, network.downlink), outlook.links, sizes_bit, strict=True):
        if way.trace is None and not way.access.only_sums:
            yield from _poor_links(scenario, way, links, size_bit)


def _poor_links(scenario: Scenario, way: Uplink, links: AtStart, size_bit: int | None) -> Iterator[Problem]:
    needed, snr = Needed.by(scenario, way), links.mean_snr
    beyond = snr < needed.mean_snr(links.in_sight)
    if beyond.any():
        weakest = f"{linear_to_db(needed.sinr):.1f} dB{_with_fading(needed)}"
        named = _named(beyond, snr, lambda one: f"mean SNR {linear_to_db(max(one, _NO_SNR)):.0f} dB")
        what = f"out of reach where they start: {named}; {needed.by_whom} needs {weakest}"
        yield ("network", way.DIRECTION), f"{_of_all(beyond)} {what}; {_HELP}"
    if size_bit is None:
        return
    takes_s = np.where(beyond, 0.0, expected_s(scenario, way, links, size_bit))
    slow = takes_s > max(LEAST_S, TIMES * float(np.median(takes_s)))
    if slow.any():
        named = _named(slow, -takes_s, lambda one: f"{-one:.0f} s" if -one <= MOST_S else f"{-one / MOST_S:.3g} h")
        what = f"at the edge of reach where they start: {size_bit:,} bits are expected to take {named}"
        not_tried = "; what takes over an hour is not tried" if (takes_s[slow] > MOST_S).any() else ""
        yield (
            ("network", way.DIRECTION),
            f"{_of_all(slow)} {what}{not_tried if way.timeout_s is None else ''}; {_HELP}",
        )


def _with_fading(needed: Needed) -> str:
    """What the mean SNR has to be for the least SINR to be reached in a fade, if that differs."""
    lowest = linear_to_db(float(needed.mean_snr(np.zeros(1, np.bool_))[0]))
    return "" if lowest >= linear_to_db(needed.sinr) else f", reached in one fading block of 10^8 at {lowest:.1f} dB"


def _of_all(some: Mask) -> str:
    count = int(np.count_nonzero(some))
    return f"{count:,} of {len(some):,} devices {'is' if count == 1 else 'are'}"


def _named(some: Mask, order: Array, say: Callable[[float], str]) -> str:
    """The first few of some devices, in the order of a measure, each with what is said of that."""
    (places,) = np.nonzero(some)
    first = places[np.argsort(order[places], kind="stable")[:_NAMED]]
    text = "; ".join(f"{device_label(int(place))}, {say(float(order[place]))}" for place in first)
    return f"{text}; ..." if len(places) > _NAMED else text


_HELP = "more power, shorter distances or more base stations would help"

CHECKS: tuple[Callable[[Outlook], Iterator[Problem]], ...] = (poor_links, *PLAUSIBLE)
"""What is looked at, in this order."""
