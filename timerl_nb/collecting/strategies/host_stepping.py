"""Environments on the host: steps of all of them, written into the memory of a batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array, numbers_of
from timerl_nb.base.errors import EnvError, ExecutionError
from timerl_nb.collecting.batch import Batch, Ended
from timerl_nb.collecting.collection_task import Task
from timerl_nb.collecting.mask_checks import check_masks_reported, complete_masks, first_masks
from timerl_nb.collecting.policies.collecting_policy import (
    STATE,
    StepFeedback,
    check_numbers,
)
from timerl_nb.collecting.strategies.asynchronous_stepping import (
    AsynchronousStepping,
    AsynchronousTurns,
)
from timerl_nb.collecting.strategies.host_result_checks import (
    REWARDS,
    HostChecks,
    environment_error,
    memory,
)
from timerl_nb.collecting.strategy import (
    SEED_OFFSET,
    Counts,
    Prepared,
    Strategy,
    Weights,
)
from timerl_nb.env.action_masks import Masks, Rows


class Stepping(Protocol):
    """Environments on the host with common steps.

    Attributes:
        space: action space of one environment, from Gymnasium.
        restarts_at_once: whether the last step of an episode returns the first observation of the
            next one. Otherwise a separate step resets the environment.
    """

    space: Any
    restarts_at_once: bool

    def reset(self) -> tuple[Any, Rows | None]:
        """Return the first observations, [envs, …], and their masks of actions."""
        ...

    def step(self, action: Array) -> tuple[Any, Any, Any, Any, Any, Masks | None]:
        """Step all environments.

        Returns:
            Observations, rewards, terminated, truncated, the last observations, and the masks of
            actions. The last observations are those of the ended episodes in order of environments,
            with `restarts_at_once` only, or None. Without any masks, the last element is None.
        """
        ...

    def at_fault(self, error: Exception) -> tuple[Sequence[int], str]:
        """Return the environments that may have raised an error (all if unknown), and its text."""
        ...

    def close(self) -> None: ...

    @property
    def seeds(self) -> Sequence[int] | None:
        """Seed of each environment; None for a common seed."""
        ...


class _Carried(NamedTuple):
    """State of the environments between two batches.

    Attributes:
        obs: observations; None before the first reset.
        over: whether each environment is reset at the next step.
        returns, lengths: partial sums of the open episodes.
        done: steps of each environment so far.
        came: results of the last step, for a policy with memory.
        mask: masks of actions with the observations; None if the environments report none.
    """

    obs: Array | None
    over: Array
    returns: Array
    lengths: Array
    done: int
    came: StepFeedback | None = None
    mask: Array | None = None

    @staticmethod
    def initial(envs: int, done: int = 0) -> _Carried:
        return _Carried(None, np.zeros(envs, bool), np.zeros(envs), np.zeros(envs, np.int64), done)


_UNKNOWN: Final[Any] = object()  # placeholder for the result of an interrupted step


class _BatchInProgress:
    """An incomplete batch; after an interrupt, the next call completes it.

    Attributes:
        at: step, the policy's result and the environments' result; a missing result is None. All
            three are assigned in one operation, so an interrupt leaves them consistent.
        whole: the complete batch, and the state after it.
    """

    def __init__(self, task: Task, seen: tuple[Any, Any], acts: tuple[Any, Any]) -> None:
        steps, envs = task.steps, task.envs
        self.obs = memory((steps + 1, envs, *seen[0]), seen[1])
        self.action = memory((steps, *acts[0]), acts[1])
        self.reward = memory((steps, envs), np.float32)
        self.gained = np.empty((steps, envs))  # unconverted, from the environments
        # unconverted, from the environments
        self.ended, self.cut = np.empty((2, steps, envs), np.bool_)
        self.extras: dict[str, Array] = {}
        self.states: dict[str, Array] = {}
        self.last: dict[int, Array] = {}
        self.mask: Array | None = None  # [steps + 1, envs, …]
        self.last_mask: dict[int, Array] = {}
        self.at: tuple[int, Any, Any] = (0, None, None)
        self.whole: tuple[Batch, _Carried] | None = None


class HostTurns:
    """Open environments on the host.

    Args:
        make: creates the environments from a seed.
        task: the task.
        seed: seed of all random numbers.
    """

    def __init__(self, make: Callable[[int], Stepping], task: Task, seed: int) -> None:
        self._make, self._task, self._seed = make, task, seed
        self._stepping = make(seed)
        self._steps, self._envs = task.steps, task.envs
        self._checks = HostChecks(task, task.envs)
        self._seen, self._acts = self._checks.seen, self._checks.acts
        self._allowed = self._checks.allowed
        self._first = task.position.first  # number of the first environment
        self._checked_type: Any = None  # shape and type of the last checked actions
        self._act = task.acting.on_host(seed, self._stepping.space)
        self._mask_argument = task.acting.mask_argument
        self._interrupts = 0  # number of interrupts during a step
        # the state after the last batch, and the incomplete batch
        self._now: tuple[_Carried, _BatchInProgress | None] = (_Carried.initial(task.envs), None)
        self.counts = Counts(0, None, 0)
        self.speed: float | None = None

    def next(self, weights: Weights, version: int = 0) -> Batch:
        carried, part = self._now
        if part is not None and part.at[2] is _UNKNOWN:
            carried, part = self._begin_again(carried, part)
        if part is None:
            part = _BatchInProgress(self._task, self._seen, self._acts)
            if carried.obs is None:
                part.at = 0, None, _UNKNOWN
                self._now = carried, part
            if carried.obs is None:
                obs, rows = self._reset()
                part.obs[0] = self._checks.convert_observations(obs)
                mask = first_masks(self._mask_argument, rows)
            else:
                part.obs[0], mask = carried.obs, carried.mask
            if mask is not None:
                part.mask = memory((self._steps + 1, *mask.shape), np.bool_)
                part.mask[0] = mask
            part.at = 0, None, None
            self._now = carried, part
        if part.whole is None:
            self._complete(part, weights, carried)
            part.whole = self._batch(part, carried, version)
        return part.whole[0]

    @property
    def envs(self) -> int:
        return self._envs

    def set_steps(self, steps: int) -> None:
        """Change the number of steps per batch."""
        self._task, self._steps = replace(self._task, steps=steps), steps

    def confirm_received(self) -> None:
        """Confirm that the reader has received the last batch."""
        part = self._now[1]
        if part is not None and part.whole is not None:
            self._now = part.whole[1], None

    @property
    def is_lost(self) -> bool:
        part = self._now[1]
        return part is not None and part.at[1] is not None and part.at[2] is _UNKNOWN

    def _complete(self, part: _BatchInProgress, weights: Weights, carried: _Carried) -> None:
        """Collect the remaining steps of a batch."""
        done, looks_back = carried.done, self._task.acting.looks_back
        act, step, fits, sizes = (
            self._act,
            self._stepping.step,
            self._checked_type,
            self._allowed.sizes,
        )
        obs, action, extras, kind = part.obs, part.action, part.extras, self._seen[1]
        gained, ended, cut = part.gained, part.ended, part.cut
        writes, first, began = self._task.acting.writes, part.at[0], perf_counter()
        masks = part.mask
        taken = masks if self._mask_argument.is_taken else None
        plain = "" if fits is None else f"u{fits[1].itemsize}"
        is_bounded = isinstance(sizes, int)
        for t in range(first, self._steps):
            t, acted, stepped = part.at
            if acted is None:
                came = self._last_step_results(part, carried, t) if looks_back else None
                seen = obs[t].copy() if writes else obs[t]
                if taken is None:
                    acted = act(weights, seen, done + t, came)
                else:
                    acted = act(weights, seen, done + t, came, taken[t].copy())
                part.at = t, acted, None
            made = acted["action"]
            if made.__class__ is not np.ndarray or (made.shape, made.dtype) != fits:
                made = self._checks.check_actions(made)
                fits, plain = (made.shape, made.dtype), f"u{made.dtype.itemsize}"
            if is_bounded:
                whole = made.view(plain)  # as unsigned integers, negative actions exceed any size
                if whole.item(whole.argmax()) >= sizes:
                    self._allowed.check(made[None], t)
            elif sizes is not None:
                self._allowed.check(made[None], t)
            action[t] = made
            if len(acted) > 1 or extras:
                if looks_back:
                    self._write_states(part.states, acted, t)
                self._write_extras(extras, acted, t)
            if stepped is None:
                try:
                    part.at = t, acted, _UNKNOWN
                    # a copy, because environments may store the action or write into it
                    part.at = t, acted, step(action[t].copy())
                except Exception as error:
                    raise self._environment_error(error, done, t, action[t]) from error
                stepped = part.at[2]
            after, gain, ended[t], cut[t], final, told = stepped
            if gain.__class__ is not np.ndarray or gain.dtype.char not in "fd":
                gain = convert_array(REWARDS, gain, np.dtype(np.float64), error=EnvError)
            gained[t] = gain
            plainly = after.__class__ is np.ndarray and after.dtype == kind
            obs[t + 1] = after if plainly else self._checks.convert_observations(after)
            if final is not None:
                part.last[t] = self._checks.convert_observations(final)
            if told is not None or masks is not None:
                self._write_masks(part, told, t)
            part.at = t + 1, None, None
            if t == 0:  # the policy may compile in the first step
                began = perf_counter()
        part.reward[:] = convert_array(REWARDS, gained, part.reward.dtype)
        self._checked_type = fits
        counted = self._steps - max(first, 1)
        self.speed = counted * self._envs / (perf_counter() - began) if counted > 0 else None
        self.counts = Counts(2 * self._steps, None, self._steps * (5 + len(extras)))

    def _write_masks(self, part: _BatchInProgress, told: Masks | None, t: int) -> None:
        """Write the masks of actions after a step."""
        now, final = Masks(None) if told is None else told
        if part.mask is None:
            check_masks_reported(self._mask_argument, now, t)
            return
        over = part.ended[t] | part.cut[t]
        at_once = self._stepping.restarts_at_once
        optional = np.zeros_like(over) if at_once else over
        shape = part.mask.shape[2:]
        part.mask[t + 1] = complete_masks(self._mask_argument, now, shape, optional, t)
        if at_once and over.any():
            every = np.ones(over.sum(), bool)
            part.last_mask[t] = complete_masks(self._mask_argument, final, shape, every, t)

    def _last_step_results(
        self, part: _BatchInProgress, carried: _Carried, t: int
    ) -> StepFeedback | None:
        """Return the results of the last step, for the policy."""
        if t == 0:
            return carried.came
        over = part.ended[:t] | part.cut[:t]
        if self._stepping.restarts_at_once:
            begins = over[-1]
        else:  # the step after the end of an episode has begun the next one
            begins = over[-2] if t > 1 else carried.over
        reward = convert_array(REWARDS, part.gained[t - 1], part.reward.dtype)
        return StepFeedback(begins, reward, part.ended[t - 1], part.cut[t - 1])

    def _reset(self) -> Any:
        try:
            return self._stepping.reset()
        except Exception as error:
            raise self._environment_error(error, 0, 0, None) from error

    def _begin_again(
        self, carried: _Carried, part: _BatchInProgress
    ) -> tuple[_Carried, _BatchInProgress | None]:
        """Begin new episodes, because the state after an interrupted step is unknown."""
        lost = self._interrupts + self.is_lost
        self._stepping.close()
        self._stepping = self._make((self._seed + lost * SEED_OFFSET) % 2**64)
        self._interrupts = lost
        if part.at[1] is None:  # during the first reset
            self._now = carried, None
            return self._now
        self._now = _Carried.initial(self._envs, carried.done + part.at[0] + 1), None
        return self._now

    def _write_extras(self, extras: dict[str, Array], acted: dict[str, Any], t: int) -> None:
        """Write the extras of the policy at a step."""
        added = {
            name: x for name, x in acted.items() if name != "action" and not name.startswith(STATE)
        }
        if t == 0:
            for name, x in added.items():
                one = numbers_of(f"the policy's {name}", x)
                kind = np.float32 if one.dtype == np.float64 else one.dtype
                extras[name] = memory((self._steps, *one.shape), kind)
        for name in {**extras, **added}:
            wanted = extras[name].shape[1:] if name in extras else ()
            one = self._checks.check_extra(name, added.get(name), wanted, t)
            extras[name][t] = convert_array(f"the policy's {name}", one, extras[name].dtype)

    def _write_states(self, states: dict[str, Array], acted: dict[str, Any], t: int) -> None:
        """Write the policy's state before a step."""
        count = self._steps if self._task.stores_states else 1
        for name in self._task.acting.state_names if t < count else ():
            x = acted[STATE + name]
            if t == 0:
                states[name] = memory((count, *x.shape), x.dtype)
            states[name][t] = x

    def _environment_error(self, error: Exception, done: int, t: int, action: Any) -> Exception:
        """Return an error with the failed environment, its seed and step."""
        if action is not None:
            try:
                check_numbers({"action": action[None]}, t, self._first)
            except ExecutionError as nan:
                return nan
        when = "in its reset" if action is None else f"at step {t} of the batch"
        return environment_error(
            self._stepping, error, f"{when}, after {done + t} steps of each", self._first
        )

    def _batch(
        self, part: _BatchInProgress, before: _Carried, version: int
    ) -> tuple[Batch, _Carried]:
        steps, at_once = self._steps, self._stepping.restarts_at_once
        obs, reward, over = part.obs, part.reward, before.over
        valid, terminated, truncated = (memory(reward.shape, np.bool_) for _ in "vtt")
        valid[:] = True
        done = part.ended | part.cut
        if not at_once:  # the step after the end of an episode only resets the environment
            valid[0] = ~before.over
            valid[1:] = ~done[:-1]
            over = done[-1].copy()
            done &= valid
        np.logical_and(part.ended, valid, out=terminated)
        np.logical_and(done, ~terminated, out=truncated)
        final_masks = None if part.mask is None else part.mask[1:][done]
        if at_once and part.last_mask:
            final_masks = np.concatenate([*part.last_mask.values()])
        if at_once:
            seen = np.concatenate([*part.last.values()]) if part.last else obs[:0, 0].copy()
            if len(seen) != done.sum():
                raise EnvError(
                    "the environments reset in the last step of an episode, but do not return all "
                    "last observations.",
                    hint='return them as "final_obs" in the infos, as in Gymnasium.',
                )
        else:
            seen = obs[1:][done]
        whole = Ended(
            reward.copy(),
            valid.copy(),
            (done,),
            before.returns,
            before.lengths,
            seen,
            is_all=False,
            masks=final_masks,
        )
        counted = reward * valid
        since = np.arange(steps)[:, None] > np.where(
            done.any(0), steps - 1 - done[::-1].argmax(0), -1
        )
        goes_on = ~done.any(0)
        carried = _Carried(
            obs[steps].copy(),
            over,
            before.returns * goes_on + (counted * since).sum(0, dtype=np.float64),
            before.lengths * goes_on + (valid & since).sum(0),
            before.done + steps,
            self._last_step_results(part, before, steps) if self._task.acting.looks_back else None,
            None if part.mask is None else part.mask[steps].copy(),
        )
        flags = {"terminated": terminated, "truncated": truncated, "valid": valid}
        own = {"obs": obs[:steps], "action": part.action, "reward": reward, "last_obs": obs[steps]}
        states = self._task.acting.tree_of(part.states) if part.states else {}
        more: dict[str, Any] = {"extras": part.extras, "states": states, "policy_version": version}
        if part.mask is not None:
            more |= {"action_mask": part.mask[:steps], "last_action_mask": part.mask[steps]}
        made = Batch(**own, **flags, **more, _ended=whole)
        return made, carried

    def close(self) -> None:
        self._stepping.close()


class HostStrategy(Strategy):
    """A strategy with environments on the host."""

    compiles = False

    @abstractmethod
    def make_stepping(self, task: Task, seed: int) -> Stepping:
        """Create the environments of a task."""

    def make_asynchronous(self, task: Task, seed: int) -> AsynchronousStepping:
        """Create environments that step asynchronously; see `Strategy.is_asynchronous`."""
        raise AssertionError("not asynchronous")

    def prepared(self, task: Task) -> Prepared:
        if task.ready is not None:
            return lambda seed: AsynchronousTurns(partial(self.make_asynchronous, task), task, seed)
        return lambda seed: HostTurns(partial(self.make_stepping, task), task, seed)
