"""How Sphinx builds the site: `make docs`."""

import sys
from pathlib import Path

from sphinx.ext.napoleon.docstring import GoogleDocstring

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "ext"), str(HERE.parent)]

import inventories  # noqa: E402  (the paths come first)

from fednet_emu import __version__  # noqa: E402

project = "fednet_emu"
author = "The fednet_emu authors"
copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "settings_reference",
    "record_tables",
    "command_reference",
    "profile_tables",
    "house_drawing",
    "api_examples",
    "code_links",
    "measured",
    "plausible_bounds",
    "short_names",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "ext", "examples", "gallery/**/*.ipynb", "gallery/**/*.py", "_templates"]
default_role = "code"  # single backticks in docstrings
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"fednet_emu\.\w+\.\w+.*"),  # types of the package that users get and never make
    (r"py:.*", r"[A-Z]\w+"),  # the same, where an annotation has the bare name
]
templates_path = ["_templates"]
autosummary_filename_map = {"fednet_emu.Run": "fednet_emu.Run-class", "fednet_emu.Search": "fednet_emu.Search-class"}
"""File systems that ignore case would take `Run` for `run`."""
intersphinx_mapping = inventories.write(HERE / "_build/inventories")  # stored here: a build needs no network
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["config.cache"]

autodoc_member_order = "bysource"
autodoc_class_signature = "separated"  # nobody makes a Federation by hand
autodoc_default_options = {"exclude-members": "model_config, model_post_init, __init__, __new__"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True

html_theme = "pydata_sphinx_theme"
html_title = "fednet_emu"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["filter.js"]
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "subsection_order": [f"examples/{group}" for group in ("network", "learning", "methods", "results")],
    "within_subsection_order": "FileNameSortKey",
    "ignore_repr_types": r"matplotlib|Figure",  # figures are pictures, and legends are nothing to print
    "image_scrapers": ("matplotlib", "gallery_figures"),
    "image_srcset": ["2x"],
    "matplotlib_animations": False,
    "show_memory": False,
    "min_reported_time": 0,
    "write_computation_times": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "nested_sections": False,
}


def _as_it_stands(docstring: GoogleDocstring) -> list[str]:
    """A property's docstring whole: napoleon would take its words before a colon for a type."""
    return docstring._consume_to_end()


def _returned(docstring: GoogleDocstring, preprocess_types: bool = False) -> list[tuple[str, str, list[str]]]:
    """What a function returns, whole, for the same reason; its type is in the signature."""
    return [("", "", docstring._dedent(docstring._consume_to_next_section()))]


GoogleDocstring._parse_attribute_docstring = _as_it_stands
GoogleDocstring._consume_returns_section = _returned
