"""The commands of `timerl`, one module each; `main` selects the module."""

from timerl_nb.cli.main import main

__all__ = ["main"]
