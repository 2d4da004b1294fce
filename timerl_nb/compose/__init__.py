"""Which primitive of a training program runs on which device (`trl.compose`)."""

from timerl_nb.compose.choosing import Choice, Iteration, choose, portability
from timerl_nb.compose.fpga import Fpga
from timerl_nb.compose.measuring import measure
from timerl_nb.compose.sweeping import Sweep, sweep
from timerl_nb.compose.table import Device, Latency, Links, Manager, Table
from timerl_nb.compose.units import Bytes, Link, Words
from timerl_nb.frontend.foreign import module_names as _module_names

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
