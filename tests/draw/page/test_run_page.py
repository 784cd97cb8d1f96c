"""Claims about the page of a run: its numbers are those of the tables."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fednet_emu as fe
from fednet_emu.analysis.usage import Usage, turn_s
from fednet_emu.draw.page import timeline as timeline_module
from fednet_emu.draw.page.document import page
from fednet_emu.draw.page.run import NOT_RECORDED, SCRIPTS, run_document
from fednet_emu.draw.page.timeline import timeline
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS

CHANGES = ["stop.rounds=6", "network.uplink.loss={kind: random, probability: 0.2}", "channel.device.receive_w=0.1"]


@pytest.fixture(scope="module")
def run():
    """Six rounds of the quickstart, in which some uplinks are lost."""
    return fe.run("quickstart", settings=CHANGES)


@pytest.fixture(scope="module")
def told(run):
    """What its page shows, before it is packed."""
    return run_document(run, "")


def test_transfers_are_those_of_the_table(run, told, read_page):
    """Who, to whom, what, when to the nanosecond, and how it ended: packed, and read again as a browser does."""
    sent, here = run.transfers, read_page(page("x", told, SCRIPTS))["timeline"]["transfers"]
    requested, started = here["requested"] * 1e-9, (here["requested"] + here["waited"]) * 1e-9

    np.testing.assert_array_equal(here["number"], sent["transfer"])
    np.testing.assert_array_equal([KINDS[code] for code in here["kind"]], sent["kind"])
    np.testing.assert_array_equal([REASONS[code] for code in here["lost"]], sent["lost"])
    for column in ("sender", "receiver", "receivers", "size_bit", "cell"):
        np.testing.assert_array_equal(here[column], sent[column])
    np.testing.assert_allclose(requested, sent["requested_s"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(started, sent["started_s"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(started + here["took"] * 1e-9, sent["ended_s"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(here["size_bit"] - here["unsent_bit"], sent["air_bit"], atol=0.5)
    np.testing.assert_allclose(here["energy_j"], sent["energy_j"] + sent["receive_j"])


def test_receptions_and_computations_are_those_of_the_tables(run, told):
    """Each reception points to the place of its transfer."""
    here, sent = told["timeline"], told["timeline"]["transfers"]

    np.testing.assert_array_equal(sent["number"].to_numpy()[here["receptions"]["transfer"]], run.receptions["transfer"])
    np.testing.assert_array_equal(here["receptions"]["receiver"], run.receptions["receiver"])
    made = run.computes[run.computes["device"] >= 0]
    np.testing.assert_allclose(here["computes"]["started"] * 1e-9, made["started_s"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(here["computes"]["took"] * 1e-9, made["ended_s"] - made["started_s"], rtol=0, atol=2e-9)


def test_energy_adds_up_to_that_of_the_run(run, told):
    """What devices and stations spent is the energy of the summary; receivers have their part."""
    energy = told["energy"]

    assert sum(np.sum(joules) for joules in energy.values()) == pytest.approx(run.summary["energy_j"])
    assert (energy["receiving"] > 0).any()
    assert energy["waiting"].sum() == pytest.approx(run.summary["waiting_j"])
    assert (energy["waiting"] + energy["idle"]).sum() == pytest.approx(run.summary["idle_j"])
    ups = run.transfers[run.transfers["kind"] == "uplink"].groupby("sender")["energy_j"].sum()
    np.testing.assert_allclose(energy["uplink"][ups.index], ups)


def test_time_adds_up_to_that_of_the_run(run, told):
    """Each device has all the time of the run, and computed as long as its computations took."""
    split = told["split"]

    np.testing.assert_allclose(sum(split.values()), run.summary["simulated_s"])
    made = run.computes[run.computes["device"] >= 0]
    took = (made["ended_s"] - made["started_s"]).groupby(made["device"]).sum()
    np.testing.assert_allclose(split["compute"][took.index], took)


def test_losses_and_participation_are_counted(run, told):
    """Lost uplinks are counted by reason; what arrived is counted per device; time lost is theirs."""
    ups = run.transfers[run.transfers["kind"] == "uplink"]
    lost = ups[ups["lost"] != ""]

    assert len(lost) > 0
    assert sum(row["count"] for row in told["losses"] if row["lost"] == "erased") == len(lost)
    broadcasts = run.transfers["receiver"] == -2
    assert sum(row["count"] for row in told["losses"]) == (~broadcasts).sum() + len(run.receptions)
    bits = run.transfers["delivered_bit"] + run.transfers["lost_bit"]
    assert sum(row["bit"] for row in told["losses"]) == bits.sum()
    np.testing.assert_array_equal(
        told["device"]["delivered"], np.bincount(ups["sender"][ups["lost"] == ""], minlength=20)
    )
    expected = (lost["ended_s"] - lost["started_s"]).groupby(lost["sender"]).sum()
    np.testing.assert_allclose(told["device"]["lost_s"][expected.index], expected)
    assert told["device"]["lost_s"].sum() == pytest.approx(expected.sum())


def test_the_words_name_the_slowest_device(run, told):
    """The four sentences tell the time, the losses, the costs, and the device with the longest turns."""
    slowest = int(np.nanargmax(turn_s(Usage(run))))
    length, losses, costs, slow = told["words"]

    assert "6 rounds with 20 devices" in length
    assert f"{run.summary['accuracy']:.3f}" in length
    assert losses.startswith("Of ")
    assert "messages" in losses
    assert "of them on the uplink" in costs
    assert slow.startswith(f"Slowest was device {slowest}:")


def test_what_the_end_of_a_run_cut_off_was_not_lost():
    """Transfers that the end stopped do not count as time lost."""
    cut = fe.run("aspire_digits", settings=["stop={simulated_s: 0.3}"], timing_only=True)
    records = Usage(cut)

    assert (records.transfers["lost"] == "end").any()
    assert not records.lost_s.any()


def test_too_many_devices_and_bars_are_told(run, monkeypatch):
    """Of many devices some have rows, all bars of theirs are there; of too many bars the first are."""
    monkeypatch.setattr(timeline_module, "MOST_DEVICES", 5)
    some = timeline(Usage(run))
    devices, sent = some["devices"].tolist(), run.transfers

    assert devices == [0, 5, 10, 14, 19]
    assert "5 of 20 devices" in some["notes"][0]
    theirs = sent[sent["sender"].isin(devices) | (sent["receiver"] == -2)]
    assert set(theirs["transfer"][theirs["sender"] >= 0]) <= set(some["transfers"]["number"])
    assert set(some["receptions"]["receiver"]) <= set(devices)

    monkeypatch.setattr(timeline_module, "MOST_ROWS", 30)
    few = timeline(Usage(run))
    assert len(few["transfers"]["number"]) < len(some["transfers"]["number"])
    assert "Bars end at" in few["notes"][1]


def test_a_page_has_all_tables_and_no_address(run, told, read_page):
    """Tables are whole, the page names no address of the network, and is smaller than 8 MB."""
    whole = page("quickstart", told, SCRIPTS)
    here = read_page(whole)

    assert "http://" not in whole
    assert "https://" not in whole
    assert len(whole) < 8e6
    for name in ("rounds", "evaluations"):
        table = getattr(run, name)
        shown = pd.DataFrame(here["tables"][name]["values"])
        pd.testing.assert_frame_equal(shown, table, check_dtype=False)
    np.testing.assert_array_equal(here["curves"]["values"]["accuracy"], run.evaluations["accuracy"])
    assert "accuracy" in here["curves"]["scores"]
    assert ["event digest", run.digest] in here["facts"]


def test_a_report_is_written_where_it_is_wanted(run, tmp_path):
    """In memory a file is needed; without recorded places the page says so."""
    with pytest.raises(fe.FednetError, match="path: is required for a run in memory"):
        run.report()

    assert run.report(tmp_path / "a.html").stat().st_size > 1e6
    tables = {name: run.table(name) for name in run.names() if name not in ("scene", "data_split")}
    told = run_document(replace(run, in_memory=lambda: tables), "")
    assert told["scene"] == told["data"] == {"missing": NOT_RECORDED}
