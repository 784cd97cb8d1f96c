"""Loading of a scenario with overrides; errors and warnings about the scenario."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fednet_emu.analysis.quantities import format_seconds
from fednet_emu.arrays import Array, Mask
from fednet_emu.compression.base import FLOAT_BIT
from fednet_emu.emulation.build import unfit_augmentation
from fednet_emu.emulation.hardware import unfit
from fednet_emu.emulation.outlook import AtStart, Needed, Outlook, crowds, expected_s, unaffordable, unreachable
from fednet_emu.emulation.plausibility import PLAUSIBLE
from fednet_emu.errors import ScenarioError, ScenarioWarning
from fednet_emu.network.air.patience import LEAST_S, MOST_S, TIMES
from fednet_emu.network.settings import Uplink
from fednet_emu.network.slices import Slices
from fednet_emu.records.ledger import device_label
from fednet_emu.scenario.document import Document, apply_overrides, filled, load
from fednet_emu.scenario.model import Problem, Scenario
from fednet_emu.scenario.problems import validate
from fednet_emu.scenario.tree import Place, path_text, problem_text
from fednet_emu.units import linear_to_db

UNNAMED = "scenario"
"""Name in the records for a scenario that has neither a file nor a title."""


def load_scenario(name: str | Path, overrides: Iterable[str] = ()) -> Scenario:
    """Read a scenario by path, or by name in scenarios/, apply `overrides` (`key.path=value`), and check it."""
    return checked(apply_overrides(filled(load(name)), overrides))


def checked(document: Document) -> Scenario:
    """Validate a document, and return the scenario; raise a `ScenarioError` that lists all problems with lines."""
    return examined(Outlook(validate(Scenario, document)), document).scenario


def examined(outlook: Outlook, document: Document | None = None) -> Outlook:
    """Return `outlook` if its settings are compatible and messages can arrive; otherwise refuse all problems."""
    refuse_contradictions(outlook, document)
    refuse(unreachable(outlook), document)
    return outlook


def refuse_contradictions(outlook: Outlook, document: Document | None) -> None:
    """Raise a `ScenarioError` if a scenario does not fit into memory, or has settings that contradict each other."""
    scenario = outlook.scenario
    refuse(
        list(unaffordable(outlook))
        or list(unfit(scenario))
        or list(scenario.contradictions())
        or list(unfit_augmentation(scenario, outlook.extent.input_shape) if outlook.extent else ()),
        document,
    )


def refuse(problems: Iterable[Problem], document: Document | None = None) -> None:
    """Raise a `ScenarioError` that lists `problems` with their lines in `document`; do nothing if there are none."""
    found = list(problems)
    if found:
        places = (Place(UNNAMED, 0) if document is None else document.place(path) for path, _ in found)
        raise ScenarioError(*(problem_text(place, *problem) for place, problem in zip(places, found, strict=True)))


_NAMED = 3
_NO_SNR = 1e-40


def warnings_of(outlook: Outlook) -> Iterator[Problem]:
    """Yield the warnings about a valid scenario, each as the key path of a setting and a sentence with a remedy."""
    for check in CHECKS:
        yield from check(outlook)


def warn(outlook: Outlook, stacklevel: int = 2) -> None:
    """Issue the warnings about a scenario as `ScenarioWarning`; `stacklevel` is that of `warnings.warn`."""
    for path, sentence in warnings_of(outlook):
        warnings.warn(f"{path_text(path)}: {sentence}", ScenarioWarning, stacklevel=stacklevel + 1)


def poor_links(outlook: Outlook) -> Iterator[Problem]:
    """Yield warnings about devices whose links are unusable or very slow at their initial positions."""
    scenario, cost, network = outlook.scenario, outlook.cost, outlook.scenario.network
    model_bit = FLOAT_BIT * cost.parameters if cost.parameters and scenario.algorithm.exchanges_models else None
    sizes_bit = cost.upload_bit or model_bit, model_bit
    for way, links, size_bit in zip((network.uplink, network.downlink), outlook.links, sizes_bit, strict=True):
        if scenario.algorithm.has_server and way.trace is None and not way.access.only_sums:
            yield from _poor_links(scenario, way, links, size_bit)


def _poor_links(scenario: Scenario, way: Uplink, links: AtStart, size_bit: int | None) -> Iterator[Problem]:
    needed, snr = Needed.by(scenario, way), links.mean_snr
    beyond = snr < needed.mean_snr(links.in_sight)
    if beyond.any():
        weakest_db, lowest_db = map(linear_to_db, (needed.sinr, float(needed.mean_snr(np.zeros(1, np.bool_))[0])))
        faded = f", reached in one fading block of 10^8 at {lowest_db:.1f} dB" if lowest_db < weakest_db else ""
        weakest = f"{weakest_db:.1f} dB{faded}"
        named = _named(beyond, snr, lambda one: f"mean SNR {linear_to_db(max(one, _NO_SNR)):.1f} dB")
        what = f"out of reach where they start: {named}; {needed.by_whom} needs {weakest}"
        yield ("network", way.DIRECTION), f"{_of_all(beyond)} {what}; {_HELP}"
    if size_bit is None:
        return
    takes_s = np.where(beyond, 0.0, expected_s(scenario, way, links, size_bit))
    slow = takes_s > max(LEAST_S, TIMES * float(np.median(takes_s)))
    if slow.any():
        named = _named(slow, -takes_s, lambda one: f"{-one:.0f} s" if -one <= MOST_S else format_seconds(-one))
        what = f"at the edge of reach where they start: {size_bit:,} bits are expected to take {named}"
        not_tried = "; what takes over an hour is not tried" if (takes_s[slow] > MOST_S).any() else ""
        yield (
            ("network", way.DIRECTION),
            f"{_of_all(slow)} {what}{not_tried if way.timeout_s is None else ''}; {_HELP}",
        )


def _of_all(some: Mask) -> str:
    count = int(np.count_nonzero(some))
    return f"{count:,} of {len(some):,} devices {'is' if count == 1 else 'are'}"


def _named(some: Mask, order: Array, say: Callable[[float], str]) -> str:
    """Return text on the first `_NAMED` devices of the mask `some` by `order`; `say` formats a value."""
    (places,) = np.nonzero(some)
    first = places[np.argsort(order[places], kind="stable")[:_NAMED]]
    text = "; ".join(f"{device_label(int(place))}, {say(float(order[place]))}" for place in first)
    return f"{text}; ..." if len(places) > _NAMED else text


_HELP = "more power, shorter distances or more base stations would help"


def crowded(outlook: Outlook) -> Iterator[Problem]:
    """Yield warnings about overloaded slices and bands, and about prioritized files that must wait for an upload."""
    places = {its.name: place for place, its in enumerate(outlook.scenario.traffic)}
    network, known, slices = outlook.scenario.network, list(crowds(outlook)), Slices(outlook.scenario.network.slices)
    total, so_far = (defaultdict[tuple[str, str], Any](float) for _ in range(2))  # loads [cells]
    for its in known:
        total[its.direction, its.slice] = total[its.direction, its.slice] + its.loads
    for its in known:
        path, access = ("traffic", str(places[its.name])), getattr(network, its.direction).access
        if its.out_of_reach:
            what = f"{its.name} has users out of reach, whose files are lost, got {its.out_of_reach} of {its.users}"
            yield path, f"{what}; move them closer, or raise the transmit power"
        so_far[its.direction, its.slice] = so_far[its.direction, its.slice] + its.loads
        cell = int(so_far[its.direction, its.slice].argmax())
        loads = {name: float(load[cell]) for (direction, name), load in total.items() if direction == its.direction}
        load = so_far[its.direction, its.slice][cell]
        most = slices.capacity(its.slice, loads, divides=access.capacity != 1)
        if load >= most and not access.overlapping:
            own, room = f" of slice {its.slice}", f", which can carry at most {most:.3g}"
            where = f"{own} {its.least}{load:.3g}{room}" if slices.given else f" {its.least}{load:.3g}"
            where = f" of cell {cell}{where}" if len(its.loads) > 1 else where
            what = f"{its.name} offer {its.offered_bps / 1e6:.3g} Mbit/s, which makes the load{where}"
            # in a part of the band, a sender has a higher SNR
            grow = "grow" if access.capacity == 1 else "may grow"
            yield path, f"{what}: queues {grow} as long as the run lasts; lower it"
    for direction in sorted({its.direction for its in outlook.scenario.traffic} if network.slices else ()):
        if getattr(network, direction).access.capacity == 1:
            what = "nothing interrupts a turn, so that a file of the first slice waits for a whole upload"
            yield ("network", "slices"), f"{what}; choose ofdma on the {direction} to share the band"


CHECKS: tuple[Callable[[Outlook], Iterator[Problem]], ...] = (poor_links, crowded, *PLAUSIBLE)
"""All functions that yield warnings about a scenario, in the order in which they run."""
