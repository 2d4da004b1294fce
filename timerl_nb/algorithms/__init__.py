"""Complete algorithms, written to be read and copied (`trl.algorithms`). Each function returns a context to compile."""

from collections.abc import Mapping
from typing import Final

from timerl_nb.algorithms.clipped_ppo import clipped_ppo
from timerl_nb.algorithms.ddpg import ddpg
from timerl_nb.algorithms.dqn import dqn
from timerl_nb.algorithms.ppo_single_epoch import ppo
from timerl_nb.algorithms.reinforce import reinforce
from timerl_nb.compiler.language.foreign_names import module_names as _module_names

__all__ = ["clipped_ppo", "ddpg", "dqn", "ppo", "reinforce"]

_READY: Final = f"it is not written yet; available are {', '.join(__all__)}."
_NOT_YET: Final[Mapping[str, str]] = dict.fromkeys(("a2c",), _READY)

__getattr__, __dir__ = _module_names("trl.algorithms", lambda: __all__, _NOT_YET)
