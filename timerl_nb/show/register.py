"""Lets artifacts draw themselves."""

from __future__ import annotations

from typing import Any

from timerl_nb.driver.stages import Listing
from timerl_nb.inspectable import register_picture
from timerl_nb.ir.choice import Choice
from timerl_nb.ir.pdg import Pdg
from timerl_nb.loops.nodes import Ast
from timerl_nb.memory.plan import MemoryPlan
from timerl_nb.runtime.executable import Executable
from timerl_nb.schedule.schedule import Schedule
from timerl_nb.show import offpage
from timerl_nb.show.graph import graph_view
from timerl_nb.show.layout import layout_svg
from timerl_nb.show.loop import LoopView
from timerl_nb.show.memory import MemoryView
from timerl_nb.show.space import IterationSpaceView
from timerl_nb.show.turn import Turn


def _memory(plan: MemoryPlan) -> str:
    schedule = Schedule(plan.constraints, plan.clock.schedule, plan.bounds, plan.clock)
    return MemoryView.of_turn(Turn.under(schedule, plan)).to_svg()


def _text(artifact: Any) -> str:
    return offpage.call("draw", {"view": "text"}, str(artifact), 1000)


def register() -> None:
    """Let artifacts draw themselves with these pictures."""
    register_picture(Pdg, lambda pdg: graph_view(pdg).to_svg())
    register_picture(Ast, lambda ast: LoopView.of_nest(ast).to_svg())
    register_picture(
        Schedule, lambda schedule: IterationSpaceView.of_turn(Turn.under(schedule)).to_svg()
    )
    register_picture(MemoryPlan, _memory)
    register_picture(Executable, lambda executable: layout_svg(executable.to_dot()))
    register_picture(Listing, _text)
    register_picture(Choice, _text)
