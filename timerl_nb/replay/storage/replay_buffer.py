"""Replay buffer for NumPy, PyTorch and JAX programs (`trl.Replay`). Source: PEARL §3 and §4.1."""

from __future__ import annotations

import json
import os
import secrets
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from threading import Condition, RLock
from typing import Any, Literal

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array, indices
from timerl_nb.base.atomic_files import user_path, write_whole
from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError, explain_os_errors, one_of
from timerl_nb.base.stable_identity import identity
from timerl_nb.collecting.batch import Batch
from timerl_nb.compiler.ir.shapes import dtype_name
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import expect_type, explain_call_errors, missing
from timerl_nb.replay.prioritization.priorities import Proportional, importance_weights
from timerl_nb.replay.prioritization.sum_tree import SumTree
from timerl_nb.replay.prioritization.tree_engine import c_extension
from timerl_nb.replay.storage.buffer_writer import Actor
from timerl_nb.replay.storage.frame_rows import FrameRows, leading_axes
from timerl_nb.replay.storage.hindsight import EpisodeAssembly, Hindsight
from timerl_nb.replay.storage.n_step_returns import Steps
from timerl_nb.replay.storage.process_writers import WriterServer, connect
from timerl_nb.replay.storage.rate_limits import Beta, SampleToInsertRatio, beta_at
from timerl_nb.replay.storage.ring_rows import Field, Rows, fields_of
from timerl_nb.replay.storage.sample import Epoch, Sample, Ticket
from timerl_nb.replay.storage.sequences import SequenceAssembly, Sequences
from timerl_nb.runtime.state.checkpoint_reader import load_with_metadata
from timerl_nb.runtime.state.checkpoint_writer import safetensors_of

Assembly = Steps | SequenceAssembly | EpisodeAssembly
_WEIGHTS = ("buffer", "batch")
_F64 = np.dtype(np.float64)
_FORMAT = "timerl-nb replay 1"
_RESERVED = {
    "valid": "the buffer skips rows with a false `valid`",
    "discount": "`Replay(n_step=…)` stores the discount factor of the bootstrap value under this name",
    "batch_position": "`trl.replay.train` adds the position of a row in its batch under this name",
}


class Replay:
    """Replay buffer: a ring of rows with uniform or prioritised sampling.

    A new row overwrites the oldest one when the buffer is full. All methods are safe to call from several
    threads; a lock serialises them.

    Args:
        capacity: the maximal number of rows.
        fields: shape and element type of each field of a row, such as `{"obs": ((4,), "f32"), "action": ((),
            "i32")}`.
        priority: `trl.replay.Proportional()` for prioritised sampling, None for uniform sampling.
        weights: normalisation of the importance-sampling weights. "buffer" divides by the greatest weight of
            the whole buffer, "batch" by the greatest weight of the sample.
        n_step: the number n of steps of a return; 1 stores rows unchanged. For n > 1 the field `reward` holds
            the discounted sum of n rewards, `next_obs`, `terminated` and `truncated` belong to the last of
            the n steps, and an added field `discount` holds the factor of the bootstrap value. A return ends
            early at the end of an episode. Rewards of integer or boolean type are stored as float32.
        gamma: the discount factor per step.
        sequence: `trl.replay.Sequences(…)` makes each entry a sequence of steps, for recurrent policies.
        hindsight: `trl.replay.Hindsight(…)` adds rows with goals that an episode reached.
        frames: saves memory for images: equal frames of these fields are stored once. The value is the number of
            frames along the first axis: `{"obs": 4, "next_obs": 4}` for stacks of four images, 1 for
            arrays without stacked frames.
        limiter: `trl.replay.SampleToInsertRatio(…)` lets insertions and draws of different threads wait for
            each other. None for no limit.
        seed: the seed of sampling, and of the goals of `hindsight`.
        fanout, engine: options of the sum tree, see `trl.replay.SumTree`.
        above: size in bytes above which the rows are stored in memory-mapped files.
        folder: the folder of these files. Only one buffer at a time can use a folder. By default the files
            are in a temporary folder, which is deleted with the buffer.

    Raises:
        OptionError, ShapeError: an argument has the wrong type or value.
        ExecutionError: another buffer uses the folder, or the folder is not writable.

    Example:
        >>> fields = {"obs": ((2,), "f32"), "reward": ((), "f32")}
        >>> buffer = trl.Replay(100, fields, priority=trl.replay.Proportional())
        >>> buffer.insert({"obs": np.zeros((3, 2)), "reward": np.ones(3)})
        3
        >>> sample = buffer.sample(8)
        >>> sample["obs"].shape
        (8, 2)
        >>> buffer.update(sample.ticket, errors=np.ones(8))
        0
    """

    @explain_call_errors
    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, tuple[tuple[int, ...], Any]],
        *,
        priority: Proportional | None = None,
        weights: Literal["buffer", "batch"] = "buffer",
        n_step: int = 1,
        gamma: float = 0.99,
        sequence: Sequences | None = None,
        hindsight: Hindsight | None = None,
        frames: Mapping[str, int] | None = None,
        limiter: SampleToInsertRatio | None = None,
        seed: int = 0,
        fanout: int = 8,
        engine: str | None = None,
        above: int = 2**32,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.capacity = integer("the capacity", capacity, least=1)
        if weights not in _WEIGHTS:
            raise OptionError(
                f"weights={weights!r} is not supported.", hint=one_of(str(weights), _WEIGHTS)
            )
        if priority is not None and not isinstance(priority, Proportional):
            raise OptionError(
                f"{priority!r} is not a priority function.",
                hint="trl.replay.Proportional(alpha=0.6), or None.",
            )
        known = fields_of(fields)
        _check_names(known)
        count = integer("n_step", n_step, least=1)
        by = number("gamma", gamma, least=0, most=1)
        if count > 1 and "reward" in known and known["reward"].dtype.kind in "biu":
            # n-step returns of integer rewards have fractions
            known["reward"] = Field(known["reward"].shape, np.dtype(np.float32))
        self._step_fields = dict(known)
        self._steps: Assembly | None = Steps(known, count, by) if count > 1 else None
        if sequence is not None:
            expect_type(
                sequence,
                Sequences,
                "a trl.replay.Sequences",
                "pass trl.replay.Sequences(length=20).",
            )
            self._steps = SequenceAssembly(known, sequence)
        if hindsight is not None:
            expect_type(
                hindsight, Hindsight, "a trl.replay.Hindsight", "pass trl.replay.Hindsight(reward)."
            )
            self._steps = EpisodeAssembly(known, hindsight, integer("the seed", seed))
        if (count > 1) + (sequence is not None) + (hindsight is not None) > 1:
            raise OptionError(
                "a buffer combines steps in one way: by n_step, sequence or hindsight.",
                hint="omit the others. Compute n-step returns of sequences from their rewards.",
            )
        if self._steps is not None:
            known = self._steps.fields
        above = integer("above", above, least=0)
        self._extension = c_extension() if engine in (None, "c") else None
        if frames is None:
            self._rows = Rows(self.capacity, known, folder, above, self._extension)
        else:
            lead = leading_axes(frames, self._step_fields, known)
            self._rows = FrameRows(self.capacity, known, lead, folder, above, self._extension)
        self.priority = priority
        self._tree = None if priority is None else SumTree(self.capacity, fanout, engine=engine)
        self._by_batch = weights == "batch"
        self._random = np.random.default_rng(integer("the seed", seed) % 2**64)
        # arguments of a copy; a copy does not share the folder
        self._arguments: dict[str, Any] = {
            "n_step": count,
            "gamma": by,
            "weights": weights,
            "above": above,
            "sequence": sequence,
            "hindsight": hindsight,
            "frames": None if frames is None else dict(frames),
            "limiter": limiter,
            "seed": seed,
        }
        self._name = secrets.token_hex(8)
        self._epochs: tuple[Epoch, ...] = (Epoch(self._name, 0),)
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._server: WriterServer | None = None
        if limiter is not None:
            expect_type(
                limiter, SampleToInsertRatio, "a limiter", "pass trl.replay.SampleToInsertRatio(…)."
            )
        self.limiter = limiter
        self._claimed_by: tuple[int, object] | None = None  # process id and training run
        self.inserted = 0
        self.dropped = 0
        self.sampled = 0
        self._draws = 0
        self._greatest = 1.0
        self._first_of = np.nan, 0.0  # the greatest error and its priority

    # --- contents ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return min(self.inserted, self.capacity)

    @property
    def fields(self) -> Mapping[str, Field]:
        """The fields of a row, by name."""
        return self._rows.fields

    @property
    def n_step_gamma(self) -> float | None:
        """The discount factor of n-step returns; None for a buffer without them."""
        return self._steps.gamma if isinstance(self._steps, Steps) else None

    @property
    def nbytes(self) -> int:
        """The size of a full buffer's rows in bytes."""
        return self._rows.nbytes

    @property
    def tree(self) -> SumTree:
        """The sum tree of the priorities.

        Raises:
            OptionError: the buffer samples uniformly.
        """
        if self._tree is None:
            raise OptionError(
                "the buffer has no priorities: it samples uniformly.",
                hint="Replay(…, priority=trl.replay.Proportional()).",
            )
        return self._tree

    # --- writing ---------------------------------------------------------------------------------

    def insert(self, rows: Mapping[str, Any] | Batch, errors: Any = None) -> int:
        """Insert rows; they overwrite the oldest rows of a full buffer.

        Args:
            rows: a mapping from field to an array [count, …] or [steps, envs, …], or a batch of
                `trl.collect`. With n-step returns, [count, …] is one step of `count` environments.
            errors: the TD errors that set the first priorities, [count]. By default a new row gets the
                greatest error so far. Not available with n-step returns.

        Returns:
            The number of inserted rows. With n-step returns, sequences or hindsight, the number of entries
            completed by these steps.

        Raises:
            OptionError: `errors` are passed to a buffer of n-step returns, sequences or episodes.
            ShapeError: an array does not match the fields; nothing is written.

        Example:
            >>> buffer = trl.Replay(100, {"obs": ((2,), "f32"), "reward": ((), "f32")})
            >>> buffer.insert({"obs": np.zeros((3, 2)), "reward": np.ones(3)})
            3
            >>> len(buffer)
            3
        """
        if self._steps is not None and errors is not None:
            raise OptionError(
                "insert() takes no errors in a buffer of n-step returns, sequences or episodes.",
                hint="omit errors: a new entry gets the greatest error so far.",
            )
        with self._lock:
            self._wait("insert")
            count = -1 if self._steps or errors is not None else self._insert_plain(rows)
            return count if count >= 0 else self._insert(self._entries(rows, self._steps), errors)

    def actor(self, stage: int = 1) -> Actor:
        """Return a writer for one thread or process, which inserts rows in groups.

        An argument of a spawned process becomes a writer of that process. It sends its rows to this process,
        and waits until they are inserted. If it dies, its staged rows are lost.

        Each writer has its own incomplete n-step returns, so several threads can write without mixing their
        environments.

        Args:
            stage: the number of rows that the writer collects before it inserts them.

        Returns:
            A function `put(rows)`, also a context manager. Leaving its block inserts the remaining rows.

        Example:
            >>> buffer = trl.Replay(100, {"reward": ((), "f32")})
            >>> with buffer.actor(stage=4) as put:
            ...     for k in range(6):
            ...         put({"reward": np.full(1, k)})
            >>> len(buffer)
            6
        """
        steps = None if self._steps is None else self._steps.empty_copy()
        least = integer("stage", stage, least=1)
        return _make_writer(self, steps, self._insert_in_turn, least, self._address)

    def _address(self) -> Any:
        """Return the address of this buffer for writers in other processes."""
        with self._lock:
            if self._server is None:
                self._server = WriterServer(weakref.WeakMethod(self._insert_in_turn))
                weakref.finalize(self, self._server.close)
        return self._server.address

    def insert_entries(self, entries: Mapping[str, Array]) -> int:
        """Insert rows that writers have staged. The limiter of a buffer does not delay this call.

        Args:
            entries: the result of `take_staged()` of a writer: an array [count, …] per field, including
                `discount` for n-step returns.

        Returns:
            The number of inserted rows.

        Example:
            >>> buffer = trl.Replay(100, {"reward": ((), "f32")})
            >>> writer = buffer.actor(stage=64)
            >>> writer.stage({"reward": np.ones(3)})
            >>> buffer.insert_entries(writer.take_staged())
            3
        """
        with self._lock:
            return self._insert(self._checked(entries))

    def _checked(self, entries: Mapping[str, Array]) -> Mapping[str, Array]:
        if self._rows.plain(entries):
            return entries
        return _flat(self._rows.convert_rows(entries, list(self.fields)), list(self.fields))

    def _insert_in_turn(self, entries: Mapping[str, Array]) -> int:
        """Insert entries of a writer, after waiting for the limiter."""
        entries = self._checked(entries)
        with self._lock:
            self._wait("insert")
            return self._insert(entries)

    def _entries(self, rows: Mapping[str, Any] | Batch, steps: Assembly | None) -> dict[str, Array]:
        """Convert rows to complete entries, [count, …] per field.

        Raises:
            ShapeError: the rows do not match the buffer's fields.
        """
        if steps is None and type(rows) is dict and self._rows.plain(rows):
            return rows
        given = _rows_of(rows) if isinstance(rows, Batch) else rows
        if not isinstance(given, Mapping):
            raise ShapeError(
                f"rows are not a mapping of arrays by field: got {type(rows).__name__}.",
                hint=f"pass a mapping with the fields {', '.join(self.fields)}.",
            )
        names = list(self.fields) if steps is None else list(steps.names)
        flags = [n for n in ("truncated", "valid") if n in given and n not in names]
        found = self._rows.convert_rows(given, [*names, *flags], self._step_fields)
        unknown = [n for n in given if n not in found and not isinstance(rows, Batch)]
        if unknown:
            raise ShapeError(
                f"the buffer has no field {', '.join(map(str, unknown))}.",
                hint=f"its fields are {', '.join(names)}.",
            )
        if steps is None:
            return _flat(found, names)
        whole: list[dict[str, Array]] = []
        for t in range(len(next(iter(found.values())))):
            whole += steps.take_completed({n: x[t] for n, x in found.items()})
        if not whole:
            return {n: np.zeros((0, *f.shape), f.dtype) for n, f in self.fields.items()}
        return {n: np.concatenate([w[n] for w in whole]) for n in self.fields}

    def _insert_plain(self, rows: Any) -> int:
        """Insert rows by the C extension; return their number, or -1 if only `_insert` can do it."""
        tree = None if self._tree is None else self._tree.arguments
        start = self.inserted % self.capacity
        count = self._rows.insert_plain(start, rows, self._initial_priority, tree)
        self._count(max(count, 0), 0)
        return count

    def _insert(self, rows: Mapping[str, Array], errors: Any = None) -> int:
        if errors is None and (found := self._insert_plain(rows)) >= 0:
            return found
        count = len(next(iter(rows.values())))
        priorities, greatest = self._first_priorities(count, errors)
        skipped = max(count - self.capacity, 0)  # later rows of the same call would overwrite these
        if skipped:
            rows = {n: x[skipped:] for n, x in rows.items()}
            priorities = priorities[skipped:]
        start = (self.inserted + skipped) % self.capacity
        if self._tree is not None:
            self._tree.insert(start, priorities)  # raises before anything has changed
            self._greatest = max(self._greatest, greatest)
        self._rows.write(start, rows)
        self._count(count, 0)
        return count

    # --- the limiter -----------------------------------------------------------------------------

    @property
    def can_insert(self) -> bool:
        """Whether the limiter allows an insertion now."""
        return self.limiter is None or self.limiter.can_insert(self.inserted, self.sampled)

    @property
    def can_sample(self) -> bool:
        """Whether the limiter allows a draw now; True for an empty buffer without one."""
        return self.limiter is None or self.limiter.can_sample(self.inserted, self.sampled)

    def _count(self, inserted: int, sampled: int) -> None:
        """Add to the numbers of inserted and drawn rows."""
        self.inserted += inserted
        self.sampled += sampled
        if self.limiter is not None:
            self._changed.notify_all()

    def _wait(self, action: Literal["insert", "sample"]) -> None:
        """Wait until the limiter allows an action. The caller holds the lock.

        Raises:
            ExecutionError: the time limit has passed.
        """
        limiter = self.limiter
        if limiter is None:
            return
        allowed = getattr(limiter, f"can_{action}")
        if not self._changed.wait_for(
            lambda: allowed(self.inserted, self.sampled), limiter.timeout
        ):
            other = "sample" if action == "insert" else "insert"
            raise ExecutionError(
                f"{action} has waited {limiter.timeout:g} s for the limiter, after {self.inserted:,} inserted "
                f"and {self.sampled:,} drawn rows.",
                hint=f"call {other} in another thread, or choose a larger error= or timeout= of the limiter.",
            )

    def _first_priorities(self, count: int, errors: Any) -> tuple[Array, float]:
        """Return the priorities of new rows, and the greatest of their errors."""
        if errors is None:
            return np.full(count, self._initial_priority), 0.0
        given = convert_array("the errors", errors, _F64)
        if given.shape != (count,):
            raise ShapeError(
                f"errors of the shape {list(given.shape)} do not match {count} rows.",
                hint=f"pass one error per row: an array of the shape [{count}].",
            )
        return (given, 0.0) if self.priority is None else self.priority.from_errors(given)

    @property
    def _initial_priority(self) -> float:
        """The priority of a row without an error."""
        of, known = self._greatest, self._first_of
        if known[0] != of:
            made = (
                of
                if self.priority is None
                else float(self.priority.from_errors(np.array([of]))[0][0])
            )
            known = self._first_of = of, made
        return known[1]

    def claim(self, run: object) -> None:
        """Reserve this buffer for one training run until `release`.

        Args:
            run: an object that identifies the run.

        Raises:
            ExecutionError: another training run has reserved the buffer.

        Example:
            >>> buffer = trl.Replay(100, {"reward": ((), "f32")})
            >>> run = object()
            >>> buffer.claim(run)
            >>> buffer.release(run)
        """
        with self._lock:
            if self._claimed_by is not None and self._claimed_by[0] == os.getpid():
                raise ExecutionError(
                    "another training run uses this buffer.",
                    hint="stop that run, or create another buffer for this one.",
                )
            self._claimed_by = os.getpid(), run

    def release(self, run: object) -> None:
        """End the reservation of a training run; no effect for other runs.

        Args:
            run: the object that was passed to `claim`.

        Example:
            >>> buffer = trl.Replay(100, {"reward": ((), "f32")})
            >>> run = object()
            >>> buffer.claim(run)
            >>> buffer.release(run)
        """
        if self._claimed_by is not None and self._claimed_by[1] is run:
            self._claimed_by = None

    # --- reading ---------------------------------------------------------------------------------

    def sample(self, count: int, beta: Beta = 0.4) -> Sample:
        """Draw rows with replacement.

        Args:
            count: the number of rows.
            beta: the exponent of the importance-sampling weights: 1 corrects the bias of prioritised sampling
                completely, 0 not at all. Or a function of the number of batches drawn before from this buffer,
                such as `trl.replay.LinearSchedule()`.

        Returns:
            Copies of the rows with indices, weights, probabilities, and a ticket for `update`.

        Raises:
            ExecutionError: the buffer is empty, or all priorities are zero.

        Example:
            >>> buffer = trl.Replay(100, {"obs": ((2,), "f32")})
            >>> buffer.insert({"obs": np.zeros((3, 2))})
            3
            >>> buffer.sample(8)["obs"].shape
            (8, 2)
        """
        with self._lock:
            index, weight, chance, serial = self._draw(count, beta)
            ticket = Ticket(self._name, serial, self._epochs)
            return Sample(self._rows.gather(index), index, weight, chance, ticket)

    def sample_in_parts(self, count: int, beta: Beta = 0.4, *, chunks: int) -> Iterator[Sample]:
        """Draw the same rows as `sample`, as an iterator over parts.

        The rows of a part are copied when the iterator reaches it, so a learner can start with the first
        part. Rows inserted meanwhile can appear in a later part; its ticket still names the rows that were
        drawn.

        Args:
            count, beta: as in `sample`.
            chunks: the number of parts.

        Raises:
            ExecutionError: the buffer is empty, or all priorities are zero. Raised by the call, not by the
                iterator.

        Example:
            >>> buffer = trl.Replay(100, {"reward": ((), "f32")})
            >>> buffer.insert({"reward": np.ones(3)})
            3
            >>> [len(part) for part in buffer.sample_in_parts(10, chunks=3)]
            [3, 3, 4]
        """
        many = integer("the number of parts", chunks, least=1)
        with self._lock:
            *drawn, serial = self._draw(count, beta)
            ticket = Ticket(self._name, serial, self._epochs)
        ends = [count * k // many for k in range(many + 1)]

        def gather_part(first: int, last: int) -> Sample:
            index, weight, chance = (x[first:last] for x in drawn)
            with self._lock:
                rows = self._rows.gather(index)
            mine = replace(ticket, serial=ticket.serial[first:last])
            return Sample(rows, index, weight, chance, mine)

        return (gather_part(a, b) for a, b in pairwise(ends) if a < b)

    def _draw(self, count: int, beta: Beta) -> tuple[Array, Array, Array, Array]:
        """Draw rows: return their indices, weights, probabilities and serial numbers."""
        count = integer("the number of entries", count, least=1)
        self._wait("sample")
        size, beta = len(self), beta_at(beta, self._draws)
        if not size:
            raise ExecutionError("the buffer is empty.", hint="insert rows first.")
        drawn = self._draw_rows(count, size, beta)
        self._draws += 1
        self._count(0, count)
        return drawn

    def _draw_rows(self, count: int, size: int, beta: float) -> tuple[Array, Array, Array, Array]:
        if self._tree is None:
            index = self._random.integers(size, size=count)
            return (
                index,
                np.ones(count, np.float32),
                np.full(count, 1 / size),
                self._serial(index),
            )
        tree = self._tree
        if self._extension is not None and tree.total:
            chance, weight = self._random.random(count), np.empty(count)
            index, serial = np.empty(count, np.int64), np.empty(count, np.int64)
            of = (*tree.arguments, chance, index, serial, weight, self.inserted, self._by_batch)
            self._extension.draw(*of)
            weight **= -beta
            return index, weight.astype(np.float32), chance, serial
        index = tree.draw(count, self._random)
        p = tree.priorities[index]
        weight = importance_weights(p, p.min() if self._by_batch else tree.least_priority, beta)
        return index, weight.astype(np.float32), p / tree.total, self._serial(index)

    def ticket(self, serial: Array) -> Ticket:
        """Return the ticket of rows that are in the buffer.

        Args:
            serial: the serial numbers of the rows, i64[count]: the number of rows inserted before each.

        Example:
            >>> buffer = trl.Replay(100, {"reward": ((), "f32")})
            >>> buffer.insert({"reward": np.ones(3)})
            3
            >>> buffer.ticket(np.array([0, 2]))
            Ticket(2 entries)
        """
        return Ticket(self._name, np.array(indices("serial numbers", serial)), self._epochs)

    def _serial(self, index: Array) -> Array:
        """Return the serial numbers of the rows in some slots."""
        start = (
            self.inserted % self.capacity
        )  # slots from here on hold rows of the previous lap of the ring
        turn = self.inserted - start
        return index + np.where(index < start, turn, turn - self.capacity)

    def update(self, ticket: Ticket, errors: Any) -> int:
        """Set the priorities of sampled rows from their TD errors.

        The buffer skips rows that were overwritten since, or removed by `load`, and adds their number to
        `dropped`.

        Args:
            ticket: the ticket of the sample.
            errors: the TD errors, [count]; their sign has no effect. Arrays of NumPy, PyTorch or JAX.

        Returns:
            The number of skipped rows.

        Raises:
            OptionError: the ticket belongs to another buffer or names rows that were never inserted, or the
                buffer samples uniformly.
            ShapeError: an error is NaN or infinite; nothing changes.

        Example:
            >>> buffer = trl.Replay(100, {"reward": ((), "f32")}, priority=trl.replay.Proportional())
            >>> buffer.insert({"reward": np.ones(3)})
            3
            >>> sample = buffer.sample(4)
            >>> buffer.update(sample.ticket, errors=[0.5, 1.0, 0.1, 2.0])
            0
        """
        tree = self.tree
        if not isinstance(ticket, Ticket) or ticket.buffer != self._name:
            raise OptionError(
                "the ticket does not belong to this buffer.",
                hint="pass sample(…).ticket of this buffer.",
            )
        given = convert_array("the errors", errors, _F64).reshape(-1)
        if len(given) != len(ticket):
            raise ShapeError(
                f"{len(given)} errors do not match the {len(ticket)} rows of the ticket.",
                hint="pass one error per sampled row.",
            )
        with self._lock:
            assert self.priority is not None
            priorities, greatest = self.priority.from_errors(given)
            serial, gone = ticket.serial, 0
            if self._extension is not None and ticket.epochs is self._epochs:
                if self._extension.update(*tree.arguments, serial, priorities, self.inserted):
                    self._greatest = max(self._greatest, greatest)
                    return 0
            least, most = (serial.min(), serial.max()) if len(serial) else (0, -1)
            first, last = self._shared_serial_range(ticket, least, most)
            if least < first or most >= last:
                there = (serial >= first) & (serial < last)
                serial, priorities, given = serial[there], priorities[there], given[there]
                gone = len(there) - len(serial)
                greatest = float(np.abs(given).max(initial=0.0))
            tree.update(serial % self.capacity, priorities)
            self._greatest = max(self._greatest, greatest)
            self.dropped += gone
            return gone

    def _shared_serial_range(self, ticket: Ticket, least: int, most: int) -> tuple[int, int]:
        """Return the range of serial numbers that name the same rows in a ticket and in this buffer.

        Args:
            least, most: the smallest and the greatest serial number of the ticket.

        Raises:
            OptionError: the ticket names rows that were never inserted.
        """
        own, theirs = self._epochs, ticket.epochs
        is_same = own is theirs or own == theirs
        if least < 0 or (is_same and most >= self.inserted):
            wrong = int(least if least < 0 else most)
            raise OptionError(
                f"the ticket names row {wrong:,}, but only {self.inserted:,} rows have been inserted.",
                hint="pass sample(…).ticket unchanged.",
            )
        first = self.inserted - self.capacity
        if is_same:
            return first, self.inserted
        last = max((k for k, one in enumerate(own) if one in theirs), default=-1)
        if last < 0:  # the last load replaced all rows that the ticket can name
            return first, 0
        later = own[last + 1 :][:1] + theirs[theirs.index(own[last]) + 1 :][:1]
        return first, min((one.start for one in later), default=self.inserted)

    # --- saving ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the buffer to a file, with priorities, incomplete returns and the state of the random generator.

        The file is replaced atomically. A buffer that loads it draws the same samples as this one.

        Args:
            path: the file; missing folders are created.

        Raises:
            ExecutionError: the file cannot be written; an older file remains.

        Example:
            >>> buffer = trl.Replay(100, {"reward": ((), "f32")})
            >>> buffer.insert({"reward": np.ones(3)})
            3
            >>> buffer.save("buffer.safetensors")
            >>> other = trl.Replay(100, {"reward": ((), "f32")})
            >>> other.load("buffer.safetensors")
            >>> len(other)
            3
        """
        with self._lock:
            arrays, about = self._content()
            content = safetensors_of(arrays, {"format": _FORMAT, "buffer": json.dumps(about)})
        with explain_os_errors(
            f"the buffer cannot be saved to {path}",
            hint="choose a writable folder with free space. The previous file is intact.",
        ):
            user_path(path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(user_path(path), content)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Load a saved buffer, including tickets: those of the saved buffer's samples become valid here.

        Args:
            path: a file written by `save`, of a buffer with the same capacity, fields and options.

        Raises:
            ExecutionError: the file is damaged, or the capacity, fields or options differ; nothing changes.

        Example:
            >>> buffer = trl.Replay(100, {"reward": ((), "f32")})
            >>> buffer.save("buffer.safetensors")
            >>> buffer.load("buffer.safetensors")
        """
        arrays, said = load_with_metadata(user_path(path))
        if said.get("format") != _FORMAT:
            raise ExecutionError(
                f"{path} is not a saved buffer.", hint="pass a file written by Replay.save."
            )
        self._take_over(arrays, said.get("buffer"), str(path))

    def state(self) -> dict[str, Array]:
        """Return the whole buffer as arrays by name, to be stored in another file.

        Example:
            >>> buffer = trl.Replay(100, {"reward": ((), "f32")})
            >>> sorted(buffer.state())
            ['about', 'row reward']
        """
        with self._lock:
            arrays, about = self._content()
            arrays = {name: x.copy() for name, x in arrays.items()}
        return {**arrays, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Load the arrays returned by `state`.

        Args:
            state: arrays by name.

        Raises:
            ExecutionError: the capacity, fields or options differ; nothing changes.

        Example:
            >>> buffer = trl.Replay(100, {"reward": ((), "f32")})
            >>> other = trl.Replay(100, {"reward": ((), "f32")})
            >>> other.restore(buffer.state())
        """
        arrays = {n: np.asarray(x) for n, x in state.items()}
        about = arrays.pop("about", np.zeros(0)).astype(np.uint8).tobytes()
        self._take_over(arrays, about, "the state")

    def _content(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return views of all arrays and a description. The caller holds the lock."""
        size = len(self)
        arrays = self._rows.saved(size)
        if self._tree is not None:
            arrays["priority"] = self._tree.priorities[:size]
        if self._steps is not None:
            arrays |= self._steps.state()
        return arrays, {
            "name": self._name,
            "epochs": [[one.name, one.start] for one in self._epochs],
            "capacity": self.capacity,
            "options": self._options,
            "inserted": self.inserted,
            "dropped": self.dropped,
            "sampled": self.sampled,
            "draws": self._draws,
            "greatest": self._greatest.hex(),
            "random": self._random.bit_generator.state,
        }

    @property
    def _options(self) -> dict[str, Any]:
        """The options that determine the meaning of stored rows and priorities."""
        priority, steps, given = self.priority, self._steps, self._arguments
        more = {n: given[n] for n in ("sequence", "hindsight", "frames") if given[n] is not None}
        return {
            "alpha": None if priority is None else priority.alpha,
            "eps": None if priority is None else priority.eps,
            "weights": "batch" if self._by_batch else "buffer",
            "n_step": steps.count if isinstance(steps, Steps) else 1,
            "gamma": self.n_step_gamma,
            **{n: identity(x) for n, x in more.items()},
        }

    def _take_over(self, arrays: Mapping[str, Array], text: Any, where: str) -> None:
        """Load saved arrays and their description, a JSON text. All checks precede the first change."""
        tree, steps = self._tree, None if self._steps is None else self._steps.empty_copy()
        rows, values = _arrays_with_prefix(arrays, "row "), np.zeros(self.capacity)
        random = np.random.PCG64()
        try:
            about: Any = json.loads(text)
            if not isinstance(about, dict):
                raise ValueError("its description is not a mapping")
            self._check_alike(arrays, about, where)
            size = min(about["inserted"], self.capacity)
            if {len(x) for x in rows.values()} != {size}:
                raise ValueError(f"its arrays do not have {size:,} rows")
            if tree is not None:
                values[:size] = arrays["priority"]
                tree.check(values)
            if steps is not None:
                steps.restore(arrays)
            self._rows.check_saved(arrays)
            greatest, epochs = float.fromhex(about["greatest"]), self._epochs_after(about)
            dropped, name = int(about["dropped"]), str(about["name"])
            sampled, draws = int(about.get("sampled", 0)), int(about.get("draws", 0))
            random.state = about["random"]
        except (KeyError, TypeError, ValueError, ShapeError) as error:
            why = error.what if isinstance(error, ShapeError) else f"{error}."
            raise ExecutionError(
                f"{where} is damaged: {why}", hint="load another one. Nothing has changed."
            ) from None
        with self._lock:
            self._rows.load(arrays)
            if tree is not None:
                tree.insert(0, values)
            self._steps = steps
            self.inserted, self.dropped = about["inserted"], dropped
            self._name, self._epochs, self._greatest = name, epochs, greatest
            self._random.bit_generator.state = random.state
            self.sampled, self._draws = sampled, draws
            self._count(0, 0)

    def _check_alike(
        self, arrays: Mapping[str, Array], about: Mapping[str, Any], where: str
    ) -> None:
        """Check that saved rows have this buffer's capacity, fields and options.

        Raises:
            ExecutionError: one of them differs.
        """
        own = self._options
        options = about.get("options")
        if options is None:  # files of earlier versions: derive the options from the arrays
            options = dict(own)
            if ("priority" in arrays) != (self._tree is not None):
                options["alpha"] = "none" if self._tree is not None else "some"
            if isinstance(self._steps, Steps):
                options["n_step"] = self._steps.held_in(arrays)
        fields = {
            n: Field(x.shape[1:], x.dtype) for n, x in _arrays_with_prefix(arrays, "row ").items()
        }
        there, here = (
            {"capacity": capacity, **{f"field {n}": str(x) for n, x in some.items()}, **rest}
            for capacity, some, rest in (
                (about["capacity"], fields, options),
                (self.capacity, self._rows.stored_fields, own),
            )
        )
        differs = [n for n in there | here if there.get(n) != here.get(n)]
        if differs:
            raise ExecutionError(
                f"{where} does not match this buffer: {', '.join(differs)} differ{'s' * (len(differs) == 1)}.",
                evidence=[
                    f"{n}: {there.get(n)} in the file, {here.get(n)} here" for n in differs[:20]
                ],
                hint="create a buffer with the same capacity, fields and options, and load into it.",
            )

    def _epochs_after(self, about: Mapping[str, Any]) -> tuple[Epoch, ...]:
        """Return the epochs after a load: the saved ones with remaining rows, and a new one."""
        before = [Epoch(*one) for one in about.get("epochs", [[about["name"], 0]])]
        made = [*before, Epoch(secrets.token_hex(8), about["inserted"])]
        first = about["inserted"] - self.capacity
        gone = [one.start == two.start or two.start <= first for one, two in pairwise(made)]
        return tuple(one for one, empty in zip(made, [*gone, False], strict=True) if not empty)

    def __getattr__(self, name: str) -> Any:
        words = {"add": "insert(rows).", "push": "insert(rows).", "store": "insert(rows)."}
        words["update_priorities"] = "update(sample.ticket, errors)."
        raise missing("a buffer", name, dir(type(self)), words)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the buffer with its rows and the state of its random generator."""
        return _restore_replay, (self.capacity, *construction_of(self), self.state())

    def __repr__(self) -> str:
        how = "all alike" if self.priority is None else repr(self.priority)
        return f"Replay({len(self):,} of {self.capacity:,} rows: {', '.join(self.fields)}; {how})"


def construction_of(buffer: Replay) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields and the options of an equal buffer without rows."""
    arguments = {**buffer._arguments, "priority": buffer.priority}
    if buffer._tree is not None:
        arguments["fanout"] = buffer._tree.fanout
        if buffer._tree.engine == "numpy":  # Numba may be missing on the machine that unpickles
            arguments["engine"] = "numpy"
    return _fields_as_given(buffer), arguments


def _fields_as_given(buffer: Replay) -> dict[str, Any]:
    return {n: (f.shape, dtype_name(f.dtype)) for n, f in buffer._step_fields.items()}


def _make_writer(
    buffer: Replay,
    steps: Assembly | None,
    insert: Callable[[Mapping[str, Array]], int],
    stage: int,
    address: Callable[[], Any],
) -> Actor:
    """Return a writer.

    Args:
        buffer: the buffer, or in another process an empty one with the same fields and options.
        steps: the writer's incomplete entries.
        insert: a function that inserts entries, possibly in another process.
        address: a function that returns the address of the buffer for other processes.
    """

    def reduce() -> tuple[Any, ...]:
        options = {n: buffer._arguments[n] for n in ("n_step", "gamma", "sequence", "hindsight")}
        empty = None if steps is None else steps.empty_copy()
        return _connect_writer, (address(), _fields_as_given(buffer), options, empty, stage)

    def incomplete() -> int:
        return 0 if steps is None else steps.incomplete_count

    return Actor(lambda rows: buffer._entries(rows, steps), insert, stage, reduce, incomplete)


def _connect_writer(
    address: Any, fields: Any, options: Any, steps: Assembly | None, stage: int
) -> Actor:
    """Return a writer into a buffer of another process."""
    format_only = Replay(1, fields, **options)
    return _make_writer(format_only, steps, connect(address), stage, lambda: address)


def _restore_replay(
    capacity: int,
    fields: Mapping[str, Any],
    arguments: Mapping[str, Any],
    state: Mapping[str, Array],
) -> Replay:
    made = Replay(capacity, fields, **arguments)
    made.restore(state)
    return made


def _check_names(fields: Mapping[str, Field]) -> None:
    """Check that no field has a reserved name.

    Raises:
        OptionError: a name is reserved.
    """
    for name, meaning in _RESERVED.items():
        if name in fields:
            raise OptionError(
                f"the field name {name!r} is reserved: {meaning}.",
                hint=f'choose another name, such as "my_{name}".',
            )


def _flat(rows: Mapping[str, Array], names: list[str]) -> dict[str, Array]:
    """Merge the leading axes of rows [steps, envs, …] into [count, …], and drop rows with a false `valid`."""
    valid = rows.get("valid")
    flat = {n: (x := rows[n]).reshape(x.shape[0] * x.shape[1], *x.shape[2:]) for n in names}
    return flat if valid is None else {n: x[valid.reshape(-1)] for n, x in flat.items()}


def _arrays_with_prefix(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {n.removeprefix(prefix): x for n, x in arrays.items() if n.startswith(prefix)}


def _rows_of(batch: Batch) -> dict[str, Any]:
    """Convert a batch to arrays by field, including the next observation of each step."""
    whole = batch.numpy()
    after = np.concatenate([whole.obs[1:], whole.last_obs[None]])
    ended = whole.final
    after[np.asarray(ended.step), np.asarray(ended.env)] = ended.obs
    flags = {n: getattr(whole, n) for n in ("terminated", "truncated", "valid")}
    plain = {"obs": whole.obs, "action": whole.action, "reward": whole.reward, "next_obs": after}
    return {**whole.extras, **plain, **flags}
