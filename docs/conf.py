"""Sphinx configuration of the documentation site: `make docs` builds it into `build/docs`.

Sphinx reads only files below its source folder, so notebooks are copied there at build time. API pages are generated
from the public names of each module (`docs/api_pages.py`). Both copies are ignored by git.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "widgets")]

import api_pages  # noqa: E402

project = "TimeRL-nb"
author = "the TimeRL-nb authors"
copyright = "2026, the TimeRL-nb authors"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["**/README.notes.md"]
html_theme = "furo"  # light and dark, chosen by the reader's system
html_title = project
html_static_path: list[str] = []
html_copy_source = False
# Nothing is fetched from other hosts, so that the site can be read offline.
html_theme_options = {"footer_icons": [], "navigation_with_keys": True}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "mystnb.unknown_mime_type"]
# TIMERL_DOCS_NOTEBOOKS=off renders the tutorials without their outputs; CI runs the notebooks on their own.
nb_execution_mode = "off" if os.environ.get("TIMERL_DOCS_NOTEBOOKS") == "off" else "cache"
nb_execution_timeout = 600
nb_execution_raise_on_error = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the sections Args and Returns state types in words
autodoc_preserve_defaults = True
autoclass_content = "class"
default_role = "py:obj"  # `name` links to the API where such a name exists
napoleon_numpy_docstring = False
napoleon_use_rtype = False
toc_object_entries_show_parents = "hide"
add_module_names = False


def copy_sources(app: Any) -> None:
    tutorials = HERE / "tutorials"
    tutorials.mkdir(exist_ok=True)
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy2(notebook, tutorials / notebook.name)
    api_pages.write_pages(HERE / "reference" / "api")


def setup(app: Any) -> None:
    app.connect("builder-inited", copy_sources)
