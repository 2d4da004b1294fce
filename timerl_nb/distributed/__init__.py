"""One program in several processes and on several hosts (`trl.distributed`), connected by JAX.

All processes run the same script. After `initialize()`, programs compiled with `trl.Options(devices="all")` are
divided among the devices of all processes.
"""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.distributed.initialization import Processes, initialize, shutdown
from timerl_nb.distributed.ray_launch import run_on_ray

__all__ = ["Processes", "initialize", "run_on_ray", "shutdown"]

__getattr__, __dir__ = _module_names("trl.distributed", lambda: __all__)
