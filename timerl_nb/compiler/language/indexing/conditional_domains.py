"""Where tensors are defined: the subsets of conditional tensors (semantics.md §6).

`x[c]` is an operation that runs where c holds. A tensor that is not indexed stands for itself at the
current point, so an operation runs where all such operands are defined: subsets intersect. An index
names a point, which must lie inside: that is a read like any other, and proved like one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from timerl_nb.compiler.ir.operations import Op, Read, own_dims
from timerl_nb.compiler.symbolic.index_expressions import TRUE, And, Cond, all_of


def subset_of(op_of: Callable[[int], Op], read: Read) -> Cond:
    """Where the tensor that is read is defined, as far as it stands for itself at the current point.

    TRUE for a tensor that is defined everywhere, and for a read at points that the index names.
    """
    source = op_of(read.source)
    if source.where is TRUE:
        return TRUE
    domain = source.outputs[read.out].domain
    own = own_dims(read.index, domain)
    return source.where if source.where.symbols.intersection(domain) <= own else TRUE


def subsets_of(op_of: Callable[[int], Op], reads: Iterable[Read]) -> Cond:
    """Where all operands are defined that stand for themselves."""
    return all_of(TRUE, *(subset_of(op_of, read) for read in reads))


def split(cond: Cond, names: Iterable[str]) -> tuple[Cond, Cond]:
    """The parts of a condition that vary with the named dimensions, and the others."""
    parts = cond.args if isinstance(cond, And) else (cond,)
    moving = set(names)
    inside = [part for part in parts if part.symbols & moving]
    outside = [part for part in parts if not part.symbols & moving]
    return all_of(TRUE, *inside), all_of(TRUE, *outside)
