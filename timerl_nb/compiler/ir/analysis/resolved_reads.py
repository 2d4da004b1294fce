"""What a read is of: the operations' outputs behind it, merges looked through.

A merge (`o[b, i, 0] = …; o[b, i, t + 1] = …`) is no operation that runs; who reads it reads one of its
branches. Whoever asks which, asks here: fusion, constraints, memory, executors and views. The reference
evaluator does not: it has a meaning of its own to be compared with.
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
    """One output that a read may be of.

    Attributes:
        read: of that output, seen from the reader's point: at which index, and where at all.
        way: the reads from the reader to the output; each is of the merge of which the next is a branch.
        across: those of them whose slices do not pass through their merge as slices (`x[i, 0:T]`,
            where points come from one branch or another): `read` is then of all that it may be.
    """

    read: Read
    way: tuple[Read, ...]
    across: tuple[Read, ...] = ()

    @property
    def tensor(self) -> Tensor:
        return self.read.tensor

    @property
    def is_direct(self) -> bool:
        """Whether no merge is between."""
        return len(self.way) == 1


def accesses(pdg: Pdg, read: Read, kept: Container[int] = ()) -> Iterator[Access]:
    """The outputs that a read may be of, in the order of the branches.

    Exactly one of them is read at each point, where no slice goes across branches and no merge reads
    itself (fusion puts copies there; before, what stays from point to point is left out).

    Args:
        kept: merges that stand for themselves.
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
    """What a slice across branches may read of one: all along the dimensions that are sliced."""
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
    """The outputs that a read may be of."""
    return {access.tensor for access in accesses(pdg, read, kept)}
