"""A buffer that a program uses: a resource on the host, with three functions in the order in which they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError, ShapeError
from timerl_nb.compiler.ir.shapes import dtype_name
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.inputs.user_defined_functions import Resource, udf
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.replay.storage.replay_buffer import Replay
from timerl_nb.replay.storage.ring_rows import fields_of
from timerl_nb.replay.storage.sample import Sample, Ticket

_NONE = 2**64 - 1  # a ticket's word where nothing was drawn


class InProgram:
    """A buffer of a program's run, made anew for each by its seed.

    Its functions run in the order in which they are written, in each turn of the loops around them. A run that is saved
    saves the buffer, too.

    Args:
        capacity, fields, options: of `trl.Replay`; the seed is the run's.
        least: as long as there are fewer rows what is drawn is zeros, with weights of 0.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, tuple[tuple[int, ...], Any]],
        *,
        least: int = 1,
        **options: Any,
    ) -> None:
        if "seed" in options:
            raise OptionError("the seed of a program's buffer is that of its run.")
        like = Replay(1, fields, **options)  # refuses here what it would refuse in the run
        self._fields, self._given = like.fields, list(fields_of(fields))
        self._least = integer("least", least, least=1)

        def make(_: Mapping[str, int], seed: int) -> _RunBuffer:
            return _RunBuffer(Replay(capacity, fields, seed=seed, **options))

        self._resource = Resource(make, name="replay")

    def insert(self, rows: Mapping[str, RecurrentTensor]) -> None:
        """Write rows, [count, …] by field; with returns of several steps one of each environment.

        Raises:
            ShapeError: a field is missing, or there is another.
        """
        names = [*self._given, *(n for n in ("truncated", "valid") if n in rows)]
        names = list(dict.fromkeys(names))
        if sorted(names) != sorted(rows):
            raise ShapeError(
                f"rows have {', '.join(rows)}, and the buffer's {', '.join(self._given)}.",
            )

        def insert(held: _RunBuffer, at: object, *arrays: Array) -> None:
            held.buffer.insert(dict(zip(names, arrays, strict=True)))

        udf(insert, *(rows[n] for n in names), out=[], resource=self._resource, name="insert")

    def sample(self, count: int, beta: float = 0.4, *, domain: Sequence[Any] = ()) -> Sample:
        """Draw entries at every point of some dimensions: a sample of recurrent tensors.

        Its index is i32, its probability f32, and its ticket u32[count, 2]. Weights are 0 where there were too few rows.

        Args:
            count, beta: as of `trl.Replay.sample`.
            domain: the dimensions, such as `(i,)`.
        """
        many, by = integer("the number of entries", count, least=1), number("beta", beta, least=0)
        fields, least = self._fields, self._least

        def sample(held: _RunBuffer, at: object) -> tuple[Array, ...]:
            if len(held.buffer) < least:
                rows = [np.zeros((many, *f.shape), f.dtype) for f in fields.values()]
                nothing = np.zeros(many, np.float32)
                words = _words(np.full(many, _NONE, np.uint64))
                return *rows, nothing.astype(np.int32), nothing, nothing, words
            drawn = held.buffer.sample(many, by)
            words = _words(drawn.ticket.serial.astype(np.uint64))
            chance = drawn.probability.astype(np.float32)
            place = drawn.index.astype(np.int32)
            return *(drawn.rows[n] for n in fields), place, drawn.weight, chance, words

        out = [((many, *f.shape), dtype_name(f.dtype)) for f in fields.values()]
        out += [((many,), "i32"), ((many,), "f32"), ((many,), "f32"), ((many, 2), "u32")]
        *rows, index, weight, chance, ticket = udf(
            sample, out=out, domain=domain, resource=self._resource, name="sample"
        )
        return Sample(dict(zip(fields, rows, strict=True)), index, weight, chance, ticket)

    def update(self, ticket: RecurrentTensor, errors: RecurrentTensor) -> None:
        """Say how wrong entries were, [count]; those that were overwritten since are left alone."""

        def update(held: _RunBuffer, at: object, words: Array, given: Array) -> None:
            serial = _serial(words)
            if serial[0] != _NONE:
                held.buffer.update(held.ticket(serial), given)

        udf(update, ticket, errors, out=[], resource=self._resource, name="update")


class _RunBuffer:
    """What a run holds."""

    def __init__(self, buffer: Replay) -> None:
        self.buffer = buffer

    def ticket(self, serial: Array) -> Ticket:
        return self.buffer.ticket(serial.astype(np.int64))

    def save(self) -> dict[str, Array]:
        return self.buffer.state()

    def load(self, saved: Mapping[str, Array]) -> None:
        self.buffer.restore(saved)


def _words(serial: Array) -> Array:
    """Numbers of 64 bits as two words each, since backends have narrower ones."""
    return np.stack([serial & 0xFFFFFFFF, serial >> np.uint64(32)], 1).astype(np.uint32)


def _serial(words: Array) -> Array:
    low, high = np.asarray(words, np.uint64).T
    return (high << np.uint64(32)) | low
