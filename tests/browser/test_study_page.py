"""Claims about the page of a study and about that of several runs, in a real browser."""

from pathlib import Path

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.analysis.quantities import format_bits, format_seconds
from fednet_emu.results.study import report
from fednet_emu.scenario.document import from_text
from fednet_emu.testing import SMALL

SIZES = (700, 900), (1400, 1000)
DIGITS = SMALL.replace("data: {kind: synthetic-regression, n_samples: 80, n_test: 40, features: 9}", "data: digits")
GRID = {
    "access": {"tdma": {"network.uplink.access": "tdma"}, "ofdma": {"network.uplink.access": "ofdma"}},
    "rate": {"slow": {"algorithm.lr": 0.01}, "fast": {"algorithm.lr": 0.5}, "wild": {"algorithm.lr": 1e30}},
}
SETTINGS = {"stop.rounds": 5, "model": "softmax", "algorithm.batch_size": 20, "algorithm.local_steps": 10}
TRACES = "document.querySelector('#{} .figure').data"


@pytest.fixture(scope="module")
def study(tmp_path_factory, cells_here):
    """Two accesses; with a small rate nobody reaches the target, with a huge one runs diverge."""
    out = tmp_path_factory.mktemp("study") / "out"
    base = from_text(DIGITS, "small").data
    return fe.sweep(base, grid=GRID, seeds=2, settings=SETTINGS, target={"accuracy": 0.5}, workers=2, out=out)


@pytest.fixture(scope="module")
def page(study):
    return study.report()


@pytest.fixture
def shown(browser, page):
    return browser.open(page)


def choose(shown, section, label, value):
    """Choose an option of a select, as a user does."""
    shown.js(
        """
        const label = [...document.querySelectorAll(`#${arguments[0]} label`)]
          .find((each) => each.firstChild.textContent === arguments[1]);
        label.querySelector("select").value = arguments[2];
        label.querySelector("select").dispatchEvent(new Event("change"));
        """,
        section,
        label,
        value,
    )


def column(shown, section, title):
    """The texts of a column of the table in a section."""
    return shown.js(
        """
        const table = document.querySelector(`#${arguments[0]} table`);
        const place = [...table.querySelectorAll("thead button")]
          .findIndex((each) => each.textContent.replace(/ [↑↓]$/, "") === arguments[1]);
        return [...table.querySelectorAll("tbody tr")].map((row) => row.cells[place].textContent);
        """,
        section,
        title,
    )


def sort(shown, section, title):
    shown.js(
        """
        [...document.querySelectorAll(`#${arguments[0]} thead button`)]
          .find((each) => each.textContent.replace(/ [↑↓]$/, "") === arguments[1]).click();
        """,
        section,
        title,
    )


def traces(shown, section, meta=None):
    """The traces of the figure of a section as mappings with name, x and y."""
    code = "return ({}).map((each) => ({{name: each.name, meta: each.meta, x: [...each.x], y: [...each.y]}}))"
    found = shown.js(code.format(TRACES.format(section)))
    return [each for each in found if meta is None or each["meta"] == meta]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("what", ["study", "runs"])
def test_it_opens_without_a_complaint_and_asks_nobody(browser, study, page, tmp_path, size, what):
    """Nothing on the console, one address, everything drawn, nothing wider than the window, at two sizes."""
    runs = sorted((study.folder / "runs").iterdir())[:3]
    shown = browser.open(page if what == "study" else report(runs, tmp_path / "runs.html"), size)
    asked, errors = shown.notes()

    assert [url.split(":")[0] for url in asked if not url.startswith(("data:", "blob:"))] == ["file"]
    assert errors == []
    assert shown.js("return document.querySelectorAll('.problem').length") == 0
    assert shown.js("return document.querySelectorAll('.figure .main-svg').length") > 0
    assert shown.js("return document.documentElement.scrollWidth <= window.innerWidth")


def test_no_column_is_clipped_without_a_word(browser, page):
    """At 1300 px sentences wrap, so that the ranking and the differences fit; a wider table says that it goes on."""
    shown = browser.open(page, (1300, 900))
    tables = shown.js(
        """
        return new Promise((done) => setTimeout(done, 300)).then(() =>
          [...document.querySelectorAll(".table")].map((each) => {
            const box = each.querySelector(".scroll"), said = each.textContent.includes("scroll to the right");
            return [each.closest("section").id, box.scrollWidth > box.clientWidth, said];
          }));
        """
    )
    wide = {place: is_wide for place, is_wide, _ in tables}

    assert not wide["best"]
    assert not wide["differences"]
    assert [is_wide for _, is_wide, _ in tables] == [said for _, _, said in tables]


def test_cells_are_those_of_the_table(shown, study):
    """As many rows as runs, with the numbers of the table, written as the command line writes them."""
    runs = study.runs

    assert column(shown, "runs", "access") == list(runs["access"])
    assert column(shown, "runs", "status") == list(runs["status"])
    assert column(shown, "runs", "Time") == [format_seconds(value) for value in runs["simulated_s"]]
    assert column(shown, "runs", "Bits") == [format_bits(value) for value in runs["total_bit"]]
    reached = ["" if np.isnan(value) else format_seconds(value) for value in runs["time_to_target_s"]]
    assert column(shown, "runs", "Time to target") == reached
    assert 0 < reached.count("") < len(reached)


def test_the_ranking_is_that_of_the_command(shown, study):
    """The same sentences and places, by time and by bits."""
    for cost in ("time", "bits"):
        choose(shown, "best", "Cost", cost)
        found = study.best(minimise=cost)

        assert column(shown, "best", "Setting") == [its.setting.label for its in found.settings]
        sentences = shown.js("return [...document.querySelectorAll('#best .story')].map((each) => each.textContent)")
        assert sentences == found.lines()[: len(sentences)]


def test_cells_sort_and_filter(shown, study):
    """By time, longest first; the filter keeps one access."""
    runs = study.runs
    sort(shown, "runs", "Time")

    assert column(shown, "runs", "Time") == [
        format_seconds(value) for value in runs["simulated_s"].sort_values(ascending=False)
    ]
    shown.driver.find_element("css selector", "#runs input[type=search]").send_keys("ofdma")
    shown.js("return new Promise((done) => setTimeout(done, 400))")
    told = shown.js("return document.querySelector('#runs [role=status]').textContent")
    assert told.startswith("6 of 6 rows (12 ")
    assert set(column(shown, "runs", "access")) == {"ofdma"}


def test_curves_are_means_of_the_evaluations(shown, study):
    """After each round, the accuracy against rounds is the mean over seeds at that round."""
    choose(shown, "curves", "against", "rounds")
    lines = {each["name"]: each for each in traces(shown, "curves", "mean")}
    rows = study.evaluations[(study.evaluations["access"] == "tdma") & (study.evaluations["rate"] == "fast")]
    means = rows.groupby("round")["accuracy"].mean()
    line = lines["tdma, fast"]

    assert line["x"][-1] == means.index[-1] == 5
    expected = [means[int(rounds + 1e-9)] for rounds in line["x"]]
    assert line["y"] == pytest.approx(expected)


def test_runs_that_diverged_have_a_cross(shown, study):
    """Each cross is at the end of such a run, and names its setting."""
    choose(shown, "curves", "against", "rounds")
    found = {each["name"]: each["x"] for each in traces(shown, "curves", "diverged")}
    lost = study.runs[study.runs["status"] == "diverged"]

    assert set(found) == {"tdma, wild", "ofdma, wild"} == set(lost["access"] + ", " + lost["rate"])
    for (access, rate), own in lost.groupby(["access", "rate"]):
        assert sorted(found[f"{access}, {rate}"]) == sorted(own["rounds"])


def test_metric_cost_levels_and_bands_can_be_chosen(shown, study):
    """Loss against bits with one access only, and without bands."""
    before = shown.js(f"return {TRACES.format('curves')}.length")
    choose(shown, "curves", "Show", "loss")
    choose(shown, "curves", "against", "bits")
    choose(shown, "curves", "access", "ofdma")
    choose(shown, "curves", "rate", "slow")
    shown.js("document.querySelector('#curves input[type=checkbox]').click()")
    (line,) = traces(shown, "curves")
    rows = study.evaluations[(study.evaluations["access"] == "ofdma") & (study.evaluations["rate"] == "slow")]
    titles = shown.js(
        "const {xaxis, yaxis} = document.querySelector('#curves .figure')._fullLayout;"
        "return [xaxis.title.text, yaxis.title.text]"
    )

    assert before > 1
    assert line["name"] == "ofdma, slow"
    assert titles == ["Bits (kbit)", "Loss"]
    assert line["x"][-1] == pytest.approx(rows["total_bit"].max() / 1e3)
    assert line["y"][-1] == pytest.approx(rows.groupby("seed")["loss"].last().mean())


def test_curves_can_be_saved(shown, study):
    """The CSV has the label, and as last point of a line what the tables say."""
    shown.js("fednet.download = (name, text) => { window.saved = [name, text]; }")
    choose(shown, "curves", "against", "rounds")
    shown.js(
        "[...document.querySelectorAll('#curves button')].find((each) => each.textContent === 'Save as CSV').click()"
    )
    name, text = shown.js("return window.saved")
    last = [line for line in text.splitlines() if line.startswith('"tdma, fast",5,')]
    runs = study.runs[(study.runs["access"] == "tdma") & (study.runs["rate"] == "fast")]

    assert name == f"{study.name}-accuracy-rounds.csv"
    assert text.startswith("setting,cost,mean,low,high,runs\n")
    assert float(last[0].split(",")[3]) == pytest.approx(runs["accuracy"].mean())


@pytest.mark.parametrize(("cost", "of"), [("time", "time_to_target_s"), ("bits", "bits_to_target")])
def test_failures_are_crosses_and_no_bars(shown, study, cost, of):
    """Who reached the target is a point at its cost, who did not is a cross beyond all costs, and said in words."""
    choose(shown, "needed", "Cost", cost)
    reached, means, lost = traces(shown, "needed")
    known = study.runs[of].dropna()
    unit = 1e3 if cost == "bits" else 1.0 if known.max() >= 1 else 1e-3
    told = shown.js("return [...document.querySelectorAll('#needed li')].map((each) => each.textContent)")

    assert sorted(reached["x"]) == pytest.approx(sorted(known / unit))
    assert means["x"] == pytest.approx(
        known.groupby([study.runs["access"], study.runs["rate"]], sort=False).mean() / unit
    )
    assert len(lost["x"]) == study.runs[of].isna().sum()
    assert min(lost["x"]) > max(reached["x"])
    assert shown.js(f"return {TRACES.format('needed')}.some((each) => each.type === 'bar')") is False
    assert "tdma, slow: 0 of 2 runs reached it; 2 runs never got there." in told
    assert "ofdma, wild: 0 of 2 runs reached it; 2 runs diverged." in told


def test_differences_are_those_of_compare(shown, study):
    """The sentences about the accesses at the fast rate have the numbers of `compare`."""
    choose(shown, "differences", "Compare", "access: ofdma rather than tdma")
    choose(shown, "differences", "where", "rate=fast")
    told = shown.js("return [...document.querySelectorAll('#differences li')].map((each) => each.textContent)")
    frame = study.compare("access=tdma,rate=fast", "access=ofdma,rate=fast").frame.set_index("quantity")
    row = frame.loc["simulated_s"]

    (found,) = [text for text in told if "the run takes" in text]
    assert f"{format_seconds(abs(row['difference']))} {'less' if row['difference'] < 0 else 'more'} than" in found
    assert "2 seeds cannot show it, 6 are the fewest that can" in found
    assert len(told) == len(frame)
    sort(shown, "differences", "B − A")
    assert len(column(shown, "differences", "In words")) == 20


def test_fronts_of_any_two_quantities(shown, study):
    """Points of the front are the means over seeds that no other setting and round beats; diverged runs are on none."""
    rows = study.evaluations[study.evaluations["rate"] != "wild"]
    means = rows.groupby(["access", "rate", "round"])[["simulated_s", "total_bit", "energy_j", "accuracy"]].mean()
    start = means.xs(0, level="round")["accuracy"]
    means = means[means["accuracy"] > start.reindex(means.index.droplevel("round")).to_numpy()]
    for cost in ("simulated_s", "energy_j"):
        choose(shown, "fronts", "Weigh", cost)
        points = means[[cost, "accuracy"]].to_numpy() * [1, -1]
        best = [not ((points <= each).all(axis=1) & (points < each).any(axis=1)).any() for each in points]
        found = sorted(y for each in traces(shown, "fronts", "front") for y in each["y"])

        assert found == pytest.approx(sorted(means["accuracy"][best])), cost
    choose(shown, "fronts", "Weigh", "accuracy")
    assert shown.js("return [...document.querySelectorAll('#fronts select')].map((each) => each.value)") == [
        "accuracy",
        "energy_j",
    ], "the same quantity twice makes no front"
    choose(shown, "fronts", "Weigh", "total_bit")
    found = {each["name"] for each in traces(shown, "fronts", "front")}
    assert found <= {"tdma, fast", "ofdma, fast"}, "costs of the target, which only the fast rate reached"
    assert column(shown, "fronts", "Setting") == sorted(
        column(shown, "fronts", "Setting"), key=["tdma, fast", "ofdma, fast"].index
    )


def test_runs_are_overlaid(browser, study, tmp_path):
    """One line for each run with its evaluations, and one row for each with its totals."""
    runs = [study.run(seed=0, access=access, rate="fast") for access in ("tdma", "ofdma")]
    shown = browser.open(report([run.folder for run in runs], tmp_path / "runs.html"))
    choose(shown, "curves", "against", "rounds")
    lines = traces(shown, "curves")

    assert [each["y"] for each in lines] == [pytest.approx(list(run.evaluations["accuracy"])) for run in runs]
    assert column(shown, "summaries", "Time") == [format_seconds(run.summary["simulated_s"]) for run in runs]
    choose(shown, "curves", "Show", "loss")
    assert [each["y"] for each in traces(shown, "curves")] == [
        pytest.approx(list(run.evaluations["loss"])) for run in runs
    ]


def test_a_page_is_small(page):
    """Plotly included."""
    assert Path(page).stat().st_size < 8e6


def test_names_in_figures_are_short_and_distinct(shown):
    """What all share is left out, long names lose their middle, unless two would be the same then."""
    short = "return lines.shorten(arguments[0], 11)"

    assert shown.js(short, ["s: a=1, seed=0", "s: a=2, seed=0"]) == ["a=1", "a=2"]
    assert shown.js(short, ["a very long name", "b"]) == ["a ver… name", "b"]
    assert shown.js(short, ["long name, one, end", "long name, two, ending"]) == ["one, end", "two, ending"]
    alike = ["first - that - last", "first - this - last"]
    assert shown.js(short, alike) == alike
    assert shown.js(short, ["a", "a"]) == ["a", "a"]


@pytest.fixture(scope="module")
def searched(tmp_path_factory, cells_here):
    """A search of step sizes and accesses, with limits that some break."""
    out = tmp_path_factory.mktemp("search") / "out"
    space = {"algorithm.lr": {"low": 0.001, "high": 1.0, "log": True}, "network.uplink.access": ["tdma", "ofdma"]}
    base, settings = from_text(DIGITS, "small").data, SETTINGS | {"channel": "urban-micro"}
    options = {"target": {"accuracy": 0.5}, "within": {"rounds": 4}, "seeds": 3, "trials": 8, "workers": 2}
    return fe.search(base, space, settings=settings, out=out, **options)


def test_a_search_shows_its_trials_and_what_remained(browser, searched):
    """The table has all trials; every one is a point, those that did not get there above the others."""
    shown = browser.open(searched.study.report())
    trials = searched.trials
    data = {
        trace["name"]: trace
        for trace in shown.js(f"return Array.from({TRACES.format('search')}, ({{name, x, y}}) => ({{name, x, y}}))")
    }
    known = trials["time"].notna()

    assert column(shown, "search", "Setting") == trials["setting"].tolist()
    points = {int(x) for name in ("trial", "remained") for x in data.get(name, {"x": []})["x"]}
    assert points == set(trials["trial"][known])
    assert set(data["remained"]["x"]) == set(searched.finalists)
    lost = data.get("did not get there", {"x": [], "y": [np.inf]})
    assert set(lost["x"]) == set(trials["trial"][~known])
    assert min(lost["y"]) > max(max(data[name]["y"]) for name in ("trial", "remained") if name in data)
    assert searched.lines()[0] in shown.js("return document.querySelector('#search').textContent")
    assert not shown.notes()[1]


def test_other_studies_have_no_section_of_a_search(shown):
    """Nothing was searched."""
    assert shown.js("return document.querySelector('#search')") is None
