"""Event digests, end times and energies of the shipped scenarios and of small worlds, held against a stored table.

Plays every file of scenarios/ and scenarios/papers/, cut to a few rounds, and the worlds of this file, and prints a
line for each: name, digest of its events, simulated time in s, energy in J, and digest of the energies of each device.
Training is left out where events do not depend on it. A scenario whose data or library are missing gets
`name skipped: reason`; FEDNET_DATA names the folder with data.

`--check` compares the lines with tools/digests.txt and exits with 1 if any differs; `--write` stores them there.
`--untrained` leaves out the scenarios whose events depend on learnt numbers, which differ between processors.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import fednet_emu as fe
from fednet_emu.emulation.load import load_scenario
from fednet_emu.errors import FednetError, ScenarioWarning
from fednet_emu.testing import small_scenario

SCENARIOS = Path(__file__).parents[1] / "scenarios"
STORED = Path(__file__).with_suffix(".txt")

_URBAN = (
    "channel=urban-micro",
    "devices.placement={kind: disc, radius_m: 150, inner_radius_m: 10}",
    "devices.speed={kind: log-normal, median_flop_per_s: 1e6, sigma: 0.6}",
    "devices.count=12",
    "data.n_samples=240",
    "algorithm.cohort=12",
    "stop.rounds=3",
)
_IDEAL = ("devices.count=6", "data.n_samples=120", "algorithm.cohort=6", "stop.rounds=3")
_OFDMA = "network.uplink.access=ofdma"
_TCP = ("network.transport={kind: tcp}", "network.downlink.mode=unicast")
_LOSS = ("network.uplink.message_loss={kind: random, probability: 0.4}", "algorithm.retries=2")
_NR = ("network.uplink.access=nr-grants", "network.downlink.access=nr-grants")
_AWAY = "devices.availability={kind: periodic, on_s: 1.0, off_s: 1.0}"
_FAR = (
    "devices.placement={kind: disc, radius_m: 1500, inner_radius_m: 600}",
    "algorithm.deadline_s=100",
    "stop.simulated_s=2000",
)
_FEDBUFF = ("algorithm={kind: fedbuff, concurrency: 6, buffer_size: 3, lr: 0.1, batch_size: 20}", "stop.rounds=5")

ANYWHERE: dict[str, tuple[str, ...]] = {
    "tdma": (),
    "ofdma": (_OFDMA,),
    "tcp-tdma": _TCP,
    "tcp-ofdma": (*_TCP, _OFDMA),
    "quic": ("network.transport={kind: quic}", "network.downlink.mode=unicast", _OFDMA),
    "udp": ("network.transport={kind: udp}",),
    "grpc": (*_TCP, "network.session={kind: grpc, per_message_s: 0.01}", _OFDMA),
    "grpc-refused": (
        *("network.transport={kind: tcp, rtt_s: 30}", "network.session={kind: grpc}", "network.downlink.mode=unicast"),
        *("algorithm.deadline_s=100", "stop.rounds=2"),
    ),
    "nr": _NR,
    "rrc": ("network.uplink.idle={kind: rrc, inactivity_s: 0.5}", "network.downlink.mode=unicast"),
    "delay": ("network.uplink.delay={kind: fixed, time_s: 0.3}", "network.downlink.delay={kind: fixed, time_s: 0.2}"),
    "loss": _LOSS,
    "loss-tcp": (*_LOSS, *_TCP, _OFDMA),
    "deadline-tcp": (
        *("algorithm.deadline_s=0.4", "network.transport={kind: tcp, rtt_s: 0.05}", "network.downlink.mode=unicast"),
        *(_OFDMA, "stop.simulated_s=20"),
    ),
    "deadline-delay": (
        *("algorithm.deadline_s=1.0", "network.uplink.delay={kind: fixed, time_s: 0.5}", "stop.simulated_s=20"),
    ),
    "deadline-nr": ("algorithm.deadline_s=0.1", *_NR, "stop.simulated_s=5"),
    "away": (_AWAY, _OFDMA),
    "away-tcp": (_AWAY, _OFDMA, *_TCP),
    "cells": (
        *("network.cells={kind: hexagonal, rings: 1, inter_site_distance_m: 200}", _OFDMA),
        "devices.mobility={kind: random-waypoint}",
    ),
    "fedbuff-tcp": (*_FEDBUFF, *_TCP, _OFDMA),
    "fedbuff-nr": (*_FEDBUFF, *_NR),
}
"""Settings of worlds that are played on both scenes: twelve devices in a street, and six on ideal links."""
ON_A_RADIO: dict[str, tuple[str, ...]] = {
    "noma": ("network.uplink.access=noma",),
    "shared": ("network.uplink.access={kind: full-reuse, sinr_threshold_db: -20}",),
    "aloha": ("network.uplink.access={kind: slotted-aloha, slot_s: 0.001}",),
    "moving-tcp": ("devices.mobility={kind: random-waypoint}", *_TCP, _OFDMA),
    "far": (*_FAR, _OFDMA),
    "far-tcp": (*_FAR, _OFDMA, *_TCP),
}
"""Settings of worlds that take a radio."""


def worlds() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names and settings of the small worlds."""
    for name, settings in (ANYWHERE | ON_A_RADIO).items():
        yield f"street/{name}", (*_URBAN, *settings)
    for name, settings in ANYWHERE.items():
        yield f"ideal/{name}", (*_IDEAL, *settings)


def line(name: str, scenario: fe.Scenario) -> str:
    """Digest, time and energies of one scenario."""
    try:
        run = fe.run(scenario, timing_only=not scenario.events_depend_on_learning, progress=False)
    except FednetError as error:
        return f"{name} skipped: {' '.join(str(error).split())}"
    summary = run.summary
    energies = hashlib.blake2b(run.energies.round(9).to_csv(index=False).encode(), digest_size=8).hexdigest()
    return f"{name} {run.digest} {summary['simulated_s']:.9g} {summary['energy_j']:.12g} {energies}"


def lines(rounds: int, names: list[str], *, untrained: bool) -> Iterator[str]:
    """Lines of the scenarios and worlds with these names; of all, if none is named."""
    for path in sorted((*SCENARIOS.glob("*.yaml"), *SCENARIOS.glob("papers/*.yaml")), key=lambda path: path.stem):
        if not names or path.stem in names:
            scenario = load_scenario(path, [f"stop={{rounds: {rounds}}}", "training.device=cpu"])
            if not (untrained and scenario.events_depend_on_learning):
                yield line(path.stem, scenario)
    for name, settings in worlds():
        if not names or name in names:
            yield line(name, small_scenario(*settings))


def main() -> None:
    """Print the lines, and compare or store them."""
    parser = argparse.ArgumentParser(description="Print digests, times and energies of shipped scenarios and worlds.")
    parser.add_argument("names", nargs="*", help="scenarios and worlds; all by default")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each scenario; %(default)s by default")
    parser.add_argument("--check", action="store_true", help=f"compare with {STORED.name}")
    parser.add_argument("--write", action="store_true", help=f"store in {STORED.name}")
    parser.add_argument("--untrained", action="store_true", help="leave out what depends on learnt numbers")
    chosen = parser.parse_args()
    stored = dict(each.split(" ", 1) for each in STORED.read_text().splitlines()) if chosen.check else {}
    found, differ = [], 0
    for text in lines(chosen.rounds, chosen.names, untrained=chosen.untrained):
        name, value = text.split(" ", 1)
        found.append(text)
        if chosen.check and not value.startswith("skipped") and stored.get(name) != value:
            differ += 1
            print(f"{name}: differs\n  stored {stored.get(name, 'missing')}\n  now    {value}", flush=True)
        elif not chosen.check:
            print(text, flush=True)
    if chosen.check:
        print(f"{len(found)} compared, {differ} differ")
    if chosen.write:
        kept = [text for text in found if " skipped: " not in text]
        STORED.write_text("\n".join(kept) + "\n", encoding="utf-8")
    sys.exit(differ > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ScenarioWarning)
    main()
