"""Incrementalisation: large reductions run block by block (TimeRL §5.3, Alg. 3).

`reduction_tiling` performs the transformation. The passes here select the dimension and the block size: by
the options, by the memory budget search, or for speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from timerl_nb.base.machine_model import Machine
from timerl_nb.base.options import Blocks
from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import Rewritten, identity_rewrite
from timerl_nb.compiler.ir.recorded_pass_decisions import Candidate, PassChoice
from timerl_nb.compiler.passes.pass_pipeline import Bounds
from timerl_nb.compiler.passes.tiling.reduction_block_size_model import BandwidthModel
from timerl_nb.compiler.passes.tiling.reduction_tiling import (
    find_tiling,
    freed_by,
    in_blocks,
    tile_blocks,
)

_SHOWN: Final = 8  # lines of a warning


@dataclass(frozen=True)
class Incrementalize:
    """The pass `incrementalize` with given block sizes: tiles reductions over long axes.

    Attributes:
        block: the block size along the dimension with the largest saving; or block sizes by dimension.
        bounds: actual bounds, to find this dimension.
    """

    block: int | Blocks
    bounds: Bounds
    name: str = "incrementalize"

    def run(self, pdg: Pdg) -> Rewritten:
        if isinstance(self.block, int):
            dims = list(freed_by(pdg, dict(self.bounds)))[:1]
            return in_blocks(pdg, [(dim, self.block) for dim in dims])
        return in_blocks(pdg, [(pdg.dims[name], block) for name, block in self.block])


@dataclass(frozen=True)
class IncrementalizeForSpeed:
    """The pass `incrementalize` without given block sizes: tiles reductions whose operands exceed the cache.

    The dimension is the one with the largest saving. A bandwidth model selects the block size.

    Attributes:
        bounds: actual bounds.
        machine: the machine model.
    """

    bounds: Bounds
    machine: Machine
    name: str = "incrementalize"

    def run(self, pdg: Pdg) -> Rewritten:
        dim = next(iter(freed_by(pdg, dict(self.bounds))), None)
        model = BandwidthModel(pdg, dict(self.bounds), self.machine)
        block = model.block(find_tiling(pdg, dim)) if dim else None
        if dim is None or block is None:
            return identity_rewrite(pdg)
        made = in_blocks(pdg, [(dim, block)])
        whole = Candidate("whole", "no blocks", (("blocks", ()),))
        doc = f"blocks of {block} along {dim.name}"
        taken = Candidate(f"{dim.name}: {block}", doc)
        why = "the arrays of a block stay in the cache"
        choice = PassChoice("incrementalize", (whole, taken), taken, why)
        return replace(made, choices=(choice,))


def without_effect(pdg: Pdg, block: int | Blocks) -> list[str]:
    """Return a warning for each block size without effect, with the obstacles line by line."""
    if isinstance(block, int):
        tilings = [find_tiling(pdg, dim) for dim in pdg.dims]
        if any(tiling.roots for tiling in tilings):
            return []
        why = {op_id: reason for tiling in tilings for op_id, reason in tiling.why.items()}
        return [_idle(pdg, f"incrementalize={block}", "any dimension", why)]
    found: list[str] = []
    for name, size in block:
        tiling = find_tiling(pdg, pdg.dims[name])
        if not tiling.roots:
            found.append(_idle(pdg, f"incrementalize={{{name!r}: {size}}}", name, tiling.why))
        pdg = tile_blocks(pdg, tiling, size).pdg
    return found


def _idle(pdg: Pdg, option: str, along: str, why: Mapping[int, str]) -> str:
    lines = [f"  {pdg[k].name}, {pdg[k].origin}: {reason}" for k, reason in sorted(why.items())]
    if len(lines) > _SHOWN:
        lines[_SHOWN - 1 :] = [f"  and {len(lines) - _SHOWN + 1} others"]
    return "\n".join(
        [
            f"{option} has no effect: no reduction can be tiled along {along}.",
            *(lines or ["  No reduction has an axis of the length of its bound."]),
            "  What to do: leave it out; or reduce a whole slice, as in x[0:T].sum(axis=0), "
            "of a tensor without other readers.",
        ]
    )
