"""Image scraper for Sphinx-Gallery: save the figure that is the value of the last line of a code block."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def shown_figure(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figure that is the value of the last line of a code block.

    Sphinx-Gallery's own scraper saves figures of pyplot.

    Returns:
        The reStructuredText that shows the figure; empty if the block does not end with a new figure.
    """
    figure = block_vars["example_globals"].get("___")  # the value of the latest block that ended with one
    if not isinstance(figure, Figure) or figure.canvas.manager is not None or figure.get_gid() == "shown":
        return ""
    figure.set_gid("shown")
    path = next(block_vars["image_path_iterator"])
    figure.savefig(path, dpi=150, bbox_inches="tight")
    return figure_rst([path], str(gallery_conf["src_dir"]))


def _get_sg_image_scraper() -> Any:
    return shown_figure
