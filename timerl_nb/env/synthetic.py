"""A synthetic environment, whose cost is that of its observations' size: for measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timerl_nb.base.errors import EnvError
from timerl_nb.compiler.language.inputs.tensor_sources import constant, random_uniform
from timerl_nb.compiler.language.recurrent_tensor import broadcast_to
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Environment, Tensor
from timerl_nb.env.spaces import Box

STRIDE = 0.05  # how far the greatest action goes


class Synthetic(Environment):
    """Walk to 0 on the line from -1 to 1, by an action of -1 to 1 at a time.

    The observation is the state, repeated to the shape `obs_shape`; the reward is minus the distance
    from 0 after the step. Episodes end with the time dimension alone.

    Args:
        obs_shape: of observations, as that of images: (3, 4, 4) by default.
        options: as for `Environment`.
    """

    act_space = Box(-1.0, 1.0, (1,))
    terminates = False

    def __init__(self, obs_shape: Sequence[int] = (3, 4, 4), **options: Any) -> None:
        super().__init__(**options)
        if not isinstance(obs_shape, Sequence) or not all(
            isinstance(s, int) and not isinstance(s, bool) and s > 0 for s in obs_shape
        ):
            raise EnvError(
                f"obs_shape={obs_shape!r} is no shape.", hint="give positive sizes: (3, 4, 4)."
            )
        self.obs_space = Box(-1.0, 1.0, tuple(obs_shape))

    def first_state(self, domain: Domain) -> Tensor:
        return random_uniform((), -1.0, 1.0, domain=domain)

    def transition(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        after = (state + STRIDE * action.clip(-1.0, 1.0).reshape(())).clip(-1.0, 1.0)
        return after, -abs(after), constant(False)

    def observe(self, state: Tensor) -> Tensor:
        return broadcast_to(state, self.obs_space.shape)
