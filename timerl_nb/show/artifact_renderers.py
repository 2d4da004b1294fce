"""Registration of the pictures that artifacts show in notebooks."""

from __future__ import annotations

from timerl_nb.base.display_registry import register_picture
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.recorded_pass_decisions import PassChoice
from timerl_nb.compiler.loops.loop_nodes import Ast
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.scheduling.schedule_artifact import Schedule
from timerl_nb.driver.stages import Listing
from timerl_nb.runtime.executable import Executable
from timerl_nb.show.graph.graph_layout import layout_svg
from timerl_nb.show.graph.graph_view import graph_view
from timerl_nb.show.memory.memory_view import MemoryView
from timerl_nb.show.offline_rendering import draw_text
from timerl_nb.show.schedule.iteration_space_view import IterationSpaceView
from timerl_nb.show.schedule.loop_view import LoopView
from timerl_nb.show.schedule.points_of_one_iteration import Turn


def _memory(plan: MemoryPlan) -> str:
    schedule = Schedule(plan.constraints, plan.clock.schedule, plan.bounds, plan.clock)
    return MemoryView.of_turn(Turn.from_schedule(schedule, plan)).to_svg()


def register() -> None:
    """Register a picture for each type of artifact."""
    register_picture(Pdg, lambda pdg: graph_view(pdg).to_svg())
    register_picture(Ast, lambda ast: LoopView.of_nest(ast).to_svg())
    register_picture(
        Schedule, lambda schedule: IterationSpaceView.of_turn(Turn.from_schedule(schedule)).to_svg()
    )
    register_picture(MemoryPlan, _memory)
    register_picture(Executable, lambda executable: layout_svg(executable.to_dot()))
    register_picture(Listing, lambda listing: draw_text(str(listing)))
    register_picture(PassChoice, lambda choice: draw_text(str(choice)))
