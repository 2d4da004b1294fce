"""Loggers of runs (`trl.logs`) for TensorBoard and Weights & Biases."""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.execution.logging.run_logger import Logger
from timerl_nb.logs.tensorboard import tensorboard
from timerl_nb.logs.weights_and_biases import wandb

__all__ = ["Logger", "tensorboard", "wandb"]

__getattr__, __dir__ = _module_names("trl.logs", lambda: __all__)
