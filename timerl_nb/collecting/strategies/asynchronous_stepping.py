"""Environments on the host that step asynchronously (`trl.collect(…, ready=k)`).

The policy acts whenever k environments have returned a result, as in EnvPool's asynchronous mode. A batch has the first k
completed trajectories. Trajectories of one environment are consecutive: each begins at the observation at which the
previous one ended. An environment with a completed trajectory continues with its next one, so no environment waits for
another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array, numbers_of
from timerl_nb.base.errors import EnvError, ExecutionError
from timerl_nb.collecting.batch import Batch, Ended
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.mask_checks import check_masks_reported, complete_masks, first_masks
from timerl_nb.collecting.policies.collecting_policy import (
    STATE,
    PartialFeedback,
    check_numbers,
)
from timerl_nb.collecting.strategies.host_result_checks import (
    REWARDS,
    HostChecks,
    environment_error,
    memory,
)
from timerl_nb.collecting.strategy import SEED_OFFSET, Counts, Weights
from timerl_nb.env.action_masks import Masks


class Received(NamedTuple):
    """Results of some environments, in order of arrival.

    Attributes:
        ids: numbers of the environments, without duplicates, [rows].
        obs, reward, terminated, truncated: results of their steps; of a reset, only the observation counts.
        last: last observations of ended episodes in order of rows; see `Stepping.step`.
        masks: masks of actions of the rows.
    """

    ids: Array
    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    last: Any
    masks: Masks


class AsynchronousStepping(Protocol):
    """Environments on the host that step asynchronously.

    Attributes:
        space, restarts_at_once: see `Stepping`.
    """

    space: Any
    restarts_at_once: bool

    def start(self) -> None:
        """Begin the reset of all environments."""
        ...

    def receive(self) -> Received:
        """Wait for a fixed number of environments, and return their results."""
        ...

    def send(self, ids: Array, action: Array) -> None:
        """Begin a step of the environments of the last `receive`."""
        ...

    def at_fault(self, error: Exception) -> tuple[Sequence[int], str]: ...

    def close(self) -> None: ...

    @property
    def seeds(self) -> Sequence[int] | None: ...


@dataclass(frozen=True)
class _Trajectory:
    """Completed steps of one environment.

    Attributes:
        env: number of the environment.
        arrays: its arrays by name, [steps, …] or [steps + 1, …].
        final: last observation and mask of each episode that ended, by step.
        returns, lengths: partial sums of its open episode before the first step.
    """

    env: int
    arrays: Mapping[str, Array]
    final: Mapping[int, tuple[Array, Array | None]]
    returns: float
    lengths: int


class _Trajectories:
    """Trajectories in progress, one for each environment.

    Attributes:
        at: number of steps in each trajectory, [envs].
        arrays: arrays by name, [envs, steps, …]; of `obs` and `action_mask` [envs, steps + 1, …].
        complete: completed trajectories, in order of completion.
        has_extras: whether the policy's extras are known.
        is_begun: whether each environment has returned its first observation.
        over: whether each environment is reset by its next step.
        begins: whether the last observation of each environment is the first one of an episode.
        reward, terminated, truncated: results of the last step, [envs].
    """

    def __init__(self, task: Task, seen: tuple[Any, Any], acts: tuple[Any, Any]) -> None:
        envs, self.steps = task.envs, task.steps
        self.at = np.zeros(envs, np.int64)
        self.arrays: dict[str, Array] = {}
        self.allocate("obs", seen[0], seen[1], self.steps + 1)
        self.allocate("action", acts[0][1:], acts[1])
        self.allocate("gained", (), np.float64)
        self.allocate("version", (), np.int64)
        for name in ("terminated", "truncated", "valid"):
            self.allocate(name, (), np.bool_)
        self.has_extras = False
        self.complete: deque[_Trajectory] = deque()
        self.is_begun, self.over, self.begins = np.zeros((3, envs), bool)
        self.reward = np.zeros(envs, np.float32)
        self.terminated, self.truncated = np.zeros((2, envs), bool)
        self._returns, self._lengths = np.zeros(envs), np.zeros(envs, np.int64)  # of open episodes
        self._returns_before, self._lengths_before = self._returns.copy(), self._lengths.copy()
        self._final: list[dict[int, tuple[Array, Array | None]]] = [{} for _ in range(envs)]

    def allocate(
        self, name: str, shape: Sequence[int], kind: Any, count: int | None = None
    ) -> None:
        self.arrays[name] = np.zeros((len(self.at), count or self.steps, *shape), kind)

    def begin(self, ids: Array, obs: Array, mask: Array | None) -> None:
        """Write the first observations of environments."""
        self._write_seen(ids, obs, mask)
        self.is_begun[ids] = self.begins[ids] = True

    def _write_seen(self, ids: Array, obs: Array, mask: Array | None) -> None:
        self.arrays["obs"][ids, self.at[ids]] = obs
        if mask is not None:
            self.arrays["action_mask"][ids, self.at[ids]] = mask

    def follow(
        self,
        ids: Array,
        obs: Array,
        results: tuple[Array, Array, Array],
        masks: tuple[Array | None, Array | None],
        last: Array | None,
        *,
        restarts_at_once: bool,
    ) -> None:
        """Write the results of steps; see `Received`.

        Args:
            ids: numbers of the environments.
            obs: observations after the steps.
            results: rewards, terminated and truncated.
            masks: masks after the steps, and with the last observations.
            last: last observations of ended episodes in order of `ids`.
            restarts_at_once: see `Stepping`.
        """
        gained, ended, cut = results
        steps, valid, own = self.at[ids], ~self.over[ids], self.arrays
        over = (ended | cut) & valid
        own["gained"][ids, steps] = gained
        own["valid"][ids, steps] = valid
        own["terminated"][ids, steps] = ended & valid
        own["truncated"][ids, steps] = cut & valid & ~ended
        self.reward[ids] = convert_array(REWARDS, gained, self.reward.dtype)
        self.terminated[ids], self.truncated[ids] = ended, cut
        self.begins[ids] = over if restarts_at_once else ~valid
        self.over[ids] = over & (not restarts_at_once)
        self.at[ids] += 1
        self._write_seen(ids, obs, masks[0])
        for row, at in enumerate(np.flatnonzero(over).tolist()):
            if not restarts_at_once:
                final = obs[at].copy(), None if masks[0] is None else masks[0][at]
            elif last is None or row >= len(last):
                raise EnvError(
                    "the environments reset in the last step of an episode, but do not return all "
                    "last observations.",
                    hint='return them as "final_obs" in the infos, as in Gymnasium.',
                )
            else:
                final = last[row], None if masks[1] is None else masks[1][row]
            self._final[ids[at]][int(steps[at])] = final
        self._returns[ids] = np.where(over, 0, self._returns[ids] + self.reward[ids] * valid)
        self._lengths[ids] = np.where(over, 0, self._lengths[ids] + valid)
        for env in ids[self.at[ids] == self.steps].tolist():
            self._finish(env)

    def _finish(self, env: int) -> None:
        """Complete the trajectory of an environment, and begin its next one."""
        own = {name: x[env].copy() for name, x in self.arrays.items()}
        sums = float(self._returns_before[env]), int(self._lengths_before[env])
        self.complete.append(_Trajectory(env, own, self._final[env], *sums))
        self._final[env] = {}
        self._returns_before[env], self._lengths_before[env] = (
            self._returns[env],
            self._lengths[env],
        )
        self.at[env] = 0
        for name in ("obs", "action_mask"):
            if name in self.arrays:
                self.arrays[name][env, 0] = self.arrays[name][env, -1]


class AsynchronousTurns:
    """Open environments on the host that step asynchronously.

    Args:
        make: creates the environments from a seed.
        task: the task, with `ready`.
        seed: seed of all random numbers.
    """

    def __init__(self, make: Callable[[int], AsynchronousStepping], task: Task, seed: int) -> None:
        assert task.ready is not None
        self._make, self._task, self._seed = make, task, seed
        self._ready = task.ready
        self._checks = HostChecks(task, task.ready)
        self._stepping = make(seed)
        self._act = task.acting.on_host(seed, self._stepping.space)
        self._open = self._trajectories()
        self._ids: Array | None = None  # environments that wait for an action
        self._calls = 0  # calls of the policy
        self._interrupts = 0  # number of interrupts
        self._unreceived: Batch | None = None  # a batch that was not received
        self.is_lost = False
        self.speed: float | None = None
        self.counts = Counts(0, None, 0)

    def _trajectories(self) -> _Trajectories:
        return _Trajectories(self._task, self._checks.seen, self._checks.acts)

    @property
    def envs(self) -> int:
        return self._ready

    def set_steps(self, steps: int) -> None:
        """Change the number of steps per trajectory; the environments begin new episodes."""
        self._task = replace(self._task, steps=steps)
        self._begin_again()

    def next(self, weights: Weights, version: int = 0) -> Batch:
        if self.is_lost:
            self._begin_again()
        if self._unreceived is None:
            # an interrupt leaves open which environments have received their actions
            self.is_lost, began, calls = True, perf_counter(), self._calls
            is_first = self._ids is None
            while len(self._open.complete) < self._ready:
                self._step(weights, version)
            steps, calls = self._task.steps, self._calls - calls
            speed = None if is_first else steps * self._ready / (perf_counter() - began)
            arrays = 5 + len(self._extra_names)
            self.counts, self.speed = Counts(2 * calls, None, calls * arrays), speed
            self._unreceived = self._batch()
            self.is_lost = False
        return self._unreceived

    def confirm_received(self) -> None:
        self._unreceived = None

    def _begin_again(self) -> None:
        """Begin new episodes, because the state after an interrupt is unknown."""
        self._stepping.close()
        self._interrupts += 1
        self._stepping = self._make((self._seed + self._interrupts * SEED_OFFSET) % 2**64)
        self._open, self._ids, self._unreceived = self._trajectories(), None, None
        self.is_lost = False

    def _step(self, weights: Weights, version: int) -> None:
        """Act on the environments that wait for an action, and receive the next results."""
        ids = self._ids
        action = None if ids is None else self._actions(ids, weights, version)
        try:
            if ids is None or action is None:
                self._stepping.start()
            else:
                self._stepping.send(ids, action)
            came = self._stepping.receive()
        except Exception as error:
            raise self._environment_error(error) from error
        self._write(came)
        self._ids = came.ids

    def _environment_error(self, error: Exception) -> EnvError:
        which, _ = self._stepping.at_fault(error)
        if len(which) == 1 and not self._open.is_begun[which[0]]:
            return environment_error(self._stepping, error, "in its reset")
        when = (
            f"at step {self._open.at[which[0]]} of its trajectory"
            if len(which) == 1
            else "in a step"
        )
        return environment_error(self._stepping, error, when)

    # --- policy ---------------------------------------------------------------------------------

    def _actions(self, ids: Array, weights: Weights, version: int) -> Array:
        """Return actions for the last observations of some environments, and write all results."""
        open_, acting = self._open, self._task.acting
        at, own = open_.at[ids], open_.arrays
        came, mask = None, None
        if acting.looks_back:
            came = PartialFeedback(
                open_.begins[ids],
                open_.reward[ids],
                open_.terminated[ids],
                open_.truncated[ids],
                ids,
                self._task.envs,
            )
        if "action_mask" in own and acting.mask_argument.is_taken:
            mask = own["action_mask"][ids, at]
        acted = self._act(weights, own["obs"][ids, at], self._calls, came, mask)
        self._calls += 1
        made = self._checks.check_actions(acted["action"])
        self._check_values({**acted, "action": made}, ids, at)
        own["action"][ids, at] = made
        own["version"][ids, at] = version
        self._write_extras(acted, ids, at)
        return own["action"][ids, at]

    def _check_values(self, acted: Mapping[str, Any], ids: Array, at: Array) -> None:
        """Check for NaN and the range of actions; errors name the environment instead of the row."""
        arrays = {n: np.asarray(x) for n, x in acted.items() if not n.startswith(STATE)}

        def check(values: Mapping[str, Array], step: int) -> None:
            whole = {name: x[None] for name, x in values.items()}
            check_numbers(whole, step)
            self._checks.allowed.check(whole["action"], step)

        try:
            check(arrays, 0)
        except ExecutionError:
            for row, env in enumerate(ids.tolist()):
                alone = {
                    n: np.zeros((self._task.envs, *x.shape[1:]), x.dtype) for n, x in arrays.items()
                }
                for name, x in arrays.items():
                    alone[name][env] = x[row]
                check(alone, int(at[row]))
            raise

    @property
    def _extra_names(self) -> list[str]:
        return [name for name in self._open.arrays if name.startswith(_EXTRA)]

    def _write_extras(self, acted: Mapping[str, Any], ids: Array, at: Array) -> None:
        """Write extras, and the states before the step."""
        open_, own = self._open, self._open.arrays
        added = {n: x for n, x in acted.items() if n != "action" and not n.startswith(STATE)}
        known = [name.removeprefix(_EXTRA) for name in self._extra_names]
        for name in dict.fromkeys([*known, *added]):
            if _EXTRA + name not in own and not open_.has_extras:
                one = numbers_of(f"the policy's {name}", added[name])
                kind = np.float32 if one.dtype == np.float64 else one.dtype
                open_.allocate(_EXTRA + name, one.shape[1:], kind)
            whole = own.get(_EXTRA + name)
            wanted = () if whole is None else (self._ready, *whole.shape[2:])
            one = self._checks.check_extra(name, added.get(name), wanted, int(at[0]))
            assert whole is not None
            whole[ids, at] = convert_array(f"the policy's {name}", one, whole.dtype)
        open_.has_extras = True
        for name in self._task.acting.state_names:
            x = acted[STATE + name]
            if STATE + name not in own:
                open_.allocate(STATE + name, x.shape[1:], x.dtype)
            own[STATE + name][ids, at] = x

    # --- environments ---------------------------------------------------------------------------

    def _write(self, came: Received) -> None:
        """Write received results."""
        open_, argument = self._open, self._task.acting.mask_argument
        ids, masks = came.ids, came.masks
        obs = self._checks.convert_observations(came.obs)
        first = ~open_.is_begun[ids]
        ended, cut = (np.asarray(x, bool) for x in (came.terminated, came.truncated))
        over, at_once = (ended | cut) & ~first, self._stepping.restarts_at_once
        now = final = None
        if not open_.is_begun.any():
            found = first_masks(argument, masks.now)
            if found is not None:
                open_.allocate("action_mask", found.shape[1:], np.bool_, self._task.steps + 1)
        step = int(open_.at[ids].max())
        if "action_mask" in open_.arrays:
            shape = open_.arrays["action_mask"].shape[2:]
            optional = np.zeros_like(over) if at_once else over
            now = complete_masks(argument, masks.now, shape, optional, step, ids)
            if at_once and over.any():
                every = np.ones(over.sum(), bool)
                final = complete_masks(argument, masks.final, shape, every, step)
        else:
            check_masks_reported(argument, masks.now, step)
        if first.any():
            open_.begin(ids[first], obs[first], None if now is None else now[first])
        if first.all():
            return
        kept = ~first
        gained = convert_array(REWARDS, came.reward, np.dtype(np.float64), error=EnvError)
        last = None if came.last is None else self._checks.convert_observations(came.last)
        open_.follow(
            ids[kept],
            obs[kept],
            (gained[kept], ended[kept], cut[kept]),
            (None if now is None else now[kept], final),
            last,
            restarts_at_once=at_once,
        )

    def _batch(self) -> Batch:
        """Return the first completed trajectories as columns of a batch."""
        taken = [self._open.complete.popleft() for _ in range(self._ready)]
        steps, acting = self._task.steps, self._task.acting

        def columns(name: str, count: int = steps) -> Array:
            parts = [one.arrays[name][:count] for one in taken]
            found = memory((count, len(parts), *parts[0].shape[1:]), parts[0].dtype)
            return np.stack(parts, 1, out=found)

        def last(name: str) -> Array:
            whole = taken[0].arrays[name]
            found = memory((len(taken), *whole.shape[1:]), whole.dtype)
            return np.stack([one.arrays[name][steps] for one in taken], out=found)

        names = ("obs", "action", "terminated", "truncated", "valid")
        made: dict[str, Any] = {name: columns(name) for name in names}
        made["reward"] = memory(made["valid"].shape, np.float32)
        made["reward"][:] = convert_array(REWARDS, columns("gained"), made["reward"].dtype)
        made["last_obs"] = last("obs")
        if "action_mask" in taken[0].arrays:
            made["action_mask"] = columns("action_mask")
            made["last_action_mask"] = last("action_mask")
        done = made["terminated"] | made["truncated"]
        final = [taken[k].final[t] for t, k in zip(*np.nonzero(done), strict=True)]
        seen = np.stack([obs for obs, _ in final]) if final else made["last_obs"][:0].copy()
        masks = None
        if "action_mask" in made:
            rows = [mask for _, mask in final]
            masks = np.array(rows, bool).reshape(len(rows), *made["action_mask"].shape[2:])
        ended = Ended(
            made["reward"].copy(),
            made["valid"].copy(),
            (done,),
            np.array([one.returns for one in taken]),
            np.array([one.lengths for one in taken]),
            seen,
            is_all=False,
            masks=masks,
        )
        count = steps if self._task.stores_states else 1
        states = {n: columns(STATE + n, count) for n in acting.state_names}
        return Batch(
            **made,
            extras={name.removeprefix(_EXTRA): columns(name) for name in self._extra_names},
            states=acting.tree_of(states) if states else {},
            policy_version=columns("version"),
            env_ids=np.array([one.env for one in taken]),
            _ended=ended,
        )

    def close(self) -> None:
        self._stepping.close()


_EXTRA = "extra "  # prefix of the policy's extras among the arrays
