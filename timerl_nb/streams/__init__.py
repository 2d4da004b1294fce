"""Concurrent execution of small kernels by run-time dependence analysis (`trl.streams`, `trl.kernel`).

A kernel declares the memory that it reads and writes. A window compares the declarations of the next kernels
in program order, and runs independent ones concurrently. Source: ACS.
"""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.streams.baselines import Graph, graph
from timerl_nb.streams.kernel_declaration import Kernel, kernel
from timerl_nb.streams.kernel_stream import Stream
from timerl_nb.streams.memory_segments import ANY, Segment, segment, segment_of
from timerl_nb.streams.recorders import record
from timerl_nb.streams.run_report import Launch, Report
from timerl_nb.streams.simulator.gpu_constants import ACCEL_SIM, RTX3060, RTX3070, RTX4090, Gpu
from timerl_nb.streams.simulator.simulated_comparison import Comparison, compare
from timerl_nb.streams.simulator.simulated_run import Simulated
from timerl_nb.streams.stream_file import load, save
from timerl_nb.streams.thread_execution import window
from timerl_nb.streams.workloads import workload

__all__ = [
    "ACCEL_SIM",
    "ANY",
    "RTX3060",
    "RTX3070",
    "RTX4090",
    "Comparison",
    "Gpu",
    "Graph",
    "Kernel",
    "Launch",
    "Report",
    "Segment",
    "Simulated",
    "Stream",
    "compare",
    "graph",
    "kernel",
    "load",
    "record",
    "save",
    "segment",
    "segment_of",
    "window",
    "workload",
]

__getattr__, __dir__ = _module_names("trl.streams", lambda: __all__)
