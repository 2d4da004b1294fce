"""Collection of environment steps by the fastest applicable strategy (`trl.collect`).

`collector.collect` is the entry point. `strategy_selection` measures the strategies and caches the
result. Source: Optimizing Data Collection; see docs/references.md.
"""

from timerl_nb.collecting.batch import Batch, Final, Restart
from timerl_nb.collecting.collector import Collector, collect

__all__ = ["Batch", "Collector", "Final", "Restart", "collect"]
