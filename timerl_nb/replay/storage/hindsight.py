"""Hindsight replay: steps of an episode with goals that the episode reached. Source: Andrychowicz et al. 2017."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array
from timerl_nb.base.errors import OptionError, ShapeError, one_of
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.replay.storage.n_step_returns import check_env_count, ends_of
from timerl_nb.replay.storage.ring_rows import Field

_STRATEGIES = ("future", "final", "episode")


@explain_constructor
@dataclass(frozen=True)
class Hindsight:
    """Additional rows with goals that the episode reached, for `trl.Replay(…, hindsight=)`.

    A buffer stores an episode when it ends: each step as it was, and `count` times with another goal.

    Source: Andrychowicz et al. 2017, Algorithm 1 and §4.5.

    Attributes:
        reward: a function of the achieved goals and the new goals, [count, …] each; returns the rewards,
            [count].
        count: the number of additional rows per step.
        strategy: the steps whose achieved goals become new goals: "future" draws from a step itself and later
            steps, "episode" from all steps, "final" takes the last step.
        goal: the field of the goal.
        achieved: the field of the goal that was achieved after the step.
        terminated: a function of the same arguments; returns whether the episode ends, bool[count]. None
            keeps the flags.

    Raises:
        OptionError: the strategy is unknown, or a function is not callable.
        ShapeError: the number is out of range.

    Example:
        >>> fields = {n: ((2,), "f32") for n in ("obs", "next_obs", "goal", "achieved")}
        >>> fields |= {"reward": ((), "f32"), "terminated": ((), "bool")}
        >>> near = lambda achieved, goal: -(np.abs(achieved - goal).max(axis=1) > 0.1).astype("f4")
        >>> buffer = trl.Replay(100, fields, hindsight=trl.replay.Hindsight(near, count=4))
        >>> step = {name: np.zeros((1, *shape)) for name, (shape, _) in fields.items() if shape}
        >>> step |= {"reward": [-1.0], "terminated": [False]}
        >>> buffer.insert(step), buffer.insert({**step, "terminated": [True]})
        (0, 10)
    """

    reward: Callable[[Array, Array], Any]
    count: int = 4
    strategy: Literal["future", "final", "episode"] = "future"
    goal: str = "goal"
    achieved: str = "achieved"
    terminated: Callable[[Array, Array], Any] | None = None

    def __post_init__(self) -> None:
        integer("count", self.count, least=1)
        if self.strategy not in _STRATEGIES:
            raise OptionError(
                f"strategy={self.strategy!r} is not supported.",
                hint=one_of(str(self.strategy), _STRATEGIES),
            )
        for name in ("reward", "terminated"):
            given = getattr(self, name)
            if not callable(given) and not (name == "terminated" and given is None):
                raise OptionError(
                    f"{name}={given!r} is not a function.",
                    hint="pass a function of achieved goals and new goals.",
                )


class EpisodeAssembly:
    """Incomplete episodes, per environment.

    The random numbers of an episode depend on the seed and the episode's content, but not on the order
    of several writers.

    Args:
        fields: the fields of a row.
        of: the options.
        seed: the seed of the new goals.

    Raises:
        OptionError, ShapeError: a required field is missing, or the goals differ in shape or type.
    """

    def __init__(self, fields: Mapping[str, Field], of: Hindsight, seed: int) -> None:
        missing = [n for n in (of.goal, of.achieved, "reward", "terminated") if n not in fields]
        if missing:
            raise OptionError(
                f"hindsight needs the missing fields {', '.join(missing)}.",
                hint="declare goal, achieved (the goal achieved after the step), reward and terminated.",
            )
        if fields[of.goal] != fields[of.achieved]:
            raise ShapeError(
                f"{of.goal} is {fields[of.goal]}, but {of.achieved} is {fields[of.achieved]}.",
                hint="declare both with the same shape and element type.",
            )
        self._fields, self._of, self._seed = dict(fields), of, seed
        self._episode_rows: dict[str, Array] = {}
        self._length = np.zeros(0, np.int64)

    def empty_copy(self) -> EpisodeAssembly:
        """Return an empty object with the same options."""
        return EpisodeAssembly(self._fields, self._of, self._seed)

    @property
    def names(self) -> Sequence[str]:
        """The required fields of the rows."""
        return list(self._fields)

    @property
    def fields(self) -> dict[str, Field]:
        """The fields of an entry."""
        return dict(self._fields)

    @property
    def incomplete_count(self) -> int:
        """The number of steps in incomplete episodes."""
        return int(self._length.sum())

    def take_completed(self, rows: Mapping[str, Array]) -> list[dict[str, Array]]:
        """Add one step of each environment, and return the rows of the episodes that end.

        Args:
            rows: [envs, …] by field. May also contain `truncated`, and `valid`: False for an environment
                without a step.

        Raises:
            ShapeError: the number of environments changed, or a function returned another shape.
        """
        envs = len(next(iter(rows.values())))
        if not len(self._length):
            self._length = np.zeros(envs, np.int64)
            self._reserve(16)
        check_env_count(envs, len(self._length))
        valid, ends = ends_of(rows, envs)
        stepped = np.flatnonzero(valid)
        self._reserve(int(self._length.max(initial=0)) + 1)
        for name in self._fields:
            self._episode_rows[name][stepped, self._length[stepped]] = rows[name][stepped]
        self._length[stepped] += 1
        made: list[dict[str, Array]] = []
        try:
            for env in np.flatnonzero(ends):
                episode = {n: x[env, : self._length[env]] for n, x in self._episode_rows.items()}
                made += self._relabelled(episode)
        finally:  # also if a function of the user fails: its episode is lost
            self._length[ends] = 0
        return made

    def _reserve(self, count: int) -> None:
        """Make room for a number of steps per environment."""
        envs = len(self._length)
        before = next(iter(self._episode_rows.values())).shape[1] if self._episode_rows else 0
        if before >= count:
            return
        for name, field in self._fields.items():
            grown = np.zeros((envs, max(count, 2 * before), *field.shape), field.dtype)
            if before:
                grown[:, :before] = self._episode_rows[name]
            self._episode_rows[name] = grown

    def _relabelled(self, episode: Mapping[str, Array]) -> list[dict[str, Array]]:
        """Return the rows of an episode, and `count` copies with other goals."""
        of, length = self._of, len(episode["reward"])
        digest = hashlib.blake2b(digest_size=16)
        for x in episode.values():
            digest.update(np.ascontiguousarray(x).tobytes())
        words = np.frombuffer(digest.digest(), np.uint32).tolist()
        random = np.random.default_rng([self._seed % 2**64, *words])
        steps = np.arange(length)
        made = [{n: x.copy() for n, x in episode.items()}]
        for _ in range(of.count):
            at = {
                "future": lambda: random.integers(steps, length),
                "episode": lambda: random.integers(0, length, length),
                "final": lambda: np.full(length, length - 1),
            }[of.strategy]()
            one = {n: x.copy() for n, x in episode.items()}
            one[of.goal] = episode[of.achieved][at]
            one["reward"] = self._computed("reward", of.reward, one)
            if of.terminated is not None:
                one["terminated"] = self._computed("terminated", of.terminated, one)
            made.append(one)
        return made

    def _computed(self, name: str, function: Callable[[Array, Array], Any], rows: Any) -> Array:
        """Call a function of the user with copies of achieved goals and new goals."""
        field, count = self._fields[name], len(rows["reward"])
        goals = rows[self._of.achieved].copy(), rows[self._of.goal].copy()
        found = convert_array(f"the result of {name}=", function(*goals), field.dtype)
        if found.shape != (count, *field.shape):
            raise ShapeError(
                f"{name}= returned the shape {list(found.shape)} for {count} rows.",
                hint=f"return one value per row: the shape {[count, *field.shape]}.",
            )
        return np.array(found)

    def state(self) -> dict[str, Array]:
        """Return all incomplete episodes as arrays by name."""
        most = int(self._length.max(initial=0))
        kept = {f"held {n}": x[:, :most] for n, x in self._episode_rows.items()}
        seed = np.array([self._seed % 2**64], np.uint64)
        return {**kept, "steps length": self._length, "steps seed": seed}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load the arrays returned by `state`."""
        self._length = np.array(state["steps length"], np.int64)
        self._seed = int(state["steps seed"][0])
        self._episode_rows = {}
        most = int(self._length.max(initial=0))
        if not len(self._length):
            return
        self._reserve(max(most, 16))
        for name in self._episode_rows:
            self._episode_rows[name][:, :most] = state[f"held {name}"][:, :most]
