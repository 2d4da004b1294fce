"""EnvPool's environments: `make("envpool.Pong-v5")`. They are stepped by `trl.collect` alone."""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType
from typing import Any

from timerl_nb.base.errors import EnvError
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Simulation, Step, Tensor
from timerl_nb.env.gymnasium import ours

HINT = "install the extra, where there is a build of it: pip install 'timerl-nb[envpool]'."


class PoolEnvironment(Simulation):
    """An environment of EnvPool's, by its name there.

    Args:
        name: as for `envpool.make`.
        max_steps: the length after which an episode is truncated; the environment's own by default.
        options: go to `envpool.make`.
    """

    def __init__(self, name: str, *, max_steps: int | None = None, **options: Any) -> None:
        super().__init__(max_steps=max_steps)
        self.name, self.options = name, dict(options)
        pool = library()
        if pool is None:
            raise EnvError(
                "environments named envpool.… need EnvPool, which is not installed.", hint=HINT
            )
        if name not in pool.list_all_envs():
            raise EnvError(f"EnvPool has no environment {name!r}.", hint="envpool.list_all_envs().")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the precision of its spaces' bounds
            try:
                spec = pool.make_spec(name, **self.options)
            except (TypeError, AssertionError) as error:
                raise EnvError(f"envpool.{name}: {error}.") from None
            self.space = spec.gymnasium_action_space
            self.obs_space, self.act_space = ours(spec.gymnasium_observation_space, self.space)
        self.max_steps = max_steps or spec.config.max_episode_steps

    @property
    def made_as(self) -> str:
        return f"envpool.{self.name}"

    def pool(self, count: int, seed: int, threads: int) -> Any:
        """So many of them, as EnvPool has them: seeded with `seed`, `seed` + 1, …"""
        pool = library()
        assert pool is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = pool.make(
                self.name,
                env_type="gymnasium",
                num_envs=count,
                seed=seed,
                num_threads=min(count, threads),
                max_episode_steps=self.max_steps,
                **self.options,
            )
            made.reset()  # which makes its spaces
        return made

    def begin(self, domain: Domain) -> Tensor:
        raise EnvError(
            f"{self.made_as} is no part of a program.",
            hint=f'trl.collect("{self.made_as}", policy).',
        )

    def play(self, action: Tensor, time: Domain, first: Tensor) -> Step:
        raise AssertionError("it has not begun")


def library() -> ModuleType | None:
    """EnvPool, if it is installed."""
    try:
        return importlib.import_module("envpool")
    except ImportError:
        return None
