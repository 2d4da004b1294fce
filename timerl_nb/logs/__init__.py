"""Where a run's rows go besides a folder (`trl.logs`): TensorBoard and Weights & Biases, where installed."""

from timerl_nb.frontend.foreign import module_names as _module_names
from timerl_nb.live.run_log import Logger
from timerl_nb.logs.event_files import tensorboard
from timerl_nb.logs.offline_runs import wandb

__all__ = ["Logger", "tensorboard", "wandb"]

__getattr__, __dir__ = _module_names("trl.logs", lambda: __all__)
