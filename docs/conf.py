"""Sphinx configuration of the documentation site, which `docs/build_site.py` builds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "widgets")]

project = html_title = "TimeRL-nb"
author = "the TimeRL-nb authors"
copyright = "2026, the TimeRL-nb authors"
root_doc = "docs/index"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
html_theme = "furo"  # light and dark, as the reader's system asks
html_copy_source = False
html_static_path = ["site"]
html_css_files = ["theme.css"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
# Pygments has no lexer for the diagram of ARCHITECTURE.md; two classes have a method `read`.
suppress_warnings = ["misc.highlighting_failure", "mystnb.unknown_mime_type", "ref.python"]
nb_execution_mode = "cache" if os.environ.get("TIMERL_DOCS_OUTPUTS") == "1" else "off"
nb_execution_cache_path = str(ROOT / "build" / "notebook-cache")
nb_execution_timeout = 600
nb_execution_raise_on_error = True
# Pages show the pictures of widgets. Scripts and states would load libraries from other machines.
nb_mime_priority_overrides = [("html", "image/svg+xml", 0)]
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
NotebookClient.set_widgets_metadata = lambda self: None

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the sections Args and Returns state types in words
autodoc_preserve_defaults = True
default_role = "py:obj"  # `name` links to the API where such a name exists
napoleon_numpy_docstring = False
napoleon_use_rtype = False
add_module_names = False
toc_object_entries_show_parents = "hide"
