"""Hyper-parameter search (`trl.tune`) with Optuna and Ray Tune."""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.tune.optuna_objective import objective
from timerl_nb.tune.ray_trainable import trainable

__all__ = ["objective", "trainable"]

__getattr__, __dir__ = _module_names("trl.tune", lambda: __all__)
