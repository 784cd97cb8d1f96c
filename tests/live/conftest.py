"""What tests of live mode share: a machine that can do it, small scenarios, and runs that the host did not spoil."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fednet_emu.realtime.play import able
from fednet_emu.realtime.programs import Missing

ROOT = Path(__file__).parents[2]
UPLOAD = (sys.executable, str(ROOT / "examples/live_upload.py"))
TRIES = 3
"""How often a run is played again that a busy host has made doubtful."""


@pytest.fixture(scope="session")
def machine() -> None:
    """Skip where the machine lacks something, with the sentence of `fednet live --check`."""
    try:
        able()
    except Missing as lacking:
        pytest.skip(str(lacking))


def cell(devices: int = 1, access: str = "tdma", **more: Any) -> dict[str, Any]:
    """A small cell with a band of 5 MHz in both directions, whose links fade every 20 ms."""
    fading = {"kind": "rayleigh", "coherence_s": 0.02}
    return {
        "devices": {"count": devices, "placement": {"kind": "disc", "radius_m": 60}, "profile": "pi-4b"},
        "channel": {"include": "urban-micro", "bandwidth_hz": 5e6, "fading": fading},
        "network": {"uplink": {"access": access}, "downlink": {"access": "ofdma", "mode": "unicast"}},
        "algorithm": "fedavg",
        "model": "softmax",
        "stop": {"simulated_s": 60},
        **more,
    }


def table(out: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(out / f"{name}.parquet")


def unspoilt(play: Callable[[Path], dict[str, Any]], folder: Path) -> tuple[dict[str, Any], Path]:
    """Play until the host was in time, a few times at most; the last summary and its folder, doubtful or not."""
    for number in range(TRIES):
        out = folder / f"run-{number}"
        summary = play(out)
        if not summary["doubtful"]:
            break
    return summary, out
