"""Replay buffer inside a program: a host resource with the user-defined functions insert, sample and update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.errors import OptionError, ShapeError
from timerl_nb.compiler.ir.shapes import dtype_name
from timerl_nb.compiler.language.argument_checks import integer
from timerl_nb.compiler.language.foreign_names import explain_constructor
from timerl_nb.compiler.language.inputs.user_defined_functions import Resource, udf
from timerl_nb.compiler.language.recurrent_tensor import RecurrentTensor
from timerl_nb.replay.storage.rate_limits import Beta, check_beta
from timerl_nb.replay.storage.replay_buffer import Replay
from timerl_nb.replay.storage.ring_rows import fields_of
from timerl_nb.replay.storage.sample import Sample, Ticket

_NONE = 2**64 - 1  # serial number in tickets of empty samples


@explain_constructor
class InProgram:
    """Replay buffer of a program (`trl.replay.InProgram`). Each run creates a new one from the run's seed.

    Inside a loop, insert, sample and update run once per iteration, in the order of their calls in the
    program. A checkpoint of a run contains the buffer.

    Args:
        capacity, fields, options: as in `trl.Replay`, without `seed`.
        min_size_to_sample: the number of rows required for sampling. With fewer rows `sample` returns zeros with weights
            of 0.

    Raises:
        OptionError: `seed` or `limiter` is passed, or another option is invalid.

    Example:
        >>> memory = trl.replay.InProgram(100, {"x": ((), "f32")})
        >>> x = trl.random.normal((8,), domain=(i,))
        >>> memory.insert({"x": x})
        >>> sample = memory.sample(4, domain=(i,))
        >>> sample["x"].shape
        (4,)
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, tuple[tuple[int, ...], Any]],
        *,
        min_size_to_sample: int = 1,
        **options: Any,
    ) -> None:
        if "seed" in options:
            raise OptionError(
                "InProgram() takes no seed: it uses the seed of the run.",
                hint="pass the seed to program.execute(seed=…).",
            )
        if options.get("limiter") is not None:
            raise OptionError(
                "InProgram() takes no limiter: a program inserts and draws in the order of its lines.",
                hint="choose how many rows each iteration inserts and draws.",
            )
        like = Replay(1, fields, **options)  # reports errors in the arguments before the run
        self._fields, self._given = like.fields, list(fields_of(fields))
        self._min_size = integer("min_size_to_sample", min_size_to_sample, least=1)

        def make(_: Mapping[str, int], seed: int) -> _RunBuffer:
            return _RunBuffer(Replay(capacity, fields, seed=seed, **options))

        self._resource = Resource(make, name="replay")

    def insert(self, rows: Mapping[str, RecurrentTensor]) -> None:
        """Insert rows.

        Args:
            rows: recurrent tensors [count, …] by field. With n-step returns, `count` is the number of
                environments.

        Raises:
            ShapeError: a field is missing or unknown.
        """
        names = [*self._given, *(n for n in ("truncated", "valid") if n in rows)]
        names = list(dict.fromkeys(names))
        if sorted(names) != sorted(rows):
            raise ShapeError(
                f"the rows have the fields {', '.join(rows)}, the buffer has {', '.join(self._given)}.",
                hint="pass exactly the buffer's fields.",
            )

        def insert(held: _RunBuffer, at: object, *arrays: Array) -> None:
            held.buffer.insert(dict(zip(names, arrays, strict=True)))

        udf(insert, *(rows[n] for n in names), out=[], resource=self._resource, name="insert")

    def sample(self, count: int, beta: Beta = 0.4, *, domain: Sequence[Any] = ()) -> Sample:
        """Draw rows at every point of some dimensions.

        Weights are 0 while the buffer has fewer than `min_size_to_sample` rows.

        Args:
            count, beta: as in `trl.Replay.sample`.
            domain: the dimensions, such as `(i,)`.

        Returns:
            A sample of recurrent tensors. `index` is i32, `probability` f32, and `ticket` u32[count, 2].
        """
        many, by = integer("the number of entries", count, least=1), check_beta(beta)
        fields, min_size = self._fields, self._min_size

        def sample(held: _RunBuffer, at: object) -> tuple[Array, ...]:
            if len(held.buffer) < min_size:
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
        """Set the priorities of sampled rows from their TD errors, [count]; overwritten rows are skipped."""

        def update(held: _RunBuffer, at: object, words: Array, given: Array) -> None:
            serial = _serial(words)
            if serial[0] != _NONE:
                held.buffer.update(held.ticket(serial), given)

        udf(update, ticket, errors, out=[], resource=self._resource, name="update")


class _RunBuffer:
    """Buffer of one run."""

    def __init__(self, buffer: Replay) -> None:
        self.buffer = buffer

    def ticket(self, serial: Array) -> Ticket:
        return self.buffer.ticket(serial.astype(np.int64))

    def save(self) -> dict[str, Array]:
        return self.buffer.state()

    def load(self, saved: Mapping[str, Array]) -> None:
        self.buffer.restore(saved)


def _words(serial: Array) -> Array:
    """Split numbers of 64 bits into two words each, since some backends have only 32-bit integers."""
    return np.stack([serial & 0xFFFFFFFF, serial >> np.uint64(32)], 1).astype(np.uint32)


def _serial(words: Array) -> Array:
    low, high = np.asarray(words, np.uint64).T
    return (high << np.uint64(32)) | low
