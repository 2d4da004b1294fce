"""Where the time of an RL program goes, across its stack (RL-Scope, paper 002): `trl.scope`."""

from timerl_nb.frontend.foreign import module_names as _module_names
from timerl_nb.scope.annotations import operation, phase
from timerl_nb.scope.audit import audit
from timerl_nb.scope.busy import Busy
from timerl_nb.scope.calibration import Calibration, Cost
from timerl_nb.scope.chain import critical_chain
from timerl_nb.scope.comparing import Compared
from timerl_nb.scope.correction import Corrected
from timerl_nb.scope.importing import add_trace
from timerl_nb.scope.overlap import Breakdown, Cell, Used, overlap_of
from timerl_nb.scope.processes import processes
from timerl_nb.scope.reading import read
from timerl_nb.scope.record import record
from timerl_nb.scope.recording import Recording
from timerl_nb.scope.tapped import tap
from timerl_nb.scope.tracing import devices
from timerl_nb.scope.transitions import transitions

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
]

__getattr__, __dir__ = _module_names("trl.scope", lambda: __all__)
