"""Brax environments, compiled as part of the program: `make("brax.inverted_pendulum")`."""

from __future__ import annotations

from typing import Any

from timerl_nb.base.errors import EnvError, one_of
from timerl_nb.compiler.ir.shapes import dtype_name
from timerl_nb.env.environment import Autoreset
from timerl_nb.env.jax_environment import JaxEnvironment, import_library
from timerl_nb.env.spaces import Box

EVERYWHERE = float("inf")


class BraxEnvironment(JaxEnvironment):
    """Environment of Brax, without Brax's wrappers.

    Args:
        name: the name, as for `brax.envs.get_environment`.
        autoreset, max_steps, differentiable: as for `Environment`. By default episodes are truncated after 1,000
            steps, as by `brax.envs.create`.
        options: passed to `brax.envs.get_environment`, such as `backend="spring"`.

    Raises:
        EnvError: Brax is not installed, or has no environment of this name.

    Example:
        >>> env = trl.env.make("brax.inverted_pendulum")  # doctest: +SKIP
    """

    max_steps = 1000

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
        envs = import_library("brax.envs", "Brax", "brax")
        known = list(getattr(envs, "_envs", ()))
        if known and name not in known:
            raise EnvError(f"Brax has no environment {name!r}.", hint=one_of(str(name), known))
        try:
            self._brax = envs.get_environment(name, **options)
        except Exception as error:  # Brax may raise anything
            raise EnvError(f"{self.made_as}: {type(error).__name__}: {error}") from error
        self.act_space = Box(-1.0, 1.0, (int(self._brax.action_size),))
        seen = self._layout.seen
        self.obs_space = Box(-EVERYWHERE, EVERYWHERE, seen.shape, dtype_name(seen.dtype))

    @property
    def made_as(self) -> str:
        return f"brax.{self._name}"

    def first(self, key: Any) -> tuple[Any, Any]:
        state = self._brax.reset(key)
        return state, state.obs

    def after(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any]:
        after = self._brax.step(state, action)
        return after, after.obs, after.reward, after.done != 0
