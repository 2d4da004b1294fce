"""Progress of a running compilation: the next step, and views of the completed stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from timerl_nb.base.options import Options
from timerl_nb.base.text_formatting import format_bytes, format_count
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.recorded_pass_decisions import Candidate
from timerl_nb.driver.program import Program
from timerl_nb.driver.stages import Stage
from timerl_nb.show.graph.graph_view import GraphView, graph_view
from timerl_nb.show.stages.pipeline_view import PipelineView
from timerl_nb.show.stages.rewrite_steps import StepsView

LAST: Final = ("fuse", "separate")  # the last pass is one of these


@dataclass(frozen=True)
class Progress:
    """Progress of a compilation.

    Attributes:
        stages: the completed stages by name, the latest last.
        options, bounds: those of the program being compiled.
    """

    stages: Mapping[str, Stage]
    options: Options
    bounds: Mapping[str, int]

    @property
    def stage(self) -> Stage:
        """The latest stage."""
        return list(self.stages.values())[-1]

    @property
    def is_planning(self) -> bool:
        """Whether the passes have just completed."""
        return self.stage.name in LAST

    @property
    def pipeline(self) -> PipelineView:
        return PipelineView.of_stages(self.stages, self.options, self.bounds)

    @property
    def graph(self) -> GraphView | None:
        """The graph of the latest stage; None if the stage is not a pass."""
        graph = self.stage.artifact
        return graph_view(graph, bounds=self.bounds) if isinstance(graph, Pdg) else None

    @property
    def steps(self) -> StepsView:
        """The steps of the latest stage."""
        return StepsView.from_stage(self.stage)

    @property
    def text(self) -> str:
        """The next step in words, with its size."""
        artifact: Any = self.stage.artifact
        match self.stage.name:
            case "fuse" | "separate":
                count = sum(op.kind not in ("merge", "output") for op in artifact)
                return f"scheduling {format_count(count, 'statement')} …"
            case "schedule":
                return f"planning the memory of {format_count(len(artifact.statements), 'statement')} …"
            case "memory":
                return "generating the loops …"
            case "ast":
                return "preparing the executable …"
            case _:
                return f"compiling: the pass {self.stage.name} is done …"


def tried_text(tried: Sequence[Candidate], budget: int | None) -> str:
    """Describe the trials of a search within a budget: a line with the latest one, then a line per earlier one."""
    of = "" if budget is None else f" within {format_bytes(budget)}"
    last, *earlier = [_trial_text(one, budget) for one in reversed(tried)]
    return "\n".join([f"{format_count(len(tried), 'candidate')} tried{of}: {last}", *earlier])


def _trial_text(tried: Candidate, budget: int | None) -> str:
    found = tried.forecast
    if isinstance(found, str):
        return f"{tried.doc}: {found}"
    fits = budget is None or found.needed <= budget
    return f"{tried.doc}: peak {format_bytes(found.peak)}{'' if fits else ', above the budget'}"


def following(
    program: Program,
    bounds: Mapping[str, int],
    options: Mapping[str, Any],
    show: Callable[[Progress], None],
) -> Callable[[Stage], None]:
    """Return a stage observer that shows the progress of `program.again`.

    Args:
        program: the program that is compiled again.
        bounds, options: the changes. Until a later stage completes, its previous version is shown.
        show: a function called with the progress after each stage.

    Raises:
        OptionError: an option is unknown or has an invalid value.
    """
    kept = {n: stage for n, stage in program.stages.items() if stage.previous is None}
    under, changed = {**program.bounds, **bounds}, program.options.with_(**options)

    def on_stage(stage: Stage) -> None:
        kept.pop(stage.name, None)
        kept[stage.name] = stage
        show(Progress(dict(kept), changed, under))

    return on_stage
