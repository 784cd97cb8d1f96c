"""A claim about size: a run of 1,000 devices and a million transfers fits into a page that mail and browsers take."""

import numpy as np
import pandas as pd
import pytest

from fednet_emu.analysis.run import RunRecords
from fednet_emu.draw.page.document import page
from fednet_emu.draw.page.run import SCRIPTS, run_document

DEVICES, ROUNDS, DAY_S = 1000, 500, 120.0


def busy_run():
    """Each device hears the server, computes and answers 500 times within two minutes, at times known to the ns."""
    rng = np.random.default_rng(1)
    device = np.tile(np.arange(DEVICES), ROUNDS)
    begin_s = np.repeat(np.arange(ROUNDS) * DAY_S / ROUNDS, DEVICES)
    waits = np.sort(rng.uniform(0.0, 0.24, (7, len(device))), axis=0).round(9)
    down_s, heard_s, made_s, started_s, ended_s = (begin_s + waits[row] for row in (1, 2, 3, 4, 5))
    n, zero, ok = len(device), np.zeros(len(device)), np.full(len(device), "")
    lost = np.where(rng.random(n) < 0.02, "outage", "")

    def sent(kind, sender, receiver, times, lost):
        names = ("requested_s", "started_s", "ended_s")
        sizes = {"size_bit": np.full(n, 77_120), "air_bit": np.full(n, 77_120.0)}
        got = np.where(lost == "", 77_120, 0)
        return pd.DataFrame(
            {"kind": kind, "sender": sender, "receiver": receiver, "receivers": 1, **sizes, "delivered_bit": got}
            | dict(zip(names, times, strict=True))
            | {
                "lost_bit": 77_120 - got,
                "lost": lost,
                "energy_j": 0.1 * (times[2] - times[1]),
                "receive_j": zero,
                "cell": 0,
            }
        )

    down = sent("downlink", -1, device, (begin_s, down_s, heard_s), ok)
    up = sent("uplink", device, -1, (made_s, started_s, ended_s), lost)
    transfers = pd.concat([down, up]).sort_values("ended_s", kind="stable").reset_index(drop=True)
    transfers.insert(0, "transfer", np.arange(len(transfers)))
    empty = pd.DataFrame({"transfer": np.array([], np.int64), "receiver": np.array([], np.int64), "lost": []})
    computes = {
        "device": device,
        "started_s": heard_s,
        "ended_s": made_s,
        "flop": zero,
        "energy_j": zero,
        "stopped": ok,
    }
    rounds = {"round": [0], "started_s": [0.0], "ended_s": [DAY_S], "invited": [DEVICES], "arrived": [DEVICES]}
    spent = ["round", "simulated_s", "uplink_bit", "downlink_bit", "sidelink_bit", "energy_j", "loss", "accuracy"]
    tables = {
        "transfers": transfers,
        "receptions": empty,
        "computes": pd.DataFrame(computes),
        "rounds": pd.DataFrame(rounds),
        "evaluations": pd.DataFrame({name: np.array([], np.float64) for name in spent}),
    }
    bits = {"uplink_bit": n * 77_120, "downlink_bit": n * 77_120, "sidelink_bit": 0}
    summary = {"name": "busy", "simulated_s": DAY_S, "rounds": 1, "accuracy": None, "loss": None, **bits}
    return RunRecords("busy", summary, {"devices": {"count": DEVICES}}, None, lambda: tables)


@pytest.mark.slow
def test_a_million_transfers_take_less_than_25_megabytes(read_page):
    """They are all there, to the microsecond, and the page says that it rounds."""
    run = busy_run()
    whole = page("busy", run_document(run, ""), SCRIPTS)
    told = read_page(whole)["timeline"]
    sent = run.table("transfers")

    assert len(whole) < 25e6
    assert len(told["transfers"]["number"]) == 1_000_000
    assert any("microseconds" in note for note in told["notes"])
    ended = told["transfers"]["requested"] + told["transfers"]["waited"] + told["transfers"]["took"]
    np.testing.assert_allclose(ended * told["quantum_s"], sent["ended_s"], atol=1e-6)
    np.testing.assert_array_equal(told["transfers"]["sender"], sent["sender"])
