"""Sampling of transitions from a replay window, uniformly or by priority."""

from __future__ import annotations

from typing import Any

from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.inputs.tensor_sources import maximum, tensor
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.env.environment import Step
from timerl_nb.rl.in_program_priority_tree import DeviceTree, Draws, device_tree
from timerl_nb.rl.replay_window import Window

Tensor = RecurrentTensor

_EPSILON = 1e-3  # added to errors: every transition can be drawn again


class SampledTransitions:
    """Transitions drawn from a window at every point of a domain.

    With `alpha` they are drawn in proportion to (|error| + 0.001)**alpha, with the error of their last draw; a new transition
    has the greatest priority so far (Schaul et al. 2016). `update` sets the errors.

    Args:
        count: the number of draws.
        domain: indices of dimensions, the window's last: `(b, t)` draws for each environment.
        alpha: the exponent of priorities; None for uniform draws.
        beta: the exponent of the importance weights.

    Attributes:
        at: their positions in the window, i32 [count].
        weight: importance weights, f32 [count], at most 1; or 1.0.
    """

    def __init__(
        self,
        window: Window,
        count: int,
        *,
        domain: tuple[Any, ...],
        alpha: float | None = None,
        beta: Any = 0.4,
    ) -> None:
        self._window, self._domain = window, domain
        self._alpha = None if alpha is None else number("alpha", alpha, least=0, most=1e3)
        count = integer("the number of draws", count, least=1)
        self.weight: Any = 1.0
        if self._alpha is None:
            self.at = window.draw(count, domain=domain)
            return
        *outer, _ = domain
        self._tree = device_tree(window.length, domain=domain)
        self._max_priority = tensor((), domain=domain).named("max_priority")
        self._tree[(*outer, 0)] = device_tree(window.length)
        self._max_priority[(*outer, 0)] = (
            1.0 + _EPSILON
        ) ** self._alpha  # for an error of 1, as in `Replay`
        self._full: DeviceTree = self._tree.with_leaves(window.leaf, self._max_priority)
        self._drawn: Draws = self._full.draw(count)
        self.at, self.weight = window.of_leaves(self._drawn.index), self._drawn.weight(beta)

    def starts(self, x: Tensor) -> Tensor:
        """Return a tensor's values at the points where the transitions began."""
        return self._window.starts(x, self.at)

    def ends(self, x: Tensor) -> Tensor:
        """Return a tensor's values at the points where the transitions ended."""
        return self._window.ends(x, self.at)

    def returns(self, step: Step, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the transitions' n-step returns, final observations and discounts (`Window.returns`)."""
        reward, final_obs, discount = self._window.returns(step, gamma)
        return self.ends(reward), self.ends(final_obs), self.ends(discount)

    def update(self, error: Tensor) -> None:
        """Set the errors of the drawn transitions, [count]: their priorities from the next step on."""
        if self._alpha is None:
            return
        *outer, last = self._domain
        priority = (abs(error.detach()) + _EPSILON) ** self._alpha
        self._tree[(*outer, last + 1)] = self._full.with_leaves(self._drawn.index, priority)
        self._max_priority[(*outer, last + 1)] = maximum(self._max_priority, priority.max(axis=0))
