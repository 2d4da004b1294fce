"""Optimisers and learning-rate schedules as recurrence equations (`trl.optim`)."""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.optim import schedules
from timerl_nb.optim.optimizer import Optimizer
from timerl_nb.optim.update_rules import SGD, Adam, AdamW, RMSProp

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "RMSProp", "schedules"]

__getattr__, __dir__ = _module_names("trl.optim", lambda: __all__)
