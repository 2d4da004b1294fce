"""What was collected, remembered and drawn again (`trl.replay`)."""

from timerl_nb.frontend.foreign import module_names as _module_names
from timerl_nb.replay.buffer import Replay
from timerl_nb.replay.priority import Proportional
from timerl_nb.replay.sample import Sample, Ticket
from timerl_nb.replay.sum_tree import SumTree

__all__ = ["Proportional", "Replay", "Sample", "SumTree", "Ticket"]

__getattr__, __dir__ = _module_names("trl.replay", lambda: __all__)
