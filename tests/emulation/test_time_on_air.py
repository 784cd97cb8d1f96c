"""Times and energies of senders where messages arrive long after their last bit, and of fleets with unknown power."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import fednet_emu as fe
from fednet_emu.analysis.activity import air_use
from fednet_emu.analysis.usage import Usage, words

PHONES = [{"name": "phones", "users": 3, "gap": {"kind": "exponential", "mean_s": 0.5}, "size": {"byte": 4000}}]
SETTINGS = {"devices.profile": "cortex-m4", "devices.count": 4, "algorithm.cohort": 4, "partition": "iid"}


ROOT = Path(__file__).parents[2]


def run(**settings):
    return fe.run("quickstart", settings={**SETTINGS, "stop": {"rounds": 2}, **settings}, timing_only=True)


def test_a_propagation_delay_is_no_time_on_the_air() -> None:
    """Ten seconds per upload, on links with a fixed rate: devices wait for them, and other users have the air."""
    fixed = {"traffic": PHONES, "channel": "ideal", "channel.fading": "none"}
    near, far = run(**fixed), run(**fixed, **{"network.uplink.delay": {"kind": "fixed", "time_s": 10.0}})

    assert far.summary["simulated_s"] > near.summary["simulated_s"] + 19
    for sent in ("transmit_j", "rx_energy_j"):
        assert far.summary[sent] == pytest.approx(near.summary[sent], rel=1e-6)
    busy_j = [its.summary["idle_j"] - its.summary["waiting_j"] for its in (near, far)]
    assert busy_j[1] == pytest.approx(busy_j[0], rel=0.2)
    busy_s = [its.summary["traffic"]["phones"]["sending_share"] * its.summary["simulated_s"] for its in (near, far)]
    assert busy_s[1] == pytest.approx(busy_s[0], rel=0.2)
    spent_s = Usage(far).split
    assert spent_s["uplink"].sum() < 0.1 * spent_s["idle"].sum()


def test_waits_for_acknowledgements_and_delays_are_not_on_the_air() -> None:
    """Two turns in 10 s, each 1 s on the air: 2 s of waits come before the one, 3 s of delay follow the other."""
    columns = ["direction", "cell", "started_s", "ended_s", "ack_wait_s", "reception_delay_s"]
    sent = pd.DataFrame([("uplink", 0, 0.0, 3.0, 2.0, 0.0), ("uplink", 0, 3.0, 7.0, 0.0, 3.0)], columns=columns)

    edges_s, (use,) = air_use(sent, 10.0)

    at_s = edges_s[:-1]
    assert use.several.sum() == 0
    assert use.one.mean() == pytest.approx(0.2)
    assert use.one[(at_s >= 2) & (at_s < 3.9)].min() == pytest.approx(1.0)


def test_known_energies_of_computing_count_beside_unknown_ones(tmp_path: Path, monkeypatch) -> None:
    """The parts of the summary add up, and the page says how many devices lack a power of computing."""
    text = (ROOT / "profiles/cortex-m4.yaml").read_text(encoding="utf-8")
    (tmp_path / "profiles").mkdir()
    for known in ("active_w: 0.0471", "active_w_range: [0.047, 0.078]", "active_w: measured"):
        text = text.replace(known, known.split(":")[0] + ": null")
    (tmp_path / "profiles/other.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    mixed = run(**{"devices.profile": {"cortex-m4": 0.5, "other": 0.5}})
    own = mixed.summary
    parts = ("compute_j", "transmit_j", "rx_energy_j", "idle_j", "station_j")

    assert own["compute_j"] > 0
    assert sum(own[part] for part in parts) == pytest.approx(own["energy_j"], rel=1e-9)
    assert "without computing on 2 of 4 devices, whose power is unknown" in " ".join(words(Usage(mixed)))
    assert run(**{"devices.profile": "other"}).summary["compute_j"] is None
