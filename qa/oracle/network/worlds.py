"""Draws worlds and scripts: small numbers, few instants, so that much happens at once and what fails gets short."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from .script import SERVER, Cancel, Law, Script, Send, SliceRule, World

MS = 10**6
KINDS = {
    "tdma": ["uplink", "downlink", "sidelink"],
    "ofdma": ["uplink", "downlink", "sidelink"],
    "noma": ["uplink"],
    "shared": ["uplink", "downlink", "sidelink"],
    "slotted-aloha": ["uplink", "sidelink"],
    "reuse": ["sidelink"],
}
LAWS = [
    Law("fixed"),
    Law("fixed", 1_000_000, 10.0, loses=True),
    Law("fixed", 1_000_000, 0.0),
    Law("root"),
    Law("shannon"),
    Law("shannon", gap_db=2.0, lowest_bps_hz=0.1523, highest_bps_hz=5.5547),
]
WEAK_LAWS = [LAWS[-1], replace(LAWS[-1], repetitions=1), replace(LAWS[-1], lowest_bps_hz=1.5, repetitions=2)]
SNRS = [Fraction(value) for value in ("10", "1", "0", "1/8", "1/2", "3", "10000", "40", "100", "1000")]
SIZES = st.one_of(st.sampled_from([1000, 0, 1, 100, 5000, 1_000_000]), st.integers(0, 30_000), st.integers(0, 10**6))
POWERS = [Fraction(1), Fraction(1, 2), Fraction(1, 8)]
THRESHOLDS_DB = [0.0, None, 10.0, -10.0, 20.0]

Draw = Callable[[Any], Any]
ALL = frozenset({"fading", "rayleigh", "movement", "power", "windows", "cancel", "broadcast", "cells", "handover"})
SLICES = ALL | {"slices"}
"""Only bands that are divided equally, and have slices."""
WEAK = ALL | {"weak"}
"""Only laws with a lowest efficiency, that is repeated and narrowed."""


@st.composite
def worlds(draw: Draw, features: frozenset[str] = ALL) -> World:
    """A band, its access scheme and its links."""
    weak = "weak" in features
    access = draw(st.sampled_from(["ofdma"] if "slices" in features else sorted(KINDS, reverse=True)))
    kind = draw(st.sampled_from(KINDS[access]))
    devices = draw(st.integers(2 if kind == "sidelink" else 1, 6))
    cells = draw(st.integers(1, 3)) if kind != "sidelink" and "cells" in features else 1
    periods = draw(st.sampled_from([1, 2, 3])) if "movement" in features else 1
    law = draw(st.sampled_from(WEAK_LAWS if weak else LAWS))
    stations = [-1 - 2 * cell for cell in range(cells)]
    everybody = range(devices)
    pairs = {
        "uplink": [(device, station) for device in everybody for station in stations],
        "downlink": [(station, device) for device in everybody for station in stations],
        "sidelink": [(one, other) for one in everybody for other in everybody if one != other],
    }[kind]
    snr = {pair: tuple(draw(st.sampled_from(SNRS)) for _ in range(periods)) for pair in pairs}
    serving = tuple(
        tuple(draw(st.integers(0, cells - 1)) for _ in everybody)
        for _ in range(periods if "handover" in features else 1)
    )
    world = World(kind, access, law, devices, draw(st.sampled_from([20, 5, 100])) * MS, snr, cells=cells)
    world = replace(world, serving=serving, period_ns=draw(st.sampled_from([2, 5])) * MS)
    world = replace(world, narrowest_hz=draw(st.sampled_from([180_000, 10_000] if weak else [None, 180_000, 10_000])))
    fading = draw(st.sampled_from(["none", *(name for name in ("table", "rayleigh") if _has(name, features))]))
    if fading != "none":
        world = replace(world, fading=fading, coherence_ns=draw(st.sampled_from([MS, 2_500_000, 7 * MS])))
    if "windows" in features:
        most = draw(st.sampled_from([0, 0, 1, 2]))
        absent = draw(st.sets(st.integers(0, devices - 1), max_size=most))
        world = replace(world, windows={device: draw(_spans()) for device in sorted(absent)})
    world = _with_scheme(draw, world, features)
    return replace(world, during=len(serving) > 1 and world.places is None and draw(st.booleans()))


def _has(fading: str, features: frozenset[str]) -> bool:
    return "fading" in features and (fading == "table" or "rayleigh" in features)


@st.composite
def _spans(draw: Draw) -> tuple[tuple[int, int], ...]:
    edges = sorted(draw(st.sets(st.integers(0, 30), min_size=2, max_size=4)) | draw(st.sampled_from([{0}, set()])))
    return tuple((since * MS, until * MS) for since, until in zip(edges[::2], edges[1::2], strict=False))


@st.composite
def _slices(draw: Draw) -> SliceRule:
    kept, least = (draw(st.sampled_from([Fraction(0), Fraction(1, 8), Fraction(1, 4)])) for _ in range(2))
    most = draw(st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(1, 4)]))
    weight = draw(st.sampled_from([Fraction(1), Fraction(3), Fraction(1, 2)]))
    return SliceRule(draw(st.sampled_from([0, 1])), weight, min(kept, least), least, most)


_SLICES = st.lists(_slices(), min_size=1, max_size=3).filter(lambda its: sum(max(s.kept, s.least) for s in its) <= 1)


def _with_scheme(draw: Draw, world: World, features: frozenset[str]) -> World:  # noqa: PLR0911
    places = st.sampled_from([None, 1, 2, 3])
    match world.access:
        case "tdma":
            return replace(world, places=1)
        case "ofdma" if "slices" in features:
            return replace(world, scheduler="equal", slices=tuple(draw(_SLICES)))
        case "ofdma":
            scheduler = draw(st.sampled_from(["equal", "proportional-fair", "equal-finish"]))
            law = Law("root") if scheduler == "equal-finish" and world.law.kind == "shannon" else world.law
            parts = draw(places) if scheduler == "equal" else None
            return replace(world, scheduler=scheduler, law=law, places=parts, fixed_parts=parts is not None)
        case "noma":
            residual = draw(st.sampled_from([0.0, 0.25, 0.0625]))
            return replace(
                world, places=draw(places), threshold_db=draw(st.sampled_from(THRESHOLDS_DB)), residual=residual
            )
        case "shared":
            return replace(world, places=draw(places), threshold_db=draw(st.sampled_from(THRESHOLDS_DB)))
        case "slotted-aloha":
            slot_ns, probability = draw(st.sampled_from([MS, 400_000])), draw(st.sampled_from([None, 1.0, 0.5, 0.25]))
            capture_db = draw(st.sampled_from([0.0, 10.0, -10.0]))
            return replace(world, slot_ns=slot_ns, probability=probability, threshold_db=capture_db)
        case _:
            coloured = draw(st.booleans())
            return replace(
                world,
                coloured=coloured,
                places=None if coloured else 1,
                interference=draw(st.booleans()),
                threshold_db=draw(st.sampled_from(THRESHOLDS_DB)),
            )


@st.composite
def plays(draw: Draw, features: frozenset[str] = ALL) -> tuple[World, Script]:
    """A world and what is asked for in it."""
    world = draw(worlds(features))
    clusters = draw(st.integers(1, 3)) if world.access == "reuse" else 1
    script: Script = []
    for _ in range(draw(st.integers(1, 12))):
        script += draw(_sends(world, clusters, features))
    legs = [(number, receiver) for number, send in enumerate(script) for receiver in send.receivers]
    if legs and "cancel" in features:
        for at in draw(st.lists(st.integers(0, 40), max_size=4)):
            script.append(Cancel(at * MS // 2, tuple(draw(st.lists(st.sampled_from(legs), min_size=1, max_size=4)))))
    return world, script


@st.composite
def _sends(draw: Draw, world: World, clusters: int, features: frozenset[str]) -> Script:
    """One request, or none where the sender has nobody to send to."""
    at_ns, size_bit = draw(st.integers(0, 12)) * MS, draw(SIZES)
    power = draw(st.sampled_from(POWERS)) if "power" in features else POWERS[0]
    device, cluster = draw(st.integers(0, world.devices - 1)), 0
    if world.kind == "uplink":
        return [Send(at_ns, device, (SERVER,), size_bit, 0, power)]
    others = [other for other in range(world.devices) if other != device or world.kind == "downlink"]
    if world.coloured:
        cluster = draw(st.integers(0, clusters - 1))
    elif clusters > 1:  # without colouring no device is in two clusters
        cluster = device % clusters
        others = [other for other in others if other % clusters == cluster]
    if not others:
        return []
    most = len(others) if "broadcast" in features else 1
    receivers = draw(st.lists(st.sampled_from(others), min_size=1, max_size=most, unique=True))
    sender = SERVER if world.kind == "downlink" else device
    return [Send(at_ns, sender, tuple(receivers), size_bit, cluster, power)]
