"""Collecting steps of environments, the fastest way that applies (`trl.collect`)."""

from timerl_nb.collecting.batch import Batch, Final
from timerl_nb.collecting.collector import Collector, collect

__all__ = ["Batch", "Collector", "Final", "collect"]
