"""What notebook widgets take of the parts below `show`: they import nothing else of them."""

from timerl_nb.arrays import Array
from timerl_nb.collecting.collector import Collector
from timerl_nb.columns import counted
from timerl_nb.compose.sweeping import Sweep
from timerl_nb.driver.family import At, Family
from timerl_nb.driver.program import Program, a_program
from timerl_nb.entry_points import register_entry_point
from timerl_nb.errors import DrawingError, ExecutionError, OptionError, TimeRLError, one_of
from timerl_nb.frontend.bounds import check_mapping
from timerl_nb.frontend.foreign import asked, taken
from timerl_nb.inspectable import bundle
from timerl_nb.ir.choice import Candidate, watched
from timerl_nb.ir.ops import DataflowAttrs
from timerl_nb.ir.pdg import Pdg
from timerl_nb.live.frames import Frame
from timerl_nb.live.running import Running
from timerl_nb.lru import Lru
from timerl_nb.scope import record
from timerl_nb.scope.recording import Recorded
from timerl_nb.streams.report import Report
