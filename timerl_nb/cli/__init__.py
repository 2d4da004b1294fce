"""The commands of `timerl`: training, looking into scripts, and what stands beside (`main`)."""

from timerl_nb.cli.main import main

__all__ = ["main"]
