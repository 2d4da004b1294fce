"""Resolution of reads through merges, to the outputs of other operations.

A merge (`o[b, i, 0] = …; o[b, i, t + 1] = …`) does not run; its readers read one of its branches. Fusion,
scheduling constraints, memory, executors and views all use this resolution. The reference evaluator has its
own, so that the two can be compared.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from timerl_nb.compiler.ir.dependence_graph import Pdg
from timerl_nb.compiler.ir.graph_rewriting import compose
from timerl_nb.compiler.ir.operations import Read, Tensor
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.compiler.symbolic.index_expressions import Lin
from timerl_nb.compiler.symbolic.substitution import subst_entry


@dataclass(frozen=True)
class Access:
    """One possible source of a read.

    Attributes:
        read: the read of that output, from the reader's point, with index and condition.
        way: the reads from the reader to the output. Each of them reads a merge, and the next one is a
            branch of it.
        across: reads in `way` whose slices cross branches (`x[i, 0:T]`). `read` then covers every possible
            element.
    """

    read: Read
    way: tuple[Read, ...]
    across: tuple[Read, ...] = ()

    @property
    def tensor(self) -> Tensor:
        return self.read.tensor

    @property
    def is_direct(self) -> bool:
        """Whether the read passes no merge."""
        return len(self.way) == 1


def accesses(pdg: Pdg, read: Read, kept: Container[int] = ()) -> Iterator[Access]:
    """Yield the possible sources of a read, in the order of the branches.

    At each point, exactly one of them is read, unless a slice crosses branches or a merge reads itself.
    (Fusion inserts copies for the latter; before fusion, such a branch is omitted.)

    Args:
        pdg: the graph.
        read: the read.
        kept: merges to treat as sources themselves.
    """
    return _resolve_accesses(pdg, Access(read, (read,)), kept)


def _resolve_accesses(pdg: Pdg, access: Access, kept: Container[int]) -> Iterator[Access]:
    read, merge = access.read, pdg[access.read.source]
    if merge.kind != "merge" or merge.id in kept:
        yield access
        return
    if any(read.source == merge.id for read in access.way[:-1]):
        return
    for branch in merge.inputs:
        composed, across = compose(read, merge.domain, branch), access.across
        if composed is None:
            composed, across = _everywhere(pdg, read, merge.domain, branch), (*across, read)
        yield from _resolve_accesses(pdg, Access(composed, (*access.way, branch), across), kept)


def _everywhere(pdg: Pdg, read: Read, domain: Domain, branch: Read) -> Read:
    """Return the elements of one branch that a slice across branches may read: all, along sliced
    dimensions.
    """
    entries = dict(zip(domain, read.index, strict=True))
    points = {d: e for d, e in entries.items() if isinstance(e, Lin)}
    index = tuple(
        pdg.dims[d].full_range
        if any(name not in points for name in pdg.dims.ordered(e.symbols))
        else subst_entry(e, points)
        for d, e in zip(pdg.output(branch).domain, branch.index, strict=True)
    )
    return Read(branch.source, branch.out, index)


def tensors(pdg: Pdg, read: Read, kept: Container[int] = ()) -> set[Tensor]:
    """Return the outputs that a read may refer to."""
    return {access.tensor for access in accesses(pdg, read, kept)}
