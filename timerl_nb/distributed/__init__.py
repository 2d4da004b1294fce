"""One program on several processes and hosts (`trl.distributed`), by the runtime of JAX.

All processes run the same script. After `initialize()`, programs compiled with `trl.Options(devices="all")` are
divided among the devices of all processes.
"""

from timerl_nb.distributed.process_start import Processes, initialize, shutdown
from timerl_nb.distributed.ray_processes import run_on_ray

__all__ = ["Processes", "initialize", "run_on_ray", "shutdown"]
