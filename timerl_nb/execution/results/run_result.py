"""Results of a run: outputs by name, parameters, memory use and timing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from timerl_nb.base.array_conversion import Array
from timerl_nb.base.display_registry import list_public
from timerl_nb.base.entry_points import entry_point
from timerl_nb.base.errors import OptionError, one_of
from timerl_nb.base.text_formatting import format_count
from timerl_nb.compiler.ir.analysis.partial_outputs import Coordinates
from timerl_nb.compiler.language.argument_checks import is_whole
from timerl_nb.execution.results.local_outputs import LocalOutputs, format_span, restrict_outputs
from timerl_nb.execution.results.result_dataframe import (
    OutputDimensions,
    Rows,
    output_frame,
    seeds_frame,
    turns_frame,
)
from timerl_nb.execution.results.result_file import damaged_result_error, read_result, write_result
from timerl_nb.runtime.output_assembly import Outputs, OwnPart
from timerl_nb.runtime.run_protocol import RunProtocol
from timerl_nb.runtime.state.checkpoint_reader import WrittenCheckpoint

_WHERE: Final = "coordinates of "
Acting = tuple[Any, Mapping[str, int]]  # a program's context, and its bounds


@dataclass(frozen=True)
class RunMemory:
    """Memory of a run, in bytes on the device.

    Attributes:
        peak: Peak of the live bytes.
        retained: Live bytes at the end of the run, which only outputs had used.
        by: Source of the numbers. "the run's ledger" counted every value. "XLA's buffers" exist
            during the whole run; their size is the peak.
    """

    peak: int
    _timeline: tuple[int, ...] = field(repr=False)
    retained: int = 0
    _host: tuple[int, ...] = field(repr=False, default=())
    by: str = "the run's ledger"

    def timeline(self) -> Array:
        """Return the live bytes on the device at each executed point, in order."""
        return np.asarray(self._timeline, np.int64)

    def host_timeline(self) -> Array:
        """Return the bytes of swapped values on the host at each executed point, in order."""
        return np.asarray(self._host or (0,) * len(self._timeline), np.int64)

    @property
    def host_peak(self) -> int:
        return max(self._host, default=0)


@list_public(hidden="from_run instructions")
@dataclass(frozen=True)
class Result(Mapping[str, Array]):
    """Results of a run: a mapping of output names to NumPy arrays.

    An output has one leading axis per dimension of its tensor. In a program compiled for several seeds,
    all arrays have another axis in front, with a row per seed. A conditional tensor has values at some
    points only: its output lists them along one axis, and `coordinates` has their positions.

    Attributes:
        parameters: Parameters by name, as of the last iteration.
        memory: Memory use.
        seconds: Duration of the run.
        instructions: Number of executed instructions.
        coordinates: For each output of a conditional tensor: an array of positions per dimension.
        lengths: Values of a dynamic bound, by its name. Outputs are padded with zeros beyond them.
        checkpoints: Checkpoints that the run wrote.
        frozen: Other last values that the policy needs, such as running statistics.

    After `execute(gather=False)` in several processes, an output that is divided among them is in `local` only.

    Example:
        >>> ctx.output("root", trl.sqrt(trl.data(np.arange(3.0), domain=i)))
        >>> result = ctx.compile({B: 1, I: 3, T: 1}).execute()
        >>> list(result)
        ['root']
        >>> result["root"].shape
        (3,)
    """

    _outputs: Mapping[str, Array] = field(repr=False)
    parameters: Mapping[str, Array] = field(repr=False)
    memory: RunMemory
    seconds: float
    instructions: int
    coordinates: Mapping[str, Coordinates] = field(
        default_factory=dict[str, Coordinates], repr=False
    )
    lengths: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)
    checkpoints: Sequence[WrittenCheckpoint] = field(default=(), repr=False)
    _acting: Acting | None = field(default=None, repr=False)
    _along: OutputDimensions = field(default_factory=OutputDimensions, repr=False)
    frozen: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)
    _own: OwnPart | None = field(default=None, repr=False)
    _parts: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)

    @classmethod
    def from_run(
        cls,
        run: RunProtocol,
        values: Outputs,
        seconds: float,
        acting: Acting | None = None,
        error: BaseException | None = None,
        along: OutputDimensions = OutputDimensions(),  # noqa: B008 (a frozen value)
    ) -> Result:
        """Return the results of a run that has ended, and free its memory.

        Args:
            run: The run.
            values: Values by (role, name).
            seconds: Duration of the run.
            acting: Context and bounds of the program, needed by `policy`.
            error: Exception that ended the run, if it failed.
            along: Dimensions that outputs are stacked over.
        """
        retained = run.release(error)
        trace, host = tuple(run.ledger.timeline()), tuple(run.ledger.host_trace)
        return cls(
            {name: x for (role, name), x in values.items() if role == "output"},
            {name: x for (role, name), x in values.items() if role == "parameter"},
            RunMemory(run.ledger.peak, trace, retained, host, run.held_by),
            seconds,
            run.instructions,
            run.coordinates,
            run.lengths(),
            tuple(run.written_checkpoints),
            acting,
            along,
            {name: x for (role, name), x in values.items() if role == "policy"},
            run.own_part,
            {name: x for (role, name), x in values.items() if role == "local"},
        )

    @property
    def local(self) -> LocalOutputs:
        """Outputs of this process of a distributed program."""
        return restrict_outputs(
            self._outputs, self.coordinates, self._along.dims, self._own, self._parts
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seed of each row; empty for a program with one seed."""
        return tuple(self._along.rows.seeds) if self._along.rows else ()

    @property
    def _rows_here(self) -> range:
        """The rows with outputs in this process."""
        return self._own.points if self._own and self._parts else range(len(self.seeds))

    def row(self, s: int) -> Result:
        """Return the results of the run with the seed `seeds[s]`.

        They have the form of a program with a single seed. `memory`, `seconds` and `instructions` still
        describe all seeds together.

        Args:
            s: Number of the row, from 0.

        Returns:
            The results of one seed.

        Raises:
            OptionError: The row does not exist, or the program has one seed.

        Example:
            >>> ctx.output("noise", trl.random.normal((2,), domain=i))
            >>> result = ctx.compile({B: 1, I: 3, T: 1}, seeds=4).execute()
            >>> result["noise"].shape, result.row(0)["noise"].shape
            ((4, 3, 2), (3, 2))
        """
        rows = self._along.rows
        if rows is None:
            raise OptionError(
                "the program has one seed, so its result has no rows.",
                hint="compile with several seeds: ctx.compile(bounds, seeds=8).",
            )
        dim, seeds = rows.dim, rows.seeds
        if not is_whole(s) or not 0 <= s < len(seeds):
            raise OptionError(
                f"the result has no row {s!r}.",
                hint=f"row 0 has the seed {seeds[0]}, row {len(seeds) - 1} the seed {seeds[-1]}.",
            )
        at, outputs, first = self.coordinates, self._outputs, 0
        here = self._rows_here
        if here != range(len(seeds)):
            if s not in here:
                raise OptionError(
                    f"row {s} is in another process; this one has the rows {format_span(here)}.",
                    hint="call execute with gather=True, or read the row in its process.",
                )
            outputs, at, first = self.local, self.local.coordinates, here.start
        parts = {
            n: rows.select_run(s if n in at else s - first, x, at.get(n))
            for n, x in outputs.items()
        }
        return replace(
            self,
            _outputs={n: x for n, (x, _) in parts.items()},
            parameters={n: x[s] for n, x in self.parameters.items()},
            coordinates={n: where for n, (_, where) in parts.items() if where is not None},
            lengths={n: x[s] for n, x in self.lengths.items()},
            checkpoints=tuple(
                replace(one, point={d: v for d, v in one.point.items() if d != dim})
                for one in self.checkpoints
                if one.point[dim] == s
            ),
            _along=self._along.of_one(),
            _own=None,
            _parts={},
            frozen={n: x[s] for n, x in self.frozen.items()},
        )

    def policy(self, step: int | Mapping[str, int] | None = None) -> Any:
        """Return the learned policy as a function of arrays.

        The policy is the part of the program between an environment's observation and the action, or the
        policy named by `ctx.policy`. Call it as `action = policy(observation)`. `policy.evaluate(env,
        episodes)` plays episodes, and `policy.weights` has the weights by name.

        Args:
            step: Checkpoint to take the weights from: the number of its iteration, or its point such as
                `{"i": 9}`. By default, the weights are those of the last iteration.

        Returns:
            The policy.

        Raises:
            OptionError: The checkpoint does not exist (the message lists the existing ones), the program
                has no policy, or the result has several seeds.
            ExecutionError: The checkpoint is damaged, or weights are missing.

        Example:
            >>> learner = trl.algorithms.reinforce("CartPole-v1", hidden=(8,))
            >>> policy = learner.compile({"B": 2, "I": 2, "T": 4}).execute().policy()
            >>> policy(np.zeros(4, np.float32)).shape
            ()
        """
        if self._along.rows is not None:
            raise OptionError(
                f"the result has {len(self.seeds)} policies, one per seed.",
                hint=f"call result.row(0).policy() for the seed {self.seeds[0]}.",
            )
        if self._acting is None:
            raise OptionError(
                "the result has no policy: a result that was copied, pickled or loaded contains its "
                "parameters only.",
                hint="pickle result.policy() itself, or call policy() on the original result.",
            )
        ctx, bounds = self._acting
        found = entry_point("program.policy")
        return found(ctx, bounds, self.parameters, self.frozen, self.checkpoints, step)

    def frame(self, name: str | None = None) -> Any:
        """Return outputs as a pandas data frame.

        Without a name, the frame has a row per iteration of the outermost loop, and a column per output that
        is one number per iteration. The index is the outermost dimension; with several seeds, the seed
        precedes it. An output that is undefined at some iterations has NaN there.

        Args:
            name: Name of one output of any shape. The frame then has a row per element, indexed by the
                output's dimensions and then by its axes.

        Returns:
            A `pandas.DataFrame`.

        Raises:
            MissingPartError: pandas is not installed.
            OptionError: The output does not exist, or no output is one number per iteration.

        Example:
            >>> ctx.output("root", trl.sqrt(trl.data(np.arange(3.0), domain=i)))
            >>> ctx.compile({B: 1, I: 3, T: 1}).execute().frame().shape  # doctest: +SKIP
            (3, 1)
        """
        if name is None and self._along.rows is not None:
            tables = {self.seeds[s]: self.row(s).frame() for s in self._rows_here}
            return seeds_frame(tables, self._along.rows.dim)
        if name is None:
            return turns_frame(self._outputs, self.coordinates, self.lengths, self._along)
        return output_frame(name, self[name], self.coordinates.get(name), self._along)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the results to a safetensors file, which `Result.load` reads.

        The file contains numbers and text, but no code. An existing file is replaced, in one step.

        Args:
            path: Path of the file. Missing folders are created.

        Returns:
            The path of the file, with `~` expanded.

        Raises:
            CallError: `path` is empty or not a path.
            ExecutionError: The file cannot be written.

        Example:
            >>> ctx.output("root", trl.sqrt(trl.data(np.arange(3.0), domain=i)))
            >>> path = ctx.compile({B: 1, I: 3, T: 1}).execute().save("first.safetensors")
            >>> trl.Result.load(path)["root"].shape
            (3,)
        """
        memory = self.memory
        timelines = {"timeline": memory._timeline, "host": memory._host}
        groups = {
            "output": self._outputs,
            "parameter": self.parameters,
            "policy": self.frozen,
            "length": self.lengths,
            "local": self._parts,
            "memory": {n: np.asarray(x, np.int64) for n, x in timelines.items()},
            **{f"{_WHERE}{name}": where for name, where in self.coordinates.items()},
        }
        about = {
            "seconds": self.seconds,
            "instructions": self.instructions,
            "memory": {"peak": memory.peak, "kept": memory.retained, "by": memory.by},
            "kept": [[os.fspath(k.path), dict(k.point), list(k.names)] for k in self.checkpoints],
            "along": {
                **asdict(self._along),
                "rows": self._along.rows and self._along.rows.to_json_data,
            },
            "own": self._own
            and {"dim": self._own.dim, "points": [self._own.points.start, self._own.points.stop]},
        }
        return write_result(path, groups, about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read the results that `result.save(path)` has written.

        A loaded result has parameters, but no `policy()`.

        Args:
            path: Path of the file.

        Returns:
            The results.

        Raises:
            CallError: `path` is empty or not a path.
            ExecutionError: The file does not exist, is not a result, or is damaged.
        """
        groups, about = read_result(path)
        try:
            timelines, along = groups["memory"], about["along"]
            memory = RunMemory(
                about["memory"]["peak"],
                tuple(timelines["timeline"].tolist()),
                about["memory"]["kept"],
                tuple(timelines["host"].tolist()),
                about["memory"]["by"],
            )
            dims = {name: tuple(found) for name, found in along["dims"].items()}
            own = about.get("own")
            rows = along["rows"] and Rows(along["rows"]["dim"], range(*along["rows"]["seeds"]))
            return cls(
                groups.get("output", {}),
                groups.get("parameter", {}),
                memory,
                about["seconds"],
                about["instructions"],
                {n.removeprefix(_WHERE): x for n, x in groups.items() if n.startswith(_WHERE)},
                groups.get("length", {}),
                tuple(
                    WrittenCheckpoint(Path(path), point, tuple(names))
                    for path, point, names in about["kept"]
                ),
                None,
                OutputDimensions(along["outer"], along["bound"], dims, rows),
                groups.get("policy", {}),
                own and OwnPart(own["dim"], range(*own["points"])),
                groups.get("local", {}),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise damaged_result_error(path, error) from None

    def __getstate__(self) -> dict[str, Any]:
        # a context is bound to its process, and cannot be pickled
        return {**vars(self), "_acting": None}

    def __getitem__(self, name: str) -> Array:
        if name in self._parts and self._own is not None:
            raise OptionError(
                f"output {name!r} is divided among processes along {self._own.dim}, and was not gathered.",
                hint=f"result.local[{name!r}] has the points {format_span(self._own.points)}, or call execute with gather=True.",
            )
        if name not in self._outputs:
            raise OptionError(
                f"the result has no output {name!r}.", hint=one_of(name, list(self._outputs))
            )
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        found = {**self._outputs, **{f"local {k}": v for k, v in self._parts.items()}}
        shapes = ", ".join(f"{k}: {v.dtype}{list(v.shape)}" for k, v in found.items())
        return (
            f"Result({shapes}; {format_count(len(self.parameters), 'parameter')}; {format_count(self.instructions, 'instruction')} "
            f"in {self.seconds:.2f} s; peak {self.memory.peak:,} bytes by {self.memory.by})"
        )
