"""The commands about studies: what they print, how they end, and that nothing is lost when they are killed."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pandas as pd
import pytest

from fednet_emu.testing import SMALL
from tests.commands import Forked, fednet

KILL_AFTER_TWO_CELLS = """
import os, signal, sys
from fednet_emu.cli import main
from fednet_emu.results import running
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell has processes in the background ignore
sweep, number = running.run_sweep, int(sys.argv.pop())
def sweep_and_die(*args, on_event, **more):
    def told(progress):
        on_event(progress)
        if len(progress.done) == 2:
            os.kill(os.getpid(), number)
    return sweep(*args, on_event=told, **more)
running.run_sweep = sweep_and_die
main()
"""
STUDY = """
base: small
set: {stop.rounds: 4, model: softmax, algorithm.batch_size: 20, algorithm.local_steps: 10, algorithm.lr: 0.5}
grid:
  access: {tdma: {network.uplink.access: tdma}, ofdma: {network.uplink.access: ofdma}}
seeds: 3
target: {accuracy: 0.3}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    base = SMALL.replace("data: {kind: synthetic-regression, n_samples: 80, n_test: 40, features: 9}", "data: digits")
    (folder / "small.yaml").write_text(base, encoding="utf-8")
    (folder / "access.yaml").write_text(STUDY, encoding="utf-8")
    return folder / "access.yaml"


@pytest.fixture(scope="module")
def swept(study: Path, tmp_path_factory: pytest.TempPathFactory, cells_here: None) -> Path:
    """The folder of the study after an undisturbed sweep."""
    out = tmp_path_factory.mktemp("swept") / "out"
    result = fednet("sweep", str(study), "--out", str(out), "--workers", "2")
    assert result.exit_code == 0, result.output
    assert f"6 of 6 runs done; tables in {out}" in result.stdout
    assert f"report: {out}/report.html" in result.stdout
    assert re.search(r"5 of 6 done, [01] running, 0 failed, about", result.stderr)  # the last may be about to start
    return out


def tables(out: Path) -> list[bytes]:
    """The two tables of a study, to the byte."""
    return [(out / name).read_bytes() for name in ("study.parquet", "runs.parquet")]


def test_check_says_what_a_study_would_run(study: Path) -> None:
    """`fednet check STUDY` prints it as a study file with every default, and its runs as a comment."""
    result = fednet("check", str(study))
    again = study.with_name("again.yaml")
    again.write_text(result.stdout, encoding="utf-8")

    assert result.exit_code == 0, result.output
    assert "gpus: 0.0" in result.stdout
    assert result.stdout.endswith("# 6 runs, 2 access x 3 seeds: all possible\n")
    assert fednet("check", str(again)).stdout == result.stdout


def test_check_of_a_study_tells_all_problems_of_its_cells(study: Path) -> None:
    """A wrong setting and a misspelt key of a study are mistakes with their lines, before anything runs."""
    broken = study.with_name("broken.yaml")
    broken.write_text(STUDY.replace("algorithm.lr: 0.5", "algorithm.lrr: 0.5"), encoding="utf-8")
    misspelt = study.with_name("misspelt.yaml")
    misspelt.write_text(STUDY.replace("seeds: 3", "sedes: 3"), encoding="utf-8")

    for path, what in ((broken, ":3  algorithm.lrr: no such setting"), (misspelt, ":6  sedes: no such setting")):
        result = fednet("check", str(path))
        assert result.exit_code == 2
        assert what in result.stderr
    assert fednet("check", "quickstart_access", "--set", "stop.rounds=3").exit_code == 0


def test_schema_of_studies() -> None:
    """`fednet schema --study` prints the keys of a study file."""
    keys = json.loads(fednet("schema", "--study").stdout)["properties"]

    assert list(keys) == ["title", "base", "set", "grid", "search", "seeds", "target", "limits", "minutes", "figures"]


def done(out: Path) -> dict[Path, int]:
    manifests = (out / "runs").glob("*/manifest.json")
    return {path: path.stat().st_mtime_ns for path in manifests if json.loads(path.read_text())["status"] == "done"}


@pytest.mark.slow
@pytest.mark.usefixtures("cells_here")
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_sweep_goes_on(study: Path, swept: Path, tmp_path: Path, kill: signal.Signals) -> None:
    """However a sweep dies, the same command runs only what is missing; the tables are as if it had not."""
    out = tmp_path / "out"
    command = ("sweep", study, "--out", out, "--workers", "1", "--no-plots", int(kill))
    process = Forked("-c", KILL_AFTER_TWO_CELLS, *command).ended()
    before = done(out)
    assert 2 <= len(before) < 6
    assert process.returncode == (130 if kill != signal.SIGKILL else -signal.SIGKILL)

    again = fednet("sweep", str(study), "--out", str(out), "--quiet")

    assert (again.exit_code, again.output) == (0, "")
    assert before.items() <= done(out).items()
    assert tables(out) == tables(swept)


@pytest.mark.usefixtures("cells_here")
def test_failed_cells_end_with_exit_code_1(study: Path, tmp_path: Path) -> None:
    """Each failure is told with its reason and the command that replays it; the replay fails in the same way."""
    impossible = ["--set", "model={kind: module, path: 'nowhere:Net'}"]
    result = fednet("sweep", str(study), "--out", str(tmp_path / "out"), *impossible)

    assert result.exit_code == 1
    assert "failed: access=tdma, seed=0: " in result.stderr
    assert "importing nowhere failed" in result.stderr
    replay = next(line for line in result.stderr.splitlines() if "replay: fednet run" in line)
    assert "--set 'model={" in replay
    assert "--seed 0" in replay


def test_a_wrong_study_is_a_mistake(study: Path, tmp_path: Path) -> None:
    """Exit code 2, and nothing is made."""
    wrong = study.with_name("wrong.yaml")
    wrong.write_text(STUDY.replace("network.uplink.access: ofdma", "network.uplink.acces: ofdma"), encoding="utf-8")

    result = fednet("sweep", str(wrong), "--out", str(tmp_path / "out"))

    assert result.exit_code == 2
    assert "wrong.yaml:5  network.uplink.acces: no such setting; did you mean 'access'?" in result.stderr
    assert not (tmp_path / "out").exists()
    assert "no such study, got 'quickstart_acess'; did you mean 'quickstart_access'?" in (
        fednet("sweep", "quickstart_acess").stderr
    )


@pytest.mark.usefixtures("cells_here")
def test_one_cell_is_one_cell(study: Path, tmp_path: Path) -> None:
    """What is one is not told as many."""
    lone = study.with_name("lone.yaml")
    lone.write_text("base: small\ngrid: {algorithm.lr: [0.1]}\nseeds: 1\n", encoding="utf-8")

    assert "1 of 1 run done" in fednet("sweep", str(lone), "--out", str(tmp_path / "out"), "--timing-only").stdout


@pytest.mark.usefixtures("cells_here")
def test_timing_only_sweeps_have_totals(study: Path, tmp_path: Path) -> None:
    """Time, bits and energy are those of the runs that learn; nothing is evaluated."""
    out = tmp_path / "out"
    assert fednet("sweep", str(study), "--out", str(out), "--timing-only", "--quiet").exit_code == 0

    runs = pd.read_parquet(out / "runs.parquet")
    assert (runs["simulated_s"] > 0).all()
    assert runs["accuracy"].isna().all()
    assert len(pd.read_parquet(out / "study.parquet")) == 0
    assert (
        "time of the run: with B, the run takes"
        in fednet("compare", str(out), "--between", "access=tdma", "access=ofdma").stdout
    )
    assert "nothing was evaluated" in fednet("plot", str(out)).stderr


def test_plot_draws_a_study(swept: Path, tmp_path: Path) -> None:
    """All figures by default; one metric against one cost when asked for."""
    everything = fednet("plot", str(swept), "--out", str(tmp_path / "all"))
    one = fednet("plot", str(swept), "--out", str(tmp_path / "one"), "--metric", "loss", "--against", "bits")

    assert everything.exit_code == 0, everything.output
    names = {path.stem for path in (tmp_path / "all").iterdir()}
    costs = {f"accuracy-{cost}" for cost in ("time", "bits", "energy", "rounds")}
    targets = {"time-to-target", "bits-to-target", "energy-to-target"}
    assert names - {"differences"} == costs | targets | {"pareto", "front-energy-time"}
    assert {path.name for path in (tmp_path / "one").iterdir()} == {"loss-bits.png"}
    assert one.exit_code == 0
    run = str(next((swept / "runs").iterdir()))
    mixed = fednet("plot", run, str(swept))
    assert mixed.exit_code == 2
    assert "plot: a study cannot be drawn with other folders, got" in mixed.stderr
    assert "did you mean 'access'" in fednet("plot", str(swept), "--panels", "acces").stderr
    assert "--sort and --animate are for runs" in fednet("plot", str(swept), "--until", "3").stderr
    assert "set evaluation.per_device: true" in fednet("plot", str(swept), "--metric", "worst_accuracy").stderr


def test_figures_are_written_as_asked_for(swept: Path, tmp_path: Path) -> None:
    """Two formats, the numbers as CSV and LaTeX; an unknown format or size is a mistake, and nothing is written."""
    one = ["plot", str(swept), "--metric", "loss", "--against", "bits", "--out"]
    asked = ["--format", "svg", "--format", "pdf", "--csv", "--latex", "--title", "Loss", "--size", "two-column"]
    result = fednet(*one, str(tmp_path / "one"), *asked)
    wrong = [fednet(*one, str(tmp_path / "no"), *option) for option in (["--format", "gif"], ["--size", "wide"])]

    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "one").iterdir()} == {
        f"loss-bits.{end}" for end in ("svg", "pdf", "csv", "tex")
    }
    assert "Loss" in (tmp_path / "one/loss-bits.svg").read_text(encoding="utf-8")
    assert set(pd.read_csv(tmp_path / "one/loss-bits.csv")["access"]) == {"tdma", "ofdma"}
    assert [each.exit_code for each in wrong] == [2, 2]
    assert "no such picture format, got 'gif'; choose from png, pdf, svg, pgf" in wrong[0].stderr
    assert "size: no such width of a figure, got 'wide'; choose from one-column, two-column" in wrong[1].stderr
    assert not (tmp_path / "no").exists()


def test_a_sweep_ends_with_figures_and_a_table(swept: Path) -> None:
    """`runs.csv` has the rows of the study, and the figures are beside it."""
    table, runs = pd.read_csv(swept / "runs.csv"), pd.read_parquet(swept / "runs.parquet")

    assert table["accuracy"].to_numpy() == pytest.approx(runs["accuracy"].to_numpy(), rel=1e-5)
    assert {"accuracy-time.png", "time-to-target.png", "pareto.png"} <= {p.name for p in (swept / "figures").iterdir()}


def test_report_is_about_what_the_folders_hold(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study, a run, or several runs overlaid; a study among others, or a folder that is neither, is a mistake."""
    monkeypatch.chdir(tmp_path)
    runs = [str(run) for run in sorted((swept / "runs").iterdir())[:2]]

    assert fednet("report", str(swept)).stdout.strip() == str(swept / "report.html")
    assert fednet("report", *runs).stdout.strip() == "report.html"
    assert fednet("report", runs[0], "--out", "run.html").stdout.strip() == "run.html"
    contents = [
        path.read_text(encoding="utf-8") for path in (swept / "report.html", Path("report.html"), Path("run.html"))
    ]
    assert ["function studyFronts" in each for each in contents] == [True, False, False]
    assert ["function overlaidCurves" in each for each in contents] == [False, True, False]
    mixed, foreign, nothing = fednet("report", *runs, str(swept)), fednet("report", "."), fednet("report", "nowhere")
    assert [each.exit_code for each in (mixed, foreign, nothing)] == [2, 2, 2]
    assert "report: a study cannot be drawn with other folders" in mixed.stderr
    assert foreign.stderr.startswith(".: holds neither a run nor a study, got no summary.json; give a folder that")
    assert "nowhere: no such run folder" in nothing.stderr


@pytest.mark.usefixtures("cells_here")
def test_a_failed_report_loses_no_sweep(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are there, the exit code is that of the runs, and it is said what went wrong and how to go on."""

    def fail(*_parts: object) -> None:
        raise ValueError("no ink")

    monkeypatch.setattr("fednet_emu.draw.page.study_page.study_document", fail)
    out = tmp_path / "out"
    result = fednet("sweep", str(study), "--out", str(out), "--set", "stop.rounds=1", "--timing-only")

    assert result.exit_code == 0
    assert f"no report, the tables are complete: ValueError: no ink\n  again: fednet report {out}" in result.stderr
    assert len(pd.read_parquet(out / "runs.parquet")) == 6
    assert not (out / "report.html").exists()


@pytest.mark.usefixtures("cells_here")
def test_without_plots_the_table_of_runs_is_written(study: Path, tmp_path: Path) -> None:
    """`--no-plots` leaves out figures and the report, not `runs.csv`, which is no figure."""
    out = tmp_path / "out"
    told = fednet("sweep", str(study), "--out", str(out), "--set", "stop.rounds=1", "--timing-only", "--no-plots")

    assert told.exit_code == 0
    assert len(pd.read_csv(out / "runs.csv")) == 6
    assert not (out / "figures").exists()


def test_compare_says_how_much_two_settings_differ(swept: Path) -> None:
    """Two settings of one study, two studies, and two runs can be compared."""
    settings = fednet("compare", str(swept), "--between", "access=tdma", "access=ofdma")
    studies = fednet("compare", str(swept), str(swept))
    runs = fednet("compare", *map(str, sorted((swept / "runs").iterdir())[:2]), "--accuracy", "0.2")

    assert "A: access=tdma\nB: access=ofdma\ntarget: accuracy 0.3\n" in settings.stdout
    assert "\n  time to target: with B, accuracy 0.3 is reached " in settings.stdout
    assert settings.stdout.endswith("`fednet best` finds which of all settings may be the best.\n")
    assert "access=ofdma\n  final accuracy: final accuracy is the same with A and B on every seed" in studies.stdout
    assert runs.exit_code == 2  # neighbours in the folder are different seeds
    assert "nothing to pair" in runs.stderr
    assert fednet("compare", str(swept)).exit_code == 2
    same = ("compare", str(swept), str(swept), "--within")
    limited = fednet(*same, "rounds=2", "--within", "time=1e3").stdout
    assert "each run counts up to its last evaluation within 2 rounds and 16 min 40 s\n" in limited
    assert "accuracy within the limits is the same with A and B on every seed" in limited
    assert "--within: expected cost=amount, got 'time'; for example time=60" in fednet(*same, "time").stderr
    assert "--within: a limit must be a number above 0, got time=-5" in fednet(*same, "time=-5").stderr
    assert "target: loss 9\n" in fednet("compare", str(swept), str(swept), "--loss", "9").stdout
    assert "no such level of access, got 'tdma, fast'" in (
        fednet("compare", str(swept), "--between", "access=tdma, fast", "access=ofdma").stderr
    )
    assert "no such level of access, got 'tmda'; did you mean 'tdma'?" in (
        fednet("compare", str(swept), "--between", "access=tmda", "access=ofdma").stderr
    )


def test_best_ranks_and_draws(swept: Path, tmp_path: Path) -> None:
    """The answer, limits and a part of the grid; the figure and its numbers on request; mistakes in one sentence."""
    told = fednet("best", str(swept), "--accuracy", "0.2", "--within", "energy=1e3", "--within", "bits=1e9")
    drawn = fednet("best", str(swept), "--minimise", "bits", "--out", str(tmp_path), "--csv", "--latex")
    alone = fednet("best", str(swept), "--where", "access=tdma")

    assert told.exit_code == drawn.exit_code == alone.exit_code == 0, told.output + drawn.output + alone.output
    assert "reaches accuracy 0.2 within 1 kJ of energy and 1 Gbit after" in told.stdout
    assert "Not separated from ofdma: tdma." in told.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"best.png", "best.csv", "best.tex"}
    assert list(pd.read_csv(tmp_path / "best.csv")["reached"]) == [3, 3]
    assert "There is no other setting to compare it with." in alone.stdout
    for arguments, problem in (
        (["--accuracy", "1"], "no run reaches accuracy 1, got accuracy"),
        (["--loss", "1e-9"], "no run reaches loss 1e-09, got loss"),
        (["--accuracy", "0.2", "--loss", "1"], "loss: a target has one measure, got 1 and accuracy 0.2; leave out one"),
        (["--minimise", "seconds"], "no such cost, got 'seconds'; did you mean 'rounds'?"),
        (["--within", "energy=1", "--within", "energy=2"], "energy is limited twice, got 1 and 2"),
        (["--where", "tdma"], "--where: expected axis=level, got 'tdma'"),
    ):
        result = fednet("best", str(swept), *arguments)
        assert result.exit_code == 2
        assert problem in result.stderr


def test_one_run_of_a_study_is_run_by_its_levels(study: Path, swept: Path, tmp_path: Path) -> None:
    """In any case; with the numbers of the sweep; mistakes list what there is."""
    alone = fednet("run", str(study), "--where", "access=OFDMA", "--seed", "1", "--no-plots", "--out", str(tmp_path))

    assert alone.exit_code == 0, alone.output
    runs = tmp_path, next((swept / "runs").glob("access=ofdma__seed=1__*"))
    one, of_the_sweep = (json.loads((run / "summary.json").read_text()) for run in runs)
    assert one["event_digest"] == of_the_sweep["event_digest"]
    assert one["accuracy"] == of_the_sweep["accuracy"]
    for arguments, problem in (
        (["--where", "access=wifi"], "where: expected one level of access, got 'wifi'; give one of tdma, ofdma"),
        (["--where", "cell=1"], "where: access has no axis 'cell'; it has access"),
        (["--where", "cell=1"], "where: expected one level of access, got none; give one of tdma, ofdma"),
    ):
        result = fednet("run", str(study), *arguments)
        assert result.exit_code == 2
        assert problem in result.stderr


@pytest.mark.usefixtures("cells_here")
def test_reproduce_refreshes_the_reference(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies that fit are swept, and leave a small table and pictures; nothing is left to do the second time."""
    monkeypatch.chdir(tmp_path)
    cheap = f"{STUDY.replace('seeds: 3', 'seeds: 1')}minutes: 0.1\nfigures: [accuracy-time, pareto]\n".replace(
        "base: small", f"base: {study.parent / 'small'}"
    )
    (tmp_path / "scenarios/studies").mkdir(parents=True)
    (tmp_path / "scenarios/studies/cheap.yaml").write_text(cheap, encoding="utf-8")
    monkeypatch.setattr("fednet_emu.study.reproduce.names", lambda _folder: ["cheap"])  # a second for all the others

    nothing = fednet("reproduce", "--minutes", "0.01")
    assert nothing.exit_code == 2
    assert "no study of the library fits, got 0.01; the cheapest, cheap, takes 0.1" in nothing.stderr
    results = [fednet("reproduce", "--minutes", "0.2", "--out", "reference", "--quiet") for _ in range(2)]

    assert [result.exit_code for result in results] == [0, 0], results[0].output
    table = pd.read_csv(tmp_path / "reference/cheap/runs.csv")
    assert table["access"].tolist() == ["tdma", "ofdma"]
    names = {path.name for path in (tmp_path / "reference/cheap").iterdir()}
    assert names == {"runs.csv", "accuracy-time.png", "pareto.png"}


def test_names_in_figures_can_be_changed(swept: Path, tmp_path: Path) -> None:
    """A level and a metric have other names in figures; unknown ones and ones for runs are mistakes."""
    names = ["--rename", "tdma=TDMA", "--rename", "access=ofdma=OFDMA", "--rename", "accuracy=Test accuracy"]
    drawn = fednet("plot", str(swept), *names, "--out", str(tmp_path), "--format", "svg", "--against", "time")
    best = fednet("best", str(swept), *names[:2], "--out", str(tmp_path), "--format", "svg")

    assert drawn.exit_code == best.exit_code == 0, drawn.output + best.output
    picture = (tmp_path / "accuracy-time.svg").read_text(encoding="utf-8")
    assert all(f">{name}<" in picture for name in ("TDMA", "OFDMA", "Test accuracy"))
    assert ">TDMA<" in (tmp_path / "best.svg").read_text(encoding="utf-8")
    for arguments, problem in (
        ([str(swept), "--rename", "tmda=x"], "--rename: no axis, level or metric has this name, got 'tmda'; did you"),
        ([str(swept), "--rename", "tdma"], "--rename: expected KEY=TEXT, got 'tdma'; for example tdma=TDMA"),
        ([str(next((swept / "runs").iterdir())), "--rename", "a=b"], "are for studies, got run folders; leave them"),
    ):
        result = fednet("plot", *arguments)
        assert result.exit_code == 2
        assert problem in result.stderr
