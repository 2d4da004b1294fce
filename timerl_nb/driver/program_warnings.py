"""Warnings of a compiled program about avoidable costs of time or memory."""

from __future__ import annotations

from typing import Final

from timerl_nb.base.errors import Origin
from timerl_nb.base.options import Options
from timerl_nb.compiler.ir.operations import OPERAND, DataflowAttrs, Op
from timerl_nb.compiler.memory.memory_plan import MemoryPlan
from timerl_nb.compiler.memory.placement.slice_reads import is_picked
from timerl_nb.compiler.passes.tiling.incrementalize_reductions import (
    Incrementalize,
    without_effect,
)
from timerl_nb.compiler.scheduling.dependence_constraints import Constraints
from timerl_nb.compiler.symbolic.index_expressions import Slice
from timerl_nb.driver.compiling.compile_pipeline import Front
from timerl_nb.driver.stage_artifacts import StageArtifacts

_GUARDED: Final = (
    "splitting the loops around {} exceeds the limit of isl operations: conditions are tested in "
    "every iteration instead. The results are equal, but the program is slower. Keep fuse=True to "
    "reduce the number of statements, or simplify their index expressions."
)
_INTERPRETED: Final = (
    "the interpreter runs the program, several times slower than XLA: {}. Provide more memory, or "
    "set executor='interpret' to silence this warning."
)


def find_warnings(
    compiled: StageArtifacts, front: Front, options: Options
) -> list[tuple[str, Origin | None]]:
    """Return the warnings, each with the user's line if there is one."""
    parts, blocks = front.parts, options.blocks
    found: list[str] = []
    if parts is not None and parts.text:
        found.append(parts.describe_loss(compiled.memory.peak))
    cut = compiled.stages[Incrementalize.name].previous if blocks else None
    if blocks and cut is not None:
        found += without_effect(cut, blocks)
    if compiled.ast.guarded:
        found.append(_GUARDED.format(", ".join(compiled.ast.guarded[:8])))
    if too_large := compiled.executable.too_large:
        found.append(_INTERPRETED.format(too_large))
    windows = _long_windows(compiled.memory, front.constraints, options)
    return [*windows, *((text, None) for text in found)]


def _long_windows(
    plan: MemoryPlan, constraints: Constraints, options: Options
) -> list[tuple[str, Origin | None]]:
    """Return warnings about slices that grow with a bound, and are gathered at every point of a loop."""
    dims, found = constraints.pdg.dims, list[tuple[str, Origin | None]]()
    off = [name for name in ("lift", "vectorize") if getattr(options, name) is not True]
    advice = (
        f"Switch {' and '.join(off)} on, or shorten the slice." if off else "Shorten the slice."
    )
    for op in constraints.statements.ops.values():
        own = {d for d in op.domain if dims[d].step == 1}  # blocks are long on purpose
        for slot, read in enumerate(op.inputs):
            moving = [e for e in read.index if isinstance(e, Slice) and e.length.symbols & own]
            span = plan.sizes.span(op, read)
            if moving and span > 64 and not is_picked(op, slot):
                source = constraints.pdg[read.source]
                text = (
                    f"{source.name} is read in slices [{moving[0]}] of up to {span} points at every "
                    f"point of ({', '.join(op.domain)}); each slice is padded to {span}. {advice}"
                )
                found.append((text, _reader(op, slot).origin))
    return found


def _reader(op: Op, slot: int) -> Op:
    """Return the operation inside a kernel that reads an operand."""
    if not isinstance(op.attrs, DataflowAttrs):
        return op
    inside = (one for one in op.attrs.body for r in one.inputs if r.tensor == (OPERAND, slot))
    return next(inside, op)
