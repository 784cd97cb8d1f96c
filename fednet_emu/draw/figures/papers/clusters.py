"""Plot the learned weights of pairs of devices over rounds, as heat maps and as an animation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from fednet_emu.arrays import Array
from fednet_emu.draw.style import SMALL_PT, WIDTH_IN, new_figure, paper_style, wrapped

SNAPSHOTS = 4
"""Number of heat maps per run: for the first and the last recorded round, and for evenly spaced rounds between them."""
TIED = 0.5
FRAMES_PER_S = 4
RESOLUTION_DPI = 150


def weights_figure(weights: Sequence[tuple[str, pd.DataFrame]]) -> Figure:
    """Plot the weights of all pairs of devices in some rounds, one row of heat maps per run.

    Args:
        weights: label and series `weights` of each run, with the columns round, i, j and weight. Each pair of devices
            has one row per recorded round.
    """
    panel_in = WIDTH_IN / SNAPSHOTS
    figure = new_figure(len(weights) * (panel_in + 0.25) + 0.3)
    rows = figure.subplots(len(weights), SNAPSHOTS, squeeze=False)
    for axes, (label, table) in zip(rows, weights, strict=True):
        rounds, matrices = weight_matrices(table)
        chosen = np.unique(np.linspace(0, len(rounds) - 1, SNAPSHOTS).round().astype(int))
        for place, one in enumerate(axes):
            if place < len(chosen):
                image = _draw(one, matrices[chosen[place]], rounds[chosen[place]])
            else:
                one.set_axis_off()
        axes[0].set_ylabel(wrapped(label) if len(weights) > 1 else "Device", fontsize=SMALL_PT)
    bar = figure.colorbar(image, ax=rows, location="bottom", fraction=0.06, pad=0.04, aspect=40)
    bar.set_label("Weight of a pair", fontsize=SMALL_PT)
    bar.ax.tick_params(labelsize=SMALL_PT)
    return figure


def write_weights_animation(weights: pd.DataFrame, path: Path) -> None:
    """Write an animated GIF of the weights, one frame per recorded round.

    Args:
        weights: series `weights` of one run.
        path: the GIF file, whose name ends in .gif.
    """
    rounds, matrices = weight_matrices(weights)
    with paper_style():
        figure = new_figure(WIDTH_IN)
        axes = figure.add_subplot()
        image = _draw(axes, matrices[0], rounds[0])
        axes.set(xlabel="Device", ylabel="Device")

        def show(frame: int) -> tuple[AxesImage]:
            image.set_data(matrices[frame])
            axes.set_title(f"Round {rounds[frame]}")
            return (image,)

        FuncAnimation(figure, show, frames=len(rounds)).save(path, PillowWriter(FRAMES_PER_S), dpi=RESOLUTION_DPI)


def weight_matrices(weights: pd.DataFrame) -> tuple[list[int], Array]:
    """Return the recorded rounds, and the symmetric weights [rounds, devices, devices] after these rounds.

    Devices are ordered by their clusters in the last recorded round, so clusters are blocks on the diagonal.
    """
    devices = np.union1d(weights["i"], weights["j"])
    rounds, record = np.unique(weights["round"], return_inverse=True)
    i, j = (np.searchsorted(devices, weights[side]) for side in "ij")
    matrices = np.tile(np.eye(len(devices)), (len(rounds), 1, 1))
    matrices[record, i, j] = matrices[record, j, i] = weights["weight"]
    order = np.argsort((matrices[-1] > TIED).argmax(1), kind="stable")
    return [int(number) for number in rounds], matrices[:, order][:, :, order]


def _draw(axes: Axes, matrix: Array, number: int) -> AxesImage:
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"Round {number}", fontsize=SMALL_PT)
    return axes.imshow(matrix, vmin=0.0, vmax=1.0, cmap="viridis", interpolation="nearest")
