"""Shard of many Gymnasium environments, stepped by a separate process.

Worker processes execute the text of this file, of `action_masks` and of `indexed_environment`; they import no other module of this
package, and therefore not JAX.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import numpy as np

from timerl_nb.env.action_masks import Rows, reported_rows
from timerl_nb.env.indexed_environment import Numbered


class Share:
    """Several environments behind the interface of a single one, with one more axis in its arrays.

    They are created by `reset`: other processes create the object only for its spaces.

    Args:
        spec, spaces: those of one environment, as Gymnasium's objects.
        width: the number of environments in the largest shard; rows beyond this shard's are 0.
        file: the file in which each shard writes the number of its current environment.
        place: the position of the shard.
        numbers: the numbers of its environments.
        seeds: their seeds.
    """

    metadata: dict[str, Any] = {}
    render_mode = None

    def __init__(
        self,
        spec: Any,
        spaces: tuple[Any, Any],
        width: int,
        file: str,
        place: int,
        numbers: range,
        seeds: Sequence[int],
    ) -> None:
        from gymnasium.vector.utils import batch_space

        self.observation_space, self.action_space = (batch_space(s, width) for s in spaces)
        self._spec, self._numbers, self._seeds = spec, numbers, list(seeds)
        self._file, self._place = file, place
        self._envs: Any = None
        self._rest = width - len(numbers)
        self._is_infinite = False  # whether a conversion has made a finite observation infinite

    def reset(self, **_: Any) -> Any:
        try:
            obs, more = self._start_envs()
            told = self._take_warnings()
            self._add_masks(told, reported_rows(more, len(self._numbers)), None)
            return self._pad_rows(obs), told
        except Exception as error:
            return self._pad_rows(None), self._failure_message(error)

    def _start_envs(self) -> Any:
        import gymnasium
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles interrupts
        self._at = np.memmap(self._file, np.int64, "r+")[self._place :]

        def make(number: int) -> Any:
            self._at[0] = number
            return Numbered(gymnasium.make(self._spec), number, self._at, self._record_infinite)

        self._envs = SyncVectorEnv(
            [lambda n=n: make(n) for n in self._numbers],
            copy=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        return self._envs.reset(seed=list[int | None](self._seeds))

    def step(self, actions: Any) -> Any:
        try:
            obs, *flags, more = self._envs.step(actions[: len(self._numbers)])
        except Exception as error:
            none = self._pad_rows(None)
            return none, *(np.zeros(len(none)) for _ in range(3)), self._failure_message(error)
        last = self._take_warnings()
        if "final_obs" in more:
            last["last"] = (np.stack(more["final_obs"][more["_final_obs"]]),)
        if "action_mask" in more or "action_mask" in more.get("final_info", ()):
            count = len(self._numbers)
            final = reported_rows(more.get("final_info", {}), count)
            over = more.get("_final_obs")
            self._add_masks(
                last, reported_rows(more, count), None if final is None else final.take(over)
            )
        return self._pad_rows(obs), *map(self._pad_rows, flags), last

    def _pad_rows(self, x: Any) -> Any:
        """Pad an array to the number of rows of the largest shard."""
        if x is None:
            space: Any = self.observation_space
            return np.zeros(space.shape, space.dtype)
        return (
            x
            if not self._rest
            else np.concatenate([x, np.zeros((self._rest, *x.shape[1:]), x.dtype)])
        )

    def _add_masks(self, told: dict[str, Any], now: Rows | None, final: Rows | None) -> None:
        """Add masks of actions to infos; see `action_masks.Masks`."""
        if now is not None or final is not None:
            told["masks"] = tuple(None if rows is None else tuple(rows) for rows in (now, final))

    def _record_infinite(self) -> None:
        self._is_infinite = True

    def _take_warnings(self) -> dict[str, Any]:
        told = {"infinite": True} if self._is_infinite else {}
        self._is_infinite = False
        return told

    def _failure_message(self, error: Exception) -> dict[str, Any]:
        return {"failed": (int(self._at[0]), f"{type(error).__name__}: {error}")}

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()
