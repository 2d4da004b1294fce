"""Replay buffer, prioritised sampling and parallel off-policy training (`trl.replay`).

Source: PEARL.
"""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.replay.distributed.lost_rows import ProcessLoss
from timerl_nb.replay.prioritization.priorities import Proportional
from timerl_nb.replay.prioritization.sum_tree import SumTree
from timerl_nb.replay.storage.hindsight import Hindsight
from timerl_nb.replay.storage.program_buffer import InProgram
from timerl_nb.replay.storage.rate_limits import LinearSchedule, SampleToInsertRatio
from timerl_nb.replay.storage.replay_buffer import Replay
from timerl_nb.replay.storage.sample import Sample, Ticket
from timerl_nb.replay.storage.sequences import Sequences
from timerl_nb.replay.training.algorithm import Algorithm
from timerl_nb.replay.training.ddpg_algorithm import Ddpg, Td3
from timerl_nb.replay.training.dqn_algorithm import Dqn
from timerl_nb.replay.training.sac_algorithm import Sac
from timerl_nb.replay.training.thread_allocation import (
    Allocation,
    BySpeed,
    Latencies,
    Move,
    Stepwise,
)
from timerl_nb.replay.training.training_run import Training, train
from timerl_nb.rl.in_program_priority_tree import DeviceTree, Draws, device_tree
from timerl_nb.rl.replay_window import Window, window

__all__ = [
    "Algorithm",
    "Allocation",
    "BySpeed",
    "Ddpg",
    "DeviceTree",
    "Dqn",
    "Draws",
    "Hindsight",
    "InProgram",
    "Latencies",
    "LinearSchedule",
    "Move",
    "ProcessLoss",
    "Proportional",
    "Replay",
    "Sac",
    "Sample",
    "SampleToInsertRatio",
    "Sequences",
    "Stepwise",
    "SumTree",
    "Td3",
    "Ticket",
    "Training",
    "Window",
    "device_tree",
    "train",
    "window",
]

__getattr__, __dir__ = _module_names("trl.replay", lambda: __all__)
