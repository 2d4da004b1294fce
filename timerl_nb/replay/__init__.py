"""What was collected, remembered and drawn again (`trl.replay`)."""

from timerl_nb.replay.buffer import Replay
from timerl_nb.replay.priority import Proportional
from timerl_nb.replay.sample import Sample, Ticket
from timerl_nb.replay.sum_tree import SumTree

__all__ = ["Proportional", "Replay", "Sample", "SumTree", "Ticket"]
