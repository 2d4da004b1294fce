"""A share of many environments, stepped by a process of its own.

Processes are given this file's text, and that of `numbered`: they import nothing of ours, and so not JAX.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import numpy as np

from timerl_nb.env.indexed_environment import Numbered


class Share:
    """Some of many environments, which a process takes for a single one whose arrays have an axis more.

    They are made as it is reset: it is made in other processes as well, for its spaces.

    Args:
        spec, spaces: of one, as Gymnasium has them.
        width: how many there are in the greatest share; what is behind these is 0.
        file: where each share writes the number of the one that is at play.
        place: of the share among all.
        numbers: which they are.
        seeds: theirs.
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
        self._is_infinite = False  # whether a finite number of an observation has become infinite

    def reset(self, **_: Any) -> Any:
        try:
            return self._pad_rows(self._start_envs()), self._take_warnings()
        except Exception as error:
            return self._pad_rows(None), self._failure_message(error)

    def _start_envs(self) -> Any:
        import gymnasium
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks for steps is interrupted
        self._at = np.memmap(self._file, np.int64, "r+")[self._place :]

        def make(number: int) -> Any:
            self._at[0] = number
            return Numbered(gymnasium.make(self._spec), number, self._at, self._record_infinite)

        self._envs = SyncVectorEnv(
            [lambda n=n: make(n) for n in self._numbers],
            copy=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        return self._envs.reset(seed=list[int | None](self._seeds))[0]

    def step(self, actions: Any) -> Any:
        try:
            obs, *flags, more = self._envs.step(actions[: len(self._numbers)])
        except Exception as error:
            none = self._pad_rows(None)
            return none, *(np.zeros(len(none)) for _ in range(3)), self._failure_message(error)
        last = self._take_warnings()
        if "final_obs" in more:
            last["last"] = (np.stack(more["final_obs"][more["_final_obs"]]),)
        return self._pad_rows(obs), *map(self._pad_rows, flags), last

    def _pad_rows(self, x: Any) -> Any:
        """An array of as many rows as all shares have."""
        if x is None:
            space: Any = self.observation_space
            return np.zeros(space.shape, space.dtype)
        return (
            x
            if not self._rest
            else np.concatenate([x, np.zeros((self._rest, *x.shape[1:]), x.dtype)])
        )

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
