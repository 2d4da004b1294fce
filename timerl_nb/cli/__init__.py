"""The commands of `timerl`, one module each. `main` maps names to modules."""

from timerl_nb.cli.main import main

__all__ = ["main"]
