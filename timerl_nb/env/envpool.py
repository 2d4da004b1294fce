"""EnvPool environments, for `trl.collect` only: `make("envpool.Pong-v5")`."""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType
from typing import Any

from timerl_nb.base.errors import EnvError
from timerl_nb.compiler.symbolic.dimensions import Domain
from timerl_nb.env.environment import Simulation, Step, Tensor
from timerl_nb.env.gymnasium import ours, plain_spaces, row_conversions

HINT = "install the extra, if EnvPool supports this platform: pip install 'timerl-nb[envpool]'."


class PoolEnvironment(Simulation):
    """Environment of EnvPool, for use with `trl.collect`.

    Args:
        name: the name, as for `envpool.make`.
        max_steps: the number of steps after which an episode is truncated; by default the environment's own.
        options: passed to `envpool.make`.

    Attributes:
        space: the space of plain actions, as Gymnasium's object.
        conversions: functions from observations to plain ones and from plain actions, of several environments; None if
            the spaces are plain.

    Raises:
        EnvError: EnvPool is not installed, has no environment of this name, or a space is not supported.

    Example:
        >>> env = trl.env.make("envpool.Pong-v5")  # doctest: +SKIP
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
            raise EnvError(
                f"EnvPool has no environment {name!r}.",
                hint="list the names by envpool.list_all_envs().",
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the precision of the spaces' bounds
            try:
                spec = pool.make_spec(name, **self.options)
            except (TypeError, AssertionError) as error:
                raise EnvError(f"envpool.{name}: {error}.") from None
            own = spec.gymnasium_observation_space, spec.gymnasium_action_space
            seen, self.space = plain_spaces(self.made_as, *own)
            self.obs_space, self.act_space = ours(seen, self.space)
        self.conversions = row_conversions(*own)
        self.max_steps = max_steps or spec.config.max_episode_steps

    @property
    def made_as(self) -> str:
        return f"envpool.{self.name}"

    def pool(self, count: int, seed: int, threads: int, ready: int | None = None) -> Any:
        """Return an EnvPool of `count` environments, seeded with `seed`, `seed` + 1, ….

        With `ready`, it is asynchronous and not reset, and receives results of so many environments in one call.
        """
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
                **({} if ready is None else {"batch_size": ready}),
                **self.options,
            )
            if ready is None:
                made.reset()  # creates the spaces
            else:
                made.observation_space  # noqa: B018 (creates the space)
        return made

    def begin(self, domain: Domain) -> Tensor:
        raise EnvError(
            f"{self.made_as} cannot be part of a program.",
            hint=f'use it with trl.collect("{self.made_as}", policy).',
        )

    def play(self, action: Tensor, time: Domain, first: Tensor) -> Step:
        raise AssertionError("it has not begun")


def library() -> ModuleType | None:
    """Return EnvPool, or None if it is not installed."""
    try:
        return importlib.import_module("envpool")
    except ImportError:
        return None
