"""Claims about what every page offers, in a real browser."""

import numpy as np
import pytest

from fednet_emu.draw.page import document

SCRIPT = """
fednet.page((told) => {
  const place = fednet.section("some", "Some numbers", "All of them.");
  window.table = fednet.table(place, "numbers", [
    { key: "name", title: "Name", values: told.names },
    { key: "size_bit", title: "Size", values: told.sizes, show: units.bits },
  ]);
  window.figure = fednet.figure(place, "sizes", () => ({ data: [{ x: told.times, y: told.sizes }] }));
});
"""
TIMES = np.array([3, 5, 1_000_000_000_007])


@pytest.fixture(scope="module")
def shown(browser, tmp_path_factory):
    read, folder = document.browser_file, tmp_path_factory.mktemp("frame")
    told = {"names": ["b", "a", "c, d"], "sizes": np.array([1e6, np.nan, 2.5e3]), "times": TIMES}
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(document, "browser_file", lambda name: SCRIPT if name == "some.js" else read(name))
        return browser.open(document.write_page(folder / "page.html", "Some page", told, ["some.js"]))


def names(shown):
    """The first column of the table on the page."""
    return shown.js("return [...document.querySelectorAll('tbody tr')].map((row) => row.cells[0].textContent)")


def test_it_opens_without_a_complaint_and_asks_nobody(shown):
    """One address is asked for, that of the file, and the console stays empty."""
    asked, errors = shown.notes()

    assert [url.split(":")[0] for url in asked if not url.startswith(("data:", "blob:"))] == ["file"]
    assert errors == []


def test_numbers_arrive_in_figures(shown):
    """Plotly's traces hold the numbers that Python packed."""
    assert shown.js("return Array.from(figure.element.data[0].x)") == TIMES.tolist()
    assert shown.js("return Array.from(figure.element.data[0].y, (y) => Number.isNaN(y) ? null : y)") == [
        1e6,
        None,
        2500,
    ]


def test_tables_sort_filter_and_save(shown):
    """Unknown values come last either way; the filter looks into all columns; CSV quotes commas."""
    size = "document.querySelectorAll('thead button')[1].click()"

    assert names(shown) == ["b", "a", "c, d"]
    shown.js(size)
    assert names(shown) == ["b", "c, d", "a"]
    shown.js(size)
    assert names(shown) == ["c, d", "b", "a"]
    assert shown.js("return table.csv()") == 'name,size_bit\n"c, d",2500\nb,1000000\na,\n'
    shown.driver.find_element("css selector", "input[type=search]").send_keys("mbit")
    shown.driver.implicitly_wait(0)
    assert shown.js("return new Promise((done) => setTimeout(() => done(table.rows()), 400))") == [0]


def test_the_theme_changes_page_and_figures(shown):
    """Light and dark differ in the colours of the page and of Plotly's text."""
    look = "return [getComputedStyle(document.body).backgroundColor, figure.element._fullLayout.font.color]"
    before = shown.js(look)
    shown.driver.find_element("id", "theme").click()
    after = shown.js(look)

    assert before[0] != after[0]
    assert before[1] != after[1]


def test_the_keyboard_zooms_a_figure(shown):
    """With a figure in focus, plus halves its x-axis, and 0 shows all."""
    width = "const [a, b] = figure.element._fullLayout.xaxis.range.map(Number); return b - a"
    before = shown.js(width)
    shown.driver.execute_script("figure.element.focus()")
    shown.driver.switch_to.active_element.send_keys("+")

    assert shown.js(width) == pytest.approx(before / 2)
    shown.driver.switch_to.active_element.send_keys("0")
    assert shown.js(width) == pytest.approx(before)
