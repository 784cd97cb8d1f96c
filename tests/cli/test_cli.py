"""The commands of one run: check, run, plot, report and trace."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

import fednet_emu as fe
from fednet_emu.cli.options import device_numbers
from fednet_emu.draw.trace import feed
from fednet_emu.errors import FednetError
from fednet_emu.screen import progress
from fednet_emu.screen.progress import Bar
from tests.commands import LIMIT_S, Forked, fednet

QUICK = ["--set", "stop.rounds=2", "--set", "algorithm.cohort=3", "--no-plots"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short finished run; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("run") / "finished"
    assert fednet("run", "quickstart", "--out", str(folder), *QUICK).exit_code == 0
    return folder


def test_run_leaves_summary_tables_and_figures(tmp_path: Path) -> None:
    """A run folder holds the resolved scenario, the summary, every table as Parquet, and figures as PNG.

    The last thing a run prints is a table with time, bits, energy, accuracy and the run folder.
    """
    folder = tmp_path / "run"

    result = fednet("run", "quickstart", "--out", str(folder), *QUICK[:-1])

    assert result.exit_code == 0, result.output
    assert all(word in result.output for word in ("simulated time", "uplink", "energy", "accuracy", str(folder)))
    summary = json.loads((folder / "summary.json").read_text())
    asked = {"simulated_s", "host_s", "rounds", "uplink_bit", "downlink_bit", "energy_j", "accuracy", "event_digest"}
    assert asked <= set(summary)
    assert summary["rounds"] == 2
    assert summary["verified"] is True
    assert len(pd.read_parquet(folder / "transfers.parquet")) == 2 * (1 + 3)
    assert {"timeline.png", "loss-time.png", "accuracy-time.png"} <= {
        path.name for path in (folder / "figures").iterdir()
    }


def test_profile_says_where_the_time_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --profile the parts are printed, and together they are all of the host time but the last few looks.

    One second passes between two looks at the clock.
    """
    seconds = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
    folder = tmp_path / "run"
    result = fednet("run", "quickstart", "--out", str(folder), "--profile", "--quiet", *QUICK)
    summary = json.loads((folder / "summary.json").read_text())
    parts = {part: spent["host_s"] for part, spent in summary["host_parts"].items()}

    assert result.exit_code == 0
    assert all(part in result.output for part in parts)
    assert {"building", "training", "clock and medium", "evaluation", "records"} <= set(parts)
    assert summary["host_s"] > 20
    assert sum(parts.values()) == pytest.approx(summary["host_s"], abs=3.0)


def test_quiet_prints_nothing(finished: Path, tmp_path: Path) -> None:
    """--quiet is for scripts: the run folder, here one in place of another with --force, is the only result."""
    folder = shutil.copytree(finished, tmp_path / "run")
    result = fednet("run", "quickstart", "--out", str(folder), "--quiet", "--force", *QUICK, "--seed", "5")

    assert (result.exit_code, result.output) == (0, "")
    assert json.loads((folder / "summary.json").read_text())["seed"] == 5


def test_default_folder_is_named_by_scenario_and_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --out a run goes to results/NAME/seed-N of the working folder."""
    monkeypatch.chdir(tmp_path)

    fednet("run", "quickstart", "--seed", "7", *QUICK)

    assert json.loads((tmp_path / "results/quickstart/seed-7/summary.json").read_text())["seed"] == 7


def test_finished_run_is_not_overwritten(finished: Path) -> None:
    """A finished run stays as it is unless --force is given."""
    before = (finished / "summary.json").read_bytes()

    refused = fednet("run", "quickstart", "--out", str(finished), *QUICK)

    assert refused.exit_code == 2
    assert "holds a finished run, with the same settings; pass --force to replace it" in refused.stderr
    assert (finished / "summary.json").read_bytes() == before


def test_all_problems_of_a_scenario_at_once(tmp_path: Path) -> None:
    """Misspelt key, wrong type and out of range come together, each with file and line, and nothing is written."""
    text = (Path(__file__).parents[2] / "scenarios/quickstart.yaml").read_text()
    scenario = tmp_path / "wrong.yaml"
    scenario.write_text(
        text.replace("cohort: 10", "cohrt: 10").replace("lr: 0.1", "lr: loud").replace("rounds: 60", "rounds: -1")
    )

    result = fednet("run", str(scenario), "--out", str(tmp_path / "run"))

    assert result.exit_code == 2
    assert "3 problems in the scenario" in result.stderr
    assert "wrong.yaml:33  algorithm.cohrt: no such setting; did you mean 'cohort'?" in result.stderr
    assert "algorithm.lr: expected a number, got 'loud'" in result.stderr
    assert "stop.rounds: must be > 0, got -1" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("algorithm.cohort=21", "algorithm.cohort: invites more devices than there are, got 21; must be at most"),
        (
            "channel.rate={kind: fixed, bit_rate_bps: 1e6, threshold_db: 200}",
            "channel.rate: no device can reach it on the",
        ),
        (
            "devices.straggler={kind: slow-window, devices: [20], factor: 2, from_s: 0, to_s: 1}",
            "no such devices, got [20]",
        ),
        ("algorithm.local_steps=3", "exactly one of local_epochs and local_steps is needed, got"),
        ("stop={}", "nothing ends the run"),
        ("model=rnn", "no such kind of model"),
        ("devices.count=true", "devices.count: expected"),
    ],
)
def test_contradictory_settings_are_refused(tmp_path: Path, change: str, told: str) -> None:
    """Settings that cannot be together end with exit code 2, a sentence, and no run folder."""
    result = fednet("run", "quickstart", "--out", str(tmp_path / "run"), "--set", change)

    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert not (tmp_path / "run").exists()


def test_missing_data_names_path_and_remedy(tmp_path: Path) -> None:
    """A data set that is not there is an error with the path, and no run folder is left behind."""
    result = fednet(
        "run", "quickstart", "--set", "data=mnist", "--data-dir", str(tmp_path), "--out", str(tmp_path / "run")
    )

    assert result.exit_code == 2
    assert "train-images-idx3-ubyte.gz" in result.stderr
    assert "data.download=true" in result.stderr
    assert not (tmp_path / "run").exists()


def test_diverging_training_names_device_round_and_lr(tmp_path: Path) -> None:
    """A model that yields NaN stops the run at once, as diverged in words, table and summary; no target is reached."""
    folder = tmp_path / "run"

    result = fednet("run", "quickstart", "--out", str(folder), *QUICK, "--set", "algorithm.lr=1e30")

    assert result.exit_code == 2
    assert "round 1: training diverges" in result.stderr
    assert "lr=1e+30" in result.stderr
    assert "diverged" in result.stdout
    assert json.loads((folder / "manifest.json").read_text())["status"] == "diverged"
    assert len(pd.read_parquet(folder / "evaluations.parquet")) == 1


def test_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    """Ctrl-C ends with exit code 130, a status that says so, and readable tables."""
    folder = tmp_path / "run"
    endless = ("--set", "stop.rounds=100000000", "--set", "training.checkpoint_s=0.1")
    process = Forked("-m", "fednet_emu", "run", "quickstart", "--out", folder, *endless)
    deadline = time.monotonic() + LIMIT_S
    while (
        not list(folder.glob("learning/*/*.snapshot")) and time.monotonic() < deadline
    ):  # it is in the middle of the run
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.ended()

    assert process.returncode == 130, process.stderr
    assert "the records so far are in" in process.stderr
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert summary["verified"] is True
    assert len(pd.read_parquet(folder / "rounds.parquet")) == summary["rounds"]


def test_bug_ends_with_a_replay_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception keeps its traceback, ends with exit code 1, and says how to repeat it."""
    monkeypatch.setattr("fednet_emu.emulation.play.build", lambda *_args, **_more: 1 / 0)
    monkeypatch.setattr(sys, "argv", ["fednet", "run", "quickstart"])

    result = fednet("run", "quickstart", "--out", str(tmp_path / "run"))

    assert result.exit_code == 1
    assert "ZeroDivisionError" in result.stderr
    assert "replay: fednet run quickstart" in result.stderr


def test_timing_only_has_the_same_events_and_no_accuracy(finished: Path, tmp_path: Path) -> None:
    """--timing-only measures time, bits and energy exactly as with training."""
    folder = tmp_path / "timing"

    fednet("run", "quickstart", "--out", str(folder), "--timing-only", *QUICK)

    trained, timed = (json.loads((path / "summary.json").read_text()) for path in (finished, folder))
    same = ("event_digest", "simulated_s", "uplink_bit", "downlink_bit", "energy_j", "rounds")
    assert [timed[key] for key in same] == [trained[key] for key in same]
    assert timed["accuracy"] is None


def test_an_approximate_timing_only_run_says_so(tmp_path: Path) -> None:
    """A target accuracy cannot end a run that learns nothing: the command says so on stderr, and only then."""
    target = ("--set", "stop.accuracy=0.9", *QUICK)
    told = [
        fednet("run", "quickstart", "--out", str(tmp_path / f"{number}"), *settings).stderr
        for number, settings in enumerate([("--timing-only", *target), ("--timing-only", *QUICK), target])
    ]

    assert ["is an approximation" in text for text in told] == [True, False, False]


def test_check_prints_a_scenario_that_runs_the_same(finished: Path, tmp_path: Path) -> None:
    """The output of `fednet check` is a scenario file with every default, and gives the same events."""
    result = fednet("check", "quickstart", *QUICK[:-1])
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(result.stdout)

    fednet("run", str(resolved), "--out", str(tmp_path / "again"), "--no-plots")

    digests = [
        json.loads((path / "summary.json").read_text())["event_digest"] for path in (finished, tmp_path / "again")
    ]
    assert "noise_figure_db: 9.0" in result.stdout
    assert digests[0] == digests[1]


def test_plot_overlays_runs(finished: Path, tmp_path: Path) -> None:
    """`fednet plot A B` draws each figure once, for all runs, and names the files."""
    result = fednet(
        "plot", str(finished), str(finished), "--out", str(tmp_path / "figures"), "--label", "A", "--label", "B"
    )

    assert result.exit_code == 0, result.output
    assert str(tmp_path / "figures" / "accuracy-time.png") in result.stdout


def test_plot_animates_a_learned_graph(tmp_path: Path) -> None:
    """`fednet plot RUN --animate` also writes the weights of a learned graph as a GIF."""
    folder = tmp_path / "run"
    changes = ("--set", "stop.rounds=3", "--set", "algorithm.record_every=1")
    assert fednet("run", "clustered_toy", *changes, "--out", str(folder), "--quiet", "--no-plots").exit_code == 0

    result = fednet("plot", str(folder), "--animate")

    assert result.exit_code == 0, result.output
    assert (folder / "figures" / "weights.gif").read_bytes().startswith(b"GIF")


def test_plot_data_shows_who_has_what_without_a_run(tmp_path: Path) -> None:
    """Of a scenario with changes, or of a run folder, beside whose figures it then is; with tables if asked for."""
    scenario = fednet("plot", "--data", "quickstart", "--set", "devices.count=30", "--out", str(tmp_path), "--csv")
    run = fednet("run", "quickstart", "--timing-only", "--out", str(tmp_path / "run"), "--no-plots", "--quiet")
    folder = fednet("plot", "--data", str(tmp_path / "run"), "--format", "svg", "--latex", "--title", "Who has what")

    assert (scenario.exit_code, run.exit_code, folder.exit_code) == (0, 0, 0)
    names = [f"{name}.{ending}" for name in ("data", "data-test") for ending in ("png", "csv")]
    assert scenario.stdout.split() == [str(tmp_path / name) for name in names]
    table = (tmp_path / "data.csv").read_text().splitlines()
    assert table[0] == "part,device,label,samples"
    assert {row.split(",")[1] for row in table[1:]} == set(map(str, range(30)))
    assert (tmp_path / "run" / "figures" / "data.tex").is_file()
    assert "Who has what" in (tmp_path / "run" / "figures" / "data.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--data", "quickstart", "deadline"), "--data: shows the data of one run or scenario, got 2; give one"),
        (("--data", "quickstart", "--sort", "busy"), "--data: draws no run, got options that only runs have"),
        (("quickstart", "--set", "seed=2"), "--seed and --set are for --data, got runs that have ended"),
        (("--data", "quickstat"), "no such scenario, got 'quickstat'; did you mean 'quickstart'?"),
    ],
)
def test_plot_data_refuses_what_it_cannot_show(arguments: tuple[str, ...], told: str) -> None:
    """Exit code 2, with what would do."""
    result = fednet("plot", *arguments)

    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_schema_accepts_the_scenarios() -> None:
    """`fednet schema` prints a JSON schema whose properties are the sections of a scenario."""
    schema = json.loads(fednet("schema").stdout)

    assert {"devices", "channel", "algorithm", "stop"} <= set(json.dumps(schema).replace('"', " ").split())


def test_usage_error_is_exit_code_2() -> None:
    """A wrong option is the user's mistake."""
    assert fednet("run").exit_code == 2
    assert fednet("run", "quickstart", "--engine", "warp").exit_code == 2


def test_a_misspelt_command_is_asked_about_once() -> None:
    """Whichever of the libraries has the suggestion."""
    assert fednet("rum", "quickstart").stderr.count("Did you mean") == 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("--format", "jpg"), "--format: no such picture format, got 'jpg'"),
        (("--size", "huge"), "--size: no such width of a figure, got 'huge'"),
        (("--from", "5", "--until", "4"), "--until: must be after the begin at 5 s"),
        (("--sort", "name"), "--sort: no such order of devices"),
        (("--devices", "99"), "--devices: no such device, got 99"),
        (("--label", "a", "--label", "b"), "--label: one per run is needed, got 2 for 1 runs"),
    ],
)
def test_mistakes_about_figures_name_the_option(finished: Path, wrong: tuple[str, ...], told: str) -> None:
    """And not the argument that a caller from Python would have given."""
    assert fednet("plot", finished, *wrong).stderr.startswith(told)


def test_profiles_are_listed_with_how_well_their_numbers_are_known() -> None:
    """`fednet profiles` has a line for each device: no mark behind what was measured, `a` behind what is assumed."""
    result = fednet("profiles", "pi-4b", "phone-2019-mid")

    assert result.exit_code == 0, result.output
    head, board, phone, _, legend = result.stdout.splitlines()
    assert board.split()[:7] == ["pi-4b", "1.39e+10", "FLOP/s", "-", "5.1", "W", "2.7"]
    assert "3 W a" in phone
    assert [phone[head.index(name) :].split("  ")[0] for name in ("sending", "at", "amplifier", "memory")] == [
        *("1.84 W a", "23 dBm a", "0.35 a", "4e+09 B r")
    ]
    assert "a assumed; - not known" in legend
    assert fednet("profiles", "pi-4c").exit_code == 2


def test_radios_and_stations_are_listed_in_tables_of_their_own() -> None:
    """Devices first, then radios, then base stations, whatever the order of the names."""
    lines = fednet("profiles", "earth-macro", "phone-lte-2020", "pi-4b").stdout.splitlines()

    assert [line.split()[0] for line in lines if line][:6] == [
        *("device", "pi-4b", "radio", "phone-lte-2020", "station", "earth-macro")
    ]
    assert lines[4].split()[1:10] == ["-", "-", "-", "0.54", "W", "0.36", "W", "7.95e-08", "J"]
    assert lines[7].split()[1:7] == ["50.8", "dBm", "r", "0.213", "r", "780"]


def test_a_check_says_what_is_not_known_of_the_devices() -> None:
    """Without a profile the energy of computing is not counted; with one, its weakest evidence is named."""
    plain = fednet("check", "fashion_mnist")
    board = fednet("check", "quickstart")

    assert "note: the energy of computing is not counted" in plain.stderr
    assert "the weakest evidence is 'assumed' (flop_per_s)" in board.stderr


def test_channels_are_listed_with_their_rates(tmp_path: Path) -> None:
    """`fednet channels` names each environment with its median rates, and draws them when asked."""
    result = fednet("channels", "ideal", "urban-micro", "--out", str(tmp_path))

    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1].split()[:6] == ["ideal", "3.5", "GHz", "20", "MHz", "1"]
    assert (tmp_path / "rate-distance.png").exists()
    assert fednet("channels", "urban-mikro").exit_code == 2


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of three rounds without training."""
    folder = tmp_path_factory.mktemp("timed") / "run"
    fe.run("quickstart", settings={"stop.rounds": 3}, out=folder, timing_only=True)
    return folder


def test_the_page_is_in_the_run_folder_unless_said_otherwise(timed: Path, tmp_path: Path) -> None:
    """The path is all that is printed; --out may name a folder that does not exist yet."""
    result = fednet("report", str(timed))
    elsewhere = fednet("report", str(timed), "--out", str(tmp_path / "new" / "page.html"))

    assert (result.exit_code, elsewhere.exit_code) == (0, 0)
    assert result.stdout == f"{timed / 'report.html'}\n"
    page = (timed / "report.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    assert "title: 'Quickstart: FedAvg on handwritten digits over a TDMA uplink'" in page


def test_a_run_can_be_made_again_over_its_page(timed: Path) -> None:
    """The page is nobody's table: reading the run, and running it again, do not mind it."""
    (timed / "report.html").touch()

    again = fe.run("quickstart", settings={"stop.rounds": 3}, out=timed, timing_only=True, force=True)

    assert again.verdict == "all records consistent"


def test_what_is_no_run_is_a_mistake(timed: Path, tmp_path: Path) -> None:
    """One sentence, and exit code 2."""
    nothing = fednet("report", str(tmp_path))
    nowhere = fednet("report", str(timed), "--out", str(timed / "rounds.parquet" / "page.html"))

    assert (nothing.exit_code, nowhere.exit_code) == (2, 2)
    assert "summary.json" in nothing.stderr
    assert "cannot be made" in nowhere.stderr


def test_a_run_of_an_older_version_has_a_page_without_a_map(tmp_path: Path) -> None:
    """What it has not recorded is left out with a sentence, and the rest of the page is made all the same."""
    folder = tmp_path / "run"
    fe.run("quickstart", settings={"stop.rounds": 1}, out=folder, timing_only=True)
    for name in ("scene.parquet", "data_split.parquet", "manifest.json"):
        (folder / name).unlink()

    result = fednet("report", str(folder))

    assert result.exit_code == 0, result.output
    told = (folder / "report.html").read_text(encoding="utf-8").split('"missing":')[1:]
    assert [text[:32] for text in told] == ['"The run has not recorded it, wi'] * 2


def test_the_trace_is_in_the_run_folder_unless_said_otherwise(timed: Path, tmp_path: Path) -> None:
    """The path is all that is printed; --out may name a folder that does not exist yet."""
    result = fednet("trace", str(timed))
    elsewhere = fednet("trace", str(timed), "--out", str(tmp_path / "new" / "t.pftrace"), "--quiet")

    assert (result.exit_code, elsewhere.exit_code) == (0, 0)
    assert result.stdout == f"{timed / 'run.pftrace'}\n"
    assert (timed / "run.pftrace").read_bytes() == (tmp_path / "new" / "t.pftrace").read_bytes()


def test_from_until_and_devices_make_it_smaller(timed: Path, tmp_path: Path) -> None:
    """Only the devices that were asked for have tracks, and no counter is outside of the window."""
    path = tmp_path / "t.pftrace"

    result = fednet("trace", str(timed), "--out", str(path), "--from", "0.5", "--until", "1.0", "--devices", "1,7-9")

    assert result.exit_code == 0, result.output
    packets = Trace.FromString(path.read_bytes()).packet
    named = {packet.track_descriptor.name for packet in packets if packet.track_descriptor.name.startswith("dev-")}
    counted = [packet.timestamp for packet in packets if packet.track_event.HasField("double_counter_value")]
    assert named
    assert named <= {"dev-1", "dev-7", "dev-8", "dev-9"}
    assert 5e8 <= min(counted) <= max(counted) <= 1e9


def test_mistakes_end_with_exit_code_2(timed: Path, tmp_path: Path) -> None:
    """What is not a run, a window without devices or time, a list that is none, and a place that cannot be written."""
    (tmp_path / "file").write_text("in the way")
    run, nowhere = str(timed), str(tmp_path / "file" / "t.pftrace")

    wrong = {
        "no such run folder": fednet("trace", str(tmp_path / "none")),
        "no such device, got 99": fednet("trace", run, "--devices", "99"),
        "expected numbers and ranges, got '1,x'": fednet("trace", run, "--devices", "1,x"),
        "must be after the begin at 2 s, got 1 s": fednet("trace", run, "--from", "2", "--until", "1"),
        "choose another --out": fednet("trace", run, "--out", nowhere),
    }

    for problem, result in wrong.items():
        assert result.exit_code == 2, problem
        assert problem in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.usefixtures("cells_here")
def test_a_study_has_no_single_trace(tmp_path: Path) -> None:
    """For the folder of a study it is said that a run is needed."""
    settings = {"stop.rounds": 1}
    fe.sweep(
        "quickstart",
        grid={"network.uplink.access": ["tdma"]},
        seeds=1,
        settings=settings,
        out=tmp_path / "study",
        timing_only=True,
    )

    result = fednet("trace", str(tmp_path / "study"))

    assert result.exit_code == 2
    assert "is the folder of a study, got no single run; give the folder of one of its runs" in result.stderr


def test_progress_is_shown(timed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated time and slices grow with the parts that are read, up to the end of the run."""
    shown: list[tuple[str, float]] = []

    recorder = Bar(0.0, lambda text, part, _: shown.append((text, part)))
    monkeypatch.setattr(feed, "PART_ROWS", 10)
    monkeypatch.setattr(progress, "bar", lambda _progress: nullcontext(recorder))
    fe.Run.opened(timed).trace(tmp_path / "t.pftrace")

    parts = [part for _, part in shown]
    assert len(shown) > 5
    assert parts == sorted(parts)
    assert parts[-1] == pytest.approx(1.0)
    assert all(text.startswith("t = ") and text.endswith(" slices") for text, _ in shown)


@pytest.mark.parametrize(("text", "numbers"), [("7", [7]), ("0,3, 5-7", [0, 3, 5, 6, 7]), ("4-4", [4])])
def test_lists_of_devices(text: str, numbers: list[int]) -> None:
    """Numbers and ranges, both ends included, spaces allowed."""
    assert device_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1-", "-3", "1-2-3", "1.5", "9-3"])
def test_what_is_no_list_of_devices(text: str) -> None:
    """The sentence says what was given and how it should look."""
    with pytest.raises(FednetError, match=r"--devices: .* got '.*'; "):
        device_numbers(text)
