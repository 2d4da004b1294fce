"""Synthetic environment for measurements, with a cost set by the size of its observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timerl_nb.base.errors import EnvError
from timerl_nb.compiler.language.inputs.tensor_sources import constant, random_uniform
from timerl_nb.compiler.language.recurrent_tensor import broadcast_to
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box

STRIDE = 0.05  # distance per step of the greatest action


class Synthetic(Environment):
    """Walk to 0 on the line from -1 to 1, with actions from -1 to 1.

    The observation is the position, repeated to a shape. The reward is minus the distance from 0 after the step. Episodes
    end only with the time dimension.

    Args:
        obs_shape: the shape of observations.
        options: as for `Environment`.

    Raises:
        EnvError: the shape is invalid.

    Example:
        >>> trl.env.make("synthetic", obs_shape=(3, 84, 84)).obs_space.shape
        (3, 84, 84)
    """

    act_space = Box(-1.0, 1.0, (1,))
    terminates = False

    def __init__(self, obs_shape: Sequence[int] = (3, 4, 4), **options: Any) -> None:
        super().__init__(**options)
        if not isinstance(obs_shape, Sequence) or not all(
            isinstance(s, int) and not isinstance(s, bool) and s > 0 for s in obs_shape
        ):
            raise EnvError(
                f"obs_shape={obs_shape!r} is not a shape.", hint="give positive sizes: (3, 4, 4)."
            )
        self.obs_space = Box(-1.0, 1.0, tuple(obs_shape))

    def first_state(self, domain: Domain) -> Tensor:
        return random_uniform((), -1.0, 1.0, domain=domain)

    def transition(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        after = (state + STRIDE * action.clip(-1.0, 1.0).reshape(())).clip(-1.0, 1.0)
        return after, -abs(after), constant(False)

    def observe(self, state: Tensor) -> Tensor:
        return broadcast_to(state, self.obs_space.shape)
