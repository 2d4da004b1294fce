"""Cross-stack profiler for RL programs (`trl.scope`).

`record` writes the start and end of calls, operations and phases of every thread; `devices` adds
the operations of GPUs. The time breakdown and other analyses read a recording, and a calibration
subtracts the overhead of recording. Source: RL-Scope; see docs/references.md.
"""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.scope.analysis.coverage_audit import audit
from timerl_nb.scope.analysis.critical_path import critical_chain
from timerl_nb.scope.analysis.library_transitions import transitions
from timerl_nb.scope.analysis.process_tree import processes
from timerl_nb.scope.analysis.recording_comparison import Compared
from timerl_nb.scope.analysis.recording_queries import Recording
from timerl_nb.scope.analysis.time_breakdown import Breakdown, Cell, Used, overlap_of
from timerl_nb.scope.calibration.calibration import Calibration, Cost
from timerl_nb.scope.calibration.overhead_correction import Corrected
from timerl_nb.scope.device_activity.busy_time import Busy
from timerl_nb.scope.device_activity.trace_import import add_trace
from timerl_nb.scope.device_activity.tracing_session import devices
from timerl_nb.scope.recording.annotations import operation, phase
from timerl_nb.scope.recording.process_joining import worker_environment
from timerl_nb.scope.recording.recording_session import record
from timerl_nb.scope.storage.recording_reader import read
from timerl_nb.scope.wrappers.user_library_wrapping import tap

__all__ = [
    "Breakdown",
    "Busy",
    "Calibration",
    "Cell",
    "Compared",
    "Corrected",
    "Cost",
    "Recording",
    "Used",
    "add_trace",
    "audit",
    "critical_chain",
    "devices",
    "operation",
    "overlap_of",
    "phase",
    "processes",
    "read",
    "record",
    "tap",
    "transitions",
    "worker_environment",
]

__getattr__, __dir__ = _module_names("trl.scope", lambda: __all__)
