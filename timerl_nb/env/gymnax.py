"""gymnax environments, compiled as part of the program: `make("gymnax.CartPole-v1")`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from timerl_nb.base.errors import EnvError, one_of
from timerl_nb.compiler.ir.shapes import dtype_name
from timerl_nb.env.environment import Autoreset
from timerl_nb.env.jax_environment import JaxEnvironment, import_library
from timerl_nb.env.spaces import Box, Discrete

NEVER = 2**31 - 1  # steps


class GymnaxEnvironment(JaxEnvironment):
    """Environment of gymnax.

    gymnax reports the end of an episode by one flag. This class separates it: episodes are truncated at the limit in its
    parameters (`max_steps_in_episode`) or at `max_steps`, and terminated if they would end without a limit.

    Args:
        name: the name, as for `gymnax.make`.
        autoreset, max_steps, differentiable: as for `Environment`. New episodes begin by `reset_env`.
        options: fields of gymnax's parameters, such as `gravity=3.7`; all others are passed to `gymnax.make`.

    Raises:
        EnvError: gymnax is not installed, has no such environment, or a space is not supported.

    Example:
        >>> env = trl.env.make("gymnax.CartPole-v1")  # doctest: +SKIP
    """

    def __init__(
        self,
        name: str,
        *,
        autoreset: Autoreset | None = None,
        max_steps: int | None = None,
        differentiable: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(autoreset=autoreset, max_steps=max_steps, differentiable=differentiable)
        self._name = name
        self._gymnax, self._params = self._make(options)
        self.max_steps = max_steps or int(self._params.max_steps_in_episode)
        self.act_space = self._space(self._gymnax.action_space(self._params), "actions")
        seen = self._layout.seen
        of = self._space(self._gymnax.observation_space(self._params), "observations")
        low, high = (0, of.n - 1) if isinstance(of, Discrete) else (of.low, of.high)
        self.obs_space = Box(low, high, seen.shape, dtype_name(seen.dtype))

    @property
    def made_as(self) -> str:
        return f"gymnax.{self._name}"

    def _make(self, options: dict[str, Any]) -> tuple[Any, Any]:
        gymnax = import_library("gymnax", "gymnax", "gymnax")
        if self._name not in gymnax.registered_envs:
            raise EnvError(
                f"gymnax has no environment {self._name!r}.",
                hint=one_of(str(self._name), gymnax.registered_envs),
            )
        try:
            names = {f.name for f in fields(gymnax.make(self._name)[1])}
            ours = {n: x for n, x in options.items() if n in names}
            made, params = gymnax.make(
                self._name, **{n: x for n, x in options.items() if n not in names}
            )
        except Exception as error:  # gymnax may raise anything
            raise EnvError(f"{self.made_as}: {type(error).__name__}: {error}") from error
        return made, params.replace(**ours)

    def _space(self, space: Any, what: str) -> Box | Discrete:
        kind = type(space).__name__
        if kind == "Discrete":
            return Discrete(int(space.n))
        if kind == "Box":
            low, high = np.asarray(space.low), np.asarray(space.high)
            if what == "observations":  # nothing depends on the bounds of single elements
                low, high = low.min(), high.max()
            return Box(low, high, tuple(space.shape))
        raise EnvError(
            f"{self.made_as}: {what} in a {kind} are not supported.",
            hint="use an environment with a Box or Discrete space.",
        )

    def first(self, key: Any) -> tuple[Any, Any]:
        seen, state = self._gymnax.reset_env(key, self._params_with_limit(self.max_steps))
        return state, seen

    def after(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any]:
        env = self._gymnax
        seen, after, reward, *_ = env.step_env(
            key, state, action, self._params_with_limit(self.max_steps)
        )
        *_, ended, _ = env.step_env(key, state, action, self._params_with_limit(NEVER))
        return after, seen, reward, ended

    def _params_with_limit(self, steps: int | None) -> Any:
        """Return gymnax's parameters with another step limit."""
        return self._params.replace(max_steps_in_episode=steps)
