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

    Call `hard_update` or `soft_update` after the optimiser's step.

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
            target = tensor(p.shape, p.dtype, domain=domain).named(f"{p.name}.target")
            first = {domain[-1]: 0}
            target[tuple(first.get(d, Index(p.ctx, sym(d))) for d in domain)] = p.at(
                {domain[-1]: sym(domain[-1]) * 0}
            )
            self._pairs.append((p, target))
        self.network: M = of.with_values([target.detach() for _, target in self._pairs])

    def hard_update(self, every: int) -> None:
        """Copy all parameters after every `every` steps."""
        every = integer("every", every, least=1)
        for p, target in self._pairs:
            step = value(Index(p.ctx, sym(p.op.domain[-1]) + 1))
            self._update_target(p, target, where(step % every == 0, p.next, target))

    def soft_update(self, tau: float | RecurrentTensor) -> None:
        """Move the target by the fraction `tau` towards the network at each step. Source: Lillicrap et al. 2016."""
        if not isinstance(tau, RecurrentTensor):
            tau = number("tau", tau, least=0, most=1)
        for p, target in self._pairs:
            self._update_target(p, target, target + tau * (p.next - target))

    def _update_target(self, p: Parameter, target: RecurrentTensor, new: RecurrentTensor) -> None:
        *outer, last = p.op.domain
        target[(*(Index(p.ctx, sym(d)) for d in outer), Index(p.ctx, sym(last) + 1))] = new
