"""What every algorithm must do on each network of `scenarios/cells`, with losses, deadlines and departures."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fednet_emu.emulation.build import build
from fednet_emu.errors import Deadlock
from fednet_emu.federation.federation import Federation
from fednet_emu.records.laws.verify import verify
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import small_scenario
from tests.algorithms.small import ALGORITHM_SETTINGS, ROUNDS
from tests.algorithms.test_conformance import WITHOUT_DEADLINE

FILES = Path(__file__).parents[2] / "scenarios" / "cells"
CELLS: dict[str, dict[str, Any]] = {
    path.stem: from_text(path.read_text(), path.stem).data for path in sorted(FILES.glob("*.yaml"))
}

LOSS = tuple(f"network.{way}.loss={{kind: random, probability: 0.2}}" for way in ("uplink", "downlink"))
DEADLINE = ("algorithm.deadline_s=0.5", "devices.speed={kind: list, flop_per_s: [1e6, 1e6, 1e6, 1e3]}")
DEPARTURES = ("devices.availability={kind: periodic, on_s: 0.7, off_s: 0.1}",)
CONDITIONS = {"loss": LOSS, "deadline": DEADLINE, "departures": DEPARTURES}

QUICK = {
    (algorithm, list(CELLS)[place % len(CELLS)], list(CONDITIONS)[(place + place // len(CELLS)) % len(CONDITIONS)])
    for place, algorithm in enumerate(ALGORITHM_SETTINGS)
    if algorithm != "fedul"
}
"""One cell and one condition for each algorithm but `fedul`, which computes for seconds; the others are slow."""


def cases() -> list[Any]:
    """All of them, but two base stations on one channel of Wi-Fi, which is refused."""
    several = {name for name, its in ALGORITHM_SETTINGS.items() if any("network.cells" in setting for setting in its)}
    every = product(ALGORITHM_SETTINGS, CELLS, CONDITIONS)
    found = [case for case in every if not (case[0] in several and case[1].startswith("wifi"))]
    return [pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow) for case in found]


def settings_of(algorithm: str, cell: str, condition: str) -> list[str]:
    """The scenario of one case: devices in a room of the cell, whose computing takes milliseconds."""
    its, network = ALGORITHM_SETTINGS[algorithm], CELLS[cell]["network"]
    settings = [f"channel={json.dumps(CELLS[cell]['channel'])}", "devices.placement.radius_m=15"]
    settings += [
        *(setting for setting in its if not setting.startswith("channel=")),
        f"stop={{rounds: {ROUNDS}, simulated_s: 20}}",
    ]
    for key, value in network.items():
        parts = {f"{key}.{part}": its for part, its in value.items()} if key in {"uplink", "downlink"} else {key: value}
        settings += [f"network.{place}={json.dumps(given)}" for place, given in parts.items()]
    if any("sidelink" in setting for setting in its):
        settings.append("network.sidelink.mode=unicast")
    if any("network.cells" in setting for setting in its) and "oai" in cell:
        settings.append("channel.rate.feedback=ideal")  # transfers climb in one cell
    more = CONDITIONS[condition]
    return [*settings, *(DEADLINE[1:] if condition == "deadline" and algorithm in WITHOUT_DEADLINE else more)]


def played(settings: list[str], *, timing_only: bool) -> tuple[Federation, str]:
    """A federation after its run, and why it is a deadlock if it is one."""
    scenario, deadlock = small_scenario(*settings), ""
    assert list(scenario.contradictions()) == []
    fed = build(scenario, timing_only=timing_only)
    try:
        fed.run(scenario.algorithm)
    except Deadlock as error:
        deadlock = str(error)
        fed.close()
    return fed, deadlock


@pytest.mark.parametrize(("algorithm", "cell", "condition"), cases())
def test_it_ends_and_keeps_the_laws(algorithm: str, cell: str, condition: str) -> None:
    """By its stop rule, or as a deadlock that names the message lost; twice alike, and every law holds.

    Each transfer has waits, gaps and a tail whose sum with its time on the air is its length, whatever ended it.
    """
    settings = settings_of(algorithm, cell, condition)
    fed, deadlock = played(settings, timing_only=False)
    again, _ = played(settings, timing_only=False)
    lost = set(fed.ledger.frames()["transfers"]["lost"]) - {""}

    assert not any(verify(fed.ledger, frozenset()).values())
    assert fed.ledger.event_digest() == again.ledger.event_digest()
    assert fed.round == ROUNDS or fed.clock.now_s >= 20 or ("waits for" in deadlock and "last lost: " in deadlock)
    assert lost <= {"erased", "deadline", "away", "left", "end"}
