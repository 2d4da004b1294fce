"""Small data sets that the project contains (`trl.datasets`).

`names` lists them, and `load` returns one: numbers that the papers publish, trajectories, learning curves, kernel
streams, a recording, and traces of other profilers. The README in the folder `datasets` has the origin of each file.
"""

from timerl_nb.compiler.language.foreign_names import module_names as _module_names
from timerl_nb.datasets.catalogue import load, names
from timerl_nb.datasets.table import Table
from timerl_nb.datasets.trajectories import Trajectories

__all__ = ["Table", "Trajectories", "load", "names"]

__getattr__, __dir__ = _module_names("trl.datasets", lambda: __all__)
