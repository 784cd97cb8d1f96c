"""A live run beside its prediction: durations, differences, and what a round is made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.beside import rounds_beside, transfers_beside
from fednet_emu.analysis.run import RunRecords


@pytest.fixture
def run() -> RunRecords:
    """Two rounds; in the first two uploads overlap, in the second the prediction of one is unknown."""
    transfers = pd.DataFrame({
        "transfer": [0, 1, 2, 3], "kind": ["downlink", "uplink", "uplink", "uplink"], "sender": [-1, 0, 1, 0],
        "receiver": [0, -1, -1, -1], "requested_s": [1.0, 5.0, 6.0, 13.0], "started_s": [1.0, 5.0, 6.0, 13.0],
        "ended_s": [2.0, 7.0, 8.0, 15.0], "lost": ["", "", "", "left"],
    })  # fmt: skip
    live = pd.DataFrame({
        "transfer": [0, 1, 2, 3], "predicted_s": [1.5, 7.0, 7.5, np.nan], "error": [1.0, 0.0, 1 / 3, np.nan],
        "starved_s": [0.0, 0.1, 0.0, 0.0], "away_s": [0.0] * 4, "repeated_byte": [0, 10, 0, 0],
    })  # fmt: skip
    computes = pd.DataFrame({"device": [0, 1], "started_s": [2.0, 2.0], "ended_s": [4.0, 5.5]})
    rounds = pd.DataFrame({"round": [1, 2], "started_s": [0.0, 12.0], "ended_s": [12.0, 20.0]})
    tables = {"transfers": transfers, "live_messages": live, "computes": computes, "rounds": rounds}
    return RunRecords("made", {}, {}, None, lambda: tables)


def test_transfers_from_request_to_end(run: RunRecords) -> None:
    """As measured and as predicted, of the device at either end."""
    beside = transfers_beside(run)
    assert beside["device"].tolist() == [0, 0, 1, 0]
    assert beside["took_s"].tolist() == [1.0, 2.0, 2.0, 2.0]
    assert beside["predicted_s"].tolist() == pytest.approx([0.5, 2.0, 1.5, np.nan], nan_ok=True)
    assert beside["lost"].tolist() == ["", "", "", "left"]


def test_rounds_are_air_computing_and_waiting(run: RunRecords) -> None:
    """Overlaps count once; computing counts where nothing is on the air; an unknown prediction is as measured."""
    first, second = rounds_beside(run).to_dict("records")
    assert first == {
        "round": 1, "took_s": 12.0, "air_s": 4.0, "predicted_air_s": 3.0, "compute_s": 3.0, "waiting_s": 5.0
    }  # fmt: skip
    assert (second["air_s"], second["predicted_air_s"], second["waiting_s"]) == (2.0, 2.0, 6.0)
