"""Build the documentation site into `build/site`: `make docs`.

Sphinx reads the files below one source folder, and pages link to notebooks and to pages at the top of the repository.
The source folder is therefore `build/site-source`, with copies of them and with the generated API pages.

Usage: python -m docs.build_site [--without-outputs] [--plain]
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from docs.api_pages import write_pages

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
PLAIN = ROOT / "build" / "site-plain"
COPIED = ["docs", "notebooks", "datasets/README.md", "widgets/NOTICES.md", "LICENSE"]
REDIRECT = '<meta http-equiv="refresh" content="0; url=docs/index.html"><a href="docs/index.html">TimeRL-nb</a>\n'


def copy_sources() -> None:
    """Fill the source folder. Copies keep their times, by which Sphinx finds the pages that changed."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    pages = [path.name for path in ROOT.glob("*.md")]
    for name in [*COPIED, *pages]:
        target = SOURCE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, target)
    write_pages(SOURCE / "api")


def build(*, with_outputs: bool, plain: bool) -> int:
    """Build the site and return Sphinx's exit status; every warning is an error.

    Args:
        with_outputs: whether to run the notebooks for their outputs. Results are cached in `build/`, so that
            only changed notebooks run again.
        plain: whether to write pages without the theme into `build/site-plain`, for tests. The theme writes a list
            of all pages into every page, which takes most of the time.
    """
    copy_sources()
    os.environ["TIMERL_DOCS_OUTPUTS"] = str(int(with_outputs))
    os.environ["PLOTLY_RENDERER"] = "notebook"  # figures as HTML: MyST-NB omits plotly's own type
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(ROOT / "build" / "site-cache")]
    site = PLAIN if plain else SITE
    options += ["-D", "html_theme=basic"] if plain else []
    status = build_main([*options, "-c", str(ROOT / "docs"), str(SOURCE), str(site)])
    (site / "index.html").write_text(REDIRECT)
    return status


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(build(with_outputs="--without-outputs" not in words, plain="--plain" in words))
