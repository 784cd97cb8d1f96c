"""Claims about where the time of devices went."""

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.activity import SPENT, time_split
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.usage import Usage, turn_s


def bars(*rows):
    """Activities as (device, activity, begin, end)."""
    return pd.DataFrame(list(rows), columns=["device", "activity", "started_s", "ended_s"])


def test_what_happens_at_once_counts_once_and_the_first_kind_wins():
    """Device 0 computes from 1 to 5 s, sends from 2 to 3 s, and waits from 4 to 7 s; two uplinks at once are one."""
    told = bars(
        (0, "compute", 1, 5), (0, "uplink", 2, 3), (0, "uplink", 2.5, 3), (0, "waiting", 4, 7), (-1, "compute", 0, 9)
    )

    spent = time_split(told, 2, 10.0)

    assert {name: seconds.tolist() for name, seconds in spent.items()} == {
        "uplink": [1.0, 0.0],
        "downlink": [0.0, 0.0],
        "sidelink": [0.0, 0.0],
        "compute": [3.0, 0.0],
        "waiting": [2.0, 0.0],
        "idle": [4.0, 10.0],
    }


@pytest.mark.parametrize("seed", range(5))
def test_the_parts_add_up(seed):
    """Whatever overlaps, each device has all its time, and no more; sampled at random instants it is the same."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.uniform(0, 10, (200, 2)), axis=1)
    told = pd.DataFrame({"device": rng.integers(0, 4, 200), "activity": rng.choice(SPENT[:-1], 200)})
    told["started_s"], told["ended_s"] = ends[:, 0], ends[:, 0] + 0.02 * (ends[:, 1] - ends[:, 0])

    spent = time_split(told, 4, 10.0)

    np.testing.assert_allclose(sum(spent.values()), 10.0)
    instants = (np.arange(20_000) + 0.5) / 2000
    own = told[told["device"] == 2]
    on = (own["started_s"].to_numpy()[:, None] <= instants) & (instants < own["ended_s"].to_numpy()[:, None])
    uplink = (own["activity"] == "uplink").to_numpy()
    assert spent["uplink"][2] == pytest.approx(on[uplink].any(axis=0).mean() * 10, abs=0.02)
    assert spent["idle"][2] == pytest.approx((~on.any(axis=0)).mean() * 10, abs=0.02)


def test_a_turn_is_a_computation_or_an_uplink_of_a_device_that_never_computes():
    """Device 0 computes twice and sends once in 6 s, device 1 sends four times in 4 s, device 2 does nothing."""
    sent = pd.DataFrame(
        [(0, 4, 6), *((1, second, second + 1) for second in range(4))], columns=["sender", "started_s", "ended_s"]
    ).assign(kind="uplink", receiver=-1, lost="", transfer=range(5), requested_s=lambda table: table["started_s"])
    amounts = ("receivers", "size_bit", "air_bit", "delivered_bit", "lost_bit", "energy_j", "receive_j", "cell")
    computes = pd.DataFrame({"device": 0, "started_s": [0.0, 2.0], "ended_s": [2.0, 4.0], "stopped": "", "flop": 1.0})
    tables = {
        "transfers": sent.assign(**dict.fromkeys(amounts, 1)),
        "receptions": pd.DataFrame(columns=["transfer", "receiver", "lost"]),
        "computes": computes.assign(energy_j=0.0),
    }
    run = RunRecords("it", {"simulated_s": 10.0}, {"devices": {"count": 3}}, None, lambda: tables)

    assert turn_s(Usage(run)).tolist() == pytest.approx([3.0, 1.0, np.nan], nan_ok=True)
