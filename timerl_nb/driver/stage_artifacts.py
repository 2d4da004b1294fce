"""Artifacts of a compilation's stages, as properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.loops.loop_nodes import Ast
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.passes.dynamic_bound_expansion import DynamicBounds
from timerl_nb.compiler.scheduling.schedule_artifact import Schedule
from timerl_nb.driver.stages import Stages
from timerl_nb.runtime.executable import Executable


class StageArtifacts:
    """The artifact of each stage by name, for classes with `stages` and `bounds`."""

    if TYPE_CHECKING:

        @property
        def stages(self) -> Stages: ...

        @property
        def bounds(self) -> dict[str, int]: ...

    def _artifact(self, name: str) -> Any:
        return self.stages[name].artifact

    @property
    def pdg(self) -> Pdg:
        """The user's graph."""
        return self._artifact("pdg")

    @property
    def seeds(self) -> int | None:
        """The number of parallel seeds; None for a single run."""
        dim = self.pdg.dims.seeds
        return dim.count(self.bounds) if dim else None

    @property
    def source_graph(self) -> Pdg:
        """The user's graph, with dynamic bounds expanded."""
        dynamic = bool(self.pdg.ends)
        return self._artifact(DynamicBounds.name) if dynamic else self.pdg

    @property
    def fused(self) -> Pdg:
        """The executed graph: after all passes, with separate outputs for blocks."""
        return self.memory.pdg

    @property
    def schedule(self) -> Schedule:
        return self._artifact("schedule")

    @property
    def memory(self) -> MemoryPlan:
        return self._artifact("memory")

    @property
    def ast(self) -> Ast:
        return self._artifact("ast")

    @property
    def executable(self) -> Executable:
        return self._artifact("executable")
