"""Precedence between overlapping branches of an open merge.

A branch with a constant in place of a dimension's variable takes precedence: `x[0] = a` over `x[t] = b`, which
then defines the remaining points. With `trl.first_match`, each branch takes precedence over all later branches. All
other overlaps stay, and are errors when the program is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from timerl_nb.compiler.ir.operations import Read
from timerl_nb.compiler.isl.operation_limit import limit_isl_work
from timerl_nb.compiler.isl.sets_and_relations import Set
from timerl_nb.compiler.symbolic.dimensions import Dims, Domain
from timerl_nb.compiler.symbolic.index_expressions import Cond, Lin, any_of, sym


@dataclass(frozen=True)
class Branch:
    """One assignment to an open merge.

    Attributes:
        read: the read of the value, under the condition of the left-hand side alone.
        index: the left-hand index; None for a condition.
    """

    read: Read
    index: tuple[Lin, ...] | None = None


@dataclass(frozen=True)
class Branches:
    """The assignments to an open merge, in program order.

    Attributes:
        all: the assignments.
        first_match: whether each branch takes precedence over all later ones.
    """

    all: tuple[Branch, ...] = ()
    first_match: bool = False

    def with_branch(self, branch: Branch) -> Branches:
        return replace(self, all=(*self.all, branch))

    def resolve(self, dims: Dims, domain: Domain, name: str) -> tuple[Read, ...]:
        """Return the reads of all branches, each without the points of branches with precedence."""
        reads: list[Read] = []
        for k, branch in enumerate(self.all):
            stronger = [
                other.read.cond
                for n, other in enumerate(self.all)
                if (n < k if self.first_match else _is_more_specific(dims, domain, other, branch))
            ]
            cond = branch.read.cond
            if stronger:
                with limit_isl_work(f"finding the remaining points of a branch of {name}"):
                    cond = _without(dims, domain, cond, any_of(*stronger))
            reads.append(replace(branch.read, cond=cond))
        return tuple(reads)


def _without(dims: Dims, domain: Domain, cond: Cond, taken: Cond) -> Cond:
    rest = Set.from_condition(dims, domain, cond) - Set.from_condition(dims, domain, taken)
    return rest.condition(Set.from_condition(dims, domain))


def _is_more_specific(dims: Dims, domain: Domain, a: Branch, b: Branch) -> bool:
    """Test whether the left-hand index of `a` is that of `b` with constants in place of some variables."""
    if a.index is None or b.index is None or a.index == b.index:
        return False
    return all(
        left is right or (right is sym(d) and not dims.ordered(left.symbols))
        for d, left, right in zip(domain, a.index, b.index, strict=True)
    )
