"""`timerl lab`: JupyterLab on this machine alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from timerl_nb.base.errors import MissingPartError
from timerl_nb.cli.support.argument_parser import Parser
from timerl_nb.cli.support.source_checkout import foreground, in_checkout

_EXAMPLES: Final = """  timerl lab                     the lessons in a checkout, otherwise this folder
  timerl lab -- --no-browser --port 9000

The page asks for the token that JupyterLab prints. Nobody reaches it from another machine.
"""


def main(words: Sequence[str]) -> int:
    """Lab: see the module."""
    parser = Parser("lab", "Open JupyterLab; words behind -- are its own.", _EXAMPLES)
    cut = words.index("--") if "--" in words else len(words)
    parser.parse_words(words[:cut])
    return foreground(command(words[cut + 1 :]))


def command(more: Sequence[str] = ()) -> list[str]:
    """What opens JupyterLab.

    Raises:
        MissingPartError: it is not installed.
    """
    if find_spec("jupyterlab") is None:
        raise MissingPartError(
            "JupyterLab is not installed.", hint="pip install 'timerl-nb[lab]', then `timerl lab`."
        )
    # in containers one is often root, which Jupyter refuses unless told
    root = ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    lessons = in_checkout("notebooks/00_the_one_line_change.ipynb")
    opened = [str(lessons)] if lessons is not None else []
    return [sys.executable, "-P", "-m", "jupyterlab", "--ip=127.0.0.1", *root, *opened, *more]
