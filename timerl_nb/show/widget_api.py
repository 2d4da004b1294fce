"""Names from lower layers that notebook widgets may import."""

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.display_registry import bundle
from timerl_nb.base.errors import DrawingError, ExecutionError, OptionError, TimeRLError, one_of
from timerl_nb.base.lru_cache import Lru
from timerl_nb.base.text_formatting import format_count
from timerl_nb.collecting.collector import Collector
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.operations import DataflowAttrs
from timerl_nb.compiler.ir.recorded_pass_decisions import Candidate
from timerl_nb.compiler.language.foreign_names import expect_type, explain_call_errors
from timerl_nb.compiler.language.inputs.actual_bounds import check_mapping
from timerl_nb.compose.setting_sweep import Sweep
from timerl_nb.driver.program import Program, a_program
from timerl_nb.driver.program_family import At, Family
from timerl_nb.driver.stages import CompileObserver
from timerl_nb.execution.control.background_run import Running
from timerl_nb.execution.control.breakpoints import Breakpoint
from timerl_nb.execution.telemetry.live_view_frames import Frame
from timerl_nb.runtime.interpreter.interpreter import Instruction
from timerl_nb.scope import record
from timerl_nb.scope.analysis.recording_queries import Recorded
from timerl_nb.show.offline_rendering import draw_text
from timerl_nb.streams.run_report import Report
