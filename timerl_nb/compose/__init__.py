"""Device composer: assignment of a training program's primitives to devices (`trl.compose`).

Primitives are the replay manager, the learner and the experience memory. Source: PEARL,
section 5; see docs/references.md.
"""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.compose.assignment_search import Choice, Iteration, choose, portability
from timerl_nb.compose.fpga_model import Fpga
from timerl_nb.compose.primitive_latency_table import Device, Latency, Links, Manager, Table
from timerl_nb.compose.primitive_measurement import measure
from timerl_nb.compose.setting_sweep import Sweep, sweep
from timerl_nb.compose.units import Bytes, Link, Words

__all__ = [
    "Bytes",
    "Choice",
    "Device",
    "Fpga",
    "Iteration",
    "Latency",
    "Link",
    "Links",
    "Manager",
    "Sweep",
    "Table",
    "Words",
    "choose",
    "measure",
    "portability",
    "sweep",
]

__getattr__, __dir__ = _module_names("trl.compose", lambda: __all__)
