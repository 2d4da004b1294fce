"""Sequences of steps for recurrent policies. Source: Kapturowski et al. 2019, §3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.replay.storage.n_step_returns import check_env_count, ends_of
from timerl_nb.replay.storage.ring_rows import FLAG, Field

_ADDED = ("mask", "learn")


@explain_constructor
@dataclass(frozen=True)
class Sequences:
    """Sequences as entries of a buffer, for `trl.Replay(…, sequence=)`.

    A sequence never crosses the end of an episode. Sequences of an episode begin at its steps 0, `period`,
    2 `period`, … An episode's last sequence may be shorter; zeros fill it. A sequence without a step that the
    previous one lacks is omitted.

    Source: Kapturowski et al. 2019, §3.

    Attributes:
        length: the number of steps of a sequence.
        period: the number of steps between the beginnings of two sequences, at most `length - burn_in`. None
            for this maximum.
        burn_in: the number of first steps that only warm up the recurrent state.
        state: the fields of the recurrent state. An entry has their values at its first step.

    Raises:
        ShapeError: a number is out of range.

    Example:
        >>> fields = {"obs": ((3,), "f32"), "memory": ((8,), "f32"), "terminated": ((), "bool")}
        >>> sequence = trl.replay.Sequences(length=6, burn_in=2, state=("memory",))
        >>> buffer = trl.Replay(100, fields, sequence=sequence)
        >>> step = {"obs": np.zeros((1, 3)), "memory": np.ones((1, 8)), "terminated": [False]}
        >>> sum(buffer.insert(step) for _ in range(10))
        2
        >>> sample = buffer.sample(4)
        >>> sample["obs"].shape, sample["memory"].shape, sample["learn"].shape
        ((4, 6, 3), (4, 8), (4, 6))
    """

    length: int
    period: int | None = None
    burn_in: int = 0
    state: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        length = integer("the length of a sequence", self.length, least=1)
        most = length - integer("burn_in", self.burn_in, least=0, most=length - 1)
        if self.period is not None:
            integer(
                "period",
                self.period,
                least=1,
                most=most,
                hint="choose at most length - burn_in: otherwise some steps are never learnt.",
            )
        if isinstance(self.state, str) or not isinstance(self.state, Sequence):
            raise OptionError(
                f"state={self.state!r} is not a sequence of field names.",
                hint='write state=("memory",).',
            )
        object.__setattr__(self, "state", tuple(self.state))

    @property
    def stride(self) -> int:
        """The number of steps between the beginnings of two sequences."""
        return self.length - self.burn_in if self.period is None else self.period


class SequenceAssembly:
    """Incomplete sequences, per environment.

    Args:
        fields: the fields of a step.
        of: the options.

    Raises:
        OptionError: a field of the state is unknown, or a field has a reserved name.
    """

    def __init__(self, fields: Mapping[str, Field], of: Sequences) -> None:
        for name in of.state:
            if name not in fields:
                raise OptionError(
                    f"the state {name!r} is not a field of the buffer.",
                    hint=one_of(name, [*fields]),
                )
        for name in _ADDED:
            if name in fields:
                raise OptionError(
                    f"the field name {name!r} is reserved: a buffer of sequences adds it.",
                    hint=f'choose another name, such as "my_{name}".',
                )
        self._fields, self._of = dict(fields), of
        self._sequence_rows: dict[str, Array] = {}
        self._length = self._unseen = self._first = np.zeros(0, np.int64)

    def empty_copy(self) -> SequenceAssembly:
        """Return an empty object with the same options."""
        return SequenceAssembly(self._fields, self._of)

    @property
    def names(self) -> Sequence[str]:
        """The required fields of the rows."""
        return list(self._fields)

    @property
    def fields(self) -> dict[str, Field]:
        """The fields of an entry."""
        length = (self._of.length,)
        found = {
            n: f if n in self._of.state else Field((*length, *f.shape), f.dtype)
            for n, f in self._fields.items()
        }
        return {**found, **{n: Field(length, FLAG.dtype) for n in _ADDED}}

    @property
    def incomplete_count(self) -> int:
        """The number of steps that are in no complete sequence."""
        return int(self._unseen.sum())

    def take_completed(self, rows: Mapping[str, Array]) -> list[dict[str, Array]]:
        """Add one step of each environment, and return the sequences that it completes.

        Args:
            rows: [envs, …] by field. May also contain `truncated`, and `valid`: False for an environment
                without a step.

        Raises:
            ShapeError: the number of environments changed.
        """
        envs = len(next(iter(rows.values())))
        if not len(self._length):
            self._begin(envs)
        check_env_count(envs, len(self._length))
        valid, ends = ends_of(rows, envs)
        stepped = np.flatnonzero(valid)
        for name in self._fields:
            self._sequence_rows[name][stepped, self._length[stepped]] = rows[name][stepped]
        self._length[stepped] += 1
        self._unseen[stepped] += 1
        is_full = self._length == self._of.length
        due = np.flatnonzero((is_full | ends) & (self._unseen > 0))
        made = [self._entries(due)] if len(due) else []
        self._begin_next(np.flatnonzero(is_full & ~ends))
        ended = np.flatnonzero(ends)
        self._length[ended], self._unseen[ended], self._first[ended] = 0, 0, 1
        return made

    def _entries(self, envs: Array) -> dict[str, Array]:
        """Return the sequences of some environments, with zeros after their last steps."""
        step = np.arange(self._of.length)
        mask = step < self._length[envs, None]
        learn = mask & ((step >= self._of.burn_in) | (self._first[envs, None] == 1))
        found = {n: x[envs] for n, x in self._sequence_rows.items()}
        for name, x in found.items():
            if name in self._of.state:
                found[name] = x[:, 0].copy()
            else:
                x[~mask] = 0
        return {**found, "mask": mask, "learn": learn}

    def _begin_next(self, envs: Array) -> None:
        """Begin the next sequences of some environments with the last steps of full ones."""
        kept = self._of.length - self._of.stride
        if len(envs):
            for x in self._sequence_rows.values():
                x[envs, :kept] = x[envs, self._of.stride :]
        self._length[envs], self._unseen[envs], self._first[envs] = kept, 0, 0

    def _begin(self, envs: int) -> None:
        self._sequence_rows = {
            n: np.zeros((envs, self._of.length, *f.shape), f.dtype) for n, f in self._fields.items()
        }
        self._length, self._unseen = np.zeros(envs, np.int64), np.zeros(envs, np.int64)
        self._first = np.ones(envs, np.int64)

    def state(self) -> dict[str, Array]:
        """Return all incomplete sequences as arrays by name."""
        counts = {"length": self._length, "unseen": self._unseen, "first": self._first}
        return {f"held {n}": x for n, x in self._sequence_rows.items()} | {
            f"steps {n}": x for n, x in counts.items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load the arrays returned by `state`."""
        self._begin(len(state["steps length"]))
        if not len(self._length):
            self._sequence_rows = {}
        for name in self._sequence_rows:
            self._sequence_rows[name][:] = state[f"held {name}"]
        self._length[:], self._unseen[:] = state["steps length"], state["steps unseen"]
        self._first[:] = state["steps first"]
