"""Building runs: scenes, mixtures, provenance."""

from __future__ import annotations

import json
import math
import subprocess
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fednet_emu as fe
from fednet_emu.analysis.scene import Scene
from fednet_emu.cli.app import app
from fednet_emu.devices.availability import Presence
from fednet_emu.devices.profiles import dealt
from fednet_emu.emulation import outlook
from fednet_emu.emulation.build import build, build_network, paths_of
from fednet_emu.emulation.hardware import hardware
from fednet_emu.emulation.load import load_scenario
from fednet_emu.emulation.outlook import Cost, Outlook, unreachable
from fednet_emu.emulation.play import tried
from fednet_emu.emulation.provenance import commit
from fednet_emu.emulation.record import scene
from fednet_emu.errors import FednetError
from fednet_emu.files.data_folder import checksum, locate, noting
from fednet_emu.kernel.clock import Clock
from fednet_emu.kernel.streams import Streams
from fednet_emu.records.ledger import Ledger
from fednet_emu.scenario.document import from_text
from fednet_emu.scenario.model import Scenario
from fednet_emu.study.file import StudyFile
from fednet_emu.testing import SMALL, run_small, small_scenario
from tests.emulation.test_profiles import MIXED, ended_of, of


def test_the_data_folder_may_be_a_string(tmp_path):
    """As it may be a path: whoever calls from a notebook should not have to know."""
    x, y = np.zeros((40, 3), np.float32), np.arange(40) % 2
    np.savez(tmp_path / "own.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    scenario = load_scenario("quickstart", ["data={kind: npz, path: own.npz}", "partition=iid"])

    assert build(scenario, data_dir=str(tmp_path)).task.data.x.shape == (40, 3)


def test_out_of_reach_is_judged_by_the_part_of_the_band_that_a_device_may_use():
    """At -20 dB over 20 MHz a device reaches -7.5 dB on a block of 180 kHz, 111 times less; a base station does not."""
    power_dbm = -20 - 174 + 10 * math.log10(20e6) + 40 * math.log10(100)
    terminal = f"{{tx_power_dbm: {power_dbm}, noise_figure_db: 0, height_m: 0}}"
    law = "{kind: log-distance, exponent: 4, reference_loss_db: 0}"
    channel = f"{{carrier_hz: 2e9, bandwidth_hz: 20e6, path_loss: {law}, device: {terminal}, base_station: {terminal}}}"
    place = "devices.placement={kind: list, xy_m: [[100, 0]]}"

    def told(*changes):
        weak = small_scenario("devices.count=1", "algorithm.cohort=1", place, f"channel={channel}", *changes)
        return [what for _, what in unreachable(Outlook(weak))]

    assert told() == told("network.uplink.access=full-reuse") == told("channel.narrowest_hz=2e6") == []
    assert len(told("channel.narrowing=off")) == 2
    (up, _) = told("channel.narrowest_hz=2e6", "channel.rate={kind: shannon, max_repetitions: 1}")
    assert "uplink, the best mean SNR is -20.0 dB, got a rate that needs -17.5 dB" in up


SGD = {"lr": 0.1, "local_steps": 1}
RUN_REFUSES = {
    "a model without adapters": {"algorithm": {"kind": "flora", "ranks": [2], **SGD}, "model": "softmax"},
    "a layer that the model lacks": {"algorithm": {"kind": "fedper", "personal_layers": ["nothing"], **SGD}},
    "a cut behind the last layer": {
        "algorithm": {"kind": "splitfed", "cut": 9, **SGD},
        "server.flop_per_s": 1e9,
        "evaluation.per_device": False,
    },
    "more labels than classes": {"partition": {"kind": "labels-per-device", "labels": 11}},
    "a class that is not there": {"attack": {"kind": "label-flip", "malicious": 2, "target": 10}},
    "a metric of another task": {"evaluation.metrics": ["rmse"]},
    "groups that the data lack": {"partition": "group"},
    "a speed that the server lacks": {
        "network.uplink.secure_aggregation": {"kind": "bonawitz", "prg_flop_per_entry": 2},
        "algorithm.weighting": "uniform",
    },
}


@pytest.mark.parametrize("case", RUN_REFUSES)
def test_check_refuses_what_a_run_refuses(case):
    """In the words of the run, although nothing but building it or its first round shows the mistake."""
    refusals = []
    for ask in (fe.check, fe.run):
        with pytest.raises(FednetError) as refused:
            ask("quickstart", settings=RUN_REFUSES[case])
        refusals.append(str(refused.value))

    assert refusals[0] == refusals[1]


def test_a_scenario_is_tried_only_where_that_takes_seconds(tmp_path, monkeypatch):
    """Not without its data, not for 30,000 devices; and a run that ends before its first round is no mistake."""
    monkeypatch.delenv("FEDNET_DATA", raising=False)

    assert tried(Outlook(load_scenario("mcmahan_2nn"), tmp_path)).startswith(f"{tmp_path}")
    assert tried(Outlook(load_scenario("quickstart", ["devices.count=30000"]))) == "it is large"
    assert tried(Outlook(load_scenario("quickstart", ["stop={simulated_s: 1.0e-6}"]))) == ""


RUN = ["--timing-only", "--no-plots", "--set", "stop.rounds=1"]
ONE_ROUND = {"stop.rounds": 1}
STUDY = "base: quickstart\ngrid: {algorithm.lr: [0.1]}\nseeds: 1\n"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """How often each file of settings has been opened, and each kind of work has been done, since the test began."""
    count = Counter[str]()

    def counting(owner: Any, name: str, what: Callable[..., str]) -> None:
        before = getattr(owner, name)

        def do(*args: Any, **options: Any) -> Any:
            count[what(*args, **options)] += 1
            return before(*args, **options)

        monkeypatch.setattr(owner, name, do)

    counting(Path, "open", lambda path, *_, **__: path.name)
    counting(Cost, "of", lambda *_: "cost")
    counting(outlook, "links_at_start", lambda *_: "links")
    for model in (Scenario, StudyFile):
        counting(model, "model_validate", lambda *_, name=model.__name__: f"validated {name}")
    monkeypatch.chdir(tmp_path)
    return count


def only(count: Counter[str]) -> dict[str, int]:
    """The counts of settings' files, those of the run's records aside, and of work."""
    named = {its: times for its, times in count.items() if its.endswith(".yaml") or its in ONCE or "validated" in its}
    named.pop("scenario.yaml", None)
    return named


ONCE = {
    "quickstart.yaml": 1,
    "urban-micro.yaml": 1,
    "cortex-m4.yaml": 1,
    "validated Scenario": 1,
    "cost": 1,
    "links": 1,
}


@pytest.mark.parametrize("command", [["run", "quickstart", *RUN, "--out", "out"], ["check", "quickstart"]])
def test_a_command_does_everything_once(command: list[str], counted: Counter[str]) -> None:
    """Two file reads for two files and a profile, one validation, one estimate of the cost, one look at the links."""
    told = CliRunner().invoke(app, command)

    assert told.exit_code == 0, told.output
    assert only(counted) == ONCE


def test_python_does_everything_once(counted: Counter[str]) -> None:
    """In `fe.run` as in the command."""
    fe.run("quickstart", settings=ONE_ROUND, timing_only=True)

    assert only(counted) == ONCE


def test_a_scenario_that_was_checked_is_not_validated_again(counted: Counter[str]) -> None:
    """It is valid from the moment that it exists; a changed one is validated as a whole."""
    scenario = fe.check("quickstart", settings=ONE_ROUND)
    counted.clear()

    fe.run(scenario, timing_only=True)
    assert only(counted) == {"cost": 1, "links": 1}
    fe.run(scenario, seed=3, timing_only=True)
    assert counted["validated Scenario"] == 1


def test_a_study_is_read_and_validated_once(counted: Counter[str], tmp_path: Path) -> None:
    """Its file and the files of its base are read once; its only run is one scenario, whose cost is asked twice."""
    (tmp_path / "mine.yaml").write_text(STUDY)
    counted.clear()

    told = CliRunner().invoke(app, ["check", "mine"])

    assert told.exit_code == 0, told.output
    assert only(counted) == {**ONCE, "mine.yaml": 1, "validated StudyFile": 1, "cost": 2}


OVER_TIME = ("x_m", "y_m", "cell", "snr_db", "uplink_bps", "downlink_bps")

MOBILE = [
    "devices.count=12",
    "devices.mobility={kind: random-direction, min_speed_m_s: 1, max_speed_m_s: 2, mean_leg_s: 10}",
]


def look(scenario, until_s):
    """The scene of a scenario whose network is built, but does not run."""
    streams, devices = Streams(scenario.seed), scenario.devices
    presence = Presence(devices.availability, streams.key("availability"), devices.count)
    paths = paths_of(scenario, streams, None)
    return scene(scenario, build_network(scenario, Clock(), Ledger(), streams, presence, paths), until_s)


def test_a_run_records_its_scene(tmp_path):
    """In memory and in a folder, it is what the network says without running, at the same instants."""
    walk = {"kind": "random-direction", "min_speed_m_s": 1, "max_speed_m_s": 2, "mean_leg_s": 10}
    changes = {"stop.rounds": 2, "network.cells": {"kind": "hexagonal", "rings": 1, "inter_site_distance_m": 200},
               "devices.mobility": walk,
               "channel.device.idle_w": 0.01}  # fmt: skip
    run = fe.run("quickstart", settings=changes, timing_only=True, out=tmp_path / "run")
    beside = fe.run("quickstart", settings=changes, timing_only=True)
    meant = look(run.scenario, run.simulated_s)

    for seen in (Scene.of(run), Scene.of(beside)):
        assert seen.x_m.shape == (41, 20)
        for name in ("times_s", *OVER_TIME, "stations_m", "speed_flop_per_s", "idle_w"):
            np.testing.assert_array_equal(getattr(seen, name), getattr(meant, name), err_msg=name)
    table = run.table("scene")
    assert table["device"].tolist() == [-1] * 7 + [*range(20)] * 41
    assert table["cell"][:7].tolist() == [*range(7)]


def test_a_still_network_is_seen_once():
    """Positions, speeds and rates are those of the emulation itself."""
    scenario = load_scenario("quickstart")
    seen, fed = look(scenario, 100.0), build(scenario, timing_only=True)

    assert seen.times_s.tolist() == [0.0]
    np.testing.assert_array_equal(np.stack([seen.x_m[0], seen.y_m[0]], axis=1), fed.network.positions_m())
    for link in ("uplink", "downlink"):
        alone = getattr(fed.network, f"expected_{link}_bps")
        assert getattr(seen, f"{link}_bps")[0].tolist() == pytest.approx([alone(i) for i in range(fed.n_devices)])
    assert seen.stations_m.tolist() == [[0.0, 0.0]]
    assert set(seen.cell[0].tolist()) == {0}


def test_who_receives_has_a_rate():
    """In fading a link carries something now and then, although not at its mean SNR; other rates are as they were."""
    weak = {"channel.base_station.tx_power_dbm": 20, "channel.device.tx_power_dbm": 10, "stop.rounds": 20}
    run = fe.run("quickstart", settings=weak | {"channel.bandwidth_hz": 20e6}, timing_only=True)
    heard = run.table("receptions").query("loss_reason == ''")["receiver"].unique()
    seen = Scene.of(run)
    narrowed = build(run.scenario, timing_only=True).network

    assert len(heard) > 10
    assert (seen.downlink_bps[0][heard] > 0).all()
    at_mean = np.array([narrowed.expected_downlink_bps(k) for k in heard])
    assert seen.downlink_bps[0][heard][at_mean > 0].tolist() == at_mean[at_mean > 0].tolist()


def test_moving_devices_are_where_the_run_has_them():
    """They move from the first instant to the last, no faster than the scenario allows."""
    seen = look(load_scenario("quickstart", MOBILE), 60.0)
    moved_m = np.hypot(np.diff(seen.x_m, axis=0), np.diff(seen.y_m, axis=0))

    assert seen.times_s[[0, -1]].tolist() == [0.0, 60.0]
    assert moved_m.max() <= 2.0 * seen.times_s[1] + 1e-9
    assert (moved_m.sum(axis=0) > 30.0).all()
    assert (seen.snr_db[0] != seen.snr_db[-1]).all()


def test_a_run_records_the_cells_that_the_scene_shows():
    """The cell of each uplink is the one in which the scene has its sender."""
    changes = ["network.cells={kind: hexagonal, rings: 1, inter_site_distance_m: 200}", "stop.rounds=2"]
    run = fe.run("quickstart", settings=changes, timing_only=True)
    sent = run.transfers[run.transfers["direction"] == "uplink"]

    assert (Scene.of(run).cell[0][sent["sender"]] == sent["cell"]).all()


def test_the_scene_says_who_is_there():
    """Vehicles that have left, or not come yet, are not there; a page shows nobody else on its map."""
    grid = str(Path(__file__).parents[1] / "devices/mobility/sumo_grid.fcd.xml")
    changes = {
        "devices.count": 4,
        "devices.mobility": {"kind": "sumo", "path": grid},
        "devices.availability": "from-mobility",
        "algorithm.cohort": 1,
        "stop": {"simulated_s": 40.0},
    }
    run = fe.run("quickstart", settings=changes, timing_only=True)
    seen = Scene.of(run)

    windows = [(0, 44), (0, 34), (5, 36), (10, 40)]
    expected = [[from_s <= at_s < to_s for from_s, to_s in windows] for at_s in seen.times_s]
    assert seen.times_s.tolist() == [*range(41)]
    assert seen.there.tolist() == expected


@pytest.mark.parametrize(
    ("shares", "count", "counts"),
    [
        ((1, 1), 5, (3, 2)),
        ((0.5, 0.3, 0.2), 7, (4, 2, 1)),
        ((2, 1), 3, (2, 1)),
        ((1, 1, 1), 2, (1, 1, 0)),
        ((9, 1), 4, (4, 0)),
    ],
)
def test_shares_are_dealt_by_largest_remainders(shares, count, counts):
    """Hamilton's method; of equal remainders the first gets it. Which devices it is, is drawn, and repeats."""
    profiles = [of("pi-4b").model_copy(update={"share": float(share)}) for share in shares]

    def deal(seed: int) -> bytes:
        return dealt(profiles, count, lambda: Streams(seed)("profile"))

    assert tuple(deal(0).count(number) for number in range(len(shares))) == counts
    assert deal(0) == deal(0)
    assert len({dealt(profiles, 40, lambda seed=seed: Streams(seed)("profile")) for seed in range(5)}) == 5


def test_each_device_of_a_mixture_has_the_speed_and_the_powers_of_its_own_profile():
    """Of four devices two are boards, which take 11.4 s longer, and draw other powers in each state."""
    starts = "compute: {overhead_s: 11.4}, evidence: {overhead_s: measured}"
    mixed = f"devices.profile=[{{include: pi-4b, share: 0.5, {starts}}}, {{include: phone-2019-mid, share: 0.5}}]"
    scenario = small_scenario(mixed, "devices.speed=null", "stop.rounds=1", "network.downlink.mode=unicast")
    which = hardware(scenario, Streams(scenario.seed)).which
    ended = ended_of(scenario)
    frames, summary = ended.ledger.frames(), ended.summary
    made, sent = frames["computes"].set_index("device"), frames["transfers"]
    up, down = sent[sent["sender"] >= 0].set_index("sender"), sent[sent["sender"] < 0].set_index("receiver")

    assert sorted(which) == [0, 0, 1, 1]
    for device, number in enumerate(which):
        board = number == 0
        due_s = 11.4 + 720 / 1.389e10 if board else 720 / 1.7563e9
        took_s = made.loc[device, "ended_s"] - made.loc[device, "started_s"]
        assert took_s == pytest.approx(due_s, abs=2e-9)
        assert made.loc[device, "energy_j"] == pytest.approx((2.4 if board else 2.9) * took_s, rel=1e-9)
        assert up.loc[device, "energy_j"] == pytest.approx((2.1 if board else 1.74) * 320e-6, rel=1e-9)
        assert down.loc[device, "rx_energy_j"] == pytest.approx((0.0 if board else 0.54) * 320e-6, rel=1e-9)
    assert summary["idle_j"] == pytest.approx((2 * 2.7 + 2 * 0.1) * summary["simulated_s"], rel=1e-12)
    assert summary["verified"]


def test_batteries_of_a_mixture_draw_the_powers_of_each_device():
    """Whatever a device draws without a battery, its battery gives, to the last joule that the records know."""
    plain, powered = (
        run_small(MIXED, "devices.speed=null", "stop.rounds=1", *more)
        for more in ((), ("devices.battery={capacity_j: 1000}",))
    )
    last = powered.ledger.frame("batteries").groupby("device").last()
    drawn_j = last[["computing_j", "sending_j", "receiving_j", "idle_j"]].to_numpy().sum()
    stations = plain.ledger.transfers.column("sender") < 0

    spent_j = plain.ledger.spent_j(plain.clock.now) - plain.ledger.transfers.column("energy_j")[stations].sum()
    assert drawn_j == pytest.approx(spent_j, rel=1e-9)
    assert len(set(last["idle_j"].round(6))) == 2


def test_a_million_devices_cost_a_byte_each():
    """What profiles say is kept once per profile, with a byte for each device."""
    scenario = small_scenario(MIXED, "devices.count=1000000", "devices.speed=null")
    hard = hardware(scenario, Streams(0))

    assert len(hard.which) == 10**6
    assert hard.powers.idle_w.values == (2.7, 0.1)
    assert hard.powers.idle_w.total == pytest.approx(500_000 * 2.8)


MAPPING = from_text(SMALL, "small").data
ROOT = Path(__file__).parents[2]


class Pause(fe.Algorithm):
    """An algorithm that is none of the package's."""

    def run(self, fed: fe.Federation) -> fe.Process:
        fed.initial_model()
        yield fed.clock.sleep(1.0)


def manifest(folder):
    """What the run in a folder says of itself."""
    return json.loads((folder / "manifest.json").read_text())


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 2)), np.arange(40) % 2
    np.savez(tmp_path / "own.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    return tmp_path


def test_data_files_are_in_the_manifest_with_their_checksums(data):
    """By the name that the scenario has for them; other content, other checksum; embedded data need none."""
    own = {**MAPPING, "data": {"kind": "npz", "path": "own.npz"}, "model": "softmax"}
    fe.run(own, data_dir=data, out=data / "run")
    fe.run(MAPPING, out=data / "embedded")

    whole = blake2b((data / "own.npz").read_bytes(), digest_size=16).hexdigest()
    assert manifest(data / "run")["data"] == {"own.npz": whole}
    assert manifest(data / "embedded")["data"] == {}


def test_a_folder_has_the_checksum_of_all_that_is_in_it(tmp_path):
    """Names and contents count, the order in which files were made does not."""
    for folder, names in (("a", "xy"), ("b", "yx"), ("c", "xz")):
        (tmp_path / folder / "inner").mkdir(parents=True)
        for name in names:
            (tmp_path / folder / "inner" / name).write_text("same", encoding="utf-8")

    assert checksum(tmp_path / "a") == checksum(tmp_path / "b") != checksum(tmp_path / "c")


def test_only_what_is_read_inside_is_noted(tmp_path):
    """Two notings inside each other do not mix."""
    for name in "ab":
        (tmp_path / name).write_text(name, encoding="utf-8")
    with noting() as outer:
        locate("a", tmp_path)
        with noting() as inner:
            locate("b", tmp_path)
    locate("a", tmp_path)

    assert (set(outer), set(inner)) == ({"a"}, {"b"})


def test_plug_ins_are_in_the_manifest(tmp_path):
    """A class outside of the package is named, with its package and version or the checksum of its file."""
    fe.run(MAPPING, algorithm=Pause(), out=tmp_path / "run")
    fe.run(MAPPING, out=tmp_path / "other")

    (told,) = manifest(tmp_path / "run")["plugins"].items()
    assert told[0] == f"{Pause.__module__}:Pause"
    assert told[1] == f"file {checksum(Path(__file__))}"
    assert manifest(tmp_path / "other")["plugins"] == {}


def test_version_and_commit_are_in_the_manifest(tmp_path):
    """In a checkout the commit is that of the source, marked where files differ from it."""
    commit.cache_clear()  # which is asked for once in a process
    fe.run(MAPPING, out=tmp_path / "run")
    told = manifest(tmp_path / "run")["fednet_emu"]

    assert told["version"] == fe.__version__
    assert told["commit"] == commit()
    if (ROOT / ".git").exists():
        head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        assert str(told["commit"]).startswith(head.stdout.strip())
