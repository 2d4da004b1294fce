"""What was collected, remembered and drawn again (`trl.replay`)."""

from timerl_nb.frontend.foreign import module_names as _module_names
from timerl_nb.replay.algorithm import Algorithm
from timerl_nb.replay.allocation import Allocation, BySpeed, Latencies, Move, Stepwise
from timerl_nb.replay.buffer import Replay
from timerl_nb.replay.dqn import Dqn
from timerl_nb.replay.in_program import InProgram
from timerl_nb.replay.priority import Proportional
from timerl_nb.replay.sample import Sample, Ticket
from timerl_nb.replay.sum_tree import SumTree
from timerl_nb.replay.train import Training, train
from timerl_nb.rl.device_tree import DeviceTree, Draws, device_tree
from timerl_nb.rl.window import Window, window

__all__ = [
    "Algorithm",
    "Allocation",
    "BySpeed",
    "DeviceTree",
    "Dqn",
    "Draws",
    "InProgram",
    "Latencies",
    "Move",
    "Proportional",
    "Replay",
    "Sample",
    "Stepwise",
    "SumTree",
    "Ticket",
    "Training",
    "Window",
    "device_tree",
    "train",
    "window",
]

__getattr__, __dir__ = _module_names("trl.replay", lambda: __all__)
