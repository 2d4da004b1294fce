"""All collection strategies, in order of preference."""

from __future__ import annotations

from timerl_nb.collecting.strategies.environment_blocks import Blocks
from timerl_nb.collecting.strategies.envpool_threads import Threads
from timerl_nb.collecting.strategies.gymnasium_loop import Loop
from timerl_nb.collecting.strategies.native_vector_environment import Native
from timerl_nb.collecting.strategies.ray_workers import RayThreads, RayWorkers
from timerl_nb.collecting.strategies.sharded_devices import Sharded
from timerl_nb.collecting.strategies.shared_memory_processes import Processes
from timerl_nb.collecting.strategies.single_gpu_kernel import OneKernel
from timerl_nb.collecting.strategies.step_by_step import StepByStep
from timerl_nb.collecting.strategies.xla_scan import Scan
from timerl_nb.collecting.strategy import Strategy

STRATEGIES: tuple[Strategy, ...] = (
    Scan(),
    Blocks(),
    OneKernel(),
    Sharded(),
    StepByStep(),
    Native(),
    Loop(),
    Processes(),
    Threads(),
)
CLUSTER_STRATEGIES: tuple[Strategy, ...] = (RayWorkers(), RayThreads())  # on request only
