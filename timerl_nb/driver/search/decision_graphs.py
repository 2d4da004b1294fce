"""Decisions of a program, and the graph of each decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Final

from timerl_nb.base.errors import CeilingError
from timerl_nb.base.options import Options
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_digest import digest
from timerl_nb.compiler.isl.operation_limit import limit_isl_work
from timerl_nb.compiler.passes.fusion.fuse import Fuse, Separate
from timerl_nb.compiler.passes.pass_pipeline import Pass
from timerl_nb.compiler.passes.tiling.incrementalize_reductions import Incrementalize
from timerl_nb.compiler.passes.tiling.reduction_tiling import freed_by
from timerl_nb.compiler.passes.vectorization.loop_carried_cycles import cycles_of
from timerl_nb.compiler.passes.vectorization.vectorize import STRATEGIES, Vectorize
from timerl_nb.compiler.scheduling.vectorization_trials import Trials
from timerl_nb.compiler.symbolic.dimensions import Dim
from timerl_nb.driver.compiling.compile_decision import Decision
from timerl_nb.driver.compiling.machine_dependent_options import cached_machine, is_remade
from timerl_nb.driver.compiling.pass_selection import pipeline

# Above this number of dimensions, blocks are tried only with one strategy for all dimensions.
MANY: Final = 3


class DecisionGraphs:
    """The decisions left open by the options of a program, and their graphs.

    Args:
        pdg: the source graph.
        options: the options.
        bounds: actual bounds.
        trials: cached results of passes.
        changed: a decision with the options changed by an outer search.
    """

    def __init__(
        self,
        pdg: Pdg,
        options: Options,
        bounds: Mapping[str, int],
        trials: Trials,
        changed: Decision,
    ) -> None:
        self._pdg, self._bounds, self._options = pdg, bounds, options
        self._trials, self._changed = trials, changed
        self._graphs: dict[tuple[Decision, str], Pdg | None] = {}

    @property
    def swaps(self) -> bool:
        """Whether values may be moved to the host, which requires a single device."""
        return self._options.swap == "auto" and self._options.device_count == 1

    @cached_property
    def unbudgeted_decision(self) -> Decision | None:
        """The choice of the passes without a budget, if they have a memory model."""
        if cached_machine(self._options) is None:
            return None
        strategies = tuple((dim.name, self.strategies[0]) for dim in self.dims)
        return replace(self._changed, strategies=strategies, swap=False)

    @cached_property
    def dims(self) -> list[Dim]:
        """The dimensions along which only some operations are sequential."""
        if self._options.budget is None or not self._options.vectorize:
            return []
        before, passes = self._graph_before_pass(Vectorize.name, self._changed)
        wanted = next(one.dims for one in passes if isinstance(one, Vectorize))
        dims = [dim for dim in before.dims if wanted is None or dim.name in wanted]
        return [dim for dim in dims if cycles_of(before, dim.name).sequential]

    @property
    def strategies(self) -> tuple[str, ...]:
        return tuple(name for name in STRATEGIES if name != "keep" or self._options.trial)

    @cached_property
    def strategy_combinations(self) -> list[tuple[tuple[str, str], ...]]:
        """Combinations of vectorisation strategies: the same for all dimensions, or the first for all but one.

        All combinations of three strategies over four dimensions would take minutes.
        """
        each = [[(dim.name, strategy) for strategy in self.strategies] for dim in self.dims]
        alike = list(zip(*each, strict=True)) or [()]
        first = alike[0]
        single_changes = [
            (*first[:k], strategy, *first[k + 1 :])
            for k in range(len(each))
            for strategy in each[k][1:]
        ]
        return [*alike, *single_changes]

    @property
    def recompute(self) -> tuple[bool, ...]:
        remade = is_remade(self._options)
        return (False, True) if remade and self._options.rematerialize == "auto" else (remade,)

    def block_sizes(self, one: Decision) -> list[tuple[Dim, list[int], int]]:
        """Return the dimensions that can be tiled, each with block sizes and the bytes that tiling frees."""
        strategies = {strategy for _, strategy in one.strategies}
        if self._options.incrementalize != "auto" or (
            len(one.strategies) >= MANY and len(strategies) > 1
        ):
            return []
        before, _ = self._graph_before_pass(Incrementalize.name, one)
        found: list[tuple[Dim, list[int], int]] = []
        for dim, nbytes in freed_by(before, self._bounds).items():
            sizes = [1 << k for k in range((dim.count(self._bounds) - 1).bit_length())]
            found += [(dim, sizes, nbytes)] if sizes else []
        return found

    def _graph_before_pass(self, name: str, decision: Decision) -> tuple[Pdg, list[Pass]]:
        """Return the graph before a pass, and that pass with its successors."""
        passes = list(self._passes(decision))
        pdg = self._pdg
        while passes and passes[0].name != name:
            pdg = self._trials.run(passes.pop(0), pdg).pdg
        return pdg, passes

    def _passes(self, decision: Decision) -> Iterable[Pass]:
        dynamic = bool(self._pdg.ends)
        return pipeline(self._options, self._bounds, decision, dynamic=dynamic)

    def graph(self, decision: Decision) -> Pdg | None:
        """Return the final graph of a decision; None beyond the limit of isl operations."""
        return self._made_by(decision, "")

    def unfused_graph(self, decision: Decision) -> Pdg | None:
        """Return the graph before fusion, which takes most of the time."""
        return self._made_by(decision, Fuse.name if self._options.fuse else Separate.name)

    def _made_by(self, decision: Decision, ahead_of: str) -> Pdg | None:
        key = replace(decision, swap=False), ahead_of
        if key not in self._graphs:
            self._graphs[key] = None
            with suppress(CeilingError), limit_isl_work("a trial"):
                self._graphs[key], _ = self._graph_before_pass(ahead_of, decision)
        return self._graphs[key]

    def graph_text(self, decision: Decision) -> str | None:
        """Return a text of the decision's graph; equal graphs have equal texts."""
        pdg = self.graph(decision)
        written = None if pdg is None else digest(pdg)
        return None if written is None else written.text

    def known_graph(self, decision: Decision) -> Pdg | None:
        """Return the final graph of a decision, if it is cached."""
        return self._graphs.get((replace(decision, swap=False), ""))
