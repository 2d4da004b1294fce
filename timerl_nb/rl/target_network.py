"""Target networks: delayed or averaged parameters of another network. Source: Mnih et al. 2015."""

from __future__ import annotations

from typing import Generic, TypeVar

from timerl_nb.base.errors import DomainError
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.indexing.index_parsing import Index
from timerl_nb.compiler.language.inputs.tensor_sources import Parameter, tensor, value, where
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.compiler.symbolic.index_expressions import sym
from timerl_nb.nn.module import Module

M = TypeVar("M", bound=Module)


class Target(Generic[M]):
    """Copy of a network, with parameters that follow those of the original.

    Call `take_over` or `approach` after the optimiser's step.

    Attributes:
        network: the same layers with separate parameters; no gradient flows to them.
    """

    def __init__(self, of: M) -> None:
        self._pairs: list[tuple[Parameter, RecurrentTensor]] = []
        for p in of.params:
            domain = p.op.domain
            if not domain:
                raise DomainError(
                    f"{p.name} has no dimension to change along, so a target cannot follow it.",
                    hint="create the network with domain=(t,), where t counts the steps.",
                )
            own = tensor(p.shape, p.dtype, domain=domain).named(f"{p.name}.target")
            first = {domain[-1]: 0}
            own[tuple(first.get(d, Index(p.ctx, sym(d))) for d in domain)] = p.at(
                {domain[-1]: sym(domain[-1]) * 0}
            )
            self._pairs.append((p, own))
        self.network: M = of.with_values([own.detach() for _, own in self._pairs])

    def take_over(self, every: int) -> None:
        """Copy all parameters after every `every` steps."""
        every = integer("every", every, least=1)
        for p, own in self._pairs:
            step = value(Index(p.ctx, sym(p.op.domain[-1]) + 1))
            self._update_target(p, own, where(step % every == 0, p.next, own))

    def approach(self, share: float | RecurrentTensor) -> None:
        """Move the target by the fraction `share` towards the network at each step. Source: Lillicrap et al. 2016."""
        if not isinstance(share, RecurrentTensor):
            share = number("the share", share, least=0, most=1)
        for p, own in self._pairs:
            self._update_target(p, own, own + share * (p.next - own))

    def _update_target(self, p: Parameter, own: RecurrentTensor, after: RecurrentTensor) -> None:
        *outer, last = p.op.domain
        own[(*(Index(p.ctx, sym(d)) for d in outer), Index(p.ctx, sym(last) + 1))] = after
