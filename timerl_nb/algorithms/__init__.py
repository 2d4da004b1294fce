"""Complete algorithms, written to be read and copied (`trl.algorithms`). Each function returns a context to compile."""

from timerl_nb.algorithms.a2c import a2c
from timerl_nb.algorithms.clipped_ppo import clipped_ppo
from timerl_nb.algorithms.ddpg import ddpg
from timerl_nb.algorithms.dqn import dqn
from timerl_nb.algorithms.evolution_strategies import evolution_strategies
from timerl_nb.algorithms.impala import impala
from timerl_nb.algorithms.ppo_single_epoch import ppo
from timerl_nb.algorithms.r2d2 import r2d2
from timerl_nb.algorithms.recurrent_ppo import recurrent_ppo
from timerl_nb.algorithms.reinforce import reinforce
from timerl_nb.algorithms.sac import sac
from timerl_nb.algorithms.td3 import td3
from timerl_nb.compiler.language.foreign_names import module_names as _module_names

__all__ = [
    "a2c",
    "clipped_ppo",
    "ddpg",
    "dqn",
    "evolution_strategies",
    "impala",
    "ppo",
    "r2d2",
    "recurrent_ppo",
    "reinforce",
    "sac",
    "td3",
]

__getattr__, __dir__ = _module_names("trl.algorithms", lambda: __all__)
