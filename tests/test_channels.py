"""Every file in channels/ carries a round, and the channels between devices also carry a sidelink."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from fednet_emu.emulation.build import build
from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.play import play
from fednet_emu.records.laws.verify import verify

ROOT = Path(__file__).parents[1]
CHANNELS = sorted((ROOT / "channels").glob("*.yaml"))
BETWEEN_DEVICES = ("d2d-sidelink", "v2v")
NEAR = [
    "devices.count=4",
    "devices.placement={kind: disc, radius_m: 40, inner_radius_m: 10}",
    "algorithm.cohort=4",
    "stop={rounds: 1}",
]
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"


@pytest.mark.parametrize("path", CHANNELS, ids=lambda path: path.stem)
def test_channel_carries_a_round(path: Path, tmp_path: Path) -> None:
    """Everybody within 40 m gets the model and answers, and every conservation law holds."""
    scenario = load_scenario(QUICKSTART, [*NEAR, f"channel={path.stem}"])

    summary = play(scenario, path.stem, tmp_path / "run", timing_only=True).summary

    assert summary["status"] == "done"
    assert summary["verified"] is True
    assert summary["transfers"] == 1 + 4  # one broadcast and four uplinks
    assert summary["uplink_bit"] == 4 * summary["downlink_bit"] > 0


@pytest.mark.parametrize("name", BETWEEN_DEVICES)
def test_channel_carries_a_sidelink(name: str) -> None:
    """Neighbours in a ring who send each other 1 Mbit at once all get it, and every conservation law holds."""
    own = "algorithm={kind: colrel, cohort: 4, lr: 0.1, batch_size: 10, local_steps: 1}"
    scenario = load_scenario(QUICKSTART, [*NEAR[:2], NEAR[3], own, f"network.sidelink={{channel: {name}}}"])
    fed = build(scenario, timing_only=True)
    devices = list(fed.devices())

    def send(index: int) -> Generator[Any, Any, list[Any]]:
        return (yield fed.sidelink(devices[index], [devices[(index + 1) % 4]], None, size_bit=10**6))

    def ring() -> Generator[Any, Any, list[Any]]:
        return (yield fed.gather(send(index) for index in range(4)))

    arrived = fed.clock.run_process(ring())
    fed.close()

    assert [delivery.lost for (delivery,) in arrived] == [""] * 4
    assert fed.ledger.sent_bit == [0, 0, 4 * 10**6]
    assert not any(verify(fed.ledger, frozenset({"sidelink"})).values())
