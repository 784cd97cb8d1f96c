"""Tables of published numbers: verdicts, sources, programs; known answers of papers on rounds of our own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fednet_emu.errors import FednetError
from fednet_emu.network.planning.local_accuracy import fedl_cost, infocom_accuracy
from fednet_emu.results import published
from fednet_emu.results.published import COLUMNS, PAPERS, VERDICTS, Sources, compared, counts, folder, judged, program
from tests.commands import fednet

ROOT = Path(__file__).parents[2]
TABLES = {
    paper: pd.read_csv(path, dtype=str, keep_default_na=False)
    for paper in PAPERS
    if (path := ROOT / f"results/reference/published/{paper}.csv").is_file()
}


@pytest.mark.parametrize(
    ("check", "published", "ours", "tolerance", "verdict"),
    [
        ("within", "2.0", 2.1, "0.2", "met"),
        ("within", "2.0", 2.3, "0.2", "not met"),
        ("within", "2.0", float("nan"), "0.2", "not met"),
        ("relative", "200", 201.9, "0.01", "met"),
        ("relative", "200", 203.0, "0.01", "not met"),
        ("at most", "62 values", 1e-9, "1e-9", "met"),
        ("at most", "none", 3.0, "0", "not met"),
        ("at least", "better", -0.1, "0", "not met"),
        ("", "of an unnamed figure", 25.58, "", "not comparable"),
    ],
)
def test_a_verdict_follows_from_the_tolerance(
    check: str, published: str, ours: float, tolerance: str, verdict: str
) -> None:
    """Differences are absolute or relative, bounds are of our own number, and without a check nothing is claimed."""
    assert judged(check, published, ours, tolerance)[1] == verdict


def test_each_paper_has_a_program_and_rows_that_name_their_source_and_command() -> None:
    """Every row of the file belongs to a paper, and has a source, a command and no row without words."""
    rows = pd.read_csv(folder() / "published.csv", dtype=str, keep_default_na=False)

    assert set(rows["paper"]) == set(PAPERS)
    assert all(callable(program(paper).ours) for paper in PAPERS)
    assert not (rows[["key", "setting", "published", "source", "command"]] == "").any().any()
    assert not rows.duplicated(["paper", "key"]).any()
    assert rows["command"].str.startswith("fednet reproduce ").all()
    assert not rows["source"].str.contains("recalled").any()


def test_the_table_of_a_paper_without_arrays_is_that_of_the_reference() -> None:
    """`fednet reproduce analog-aggregation` makes the committed table, and nothing that is not met is left out."""
    table = compared("analog-aggregation")

    assert list(table) == list(COLUMNS)
    pd.testing.assert_frame_equal(table, TABLES["analog-aggregation"])
    assert (table["verdict"] == "not met").sum() == 3


def test_the_command_writes_the_table(tmp_path: Path) -> None:
    """The counts of the verdicts are printed, with each row that is not met."""
    result = fednet("reproduce", "analog-aggregation", "--out", str(tmp_path))

    assert result.exit_code == 0, result.output
    assert "3 met, 3 not met, 1 not comparable" in result.stdout
    assert result.stdout.count("not met: exponent of the latency ratio") == 3
    assert (tmp_path / "published/analog-aggregation.csv").is_file()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """An unknown paper, and arrays without a clone."""
    with pytest.raises(FednetError, match=r"no such paper, got fedel; known are adaptive-tau, .*; did you mean 'fedl'"):
        compared("fedel")
    for paper, repository in (("fedl", "nhatminh/FEDL-INFOCOM"), ("completion-time", "BrokenBunny/Energy-efficient")):
        for clone in (tmp_path / "none", tmp_path):
            with pytest.raises(FednetError, match=rf"needs a clone of .*/{repository}.*, which lacks \w"):
                compared(paper, Sources(clone))


def test_all_tables_are_committed_with_all_rows() -> None:
    """The tables of the pages have every row of the file, in its order."""
    rows = pd.read_csv(folder() / "published.csv", dtype=str, keep_default_na=False)

    for paper, table in TABLES.items():
        own = rows[rows["paper"] == paper]
        assert [text.split(" (")[0] for text in table["setting"]] == [text.split(" (")[0] for text in own["setting"]]
        assert set(table["verdict"]) <= set(VERDICTS)
    overview = counts(TABLES).set_index("paper")
    assert overview.to_numpy().sum() == sum(map(len, TABLES.values()))


def test_latency_ratios_of_analog_aggregation_are_those_of_a_separate_program() -> None:
    """Ratios of the specification's table at 0, 10 and 20 dB, by quadrature there; turns are linear."""
    analog = program("analog-aggregation")
    known = {0.0: (98.7, 240.8, 625.8, 2175), 10.0: (38.2, 125.4, 383.5, 1501), 20.0: (21.8, 82.8, 274.5, 1145)}

    for snr_db, ratios in known.items():
        found = [analog.ratio(snr_db, devices) for devices in (10, 50, 200, 1000)]
        assert found == pytest.approx(ratios, rel=3e-3)
    rng = np.random.default_rng(0)
    gains = rng.exponential(size=200_000)
    assert analog.mean_rate(3.0) == pytest.approx(np.log2(1 + 3.0 * gains).mean(), rel=5e-3)


def test_shares_of_truncation_and_interior_are_their_closed_forms() -> None:
    """At a threshold of 0.1, 9.5 % are silent; half the radius has a quarter of the data and 9 dB more at d^-3."""
    analog = program("analog-aggregation")

    share, snr_db = analog.truncated(0.1)
    gains = np.random.default_rng(0).exponential(size=2_000_000)
    assert share == pytest.approx(np.mean(gains < 0.1), abs=1e-3)
    assert 10 ** (-snr_db / 10) == pytest.approx(np.mean(np.where(gains < 0.1, 0, 1 / gains)), rel=1e-2)
    assert analog.interior(0.5) == pytest.approx((0.25, 9.0309), rel=1e-4)


def test_fedl_has_the_setting_of_its_paper() -> None:
    """One device by hand: 20 cycles/bit, 40 Mbit, 2 GHz, at kappa = 1e3 full speed and full power."""
    fedl = program("fedl")
    round_ = fedl.fedl_round(np.array([20 * 4e7]), np.array([2e9]), np.array([0.5]))
    cost = fedl_cost(round_, 1e3, min_power_w=0.2)

    assert cost.compute_s == pytest.approx(0.4)
    assert cost.compute_j == pytest.approx(1e-28 * 8e8 * 4e18)
    assert cost.send_s == pytest.approx(0.025 / np.log(3))
    assert cost.send_j == pytest.approx(0.025 / np.log(3))
    assert 0 < infocom_accuracy(cost, 1e3).theta < 1


def test_completion_times_of_equal_users_are_their_closed_forms() -> None:
    """Twenty users at 110 dB: equal parts are optimal, so EB and FE are the formula at eta = 0.5 and 0.6."""
    paper = program("completion-time")
    losses_db, setting = np.full(20, 110.0), paper.Setting()
    times = paper.times_s(setting, losses_db)
    snr = 0.01 * 10**-11 / (10 ** (-174 / 10) / 1e3 * 1e6)
    air_s = 28.1e3 / (1e6 * np.log2(1 + snr))

    assert times["eb"] == pytest.approx(160 / 0.5 * (0.2 + air_s), rel=1e-9)
    assert times["fe"] == pytest.approx(160 / 0.4 * (4 * 0.05 * np.log2(1 / 0.6) + air_s), rel=1e-6)
    assert times["proposed"] <= min(times.values())


def test_joint_learning_draws_pairs_with_the_same_distances() -> None:
    """The proposed assignment never delivers fewer expected samples than a baseline at the same distances."""
    paper = program("joint-learning")

    for seed in range(20):
        distances = np.random.default_rng(seed).uniform(0, 500, 9)
        sums = {
            name: float(np.dot(paper.SAMPLES, paper.arrival(name, distances, np.random.default_rng(seed))))
            for name in paper.SCHEMES.values()
        }
        assert max(sums, key=sums.get) == "most-samples"  # type: ignore[arg-type]


def test_joint_learning_computes_each_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With random images and two draws, `ours` has a finite number for each row of the file."""
    paper, rng = program("joint-learning"), np.random.default_rng(0)
    drawn = [(rng.random((n, 784), np.float32), rng.integers(10, size=n)) for n in (sum(paper.SAMPLES), 20)]
    monkeypatch.setattr(paper.Images, "mnist", lambda _: paper.Images(*drawn[0], *drawn[1]))
    for name, value in {"SEEDS": range(2), "DRAWS": 2, "ITERATIONS": 2}.items():
        monkeypatch.setattr(paper, name, value)

    values = paper.ours(Sources())

    rows = pd.read_csv(folder() / "published.csv", dtype=str, keep_default_na=False)
    assert set(values) == set(rows.loc[rows["paper"] == "joint-learning", "key"])
    assert np.isfinite(list(values.values())).all()


def test_public_rows_tell_their_rounds() -> None:
    """From means, deviation and total time: ten rounds of seven steps, one of three, one that evaluates."""
    paper = program("adaptive-tau")
    taus = np.array([7] * 10 + [3, 1])
    row = {
        "tau_setup": 7,
        "avg_tau": float(taus @ taus) / taus.sum(),
        "stddev_tau": float(taus.std()),
        "avg_each_local": 0.01,
        "avg_each_global": 0.1,
        "total_time_recomputed": 0.01 * taus.sum() + 0.1 * len(taus),
    }

    assert paper.rounds_of(row) == taus.tolist()
    assert paper.rounds_of({**row, "tau_setup": 1, "total_time_recomputed": 12 * 0.11}) == [1] * 12


def test_incomplete_runs_are_left_out_before_runs_are_numbered(tmp_path: Path) -> None:
    """A second run that stopped early is no block, and too few complete runs are an error."""
    paper = program("adaptive-tau")
    whole = [(sim, case, tau) for sim in (0, 1) for case in range(4) for tau in (-1, *paper.FIXED)]
    rows = pd.DataFrame([*whole, *whole[:7], *whole], columns=["Simulation", "case", "tau_setup"])
    (tmp_path / "results").mkdir()
    rows.assign(Type="distributed").to_csv(tmp_path / paper.RESULTS, index=False)

    found = paper.public_rows(tmp_path)

    assert found["block"].tolist() == [1] * 96 + [2] * 96
    with pytest.raises(FednetError, match="has 352 rows with a fixed tau in its first 4 complete runs, got 176"):
        paper.ours(Sources(tmp_path))


def test_published_module_names_its_papers() -> None:
    """Each paper has a page in the documentation that shows its table."""
    for paper in PAPERS:
        page = (ROOT / f"docs/evidence/published/{paper}.md").read_text(encoding="utf-8")
        assert f"published/{paper}.csv" in page
    assert published.PAPERS == PAPERS
