"""Plots of how samples are distributed over devices, which `fednet plot --data` draws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fednet_emu.cli.options import OUTPUT, Page
from fednet_emu.errors import FednetError


def plot(sources: Sequence[Path], out: Path | None, changes: Sequence[str], data_dir: Path | None, page: Page) -> None:
    """Draw how the samples of a scenario or run are distributed over devices, and print the files."""
    if len(sources) != 1:
        raise FednetError(f"--data: shows the data of one run or scenario, got {len(sources)}; give one")
    from fednet_emu.results.data_split import data_figures

    source = sources[0]
    figures = data_figures(str(source), changes, data_dir)
    for path in page.write(figures, out or (source / "figures" if source.is_dir() else Path("figures"))):
        OUTPUT.out(str(path))
