"""`timerl lab`: starts JupyterLab, reachable from this machine only."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from timerl_nb.base.errors import MissingPartError
from timerl_nb.cli.support.argument_parser import Parser
from timerl_nb.cli.support.source_checkout import foreground, in_checkout

_EXAMPLES: Final = """  timerl lab                     opens the lessons of a checkout, otherwise this folder
  timerl lab -- --no-browser --port 9000

The page asks for the token that JupyterLab prints. Other machines cannot connect.
"""


def main(words: Sequence[str]) -> int:
    """Run `timerl lab`."""
    parser = Parser("lab", "Open JupyterLab. Arguments after -- go to JupyterLab.", _EXAMPLES)
    cut = words.index("--") if "--" in words else len(words)
    parser.parse_words(words[:cut])
    return foreground(command(words[cut + 1 :]))


def command(more: Sequence[str] = ()) -> list[str]:
    """Return the command line that starts JupyterLab.

    Raises:
        MissingPartError: JupyterLab is not installed.
    """
    if find_spec("jupyterlab") is None:
        raise MissingPartError(
            "JupyterLab is not installed.",
            hint="run pip install 'timerl-nb[lab]', then `timerl lab`.",
        )
    # containers often run as root, which Jupyter refuses by default
    root = ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    lessons = in_checkout("notebooks/00_the_one_line_change.ipynb")
    opened = [str(lessons)] if lessons is not None else []
    return [sys.executable, "-P", "-m", "jupyterlab", "--ip=127.0.0.1", *root, *opened, *more]
