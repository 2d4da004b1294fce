"""Ready programs, meant to be read (`trl.algorithms`): each returns a context to compile."""

from timerl_nb.algorithms.clipped import clipped_ppo
from timerl_nb.algorithms.ppo import ppo
from timerl_nb.algorithms.reinforce import reinforce

__all__ = ["clipped_ppo", "ppo", "reinforce"]
