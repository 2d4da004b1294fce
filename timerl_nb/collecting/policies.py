"""Policies that are there (`trl.policies`)."""

from timerl_nb.collecting.acting import random
from timerl_nb.frontend.foreign import module_names as _module_names

__all__ = ["random"]

__getattr__, __dir__ = _module_names("trl.policies", lambda: __all__)
