"""Claims about the figures of who has what."""

import numpy as np
import pytest

from fednet_emu.analysis.data_split import DataSplit, Part
from fednet_emu.draw.figures.data_split import MOST_BUBBLES, split_figures
from fednet_emu.draw.figures.page import fit_to_page, numbers_of
from fednet_emu.draw.figures.run_figures import save
from tests.quick import crossed


def labelled(devices, labels=3, seed=0):
    """Random counts; the last device has nothing."""
    counts = np.random.default_rng(seed).integers(0, 50, (labels, devices))
    counts[:, -1] = 0
    return Part(counts.sum(axis=0), counts)


NOTHING = Part(np.zeros(4, np.int64), np.zeros((3, 4), np.int64))


def test_areas_of_bubbles_are_numbers_of_samples():
    """One for each label that a device has; the bars above are the sizes."""
    part = labelled(5)
    figure = split_figures(DataSplit(part, labelled(5, seed=1)))["data"]
    above, below = figure.axes
    (bubbles,) = below.collections
    device, label = bubbles.get_offsets().T.astype(int)
    area = bubbles.get_sizes() / part.counts[label, device]

    assert len(area) == np.count_nonzero(part.counts)
    np.testing.assert_allclose(area, area[0])
    assert [bar.get_height() for bar in above.patches] == part.sizes.tolist()


def test_the_legend_has_the_areas_of_the_bubbles():
    """Its numbers of samples have the area that so many have in the figure."""
    part = Part(np.array([80, 40]), np.array([[80, 40]]))
    figure = split_figures(DataSplit(part, part))["data"]
    areas = {text.split()[0]: handle.get_markersize() ** 2 for text, handle in zip(
        figure.entries.labels, figure.entries.handles, strict=True
    )}  # fmt: skip

    biggest = figure.axes[1].collections[0].get_sizes().max()
    assert areas == {"10": pytest.approx(biggest / 8), "50": pytest.approx(biggest * 5 / 8)}


def test_many_devices_are_shades_in_one_order():
    """Shares of the labels, ordered alike in both figures as the training samples are."""
    train, test = labelled(MOST_BUBBLES + 1), labelled(MOST_BUBBLES + 1, seed=1)
    drawn, order = split_figures(DataSplit(train, test)), train.order()

    for name, part in (("data", train), ("data-test", test)):
        above, below = drawn[name].axes[:2]
        rows = np.asarray(below.images[0].get_array())
        np.testing.assert_array_equal(rows, np.repeat(part.shares[:, order], len(rows) // 3, axis=0))
        np.testing.assert_array_equal(above.patches[0].get_data().values, part.sizes[order])
    assert "ordered by their most frequent label" in below.get_xlabel()


@pytest.mark.parametrize(("devices", "kind"), crossed([10, 100, 1000], ["labels", "targets", "sizes"]))
def test_every_form_is_drawn_and_written(tmp_path, devices, kind):
    """In both widths, with its numbers as a table."""
    sizes, spread = np.arange(devices), np.sort(np.random.default_rng(0).normal(size=(5, devices)), axis=0)
    spread[:, 0] = np.nan
    part = labelled(devices, 62) if kind == "labels" else Part(sizes, targets=spread if kind == "targets" else None)
    drawn = split_figures(DataSplit(part, part))
    for figure in drawn.values():
        fit_to_page(figure, "two-column", "Who has what")

    files = save(drawn, tmp_path, ["svg"], csv=True)
    assert sorted(path.name for path in files) == ["data-test.csv", "data-test.svg", "data.csv", "data.svg"]
    assert numbers_of(drawn["data"])["samples"].sum() == part.sizes.sum()


def test_without_test_samples_there_is_one_figure():
    """As with natural groups that only training samples have."""
    assert list(split_figures(DataSplit(labelled(4), NOTHING))) == ["data"]
