"""Collection of environment steps by the fastest applicable strategy (`trl.collect`; paper 001).

Entry point: `collector.collect`. `strategy_selection` measures the strategies and remembers the fastest.
Papers: docs/references.md.
"""

from timerl_nb.collecting.batch import Batch, Final
from timerl_nb.collecting.collector import Collector, collect

__all__ = ["Batch", "Collector", "Final", "collect"]
