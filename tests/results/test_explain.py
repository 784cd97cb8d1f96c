"""`Run.explain` and `fednet explain`: paths of real runs, and what remedies give, at exact times."""

import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fednet_emu as fe
from fednet_emu.analysis.critical_path import Explanation, Remedy
from fednet_emu.cli.app import app
from fednet_emu.draw.page.run import run_document
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.radio.nr.blocks import NrBlocks
from fednet_emu.results.explanation import Replay, remedies, replayed, shed, weaker, weighed
from fednet_emu.results.explanation import explained as explained_run
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL

MAPPING = from_text(SMALL, "small").data
ROUND_S = 320e-6 + 720e-6 + 4 * 320e-6
"""A broadcast, one computation, and four uploads one after the other."""


KNOWN = {}


def explained(**settings):
    """The explanation of the small run with some settings, made once; tests only look at it."""
    if repr(settings) not in KNOWN:
        run = fe.run(MAPPING, settings={key.replace("__", "."): value for key, value in settings.items()})
        KNOWN[repr(settings)] = run.explain()
    return KNOWN[repr(settings)]


def test_the_path_of_the_small_federation_is_known():
    """All devices are ready at once: in each round the broadcast, one computation, and four uploads in turn."""
    found = explained()
    kinds = found.kinds.set_index("what")["took_s"]

    assert dict(kinds) == pytest.approx({"uplink": 3 * 4 * 320e-6, "compute": 3 * 720e-6, "downlink": 3 * 320e-6})
    assert found.frame.groupby("round")["took_s"].sum().tolist() == pytest.approx([ROUND_S] * 3)
    assert found.frame.query("what == 'uplink'").groupby("device").size().tolist() == [3, 3, 3, 3]
    assert found.lines()[0] == "A small federation: 3 rounds took 6.96 ms; the critical path of each round, by kind"


def test_transfers_that_changed_cells_are_counted():
    """Devices drive between two stations while they send for seconds; the table has as many rows."""
    mobility = {"kind": "random-waypoint", "min_speed_m_s": 20, "max_speed_m_s": 40}
    cells = {"kind": "list", "xy_m": [[-60, 0], [60, 0]]}
    ways = {"uplink": {"access": "ofdma"}, "downlink": {"access": "ofdma"}}
    settings = {"channel": {"include": "urban-micro", "bandwidth_hz": 100}, "devices.mobility": mobility}
    network = {"cells": cells, "handover": "during", "position_update_s": 0.1, **ways}
    run = fe.run(MAPPING, settings={**settings, "network": network})
    count = len(run.table("handovers"))

    assert count > 1
    assert f"  {count} transfers changed cells on the way, see the table handovers" in run.explain(replay=False).lines()


def test_what_goes_over_a_backhaul_is_on_the_path():
    """An edge server at the end of a line of 0.1 Mbit/s and 1 ms: 4.2 ms each way, around what is on the air."""
    found = explained(
        algorithm={"kind": "hier-favg", "cohort": 4, "lr": 0.1, "batch_size": None, "local_steps": 1, "edge_rounds": 2},
        network__edge_servers={"backhaul": {"rate_bps": 1e5, "delay_s": 1e-3, "energy_j_per_bit": 1e-3}},
    )
    kinds = found.kinds.set_index("what")

    assert dict(kinds["took_s"]) == pytest.approx(
        {
            "backhaul down": 3 * 4.2e-3,
            "backhaul up": 3 * 4.2e-3,
            "uplink": 3 * 2 * 4 * 320e-6,
            "compute": 3 * 2 * 720e-6,
            "downlink": 3 * 2 * 320e-6,
        }
    )
    assert kinds.loc["backhaul up", "energy_j"] == pytest.approx(3 * 0.32)
    assert "  sending to the cloud over the backhaul: 12.6 ms, 32%, 960 mJ" in found.lines()
    assert "sending to the cloud over the backhaul 32%" in found.words[0], "as the report says it"
    gain = {its.title: found.took_s - its.simulated_s for its in found.remedies}
    assert gain["twice the rate of the backhaul"] == pytest.approx(3 * 2 * 1.6e-3)


def test_remedies_give_what_arithmetic_says():
    """Half the bits halve the uploads, twice the speed halves the computing; a cable has 1 Gbit/s for five turns."""
    saved = {its.title: 3 * ROUND_S - its.simulated_s for its in explained().remedies}

    assert saved["uploads in half precision"] == pytest.approx(3 * 4 * 160e-6)
    assert saved["devices that compute twice as fast"] == pytest.approx(3 * 360e-6)
    assert saved["Ethernet"] == pytest.approx(3 * (5 * 320e-6 - 5 * 320e-9))


def test_slow_devices_are_left_out_only_where_others_take_their_place():
    """Two of six are asked in a round, so that others stand in for three slow ones; for all of four nobody can."""
    speed = {"kind": "list", "flop_per_s": [1e5, 1e6, 1e5, 1e6, 1e5, 1e6]}
    found = explained(devices={**MAPPING["devices"], "count": 6, "speed": speed}, algorithm__cohort=2, stop__rounds=8,
                      data__n_samples=60)  # fmt: skip
    (without,) = [its for its in found.remedies if its.title.startswith("without")]

    assert without.title == "without dev-2, dev-0, dev-4, replaced by others"
    assert without.simulated_s == pytest.approx(8 * (320e-6 + 60 / 6 * 36e-6 + 2 * 320e-6))
    assert not [its for its in explained().remedies if its.title.startswith("without")]


def replay(rounds, messages=()):
    """The tables of a replay: rounds as (end in s, updates that arrive), messages as (kind, sender, receiver, lost)."""
    sent = pd.DataFrame(messages, columns=["direction", "sender", "receiver", "loss_reason"]).astype(
        {"loss_reason": "category"}
    )
    heard = pd.DataFrame({"transfer": [0, 0, 0], "receiver": [0, 1, 2], "loss_reason": ["", "unreachable", "away"]})
    return Replay(
        {
            "rounds": pd.DataFrame(rounds, columns=["ended_s", "arrived"]).assign(round=range(1, len(rounds) + 1)),
            "transfers": sent.rename_axis("transfer").reset_index(),
            "receptions": heard if (sent["receiver"] == -2).any() else heard.head(0),
        }
    )


def test_devices_that_a_remedy_cuts_off_are_named():
    """Device 1 hears no broadcast, device 2 is late; losses by chance, absence and the end of the run do not count."""
    before = replay(
        [(1, 3)], [*(("downlink", -1, k, "") for k in (0, 1, 2)), *(("uplink", k, -1, "") for k in range(4))]
    )
    after = replay(
        [(1, 3)],
        [("downlink", -1, -2, ""), ("uplink", 0, -1, ""), ("uplink", 0, -1, "timeout"), ("uplink", 2, -1, "deadline"),
         ("uplink", 2, -1, "deadline"), ("uplink", 3, -1, "erased"), ("uplink", 1, -1, "end")],
    )  # fmt: skip

    assert shed(before, after) == "3 of 9 messages would be lost (dev-1 out of reach; dev-2 given up at a deadline)"
    assert shed(after, before) == shed(before, before) == shed(after, after) == ""


def test_a_remedy_that_cuts_a_device_off_gains_nothing():
    """A timeout that only the uploads of the far device outlast loses one message of it in each of three rounds."""
    far = {"kind": "list", "xy_m": [[10, 0], [20, 0], [30, 0], [500, 0]]}
    settings = {"devices.placement": far, "channel": "urban-macro-classic", "channel.fading": "none"}
    run = fe.run(MAPPING, settings=settings)
    sent = run.transfers[run.transfers["direction"] == "uplink"]
    fast_s, slow_s = (sent["ended_s"] - sent["started_s"]).groupby(sent["sender"] == 3).max()
    same = Replay.of(run.scenario, "as it is")
    cut = replayed(run.scenario, Remedy("shorter", {"network.uplink.timeout_s": (slow_s + fast_s) / 2}), same)

    assert cut.simulated_s is None
    assert cut.gain(1.0) == "3 of 24 messages would be lost (dev-3 timed out)"


def test_as_many_updates_arrive_with_a_remedy():
    """Ten arrive in two of five rounds where all do; where one does in each round, ten take ten rounds."""
    half, all_ = replay([(n, 2) for n in range(1, 6)]), replay([(2 * n, 5) for n in range(1, 6)])
    few = replay([(n / 4, 1) for n in range(1, 12)])
    found = [weighed(Remedy("it", {}), half, then) for then in (all_, few, replay([(1, 9)]))]

    assert [(its.simulated_s, its.rounds) for its in found] == [(4, 2), (2.5, 10), (None, None)]
    assert found[0].gain(5.0) == "4 s, 1 s sooner (20%), in 2 rounds"
    assert found[2].gain(5.0) == "9 updates arrive in 1 round, no more"


def test_rounds_after_the_last_update_count_with_no_remedy():
    """Two updates arrive by 2 s of 4 s, and with the remedy by 0.5 s: 1.5 s sooner, not 3.5 s."""
    found = weighed(Remedy("it", {}), replay([(1, 1), (2, 1), (4, 0)]), replay([(0.5, 2), (1, 0), (1.5, 0)]))

    assert found.gain(4.0) == "500 ms, 1.5 s sooner (75%), in 1 round"


def test_no_reason_is_given_for_rounds_that_end_at_a_deadline():
    """What else happens until a deadline is not on the path: a later deadline makes rounds longer, without a reason."""
    speed = {"kind": "list", "flop_per_s": [1e6, 1e6, 1e6, 1e3]}
    settings = {"devices.speed": speed, "algorithm.deadline_s": 0.05}
    scenario = fe.run(MAPPING, settings=settings, timing_only=True).scenario
    found = replayed(scenario, Remedy("later", {"algorithm.deadline_s": 0.1}), Replay.of(scenario, "as it is"))

    assert found.gain(0.15) == "300 ms, 150 ms later (100%)"


def test_a_factor_of_a_device_stretches_its_fixed_time() -> None:
    """`devices.slowdown` applies to `devices.overhead_s`: in each of three rounds all wait for five times 0.1 s."""
    found = explained(devices__overhead_s=0.1, devices__slowdown={"0": 5.0}).kinds.set_index("what")["took_s"]

    assert found["fixed time"] == pytest.approx(3 * 0.5)
    assert found["compute"] == pytest.approx(3 * 5 * 720e-6)


def test_nobody_replaces_devices_where_all_are_busy_at_once():
    """An asynchronous server with as many busy devices as there are has no others to ask."""
    busy = {"kind": "fedasync", "lr": 0.1, "batch_size": None, "local_steps": 1, "concurrency": 4}
    assert not [its for its in explained(algorithm=busy).remedies if its.leaves_out]


def test_updates_that_arrive_only_with_a_remedy_are_counted():
    """Zero updates have arrived at once, which is no gain of time; without any, as many rounds are compared."""
    none = replay([(1, 0), (2, 0)])
    some, one, few = (
        weighed(Remedy("it", {}), none, replay(rounds))
        for rounds in ([(0.5, 4), (0.9, 4)], [(0.5, 0), (0.9, 1)], [(0.5, 0), (1, 0)])
    )

    assert some.gain(2.0) == "8 updates arrive in 2 rounds, none without it"
    assert one.gain(2.0) == "1 update arrives in 2 rounds, none without it"
    assert few.gain(2.0) == "1 s, 1 s sooner (50%)"


def test_a_run_without_any_update_says_so():
    """Computing takes longer than the deadline: with no fixed time of a computation, all four updates arrive."""
    lines = explained(devices__overhead_s=0.1, algorithm__deadline_s=0.05).lines()

    assert "no update arrived; updates that arrive with a remedy, or its gain in as many rounds, replayed" in lines
    assert "  no fixed time of a computation: 12 updates arrive in 3 rounds, none without it" in lines
    assert "  devices that compute twice as fast: nothing" in lines


def test_a_run_without_rounds_says_so():
    """A run that ends before its first round needs more time, and an idle one has no rounds at all."""
    with pytest.raises(fe.DataError, match=r"none, got a run that ended before its first round did; give it more"):
        explained(stop={"simulated_s": 1e-4})
    with pytest.raises(fe.DataError, match=r"none, got algorithm idle; explain a run of another algorithm"):
        explained(algorithm="idle", stop={"simulated_s": 1.0})


def test_chance_costs_a_remedy_rounds_but_not_its_gain():
    """With random losses twelve updates take over three rounds, and the time is that of a run of as many rounds."""
    scenario = fe.run(MAPPING).scenario
    same = Replay.of(scenario, "as it is")
    lossy = {"kind": "random", "probability": 0.4}
    found = replayed(scenario, Remedy("losses", {"network.uplink.message_loss": lossy}), same)
    again = fe.run(
        MAPPING, settings={"network.uplink.message_loss": lossy, "stop.rounds": found.rounds}, timing_only=True
    )
    arrived = again.rounds["arrived"].cumsum().tolist()

    assert arrived[-1] >= 12 > arrived[-2]
    assert found.simulated_s == pytest.approx(again.simulated_s)


def test_a_remedy_that_harms_says_what_takes_longer():
    """Half the speed doubles the computing, and nothing else."""
    scenario = fe.run(MAPPING).scenario
    found = replayed(scenario, Remedy("slower", {"devices.speed.flop_per_s": 5e5}), Replay.of(scenario, "as it is"))

    text = "9.12 ms, 2.16 ms later (31%): computing takes 2.16 ms longer"
    assert (found.simulated_s, found.gain(3 * ROUND_S)) == (pytest.approx(3 * (ROUND_S + 720e-6)), text)


def test_power_over_more_band_that_falls_below_a_threshold_is_named():
    """Twice the band halves each mean SNR: of 20 devices those within 3 dB above the threshold fall below it."""
    settings = {"network.uplink.access": {"kind": "noma", "sinr_threshold_db": 25.0}, "channel.fading": "none"}
    run = fe.run("quickstart", settings={**settings, "stop.rounds": 1}, timing_only=True)
    before_db = run.table("scene")["snr_db"].dropna()
    twice = fe.check(run.scenario, settings={"channel.bandwidth_hz": 2e6})
    below = [int((before_db < least).sum()) for least in (25.0, 25.0 + 10 * np.log10(2))]

    assert below[0] < below[1]
    assert weaker(Outlook(run.scenario), Outlook(twice)) == (
        f", as the mean SNR is below the 25.0 dB that the uplink needs for {below[1]} of 20 devices, {below[0]} before"
    )
    assert weaker(Outlook(twice), Outlook(run.scenario)) == ""


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": {"kind": "local", "lr": 0.1}},
        {"algorithm": {"kind": "fedmd", "lr": 0.1}, "model": "softmax", "data": "digits", "server__samples": 50},
        {"network__uplink__secure_aggregation": "bonawitz", "algorithm__weighting": "uniform"},
    ],
    ids=["local", "fedmd", "secure aggregation"],
)
def test_remedies_that_a_scenario_refuses_are_left_out(settings):
    """A method that compresses nothing is not offered half the bits, and no line has the words of a refusal."""
    found = explained(**settings)

    assert found.remedies
    assert "uploads in half precision" not in [its.title for its in found.remedies]
    assert not [line for line in found.lines() if "settings[" in line or "cannot be replayed" in line]


def test_a_cable_replaces_cells_antennas_and_climbs_too():
    """Whatever a switch does not go with is replaced beside the access scheme."""
    several = {"kind": "list", "xy_m": [[0, 0], [400, 0]]}
    cases = [
        {"network__cells": several, "network__reception": {"kind": "mrc", "antennas": 2}, "channel": "urban-micro"},
        OVER_SLOTS | {"channel__rate": {"kind": "nr-blocks", "feedback": "olla"}},
    ]
    for settings in cases:
        (cable,) = [its for its in explained(**settings).remedies if its.title == "Ethernet"]
        assert cable.problem == ""
        assert cable.simulated_s == pytest.approx(3 * 720e-6, rel=0.1)

    assert "Ethernet" not in [its.title for its in explained(network__uplink__access="ethernet").remedies]


OVER_SLOTS = {
    "channel": "urban-micro",
    "channel__fading": "none",
    "channel__bandwidth_hz": 20e6,
    "channel__subcarrier_spacing_khz": 30,
    "network__uplink__access": "nr-grants",
    "network__downlink__access": "nr-grants",
}


def test_connections_that_are_kept_are_replayed():
    """A handshake of 0.1 s before each of six messages in turn, and two promotions of 0.2 s a round."""
    found = explained(
        network__transport={"kind": "tcp", "rtt_s": 0.1, "reuse": False},
        network__uplink__idle={"kind": "rrc", "inactivity_s": 1e-4, "promotion_s": 0.2},
        network__downlink__mode="unicast",
    )
    saved = {its.title: found.took_s - its.simulated_s for its in found.remedies}

    assert saved["one connection kept"] == pytest.approx(5 * 0.1)
    assert saved["radio connections kept"] == pytest.approx(6 * 0.2, abs=0.01)
    assert not {"one connection kept", "radio connections kept"} & {its.title for its in explained().remedies}


def test_fresh_reports_are_replayed():
    """A run whose transfers climb, started anew with reports of the moment, takes as long as the remedy says."""
    found = explained(**OVER_SLOTS, channel__rate={"kind": "nr-blocks", "feedback": "olla"})
    (fresh,) = [its for its in found.remedies if its.title == "fresh channel reports"]
    ideal = explained(**OVER_SLOTS, channel__rate={"kind": "nr-blocks"})

    assert fresh.simulated_s == pytest.approx(ideal.took_s)
    assert fresh.simulated_s < found.took_s
    assert "fresh channel reports" not in [its.title for its in ideal.remedies]


def test_fresh_reports_have_no_age():
    """What says how old they are is left out; the rest of the law stays."""
    old = {"kind": "nr-blocks", "feedback": "aged", "report_s": 0.1, "margin_db": 1.5}
    fading = {"channel.fading": "rayleigh", "channel.fading_model": "ergodic"}
    scenario = fe.check("quickstart", settings={"channel.rate": old} | fading)
    (fresh,) = [its for its in remedies(scenario, explained()) if its.title == "fresh channel reports"]

    assert fe.check("quickstart", settings=fresh.settings).channel.rate == NrBlocks(margin_db=1.5)


@pytest.mark.parametrize(
    "speed",
    [
        {"kind": "list", "flop_per_s": [1e6, 2e6, 3e6, 4e6]},
        {"kind": "log-normal", "median_flop_per_s": 1e6, "sigma": 0.5},
    ],
)
def test_every_kind_of_speed_is_doubled(speed):
    """In parallel uploads the slowest device decides; what it computes takes half as long."""
    found = explained(devices__speed=speed, network__uplink__access="ofdma")
    gain = next(its for its in found.remedies if "compute" in its.title)

    computing_s = found.kinds.set_index("what").loc["compute", "took_s"]
    assert found.took_s - gain.simulated_s == pytest.approx(computing_s / 2)


@pytest.mark.parametrize(
    "settings",
    [
        {"network__uplink__message_loss": {"kind": "random", "probability": 0.3}},
        {
            "algorithm": {
                "kind": "fedavg",
                "cohort": 4,
                "lr": 0.1,
                "batch_size": None,
                "local_steps": 1,
                "deadline_s": 0.0015,
            }
        },
        {"devices__availability": {"kind": "periodic", "on_s": 0.002, "off_s": 0.001}},
        {
            "algorithm": {
                "kind": "fedbuff",
                "concurrency": 3,
                "buffer_size": 2,
                "lr": 0.1,
                "batch_size": None,
                "local_steps": 1,
            }
        },
    ],
    ids=["loss", "deadline", "absence", "asynchronous"],
)
def test_paths_are_as_long_as_the_rounds_of_any_run(settings):
    """With losses, deadlines, devices that come and go, and a server that waits for nobody."""
    run = fe.run(MAPPING, settings={key.replace("__", "."): value for key, value in settings.items()})
    found = run.explain(replay=False)

    lengths = run.rounds["ended_s"] - run.rounds["started_s"]
    assert found.frame.groupby("round")["took_s"].sum().to_numpy() == pytest.approx(lengths[lengths > 0].to_numpy())
    assert ("deadline" in set(found.frame["what"])) == ("deadline_s" in settings.get("algorithm", {}))


def test_windows_of_devices_are_replayed():
    """Devices are numbers in a scenario and text in a file; device 0 is away from 1 ms on, and never returns."""
    windows = {"kind": "windows", "devices": {"0": [[0.0, 1e-3]], "3": [[0, 1]]}}
    run = fe.run(MAPPING, settings={"devices.availability": windows})
    again = fe.run(run.scenario)

    assert run.scenario.devices.availability.devices[0] == ((0.0, 1e-3),)
    assert again.summary["event_digest"] == run.summary["event_digest"] != fe.run(MAPPING).summary["event_digest"]
    assert fe.check(run.scenario) == run.scenario
    assert not run.explain().no_remedies
    assert all(its.simulated_s for its in run.explain().remedies)


def test_a_run_that_ended_at_an_accuracy_is_replayed_for_as_many_rounds():
    """The clock does not know the accuracy, but it knows the rounds."""
    found = explained(stop={"rounds": 50, "accuracy": 0.3}, data="digits", model="softmax", algorithm__lr=0.5)

    assert not found.no_remedies
    assert all(its.simulated_s for its in found.remedies)


def test_what_cannot_be_replayed_says_why():
    """Events that depend on learnt values; the path is told all the same."""
    algorithm = {
        "kind": "cfl",
        "cohort": 4,
        "lr": 0.1,
        "batch_size": None,
        "local_steps": 1,
        "stationary": 0.1,
        "split": 0.2,
    }
    found = explained(algorithm=algorithm)

    assert found.frame["took_s"].sum() > 0
    assert found.lines()[-1].startswith("no remedy was replayed: its events depend on learning")


def test_a_replay_that_is_not_the_run_says_so():
    """Records of another version, for instance: nothing is concluded from them."""
    run = fe.run(MAPPING)
    slower = fe.run(MAPPING, settings={"devices.speed.flop_per_s": 5e5})

    found = explained_run(slower, lambda: run.scenario)

    assert found.no_remedies.startswith("the run itself now takes 6.96 ms, not 9.12 ms as recorded; run it again")


def test_a_page_tells_the_path(tmp_path):
    """The same seconds and sentences in the report of the run."""
    run = fe.run(MAPPING)
    path = run_document(run, "")["path"]

    assert np.sum(path["kinds"]["took_s"]) == pytest.approx(3 * ROUND_S)
    start = "The critical path of the rounds consists of sending to the server 55%, computing 31%"
    assert path["words"][0].startswith(start)
    page = run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What decided when rounds ended" in page


@pytest.mark.usefixtures("cells_here")
def test_the_command_prints_it_and_knows_studies(tmp_path):
    """The lines of the explanation; the folder of a study is a mistake with its remedy."""
    run = fe.run(MAPPING, out=tmp_path / "run")
    fe.sweep(MAPPING, grid={"stop.rounds": [1]}, seeds=1, workers=1, out=tmp_path / "study")

    told = CliRunner().invoke(app, ["explain", str(tmp_path / "run")])
    assert told.stdout.splitlines() == run.explain().lines()
    assert "largest gain of a remedy" in told.stdout
    short = CliRunner().invoke(app, ["explain", str(tmp_path / "run"), "--no-replay"])
    assert "remedy" not in short.stdout
    wrong = CliRunner().invoke(app, ["explain", str(tmp_path / "study")])
    assert (wrong.exit_code, wrong.stderr.count("is the folder of a study, got no single run")) == (2, 1)


def test_it_says_what_waiting_cost_and_what_the_fixed_time_does() -> None:
    """Two boards of three wait half of a round at 2.7 W for the third, which a straggler law makes twice as slow.

    Its fixed time of 11.4 s is stretched, too: of two rounds 45.6 s are no training.
    """
    devices = {"devices.count": 3, "devices.profile": "pi-4b", "algorithm.cohort": 3, "stop.rounds": 2}
    slow = {"kind": "slow-window", "devices": [0], "factor": 2.0, "from_s": 0, "to_s": 1e6}
    settings = {**devices, "devices.speed": None, "devices.overhead_s": 11.4, "devices.straggler": slow}
    run = fe.run("quickstart", settings=settings, timing_only=True)
    waiting = re.compile(r"  and (\S+ \S?J), (\d+)%, by inactive devices")
    told = run.explain()

    [found] = filter(None, map(waiting.fullmatch, told.lines()))
    assert int(found[2]) == round(100 * run.summary["waiting_j"] / run.summary["energy_j"])
    assert any("no fixed time of a computation" in line and "sooner" in line for line in told.lines())
    assert any("devices that compute twice as fast" in line for line in told.lines())
    assert told.kinds.set_index("what").loc["fixed time", "took_s"] == pytest.approx(2 * 2 * 11.4)
    assert any(re.match(r"  fixed time per computation: 45.6 s, 99%, \S+ J", line) for line in told.lines())


def test_shares_and_rounds_of_an_explanation_are_counted_once():
    """Of 40 J in all 10 J are on the paths and 4 J waiting: 25 and 10 %. Two parts in each of 3 rounds: 3 rounds."""
    parts = pd.DataFrame(
        [
            (number, what, 5, 0.0, took_s, took_s, 10 / 6)
            for number in (1, 2, 3)
            for what, took_s in (("uplink", 2.0), ("compute", 1.0))
        ],
        columns=["round", "what", "device", "started_s", "ended_s", "took_s", "energy_j"],
    )
    lines = Explanation("it", parts, energy_j=40.0, waiting_j=4.0).lines()

    assert "  of 40 J in all, 25% were spent on these paths" in lines
    assert "  and 4 J, 10%, by inactive devices" in lines
    assert "  dev-5: 9 s, 100%, in 3 rounds: uplink 6 s, compute 3 s" in lines
