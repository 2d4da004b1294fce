"""Conditional tensors: the subset of the domain on which a tensor is defined.

`x[cond]` is an operation that runs at the points that satisfy `cond`. An operation on tensors without an index
runs where all of them are defined, at the intersection of their subsets. A read at an index must lie inside
the subset; this is proved like any other read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from timerl_nb.compiler.ir.operations import Op, Read, own_dims
from timerl_nb.compiler.symbolic.index_expressions import TRUE, And, Cond, all_of


def subset_of(op_of: Callable[[int], Op], read: Read) -> Cond:
    """Return the condition under which a tensor read at the current point is defined.

    TRUE for a tensor defined everywhere, and for a read at other points.
    """
    source = op_of(read.source)
    if source.where is TRUE:
        return TRUE
    domain = source.outputs[read.out].domain
    own = own_dims(read.index, domain)
    return source.where if source.where.symbols.intersection(domain) <= own else TRUE


def subsets_of(op_of: Callable[[int], Op], reads: Iterable[Read]) -> Cond:
    """Return the conjunction of the operands' subsets."""
    return all_of(TRUE, *(subset_of(op_of, read) for read in reads))


def split(cond: Cond, names: Iterable[str]) -> tuple[Cond, Cond]:
    """Split a condition into the part that depends on the named dimensions, and the rest."""
    parts = cond.args if isinstance(cond, And) else (cond,)
    moving = set(names)
    inside = [part for part in parts if part.symbols & moving]
    outside = [part for part in parts if not part.symbols & moving]
    return all_of(TRUE, *inside), all_of(TRUE, *outside)
