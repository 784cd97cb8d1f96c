"""The page of a run: its frame, its size, and its numbers, which are those of the tables."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fednet_emu as fe
from fednet_emu.analysis.run import RunRecords
from fednet_emu.analysis.usage import Usage, spreads, turn_s, words
from fednet_emu.draw.page import run as run_page
from fednet_emu.draw.page.document import CORE, Packer, browser_file, page
from fednet_emu.draw.page.run import NOT_RECORDED, SCRIPTS, run_document, timeline
from fednet_emu.records.reasons import REASONS
from fednet_emu.records.rows import KINDS
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL

CHANGES = [
    "stop.rounds=6",
    "network.uplink.message_loss={kind: random, probability: 0.2}",
    "channel.device.rx_consumption_w=0.1",
]


@pytest.fixture(scope="module")
def run():
    """Six rounds of the quickstart, in which some uplinks are lost."""
    return fe.run("quickstart", settings=CHANGES)


@pytest.fixture(scope="module")
def told(run):
    return run_document(run, "")


def test_transfers_are_those_of_the_table(run, told, read_page):
    """Who, to whom, what, when to the nanosecond, and how it ended: packed, and read again as a browser does."""
    sent, here = run.transfers, read_page(page("x", told, SCRIPTS))["timeline"]["transfers"]
    requested, started = here["requested"] * 1e-9, (here["requested"] + here["waited"]) * 1e-9

    np.testing.assert_array_equal(here["number"], sent["transfer"])
    np.testing.assert_array_equal([KINDS[code] for code in here["kind"]], sent["direction"])
    np.testing.assert_array_equal([REASONS[code] for code in here["lost"]], sent["loss_reason"])
    for column in ("sender", "receiver", "receivers", "size_bit", "cell"):
        np.testing.assert_array_equal(here[column], sent[column])
    np.testing.assert_allclose(requested, sent["requested_s"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(started, sent["started_s"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(started + here["took"] * 1e-9, sent["ended_s"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(here["size_bit"] - here["unsent_bit"], sent["transmitted_bit"], atol=0.5)
    np.testing.assert_allclose(here["energy_j"], sent["energy_j"] + sent["rx_energy_j"])


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
    ups = run.transfers[run.transfers["direction"] == "uplink"].groupby("sender")["energy_j"].sum()
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
    ups = run.transfers[run.transfers["direction"] == "uplink"]
    lost = ups[ups["loss_reason"] != ""]

    assert len(lost) > 0
    assert sum(row["count"] for row in told["losses"] if row["lost"] == "erased") == len(lost)
    broadcasts = run.transfers["receiver"] == -2
    assert sum(row["count"] for row in told["losses"]) == (~broadcasts).sum() + len(run.receptions)
    bits = run.transfers["delivered_bit"] + run.transfers["lost_bit"]
    assert sum(row["bit"] for row in told["losses"]) == bits.sum()
    np.testing.assert_array_equal(
        told["device"]["delivered"], np.bincount(ups["sender"][ups["loss_reason"] == ""], minlength=20)
    )
    expected = (lost["ended_s"] - lost["started_s"]).groupby(lost["sender"]).sum()
    np.testing.assert_allclose(told["device"]["lost_s"][expected.index], expected)
    assert told["device"]["lost_s"].sum() == pytest.approx(expected.sum())


def test_the_words_say_how_long_the_rounds_took():
    """A run of 6 ms ends after two rounds of 2.32 ms, and in the third one."""
    run = fe.run(from_text(SMALL, "small").data, settings={"stop": {"simulated_s": 0.006}}, timing_only=True)

    assert words(Usage(run))[0].startswith("2 rounds with 4 devices took 4.64 ms of 6 ms of simulated time; ")


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

    assert (records.transfers["loss_reason"] == "end").any()
    assert not records.lost_s.any()


def test_staleness_is_that_of_single_updates():
    """FedAsync has a row per update. AD-PSGD has one per round, with the highest of several: no figure."""
    peers = ["devices.count=8", "algorithm={kind: ad-psgd, lr: 0.1, batch_size: 8, local_steps: 5}", "stop={rounds: 3}"]
    single = fe.run("fedasync_digits", settings=["stop={rounds: 8}"], timing_only=True)
    several = fe.run("gossip_mobile", settings=peers, timing_only=True)

    assert spreads(Usage(single))["staleness"]["counts"].sum() == len(single.table("activations"))
    assert "staleness" in several.table("averaging")
    assert "staleness" not in spreads(Usage(several))


def test_too_many_devices_and_bars_are_told(run, monkeypatch):
    """Of many devices some have rows, all bars of theirs are there; of too many bars the first are."""
    monkeypatch.setattr(run_page, "MOST_DEVICES", 5)
    some = timeline(Usage(run))
    devices, sent = some["devices"].tolist(), run.transfers

    assert devices == [0, 5, 10, 14, 19]
    assert "5 of 20 devices" in some["notes"][0]
    theirs = sent[sent["sender"].isin(devices) | (sent["receiver"] == -2)]
    assert set(theirs["transfer"][theirs["sender"] >= 0]) <= set(some["transfers"]["number"])
    assert set(some["receptions"]["receiver"]) <= set(devices)

    monkeypatch.setattr(run_page, "MOST_ROWS", 30)
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
    with pytest.raises(fe.FednetError, match="path: is missing for a run in memory"):
        run.report()

    assert run.report(tmp_path / "a.html").stat().st_size > 1e6
    tables = {name: run.table(name) for name in run.names() if name not in ("scene", "data_split")}
    told = run_document(replace(run, in_memory=lambda: tables), "")
    assert told["scene"] == told["data"] == {"missing": NOT_RECORDED}


ARRAYS = {
    "nothing": np.array([], np.int64),
    "truth": np.array([True, False, True]),
    "small": np.array([0, 255, 3]),
    "negative": np.array([-1, 300, -32768]),
    "rising": np.arange(1_000_000_000_000, 1_000_000_050_000, 7),
    "large": np.array([2**53, -(2**53), 5]),
    "floats": np.array([0.1, np.nan, -np.inf]),
    "singles": np.array([0.1, 2.5], np.float32),
    "column": pd.Series([4, 5, 6], dtype="int8"),
}


def test_arrays_come_out_as_they_went_in(read_page):
    """A browser gets every number of every array, whatever its type."""
    told = read_page(page("x", {"deep": [ARRAYS]}, ()))["deep"][0]

    assert told.keys() == ARRAYS.keys()
    for name, numbers in ARRAYS.items():
        np.testing.assert_array_equal(told[name], numbers)


def test_times_take_little_room():
    """A million rising times in ns, a second apart and known to the ns, take less than half of their 8 bytes each."""
    packer = Packer()
    packer.plain(np.sort(np.random.default_rng(1).integers(0, 10**15, 1_000_000)))

    assert len(packer.block()) < 5.5e6


def test_texts_and_numbers_stay_and_what_is_no_number_is_null(read_page):
    """JSON has no NaN, and a text may hold what would end a script."""
    content = {"a": "</script><b>é\u2028", "b": [1, 0.5, None, float("nan"), np.float64("inf"), np.int64(3)], "c": {}}

    told = read_page(page("x", content, ()))

    assert told == {"a": "</script><b>é\u2028", "b": [1, 0.5, None, None, None, 3], "c": {}}


@pytest.mark.parametrize("wrong", [{1, 2}, np.zeros((2, 2)), np.zeros(2, complex), b"x"])
def test_other_things_are_refused(wrong):
    """What a browser could not read is a mistake of the page's author."""
    with pytest.raises(TypeError, match="page: "):
        Packer().plain(wrong)


def test_a_page_loads_nothing():
    """No address of the network is in a page, its policy forbids to load any, and its parts are all there."""
    whole = page("a <title>", {}, ())

    assert not re.findall(r"https?://", whole)
    assert "default-src 'none'" in whole
    assert "<title>a &lt;title&gt;</title>" in whole
    assert all(browser_file(name) in whole for name in (*CORE, "style.css"))
    assert "{{" not in whole.replace(browser_file("table.js"), "")
    assert len(whole) < 2.2e6


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
        sizes = {"size_bit": np.full(n, 77_120), "transmitted_bit": np.full(n, 77_120.0)}
        got = np.where(lost == "", 77_120, 0)
        return pd.DataFrame(
            {"direction": kind, "sender": sender, "receiver": receiver, "receivers": 1, **sizes, "delivered_bit": got}
            | dict(zip(names, times, strict=True))
            | {
                "lost_bit": 77_120 - got,
                "loss_reason": lost,
                "energy_j": 0.1 * (times[2] - times[1]),
                "rx_energy_j": zero,
                "cell": 0,
            }
        )

    down = sent("downlink", -1, device, (begin_s, down_s, heard_s), ok)
    up = sent("uplink", device, -1, (made_s, started_s, ended_s), lost)
    transfers = pd.concat([down, up]).sort_values("ended_s", kind="stable").reset_index(drop=True)
    transfers.insert(0, "transfer", np.arange(len(transfers)))
    empty = pd.DataFrame({"transfer": np.array([], np.int64), "receiver": np.array([], np.int64), "loss_reason": []})
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
