"""Claims about the page of a run in a real browser: every control works, and what is drawn is what was recorded."""

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.analysis.activity import air_use
from fednet_emu.analysis.scene import Scene
from fednet_emu.results.library import data_split

CHANGES = {
    "stop.rounds": 6,
    "network.uplink.message_loss": {"kind": "random", "probability": 0.2},
    "network.cells": {"kind": "list", "xy_m": [[-150.0, 0.0], [150.0, 0.0]]},
    "devices.mobility": {"kind": "random-direction", "min_speed_m_s": 1, "max_speed_m_s": 3, "mean_leg_s": 20},
}


@pytest.fixture(scope="module")
def run():
    """Six rounds of moving phones in two cells, with lost uplinks."""
    return fe.run("quickstart", settings=CHANGES)


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    return run.report(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def shown(browser, page):
    return browser.open(page)


def choose(shown, section, label, value):
    shown.js(
        """const labels = [...document.querySelectorAll(`#${arguments[0]} label`)];
        const label = labels.find((each) => each.textContent.startsWith(arguments[1]));
        label.box.value = arguments[2]; label.box.dispatchEvent(new Event("change"));""",
        section, label, value,
    )  # fmt: skip


def press(shown, section, text):
    shown.js(
        """const buttons = [...document.querySelectorAll(`#${arguments[0]} button`)];
        buttons.find((each) => each.textContent === arguments[1]).click()""",
        section, text,
    )  # fmt: skip


def trace(shown, figure, number, axis="y"):
    return shown.js(f"return Array.from(fednet.run.{figure}.element.data[{number}].{axis})")


@pytest.mark.parametrize("size", [(1400, 1000), (700, 900)])
def test_it_opens_without_a_complaint_and_asks_nobody(browser, page, size):
    """No error, no request but that for the file, no wider than the window; all sections are there."""
    browser.open(page, size)
    asked, errors = browser.notes()

    assert errors == []
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [page.as_uri()]
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.js("return [...document.querySelectorAll('section')].map((each) => each.id)") == [
        "story", "path", "learning", "data", "timeline", "time", "air", "map", "spreads", "losses", "energy",
        "fairness", "tables", "origin",
    ]  # fmt: skip


def test_the_curve_follows_its_axes(run, browser, page):
    """Scores are those of the evaluations, against time, rounds, bits and energy."""
    shown = browser.open(page)
    table = run.evaluations

    np.testing.assert_allclose(trace(shown, "curves", 0), table["accuracy"])
    np.testing.assert_allclose(trace(shown, "curves", 0, "x"), table["simulated_s"])
    for cost, scale in (("round", 1), ("total_bit", 1e6), ("energy_j", None)):
        choose(shown, "learning", "against", cost)
        x = np.array(trace(shown, "curves", 0, "x"))
        bits = table["uplink_bit"] + table["downlink_bit"] + table["sidelink_bit"]
        expected = bits if cost == "total_bit" else table[cost]
        np.testing.assert_allclose(x * (scale or expected.iloc[-1] / x[-1]), expected)
    choose(shown, "learning", "Show", "loss")
    np.testing.assert_allclose(trace(shown, "curves", 0), table["loss"])


def test_who_has_what_is_what_was_dealt(run, shown):
    """Bubbles and bars of twenty devices, of training and of test samples, by number and alike ones together."""
    had = data_split(run.scenario)
    shown.js("document.querySelector('#data').scrollIntoView()")

    for name, part in (("test", had.test), ("train", had.train)):
        choose(shown, "data", "Show", name)
        bubbles = shown.js("const {x, y, text} = fednet.run.data.element.data[0]; return [x, y, text]")
        found = {(x, y): int(text.split(": ")[1].split()[0]) for x, y, text in zip(*bubbles, strict=True)}
        assert found == {(k, c): part.counts[c, k] for k in range(20) for c in range(10) if part.counts[c, k]}
        assert trace(shown, "data", 1) == part.sizes.tolist()
    shown.js("document.querySelector('#data input').click()")
    assert trace(shown, "data", 1) == had.train.sizes[had.train.order()].tolist()
    shown.js("document.querySelector('#data input').click()")


def test_the_timeline_has_all_transfers_and_describes_them(run, shown):
    """Its bars add up to what was sent and computed; a lost transfer says so, with its size, rate and SNR."""
    sent, made = run.transfers, run.computes
    took = """let sum = 0;
        const { activity, started, ended } = fednet.run.timeline.bars;
        activity.forEach((each, i) => { if (each === arguments[0]) sum += ended[i] - started[i] });
        return sum"""
    ups = sent[sent["direction"] == "uplink"]

    assert shown.js(took, 0) == pytest.approx((ups["ended_s"] - ups["started_s"]).sum())
    assert shown.js(took, 3) == pytest.approx((made["ended_s"] - made["started_s"])[made["device"] >= 0].sum())
    lost = ups[ups["loss_reason"] == "erased"].iloc[0]
    assert shown.js("return fednet.run.timeline.goTo(arguments[0])", int(lost["transfer"]))
    told = shown.js("return document.querySelector('#timeline p[role=status] + p').textContent")
    assert f"Transfer {lost['transfer']}: uplink of device {lost['sender']} to the server" in told
    for word in ("lost: erased", "77.1 kbit", "bit/s on average", "mean SNR", "energy"):
        assert word in told


def test_the_timeline_zooms_to_one_transfer_and_back(run, shown):
    """Buttons, wheel and keys change the window; at a transfer's time and row the pointer finds it."""
    view = "return fednet.run.timeline.view"
    everything = shown.js("fednet.run.timeline.show(0, 1e9, 0, 1e9); " + view)
    assert (everything["from"], everything["count"]) == (0, 20)
    assert everything["until"] == pytest.approx(run.summary["simulated_s"])

    press(shown, "timeline", "Zoom in")
    press(shown, "timeline", "Fewer rows")
    assert shown.js(view)["until"] - shown.js(view)["from"] == pytest.approx(everything["until"] / 2)
    assert shown.js(view)["count"] == 10
    shown.js("fednet.run.timeline.canvas.focus()")
    keys = shown.driver.switch_to.active_element
    before = shown.js(view)["from"]
    keys.send_keys("+")
    keys.send_keys("\ue014")  # arrow right
    assert shown.js(view)["from"] > before
    keys.send_keys("0")
    assert shown.js(view) == everything

    lone = run.transfers[run.transfers["direction"] == "uplink"].iloc[3]
    shown.js("fednet.run.timeline.goTo(arguments[0])", int(lone["transfer"]))
    middle_s = (lone["started_s"] + lone["ended_s"]) / 2
    code = """const t = fednet.run.timeline, c = t.canvas, v = t.view, row = t.order().indexOf(arguments[0]) - v.first;
        const x = 76 + (arguments[1] - v.from) / (v.until - v.from) * (c.clientWidth - 76);
        const y = (row + 0.5) / v.count * (c.clientHeight - 22);
        const here = t.at(x, y);
        return here.found.map((bar) => t.describe(bar, here.device));"""
    assert any(f"Transfer {lone['transfer']}:" in text for text in shown.js(code, int(lone["sender"]), middle_s))
    press(shown, "timeline", "All")


def test_rows_are_sorted_by_what_is_chosen(run, shown):
    """By speed, distance, cell and time lost; the order is that of the numbers, and of the tables."""
    order = "return fednet.run.timeline.order()"
    ups = run.transfers[(run.transfers["direction"] == "uplink") & (run.transfers["loss_reason"] != "")]
    lost_s = np.bincount(ups["sender"], ups["ended_s"] - ups["started_s"], minlength=20)

    choose(shown, "timeline", "Rows by", "lost")
    assert shown.js(order) == np.argsort(-lost_s, kind="stable").tolist()
    for key in ("speed", "distance", "cell", "waiting"):
        choose(shown, "timeline", "Rows by", key)
        assert sorted(shown.js(order)) == list(range(20))
        assert shown.js(order) != list(range(20))
    choose(shown, "timeline", "Rows by", "device")
    assert shown.js(order) == list(range(20))


def test_the_timeline_is_painted(shown):
    """The canvas is not empty: the colours of computing and of the uplink are in it, and others in the dark."""
    code = """const c = fednet.run.timeline.canvas, seen = new Set();
        const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        for (let i = 0; i < d.length; i += 4) seen.add(`${d[i]},${d[i + 1]},${d[i + 2]}`);
        const parts = (name) => [1, 3, 5].map((k) => parseInt(fednet.colour(name).slice(k, k + 2), 16)).join();
        return ["uplink", "compute", "downlink", "idle", "lost"].map((name) => seen.has(parts(name)));"""
    later = "return new Promise((done) => setTimeout(() => { %s }, 300))"

    shown.js("fednet.run.timeline.goTo(fednet.run.timeline.bars.source.find((s) => s >= 0))")
    press(shown, "timeline", "All")
    assert shown.js(later % f"done((() => {{ {code} }})())") == [True] * 5
    shown.driver.find_element("id", "theme").click()
    assert shown.js(later % f"done((() => {{ {code} }})())") == [True] * 5
    shown.driver.find_element("id", "theme").click()


def test_bars_of_devices_can_be_sorted_and_add_up(run, shown):
    """Time per device sums to the run's duration; sorted by computing, the bars fall."""
    names = shown.js("return fednet.run.time.element.data.map((each) => each.name)")
    parts = np.array([trace(shown, "time", place) for place in range(len(names))])
    np.testing.assert_allclose(parts.sum(axis=0), run.summary["simulated_s"], rtol=1e-6)
    choose(shown, "time", "Devices by", "computing")
    assert (np.diff(trace(shown, "time", names.index("computing"))) <= 0).all()
    choose(shown, "time", "Devices by", "device")


def test_the_air_is_shown_per_cell(run, shown):
    """Shares are those of the transfers of the chosen cell."""
    edges_s, uses = air_use(run.transfers, run.summary["simulated_s"])
    ups = {use.cell: use for use in uses if use.kind == "uplink"}

    assert sorted(ups) == [0, 1]
    choose(shown, "air", "Link", "uplink")
    for cell, use in ups.items():
        choose(shown, "air", "Cell", str(cell))
        np.testing.assert_allclose(trace(shown, "air", 1), 100 * use.one, atol=1e-4)
    assert len(edges_s) == len(ups[0].one) + 1


def test_devices_move_on_the_map(run, shown):
    """The slider moves the devices to where the scenario has them; links, colours and stations follow."""
    slide = """const box = document.querySelector("#map input[type=range]");
        box.value = arguments[0];
        box.dispatchEvent(new Event("input"));
        const data = fednet.run.map.element.data;
        return [data.find((each) => each.name === "devices").x, data.find((each) => each.name === "stations").x]"""
    seen = Scene.of(run)
    for step in (0, len(seen.times_s) - 1):
        devices, stations = shown.js(slide, step)
        np.testing.assert_allclose(devices, seen.x_m[step], atol=0.006)
        assert stations == [-150.0, 150.0]
    choose(shown, "map", "Colour by", "snr_db")
    colours = shown.js('return fednet.run.map.element.data.find((each) => each.name === "devices").marker.color')
    np.testing.assert_allclose(colours, seen.snr_db[-1], rtol=1e-5)
    for text in ("links to stations", "transfers under way"):
        shown.js(
            """const labels = [...document.querySelectorAll('#map label')];
            labels.find((each) => each.textContent === arguments[0]).box.click()""",
            text,
        )
    assert len(shown.js("return fednet.run.map.element.data[0].x")) == 60
    during = int(len(seen.times_s) * 0.4)
    shown.js(slide, during)
    assert shown.js("return fednet.run.map.state.under_way") > 0


def test_energy_losses_and_distributions_are_those_of_the_tables(run, shown):
    """Joules per device, lost transfers by reason, and the number of rounds in the histogram of latencies."""
    ups = run.transfers[run.transfers["direction"] == "uplink"]
    joules = np.bincount(ups["sender"], ups["energy_j"], minlength=20)
    names = shown.js("return fednet.run.energy.element.data.map((each) => each.name)")
    bars = np.array(trace(shown, "energy", names.index("sending up")))

    np.testing.assert_allclose(bars / bars.sum(), joules / joules.sum())
    assert trace(shown, "losses", 0, "x") == [int((ups["loss_reason"] != "").sum())]
    assert trace(shown, "losses", 0) == ["erased"]
    np.testing.assert_allclose(np.sum(trace(shown, "spreads.latency", 0)) / 2, 100)
    delivered = np.bincount(ups["sender"][ups["loss_reason"] == ""], minlength=20)
    assert trace(shown, "fairness", 0) == sorted(delivered.tolist(), reverse=True)


def test_tables_can_be_saved(run, shown):
    """The CSV of the transfers has the rows of the table, to the nanosecond."""
    import io

    import pandas as pd

    choose(shown, "tables", "Table", "transfers")
    saved = pd.read_csv(io.StringIO(shown.js("return fednet.run.tables.table.csv()")), keep_default_na=False)
    for column in ("sender", "receiver", "size_bit", "loss_reason", "cell"):
        assert saved[column].tolist() == run.transfers[column].tolist()
    np.testing.assert_allclose(saved["ended_s"], run.transfers["ended_s"], rtol=0, atol=1.1e-9)
    choose(shown, "tables", "Table", "evaluations")
    saved = pd.read_csv(io.StringIO(shown.js("return fednet.run.tables.table.csv()")))
    np.testing.assert_allclose(saved["accuracy"], run.evaluations["accuracy"])


def test_everything_can_be_reached_with_the_keyboard(shown):
    """Tab leads from the link to the content to the theme and on to the contents; no control or figure is left out."""
    focus = "return document.activeElement.id || document.activeElement.textContent"

    def press_key(key):
        shown.driver.switch_to.active_element.send_keys(key)
        return shown.js(focus)

    shown.js("document.querySelector('.skip').focus()")
    assert press_key("\ue004") == "theme"
    before = shown.js("return document.documentElement.dataset.theme")
    press_key(" ")
    assert shown.js("return document.documentElement.dataset.theme") != before
    press_key(" ")
    assert press_key("\ue004") == "What happened"
    reachable = shown.js(
        """const all = [...document.querySelectorAll("button, select, input, canvas[role=application], .figure")];
        return all.filter((each) => each.offsetParent).map((each) => each.tabIndex)"""
    )
    assert len(reachable) > 40
    assert min(reachable) >= 0


def test_the_pointer_moves_zooms_and_asks(shown):
    """Dragging moves the window, the wheel zooms once the timeline has the focus, and hovering tells what is there."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    canvas = shown.js("fednet.run.timeline.show(0, 1, 0, 20); return fednet.run.timeline.canvas")
    shown.js("arguments[0].scrollIntoView({ block: 'center' })", canvas)
    view = "return fednet.run.timeline.view"
    before = shown.js(view)
    ActionChains(shown.driver).drag_and_drop_by_offset(canvas, -200, 0).perform()
    moved = shown.js(view)
    assert moved["from"] == pytest.approx(
        200 / (shown.js("return fednet.run.timeline.canvas.clientWidth") - 76), rel=0.02
    )
    assert moved["until"] - moved["from"] == pytest.approx(before["until"] - before["from"])

    assert shown.js("return document.activeElement === fednet.run.timeline.canvas")
    ActionChains(shown.driver).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -300).perform()
    zoomed = shown.js(view)
    assert zoomed["until"] - zoomed["from"] == pytest.approx(0.8 * (moved["until"] - moved["from"]))

    code = """const t = fednet.run.timeline, v = t.view, c = t.canvas, box = c.getBoundingClientRect();
        const row = t.order().indexOf(arguments[0]);
        const x = 76 + (arguments[1] - v.from) / (v.until - v.from) * (c.clientWidth - 76) - c.clientWidth / 2;
        return [Math.round(x), Math.round((row + 0.5) / v.count * (c.clientHeight - 22) - c.clientHeight / 2)]"""
    made = shown.js(
        "return [fednet.document.timeline.computes.device[0], fednet.document.timeline.computes.started[0]]"
    )
    took = shown.js("return fednet.document.timeline.computes.took[0]")
    shown.js("fednet.run.timeline.show(arguments[0] * 1e-9, arguments[1] * 1e-9)", made[1] - took, made[1] + 2 * took)
    x, y = shown.js(code, made[0], (made[1] + took / 2) * 1e-9)
    ActionChains(shown.driver).move_to_element_with_offset(canvas, x, y).perform()
    assert f"Computation of device {made[0]}" in shown.js("return document.querySelector('.tip').textContent")
    assert not shown.js("return document.querySelector('.tip').hidden")
    press(shown, "timeline", "All")
