"""The buffer that torch and NumPy users take by itself (`trl.Replay`; 003_bc3f8b946743a61e, §3 and §4.1)."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from threading import RLock
from typing import Any, Literal

import numpy as np

from timerl_nb.base.array_conversion import Array, convert_array, indices
from timerl_nb.base.atomic_files import user_path, write_whole
from timerl_nb.base.errors import ExecutionError, OptionError, ShapeError, explain_os_errors, one_of
from timerl_nb.collecting.batch import Batch
from timerl_nb.compiler.ir.shapes import dtype_name
from timerl_nb.compiler.language.argument_checks import integer, number
from timerl_nb.compiler.language.foreign_names import explain_call_errors, missing
from timerl_nb.replay.prioritization.priorities import Proportional, importance_weights
from timerl_nb.replay.prioritization.sum_tree import SumTree
from timerl_nb.replay.storage.buffer_writer import Actor
from timerl_nb.replay.storage.n_step_returns import Steps
from timerl_nb.replay.storage.ring_rows import Field, Rows, fields_of
from timerl_nb.replay.storage.sample import Epoch, Sample, Ticket
from timerl_nb.runtime.state.checkpoint_reader import load_with_metadata
from timerl_nb.runtime.state.checkpoint_writer import safetensors_of

_WEIGHTS = ("buffer", "batch")
_F64 = np.dtype(np.float64)
_FORMAT = "timerl-nb replay 1"
_RESERVED = {
    "valid": "rows with a false `valid` are no steps, and are left out",
    "discount": "`Replay(n_step=…)` adds the discount of the value after n steps under this name",
}


class Replay:
    """Rows that were collected, of which some are drawn again; the oldest give way to new ones.

    One thread at a time changes it: others wait.

    Args:
        capacity: how many rows.
        fields: of a row: `{"obs": ((4,), "f32"), "action": ((), "i32"), …}`.
        priority: `trl.replay.Proportional()`, or None to draw all alike.
        weights: against what a weight is measured: "buffer", the entry of all that is drawn least often, or
            "batch", that of those drawn.
        n_step: the number of steps of a return; 1 leaves rows as they are. `reward` is then the discounted
            sum, `next_obs`, `terminated` and `truncated` are those of the last step, and `discount` is the factor of
            a value there. Returns stop at the end of an episode. `reward` and `discount` are float32 where
            the rewards that are inserted are integers or booleans.
        gamma: by which a reward is worth less, a step later.
        seed: of what is drawn.
        fanout, engine: of the tree (`trl.replay.SumTree`).
        above: more bytes of rows lie in files, memory-mapped, in `folder`.
        folder: one buffer at a time has its rows in it. The default is a temporary one, which is removed with the buffer.

    Raises:
        OptionError, ShapeError: an argument is of another kind.
        ExecutionError: another buffer has its rows in the folder, or it cannot be written to.
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
        seed: int = 0,
        fanout: int = 8,
        engine: str | None = None,
        above: int = 2**32,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.capacity = integer("the capacity", capacity, least=1)
        if weights not in _WEIGHTS:
            raise OptionError(f"weights={weights!r} is none.", hint=one_of(str(weights), _WEIGHTS))
        if priority is not None and not isinstance(priority, Proportional):
            raise OptionError(
                f"{priority!r} is no priority.", hint="trl.replay.Proportional(alpha=0.6), or None."
            )
        known = fields_of(fields)
        _check_names(known)
        count = integer("n_step", n_step, least=1)
        by = number("gamma", gamma, least=0, most=1)
        if count > 1 and "reward" in known and known["reward"].dtype.kind in "biu":
            # returns have fractions, also of integer rewards
            known["reward"] = Field(known["reward"].shape, np.dtype(np.float32))
        self._steps = Steps(known, count, by) if count > 1 else None
        if self._steps is not None:
            known["discount"] = Field((), known["reward"].dtype)
        above = integer("above", above, least=0)
        self._rows = Rows(self.capacity, known, folder, above)
        self.priority = priority
        self._tree = None if priority is None else SumTree(self.capacity, fanout, engine=engine)
        self._by_batch = weights == "batch"
        self._random = np.random.default_rng(integer("the seed", seed) % 2**64)
        # of a copy without a common folder
        self._arguments = {"n_step": count, "gamma": by, "weights": weights, "above": above}
        self._name = secrets.token_hex(8)
        self._epochs: tuple[Epoch, ...] = (Epoch(self._name, 0),)
        self._lock = RLock()
        self._claimed_by: tuple[int, object] | None = None  # a process, and its training run
        self.inserted = 0
        self.dropped = 0
        self._greatest = 1.0
        self._first_of = np.nan, 0.0  # a greatest error, and the priority that it makes

    # --- what there is ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return min(self.inserted, self.capacity)

    @property
    def fields(self) -> Mapping[str, Field]:
        """Of a row, by name."""
        return self._rows.fields

    @property
    def nbytes(self) -> int:
        """Of all rows that there can be."""
        return self._rows.nbytes

    @property
    def tree(self) -> SumTree:
        """Its priorities.

        Raises:
            OptionError: all are drawn alike.
        """
        if self._tree is None:
            raise OptionError(
                "entries have no priorities.", hint="Replay(…, priority=trl.replay.Proportional())."
            )
        return self._tree

    # --- writing ---------------------------------------------------------------------------------

    def insert(self, rows: Mapping[str, Any] | Batch, errors: Any = None) -> int:
        """Write rows in the place of the oldest.

        Args:
            rows: arrays [count, …] by field, or [steps, envs, …]; or a batch of `trl.collect`. With returns of n steps
                [count, …] is one step of `count` environments.
            errors: by which they are drawn at first, [count]; by default the greatest that there was. Where rows
                are returns of several steps, none can be given.

        Returns how many entries there are more; of returns of n steps those that are whole now.

        Raises:
            ShapeError: they are no rows of the buffer; nothing is written then.
        """
        if self._steps is not None and errors is not None:
            raise OptionError("returns of several steps begin with the greatest error there was.")
        with self._lock:
            return self._insert(self._entries(rows, self._steps), errors)

    def actor(self, stage: int = 1) -> Actor:
        """A writer for one thread: its returns of several steps are its own, and its rows wait until there are `stage`.

        `with buffer.actor(64) as put:` writes by `put(rows)`; what waits is inserted at the end.
        """
        steps = None if self._steps is None else self._steps.empty_copy()
        least = integer("stage", stage, least=1)
        return Actor(lambda rows: self._entries(rows, steps), self.insert_entries, least)

    def insert_entries(self, entries: Mapping[str, Array]) -> int:
        """Write what actors have staged (`Actor.take_staged`): whole entries, with `discount` where returns are of several steps."""
        if not self._rows.plain(entries):
            entries = _flat(self._rows.convert_rows(entries, list(self.fields)), list(self.fields))
        with self._lock:
            return self._insert(entries)

    def _entries(self, rows: Mapping[str, Any] | Batch, steps: Steps | None) -> dict[str, Array]:
        """The whole entries that rows make, [count, …] by field.

        Raises:
            ShapeError: they are no rows of the buffer.
        """
        if steps is None and type(rows) is dict and self._rows.plain(rows):
            return rows
        given = _rows_of(rows) if isinstance(rows, Batch) else rows
        if not isinstance(given, Mapping):
            raise ShapeError(
                f"rows are arrays by field, not {type(rows).__name__}.",
                hint=f"the fields are {', '.join(self.fields)}.",
            )
        names = list(self.fields) if steps is None else list(steps.names)
        flags = [n for n in ("truncated", "valid") if n in given and n not in names]
        found = self._rows.convert_rows(given, [*names, *flags])
        unknown = [n for n in given if n not in found and not isinstance(rows, Batch)]
        if unknown:
            raise ShapeError(
                f"the buffer has no {', '.join(map(str, unknown))}.",
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

    def _insert(self, rows: Mapping[str, Array], errors: Any = None) -> int:
        count = len(next(iter(rows.values())))
        priorities, greatest = self._first_priorities(count, errors)
        skipped = max(count - self.capacity, 0)  # they would be overwritten at once
        if skipped:
            rows = {n: x[skipped:] for n, x in rows.items()}
            priorities = priorities[skipped:]
        start = (self.inserted + skipped) % self.capacity
        if self._tree is not None:
            self._tree.insert(start, priorities)  # refuses; nothing is changed before
            self._greatest = max(self._greatest, greatest)
        self._rows.write(start, rows)
        self.inserted += count
        return count

    def _first_priorities(self, count: int, errors: Any) -> tuple[Array, float]:
        """Of new rows, and the greatest of their errors."""
        if errors is None:
            return np.full(count, self._initial_priority), 0.0
        given = convert_array("the errors", errors, _F64)
        if given.shape != (count,):
            raise ShapeError(f"{count} rows have {list(given.shape)} errors.")
        return (given, 0.0) if self.priority is None else self.priority.from_errors(given)

    @property
    def _initial_priority(self) -> float:
        """The priority of an entry that nobody has learnt from."""
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
        """Keep other training runs from this buffer until `release`.

        Args:
            run: any object that is this run's own.

        Raises:
            ExecutionError: a training run has it.
        """
        with self._lock:
            if self._claimed_by is not None and self._claimed_by[0] == os.getpid():
                raise ExecutionError(
                    "another training run inserts into this buffer.",
                    hint="stop that run, or give this one a buffer of its own.",
                )
            self._claimed_by = os.getpid(), run

    def release(self, run: object) -> None:
        """Let another training run have this buffer, if this one has it."""
        if self._claimed_by is not None and self._claimed_by[1] is run:
            self._claimed_by = None

    # --- reading ---------------------------------------------------------------------------------

    def sample(self, count: int, beta: float = 0.4) -> Sample:
        """Draw entries, with those drawn twice that chance draws twice.

        Args:
            count: how many.
            beta: how far `weight` makes up for priorities: 1 wholly, 0 not at all.

        Raises:
            ExecutionError: there are none, or all their priorities are zero.
        """
        with self._lock:
            index, weight, chance, serial = self._draw(count, beta)
            return Sample(self._rows.gather(index), index, weight, chance, self.ticket(serial))

    def sample_in_parts(self, count: int, beta: float = 0.4, *, chunks: int) -> Iterator[Sample]:
        """The same entries as `sample` draws, in so many parts whose rows are gathered as they are asked for.

        Where rows are written between two parts, the later one has what lies there then; its ticket is of what was drawn.

        Raises:
            ExecutionError: as `sample`, at once.
        """
        many = integer("the number of parts", chunks, least=1)
        with self._lock:
            *drawn, serial = self._draw(count, beta)
            ticket = self.ticket(serial)
        ends = [count * k // many for k in range(many + 1)]

        def gather_part(first: int, last: int) -> Sample:
            index, weight, chance = (x[first:last] for x in drawn)
            with self._lock:
                rows = self._rows.gather(index)
            mine = replace(ticket, serial=ticket.serial[first:last])
            return Sample(rows, index, weight, chance, mine)

        return (gather_part(a, b) for a, b in pairwise(ends) if a < b)

    def _draw(self, count: int, beta: float) -> tuple[Array, Array, Array, Array]:
        """Indices, weights, probabilities and serial numbers of entries."""
        count, size = integer("the number of entries", count, least=1), len(self)
        beta = number("beta", beta, least=0)
        if not size:
            raise ExecutionError("the buffer is empty.", hint="insert rows first.")
        if self._tree is None:
            index = self._random.integers(size, size=count)
            return (
                index,
                np.ones(count, np.float32),
                np.full(count, 1 / size),
                self._serial(index),
            )
        tree = self._tree
        index = tree.draw(count, self._random)
        p = tree.priorities[index]
        weight = importance_weights(p, p.min() if self._by_batch else tree.least_priority, beta)
        return index, weight.astype(np.float32), p / tree.total, self._serial(index)

    def ticket(self, serial: Array) -> Ticket:
        """Return the ticket of rows of this epoch and those before it, by their serial numbers, i64[count]."""
        return Ticket(self._name, np.array(indices("serial numbers", serial)), self._epochs)

    def _serial(self, index: Array) -> Array:
        """The how many-th row of all that is which lies at each place."""
        start = self.inserted % self.capacity  # from here on entries are of the turn before
        turn = self.inserted - start
        return index + np.where(index < start, turn, turn - self.capacity)

    def update(self, ticket: Ticket, errors: Any) -> int:
        """Set the priorities of a sample's entries by their errors.

        Rows that were overwritten since, or undone by `load`, are left alone and counted in `dropped`.

        Args:
            ticket: of the sample.
            errors: [count], of any sign; of NumPy, PyTorch or JAX.

        Returns:
            The number of skipped rows.

        Raises:
            OptionError: the ticket is another buffer's or names rows that were never inserted, or entries have
                no priorities.
            ShapeError: an error is NaN or infinite; nothing is changed.
        """
        tree = self.tree
        if not isinstance(ticket, Ticket) or ticket.buffer != self._name:
            raise OptionError(
                "this is no ticket of this buffer.",
                hint="sample(…).ticket, or what was saved with it.",
            )
        given = convert_array("the errors", errors, _F64).reshape(-1)
        if len(given) != len(ticket):
            raise ShapeError(f"{len(ticket)} entries have {len(given)} errors.")
        with self._lock:
            assert self.priority is not None
            priorities, greatest = self.priority.from_errors(given)
            serial, gone = ticket.serial, 0
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
        """Return the range of serial numbers that name the same rows for a ticket and for this buffer.

        Args:
            least, most: of the ticket's serial numbers.

        Raises:
            OptionError: the ticket names rows never inserted.
        """
        own, theirs = self._epochs, ticket.epochs
        is_same = own is theirs or own == theirs
        if least < 0 or (is_same and most >= self.inserted):
            wrong = int(least if least < 0 else most)
            raise OptionError(
                f"the ticket names row {wrong:,}, and {self.inserted:,} rows were ever inserted.",
                hint="update takes sample(…).ticket as it is.",
            )
        first = self.inserted - self.capacity
        if is_same:
            return first, self.inserted
        last = max((k for k, one in enumerate(own) if one in theirs), default=-1)
        if last < 0:  # all rows of that time were overwritten before the last load
            return first, 0
        later = own[last + 1 :][:1] + theirs[theirs.index(own[last]) + 1 :][:1]
        return first, min((one.start for one in later), default=self.inserted)

    # --- keeping ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it to a file, whole or not at all: what is drawn after `load` is what would be drawn here.

        Raises:
            ExecutionError: it cannot be written; what was there stays.
        """
        with self._lock:
            arrays, about = self._content()
            content = safetensors_of(arrays, {"format": _FORMAT, "buffer": json.dumps(about)})
        with explain_os_errors(
            f"the buffer cannot be saved to {path}",
            hint="choose a folder with space left. What was saved last is whole.",
        ):
            user_path(path).parent.mkdir(parents=True, exist_ok=True)
            write_whole(user_path(path), content)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Load a saved buffer of the same capacity, fields and options; tickets of its rows are valid then.

        Raises:
            ExecutionError: the file is damaged, or the buffer differs; nothing is changed.
        """
        arrays, said = load_with_metadata(user_path(path))
        if said.get("format") != _FORMAT:
            raise ExecutionError(f"{path} is not a saved buffer.", hint="Replay.save writes one.")
        self._take_over(arrays, said.get("buffer"), str(path))

    def state(self) -> dict[str, Array]:
        """Return the buffer as arrays by name, for a file with other things in it."""
        with self._lock:
            arrays, about = self._content()
            arrays = {name: x.copy() for name, x in arrays.items()}
        return {**arrays, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Load a buffer from its `state`, as `load` does from a file."""
        arrays = {n: np.asarray(x) for n, x in state.items()}
        about = arrays.pop("about", np.zeros(0)).astype(np.uint8).tobytes()
        self._take_over(arrays, about, "the state")

    def _content(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return views of all arrays and a description; the lock is held."""
        size = len(self)
        arrays = {f"row {n}": x for n, x in self._rows.first_rows(size).items()}
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
            "greatest": self._greatest.hex(),
            "random": self._random.bit_generator.state,
        }

    @property
    def _options(self) -> dict[str, Any]:
        """The options for rows, priorities and weights."""
        priority, steps = self.priority, self._steps
        return {
            "alpha": None if priority is None else priority.alpha,
            "eps": None if priority is None else priority.eps,
            "weights": "batch" if self._by_batch else "buffer",
            "n_step": 1 if steps is None else steps.count,
            "gamma": None if steps is None else steps.gamma,
        }

    def _take_over(self, arrays: Mapping[str, Array], text: Any, where: str) -> None:
        """Load saved arrays with their description, a JSON text; everything is checked before anything changes."""
        tree, steps = self._tree, None if self._steps is None else self._steps.empty_copy()
        rows, values = _arrays_with_prefix(arrays, "row "), np.zeros(self.capacity)
        random = np.random.PCG64()
        try:
            about: Any = json.loads(text)
            if not isinstance(about, dict):
                raise ValueError("its description is no mapping")
            self._check_alike(arrays, about, where)
            size = min(about["inserted"], self.capacity)
            if {len(x) for x in rows.values()} != {size}:
                raise ValueError(f"its arrays do not have {size:,} rows")
            if tree is not None:
                values[:size] = arrays["priority"]
                tree.check(values)
            if steps is not None:
                steps.restore(arrays)
            greatest, epochs = float.fromhex(about["greatest"]), self._epochs_after(about)
            dropped, name = int(about["dropped"]), str(about["name"])
            random.state = about["random"]
        except (KeyError, TypeError, ValueError, ShapeError) as error:
            why = error.what if isinstance(error, ShapeError) else f"{error}."
            raise ExecutionError(
                f"{where} is damaged: {why}", hint="load another one; nothing was changed."
            ) from None
        with self._lock:
            self._rows.write(0, rows)
            if tree is not None:
                tree.insert(0, values)
            self._steps = steps
            self.inserted, self.dropped = about["inserted"], dropped
            self._name, self._epochs, self._greatest = name, epochs, greatest
            self._random.bit_generator.state = random.state

    def _check_alike(
        self, arrays: Mapping[str, Array], about: Mapping[str, Any], where: str
    ) -> None:
        """Refuse rows of another buffer: of other fields, or with other meanings of priorities and returns.

        Raises:
            ExecutionError: the saved buffer has another capacity, or other fields or options.
        """
        own = self._options
        options = about.get("options")
        if options is None:  # a file of an earlier version, described by its arrays
            options = dict(own)
            if ("priority" in arrays) != (self._tree is not None):
                options["alpha"] = "none" if self._tree is not None else "some"
            if self._steps is not None:
                options["n_step"] = self._steps.held_in(arrays)
        fields = {
            n: Field(x.shape[1:], x.dtype) for n, x in _arrays_with_prefix(arrays, "row ").items()
        }
        there, here = (
            {"capacity": capacity, **{f"field {n}": str(x) for n, x in some.items()}, **rest}
            for capacity, some, rest in (
                (about["capacity"], fields, options),
                (self.capacity, self.fields, own),
            )
        )
        differs = [n for n in there | here if there.get(n) != here.get(n)]
        if differs:
            raise ExecutionError(
                f"{where} is of another buffer: {', '.join(differs)} differ{'s' * (len(differs) == 1)}.",
                evidence=[f"{n}: {there.get(n)} there, {here.get(n)} here" for n in differs[:20]],
                hint="make a buffer of the same capacity, fields and options, and load it there.",
            )

    def _epochs_after(self, about: Mapping[str, Any]) -> tuple[Epoch, ...]:
        """Return the epochs after a load: a new one, and saved ones with remaining rows."""
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
        """Copy and pickle the buffer with its rows and random state."""
        arguments = {**self._arguments, "priority": self.priority}
        if self._tree is not None:
            arguments["fanout"] = self._tree.fanout
            if self._tree.engine == "numpy":  # the other one is not installed everywhere
                arguments["engine"] = "numpy"
        names = self.fields if self._steps is None else self._steps.names
        fields = {n: (self.fields[n].shape, dtype_name(self.fields[n].dtype)) for n in names}
        return _restore_replay, (self.capacity, fields, arguments, self.state())

    def __repr__(self) -> str:
        how = "all alike" if self.priority is None else repr(self.priority)
        return f"Replay({len(self):,} of {self.capacity:,} rows: {', '.join(self.fields)}; {how})"


def _restore_replay(
    capacity: int,
    fields: Mapping[str, Any],
    arguments: Mapping[str, Any],
    state: Mapping[str, Array],
) -> Replay:
    """Make the copy of a buffer."""
    made = Replay(capacity, fields, **arguments)
    made.restore(state)
    return made


def _check_names(fields: Mapping[str, Field]) -> None:
    """Refuse fields with reserved names.

    Raises:
        OptionError: a name is reserved.
    """
    for name, meaning in _RESERVED.items():
        if name in fields:
            raise OptionError(
                f"a field cannot be called {name!r}: {meaning}.",
                hint=f'give it another name, such as "my_{name}".',
            )


def _flat(rows: Mapping[str, Array], names: list[str]) -> dict[str, Array]:
    """Rows [count, …] of those [steps, envs, …] that are steps at all."""
    valid = rows.get("valid")
    flat = {n: rows[n].reshape(-1, *rows[n].shape[2:]) for n in names}
    return flat if valid is None else {n: x[valid.reshape(-1)] for n, x in flat.items()}


def _arrays_with_prefix(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {n.removeprefix(prefix): x for n, x in arrays.items() if n.startswith(prefix)}


def _rows_of(batch: Batch) -> dict[str, Any]:
    """A batch by field, with what each step led to."""
    whole = batch.numpy()
    after = np.concatenate([whole.obs[1:], whole.last_obs[None]])
    ended = whole.final
    after[np.asarray(ended.step), np.asarray(ended.env)] = ended.obs
    flags = {n: getattr(whole, n) for n in ("terminated", "truncated", "valid")}
    plain = {"obs": whole.obs, "action": whole.action, "reward": whole.reward, "next_obs": after}
    return {**whole.extras, **plain, **flags}
